"""How many matrix products of models are timed in a second, each with the search of its tiles?

Usage: python benchmarks/products.py. No product is one that was timed before, and a chip that was
never seen differs in its clock from all others: its list of tiles is made anew.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from timing import measure, print_machine

from crosstack.io import library
from crosstack.machine.chip import Chip
from crosstack.model.kernels.clock import product_time
from crosstack.model.kernels.roofline import Roofline
from crosstack.workload.dtype import Dtype

CHIPS = {"a100-sxm-80gb": Dtype.BF16, "h100-sxm": Dtype.BF16, "b200": Dtype.FP8}
AT_ONCE = (100, 2_000, 20_000)
WIDTHS = np.array([1024, 2048, 4096, 5120, 8192, 12288, 16384, 28672, 53248])  # of layers [1]
CUTS = np.array([1, 2, 4, 8])  # chips that share a matrix [1]
PARTS = np.array([64, 128])  # of a head [1]


def shapes(count: int, seed: int) -> tuple[np.ndarray, ...]:
    """Return M, K, N and batch: layers of 1 to 32,768 tokens, and attention of one in four."""
    drawn = np.random.default_rng(seed)
    tokens = np.floor(2.0 ** drawn.uniform(0, 15, count))
    deep, wide = (drawn.choice(WIDTHS, count) / drawn.choice(CUTS, count) for _ in range(2))
    attends = drawn.random(count) < 0.25
    keys, heads = np.floor(2.0 ** drawn.uniform(7, 14, count)), drawn.choice(CUTS, count) * 8.0
    tokens = np.where(attends, np.minimum(tokens, 4096), tokens)
    deep = np.where(attends, drawn.choice(PARTS, count), deep)
    return tokens, deep, np.where(attends, keys, wide), np.where(attends, heads, 1.0)


def anew(run: Callable[[int], object]) -> Callable[[], object]:
    """Return what is given another number every time that it runs."""
    numbers = itertools.count()
    return lambda: run(next(numbers))


def unseen(chip: Chip, number: int) -> Chip:
    """Return a chip that was not seen before."""
    made = chip.with_compute(frequency=chip.compute.frequency * (1 - 1e-6 * (number + 1)))
    return replace(made, name=f"{chip.name} {number}")


def timed(chip: Chip, dtype: Dtype, count: int, seed: int) -> object:
    """Time products in one call."""
    m, k, n, batch = shapes(count, seed)
    return product_time(Roofline(), chip, m, k, n, batch=batch, dtype=dtype).time


def main() -> None:
    """Measure and print."""
    print_machine()
    for name, dtype in CHIPS.items():
        chip = library.chip(name)
        for count in AT_ONCE:
            run = anew(lambda seed: timed(chip, dtype, count, seed))  # noqa: B023
            measure(f"{name}, {dtype}: {count:,} at once", run, count=count, unit="products")
        ready = anew(lambda number: timed(unseen(chip, number), dtype, 1, number))  # noqa: B023
        measure(f"{name}, {dtype}: the first of a chip never seen", ready, limit=1.0)


if __name__ == "__main__":
    main()
