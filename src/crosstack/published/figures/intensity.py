"""Figure 1 of the DeepFlow paper: computation intensity of one shard of a distributed product."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from crosstack.charts import LineChart, Measure
from crosstack.mapping.strategy import KernelSplit, Strategy, strategies
from crosstack.published.figures.figure import Cell, Figure, Ours, Progress, figure, lines

Floats = NDArray[np.float64]

SIDE = 65536  # the product of section 2, 64K x 64K x 64K
GPUS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536)
CACHE = 6 * 2.0**20  # L2 of a V100, deepflow_code, configs/v100.yaml [B]
WORD = 2.0  # B
SMALLEST = 16  # side of a tile: smaller ones leave the arrays of a core empty


def shard(strategy: Strategy) -> tuple[float, float, float]:
    """Return M, K and N of the product that one chip has. [1]"""
    if strategy.split is KernelSplit.CR:
        return SIDE, SIDE / strategy.kp1, SIDE
    return SIDE / strategy.kp1, SIDE, SIDE / strategy.kp2


def intensities(m: float, k: float, n: float) -> Floats:
    """Return operations for each word of main memory, one for every tiling of the cache. [1]

    Notes
    -----
    Tiles of M x K, K x N and M x N with sides that are powers of two fill at least a quarter of
    the cache and fit it together; one of the three stays while the other two pass. With the
    output's tile in place, A is read ``ceil(N / tile)`` times, B ``ceil(M / tile)`` times and C
    is written once; with a tile of A or B in place, sums pass ``ceil(K / tile)`` times both ways.
    """
    powers = 2.0 ** np.arange(math.log2(SMALLEST), math.log2(SIDE) + 1)
    tile_m, tile_k, tile_n = (
        np.minimum(axis.ravel(), side)
        for axis, side in zip(np.meshgrid(powers, powers, powers), (m, k, n), strict=True)
    )
    held = (tile_m * tile_k + tile_k * tile_n + tile_m * tile_n) * WORD
    whole = (tile_m == m) & (tile_k == k) & (tile_n == n)
    fits = (held <= CACHE) & ((held > CACHE / 4) | whole)
    a, b, c = m * k, k * n, m * n
    rows, steps, columns = (
        np.ceil(side / tile[fits]) for side, tile in ((m, tile_m), (k, tile_k), (n, tile_n))
    )
    moved = np.stack(
        [
            a * columns + b * rows + c,
            a + b * rows + c * (2 * steps - 1),
            a * columns + b + c * (2 * steps - 1),
        ]
    )
    return np.unique(2 * m * k * n / moved)


def _kernel_splits(count: int) -> list[Strategy]:
    return [s for s in strategies(count) if s.dp == s.lp == 1 and _power_of_two(s)]


def _power_of_two(strategy: Strategy) -> bool:
    return all((d & (d - 1)) == 0 for d in (strategy.kp1, strategy.kp2))


def _quartiles(values: Floats) -> tuple[float, ...]:
    return tuple(float(v) for v in np.percentile(values, (0, 25, 50, 75, 100)))


def _row(name: str, values: tuple[float, ...]) -> tuple[Cell, ...]:
    return (name, *values)


def _short(strategy: str) -> str:
    """Return the first number of an RC strategy, which has two; ``CR`` for the other kind."""
    kind, first, *_ = strategy.split("-")
    if kind != "RC":
        return kind
    return first if int(first) < 1024 else f"{int(first) // 1024}K"


def intensity(progress: Progress) -> Figure:
    """Return Figure 1: the spread over strategies and tilings, by the number of chips."""
    spread: dict[int, tuple[float, ...]] = {}
    single: dict[str, tuple[float, ...]] = {}
    for count in GPUS:
        progress(f"{count} chips")
        found = {str(s): intensities(*shard(s)) for s in _kernel_splits(count)}
        spread[count] = _quartiles(np.concatenate(list(found.values())))
        if count == GPUS[-1]:
            single = {name.removesuffix("-d1-p1"): _quartiles(v) for name, v in found.items()}
    widths = [spread[count][4] - spread[count][0] for count in GPUS]
    best = [values[4] for values in single.values()]
    claims: dict[str, Ours] = {
        "falls": [spread[GPUS[-1]][i] < spread[GPUS[0]][i] / 2 for i in (2, 4)],
        "spread": [widths[0] > widths[-1], widths[1] > widths[-2]],
        "differ": max(best) > 2 * min(best),
    }
    x = tuple(map(float, GPUS))
    names = ("smallest", "first quartile", "median", "third quartile", "largest")
    return figure(
        "intensity",
        rows=(
            *(_row(f"{count:,} chips", spread[count]) for count in GPUS),
            *(_row(f"{GPUS[-1]:,}: {name}", values) for name, values in single.items()),
        ),
        claims=claims,
        charts=(
            LineChart(
                title="Strategies and tilings of 64K x 64K x 64K",
                x=Measure(label="chips", log=True),
                y=Measure(label="operations for each access", unit="FLOP/word", log=True),
                series=lines(
                    x, {n: [spread[count][i] for count in GPUS] for i, n in enumerate(names)}
                ),
            ),
            LineChart(
                title="64K chips: RC-kp1-kp2 with every split, and CR",
                x=Measure(label="kp1 of RC, or CR", names=tuple(map(_short, single))),
                y=Measure(label="operations for each access", unit="FLOP/word", log=True),
                series=lines(
                    [1.0 + j for j in range(len(single))],
                    {n: [values[i] for values in single.values()] for i, n in enumerate(names)},
                ),
            ),
        ),
    )  # fmt: skip
