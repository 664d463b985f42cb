"""The joint bound against every sharding, each with its best partitions."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import numpy as np
import pytest
from builders.seeds import few_and_many

from crosstack.machine.chip import Overlap, flat_chip
from crosstack.machine.memory import main_memory
from crosstack.machine.system import Dimension, DimensionKind, Parallelism, System
from crosstack.mapping.budget import Budget
from crosstack.mapping.following import one_by_one_bound
from crosstack.mapping.fusion import fuse, make_problem
from crosstack.mapping.ideals import make_order
from crosstack.mapping.joint import joint_bound
from crosstack.mapping.layouts import make_layout_choices
from crosstack.mapping.mapping import Constraints
from crosstack.mapping.search import search
from crosstack.mapping.sharding import eliminate
from crosstack.mapping.two_directions import two_directions_bound
from crosstack.model.choices import make_choices
from crosstack.model.mesh_plan import make_plan
from crosstack.model.partition import make_load, one_by_one, partition_cost, relaxed_load
from crosstack.model.rules import Rules, rules_named
from crosstack.model.traffic import Boundary
from crosstack.published.dfmodel.graphs.llm import llm

ROUNDING = 1 + 1e-9
RULES = rules_named("crosstack")


@pytest.fixture(scope="module")
def case(random_task):
    """Return a builder of a random problem on four tensor-parallel chips and some of its axes."""

    def build(seed: int, n: int = 5, rules: Rules = RULES, price: float = 0.0, **how):
        rng = random.Random(seed)
        workload, system = random_task(seed, n, **how)
        arrays = workload.graph
        plan = make_plan(workload, system, (4,), (Parallelism.TENSOR,), 1, rules)
        assert plan is not None
        tiles = 1 if how.get("temporal") else 4
        costs = make_choices(workload, arrays, plan, tiles, rules, system.chip)
        domains = costs.index.domains()
        domains = [tuple(sorted(rng.sample(d, rng.randint(1, min(3, len(d)))))) for d in domains]
        sram = rng.choice([200.0, 400.0, 800.0, 1e6])
        system = replace(system, chip=system.chip.with_level(0, capacity=sram))
        given = (workload, system, arrays, plan, costs)
        relaxed = replace(
            relaxed_load(*given, domains, rules), memory_price=price, network_price=price / 3
        )
        return given, domains, relaxed, rules

    return build


def bound_of(case, limit: float = math.inf) -> float:
    (*_, costs), domains, relaxed, _ = case
    choices = make_layout_choices(costs, domains, relaxed)
    if choices is None:  # too many for some kernel
        return 0.0
    return joint_bound(make_problem(relaxed), choices, limit=limit, budget=Budget()).bound


def best_time(case) -> float:
    """Return the least time over every sharding, each fused exactly. [s]"""
    given, domains, relaxed, rules = case
    least = math.inf
    for codes in itertools.product(*domains):
        load = make_load(*given, np.array(codes), rules)
        load = replace(load, memory_price=relaxed.memory_price, network_price=relaxed.network_price)
        found = fuse(make_problem(load), incumbent=least)
        least = min(least, math.inf if found is None else found.time)
    return least


def named(how) -> str:
    """Return the name of a case: rules by what the name says of them, not by their parts."""
    return " ".join(
        f"{key}={value.traffic if key == 'rules' else value}" for key, value in how.items()
    )


def left_out(load) -> int:
    return sum(not s and bool(p) for s, p in zip(load.succs, load.preds, strict=True))


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"utilization": False},
        {"twins": True},
        {"star": True},
        {"elided": True},
        {"counted": True},
        {"n": 6},
        {"rules": RULES.changed(network_takes_maximum=True)},
        {"rules": RULES.changed(weights_read=False)},
        {"price": 0.5},
        {"price": 2.0, "star": True},
        {"temporal": True},
        {"temporal": True, "n": 6, "price": 0.5},
        {"temporal": True, "star": True},
    ],
    ids=named,
)
@pytest.mark.parametrize("seeds", few_and_many(15, 35), ids=len)
def test_it_is_a_bound_with_any_limit(case, how, seeds):
    """Infinite only where nothing is below the limit."""
    for seed in seeds:
        problem = case(seed, **how)
        best = best_time(problem)
        assert bound_of(problem) <= best * ROUNDING, seed
        limit = 1.01 * best if math.isfinite(best) else 1.0
        assert bound_of(problem, limit=limit) <= best * ROUNDING, seed


class TestSharpness:
    def test_one_kernel_after_the_other_is_never_looser_than_kernel_by_kernel(self, case):
        sharper = 0
        for seed in range(200):
            problem = case(seed)
            relaxed = problem[2]
            if left_out(relaxed) > 1 or 0 < relaxed.backward < relaxed.everything:
                continue  # kernels that nobody reads enter by what they compute alone
            alone = fuse(make_problem(relaxed))
            if alone is None:
                continue
            bound = bound_of(problem)
            assert bound >= alone.time * (1 - 1e-9), seed
            sharper += bound > alone.time * (1 + 1e-6)
        assert sharper > 3

    def test_where_the_network_decides_it_is_the_least_communication(self, case):
        for seed in range(100):
            (workload, system, arrays, plan, _), domains, _, rules = case(seed)
            chip = (
                replace(system.chip, overlap=Overlap.ALL)
                .with_compute(frequency=1e15)
                .with_level(0, capacity=1e9)
            )
            system = replace(
                system,
                chip=replace(chip, memories=system.chip.with_memory(bandwidth=1e18).memories),
            )
            costs = make_choices(workload, arrays, plan, 4, rules)
            sources = arrays.source.tolist()
            if len(set(sources)) < len(sources) or costs.data_time.any():
                continue  # readers that share a conversion are not pairwise
            relaxed = relaxed_load(workload, system, arrays, plan, costs, domains, rules)
            if left_out(relaxed) > 1:
                continue
            problem = (workload, system, arrays, plan, costs), domains, relaxed, rules
            least = eliminate(
                domains, costs.network_time, costs.index, costs.conversions.edge_time
            ).bound
            if least > 0:
                assert bound_of(problem) == pytest.approx(least, rel=1e-6), seed


class TestMixedDirections:
    """Forward and backward side by side: outer sums of the steps of each."""

    def bounds(self, case, seeds, **how):
        for seed in seeds:
            problem = case(seed, **how)
            (*_, costs), domains, relaxed, _ = problem
            choices = make_layout_choices(costs, domains, relaxed)
            if choices is None:
                continue
            order = make_problem(relaxed).order
            if any(choices.count(i) > 1 for i in range(relaxed.n)):
                order = make_order(relaxed.preds)  # twins need not be
            found = two_directions_bound(relaxed, order, choices, limit=math.inf, budget=Budget())
            if found is not None:
                yield seed, problem, found

    @pytest.mark.parametrize("seeds", few_and_many(40, 120, first=200), ids=len)
    @pytest.mark.parametrize(
        "how", [{}, {"n": 6}, {"counted": True}, {"n": 6, "training": True}], ids=str
    )
    def test_it_is_a_bound(self, case, how, seeds):
        told = 0
        for seed, problem, found in self.bounds(case, seeds, **how):
            assert found <= best_time(problem) * ROUNDING, seed
            told += 1
        assert told > len(seeds) / 12

    @pytest.mark.slow
    def test_it_is_sharp_where_all_fits_one_partition_without_kernels_left_out(self, case):
        reached = 0
        for _, problem, found in self.bounds(case, range(400, 700)):
            reached += found >= best_time(problem) * (1 - 1e-9)
        assert reached > 5


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"utilization": False},
        {"elided": True},
        {"rules": RULES.changed(network_takes_maximum=True)},
        {"price": 0.5},
        {"temporal": True},
        {"temporal": True, "price": 0.5},
    ],
    ids=named,
)
def test_kernels_with_a_partition_each_are_bounded_over_all_shardings(case, how):
    sharp = told = 0
    for seed in range(30):
        given, domains, relaxed, rules = case(seed, **how)
        bound = one_by_one_bound(given[4], domains, one_by_one(relaxed, rules))
        least = math.inf
        for codes in itertools.product(*domains):
            load = one_by_one(make_load(*given, np.array(codes), rules), rules)
            prices = {"memory_price": relaxed.memory_price, "network_price": relaxed.network_price}
            load = replace(load, **prices)
            costs = [partition_cost(load, 1 << i) for i in range(load.n)]
            if all(cost.fits for cost in costs):
                least = min(least, sum(cost.cost for cost in costs))
        assert bound <= least * ROUNDING, seed
        told += least < math.inf
        sharp += bound >= least * (1 - 1e-9)
    assert sharp > told / 4


class TestSeveralLayers:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("apart", "boundary", "gap"),
        [
            (True, Boundary.FREE, 0.001),
            pytest.param(False, Boundary.FREE, 0.02, marks=pytest.mark.slow),
            # Weight gradients pass memory, which then bounds what is least known of: the kernels
            # that may run in any partition, whose buffers no bound counts.
            pytest.param(True, Boundary.MEMORY, 0.01, marks=pytest.mark.slow),
            pytest.param(False, Boundary.MEMORY, 0.012, marks=pytest.mark.slow),
        ],
    )
    def test_two_training_layers_are_bounded_closely(self, apart, boundary, gap):
        # 82 kernels with two to three axes each in a layer: branching over both left 3 %
        workload = llm(
            hidden=25600, sequence_length=2048, n_heads=160, head_size=160,
            n_layers=128,
            global_batch_size=3072, layers_in_graph=2,
        )  # fmt: skip
        chip = flat_chip(
            n_cores=1280, lanes=32, stages=6, frequency=1.25e9,
            sram_capacity=640 * 2**20, utilization=0.9,
        )  # fmt: skip
        network = (
            Dimension(
                kind=DimensionKind.RING, size=8, bandwidth=50e9, parallelism=Parallelism.TENSOR
            ),
            Dimension(
                kind=DimensionKind.RING, size=64, bandwidth=50e9, parallelism=Parallelism.PIPELINE
            ),
        )
        system = System(
            chip=replace(chip, memories=main_memory(bandwidth=300e9)), network=network, n_chips=512
        )
        given = Constraints(microbatch_size=1, separate_directions=apart)
        rules = RULES.changed(boundary=boundary)
        _, certificate = search(workload, system, given, rules, gap=gap, time_limit=60)
        assert certificate.gap <= gap * ROUNDING


class TestTheChoicesOfThePath:
    def test_they_reach_the_bound_where_nothing_was_left_out(self, case):
        reached = 0
        for seed in range(200):
            given, domains, relaxed, rules = case(seed)
            arrays, costs = given[2], given[4]
            choices = make_layout_choices(costs, domains, relaxed)
            if choices is None:
                continue
            found = joint_bound(make_problem(relaxed), choices, limit=math.inf, budget=Budget())
            assert all(code in domains[i] for i, code in found.codes.items()), seed
            if len(found.codes) < arrays.n:
                continue
            codes = np.array([found.codes[i] for i in range(arrays.n)])
            fused = fuse(make_problem(make_load(*given, codes, rules)))
            if fused is not None:
                assert fused.time >= found.bound * (1 - 1e-9), seed
                reached += fused.time <= found.bound * (1 + 1e-9)
        assert reached > 20


def test_a_bound_without_a_budget_is_nothing(case):
    (*_, costs), domains, relaxed, _ = case(3)
    choices = make_layout_choices(costs, domains, relaxed)
    found = joint_bound(make_problem(relaxed), choices, limit=math.inf, budget=Budget(work=-1))
    assert (found.bound, found.codes) == (0.0, {})


def test_codes_are_those_left_to_each_kernel(case):
    (*_, costs), domains, relaxed, _ = case(1)
    choices = make_layout_choices(costs, domains, relaxed)
    for codes, domain in zip(choices.codes, domains, strict=True):
        assert set(codes.tolist()) <= set(domain)
