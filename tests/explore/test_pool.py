from __future__ import annotations

import os
import time

import pytest

from crosstack.explore.evaluators import PointAnswer
from crosstack.explore.pool import Processes, Serial
from crosstack.explore.progress import Meter


def squared(item: int) -> int:
    if item == 7:
        os._exit(3)
    if item == 9:
        time.sleep(30)
    return item * item


@pytest.mark.parametrize("executor", [Serial(), Processes(2)])
def test_processes_stay_for_the_next_items(executor):
    with executor.started(squared) as run:
        assert sorted(run([1, 2, 3])) == [(1, 1), (2, 4), (3, 9)]
        assert sorted(run([4])) == [(4, 16)]
        assert list(run([])) == []


def test_an_item_that_is_not_answered_is_a_failure_and_others_are_not_lost():
    with Processes(2, timeout=2.0).started(squared) as run:
        found = dict(run([1, 7, 9, 2]))
    assert (found[1], found[2]) == (1, 4)
    assert found[7] == PointAnswer(status="failed", reason="its process died 2 times (exit code 3)")
    assert found[9] == PointAnswer(status="timeout", reason="stopped after 2 s")
    assert found[9].runtime == 2.0


def test_what_is_left_follows_from_the_points_of_this_run():
    seen = []
    meter = Meter(seen.append)
    time.sleep(0.05)
    meter.show(60, 100, fresh=10, counts={"feasible": 10})
    assert seen[0].left == pytest.approx(40 / seen[0].rate)
    assert 0 < seen[0].rate < 10 / 0.05
    meter.show(100, 100, fresh=50)
    assert seen[1].left == 0
    Meter(None).show(1, 2)  # nobody waits
