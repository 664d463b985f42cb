"""The front of time and memory: ever less memory, ever slower, each point an answer of its own."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from itertools import pairwise

import pytest
from rich.console import Console

import crosstack
from crosstack import InputError
from crosstack.evaluate.fronts import with_room
from crosstack.evaluate.saved_plan import saved_plan
from crosstack.io import library
from crosstack.report.text import step_tables
from crosstack.workload.architectures import Transformer
from crosstack.workload.job import Job

MODEL = Transformer(
    name="tiny", hidden=512, layers=4, heads=8, kv_heads=8, head_size=64, feed_forward=2048,
    vocabulary=1024, context=256,
)  # fmt: skip
JOB = Job(model=MODEL, batch=16, sequence=256)
SYSTEM = library.system_on("h100-dgx", chips=2)
METRICS = ("time", "memory", "price")


@pytest.fixture(scope="module")
def answer():
    return crosstack.optimise(JOB, SYSTEM, front=METRICS, front_points=6)


def test_points_fill_ever_less_memory_and_take_ever_longer(answer):
    points = answer.front.points
    assert len(points) > 2
    assert points[0].evaluation == answer.evaluation
    for before, after in pairwise(points):
        assert after.limit < before.evaluation.memory_used
        assert after.evaluation.time > before.evaluation.time
    assert all(point.evaluation.memory_used <= point.limit for point in points)


def test_a_point_is_the_answer_on_a_machine_of_that_memory(answer):
    point = answer.front.points[-1]
    alone = crosstack.optimise(with_room(answer.task, point.limit))
    assert point.evaluation.time == pytest.approx(alone.evaluation.time, rel=1e-9)
    assert point.gap == pytest.approx(alone.certificate.gap, abs=1e-12)


def test_a_front_is_saved_and_read_again(answer):
    saved = json.loads(answer.to_json())
    again = saved_plan(saved, answer.task)
    for before, after in zip(answer.front.points, again.front.points, strict=True):
        assert before.mapping == after.mapping
        assert after.evaluation.time == pytest.approx(before.evaluation.time, rel=1e-12)
        assert (after.limit, after.bound) == pytest.approx((before.limit, before.bound))
    assert again.front.nothing == answer.front.nothing
    bad = saved | {"memory_front": {"points": [{}]}}
    with pytest.raises(InputError, match=r"memory_front\.points\[0\]"):
        saved_plan(bad, answer.task)


def test_it_is_printed_and_on_the_page(answer):
    title = "Front of time and memory of a chip"
    console = Console(file=StringIO(), width=120)
    console.print(*step_tables(answer))
    assert title in console.file.getvalue()
    assert title in answer._repr_html_()


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        (("time",), "front: got time; allowed: time and memory, and price"),
        (("time", "memory", "prize"), 'front: no metric is called "prize". Did you mean "price"'),
    ],
)
def test_what_is_no_front_is_refused(metrics, said):
    with pytest.raises(InputError) as caught:
        crosstack.optimise(JOB, SYSTEM, front=metrics)
    assert str(caught.value.problems[0]).startswith(said)


def test_a_front_by_price_needs_prices():
    chip = replace(SYSTEM.chip, price=None)
    with pytest.raises(InputError, match="front"):
        crosstack.optimise(JOB, replace(SYSTEM, chip=chip), front=METRICS)


def test_a_front_is_of_the_time(answer):
    with pytest.raises(InputError, match="front"):
        crosstack.optimise(JOB, SYSTEM, front=METRICS, objective="energy")
