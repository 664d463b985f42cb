"""How long does the time of a matrix product take to find, with a full search over its tiles?

Usage: python benchmarks/gemm.py. First calls are measured: every repetition has shapes of its own,
and the tiles of a chip are drawn or listed once, before.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
from timing import measure, print_machine

import crosstack
from crosstack.io import library
from crosstack.model.kernels.clock import product_time
from crosstack.model.kernels.roofline import Roofline
from crosstack.published.deepflow.kernels import tiles_of_2020, tiles_of_2021, tiles_of_2025
from crosstack.workload.product import Product

CHIP = library.chip("a100-pcie-80gb")
N = 1000
CLOCKS = {
    "crosstack": (Roofline(), N),
    "deepflow-2025": (tiles_of_2025(), N),
    "deepflow-2021": (tiles_of_2021(), N // 10),
    "deepflow-2020": (tiles_of_2020(), N // 10),
}
TIMES = 7
STRATEGIES = ("tp=1", "tp=8", "CR-8-d1-p1", "RC-2-4-d1-p1")


def shapes(count: int, seed: int) -> np.ndarray:
    """Return M, K and N from 64 to 16,384, in powers that need not be whole."""
    return np.floor(2.0 ** np.random.default_rng(seed).uniform(6, 14, (3, count)))


def anew(run: Callable[[int], object]) -> Callable[[], object]:
    """Return what is given another seed every time that it runs."""
    seeds = itertools.count()
    return lambda: run(next(seeds))


def predicted(seed: int) -> list[float]:
    """Return the times of 20 products under 4 strategies, each mapped."""
    system = library.system_on("a100-dgx-80gb", chips=8)
    products = [Product(m=m, k=k, n=n) for m, k, n in shapes(20, seed).T.astype(int).tolist()]
    pairs = itertools.product(products, STRATEGIES)
    return [crosstack.predict(product, system, strategy).time for product, strategy in pairs]


def main() -> None:
    """Measure and print."""
    print_machine()
    for name, (clock, count) in CLOCKS.items():
        one = anew(lambda i: product_time(clock, CHIP, *shapes(1, i)))  # noqa: B023
        many = anew(lambda i: product_time(clock, CHIP, *shapes(count, i)))  # noqa: B023
        measure(f"{count:,} products at once, {name}", many, count=count, unit="products")
        measure(f"one product, {name}", one)
    measure("20 products under 4 strategies", anew(predicted), 3, count=80, unit="products")


if __name__ == "__main__":
    main()
