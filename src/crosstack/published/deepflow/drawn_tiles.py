"""Products as the releases of the public tool count them: tiles drawn at random for every level.

`deepflow_code` draws tiles with a fixed seed, so its answers can be had again. What is wrong in
them stays wrong here. Arrays run over shapes and over the tiles of every level.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crosstack.errors import InputError, Problem
from crosstack.machine.chip import Chip
from crosstack.machine.compute import Dataflow
from crosstack.model.kernels.systolic import chosen_dataflow, reuse_of
from crosstack.workload.dtype import Dtype

Floats = NDArray[np.float64]

SEED = 1
MOST_DRAWS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DrawnSchedules:
    """The fastest choice for every shape, without the launch; arrays are (shapes,).

    ``traffic`` [B] and ``tiles``, (shapes, 3), are one array a level, innermost first;
    ``operands``, (shapes, 3), is what main memory moves of A, of B and of the output. [B]
    """

    time: Floats
    operands: Floats
    traffic: tuple[Floats, ...]
    tiles: tuple[Floats, ...]
    dataflow: NDArray[Any]


def roofline_time(
    chip: Chip, dtype: Dtype, place: int, work: ArrayLike, traffic: ArrayLike
) -> NDArray[np.float64]:
    """Time of ``work`` on ``traffic`` bytes of one level: the latency counts where memory binds.

    ``traffic / bandwidth + latency`` where ``work / traffic`` is below throughput over bandwidth,
    ``work / throughput`` elsewhere. [s]
    """
    level, rate = chip.storage[place], chip.throughput(dtype)
    work, traffic = np.asarray(work, np.float64), np.asarray(traffic, np.float64)
    bound = work * level.speed < rate * traffic
    return np.where(bound, traffic / level.speed + level.latency, work / rate)


@lru_cache(maxsize=64)
def drawn_tiles(chip: Chip, dtype: Dtype, place: int, count: int) -> Floats:
    """Return ``count`` tiles (m, k, n) of the level at ``place``: two square ones, the rest drawn.

    Two sides are powers of two up to the elements the level holds; the third is the largest power
    of two that the operands leave room for, and the output where the level is near the registers.

    Raises
    ------
    InputError
        If the level is too small to have that many (the public tool never ends).
    """
    level = chip.storage[place]
    elements = chip.capacity_of_instance(level) / dtype.size
    if elements >= 2:
        side = int(np.ceil(2.0 ** np.floor(np.log2(np.sqrt(elements / 2)))))
        found = {(side, side, side), (side // 2, side, side * 2)}
        random = np.random.RandomState(SEED)
        largest = int(np.floor(np.log2(elements)))
        for _ in range(MOST_DRAWS if largest else 0):
            if len(found) >= count:
                # Of equally good tiles the first counts, in the order of Python's set.
                return np.array(list(found), dtype=float)
            a, b = (2 ** random.randint(0, largest, 2)).tolist()
            third = np.floor((elements - a * b) / (a + b if place <= 1 else b))
            if third > 0:
                found.add((a, b, int(2 ** np.floor(np.log2(third)))))
    raise InputError(
        Problem(
            "levels",
            f"{level.name} holds {elements:,.0f} numbers for each of its users, too few for "
            f"{count} different tiles; make it larger, or use the default rules.",
        )
    )


def paired_schedules(
    chip: Chip, dtype: Dtype, m: Floats, k: Floats, n: Floats, count: int
) -> DrawnSchedules:
    """Return the choices of the release of 2025: tiles for L2 and L1, the innermost loop.

    Axes of the arrays: shape, innermost loop (M, K, N), tile of L2, tile of L1.

    Raises
    ------
    InputError
        If the chip has not exactly four levels.
    """
    if len(chip.storage) != 4:
        problem = f"{len(chip.storage)} memory levels; these rules know 4. Use the default rules."
        raise InputError(Problem("levels", problem))
    compute, size = chip.compute, dtype.size
    x, y = compute.rows, compute.elements_deep(dtype)
    work = m * n * (2 * k - 1)
    reuse = reuse_of(compute, dtype, compute.dataflow, m, k, n)
    registers = (work * 2 * y / (x * (2 * y - 1)) + work / (reuse * (2 * y - 1))) * size

    sides = [side[:, None, None, None] for side in (m, k, n)]
    drawn2 = drawn_tiles(chip, dtype, 2, count).T[:, :, None]
    drawn1 = drawn_tiles(chip, dtype, 1, count).T[:, None, :]
    tile2 = list(map(np.minimum, drawn2, sides))
    tile1 = list(map(np.minimum, drawn1, tile2))
    (m2, k2, n2), (m1, k1, n1) = tile2, tile1
    outer = [np.ceil(side / tile) for side, tile in zip(sides, tile2, strict=True)]
    inner = [np.ceil(big / small) for big, small in zip(tile2, tile1, strict=True)]
    runs = outer[0] * outer[1] * outer[2]
    active = np.minimum(compute.n_multiprocessors, runs)
    operands = (m1 * k1 + k1 * n1) * inner[0] * inner[1] * inner[2]
    shared = (operands + m1 * n1 * inner[0] * inner[2]) * size * runs / active

    a, b, c = m2 * k2 * size, k2 * n2 * size, m2 * n2 * size
    every_a, every_b = runs * a * inner[2], runs * b * inner[0]
    sums = 2 * runs * c * inner[1]
    whole_a, whole_c, whole_b = (p * q * size for p, q in combinations(sides, 2))
    again_a, again_b = (sides[2] // n2) * whole_a, (sides[0] // m2) * whole_b
    held = (m * k + k * n + m * n) * size > chip.main_memory.room
    spilled = whole_c * held[:, None, None, None]
    l2 = np.concatenate(
        (
            every_a + outer[1] * outer[2] * b + sums,  # M innermost
            every_a + every_b + 2 * outer[0] * outer[2] * c,  # K
            outer[0] * outer[1] * a + every_b + sums,  # N
        ),
        axis=1,
    )
    operands = [
        np.concatenate(np.broadcast_arrays(*loops), axis=1)
        for loops in (
            (again_a, again_a, whole_a),
            (whole_b, again_b, again_b),
            ((sides[1] // k2) * spilled, spilled, (sides[1] // k2) * spilled),
        )
    ]
    memory = operands[0] + operands[1] + operands[2]
    traffic = (registers[:, None, None, None], shared, l2, memory)
    of_all = work[:, None, None, None]
    times = (roofline_time(chip, dtype, i, of_all, t) for i, t in enumerate(traffic))
    time = np.maximum.reduce(np.broadcast_arrays(*times))
    # Of equally fast choices the one that moves least through the outer two levels, then the first.
    ties = np.hypot(memory, l2)
    shapes = np.arange(len(m))
    least = time.min(axis=(1, 2, 3), keepdims=True)
    best = np.where(time == least, ties, np.inf).reshape(len(m), -1).argmin(axis=1)
    at = (shapes, *np.unravel_index(best, time.shape[1:]))
    unit = np.broadcast_to(np.array([x, y, x], np.float64), (len(m), 3))

    def chosen(parts: Iterable[Floats]) -> list[Floats]:
        return [np.broadcast_to(part, time.shape)[at] for part in parts]

    tiles = (np.stack(chosen(tile), axis=-1) for tile in (tile1, tile2))
    return DrawnSchedules(
        time=time[at],
        operands=np.stack(chosen(operands), axis=-1),
        traffic=tuple(chosen(traffic)),
        tiles=(unit, *tiles, np.stack([m, k, n], axis=-1)),
        dataflow=chosen_dataflow(compute, dtype, compute.dataflow, m, k, n),
    )


ORDERS = {  # the shape is renamed: which of (m, k, n) is first, inner, last
    Dataflow.WEIGHT: ((1, 2, 0), (2, 1, 0)),
    Dataflow.ACTIVATION: ((0, 1, 2), (1, 0, 2)),
    Dataflow.OUTPUT: ((0, 2, 1), (2, 0, 1)),
}
STREAMED = {Dataflow.WEIGHT: 0, Dataflow.ACTIVATION: 2, Dataflow.OUTPUT: 1}  # after the renaming


def largest_axis(m: float, k: float, n: float) -> Dataflow:
    """Return what stays when the largest axis streams by; the first of equal ones."""
    if m >= max(k, n):
        return Dataflow.WEIGHT
    return Dataflow.OUTPUT if k >= n else Dataflow.ACTIVATION


def nested_schedules(
    chip: Chip, dtype: Dtype, m: Floats, k: Floats, n: Floats, *, count: int, refills: bool
) -> DrawnSchedules:
    """Return the choices of the releases of 2020 and 2021: a tile is the problem of the next level.

    Raises
    ------
    InputError
        If nothing stays in the arrays.
    """
    flow = chip.compute.dataflow
    if flow is Dataflow.NONE:
        message = "these rules need one that stays: weight, activation, output or best."
        raise InputError(Problem("dataflow", f'got "none"; {message}'))
    sides = np.stack([m, k, n])
    best = flow is Dataflow.BEST
    flows = [largest_axis(*shape) if best else flow for shape in sides.T.tolist()]
    streamed = np.array([STREAMED[flow] for flow in flows])
    orders = np.array([ORDERS[flow] for flow in flows])
    searched = []
    for order in (orders[:, 0], orders[:, 1]):
        shape = np.take_along_axis(sides, order.T, axis=0)
        found = _nested(chip, dtype, shape, streamed, count, refills)
        # An operand lacks one of M, K, N: A the last, B the first, the output the middle one.
        lacks = order[:, [2, 0, 1]]
        operands = np.empty_like(found.operands)
        np.put_along_axis(operands, (lacks + 1) % 3, found.operands, axis=1)
        searched.append(replace(found, operands=operands))
    first, second = searched
    faster = second.time < first.time

    def chosen(a: Floats, b: Floats) -> Floats:
        return np.where(faster.reshape(-1, *[1] * (a.ndim - 1)), b, a)

    return DrawnSchedules(
        time=chosen(first.time, second.time),
        operands=chosen(first.operands, second.operands),
        traffic=tuple(map(chosen, first.traffic, second.traffic)),
        tiles=tuple(map(chosen, first.tiles, second.tiles)),
        dataflow=np.array([flow.value for flow in flows], object),
    )


def _nested(
    chip: Chip,
    dtype: Dtype,
    shape: Floats,
    streamed: NDArray[np.intp],
    count: int,
    refills: bool,
) -> DrawnSchedules:
    """Return the best tiles of one order; equation 5 with its stationary term over 2 reuse.

    Arrays run over the choices of all shapes for the levels so far; those of a shape are in order
    of their tiles, innermost level first. All choices for the outer levels are timed; the innermost
    level is tried where they leave room for a time that is known to be reached.
    """
    compute, size, n_tiled = chip.compute, dtype.size, len(chip.levels)
    all_work = shape[0] * shape[2] * (2 * shape[1] - 1)
    reuse = np.ceil(np.take_along_axis(shape, streamed[None], axis=0)[0] / compute.rows)
    registers = all_work * (1 + 1 / (2 * reuse)) / compute.rows * size
    bound = roofline_time(chip, dtype, 0, all_work, registers)
    owner, runs, sizes = np.arange(len(all_work)), np.ones_like(all_work), list(shape)
    levels: list[_Level] = []

    def level(outer: int, kept: NDArray[np.intp]) -> _Level:
        """Return a level with its tiles down, what is kept of the choices outside it across."""
        drawn = [side[:, None] for side in drawn_tiles(chip, dtype, outer - 1, count).T]
        outside = [side[kept] for side in sizes]
        tile = _clipped(drawn, outside, outer, refills)
        c1, c2, c3 = (np.ceil(side / t) for side, t in zip(outside, tile, strict=True))
        moved = outside[0] * outside[1] * c3 + outside[1] * outside[2] * c1
        held = outside[0] * outside[2]
        moved = runs[kept] * (moved + (held * c2 if outer <= 1 else held)) * size
        roofline = roofline_time(chip, dtype, outer, all_work[owner[kept]], moved)
        time = np.maximum(roofline, bound[kept])
        return _Level(time=time, moved=moved, cuts=(c1, c2, c3), tile=tile, kept=kept)

    for outer in range(n_tiled, 0, -1):
        kept = np.arange(bound.size)
        if outer == 1:
            shapes = np.arange(len(all_work))
            least = bound.reshape(-1, len(shapes)).argmin(axis=0) * len(shapes) + shapes
            reached = level(outer, least).time.min(axis=0)
            kept = np.flatnonzero(bound <= reached[owner])
            kept = kept[np.argsort(owner[kept], kind="stable")]
        found = level(outer, kept)
        levels.append(found)
        c1, c2, c3 = found.cuts
        runs = (runs[kept] * c1 * c2 * c3).ravel()
        sizes = [np.broadcast_to(side, found.time.shape).ravel() for side in found.tile]
        bound, owner = found.time.ravel(), np.tile(owner[kept], len(found.time))
    best = np.arange(len(all_work))
    if levels:
        best = _least(levels[-1].time, owner[: len(levels[-1].kept)])
    time, traffic, tiles = bound[best], [registers], list[Floats]()
    for found in reversed(levels):
        row, column = np.divmod(best, len(found.kept))
        traffic.append(found.moved[row, column])
        sides = [np.broadcast_to(side, found.time.shape)[row, column] for side in found.tile]
        tiles.append(np.stack(sides, axis=-1))
        best = found.kept[column]
    tiles.append(shape.T)
    return DrawnSchedules(
        time=time,
        operands=_outermost(shape, tiles, traffic[-1]),
        traffic=tuple(traffic),
        tiles=tuple(tiles),
        dataflow=np.empty(0, object),
    )


def _outermost(shape: Floats, tiles: list[Floats], moved: Floats) -> Floats:
    """Share out what main memory moves: of first x second, second x third, first x third. [B]"""
    a, b, c = shape
    if len(tiles) == 1:
        share = np.stack([a * b, b * c, a * c], axis=-1)
    else:
        c1, c2, c3 = np.ceil(shape / tiles[-2].T)
        share = np.stack([a * b * c3, b * c * c1, a * c * (c2 if len(tiles) == 2 else 1)], axis=-1)
    return np.asarray(moved[:, None] * share / share.sum(axis=1, keepdims=True))


def _least(values: Floats, owner: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return where the columns of each owner hold the smallest value; the first of equal ones.

    ``owner`` is that of every column, 0 and up in order.
    """
    starts = np.searchsorted(owner, np.arange(owner[-1] + 2))
    least = np.minimum.reduceat(values, starts[:-1], axis=1)
    rows = least.argmin(axis=0)
    columns = [
        start + int(values[row, start:end].argmin())
        for row, start, end in zip(rows, starts, starts[1:], strict=False)
    ]
    found: NDArray[np.intp] = rows * values.shape[1] + np.array(columns)
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Level:
    """Choices for one level: tiles (rows) for each of the ``kept`` choices outside (columns)."""

    time: Floats
    moved: Floats
    cuts: tuple[Floats, Floats, Floats]
    tile: list[Floats]
    kept: NDArray[np.intp]


def _clipped(tile: list[Floats], sizes: list[Floats], outer: int, refills: bool) -> list[Floats]:
    """Cut a tile to the problem; the release of 2021 grows another side into the room this leaves.

    The last side grows first, else the first, else the second; ``outer <= 1`` is the level whose
    tiles count their output.
    """
    cut = [np.minimum(t, side) for t, side in zip(tile, sizes, strict=True)]
    if not refills:
        return cut
    short = [c < t for c, t in zip(cut, tile, strict=True)]
    room = tile[0] * tile[1] + tile[0] * tile[2] + tile[1] * tile[2]
    c1, c2, c3 = cut
    if outer <= 1:
        grown = [(room - x * y) / (x + y) for x, y in ((c2, c3), (c1, c3), (c1, c2))]
    else:
        grown = [(room - c2 * c3) / c2, room / (c1 + c3), (room - c1 * c2) / c2]
    some = short[0] | short[1] | short[2]
    third = some & ~short[2]
    first = some & short[2] & ~short[0]
    second = some & short[2] & short[0] & ~short[1]
    return [
        np.where(grows, np.minimum(np.floor(size), side), c)
        for grows, size, side, c in zip((first, second, third), grown, sizes, cut, strict=True)
    ]
