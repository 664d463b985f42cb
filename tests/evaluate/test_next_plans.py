"""The plans next to an answer: none is faster, each says what it decides otherwise."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import crosstack
from crosstack import InputError, Job, model, optimise, system
from crosstack.evaluate import ranking
from crosstack.evaluate.next_plans import PLACES, RankedStrategies, decided_otherwise
from crosstack.evaluate.saved_plan import saved_plan
from crosstack.evaluate.time import evaluate
from crosstack.machine.system import Parallelism
from crosstack.mapping.degrees import Degrees
from crosstack.mapping.mapping import Constraints, Status
from crosstack.published.dfmodel.graphs.hpl import hpl
from crosstack.report.step_words import differences_words
from crosstack.workload.transformer_training import Recompute, Schedule

JOB = Job(model=model("llama-68m"), batch=16, sequence=512)


@pytest.fixture(scope="module")
def answer():
    given = Constraints(microbatch_size=1, recompute=Recompute.NONE, degrees=Degrees(pipeline=1))
    asked = {"constraints": given, "work_limit": 1e3, "top": 4, "tokens": 1e9}
    return optimise(JOB, system("h100-dgx"), **asked)


def test_no_listed_plan_is_faster_than_the_answer(answer):
    times = [found.time for _, found in answer.next_plans.found]
    assert len(times) == 4
    assert times == sorted(times)
    assert answer.evaluation.time <= times[0]


def test_the_answer_is_a_listed_strategy_that_is_faster(monkeypatch):
    """A search that stops at once is beaten by the list; the certificate is then that plan's."""
    given = Constraints(schedule=Schedule.ONE_F_ONE_B)
    task = crosstack.Task(workload=JOB.workload, system=system("h100-dgx"), constraints=given)
    slow = optimise(task, work_limit=1.0)
    fast = optimise(task, work_limit=3e3)
    assert fast.evaluation.time < slow.evaluation.time
    assert slow.certificate.status is Status.LIMIT

    def listed(*_, **__):
        pairs = (fast.mapping, fast.evaluation), (slow.mapping, slow.evaluation)
        return RankedStrategies(found=pairs, total=9, blocks=1)

    monkeypatch.setattr(ranking, "fastest_strategies", listed)
    found = optimise(task, work_limit=1.0, top=2)
    assert (found.mapping, found.evaluation.time) == (fast.mapping, fast.evaluation.time)
    assert found.certificate.objective == fast.evaluation.time
    assert found.certificate.bound == slow.certificate.bound
    assert found.certificate.gap < slow.certificate.gap
    assert "the fastest of all strategies" in found.certificate.method
    assert [mapping for mapping, _ in found.next_plans.found] == [slow.mapping]
    inside = optimise(task, work_limit=1.0, top=2, gap=0.999)
    assert inside.certificate.status is Status.FEASIBLE


def test_the_answer_is_not_listed_beside_itself(answer):
    assert all(decided_otherwise(answer.mapping, mapping) for mapping, _ in answer.next_plans.found)


def test_what_differs_is_said_by_decision(answer):
    here = answer.mapping
    there = replace(here, microbatch_size=here.microbatch_size * 2)
    (one,) = decided_otherwise(here, there)
    assert (one.decision, one.here, one.there) == (
        "microbatch_size", here.microbatch_size, here.microbatch_size * 2,
    )  # fmt: skip
    assert differences_words(here, there) == f"microbatch {one.there}, not {one.here}"
    assert decided_otherwise(here, here) == ()


def test_degrees_on_other_levels_are_a_decision_of_their_own(answer):
    uses = Parallelism.TENSOR, Parallelism.DATA
    here = replace(answer.mapping, sizes=(2, 4), parallelism=uses, dimensions=(0, 0))
    there = replace(here, sizes=(4, 2), parallelism=uses[::-1])
    (one,) = decided_otherwise(here, there)
    assert one.decision == PLACES
    words = "on levels 0: data 4 x tensor 2, not 0: tensor 2 x data 4"
    assert differences_words(here, there) == words
    swapped = replace(here, sizes=(4, 2))
    assert [d.decision for d in decided_otherwise(here, swapped)] == ["tensor", "data"]


def test_a_saved_answer_has_its_run_and_the_next_plans_again(answer):
    data = json.loads(answer.to_json())
    again = saved_plan(data, answer.task)
    assert again.tokens == 1e9
    assert again.to_dict() == answer.to_dict()
    assert data["run"]["tokens"] == 1e9
    row = data["next_plans"]["plans"][0]
    mapping, found = answer.next_plans.found[0]
    assert row["time_s"] == found.time
    assert row["slower_by"] == pytest.approx(found.time / answer.evaluation.time - 1)
    assert row["more_memory_b"] == found.memory_used - answer.evaluation.memory_used
    task = answer.task
    assert evaluate(task.workload, task.system, mapping, answer.rules).time == found.time


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"next_plans": 3}, "next_plans.plans"),
        ({"next_plans": {"plans": [{}]}}, "next_plans.plans"),
        ({"next_plans": {"plans": [], "strategies": -1}}, "next_plans.strategies"),
        ({"run": {"tokens": "many"}}, "run.tokens"),
        ({"run": {"tokens": 0}}, "run.tokens"),
    ],
    ids=str,
)
def test_what_is_none_of_them_is_refused_by_name(answer, change, path):
    with pytest.raises(InputError, match=path.replace(".", r"\.")):
        saved_plan(json.loads(answer.to_json()) | change, answer.task)


def test_numbers_that_are_none_are_refused():
    with pytest.raises(InputError, match="top"):
        optimise(JOB, system("h100-dgx"), top=-1)
    with pytest.raises(InputError, match="top"):  # before anything is searched
        optimise(hpl(size=4096, block=128), system("h100-dgx"), top=3)
    with pytest.raises(InputError, match="tokens"):
        optimise(JOB, system("h100-dgx"), tokens=0.0)
