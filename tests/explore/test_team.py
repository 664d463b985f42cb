from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from crosstack.explore.pool import n_processors
from crosstack.explore.team import Team, team_of, usual_jobs

BEGUN = 120.0  # s after which a process has surely begun, and done its part


@dataclass(eq=False)
class Sums:
    """Adds what is learnt, and says who did; ``large`` is never sent twice."""

    large: list[int]
    news: int = 0
    asked: list[int] = field(default_factory=list)
    deadly: int | None = None
    own: int = field(default_factory=os.getpid)

    @property
    def shared(self) -> tuple[object, ...]:
        return (self.large,)

    def learn(self, news: Any) -> None:
        self.news = news

    def answer(self, item: int) -> tuple[int, int, list[int]]:
        time.sleep(0.05)
        if item == self.deadly and os.getpid() != self.own:
            os._exit(3)
        return item + self.news, os.getpid(), self.large


def begun(team: Team) -> None:
    ends = time.monotonic() + BEGUN
    while not all(member.ready() for member in team.members) and time.monotonic() < ends:
        time.sleep(0.01)


def answers(team: Team, subject: Sums, *lists: list[int]) -> list[dict[int, Any]]:
    team.begin(subject)
    numbers = []
    for news, items in enumerate(lists):
        subject.news = news
        numbers.append(team.share(items))
    found: list[dict[int, Any]] = [{} for _ in lists]
    for number, place, result in team.results(numbers):
        assert place not in found[number]  # each once
        found[number][place] = result
    return found


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_each_item_is_answered_once_with_what_was_known_when_its_list_was_shared(jobs):
    large = [1] * 100_000
    with team_of(jobs) as team:
        begun(team)
        _, second = answers(team, Sums(large), list(range(10)), list(range(10)))
    assert {place: value for place, (value, _, _) in second.items()} == {
        place: place + 1 for place in range(10)
    }
    assert all(result[2] is large for result in second.values())
    assert len({process for _, process, _ in second.values()} | {os.getpid()}) <= jobs


def test_others_share_the_work_and_what_one_did_not_live_to_answer_is_answered_here():
    subject = Sums([], deadly=3)
    with team_of(2) as team:
        begun(team)
        team.begin(subject)
        number = team.share(list(range(8)))
        team.members[0].process.join(BEGUN)  # it comes to the item that it does not survive
        found = {place: result for _, place, result in team.results([number])}
    assert [found[place][0] for place in range(8)] == list(range(8))
    assert {found[place][1] for place in range(3)} != {os.getpid()}
    assert found[3][1] == os.getpid()


def test_a_process_that_has_not_begun_holds_nothing_up():
    with team_of(2) as team:
        (found,) = answers(team, Sums([]), [1])
    assert found[0][0] == 1


def test_processes_if_nothing_is_said_are_as_many_as_processors_and_few():
    assert 1 <= usual_jobs() <= min(n_processors(), 4)
