"""Many machines by a few plans: each has a status as true as that of its own search."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import crosstack
from crosstack.evaluate.again import Limits
from crosstack.evaluate.machines import machine_costs, machine_of, relative_costs
from crosstack.evaluate.time import evaluate
from crosstack.explore.retained import answer_many
from crosstack.io.library.machines import system_on
from crosstack.machine.system import Dimension, DimensionKind
from crosstack.mapping.degrees import Degrees
from crosstack.mapping.mapping import Constraints, Task
from crosstack.mapping.search import search
from crosstack.model.rules import rules_named
from crosstack.workload.architectures import Transformer, graphs
from crosstack.workload.graph_workload import workload_of
from crosstack.workload.transformer_training import Recompute, Schedule, Zero

RULES = rules_named("crosstack")
TINY = Transformer(
    hidden=512, layers=2, heads=8, kv_heads=8, head_size=64, feed_forward=2048, vocabulary=1024,
    context=256,
)  # fmt: skip
GAP = 0.1


def a_task(**given: object) -> Task:
    """Two layers trained on eight H100, four in each of two servers."""
    system = system_on("h100-dgx", chips=8)
    network = (
        Dimension(kind=DimensionKind.SWITCH, size=4, bandwidth=4.5e11, latency=1e-6),
        Dimension(kind=DimensionKind.SWITCH, size=2, bandwidth=5e10, latency=5e-6),
    )
    graph = graphs.training(TINY, sequence=256, batch=8)
    usual = {"schedule": Schedule.ONE_F_ONE_B, "kernel_by_kernel": True, "interleave": 1}
    return Task(
        workload=workload_of(graph, block="layers", items="batch"),
        system=replace(system, network=network),
        constraints=Constraints(**(usual | {"recompute": Recompute.NONE, **given})),
    )


def machines(task: Task, count: int, seed: int) -> dict[str, np.ndarray]:
    """Draw machines: rates within a factor of two, and room for a part of what is kept, or all."""
    draw, chip = np.random.default_rng(seed), task.system.chip
    usual = {
        "system.chip.frequency": chip.compute.frequency,
        "system.memory.bandwidth": chip.main_memory.speed,
        "system.network[0].bandwidth": 4.5e11,
        "system.network[1].bandwidth": 5e10,
        "system.network[1].latency": 5e-6,
    }
    found = {path: x * 2 ** draw.uniform(-0.5, 0.5, count) for path, x in usual.items()}
    room = draw.choice([1e6, 5e7, 8e10], count, p=[0.1, 0.3, 0.6])
    return found | {"system.memory.capacity": room, "system.chip.price": draw.uniform(1, 2, count)}


@pytest.fixture(scope="module")
def task():
    return a_task(degrees=Degrees(context=1, pipeline=1), zero=Zero.STATE, microbatch_size=1)


@pytest.fixture(scope="module")
def swept(task):
    arrays = machines(task, 24, seed=1)
    found = answer_many(task, RULES, arrays, gap=GAP, limits=Limits(work_limit=3e5))
    return arrays, found


def test_every_machine_has_a_plan_within_the_gap_or_a_proof_that_there_is_none(swept):
    _, found = swept
    assert {*found.status.tolist()} <= {"optimal", "feasible", "infeasible"}
    known = found.status != "infeasible"
    assert known.any()
    assert (found.terms["gap"][known] <= GAP + 1e-9).all()
    assert np.isnan(found.terms["time"][~known]).all()
    assert all(reason is None for reason in found.reason[known])
    assert found.searches < 24


def test_no_bound_is_above_the_optimum_of_a_machine_and_no_time_below(task, swept):
    arrays, found = swept
    paths, costs = machine_costs(arrays)
    for row in np.random.default_rng(2).choice(24, 3, replace=False).tolist():
        system = machine_of(task.system, paths, costs[row].tolist())
        if found.status[row] == "infeasible":
            with pytest.raises(crosstack.InfeasibleError):
                search(task.workload, system, task.constraints, RULES)
            continue
        _, alone = search(task.workload, system, task.constraints, RULES, work_limit=3e5)
        assert alone.status is crosstack.Status.OPTIMAL
        assert found.terms["bound"][row] <= alone.objective * (1 + 1e-9)
        assert found.terms["time"][row] >= alone.objective * (1 - 1e-9)


def test_no_mapping_takes_less_than_its_share_of_what_it_takes_elsewhere(task):
    mapping, _ = search(task.workload, task.system, task.constraints, RULES, gap=0.5)
    arrays = {p: x for p, x in machines(task, 12, seed=3).items() if not p.endswith("capacity")}
    paths, costs = machine_costs(arrays)
    times = [
        evaluate(task.workload, machine_of(task.system, paths, one), mapping, RULES).time
        for one in costs.tolist()
    ]
    for there, time in zip(costs, times, strict=True):
        least = time * relative_costs(there, costs, paths)
        assert (np.array(times) >= least * (1 - 1e-9)).all()


@pytest.mark.parametrize("times", [0.5, 3.0])
def test_a_slowed_machine_takes_so_many_times_as_long(task, times):
    mapping, _ = search(task.workload, task.system, task.constraints, RULES, gap=0.5)
    slower = evaluate(task.workload, task.system.slowed(times), mapping, RULES).time
    assert slower == pytest.approx(
        times * evaluate(task.workload, task.system, mapping, RULES).time, rel=1e-12
    )


def test_a_machine_with_more_room_is_bounded_by_none_with_less():
    paths = ("system.chip.frequency", "system.memory.capacity", "all else")
    less, more = np.array([1.0, 1 / 2, 1.0]), np.array([1.0, 1 / 3, 1.0])
    assert relative_costs(less, more, paths) == 0
    assert relative_costs(more, less, paths) == 1
    assert relative_costs(more, np.array([0.5, 1 / 2, 1.0]), paths) == 0.5
    assert relative_costs(np.array([1.0, 0.5, 0.5]), np.array([1.5, 0.5, 1.0]), paths) == 1.5


STUDY = """\
base: tiny.yaml
evaluate: map
options: {gap: 0.2, work_limit: 100000}
axes:
  clock: {path: system.chip.frequency, values: [1.2 GHz, 1.8 GHz]}
  memory: {path: system.memory.bandwidth, values: [2 TB/s, 3 TB/s, 4 TB/s]}
  chips: {path: system.n_chips, values: [8]}
objectives: {time: min}
"""
BASE = """\
workload:
  llm: {layers: 2, hidden: 512, heads: 8, head_size: 64, feed_forward: 2048, vocabulary: 1024,
    sequence: 256, batch: 8}
system: {on: h100-dgx, n_chips: 8}
constraints: {kernel_by_kernel: true, recompute: none, microbatch_size: 1, interleave: 1}
"""


def test_a_study_with_a_gap_says_of_each_point_how_sure_it_is(tmp_path):
    (tmp_path / "tiny.yaml").write_text(BASE)
    (tmp_path / "study.yaml").write_text(STUDY)
    table = crosstack.sweep(tmp_path / "study.yaml", jobs=1)
    assert len(table) == 6
    assert {*table["status"]} <= {"optimal", "feasible"}
    assert (table["gap"] <= 0.2).all()
    assert (table["bound"] <= table["time"]).all()
    slow, fast = (table[table["clock"] == clock]["time"].min() for clock in (1.2e9, 1.8e9))
    assert fast < slow


@pytest.mark.slow
@pytest.mark.parametrize("seed", [5, 6, 7])
def test_with_more_left_to_decide_bounds_are_bounds_too(seed):
    task = a_task(degrees=Degrees(context=1), recompute=None, interleave=None)
    arrays = machines(task, 40, seed=seed)
    limits = Limits(work_limit=1e6)
    found = answer_many(task, RULES, arrays, gap=GAP, limits=limits)
    paths, costs = machine_costs(arrays)
    checked = 0
    for row in np.random.default_rng(seed).choice(40, 6, replace=False).tolist():
        if found.status[row] == "infeasible":
            continue
        system = machine_of(task.system, paths, costs[row].tolist())
        _, alone = search(task.workload, system, task.constraints, RULES, work_limit=1e6)
        assert found.terms["bound"][row] <= alone.objective * (1 + 1e-9)
        assert found.terms["time"][row] >= alone.bound * (1 - 1e-9)
        checked += 1
    assert checked
