"""Claims about the time of a kernel: bounds, faster hardware, many shapes at once, bad input."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from builders.products import gemm_time
from hypothesis import given
from hypothesis import strategies as st

from crosstack.errors import InfeasibleError, InputError
from crosstack.io import library
from crosstack.machine.chip import Chip
from crosstack.machine.compute import Compute, Dataflow
from crosstack.machine.memory import MemoryLevel, Scope
from crosstack.model.kernels.clock import KernelTime, product_time
from crosstack.model.kernels.roofline import Roofline
from crosstack.published.deepflow.kernels import tiles_of_2020, tiles_of_2021, tiles_of_2025
from crosstack.workload.dtype import Dtype, dtype_of_size

BF16 = Dtype.BF16

A100 = library.chip("a100-pcie-80gb")
SHAPES = np.floor(2.0 ** np.random.default_rng(7).uniform(0, 16.6, (3, 400)))  # 1 to 99,334
CLOCKS = (Roofline(), tiles_of_2025(), tiles_of_2021(), tiles_of_2020())
extents = st.integers(1, 100_000)
sides = st.tuples(extents, extents, extents)
FLOWS = (Dataflow.WEIGHT, Dataflow.ACTIVATION, Dataflow.OUTPUT)


def with_levels(chip: Chip, name: str | None = None, **factors: float) -> Chip:
    """Scale fields of the level called ``name``, or of all."""
    levels = tuple(
        replace(level, **{field: getattr(level, field) * by for field, by in factors.items()})
        if name in (None, level.name)
        else level
        for level in chip.storage
    )
    return replace(chip, levels=levels[:-1], memories=levels[-1:])


def with_multiprocessors(chip: Chip, count: int) -> Chip:
    """Give the chip ``count`` multiprocessors with units and memories like those it has."""
    by = count / chip.compute.n_multiprocessors
    levels = tuple(
        level
        if level.scope is Scope.CHIP
        else replace(level, capacity=level.capacity * by, bandwidth=level.bandwidth * by)
        for level in chip.levels
    )
    units = round(chip.compute.n_units * by)
    return replace(
        chip, levels=levels, compute=replace(chip.compute, n_multiprocessors=count, n_units=units)
    )


def fields_at(found: KernelTime, i: int) -> list[object]:
    values: list[object] = [found.time[i], found.bound[i], found.split[i], found.dataflow[i]]
    for one in (found.level_times, found.bandwidths, found.traffic, found.passing, found.tiles):
        values += [np.asarray(array[i]).tolist() for array in one.values()]
    return values


@given(sides=sides)
def test_no_product_beats_compute_or_main_memory(sides):
    m, k, n = sides
    found = gemm_time(A100, m, k, n)
    moved = (m * k + k * n + m * n) * 2
    assert found.time >= 2 * m * k * n / A100.compute.throughput + A100.launch_overhead
    assert found.time >= moved / A100.main_memory.bandwidth + A100.launch_overhead
    assert 0 < found.utilization <= 1
    for level in A100.storage[2:]:
        assert found.traffic[level.name] >= moved * (1 - 1e-12)


@pytest.mark.parametrize(
    ("shape", "elements"),
    [((512, 1, 1024), 512 + 1024 + 512 * 1024), ((1, 4096, 2048), 4096 + 4096 * 2048 + 2048)],
)
def test_the_least_time_of_little_work_is_that_of_moving_its_operands_once(shape, elements):
    memory = A100.main_memory
    moving = 3 * elements * 2 / memory.speed + memory.delay  # three of them, 2 B an element
    least = Roofline().least(A100, BF16, *shape, batch=3)
    assert least == pytest.approx(A100.launch_overhead + moving)


@pytest.mark.parametrize("level", [level.name for level in A100.storage])
def test_a_better_level_is_never_slower(level):
    before = gemm_time(A100, *SHAPES).time
    for better in ({"bandwidth": 1.3}, {"capacity": 1.5}, {"latency": 0.5}):
        if level == "HBM2e" and "capacity" in better:
            continue
        after = gemm_time(with_levels(A100, level, **better), *SHAPES).time
        assert np.all(after <= before * (1 + 1e-12)), better


@pytest.mark.parametrize("count", [109, 120, 144, 216])
def test_more_multiprocessors_are_never_slower(count):
    before = gemm_time(A100, *SHAPES).time
    after = gemm_time(with_multiprocessors(A100, count), *SHAPES).time
    # Of fewer tiles a multiprocessor, the last ones hide less of each other's latency: 2 % at most.
    assert np.all(after <= before * 1.03)


def test_a_chip_twice_as_fast_takes_half():
    fast = replace(
        with_levels(A100, bandwidth=2.0, latency=0.5, ramp=0.5),
        compute=replace(A100.compute, frequency=2 * A100.compute.frequency),
        launch_overhead=A100.launch_overhead / 2,
    )
    assert gemm_time(fast, *SHAPES).time == pytest.approx(gemm_time(A100, *SHAPES).time / 2)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_larger_product_is_not_faster(axis):
    larger = SHAPES.copy()
    larger[axis] = np.floor(larger[axis] * 1.5) + 1
    before, after = (gemm_time(A100, *s).time for s in (SHAPES, larger))
    # K is split in powers of two, so that a larger K may be cut a little better.
    assert np.all(after >= before * 0.99)


@st.composite
def chips(draw: st.DrawFn) -> Chip:
    """Return any chip: one to five levels, arrays of any size, neither operand held in them."""
    multiprocessors, units = draw(st.integers(1, 200)), draw(st.integers(1, 8))
    scopes = draw(st.sampled_from(["C", "CC", "CCC", "UC", "BC", "UBC", "UBCC", "UBCCC"]))
    levels, capacity = [], draw(st.floats(2**9, 2**16)) * multiprocessors
    for place, scope in enumerate(scopes):
        levels.append(
            MemoryLevel(
                name=f"level {place}",
                scope={"U": Scope.UNIT, "B": Scope.MULTIPROCESSOR, "C": Scope.CHIP}[scope],
                capacity=capacity if place < len(scopes) - 1 else 1e15,
                bandwidth=draw(st.floats(1e9, 1e14)),
                latency=draw(st.sampled_from([0.0, 1e-8, 3e-7])),
                partitions=draw(st.sampled_from([1, 2])) if scope == "C" else 1,
            )
        )
        capacity *= draw(st.floats(1, 64))
    return Chip(
        compute=Compute(
            n_units=multiprocessors * units,
            n_multiprocessors=multiprocessors,
            work_per_cycle=draw(st.integers(1, 4096)),
            frequency=1e9,
            utilization=1.0,
            rows=draw(st.integers(1, 128)),
            depth=2.0 * draw(st.integers(1, 128)),
            dataflow=draw(st.sampled_from([Dataflow.BEST, Dataflow.OUTPUT, Dataflow.NONE])),
        ),
        levels=tuple(levels[:-1]),
        memories=tuple(levels[-1:]),
        launch_overhead=draw(st.sampled_from([0.0, 5e-6])),
    )


@given(chip=chips(), shape=sides, vector=st.booleans())
def test_a_product_and_its_transpose_take_the_same(chip, shape, vector):
    m, k, n = shape[0], shape[1], 1 if vector else shape[2]
    there, back = gemm_time(chip, m, k, n), gemm_time(chip, n, k, m)
    assert there.time == back.time
    assert there.bound == back.bound
    for level in chip.levels:
        assert there.traffic[level.name] == back.traffic[level.name]
        mirrored = back.tiles[level.name][:: 1 if m == n else -1]
        assert there.tiles[level.name].tolist() == mirrored.tolist()


@pytest.mark.parametrize("clock", CLOCKS, ids=("roofline", "2025", "2021", "2020"))
@given(shape=sides, vector=st.booleans())
def test_what_a_level_takes_is_its_traffic_over_its_bandwidth(clock, shape, vector):
    m, k, n = shape[0], shape[1], 1 if vector else shape[2]
    found = gemm_time(A100, m, k, n, clock=clock)
    for level in A100.levels:
        taken = found.traffic[level.name] / found.bandwidths[level.name]
        assert found.level_times[level.name] == taken
        assert found.bandwidths[level.name] <= level.bandwidth * (1 + 1e-12)
        assert taken <= found.time


@given(shape=sides)
def test_a_kernel_takes_its_longest_term_and_what_nothing_hides(shape):
    found = gemm_time(A100, *shape)
    within = [*list(found.level_times.values())[:-1], found.compute_time]
    memory = found.level_times["HBM2e"] + A100.main_memory.delay
    least = max(memory, found.waiting_time + max(within)) + found.launch_time
    # A level is the slowest tile by tile, so that the sum of the longest ones may be more.
    assert found.time == pytest.approx(float(least + found.reduction_time), rel=1e-9)


def test_many_products_at_once_are_the_same_bit_for_bit():
    m, k, n = SHAPES[:, :60]
    m[:5], n[5:10], m[5:8] = 1, 1, 1000
    together = gemm_time(A100, m, k, n)
    for i in range(60):
        alone = gemm_time(A100, m[i : i + 1], k[i : i + 1], n[i : i + 1])
        assert fields_at(alone, 0) == fields_at(together, i)


def test_arrays_of_any_shape_keep_it():
    found = gemm_time(A100, np.ones((2, 3, 1)) * 64, 32, np.arange(1, 5))
    assert found.time.shape == found.traffic["L2"].shape == (2, 3, 4)
    assert found.tiles["L1"].shape == (2, 3, 4, 3)
    assert gemm_time(A100, 5, 6, 7).time.shape == ()


def test_the_best_dataflow_is_the_fastest_of_the_forced_ones():
    m, k, n = SHAPES[:, :100]
    slow = with_levels(A100, "registers", bandwidth=0.2)  # where it matters
    forced = [gemm_time(slow, m, k, n, dataflow=flow).time for flow in FLOWS]
    best = gemm_time(slow, m, k, n, dataflow=Dataflow.BEST)
    assert best.time == pytest.approx(np.minimum.reduce(forced), rel=1e-12)
    assert set(best.dataflow) <= set(FLOWS)
    assert np.any(forced[0] != forced[2])


@pytest.mark.parametrize("wide", [Dtype.FP16, Dtype.FP32, Dtype.FP64])
def test_smaller_numbers_are_never_slower(wide):
    # At one rate and one depth for all types, so that only bytes differ.
    chip = A100.with_compute(relative_rates=(), depth=None)
    half = dtype_of_size(wide.size / 2)
    before = gemm_time(chip, *SHAPES, dtype=wide).time
    assert np.all(gemm_time(chip, *SHAPES, dtype=half).time <= before * (1 + 1e-12))


def test_tensor_cores_take_twice_as_long_for_numbers_twice_as_wide():
    clock, sides = Roofline(sustained=False), (8192, 8192, 8192)
    slow, fast = (product_time(clock, A100, *sides, dtype=d) for d in (Dtype.TF32, Dtype.BF16))
    assert slow.compute_time == pytest.approx(2 * fast.compute_time)


@pytest.mark.parametrize(("rows", "depth"), [(1024, 65536), (100_000, 4096), (64, 10**6)])
def test_a_matrix_times_a_vector_is_read_once_at_the_bandwidth_of_main_memory(rows, depth):
    found = gemm_time(A100, rows, depth, 1)
    moved = (rows * depth + rows + depth) * 2
    reading = moved / A100.main_memory.bandwidth
    assert found.bound == "HBM2e"
    assert found.traffic["HBM2e"] == pytest.approx(moved, rel=1e-3)
    assert found.time - A100.launch_overhead == pytest.approx(reading, rel=0.05)


def test_a_matrix_times_a_vector_takes_no_longer_than_times_two():
    m, k, _ = SHAPES
    assert np.all(gemm_time(A100, m, k, 1).time <= gemm_time(A100, m, k, 2).time)


def test_sums_of_a_split_vector_are_added_without_a_second_launch():
    found = gemm_time(A100, 64, 10**6, 1)
    assert found.split > 1
    assert found.reduction_time < A100.launch_overhead / 10
    assert gemm_time(A100, 64, 10**6, 2).reduction_time > A100.launch_overhead


# K, N and microseconds a call inside a CUDA graph, A100 SXM 80 GB, M 1: ai-dynamo/aiconfigurator at
# 095f58a, a100_sxm/gemm of vLLM, TensorRT-LLM and SGLang.
VECTORS = [(4096, 1024, 10.58), (8192, 2560, 31.03), (4096, 7168, 45.71), (4096, 8192, 51.10),
           (6144, 8192, 66.76), (5120, 16384, 121.86)]  # fmt: skip


@pytest.mark.parametrize(("k", "n", "measured"), VECTORS)
def test_a_measured_vector_product_is_within_a_quarter_at_the_usual_launch(k, n, measured):
    found = float(gemm_time(library.chip("a100-sxm-80gb"), 1, k, n).time)
    assert found * 1e6 == pytest.approx(measured, rel=0.25)


def test_elementwise_kernels_are_bound_by_main_memory_or_compute():
    memory = A100.main_memory
    times = Roofline().times(A100)
    assert times.elementwise(1e6, 1e9) == pytest.approx(1e9 / memory.bandwidth + memory.latency)
    assert times.elementwise(1e15, 1e6) == pytest.approx(1e15 / A100.vector_throughput(BF16))
    assert times.elementwise(0, 0) == 0


def test_elementwise_kernels_of_the_releases_are_bound_by_registers():
    found = tiles_of_2025().times(A100).elementwise(1.0, 1e9)
    assert found == pytest.approx(1e9 / A100.levels[0].bandwidth)


@pytest.mark.parametrize("clock", [Roofline(), tiles_of_2021()])
def test_times_of_steps_are_those_of_products(clock):
    times, asked = clock.times(A100), clock.times(A100)
    shapes = [(512.0, 256.0, 128.0, 1), (64.0, 64.0, 4096.0, 3), (512.0, 256.0, 128.0, 1)]
    asked.prepare(shapes)
    assert [times.product(*s) for s in shapes] == [asked.product(*s) for s in shapes]


def test_older_releases_keep_the_dataflow_of_their_first_product():
    times = tiles_of_2021().times(A100)
    times.product(4096, 64, 64)  # M is the largest: weights stay
    forced = gemm_time(A100, 64, 64, 4096, clock=tiles_of_2021(), dataflow=Dataflow.WEIGHT)
    assert times.product(64, 64, 4096) == forced.time


@pytest.mark.parametrize("bad", [0, -1, 0.5, float("nan"), float("inf"), "many", None, [], 1j])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_side_that_is_no_size_is_refused_by_name(bad, place):
    given = [8, 8, 8]
    given[place] = bad
    with pytest.raises(InputError, match=f"^{'mkn'[place]}: got .*at least 1") as caught:
        gemm_time(A100, *given)
    assert len(caught.value.problems) == 1


def test_every_bad_side_is_reported():
    with pytest.raises(InputError) as caught:
        gemm_time(A100, 0, 1, -4)
    assert [problem.path for problem in caught.value.problems] == ["m", "n"]


def test_shapes_that_do_not_match_are_refused():
    with pytest.raises(InputError, match="broadcast"):
        gemm_time(A100, [1, 2], [1, 2, 3], 4)


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf"), "x"])
def test_bad_work_is_refused(bad):
    with pytest.raises(InputError, match="work"):
        Roofline().times(A100).elementwise(bad, 1.0)


def test_whole_numbers_describe_a_chip_as_well():
    whole = replace(with_levels(A100, latency=0.0), launch_overhead=0)
    assert gemm_time(whole, 64, 64, 64).time > 0
    assert gemm_time(whole, 64, 64, 64, clock=tiles_of_2025()).time > 0


def test_a_product_that_does_not_fit_says_so():
    with pytest.raises(InfeasibleError, match="HBM2e.*1,000,000 x 1,000,000 x 1,000,000"):
        gemm_time(A100, 10**6, 10**6, [1, 10**6])


def test_a_chip_without_bandwidth_is_refused():
    with pytest.raises(InputError, match=r"levels\[2\].bandwidth: L2 of .* no bandwidth"):
        gemm_time(with_levels(A100, "L2", bandwidth=0.0), 8, 8, 8)


def test_a_chip_without_compute_is_refused():
    idle = replace(A100, compute=replace(A100.compute, n_multiprocessors=0, n_units=0))
    with pytest.raises(InputError, match="computes nothing"):
        gemm_time(idle, 8, 8, 8)


def test_memories_too_small_to_draw_tiles_from_are_refused():
    tiny = with_levels(A100, "L1", capacity=1e-4)
    with pytest.raises(InputError, match="L1 holds .* too few"):
        gemm_time(tiny, 8, 8, 8, clock=tiles_of_2025())


@pytest.mark.parametrize(
    ("clock", "bad"),
    [
        (Roofline(), {"k_step": 0}),
        (Roofline(), {"accumulator_share": 1.5}),
        (Roofline(), {"smallest_unit_tile": 0}),
        (tiles_of_2021(), {"tiles_refill": "no"}),
        (tiles_of_2021(), {"n_drawn": 0}),
        (tiles_of_2021(), {"search": "all"}),
    ],
)
def test_clocks_check_themselves(clock, bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        replace(clock, **bad)


sides_of_a_batch = st.tuples(*[st.integers(1, 20_000)] * 3)


def bytes_of(m, k, n):
    return BF16.size * np.stack(np.broadcast_arrays(m * k, k * n, m * n), axis=-1)


def test_operands_are_what_main_memory_moves_and_each_moves_at_least_once():
    m, k, n = SHAPES
    found = gemm_time(A100, m, k, n)
    assert found.operands.sum(axis=1) == pytest.approx(found.traffic["HBM2e"], rel=1e-12)
    assert np.all(found.operands >= bytes_of(m, k, n) * (1 - 1e-12))
    again = gemm_time(A100, n, k, m).operands[:, [1, 0, 2]]
    assert found.operands == pytest.approx(again, rel=1e-12)


@pytest.mark.parametrize("clock", CLOCKS[1:], ids=("2025", "2021", "2020"))
def test_operands_of_the_releases_are_what_their_main_memory_moves(clock):
    found = gemm_time(A100, *SHAPES[:, :40], clock=clock)
    assert found.operands.sum(axis=1) == pytest.approx(found.traffic["HBM2e"], rel=1e-12)
    assert np.all(found.operands >= 0)


def test_operands_that_the_l2_holds_are_read_once_and_long_rows_again():
    held = gemm_time(A100, 1024, 1024, 1024)
    assert held.operands == pytest.approx(bytes_of(1024, 1024, 1024), rel=1e-12)
    # A wave's rows stay on the chip while its columns pass; those of the next wave do not.
    large = gemm_time(A100, 2048, 12288, 49152)
    assert large.operands[0] > 10 * large.operands[1] * 2048 / 49152


@given(shape=sides_of_a_batch, batch=st.integers(1, 8))
def test_a_kernel_is_its_work_or_main_memory_and_what_follows(shape, batch):
    found = gemm_time(A100, *shape, batch=batch)
    moved = found.operands.sum() / A100.main_memory.bandwidth + A100.main_memory.delay
    after = found.launch_time + found.reduction_time
    assert found.time == pytest.approx(max(found.work_time, moved) + after, rel=1e-12)


def test_products_of_a_batch_have_factors_of_their_own():
    # 96 heads: scores of 2048 tokens by 2048 over a head of 128.
    found = gemm_time(A100, 2048, 128, 2048, batch=96)
    assert np.all(found.operands >= 96 * bytes_of(2048, 128, 2048) * (1 - 1e-12))
    alone = gemm_time(A100, 2048, 128, 2048)
    assert found.time < 96 * alone.time
    assert found.time > found.launch_time + 96 * 2 * 2048 * 128 * 2048 / A100.compute.throughput


@given(shape=sides_of_a_batch, batch=st.integers(1, 8))
def test_a_batch_and_its_transpose_take_the_same(shape, batch):
    m, k, n = shape
    there, back = (gemm_time(A100, *s, batch=batch).time for s in ((m, k, n), (n, k, m)))
    assert there == pytest.approx(float(back), rel=1e-12)


def test_no_tiling_beats_the_least_time():
    m, k, n = SHAPES
    for clock in CLOCKS[:2]:
        time = gemm_time(A100, m[:40], k[:40], n[:40], clock=clock).time
        least = [clock.least(A100, BF16, *shape) for shape in SHAPES[:, :40].T.tolist()]
        assert np.all(time >= np.array(least) * (1 - 1e-12))
