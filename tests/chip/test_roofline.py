"""Claims about the time of a kernel: bounds, faster hardware, many shapes at once, bad input."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstack.chip.a100 import a100_pcie_80gb
from crosstack.chip.hierarchy import ChipHierarchy, Dataflow, Scope
from crosstack.chip.kernel_rules import KernelRules, kernel_rules_named
from crosstack.chip.roofline import KernelTime, RooflineTimes, elementwise_time, gemm_time
from crosstack.errors import InfeasibleError, InputError

A100 = a100_pcie_80gb()
NARROW = replace(KernelRules.crosstack(), vector_rows=0)
SHAPES = np.floor(2.0 ** np.random.default_rng(7).uniform(0, 16.6, (3, 400)))  # 1 to 99,334
extents = st.integers(1, 100_000)
sides = st.tuples(extents, extents, extents)
FLOWS = (Dataflow.WEIGHT, Dataflow.ACTIVATION, Dataflow.OUTPUT)


def with_levels(chip: ChipHierarchy, name: str | None = None, **factors: float) -> ChipHierarchy:
    """Scale fields of the level called ``name``, or of all."""
    levels = tuple(
        replace(level, **{field: getattr(level, field) * by for field, by in factors.items()})
        if name in (None, level.name)
        else level
        for level in chip.levels
    )
    return replace(chip, levels=levels)


def with_bundles(chip: ChipHierarchy, count: int) -> ChipHierarchy:
    """Give the chip ``count`` bundles with units and memories of their own like those it has."""
    by = count / chip.compute.n_bundles
    levels = tuple(
        level
        if level.scope is Scope.CHIP
        else replace(level, capacity=level.capacity * by, bandwidth=level.bandwidth * by)
        for level in chip.levels
    )
    units = round(chip.compute.n_units * by)
    return replace(
        chip, levels=levels, compute=replace(chip.compute, n_bundles=count, n_units=units)
    )


def fields_at(found: KernelTime, i: int) -> list[object]:
    values: list[object] = [found.time[i], found.bound[i], found.split[i], found.dataflow[i]]
    for one in (found.level_times, found.traffic, found.tiles):
        values += [np.asarray(array[i]).tolist() for array in one.values()]
    return values


@given(sides=sides)
def test_no_product_beats_compute_or_main_memory(sides):
    m, k, n = sides
    found = gemm_time(A100, m, k, n)
    moved = (m * k + k * n + m * n) * A100.word
    assert found.time >= 2 * m * k * n / A100.compute.throughput + A100.launch_overhead
    assert found.time >= moved / A100.main_memory.bandwidth + A100.launch_overhead
    assert 0 < found.utilization <= 1
    for level in A100.levels[2:]:
        assert found.traffic[level.name] >= moved * (1 - 1e-12)


@pytest.mark.parametrize("level", [level.name for level in A100.levels])
def test_a_better_level_is_never_slower(level):
    before = gemm_time(A100, *SHAPES).time
    for better in ({"bandwidth": 1.3}, {"capacity": 1.5}, {"latency": 0.5}):
        if level == "HBM2e" and "capacity" in better:
            continue
        after = gemm_time(with_levels(A100, level, **better), *SHAPES).time
        assert np.all(after <= before * (1 + 1e-12)), better


@pytest.mark.parametrize("count", [109, 120, 144, 216])
def test_more_bundles_are_never_slower(count):
    before = gemm_time(A100, *SHAPES).time
    after = gemm_time(with_bundles(A100, count), *SHAPES).time
    # Of fewer tiles a bundle, the last ones hide less of each other's latency: 2 % at most.
    assert np.all(after <= before * 1.03)


def test_a_chip_twice_as_fast_takes_half():
    fast = replace(
        with_levels(A100, bandwidth=2.0, latency=0.5),
        compute=replace(A100.compute, frequency=2 * A100.compute.frequency),
        launch_overhead=A100.launch_overhead / 2,
    )
    assert gemm_time(fast, *SHAPES).time == pytest.approx(gemm_time(A100, *SHAPES).time / 2)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_larger_product_is_not_faster(axis):
    larger = SHAPES.copy()
    larger[axis] = np.floor(larger[axis] * 1.5) + 1
    before, after = (gemm_time(A100, *s, rules=NARROW).time for s in (SHAPES, larger))
    # K is split in powers of two, so that a larger K may be cut a little better.
    assert np.all(after >= before * 0.99)


def test_a_product_and_its_transpose_take_the_same():
    m, k, n = SHAPES
    there, back = gemm_time(A100, m, k, n), gemm_time(A100, n, k, m)
    column = (n == 1) | (m == 1)
    assert np.all((there.time == back.time) | column)
    assert np.any(there.time != back.time)  # a column is not loaded ahead, a row is


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


@pytest.mark.parametrize("word", [1.0, 2.0, 4.0])
def test_a_shorter_word_is_never_slower(word):
    before = gemm_time(replace(A100, word=2 * word), *SHAPES).time
    assert np.all(gemm_time(replace(A100, word=word), *SHAPES).time <= before * (1 + 1e-12))


def test_a_column_waits_for_memory_at_every_step():
    # 1024 rows in 16 blocks, none on a bundle with another; 4096 columns, 16 at a time.
    compute, levels = A100.compute, A100.levels
    array = 17 / compute.frequency  # 8 x 4 by 4 x 8: 2 x 7 and 3 cycles
    block = 2 * 64 * 64 * 16 / (4 * 512 * compute.frequency)
    step = levels[3].latency + 2 * levels[1].latency + array + block
    found = gemm_time(A100, 1024, 4096, 1)
    assert float(found.time) == pytest.approx(256 * step + A100.launch_overhead, rel=1e-12)
    assert found.bound == "waiting"
    assert gemm_time(A100, 1, 4096, 1024).time < found.time / 5


def test_many_rows_times_a_column_are_bound_by_memory():
    found = gemm_time(A100, 1_000_000, 4096, 1)
    assert found.bound == "HBM2e"
    moved = (1_000_001 * 4096 + 1_000_000) * 2
    time = moved / A100.main_memory.bandwidth + A100.main_memory.latency + A100.launch_overhead
    assert float(found.time) == pytest.approx(time, rel=1e-12)


def test_less_than_a_block_of_rows_is_a_narrow_matrix():
    assert gemm_time(A100, 63, 100_000, 1).time < 3e-5


def test_columns_are_narrow_matrices_on_request():
    assert gemm_time(A100, 1024, 16384, 1, rules=NARROW).time < 3e-5
    assert gemm_time(A100, 1024, 16384, 1).time > 3e-4


def test_elementwise_kernels_are_bound_by_main_memory_or_compute():
    memory = A100.main_memory
    found = elementwise_time(A100, [1e6, 1e15, 0], [1e9, 1e6, 0])
    assert found.time[0] == pytest.approx(1e9 / memory.bandwidth + memory.latency)
    assert found.time[1] == pytest.approx(1e15 / A100.compute.throughput)
    assert found.time[2] == 0
    assert found.bound.tolist() == ["HBM2e", "compute", "compute"]


def test_elementwise_kernels_of_the_releases_are_bound_by_registers():
    found = elementwise_time(A100, 1.0, 1e9, rules=KernelRules.deepflow_2025())
    assert float(found.time) == pytest.approx(1e9 / A100.levels[0].bandwidth)


@pytest.mark.parametrize("rules", [KernelRules.crosstack(), KernelRules.deepflow_2021()])
def test_times_of_steps_are_those_of_products(rules):
    times, asked = RooflineTimes(A100, rules), RooflineTimes(A100, rules)
    shapes = [(512.0, 256.0, 128.0), (64.0, 64.0, 4096.0), (512.0, 256.0, 128.0)]
    asked.prepare(shapes)
    assert [times.product(*s) for s in shapes] == [asked.product(*s) for s in shapes]


def test_older_releases_keep_the_dataflow_of_their_first_product():
    times = RooflineTimes(A100, KernelRules.deepflow_2021())
    times.product(4096, 64, 64)  # M is the largest: weights stay
    forced = gemm_time(
        A100, 64, 64, 4096, rules=KernelRules.deepflow_2021(), dataflow=Dataflow.WEIGHT
    )
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
        elementwise_time(A100, bad, 1.0)


def test_whole_numbers_describe_a_chip_as_well():
    whole = replace(with_levels(A100, latency=0.0), launch_overhead=0)
    assert gemm_time(whole, 64, 64, 64).time > 0
    assert gemm_time(whole, 64, 64, 64, rules=KernelRules.deepflow_2025()).time > 0


def test_a_product_that_does_not_fit_says_so():
    with pytest.raises(InfeasibleError, match="HBM2e.*1e.06 x 1e.06 x 1e.06"):
        gemm_time(A100, 10**6, 10**6, [1, 10**6])


def test_a_chip_without_bandwidth_is_refused():
    with pytest.raises(InputError, match=r"levels\[2\].bandwidth: L2 of .* no bandwidth"):
        gemm_time(with_levels(A100, "L2", bandwidth=0.0), 8, 8, 8)


def test_a_chip_without_compute_is_refused():
    idle = replace(A100, compute=replace(A100.compute, n_bundles=0, n_units=0))
    with pytest.raises(InputError, match="computes nothing"):
        gemm_time(idle, 8, 8, 8)


def test_memories_too_small_to_draw_tiles_from_are_refused():
    tiny = with_levels(A100, "L1", capacity=1e-4)
    with pytest.raises(InputError, match="L1 holds .* too few"):
        gemm_time(tiny, 8, 8, 8, rules=KernelRules.deepflow_2025())


def test_unknown_kernel_rules_name_the_nearest():
    with pytest.raises(InputError, match='Did you mean "deepflow-2025"'):
        kernel_rules_named("deepflow-2024")
    assert kernel_rules_named("crosstack") == KernelRules.crosstack()


@pytest.mark.parametrize(
    "bad",
    [{"k_step": 0}, {"accumulator_share": 1.5}, {"vector_rows": -1}, {"tiles_refill": "no"}],
)
def test_rules_check_themselves(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        replace(KernelRules.crosstack(), **bad)
