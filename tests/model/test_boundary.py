from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

from crosstack import Constraints, evaluate, optimise
from crosstack.io.library import chip as library_chip
from crosstack.machine.chip import Overlap
from crosstack.machine.memory import main_memory
from crosstack.machine.system import Dimension, DimensionKind, Parallelism, System
from crosstack.mapping.mapping import Mapping, Status
from crosstack.model.choice_index import ChoiceIndex
from crosstack.model.choices import make_choices
from crosstack.model.mesh_plan import make_plan, placed_use
from crosstack.model.rules import MAPPED, rule_names, rules_named
from crosstack.model.traffic import Boundary
from crosstack.published.dfmodel.graphs.builders import join
from crosstack.published.dfmodel.graphs.fft import fft
from crosstack.published.dfmodel.graphs.hpl import hpl
from crosstack.workload import kernels as ops
from crosstack.workload.kernel_graph import AXIS_CODE, kernel_graph
from crosstack.workload.workload import Workload

OURS = rules_named("crosstack")
WORD = 2
# Extents that four chips divide, no two the same.
OUTER, M, K, N = 4, 8, 12, 16
MK, KN, MN = OUTER * M * K * WORD, OUTER * K * N * WORD, OUTER * M * N * WORD


def product(name: str = "product", **changes) -> ops.Kernel:
    values = {
        "kind": ops.KernelKind.GEMM, "outer": OUTER, "m": M, "k": K, "n": N,
        "input_sizes": (float(KN), float(MK)), "output_size": float(MN),
        "unit": ops.ComputeUnit.SYSTOLIC, "tiling": ops.Axis.NONE,
    }  # fmt: skip
    return ops.Kernel(name=name, **{**values, **changes})


def pointwise(name: str, inputs: int = 1, **changes) -> ops.Kernel:
    values = {
        "kind": ops.KernelKind.ELEMENTWISE if inputs == 1 else ops.KernelKind.ELEMENTWISE_2,
        "outer": OUTER, "m": M, "n": N, "input_sizes": (float(MN),) * inputs,
        "output_size": float(MN), "unit": ops.ComputeUnit.SIMD, "tiling": ops.Axis.NONE,
    }  # fmt: skip
    return ops.Kernel(name=name, **{**values, **changes})


def network(size: int) -> tuple[Dimension, ...]:
    return (Dimension(kind=DimensionKind.RING, bandwidth=1e9, size=size),)


@pytest.fixture(scope="module")
def machine(a_chip):
    """Return a builder of a machine whose memory moves 1 kB/s and bounds everything."""

    def build(n_chips: int = 1, bandwidth: float = 1e3, **chip) -> System:
        return System(
            chip=replace(
                a_chip(**{"utilization": 1.0, "overlap": Overlap.ALL, **chip}),
                memories=main_memory(bandwidth=bandwidth),
            ),
            network=network(n_chips),
            n_chips=n_chips,
        )

    return build


def traffic(workload, system, axis=ops.Axis.NONE, *, microbatch=1, rules=OURS):
    """Bytes that one chip reads and writes for every kernel, all split along ``axis``."""
    use = placed_use(workload.placement) or Parallelism.TENSOR
    sizes = tuple(d.size for d in system.network)
    plan = make_plan(workload, system, sizes, (use,) * len(sizes), microbatch, rules)
    arrays = workload.graph
    with mock.patch("crosstack.model.choices.choice_index", return_value=along(axis, arrays)):
        choices = make_choices(workload, arrays, plan, 1, rules)
    return choices.entering.tolist(), choices.leaving.tolist()


def along(axis, arrays) -> ChoiceIndex:
    """Return choices that split every kernel along ``axis``, which the graph may not allow."""
    kernels, edges = np.arange(arrays.n + 1), np.arange(len(arrays.source) + 1)
    return ChoiceIndex(
        start=kernels, kernel=kernels[:-1], axis=np.full(arrays.n, AXIS_CODE[axis]),
        source=arrays.source, target=arrays.target, edge_start=edges, edge=edges[:-1],
        before=arrays.source, after=arrays.target,
    )  # fmt: skip


def alone(kernel: ops.Kernel, **changes) -> Workload:
    return Workload(graph=join([kernel], [], WORD), **changes)


class TestOfOneKernel:
    @pytest.mark.parametrize("rules", [name for name in rule_names(MAPPED) if name != "crosstack"])
    def test_published_rules_move_nothing(self, machine, rules):
        found = traffic(alone(product()), machine(4), rules=rules_named(rules))
        assert found == ([0.0], [0.0])

    @pytest.mark.parametrize(
        ("axis", "read", "written"),
        [
            (ops.Axis.OUTER, (KN + MK) / 4, MN / 4),
            (ops.Axis.M, KN + MK / 4, MN / 4),
            (ops.Axis.K, (KN + MK) / 4, MN),  # added up, the result is whole on every chip
            (ops.Axis.N, KN / 4 + MK, MN / 4),
            (ops.Axis.NONE, KN + MK, MN),
        ],
    )
    def test_a_product_reads_what_its_part_needs_and_writes_what_it_holds(
        self, machine, axis, read, written
    ):
        assert traffic(alone(product()), machine(4), axis) == ([read], [written])

    def test_its_bytes_tell_which_factor_comes_first(self, machine):
        swapped = product(input_sizes=(float(MK), float(KN)))
        assert traffic(alone(swapped), machine(4), ops.Axis.M)[0] == [KN + MK / 4]

    @pytest.mark.parametrize(
        ("axis", "share"),
        [(ops.Axis.OUTER, 4), (ops.Axis.M, 4), (ops.Axis.N, 4), (ops.Axis.NONE, 1)],
    )
    def test_a_sum_reads_two_parts_and_writes_one(self, machine, axis, share):
        found = traffic(alone(pointwise("sum", inputs=2)), machine(4), axis)
        assert found == ([2 * MN / share], [MN / share])

    def test_heads_share_an_input_that_is_too_small_for_all_of_them(self, machine):
        weight = product(
            kind=ops.KernelKind.GEMM_WEIGHT,
            input_sizes=(float(K * N * WORD),),
            weight_size=float(MK),
        )
        assert traffic(alone(weight), machine(4), ops.Axis.OUTER)[0] == [K * N * WORD]

    def test_of_three_rows_on_two_chips_two_are_on_one_of_them(self, machine):
        row = float(N * WORD)
        three = pointwise("sum", outer=1, m=3, input_sizes=(3 * row,), output_size=3 * row)
        assert traffic(alone(three), machine(2), ops.Axis.M) == ([2 * row], [2 * row])

    def test_tiles_move_the_same_bytes(self, machine):
        ragged = alone(pointwise("sum", tiling=ops.Axis.N), sequence_length=N)
        found = []
        for n_tiles in (1, 3, 5):
            plan = make_plan(ragged, machine(4), (4,), (Parallelism.TENSOR,), 1, OURS)
            choices = make_choices(ragged, ragged.graph, plan, n_tiles, OURS)
            found.append((choices.entering.tolist(), choices.leaving.tolist()))
        assert found[0] == found[1] == found[2]


class TestOfAGraph:
    def test_tensors_inside_are_counted_elsewhere(self, machine):
        chain = join([pointwise("a"), pointwise("b"), pointwise("c")], [(1, 2, 0), (2, 3, 0)], WORD)
        assert traffic(Workload(graph=chain), machine()) == ([MN, 0, 0], [0, 0, MN])

    def test_a_result_that_is_read_inside_does_not_leave(self, machine):
        fork = join([pointwise("a"), pointwise("b"), pointwise("c")], [(1, 2, 0), (1, 3, 0)], WORD)
        assert traffic(Workload(graph=fork), machine())[1] == [0, MN, MN]

    def test_the_other_operand_of_a_fed_kernel_enters(self, machine):
        pair = join([pointwise("a"), pointwise("b", inputs=2)], [(1, 2, 1)], WORD)
        assert traffic(Workload(graph=pair), machine())[0] == [MN, MN]

    def test_what_an_elided_edge_carries_is_accounted_for_elsewhere(self, machine):
        kernels = (pointwise("a"), pointwise("b"))
        reader = ops.Consumer(kernel="b", elided=True)
        edge = ops.Tensor(producer="a", consumers=(reader,), size=float(MN))
        graph = kernel_graph(kernels=kernels, tensors=(edge,), word=WORD)
        assert traffic(Workload(graph=graph), machine()) == ([MN, 0], [0, MN])

    @pytest.mark.parametrize(
        ("microbatch", "read", "written"),
        # 8 sequences: S (1 - 1/n) / b read, S / b written
        [(1, MN * 7 / 8, MN), (2, MN / 2 * 3 / 4, MN / 2), (8, 0, MN / 8)],
    )
    def test_a_microbatch_adds_its_gradients_to_those_before(
        self, machine, microbatch, read, written
    ):
        update = product(
            direction=ops.Direction.BACKWARD,
            communications=(
                ops.Communication(
                    collective=ops.Collective.ALL_REDUCE, size=float(MN), periodic=True
                ),
            ),
        )
        workload = alone(update, global_batch_size=8)
        found = traffic(workload, machine(), microbatch=microbatch)
        assert found == ([pytest.approx(KN + MK + read)], [pytest.approx(written)])


def given(workload, partitions, n_chips, parallelism=Parallelism.TENSOR, sharding=ops.Axis.NONE):
    n = len(workload.graph)
    return Mapping(
        sizes=(n_chips,), parallelism=(parallelism,), microbatch_size=1, n_tiles=1,
        sharding=(sharding,) * n, partitions=partitions,
    )  # fmt: skip


class TestTime:
    def test_a_sum_of_two_tensors_takes_what_moving_them_takes(self):
        # 8 sums of two 8192 x 4096 tensors of 2-byte words: 8 x 3 x 67.1 MB = 1.61 GB, on four
        # chips of 3.35 TB/s each
        h100 = library_chip("h100")
        sum_of_two = ops.Kernel(
            name="sum", kind=ops.KernelKind.ELEMENTWISE_2, m=8192, n=4096,
            input_sizes=(67108864.0,) * 2, output_size=67108864.0, unit=ops.ComputeUnit.SIMD,
        )  # fmt: skip
        four = System(
            chip=replace(h100, memories=main_memory(bandwidth=3.35e12)),
            network=network(4),
            n_chips=4,
        )
        workload = alone(sum_of_two, global_batch_size=8, sequence_length=4096)
        answer = optimise(workload, four)
        assert answer.certificate.status is Status.OPTIMAL
        assert answer.evaluation.time == pytest.approx(8 * 3 * 67108864 / 4 / 3.35e12, rel=1e-12)

    @pytest.mark.parametrize("partitions", [(0, 0, 0), (0, 1, 1), (0, 1, 2)])
    def test_it_is_paid_in_any_partition(self, machine, partitions):
        chain = join([pointwise("a"), pointwise("b"), pointwise("c")], [(1, 2, 0), (2, 3, 0)], WORD)
        workload = Workload(graph=chain)
        found = evaluate(workload, machine(), given(workload, partitions, 1))
        assert sum(p.boundary_traffic for p in found.partitions) == 2 * MN
        crossed = 2 * (len(found.partitions) - 1)
        assert sum(p.memory_traffic for p in found.partitions) == (2 + crossed) * MN
        assert found.time == pytest.approx((2 + crossed) * MN / 1e3)

    def test_every_layer_reads_what_the_one_before_wrote(self, machine):
        layers = alone(pointwise("a"), n_layers=3)
        assert evaluate(layers, machine(), given(layers, (0,), 1)).time == pytest.approx(
            3 * 2 * MN / 1e3
        )

    def test_pieces_of_a_weight_stream_an_input_from_outside_again(self, machine):
        weight = product(
            outer=1, kind=ops.KernelKind.GEMM_WEIGHT, input_sizes=(float(K * N * WORD),),
            output_size=float(M * N * WORD), weight_size=float(M * K * WORD),
        )  # fmt: skip
        workload = alone(weight)
        tight = machine(sram_capacity=M * K * WORD / 3)
        found = evaluate(workload, tight, given(workload, (0,), 1))
        assert found.kernels[0].weight_cuts == 3
        moved = M * K + 3 * K * N + M * N
        assert found.partitions[0].memory_traffic == pytest.approx(moved * WORD)

    def test_kernels_and_partitions_name_it(self, machine):
        pair = join([pointwise("a", inputs=2), pointwise("b")], [(1, 2, 0)], WORD)
        workload = Workload(graph=pair)
        answer = optimise(workload, machine(), constraints=Constraints(kernel_by_kernel=True))
        first, last = answer.evaluation.kernels
        assert (first.entering, first.leaving) == (2 * MN, 0)
        assert (last.entering, last.leaving) == (0, MN)
        saved = answer.to_dict()
        assert [k["entering_b"] for k in saved["kernels"]] == [2 * MN, 0]
        assert [k["leaving_b"] for k in saved["kernels"]] == [0, MN]
        assert [p["boundary_traffic_b"] for p in saved["partitions"]] == [2 * MN, MN]
        assert answer.explain(0, "memory").endswith("; enters the graph: a 2.048 kB.")
        assert answer.explain(1, "memory").endswith("; leaves it: b 1.024 kB.")


FACTORISED = hpl(size=256, block=64)  # sides of 256, 192, 128 and 64
TRANSFORMED = fft(length=2**16)  # 256 x 256 points of 8 bytes


def torus(bandwidth: float, chip) -> System:
    rings = tuple(Dimension(kind=DimensionKind.RING, size=size, bandwidth=10e9) for size in (4, 2))
    return System(
        chip=replace(chip, memories=main_memory(bandwidth=bandwidth)), network=rings, n_chips=8
    )


class TestPlaced:
    def test_a_factorisation_reads_and_writes_the_rest_of_its_matrix(self, a_chip):
        read, written = traffic(FACTORISED, torus(1e9, a_chip()))
        sides = np.array([256, 192, 128, 64])
        panels = sides * 64 * 8
        before = panels[[0, 0, 1, 2]]  # the first reads its own
        matrix = sides**2 * 8 / (4 * 2)
        # M over 4 rows of chips, K over 2 columns
        assert read == pytest.approx((matrix + before / 2).tolist())
        assert written == pytest.approx((matrix + panels / 4).tolist())

    @pytest.mark.parametrize("partitions", [(0, 0), (0, 1)])
    def test_a_transform_passes_its_points_through_memory_twice(self, a_chip, partitions):
        system = torus(1e9, a_chip(utilization=0.5, overlap=Overlap.ALL))
        mapping = Mapping(
            sizes=(4, 2), parallelism=(Parallelism.TENSOR,) * 2, microbatch_size=1, n_tiles=1,
            sharding=(ops.Axis.NONE,) * 2, partitions=partitions,
        )  # fmt: skip
        found = evaluate(TRANSFORMED, system, mapping)
        moved = 4 * 256 * 256 * 8 / 8
        assert sum(p.memory_traffic for p in found.partitions) == pytest.approx(moved)

    @pytest.mark.parametrize("workload", [FACTORISED, TRANSFORMED], ids=["hpl", "fft"])
    def test_slow_memory_makes_it_slow(self, a_chip, workload):
        chip = a_chip(utilization=0.5)
        fast, slow = (optimise(workload, torus(b, chip)).evaluation for b in (1e15, 1e6))
        moved = sum(p.memory_traffic for p in slow.partitions)
        assert slow.time >= moved / 1e6 > 100 * fast.time

    @pytest.mark.parametrize("workload", [FACTORISED, TRANSFORMED], ids=["hpl", "fft"])
    def test_published_rules_leave_memory_out(self, a_chip, workload):
        rules, chip = rules_named("dfmodel-e2"), a_chip(utilization=0.5)
        found = {optimise(workload, torus(b, chip), rules=rules).evaluation.time for b in (1e15, 1)}
        assert len(found) == 1

    def test_a_factorisation_that_a_text_gives_no_second_size_moves_the_same(self, a_chip):
        # DFModel's texts may leave out the bytes of the second factor.
        graph = FACTORISED.graph
        kernels = tuple(replace(k, input_sizes=(k.input_sizes[0], 0.0)) for k in graph.kernels)
        text = replace(FACTORISED, graph=graph.listing(kernels=kernels))
        system = torus(1e9, a_chip())
        assert traffic(text, system) == traffic(FACTORISED, system)


def test_the_choice_is_a_field_of_the_rules(machine):
    free = OURS.changed(name="free", boundary=Boundary.FREE)
    assert OURS.traffic.boundary is Boundary.MEMORY
    assert traffic(alone(pointwise("a")), machine(), rules=free) == ([0.0], [0.0])
