from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import numpy as np
import pytest

from crosstack.machine.chip import Chip, Overlap, flat_chip
from crosstack.machine.memory import main_memory
from crosstack.machine.system import Dimension, DimensionKind, Parallelism, System
from crosstack.model.alive import live_size, live_sizes
from crosstack.model.choices import make_choices
from crosstack.model.cores import Staircase, deal_cores, staircase
from crosstack.model.mesh_plan import make_plan
from crosstack.model.partition import ChipLoad, alone_sram, make_load, partition_cost
from crosstack.model.rules import Rules, rules_named
from crosstack.model.traffic import Boundary
from crosstack.published.dfmodel.parts import WeightCuts
from crosstack.published.dfmodel.rules import as_dfmodel
from crosstack.workload.kernel_graph import KernelGraph, kernel_graph
from crosstack.workload.kernels import ComputeUnit, Consumer, Kernel, KernelKind, Routing, Tensor
from crosstack.workload.workload import Workload

# ---------------------------------------------------------------- cycles and cores

SHAPES = [(1, 1, 1), (7, 3, 5), (64, 16, 40), (33, 1, 100), (5, 9, 2), (100, 2, 1)]


def fewest_cycles(m, k, n, systolic, lanes, stages, cores) -> float:
    """Least cycles on at most ``cores`` cores, by trying every rectangle of them."""
    best = math.inf
    for a in range(1, cores + 1):
        if not systolic:
            best = min(best, math.ceil(m / (a * lanes)) * n)
            continue
        for b in range(1, cores // a + 1):
            best = min(best, math.ceil(m / (a * lanes)) * math.ceil(n / (b * stages)) * k)
    return best


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("systolic", [True, False])
@pytest.mark.parametrize("grid", [(1, 1), (2, 3), (8, 4)])
class TestStaircase:
    CORES = 14

    def test_it_gives_the_fewest_cycles_for_every_number_of_cores(self, shape, systolic, grid):
        stairs = staircase(*shape, systolic, *grid, self.CORES)
        for cores in range(1, self.CORES + 1):
            step = int(np.searchsorted(stairs.cores, cores, side="right")) - 1
            assert stairs.cycles[step] == fewest_cycles(*shape, systolic, *grid, cores)

    def test_more_cores_take_fewer_cycles(self, shape, systolic, grid):
        stairs = staircase(*shape, systolic, *grid, self.CORES)
        assert (np.diff(stairs.cores) > 0).all()
        assert (np.diff(stairs.cycles) < 0).all()

    def test_lanes_times_stages_are_its_cores(self, shape, systolic, grid):
        stairs = staircase(*shape, systolic, *grid, self.CORES)
        assert (stairs.lanes * stairs.stages == stairs.cores).all()


def random_stairs(seed: int, kernels: int = 4) -> list[tuple[int, Staircase, float]]:
    rng = random.Random(seed)
    return [
        (
            i,
            staircase(
                rng.randint(1, 30),
                rng.randint(1, 4),
                rng.randint(1, 20),
                rng.random() < 0.6,
                2,
                2,
                12,
            ),
            rng.choice([1.0, 0.5, 3.0]),
        )
        for i in range(kernels)
    ]


def best_deal(stairs, n_cores: int) -> float:
    """Least time of the slowest kernel, over every allocation."""
    best = math.inf
    for steps in itertools.product(*(range(len(s.cores)) for _, s, _ in stairs)):
        picked = [
            (int(s.cores[x]), float(s.cycles[x]) * scale)
            for (_, s, scale), x in zip(stairs, steps, strict=True)
        ]
        if sum(cores for cores, _ in picked) <= n_cores:
            best = min(best, max(time for _, time in picked))
    return best


class TestDealCores:
    @pytest.mark.parametrize("n_cores", [4, 5, 8, 12, 40])
    def test_no_allocation_is_faster(self, n_cores):
        for seed in range(12):
            stairs = random_stairs(seed)
            dealt = deal_cores(stairs, n_cores)
            assert dealt is not None
            assert dealt[0] == best_deal(stairs, n_cores), seed

    def test_what_is_dealt_is_there(self):
        for seed in range(30):
            dealt = deal_cores(random_stairs(seed), 9)
            assert dealt is not None
            assert sum(lanes * stages for _, lanes, stages in dealt[1]) <= 9

    def test_no_kernel_is_slower_than_the_time(self):
        for seed in range(30):
            stairs = random_stairs(seed)
            dealt = deal_cores(stairs, 9)
            assert dealt is not None
            for (_, s, scale), (_, lanes, stages) in zip(stairs, dealt[1], strict=True):
                step = s.cores.tolist().index(lanes * stages)
                assert s.cycles[step] * scale <= dealt[0]

    def test_fewer_cores_than_kernels_are_too_few(self):
        assert deal_cores(random_stairs(1, kernels=5), 4) is None


# ---------------------------------------------------------------- a chain, by hand
#
# x (gemm with weight, 4 x 2 x 8) -> y (elementwise, 4 x 8) -> z (elementwise, 4 x 8), z also
# reads x. One word is 2 B, four tiles along N: a tile of every tensor is 4 x 2 x 2 = 16 B, the
# whole 64 B, the weight 4 x 2 x 2 = 16 B. Levels 0, 1, 2.
X, Y, Z = 1, 2, 4


def kernel(name: str, kind: KernelKind, **changes) -> Kernel:
    values = {
        "m": 4,
        "n": 8,
        "output_size": 64.0,
        "input_sizes": (64.0,) * kind.n_inputs,
        "unit": ComputeUnit.SYSTOLIC if kind.is_gemm else ComputeUnit.SIMD,
    }
    return Kernel(name=name, kind=kind, **{**values, **changes})


def chain(**changes) -> KernelGraph:
    x = kernel("x", KernelKind.GEMM_WEIGHT, k=2, weight_size=16.0, input_sizes=(32.0,), **changes)
    readers = (Consumer(kernel="y"), Consumer(kernel="z", operand=1))
    return kernel_graph(
        kernels=(x, kernel("y", KernelKind.ELEMENTWISE), kernel("z", KernelKind.ELEMENTWISE_2)),
        tensors=(
            Tensor(producer="x", consumers=readers, size=64.0),
            Tensor(producer="y", consumers=(Consumer(kernel="z"),), size=64.0),
        ),
        word=2,
    )


# A chain of a graph's own tensors; what enters and leaves the graph is in test_boundary.py.
READ = rules_named("crosstack").changed(boundary=Boundary.FREE)
RULES = READ.changed(weights_read=False)


@pytest.fixture(scope="session")
def a_load(a_chip):
    """Return a builder of the chain on one chip: 64 B/s of memory, 96 FLOP/s at utilization 1."""

    def build(rules: Rules = RULES, graph: KernelGraph | None = None, **changes) -> ChipLoad:
        chip = a_chip(
            n_cores=6, lanes=2, stages=2, frequency=2.0, sram_capacity=1000.0, utilization=1.0
        )
        system = System(
            chip=replace(chip, memories=main_memory(bandwidth=64.0)),
            network=(Dimension(kind=DimensionKind.RING, bandwidth=1.0, size=1),),
            n_chips=1,
        )
        workload = Workload(graph=graph or chain(), sequence_length=8, n_layers=2)
        arrays = workload.graph
        plan = make_plan(workload, system, (1,), (Parallelism.DATA,), 1, rules)
        choices = make_choices(workload, arrays, plan, 4, rules)
        codes = choices.index.start[:-1]
        load = make_load(workload, system, arrays, plan, choices, codes, rules)
        return replace(load, **changes)

    return build


class TestPartitionByHand:
    @pytest.mark.parametrize(
        ("mask", "work"), [(X, 2 * 4 * 2 * 8), (Y, 32), (Z, 32), (X | Y | Z, 192)]
    )
    def test_compute_is_work_over_rate(self, a_load, mask, work):
        assert partition_cost(a_load(), mask).compute == pytest.approx(work / 96.0)

    @pytest.mark.parametrize(
        ("mask", "tensors"),
        [(X, 1), (Y, 2), (Z, 2), (X | Y, 2), (Y | Z, 1), (X | Y | Z, 0)],
    )
    def test_memory_moves_what_crosses_once(self, a_load, mask, tensors):
        assert partition_cost(a_load(), mask).memory == tensors

    @pytest.mark.parametrize(
        ("mask", "tensors"), [(X, 2), (Y, 2), (Z, 2), (X | Y, 2), (Y | Z, 2), (X | Y | Z, 0)]
    )
    def test_memory_moves_every_copy_where_tensors_are_copied(self, a_load, mask, tensors):
        load = a_load(as_dfmodel(RULES).changed(fan_out_copies=True))
        assert partition_cost(load, mask).memory == tensors

    @pytest.mark.parametrize(
        ("mask", "size"),
        [
            (X, 2 * 16 + 16),  # two tiles leave, the weight
            (Y, 2 * 16 + 2 * 16),
            (X | Y, 2 * 16 + 2 * 16 + 16),  # x is held for y and leaves for z
            (Y | Z, 2 * 16 + 2 * 16),  # x enters once for both, y inside
            (X | Y | Z, 3 * 16 + 2 * 16 + 16),  # z is two levels below x: three tiles
        ],
    )
    def test_sram_holds_tiles_and_weights(self, a_load, mask, size):
        assert partition_cost(a_load(), mask).sram == size

    @pytest.mark.parametrize(
        ("overlap", "time"),
        [(Overlap.ALL, 2.0), (Overlap.NONE, 2.0 + 1 / 3), (Overlap.COMPUTE_MEMORY, 2.0)],
    )
    def test_time_is_what_does_not_hide(self, a_load, overlap, time):
        assert partition_cost(a_load(overlap=overlap), Y).time == pytest.approx(time)

    def test_weights_are_read_where_they_do_not_stay(self, a_load):
        load = a_load(READ)
        assert partition_cost(load, X | Y | Z).memory == pytest.approx(16 / 64)

    def test_of_the_experts_those_are_read_that_a_token_comes_to(self, a_load):
        # one token, which comes to one of four experts
        held, touched = 16.0, 0.25
        load = a_load(READ, graph=chain(routing=Routing(sent=touched)))
        assert partition_cost(load, X | Y | Z).memory == pytest.approx(held * touched / 64)

    def test_weights_of_the_only_partition_may_stay(self, a_load):
        load = a_load(READ, resident_alone=True)
        assert partition_cost(load, X | Y | Z).memory == 0

    def test_a_partition_past_the_sram_does_not_fit(self, a_load):
        load = a_load(sram_capacity=79.0)
        assert [partition_cost(load, mask).fits for mask in (X | Y, Y | Z)] == [False, True]

    def test_a_partition_that_fills_the_sram_fits(self, a_load):
        assert partition_cost(a_load(sram_capacity=80.0), X | Y).fits

    def test_a_kernel_without_a_weight_is_not_cut(self, a_load):
        assert not partition_cost(a_load(sram_capacity=63.0), Y).fits

    def test_a_weight_is_cut_into_as_many_pieces_as_fit(self, a_load):
        cost = partition_cost(a_load(sram_capacity=20.0), X)  # 48 B, nothing enters
        assert (cost.cuts, cost.sram, cost.fits) == (3, 16.0, True)

    def test_only_a_kernel_alone_has_its_weight_cut(self, a_load):
        assert partition_cost(a_load(sram_capacity=20.0), X | Y).cuts == 1

    @pytest.mark.parametrize(
        ("cuts", "memory"), [(WeightCuts.FREE, 1), (WeightCuts.INPUTS, 1), (WeightCuts.ALL, 3)]
    )
    def test_pieces_cost_what_the_rule_says(self, a_load, cuts, memory):
        # three pieces; 64 B leave once or three times, nothing enters
        load = a_load(as_dfmodel(RULES).changed(weight_cuts=cuts), sram_capacity=20.0)
        assert partition_cost(load, X).memory == memory

    def test_network_adds_up(self, a_load):
        load = a_load(network=(1.0, 2.0, 4.0), data=(8.0, 0.0, 0.0))
        assert partition_cost(load, X | Y).network == 11

    def test_one_network_hides_behind_the_other_where_the_rule_says(self, a_load):
        load = a_load(network=(1.0, 2.0, 4.0), data=(8.0, 0.0, 0.0), network_takes_maximum=True)
        assert partition_cost(load, X | Y).network == 8

    def test_own_traffic_takes_memory_time(self, a_load):
        load = a_load(graph=chain(memory_traffic=32.0))
        assert partition_cost(load, X | Y | Z).memory == 0.5

    def test_own_sram_is_held(self, a_load):
        load = a_load(graph=chain(sram_extra=5.0))
        assert partition_cost(load, X).sram == 2 * 16 + 16 + 5

    def test_counted_kernels_share_with_no_other(self, a_load):
        load = a_load(graph=chain(repeats=1))
        assert [partition_cost(load, mask).fits for mask in (X, X | Y, Y | Z)] == [
            True,
            False,
            True,
        ]

    def test_traffic_is_memory_time_times_bandwidth(self, a_load):
        assert partition_cost(a_load(), Y).traffic == 128


class TestLiveSize:
    @pytest.mark.parametrize(
        ("before", "inside", "size"),
        [
            (0, X, 64),  # x is being written
            (0, X | Y, 128),  # x for z, y for z
            (0, X | Y | Z, 0),
            (X, Y, 128),
            (X, Y | Z, 64),  # y never leaves
            (X | Y, Z, 128),
        ],
    )
    def test_a_tensor_lives_from_its_maker_to_its_last_reader(self, a_load, before, inside, size):
        assert live_size(a_load(), before, inside) == size

    @pytest.mark.parametrize(
        "partitions", [(X, Y, Z), (X | Y, Z), (X, Y | Z), (X | Y | Z,), (X, 0, Y, Z)]
    )
    def test_all_at_once_are_those_one_by_one(self, a_load, partitions):
        before = itertools.accumulate((0, *partitions[:-1]))
        each = [live_size(a_load(), b, p) for b, p in zip(before, partitions, strict=True)]
        assert live_sizes(a_load(), partitions) == each


@pytest.mark.parametrize("kernel_number", [0, 1, 2])
def test_sram_of_a_kernel_alone_is_that_of_its_partition(a_load, kernel_number):
    load = a_load(graph=chain(sram_extra=5.0))
    assert alone_sram(load, kernel_number) == partition_cost(load, 1 << kernel_number).sram


def _a_small_chip() -> Chip:
    return flat_chip(n_cores=1, lanes=1, stages=1, frequency=1.0, sram_capacity=1.0)


class TestCycleModel:
    def test_a_partition_is_as_slow_as_its_slowest_kernel(self, a_load):
        stairs = tuple(
            Staircase(np.array([1, 3]), np.array(c), np.array([1, 3]), np.array([1, 1]))
            for c in ([8.0, 2.0], [6.0, 1.0], [4.0, 3.0])
        )
        load = a_load(staircases=stairs, cycle_time=(1.0, 1.0, 1.0))
        # six cores: 3 + 1 + 1, so x takes 2 and y 6
        assert partition_cost(load, X | Y | Z).compute == 6.0

    def test_more_kernels_than_cores_do_not_fit(self, a_load):
        one = Staircase(np.array([1]), np.array([1.0]), np.array([1]), np.array([1]))
        load = a_load(staircases=(one,) * 3, cycle_time=(1.0,) * 3, n_cores=2)
        assert [partition_cost(load, mask).fits for mask in (X | Y, X | Y | Z)] == [True, False]
