"""Stages that split the graph against brute force, closed cases, and what must hold of any."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import numpy as np
import pytest
from oracles.fusion_milp import stages_milp

from crosstack.machine.chip import Overlap
from crosstack.machine.system import Parallelism
from crosstack.mapping.budget import Budget
from crosstack.mapping.fusion import fuse, make_problem
from crosstack.mapping.pipeline import (
    StageProblem,
    fullest_stage,
    make_stage_problem,
    split,
)
from crosstack.mapping.slots import Slots
from crosstack.mapping.stage_times import on_one_chip
from crosstack.model.flows import Flow
from crosstack.model.mesh_plan import AffineTime, MeshPlan
from crosstack.model.partition import ChipLoad, partition_cost
from crosstack.model.rules import rules_named
from crosstack.published.dfmodel.parts import WeightCuts

ROUNDING = 1 + 1e-9
RULES = rules_named("crosstack")


# ---------------------------------------------------------------- problems


def a_plan(n_stages: int, **changes) -> MeshPlan:
    """So many stages for one copy of the graph, five microbatches of two sequences."""
    values = {
        "sizes": (n_stages,),
        "parallelism": (Parallelism.PIPELINE,),
        "microbatch_size": 2,
        "tensor": 1,
        "pipeline": n_stages,
        "data": 1,
        "n_microbatches": 5,
        "layers_per_stage": 1,
        "collectives": {},
        "changes": {},
        "periodic": AffineTime(),
        "stage_transfer": AffineTime(),
        "n_layers": 1,
        "graph_stages": n_stages,
        "border": AffineTime(fixed=1e-7, per_byte=1e-8),
    }
    return MeshPlan(**{**values, **changes})


@pytest.fixture(scope="session")
def random_stages(random_load):
    """Return a builder of a random load and stages to spread it over; the same for one seed."""

    def build(
        seed: int, n: int = 5, *, pinned: bool = False, one_by_one: bool = False, **how
    ) -> StageProblem:
        rng = random.Random(seed)
        load = random_load(seed, n, utilization=seed % 3 > 0, **how)
        everywhere = rng.choice([0.0, 0.0, 300.0])
        load = replace(
            load,
            resident_alone=rng.random() < 0.7 and load.temporal is None,
            memory_static=everywhere + sum(load.kept),
        )
        slots = None
        if pinned:
            count = rng.randint(2, n)
            pins = {rng.randrange(n): rng.randrange(count)} if rng.random() < 0.5 else {}
            slots = Slots(
                count=count,
                first=tuple(pins.get(i, 0) for i in range(n)),
                last=tuple(pins.get(i, count - 1) for i in range(n)),
            )
        copies = rng.choice([1, 1, 2])
        plan = a_plan(
            rng.randint(2, 4),
            graph_repetitions=copies,
            n_microbatches=rng.choice([1, 3, 50]),
            microbatch_size=rng.choice([1, 2]),
            stage_transfer=AffineTime(
                fixed=rng.choice([0.0, 3e-6]), per_byte=rng.choice([0.0, 1e-5])
            ),
            border=AffineTime(
                fixed=rng.choice([0.0, 1e-6]), per_byte=rng.choice([0.0, 1e-8, 3e-7])
            ),
        )
        fusion = make_problem(load, slots=slots)
        rules = rules_named("dfmodel-readme" if seed % 4 == 3 else "crosstack")
        problem = make_stage_problem(fusion, plan, rules, capacity=math.inf, one_by_one=one_by_one)
        if rng.random() < 0.5:  # somewhere between too little and enough for everything
            low = fullest_stage(problem, {})
            high = (
                everywhere
                + sum(load.kept)
                + plan.microbatch_size * sum(f.total for f in load.flows)
            )
            capacity = low + rng.choice([-0.01, 0.1, 0.3, 0.6, 0.9]) * (high - low)
            problem = replace(problem, capacity=capacity)
        return problem

    return build


def time_of(problem: StageProblem, **how) -> float:
    found = split(problem, **how)
    return math.inf if found is None else found.time


# ---------------------------------------------------------------- exactness


class TestAgainstEverything:
    @pytest.mark.parametrize("seed", range(40))
    def test_best_stages(self, random_stages, brute_split, seed):
        problem = random_stages(seed, 4 + seed % 2)
        best = brute_split(problem)
        assert time_of(problem) == pytest.approx(best, rel=1e-9)

    @pytest.mark.parametrize("seed", range(40))
    def test_best_stages_of_temporal_chips(self, random_stages, brute_split, seed):
        problem = random_stages(seed, 4 + seed % 2, temporal=True)
        best = brute_split(problem)
        assert time_of(problem) == pytest.approx(best, rel=1e-9)

    @pytest.mark.parametrize("seed", range(40))
    def test_best_stages_with_numbered_partitions(self, random_stages, brute_split, seed):
        problem = random_stages(seed, 4, pinned=True)
        best = brute_split(problem)
        assert time_of(problem) == pytest.approx(best, rel=1e-9)

    @pytest.mark.parametrize("seed", range(10))
    def test_best_stages_kernel_by_kernel(self, random_stages, brute_split, seed):
        problem = random_stages(seed, 5, one_by_one=True)
        best = brute_split(problem)
        assert time_of(problem) == pytest.approx(best, rel=1e-9)

    @pytest.mark.parametrize("seed", range(10))
    def test_bound_holds_where_ideals_are_too_many(self, random_stages, brute_split, seed):
        problem = random_stages(seed, 5)
        best = brute_split(problem)
        found = split(problem, most_ideals=4)
        if found is None:
            assert math.isinf(best)
            return
        assert found.bound <= best * ROUNDING <= found.time * ROUNDING**2

    @pytest.mark.parametrize("seed", range(12))
    def test_bound_holds_for_long_graphs(self, random_stages, brute_split, monkeypatch, seed):
        monkeypatch.setattr("crosstack.mapping.stage_ideals.LONG_GRAPH", 3)
        for file in ("pipeline", "stage_ideals"):
            monkeypatch.setattr(f"crosstack.mapping.{file}.MOST_CELLS", 6 * 6 * 4)
        problem = random_stages(seed)
        best = brute_split(problem)
        found = split(problem, most_ideals=1)
        if found is None:
            assert math.isinf(best)
            return
        assert found.bound <= best * ROUNDING <= found.time * ROUNDING**2

    @pytest.mark.parametrize("seed", range(40))
    def test_an_incumbent_hides_nothing_faster(self, random_stages, seed):
        problem = random_stages(seed, 7)
        best = time_of(problem)
        if math.isfinite(best):
            assert time_of(problem, incumbent=best * 1.01) == pytest.approx(best, rel=1e-9)
            assert split(problem, incumbent=best * (1 - 1e-9)) is None


# ---------------------------------------------------------------- what must hold


def slowest_only(problem: StageProblem) -> StageProblem:
    """The same problem with a long batch: only the slowest stage counts, for one copy."""
    once = np.ones(len(problem.slots))
    return replace(problem, slots=once, repeats=0, unsent=0.0, last_transfer=0.0)


class TestPhysics:
    SEEDS = range(8)

    def slowest(self, problem: StageProblem) -> float:
        found = split(problem)
        return math.inf if found is None else found.slowest

    @pytest.mark.parametrize("seed", SEEDS)
    def test_one_more_stage_is_never_slower_before_the_bubble(self, random_stages, seed):
        problem = slowest_only(random_stages(seed, 7))
        by_stages = [self.slowest(replace(problem, slots=np.ones(s))) for s in range(1, 8)]
        for fewer, more in itertools.pairwise(by_stages):
            assert more <= fewer * ROUNDING

    @pytest.mark.parametrize("seed", SEEDS)
    def test_more_memory_is_never_slower(self, random_stages, seed):
        problem = random_stages(seed, 7)
        least = fullest_stage(problem, {})
        times = [time_of(replace(problem, capacity=least * c)) for c in (0.99, 1.1, 2, math.inf)]
        assert math.isinf(times[0]) or least == 0
        for less, more in itertools.pairwise(times):
            assert more <= less * ROUNDING

    @pytest.mark.parametrize("seed", SEEDS)
    @pytest.mark.parametrize("pinned", [False, True])
    def test_the_fullest_stage_is_the_least_memory_that_would_do(self, random_stages, seed, pinned):
        problem = replace(random_stages(seed, 6, pinned=pinned), capacity=math.inf)
        if split(problem) is None:
            pytest.skip("nothing fits, whatever the memory")
        least = fullest_stage(problem, {})
        assert split(replace(problem, capacity=least)) is not None
        assert least == 0 or split(replace(problem, capacity=least * 0.999)) is None

    @pytest.mark.parametrize("seed", SEEDS)
    def test_a_faster_border_is_never_slower(self, random_stages, seed):
        problem = random_stages(seed, 7)
        borders = [AffineTime(fixed=f, per_byte=f / 8) for f in (1e-4, 1e-6, 1e-8, 0.0)]
        times = [time_of(replace(problem, plan=replace(problem.plan, border=b))) for b in borders]
        for slow, fast in itertools.pairwise(times):
            assert fast <= slow * ROUNDING

    @pytest.mark.parametrize("seed", SEEDS)
    def test_over_borders_that_take_no_time_only_work_counts(self, random_stages, seed):
        problem = random_stages(seed, 7)
        free = replace(problem.plan, border=AffineTime())
        problem = slowest_only(replace(problem, plan=free, capacity=math.inf))
        alone, found = fuse(replace(problem.fusion, load=on_one_chip(problem.load))), split(problem)
        assert alone is not None
        assert found is not None
        even = alone.time * problem.plan.microbatch_size / len(problem.slots)
        assert found.slowest >= even / ROUNDING

    @pytest.mark.parametrize("seed", SEEDS)
    def test_one_stage_is_fusion(self, random_load, seed):
        load = replace(random_load(seed, 7), memory_limit=math.inf)
        plan = a_plan(2, border=AffineTime(), microbatch_size=1)
        problem = make_stage_problem(make_problem(load), plan, RULES, capacity=math.inf)
        problem = replace(slowest_only(problem), slots=np.ones(1))
        alone, found = fuse(make_problem(load)), split(problem)
        assert alone is not None
        assert found is not None
        assert found.slowest == pytest.approx(alone.time, rel=1e-9)

    @pytest.mark.parametrize("n_stages", [2, 4])
    def test_four_equal_layers_fill_stages_whole(self, random_load, n_stages):
        layers = a_ladder(random_load(1, 1), 4)
        problem = make_stage_problem(
            make_problem(layers), a_plan(n_stages), RULES, capacity=math.inf
        )
        found = split(slowest_only(problem))
        assert found is not None
        held = [sum(masks) for masks in found.stages]
        each = 12 // n_stages
        assert held == [(1 << each) - 1 << s * each for s in range(n_stages)]

    def test_a_spent_budget_leaves_a_bound(self, random_stages):
        problem = random_stages(3, 7)
        late = split(problem, budget=Budget(work=-1))
        assert late is not None
        assert not late.proved or late.stages
        assert late.bound <= time_of(problem) * ROUNDING


def a_ladder(load: ChipLoad, layers: int) -> ChipLoad:
    """Layers of three kernels in a row, a thin tensor between layers and thick ones inside."""
    n = 3 * layers
    sizes = [1e3 if i % 3 == 2 else 1e6 for i in range(n - 1)]
    flows = tuple(Flow(i, ((i + 1, 2),), size, size, 1 << i + 1) for i, size in enumerate(sizes))
    touching = [tuple(f for f in (i - 1, i) if 0 <= f < n - 1) for i in range(n)]

    def each(value: float) -> tuple[float, ...]:
        return (value,) * n

    return replace(
        load,
        n=n,
        names=tuple(f"k{i}" for i in range(n)),
        preds=tuple(1 << i - 1 if i else 0 for i in range(n)),
        succs=tuple(1 << i + 1 if i < n - 1 else 0 for i in range(n)),
        order=tuple(range(n)),
        compute=each(1.0),
        staircases=None,
        network=each(0.0),
        data=each(0.0),
        own_memory=each(0.0),
        weight_time=each(0.0),
        sram=each(1.0),
        weight=each(1.0),
        kept=each(1.0),
        memory_static=float(n),
        activations=0.0,
        cycle_time=each(1.0),
        flows=flows,
        flows_of=tuple(touching),
        backward=0,
        unmixed=(),
        bandwidth=1e9,
        sram_capacity=1e9,
        overlap=Overlap.NONE,
    )


# ---------------------------------------------------------------- a second oracle


class TestAgainstTheProgram:
    @pytest.mark.parametrize(
        "seed",
        [
            pytest.param(s, marks=() if s in (0, 1, 2, 4, 6) else pytest.mark.slow)
            for s in range(12)
        ],
    )
    def test_seven_kernels_on_three_stages(self, random_stages, seed):
        problem = slowest_only(random_stages(seed, 7, cuts=WeightCuts.FREE))
        alone = [partition_cost(problem.load, 1 << i) for i in range(7)]
        if any(cost.cuts > 1 for cost in alone):
            pytest.skip("the program does not cut weights")
        found, program = split(problem), stages_milp(problem, 3)
        if found is None:
            assert program.objective is None
            return
        assert program.objective is not None
        if max(sum(mask > 0 for mask in masks) for masks in found.stages) <= 3:
            assert program.objective == pytest.approx(found.slowest, rel=1e-6)
        assert program.objective >= found.slowest * (1 - 1e-6)
