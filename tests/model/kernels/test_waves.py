"""Claims about tiles in waves: the search finds what loops over every candidate find."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crosstack.io import library
from crosstack.machine.chip import Chip
from crosstack.machine.compute import Compute
from crosstack.machine.memory import MemoryLevel, Scope
from crosstack.model.kernels import tilings
from crosstack.model.kernels.roofline import Roofline
from crosstack.model.kernels.tilings import best_schedules, tile_time
from crosstack.workload.dtype import Dtype

BF16 = Dtype.BF16

RULES = Roofline()
A100 = library.chip("a100-pcie-80gb")
# Two multiprocessors of four units, and so little memory that neither operands nor sums fit in it.
SMALL = Chip(
    compute=Compute(
        n_units=8,
        n_multiprocessors=2,
        work_per_cycle=128,
        frequency=1e9,
        utilization=0.9,
        rows=4,
        depth=8.0,
    ),
    levels=(
        MemoryLevel(name="registers", scope=Scope.UNIT, capacity=2 * 2**16, bandwidth=2e12),
        MemoryLevel(
            name="L1", scope=Scope.MULTIPROCESSOR, capacity=2 * 2**15, bandwidth=4e11, latency=2e-8
        ),
        MemoryLevel(
            name="L2", scope=Scope.CHIP, capacity=2**16, bandwidth=1e11, latency=1e-7, partitions=2
        ),
    ),
    memories=(MemoryLevel(name="DRAM", capacity=1e9, bandwidth=4e10, latency=3e-7),),
    launch_overhead=1e-6,
)
CHIPS = {
    "A100": A100,
    "H100": library.chip("h100-sxm"),  # operands in shared memory, clusters
    "B200": library.chip("b200"),  # pairs of multiprocessors besides
    "small": SMALL,
    "two cached": replace(
        SMALL,
        levels=(
            *SMALL.levels,
            MemoryLevel(name="L3", scope=Scope.CHIP, capacity=2**18, bandwidth=7e10),
        ),
    ),
    "main memory alone": replace(SMALL, levels=()),
}
# The curve of voltages over clocks is a table.
CLOSE = {name: 1e-9 if chip.compute.sustained is None else 1e-5 for name, chip in CHIPS.items()}


def multiprocessor_capacity(chip, scope):
    found = [
        level.capacity / chip.compute.n_multiprocessors
        for level in chip.levels
        if level.scope is scope
    ]
    return found[0] if found else 0.0


def tiles_of(chip, columns):
    """Return tile, how units share it, and how many fit on a multiprocessor, of every candidate."""
    compute = chip.compute
    units = compute.n_units // compute.n_multiprocessors
    registers, shared = (
        multiprocessor_capacity(chip, scope) for scope in (Scope.UNIT, Scope.MULTIPROCESSOR)
    )
    found = []
    smallest = math.ceil(math.log2(compute.rows))
    for a, b in itertools.product(range(smallest, 15), repeat=2):
        m, n = 2**a, 2**b
        splits = [(i, units // i) for i in range(1, units + 1) if units % i == 0]
        um, un = min(splits, key=lambda split: m * split[1] + n * split[0])
        resident = (registers or shared) * 0.5 // (m * n * 4)
        if shared:
            resident = min(resident, shared // (2 * (m + n) * 32 * BF16.size))
        if resident >= 1:
            found.append((m, n, um, un, resident))
    if not found:  # what the arrays of a multiprocessor hold, the smallest such tile
        powers = [2.0**a for a in range(smallest, 15)]
        shared_by = {
            (m, n): min(splits, key=lambda split, m=m, n=n: m * split[1] + n * split[0])
            for m, n in itertools.product(powers, repeat=2)
        }
        filled = {
            (m, n): split
            for (m, n), split in shared_by.items()
            if m >= compute.rows * split[0] and n >= compute.rows * split[1]
        }
        least = min(m * n for m, n in filled)
        return [(m, n, *split, 1) for (m, n), split in filled.items() if m * n == least]
    most = min(32, max(min(tile[0] / tile[2], tile[1] / tile[3]) for tile in found))
    wide = [tile for tile in found if min(tile[0] / tile[2], tile[1] / tile[3]) >= most]
    return wide + [t for t in found if columns == 1 and one_wide(chip, t) and t not in wide]


def one_wide(chip, tile):
    """Whether every unit has rows of its own, one array wide."""
    return tile[1] == 2 ** math.ceil(math.log2(chip.compute.rows)) and tile[3] == 1


def wave_reads(level, n_multiprocessors, tile, split, m, k, n, word):
    """Bytes of A and B that the innermost shared level reads, and the wave's sides: the least."""
    tile_m, tile_n, _, _, resident = tile
    part = level.capacity / level.partitions
    rows, columns = math.ceil(m / tile_m), math.ceil(n / tile_n)
    whole = (m + n) * k * word
    found = []
    for at_a_time in (resident, 1):
        full = max(n_multiprocessors * at_a_time / split, 1)
        for across, along, by_rows in ((rows, columns, True), (columns, rows, False)):
            for strip in (1, 2, 4, 8):
                wide = min(max(strip, full / along), across)
                long = min(max(full / wide, 1), along)
                side_m, side_n = (wide, long) if by_rows else (long, wide)
                side_m, side_n = min(side_m * tile_m, m), min(side_n * tile_n, n)
                of_wave = (side_m + side_n) * k * word
                moved = max(rows * columns / (wide * long), 1) * of_wave
                if of_wave <= part:
                    kept, passing = (m, n) if by_rows else (n, m)
                    moved = min(moved, (kept + passing * across / wide) * k * word)
                moved = whole if whole <= part else max(moved, whole)
                if at_a_time == 1 or of_wave <= level.capacity:
                    found.append((moved, side_m, side_n))
    return min(found, key=lambda choice: choice[0])


def outer_reads(level, inner, m, k, n, word):
    """Bytes that a level outside the innermost shared one reads, in its own blocks."""
    moved, side_m, side_n = inner
    part = level.capacity / level.partitions
    for doubling in range(12):
        block_m = min(side_m * 2**doubling, m)
        block_n = min(part / (k * word) - block_m, n)
        if block_n >= side_n:
            again = m * k * word * math.ceil(n / max(block_n, 1))
            moved = min(moved, again + n * k * word * math.ceil(m / block_m))
    whole = (m + n) * k * word
    return whole if whole <= part else moved


def each_of(rows, columns, neighbours):
    """Rows and columns that each of so many neighbours reads, where they read together."""
    ways = [(a, neighbours // a) for a in range(1, neighbours + 1) if neighbours % a == 0]
    return min(rows / a + columns / b for a, b in ways)


def clock_of(compute, working, inside, outside):
    """The highest share of the clock with no more power than all arrays take when sustained."""
    if compute.sustained is None:
        return 1.0

    def share_at(volts):
        return (volts - 0.2) ** 2 / volts / ((0.8 - 0.2) ** 2 / 0.8)

    def power(volts):
        share = share_at(volts) * compute.boost
        return volts**2 * working / max(inside / share, outside)

    def highest(allowed):
        low, high = 0.21, 0.8
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if allowed(middle) else (low, middle)
        return low

    full = highest(lambda volts: share_at(volts) <= compute.sustained / compute.boost)
    most = full**2 * compute.sustained
    volts = highest(lambda volts: power(volts) <= most)
    return share_at(volts) * compute.boost


def time_of(chip, tile, split, m, k, n):
    """One candidate, from docs/roofline.md, without arrays."""
    compute, word, memory = chip.compute, BF16.size, chip.main_memory
    deep = compute.elements_deep(BF16)
    tile_m, tile_n, um, un, resident = tile
    depth = math.ceil(k / split / deep) * deep
    n_tiles = math.ceil(m / tile_m) * math.ceil(n / tile_n) * split
    most = math.ceil(n_tiles / compute.n_multiprocessors)
    real_m, real_n = min(tile_m, m), min(tile_n, n)
    result = real_m * real_n * (4 if split > 1 else word)
    out, sums = m * n * word, m * n * 4 * split if split > 1 else 0
    computing = 2 * tile_m * tile_n * depth * compute.n_multiprocessors / compute.throughput

    cached = [level for level in chip.levels if level.scope is Scope.CHIP]
    reads = [each_of(real_m, real_n, compute.cluster) * depth * word * n_tiles]
    held = each_of(real_m, real_n, compute.paired) * depth * word
    if cached:
        wave = wave_reads(cached[0], compute.n_multiprocessors, tile, split, m, k, n, word)
        reads.append(wave[0])
        reads += [outer_reads(level, wave, m, k, n, word) for level in cached[1:]]
        for i in range(2, len(reads)):
            reads[i] = min(reads[i], reads[i - 1])
    slowest, stall = computing, 0.0
    for level in chip.levels:
        if level.scope is Scope.UNIT:
            unit_m, unit_n = tile_m / um, tile_n / un
            reuse = max(
                math.ceil(unit_m / compute.rows),
                math.ceil(unit_n / compute.rows),
                math.ceil(depth / deep),
            )
            words = tile_m * tile_n * depth * (1 / reuse + 1 / deep + 1 / compute.rows)
            taken = words * word * compute.n_multiprocessors / level.bandwidth
        elif level.scope is Scope.MULTIPROCESSOR:
            by_units = (tile_m * un + tile_n * um) * depth * word
            if compute.operand_rows:
                sides = [(tile_m, tile_n), (tile_n, tile_m)]
                by_units = (
                    depth
                    * word
                    * min(
                        a * math.ceil(b / 256)
                        + b / compute.paired * math.ceil(a / compute.operand_rows)
                        for a, b in sides
                    )
                )
            taken = (by_units + held + result) * compute.n_multiprocessors / level.bandwidth
            stall = level.latency * math.ceil(depth / 32)
        else:
            i = cached.index(level)
            inside = out
            if i == 0:  # the second kernel reads the sums and writes C
                inside = result * n_tiles + (sums + out if split > 1 else 0)
            taken = (reads[i] + inside) / level.bandwidth / most
        slowest = max(slowest, taken)

    feed = cached[0] if cached else memory
    skew = (2 * (compute.rows - 1) + deep - 1) / compute.frequency
    first = (real_m + real_n) * min(depth, 32) * word
    waiting = math.ceil(most / resident) * (memory.latency + feed.latency + skew)
    waiting += n_tiles * (first + result) / feed.bandwidth
    if min(resident, most) == 1:
        waiting += most * stall
    kept = cached[-1].capacity if cached else 0
    spilled = 2 * sums if sums > kept else 0
    outside = (reads[-1] + out + spilled) / memory.bandwidth + memory.delay
    inside = most * slowest
    working = most * computing * (n_tiles / most) / compute.n_multiprocessors
    inside /= clock_of(compute, working, inside + waiting, outside)
    time = max(waiting + inside, outside)
    adds = memory if sums > kept else feed
    if split > 1 and n == 1 and one_wide(chip, tile):
        time += adds.latency
    elif split > 1:
        time += chip.launch_overhead + (sums + out) / adds.bandwidth
    return time


def by_loops(chip, m, k, n):
    best, m, n = math.inf, max(m, n), min(m, n)  # as its transpose
    for tile in tiles_of(chip, n):
        whole = math.ceil(m / tile[0]) * math.ceil(n / tile[1])
        for split in (1, 2, 4, 8, 16, 32, 64):
            if split == 1 or (whole < chip.compute.n_multiprocessors and k >= split * 32):
                best = min(best, time_of(chip, tile, split, m, k, n))
    return best


def searched(chip, *sides):
    arrays = (np.atleast_1d(np.asarray(side, float)) for side in sides)
    return best_schedules(chip, BF16, *arrays, RULES)


@pytest.mark.parametrize("name", CHIPS)
@settings(max_examples=12)
@given(sides=st.tuples(*[st.integers(1, 3000)] * 3))
def test_the_search_finds_what_loops_find(name, sides):
    found = searched(CHIPS[name], *sides).time[0]
    assert found == pytest.approx(by_loops(CHIPS[name], *sides), rel=CLOSE[name])


@pytest.mark.parametrize(
    "sides",
    [
        (64, 65536, 64),
        (1, 100_000, 2),
        (16384, 128, 1024),
        (8192, 8192, 8192),
        (1, 4096, 1024),
        (300, 65536, 1),
        (1, 70_000, 1),
    ],
)
def test_the_search_finds_what_loops_find_on_large_products(sides):
    expected = by_loops(A100, *sides)
    assert searched(A100, *sides).time[0] == pytest.approx(expected, rel=CLOSE["A100"])


@pytest.mark.parametrize("name", CHIPS)
def test_bounds_leave_out_no_candidate_that_is_the_fastest(name, monkeypatch):
    drawn = np.random.default_rng(11)
    whole = np.floor(2.0 ** drawn.uniform(0, 14, (3, 300)))
    sides = np.concatenate([whole, 2.0 ** drawn.uniform(0, 12, (3, 100))], axis=1)
    bounded = best_schedules(CHIPS[name], BF16, *sides, RULES)
    monkeypatch.setattr(tilings, "FEW_SHAPES", sides.shape[1] + 1)  # all candidates are timed
    found = best_schedules(CHIPS[name], BF16, *sides, RULES)
    assert bounded.time.tolist() == found.time.tolist()
    assert bounded.split.tolist() == found.split.tolist()
    assert np.array_equal(bounded.tiles, found.tiles)


def test_k_is_split_where_whole_tiles_leave_multiprocessors_idle():
    assert searched(A100, 64, 65536, 64).split[0] > 1
    assert searched(A100, 8192, 65536, 8192).split[0] == 1


@given(sides=st.tuples(*[st.integers(1, 50_000)] * 3))
def test_tiles_fit_in_their_level(sides):
    found = searched(A100, *sides)
    registers, shared, l2 = (tile[0] for tile in found.tiles[:3])
    units = A100.compute.n_units // A100.compute.n_multiprocessors
    sums = registers[0] * registers[2] * units * RULES.accumulator_word
    assert sums <= RULES.accumulator_share * multiprocessor_capacity(A100, Scope.UNIT)
    steps = 2 * (shared[0] + shared[2]) * RULES.k_step * BF16.size
    assert steps <= multiprocessor_capacity(A100, Scope.MULTIPROCESSOR)
    # Units share the tile; a wave holds at least one tile or all of C.
    assert registers[0] * registers[2] * units == shared[0] * shared[2]
    assert l2[0] >= min(shared[0], sides[0])
    assert l2[2] >= min(shared[2], sides[2])


def test_one_tile_for_all_takes_no_less_than_the_best_and_waits_for_its_steps():
    chip = A100
    m, k, n = (np.array([side]) for side in (4096.0, 8192.0, 4096.0))
    best = best_schedules(chip, BF16, m, k, n, RULES).busiest_time
    one = tile_time(chip, BF16, RULES, (64, 64), (m, k, n))
    assert one >= best * (1 - 1e-9)
    deep = replace(RULES, line=1024.0)  # lines that a step fills a part of
    assert tile_time(chip, BF16, deep, (64, 64), (m, k, n)) > one
    small = tile_time(chip, BF16, RULES, (64, 64), (np.array([64.0]), k, np.array([64.0])))
    steps = 8192 / RULES.k_step / (RULES.stages - 1)
    assert small >= steps * chip.main_memory.latency
