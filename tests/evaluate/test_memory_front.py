"""Fronts of what a step takes and memory: all of brute force are found, and bounds hold."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest

from crosstack import InputError, optimise, system
from crosstack.errors import InfeasibleError
from crosstack.evaluate.memory_front import front_metric, memory_front
from crosstack.evaluate.saved_plan import saved_plan
from crosstack.evaluate.time import evaluate
from crosstack.explore.pareto import pareto_rows
from crosstack.io.library.machines import system_on
from crosstack.io.transformers import transformer
from crosstack.mapping.degrees import Degrees
from crosstack.mapping.mapping import Constraints, Task
from crosstack.mapping.search import search
from crosstack.model.objective import Objective
from crosstack.report.memory_front_words import front_figure, front_rows, front_title
from crosstack.workload.architectures import graphs
from crosstack.workload.graph_workload import workload_of
from crosstack.workload.transformer_training import Recompute, Schedule, Zero

METRICS = ("time", "memory")


def a_task(**given: object) -> Task:
    """Two layers of Llama 3 8B trained on two H100, kernel by kernel."""
    few = replace(transformer("llama3-8b"), layers=2)
    return Task(
        workload=workload_of(
            graphs.training(few, sequence=256, batch=4), block="layers", items="batch"
        ),
        system=system_on("h100-dgx", chips=2),
        constraints=Constraints(kernel_by_kernel=True, **given),
    )


NARROW = {"schedule": Schedule.ONE_F_ONE_B, "degrees": Degrees(tensor=1, context=1)}


@pytest.fixture(scope="module")
def answer():
    return optimise(a_task(**NARROW), front=METRICS)


def of_each_strategy(task: Task):
    """Every strategy of a task whose tensors are not split, evaluated with the same kernels."""
    uses = {}
    for pipeline in (1, 2):
        given = replace(task.constraints, degrees=Degrees(tensor=1, context=1, pipeline=pipeline))
        uses[pipeline] = optimise(replace(task, constraints=given)).mapping
    for use, size, again, zero, pieces in itertools.product(
        uses.values(), (1, 2, 4), Recompute, Zero, (1, 2)
    ):
        for layers in (None, 1):
            decided = {"microbatch_size": size, "recompute": again, "zero": zero}
            decided |= {"recompute_layers": layers, "interleave": pieces}
            try:
                mapping = replace(use, **decided)
                found = evaluate(task.workload, task.system, mapping)
            except (InfeasibleError, InputError):
                continue
            yield found.memory_used, found.time


def test_the_front_is_that_of_every_strategy(answer):
    """Kernels of whole tensors leave nothing but the strategy to decide."""
    found = answer.front
    assert found.exact
    assert all(one.proved for one in found.points)
    mine = np.array([(one.memory, one.value) for one in found.points])
    every = np.unique(np.array(list(of_each_strategy(answer.task))), axis=0)
    front = np.unique(every[pareto_rows(every)], axis=0)
    np.testing.assert_allclose(mine, front, rtol=1e-9)


def test_points_get_better_with_memory_and_the_last_is_the_answer(answer):
    memory, value = np.array([(one.memory, one.value) for one in answer.front.points]).T
    assert (np.diff(memory) > 0).all()
    assert (np.diff(value) < 0).all()
    assert value[-1] == pytest.approx(answer.evaluation.time, rel=1e-12)
    for one in answer.front.points:
        again = evaluate(answer.task.workload, answer.task.system, one.mapping)
        assert (again.time, again.memory_used) == (one.evaluation.time, one.memory)


def test_what_searches_leave_open_holds_the_whole_front(answer):
    """A front of few searches: no point of the whole one is below its bounds."""
    task, rules = answer.task, answer.rules

    def find(system, best, known):
        return *search(task.workload, system, task.constraints, rules, start=best), None

    first = answer.mapping, answer.certificate.bound, None
    few = memory_front(task, rules, find, first, metrics=METRICS, searches=2)
    assert not few.exact
    tops = [*(one.memory for one in few.points[1:]), np.inf]
    for point in few.points:
        better = [p for p in answer.front.points if p.memory <= point.memory]
        assert point.least <= min([p.value for p in better], default=np.inf) * (1 + 1e-9)
    for point in answer.front.points:
        assert point.memory >= few.least_memory
        held = [one for one, top in zip(few.points, tops, strict=True) if point.memory < top]
        assert point.value >= held[0].bound * (1 - 1e-9)


def test_the_front_is_said_drawn_and_saved(answer):
    front = answer.front
    assert "proved" in front_title(answer, front)
    assert len(front_rows(answer, front).rows) == len(front.points)
    assert front_figure(answer) is not None
    saved = answer.to_dict()["memory_front"]
    assert saved["exact"]
    assert saved["metrics"] == list(METRICS)
    assert [one["time_s"] for one in saved["points"]] == [p.value for p in front.points]
    priced = replace(front, metrics=("time", "price", "memory"))
    assert "move together" in front_title(answer, priced)


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        (("time",), "two or more"),
        (("time", "area"), "two or more"),
        (("time", "price"), "single plan"),
        (("time", "energy"), "energy-delay"),
        (("time", "energy", "memory"), "not searched"),
    ],
)
def test_metrics_that_are_no_front_are_refused(metrics, said):
    with pytest.raises(InputError, match=said):
        front_metric(metrics, system("h100-dgx"))


def test_a_front_of_energy_needs_it_as_the_objective():
    assert front_metric(("energy", "memory"), system("h100-dgx")) is Objective.ENERGY
    with pytest.raises(InputError, match="energy for this front"):
        optimise(a_task(**NARROW), front=("energy", "memory"))


def test_a_front_whose_end_is_not_known_says_so(answer):
    known = replace(answer.front, least_memory=1e9, searches=3)
    assert "none takes less memory than 1 GB" in front_title(answer, known)
    open_ = replace(known, least_memory=0.0)
    assert front_title(answer, open_).endswith("and some may take less than the last")


def test_a_front_is_saved_and_read_again(answer):
    saved = json.loads(answer.to_json())
    again = saved_plan(saved, answer.task).front
    assert (again.metrics, again.searches) == (answer.front.metrics, answer.front.searches)
    assert again.least_memory == answer.front.least_memory
    for before, after in zip(answer.front.points, again.points, strict=True):
        assert before.mapping == after.mapping
        assert after.value == pytest.approx(before.value, rel=1e-12)
        assert after.bound == pytest.approx(before.bound, rel=1e-12)
        assert after.least == pytest.approx(before.least, rel=1e-12)
    for wrong in ({"points": [{}]}, {"points": 3}, {"metrics": ["time"], "points": []}):
        with pytest.raises(InputError, match="memory_front"):
            saved_plan(saved | {"memory_front": saved["memory_front"] | wrong}, answer.task)
