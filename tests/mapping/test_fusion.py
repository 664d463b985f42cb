"""The shortest path over order ideals against every sequence of partitions there is."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import pairwise

import pytest
from builders.seeds import few_and_many

from crosstack.machine.chip import GPU_FUSIONS, Execution, Overlap, flat_chip
from crosstack.machine.memory import main_memory
from crosstack.mapping.fusion import fuse, make_problem
from crosstack.mapping.ideals import make_order
from crosstack.mapping.slots import Slots
from crosstack.mapping.steps import scarcest
from crosstack.model.alive import live_size
from crosstack.model.partition import combine, partition_cost
from crosstack.published.dfmodel.parts import WeightCuts

ROUNDING = 1 + 1e-9


@pytest.fixture(params=few_and_many(12, 24), ids=len)
def seeds(request) -> range:
    return request.param


def least_time(load, **how) -> float:
    found = fuse(make_problem(load, **how))
    return math.inf if found is None else found.time


def at_most(n: int, count: int) -> Slots:
    return Slots(count=count, first=(0,) * n, last=(count - 1,) * n)


def some_pins(n: int, rng: random.Random) -> Slots:
    count = rng.choice([3, 4, 5])
    first, last = [0] * n, [count - 1] * n
    for i in rng.sample(range(n), rng.choice([1, 2])):
        first[i] = last[i] = rng.randrange(count)
    return Slots(count=count, first=tuple(first), last=tuple(last))


class TestAgainstEverySequence:
    @pytest.mark.parametrize(
        "how",
        [
            {},
            {"overlap": Overlap.ALL},
            {"overlap": Overlap.NONE},
            {"overlap": Overlap.COMPUTE_MEMORY},
            {"utilization": False},
            {"copies": True},
            {"copies": False},
            {"network_takes_maximum": True},
            {"resident_alone": True, "tight": 1.0},
            {"star": True},
            {"memory_price": 0.3},
            {"memory_price": 3.0, "overlap": Overlap.NONE},
            {"memory_price": 0.3, "network_price": 0.6},
            {"network_price": 2.0, "overlap": Overlap.COMPUTE_MEMORY},
            {"memory_price": 0.7, "utilization": False},
            {"memory_price": 1.5, "star": True},
            {"memory_price": 1.5, "memory": 0.5},
            {"n": 6},
            {"n": 6, "utilization": False},
            {"temporal": True},
            {"temporal": True, "n": 6, "overlap": Overlap.ALL},
            {"temporal": True, "n": 6, "overlap": Overlap.COMPUTE_MEMORY},
            {"temporal": True, "n": 6, "overlap": Overlap.NONE, "twins": True},
            {"temporal": True, "memory_price": 0.6, "network_price": 0.4},
            {"temporal": True, "memory": 0.6, "elided": True},
        ],
        ids=str,
    )
    def test_fusion_finds_the_best_sequence(self, random_load, brute_fuse, how, seeds):
        for seed in seeds:
            load = random_load(seed, **{"n": 5, **how})
            assert least_time(load) == pytest.approx(brute_fuse(load), rel=1e-9), seed

    @pytest.mark.parametrize("seed", range(3))
    def test_fusion_finds_the_best_sequence_of_seven_kernels(self, random_load, brute_fuse, seed):
        load = random_load(seed, 7, tight=0.2)
        assert least_time(load) == pytest.approx(brute_fuse(load), rel=1e-9)

    @pytest.mark.parametrize("how", [{"n_cores": 5}, {"n_cores": 3}, {"n_cores": 1}], ids=str)
    def test_few_cores_are_dealt_best(self, random_load, brute_fuse, how, seeds):
        for seed in seeds:
            load = random_load(seed, 5, utilization=False, tight=1.0, **how)
            assert least_time(load) == pytest.approx(brute_fuse(load), rel=1e-9), seed

    @pytest.mark.parametrize("cuts", list(WeightCuts))
    @pytest.mark.parametrize("tight", [-0.3, -0.8])
    def test_cut_weights_cost_what_the_rule_says(self, random_load, brute_fuse, cuts, tight, seeds):
        for seed in seeds:
            load = random_load(seed, 4, cuts=cuts, tight=tight)
            assert least_time(load) == pytest.approx(brute_fuse(load), rel=1e-9), seed

    @pytest.mark.parametrize("share", [0.2, 0.4, 0.7])
    def test_main_memory_limits_what_is_alive(self, random_load, brute_fuse, share, seeds):
        for seed in seeds:
            load = random_load(seed, 5, memory=share)
            assert least_time(load) == pytest.approx(brute_fuse(load), rel=1e-9), seed

    @pytest.mark.parametrize("share", [0.5, 0.9])
    def test_a_weight_may_be_cut_where_main_memory_binds(
        self, random_load, brute_fuse, share, seeds
    ):
        for seed in seeds:
            load = random_load(seed, 3, memory=share, tight=-0.5)
            assert least_time(load) == pytest.approx(brute_fuse(load), rel=1e-9), seed

    @pytest.mark.parametrize("how", [{}, {"memory": 0.5}, {"utilization": False}], ids=str)
    def test_directions_stay_apart_where_asked(self, random_load, brute_fuse, how, seeds):
        for seed in seeds:
            load = random_load(seed, 5, **how)
            least = brute_fuse(load, separate=True)
            assert least_time(load, separate_directions=True) == pytest.approx(least), seed

    @pytest.mark.parametrize("count", [1, 2, 3])
    def test_a_limit_on_partitions_is_kept(self, random_load, brute_fuse, count, seeds):
        for seed in seeds:
            load = random_load(seed, 5)
            slots = at_most(load.n, count)
            least = brute_fuse(load, slots)
            assert least_time(load, slots=slots) == pytest.approx(least, rel=1e-9), seed

    @pytest.mark.parametrize("how", [{}, {"memory": 0.6}, {"twins": True}], ids=str)
    def test_pinned_kernels_stay_where_they_are_pinned(self, random_load, brute_fuse, how, seeds):
        for seed in seeds:
            load = random_load(seed, 4, **how)
            slots = some_pins(load.n, random.Random(seed))
            least = brute_fuse(load, slots)
            assert least_time(load, slots=slots) == pytest.approx(least, rel=1e-9), seed

    def test_counted_kernels_never_share_with_others(self, random_load, brute_fuse, seeds):
        for seed in seeds:
            load = random_load(seed, 5, counted=True)
            assert least_time(load) == pytest.approx(brute_fuse(load), rel=1e-9), seed

    def test_elided_edges_order_kernels(self, random_load, brute_fuse, seeds):
        for seed in seeds:
            load = random_load(seed, 5, elided=True)
            assert least_time(load) == pytest.approx(brute_fuse(load), rel=1e-9), seed


class TestTwins:
    @pytest.mark.parametrize("how", [{}, {"utilization": False}, {"memory": 0.5}], ids=str)
    def test_ordering_twins_does_not_change_the_optimum(self, random_load, how, seeds):
        for seed in seeds:
            load = random_load(seed, 6, twins=True, **how)
            problem = make_problem(load)
            free = fuse(replace(problem, order=make_order(load.preds)))
            least = math.inf if free is None else free.time
            assert least_time(load) == pytest.approx(least, rel=1e-9), seed

    def test_equal_kernels_with_equal_readers_are_ordered(self, random_load, seeds):
        ordered = [
            seed
            for seed in seeds
            if make_problem(load := random_load(seed, 6, twins=True)).order.preds != load.preds
        ]
        assert len(ordered) > len(seeds) / 8

    @pytest.mark.parametrize("seed", [132, 154, 219, 268, 320])
    def test_counted_kernels_are_no_twins_of_others(self, random_load, brute_fuse, seed):
        load = random_load(seed, 5, counted=True, twins=True)
        assert least_time(load) == pytest.approx(brute_fuse(load), rel=1e-9)

    @pytest.mark.parametrize("seed", range(40, 60))
    def test_kernels_with_other_elided_readers_are_no_twins(self, random_load, brute_fuse, seed):
        load = random_load(seed, 5, elided=True, twins=True)
        assert least_time(load) == pytest.approx(brute_fuse(load), rel=1e-9)


class TestAnswer:
    @pytest.mark.parametrize("how", [{}, {"utilization": False}, {"tight": -0.3}], ids=str)
    def test_its_time_is_the_sum_of_its_partitions(self, random_load, how, seeds):
        for seed in seeds:
            load = random_load(seed, 6, **how)
            found = fuse(make_problem(load))
            if found is not None:
                total = sum(partition_cost(load, mask).cost for mask in found.partitions)
                assert found.time == pytest.approx(total, rel=1e-12), seed

    def test_every_partition_fits(self, random_load, seeds):
        for seed in seeds:
            load = random_load(seed, 6, tight=0.2)
            found = fuse(make_problem(load))
            assert found is not None
            assert all(partition_cost(load, mask).fits for mask in found.partitions)

    def test_every_kernel_runs_once(self, random_load, seeds):
        for seed in seeds:
            load = random_load(seed, 6, tight=0.2)
            found = fuse(make_problem(load))
            assert found is not None
            assert sum(found.partitions) == load.everything

    def test_what_is_alive_fits_the_main_memory(self, random_load, seeds):
        for seed in seeds:
            load = random_load(seed, 5, memory=0.5)
            found = fuse(make_problem(load))
            before = 0
            for mask in () if found is None else found.partitions:
                assert live_size(load, before, mask) <= load.memory_limit
                before |= mask

    def test_a_small_graph_is_proved(self, random_load, seeds):
        found = [fuse(make_problem(random_load(seed, 6))) for seed in seeds]
        assert all(f is not None and f.proved for f in found)

    def test_nothing_is_found_below_the_optimum(self, random_load, seeds):
        for seed in seeds:
            problem = make_problem(random_load(seed, 5))
            found = fuse(problem)
            assert found is not None
            assert fuse(problem, incumbent=found.time) is None

    def test_the_optimum_is_found_below_a_looser_incumbent(self, random_load, seeds):
        for seed in seeds:
            problem = make_problem(random_load(seed, 5))
            found = fuse(problem)
            assert found is not None
            again = fuse(problem, incumbent=found.time * 1.01)
            assert again is not None
            assert again.time == pytest.approx(found.time, rel=1e-12)

    def test_no_random_sequence_is_faster(self, random_load, seeds):
        for seed in seeds:
            load = random_load(seed, 8, tight=0.4)
            found = fuse(make_problem(load))
            assert found is not None
            for time in random_sequences(load, random.Random(seed)):
                assert found.time <= time * (1 + 1e-9), seed


def random_sequences(load, rng: random.Random) -> list[float]:
    """Return the times of random sequences that fit."""
    times = []
    for _ in range(30):
        done, total = 0, 0.0
        while done != load.everything:
            mask = 0
            for _ in range(rng.randint(1, load.n)):
                ready = [
                    i
                    for i in range(load.n)
                    if not (done | mask) >> i & 1 and not load.preds[i] & ~(done | mask)
                ]
                mask |= 1 << rng.choice(ready) if ready else 0
            cost = partition_cost(load, mask)
            total += cost.cost if cost.fits else math.inf
            done |= mask
        times.append(total)
    return times


class TestLooserIsNeverWorse:
    @pytest.mark.parametrize("field", ["sram_capacity", "memory_limit", "bandwidth"])
    def test_with_more_of(self, random_load, field, seeds):
        for seed in seeds:
            load = random_load(seed, 6, tight=0.2, memory=0.6)
            more = replace(load, **{field: getattr(load, field) * 1.5})
            assert least_time(more) <= least_time(load) * ROUNDING, seed

    def test_with_more_cores(self, random_load, seeds):
        for seed in seeds:
            load = random_load(seed, 5, utilization=False)
            fewer = replace(load, n_cores=max(1, load.n_cores - 3))
            assert least_time(load) <= least_time(fewer) * ROUNDING, seed

    def test_with_more_partitions(self, random_load, seeds):
        for seed in seeds:
            load = random_load(seed, 6, tight=0.2)
            times = [least_time(load, slots=at_most(6, count)) for count in (1, 2, 3, 4, 5)]
            assert all(b <= a * ROUNDING for a, b in pairwise(times)), seed

    def test_with_directions_together(self, random_load, seeds):
        for seed in seeds:
            load = random_load(seed, 6)
            apart = least_time(load, separate_directions=True)
            assert least_time(load) <= apart * ROUNDING, seed

    def test_with_everything_overlapped(self, random_load, seeds):
        for seed in seeds:
            load = random_load(seed, 6)
            hidden, half, none = (
                least_time(replace(load, overlap=overlap))
                for overlap in (Overlap.ALL, Overlap.COMPUTE_MEMORY, Overlap.NONE)
            )
            assert hidden <= half * ROUNDING <= none * ROUNDING**2, seed


class TestGraphsWithTooManyIdeals:
    @pytest.mark.parametrize(
        "how",
        [
            {},
            {"star": True, "utilization": False},
            {"star": True, "utilization": False, "overlap": Overlap.NONE},
            {"star": True, "memory_price": 0.4, "network_price": 0.2},
            {"star": True, "memory_price": 2.0, "overlap": Overlap.COMPUTE_MEMORY},
            {"temporal": True},
            {"temporal": True, "star": True},
            {"temporal": True, "overlap": Overlap.NONE},
            {"temporal": True, "overlap": Overlap.COMPUTE_MEMORY, "memory_price": 0.5},
        ],
        ids=str,
    )
    def test_the_bound_is_below_the_optimum(self, random_load, how, seeds):
        for seed in seeds:
            problem = make_problem(random_load(seed, 7, tight=seed % 3 / 2, **how))
            exact = fuse(problem)
            assert exact is not None
            for most in (3, 10, 20):
                quick = fuse(problem, most_ideals=most)
                if quick is not None:
                    assert quick.bound <= exact.time * ROUNDING, (seed, most)
                    assert exact.time <= quick.time * ROUNDING, (seed, most)

    @pytest.mark.parametrize("price", [0.0, 0.8])
    @pytest.mark.parametrize("overlap", list(Overlap))
    def test_it_holds_where_kernels_left_out_fill_idle_memory(
        self, random_load, overlap, price, seeds
    ):
        met = 0
        for seed in seeds:
            load = random_load(seed, 7, tight=seed % 3 / 2, star=seed % 2 == 0, overlap=overlap)
            load = replace(load, memory_price=price, network_price=price / 2)
            heavy = tuple(3 * (c + n) for c, n in zip(load.compute, load.network, strict=True))
            load = replace(load, own_memory=heavy)
            assert scarcest(load, range(load.n)) == (0.0, 1.0)
            exact, quick = fuse(make_problem(load)), fuse(make_problem(load), most_ideals=3)
            assert exact is not None
            assert quick is None or quick.bound <= exact.time * (1 + 1e-9), seed
            met += quick is not None and quick.bound >= exact.time * (1 - 1e-9)
        assert met > len(seeds) / 4

    def test_a_proof_is_claimed_only_for_the_optimum(self, random_load, seeds):
        for seed in seeds:
            problem = make_problem(random_load(seed, 7, tight=0.2))
            exact, quick = fuse(problem), fuse(problem, most_ideals=3)
            assert exact is not None
            if quick is not None and quick.proved:
                assert quick.time == pytest.approx(exact.time, rel=1e-9), seed


@pytest.mark.parametrize(
    ("overlap", "time"),
    [(Overlap.ALL, 5.0), (Overlap.NONE, 10.0), (Overlap.COMPUTE_MEMORY, 8.0)],
)
def test_what_hides_behind_what(overlap, time):
    assert combine(5.0, 2.0, 3.0, overlap) == time


@pytest.mark.parametrize("execution", Execution)
@pytest.mark.parametrize("utilization", [0.9, None])
def test_a_long_chain_cut_into_segments_is_the_exact_optimum(monkeypatch, utilization, execution):
    # One topological order: cutting it into segments is all there is to decide.
    from crosstack.mapping import fusion

    load = chain_load(60, utilization, execution)
    by_ideals = fusion.fuse(fusion.make_problem(load))
    monkeypatch.setattr(fusion, "LONG_GRAPH", 10)
    by_segments = fusion.fuse(fusion.make_problem(load))
    assert by_segments.proved
    assert by_segments.time == pytest.approx(by_ideals.time, rel=1e-12)


def chain_load(n: int, utilization: float | None, execution: Execution):
    """Return the load of one chip for a chain of kernels, every third with a weight."""
    from crosstack.machine.system import Dimension, DimensionKind, Parallelism, System
    from crosstack.model.choices import make_choices
    from crosstack.model.mesh_plan import make_plan
    from crosstack.model.partition import make_load
    from crosstack.model.rules import rules_named
    from crosstack.workload.kernel_graph import kernel_graph
    from crosstack.workload.kernels import ComputeUnit, Consumer, Kernel, KernelKind, Tensor
    from crosstack.workload.workload import Workload

    kernels = tuple(
        Kernel(
            name=f"k{i}",
            kind=KernelKind.GEMM_WEIGHT if i % 3 == 0 else KernelKind.ELEMENTWISE,
            m=64,
            k=64 if i % 3 == 0 else 1,
            n=64,
            input_sizes=(8192.0,),
            output_size=8192.0,
            weight_size=8192.0 if i % 3 == 0 else 0.0,
            unit=ComputeUnit.SYSTOLIC if i % 3 == 0 else ComputeUnit.SIMD,
        )
        for i in range(n)
    )
    tensors = tuple(
        Tensor(producer=f"k{i}", consumers=(Consumer(kernel=f"k{i + 1}"),), size=8192.0)
        for i in range(n - 1)
    )
    workload = Workload(
        graph=kernel_graph(kernels=kernels, tensors=tensors, word=2), sequence_length=64
    )
    chip = flat_chip(
        n_cores=16,
        lanes=8,
        stages=8,
        frequency=1e9,
        sram_capacity=50e3,
        utilization=utilization,
        execution=execution,
        fusions=GPU_FUSIONS,
    )
    dimension = Dimension(kind=DimensionKind.RING, size=1, bandwidth=1e9)
    system = System(
        chip=replace(chip, memories=main_memory(bandwidth=1e10)), network=(dimension,), n_chips=1
    )
    rules = rules_named("crosstack")
    plan = make_plan(workload, system, (1,), (Parallelism.DATA,), 1, rules)
    arrays = workload.graph
    tiles = 64 if execution is Execution.SPATIAL else 1
    choices = make_choices(workload, arrays, plan, tiles, rules, system.chip)
    codes = choices.index.start[:-1]
    return make_load(workload, system, arrays, plan, choices, codes, rules)
