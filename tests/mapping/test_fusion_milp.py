"""The mixed-integer program, written apart from the shortest path, finds the same optimum."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from oracles.fusion_milp import as_milp, fusion_milp
from oracles.milp import FusionMilp, MilpFlow, solve_fusion
from oracles.status import SolveStatus

from crosstack.errors import InputError
from crosstack.io.load import load as load_task
from crosstack.machine.system import Parallelism
from crosstack.mapping.fusion import fuse, make_problem
from crosstack.mapping.slots import Slots
from crosstack.model.choices import make_choices
from crosstack.model.mesh_plan import make_plan
from crosstack.model.partition import make_load, partition_cost
from crosstack.model.rules import rules_named

ROOT = Path(__file__).resolve().parents[2]


def at_most(n: int, count: int) -> Slots:
    return Slots(count=count, first=(0,) * n, last=(count - 1,) * n)


def both(load, count: int, **how) -> tuple[float, float]:
    """Return the optimum of the shortest path and that of the program."""
    problem = make_problem(load, slots=at_most(load.n, count), **how)
    path, program = fuse(problem), fusion_milp(problem, count)
    return (
        math.inf if path is None else path.time,
        math.inf if program.objective is None else program.objective,
    )


def two_kernels(**changes) -> FusionMilp:
    """Kernel 0 feeds kernel 1; 10 B a tile, 20 B in all, at 10 B/s."""
    values = {
        "n_partitions": 2,
        "compute": (3.0, 1.0),
        "network": (0.0, 0.0),
        "data": (0.0, 0.0),
        "own_memory": (1.0, 0.0),
        "weight_time": (0.0, 0.5),
        "sram": (5.0, 6.0),
        "flows": (MilpFlow(producer=0, readers=((1, 2.0),), tile=10.0, total=20.0),),
        "before": ((0, 1),),
        "first": (0, 0),
        "last": (1, 1),
        "bandwidth": 10.0,
        "sram_capacity": 31.0,
        "memory_room": math.inf,
    }
    return FusionMilp(**{**values, **changes})


class TestByHand:
    def test_together_nothing_moves(self):
        # compute 3 + 1; memory 1 + 0.5
        assert solve_fusion(two_kernels()).objective == pytest.approx(4.0)

    def test_apart_the_tensor_is_written_and_read(self):
        # max(3, 1 + 20/10) + max(1, 0.5 + 20/10)
        apart = solve_fusion(two_kernels(sram_capacity=30.0))
        assert apart.objective == pytest.approx(3.0 + 2.5)

    def test_pinned_apart_it_is_the_same(self):
        assert solve_fusion(two_kernels(last=(0, 1), first=(0, 1))).objective == pytest.approx(5.5)

    def test_groups_that_must_not_mix_stay_apart(self):
        assert solve_fusion(two_kernels(unmixed=((0,),))).objective == pytest.approx(5.5)

    def test_without_overlap_times_add_up(self):
        assert solve_fusion(two_kernels(overlap="none")).objective == pytest.approx(5.5)

    def test_weights_that_stay_are_not_read(self):
        stay = two_kernels(overlap="none", weights_stay=True)
        assert solve_fusion(stay).objective == pytest.approx(5.0)

    def test_too_little_main_memory_is_infeasible(self):
        tight = two_kernels(sram_capacity=30.0, memory_room=19.0)
        assert solve_fusion(tight).status is SolveStatus.INFEASIBLE

    def test_one_partition_too_few_is_infeasible(self):
        tight = two_kernels(sram_capacity=30.0, n_partitions=1, last=(0, 0))
        assert solve_fusion(tight).objective is None

    def test_cores_are_dealt(self):
        stairs = (((1, 4.0), (2, 2.0), (3, 1.0)), ((1, 4.0), (2, 1.0)))
        dealt = two_kernels(stairs=stairs, n_cores=4, own_memory=(0.0, 0.0))
        assert solve_fusion(dealt).objective == pytest.approx(2.0)

    def test_the_method_says_what_the_proof_covers(self):
        assert "at most 2 partitions" in solve_fusion(two_kernels()).method

    def test_a_kernel_that_does_not_fit_alone_is_refused(self):
        with pytest.raises(InputError, match="does not cut weights"):
            two_kernels(sram_capacity=25.0)

    def test_a_column_of_another_length_is_refused(self):
        with pytest.raises(InputError, match="^network: got 1; allowed: one entry per kernel"):
            two_kernels(network=(0.0,))


class TestAgainstTheShortestPath:
    @pytest.mark.parametrize("seed", range(8))
    @pytest.mark.parametrize("count", [3, 5])
    def test_eight_kernels(self, random_load, seed, count):
        path, program = both(random_load(seed, 8), count)
        assert program == pytest.approx(path, rel=1e-7)

    @pytest.mark.parametrize("seed", range(4))
    def test_as_many_partitions_as_kernels(self, random_load, seed):
        path, program = both(random_load(seed, 7, tight=0.1), 7)
        assert program == pytest.approx(path, rel=1e-7)

    @pytest.mark.parametrize("seed", range(6))
    def test_cores_to_deal(self, random_load, seed):
        path, program = both(random_load(seed, 5, utilization=False), 4)
        assert program == pytest.approx(path, rel=1e-7)

    @pytest.mark.parametrize("seed", range(6))
    def test_little_main_memory(self, random_load, seed):
        path, program = both(random_load(seed, 8, memory=0.5), 4)
        assert program == pytest.approx(path, rel=1e-7)

    @pytest.mark.parametrize("seed", range(6))
    def test_directions_apart(self, random_load, seed):
        path, program = both(random_load(seed, 8), 4, separate_directions=True)
        assert program == pytest.approx(path, rel=1e-7)

    @pytest.mark.parametrize("seed", range(6))
    def test_counted_kernels(self, random_load, seed):
        path, program = both(random_load(seed, 7, counted=True), 5)
        assert program == pytest.approx(path, rel=1e-7)

    @pytest.mark.parametrize("n", [10, 12, 14])
    def test_more_kernels(self, random_load, n):
        path, program = both(random_load(n, n, tight=0.3), 5)
        assert program == pytest.approx(path, rel=1e-7)

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(10))
    @pytest.mark.parametrize("n", [10, 12, 14])
    def test_many_graphs(self, random_load, n, seed):
        path, program = both(random_load(seed, n), 6)
        assert program == pytest.approx(path, rel=1e-7)

    @pytest.mark.parametrize("seed", range(6))
    def test_its_partitions_cost_its_objective(self, random_load, seed):
        load = random_load(seed, 8)
        found = fusion_milp(make_problem(load), 8)
        assert found.partitions is not None
        masks: dict[int, int] = {}
        for i, p in enumerate(found.partitions):
            masks[p] = masks.get(p, 0) | 1 << i
        costs = [partition_cost(load, mask) for mask in masks.values()]
        assert all(cost.fits for cost in costs)
        assert sum(cost.time for cost in costs) == pytest.approx(found.objective, rel=1e-7)


def readme_load():
    """Return the chip load of the README case: tensor 8, pipeline 128, as many tiles as fit."""
    task = load_task(ROOT / "examples" / "gpt3_1t_sn30.yaml")
    rules = rules_named("dfmodel-readme")
    uses = (Parallelism.TENSOR, Parallelism.PIPELINE)
    plan = make_plan(task.workload, task.system, (8, 128), uses, 1, rules)
    assert plan is not None
    arrays = task.workload.graph
    choices = make_choices(task.workload, arrays, plan, 2048, rules)
    codes = choices.index.start[:-1]
    return make_load(task.workload, task.system, arrays, plan, choices, codes, rules)


def halves(load, count: int) -> Slots:
    """Return forward kernels in the first half of ``count`` partitions, backward in the last."""
    backward = [bool(load.backward >> i & 1) for i in range(load.n)]
    return Slots(
        count=count,
        first=tuple(count // 2 if b else 0 for b in backward),
        last=tuple(count - 1 if b else (count - 1) // 2 for b in backward),
    )


class TestReadmeCase:
    def test_both_find_the_same_six_partitions(self):
        load = readme_load()
        problem = make_problem(load, slots=halves(load, 6), separate_directions=True)
        path, program = fuse(problem), fusion_milp(problem, 6)
        assert path is not None
        assert program.objective == pytest.approx(path.time, rel=1e-7)

    def test_both_find_the_same_seven_partitions_of_any_direction(self):
        path, program = both(readme_load(), 7)
        assert math.isfinite(path)
        assert program == pytest.approx(path, rel=1e-7)


def test_a_weight_that_has_to_be_cut_is_refused(random_load):
    load = random_load(0, 4)
    small = replace(load, sram_capacity=min(x for x in load.sram if x) / 2)
    with pytest.raises(InputError, match="does not cut weights"):
        as_milp(make_problem(small), 4)
