"""How long does the time of a matrix product take to find, with a full search over its tiles?

Usage: python benchmarks/gemm.py. First calls are measured: every repetition has shapes of its own,
and the tiles of a chip are drawn or listed once, before.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from timing import measure, print_machine

from crosstack.published.deepflow.distributed import own_shape
from crosstack.evaluate.predict import predict
from crosstack.io import library
from crosstack.machine.chip import Link
from crosstack.machine.packages import system_of_packages
from crosstack.mapping.strategy import parse_strategy
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
DEGREES = ("RC-1-1", "RC-2-1", "RC-4-1", "RC-1-4", "RC-2-2", "RC-8-1", "RC-1-8", "RC-2-4")
STRATEGIES = tuple(f"{degrees}-d1-p1" for degrees in (*DEGREES, "CR-4", "CR-8"))


def shapes(count: int, seed: int) -> np.ndarray:
    """Return M, K and N from 64 to 16,384, in powers that need not be whole."""
    return np.floor(2.0 ** np.random.default_rng(seed).uniform(6, 14, (3, count)))


def anew(run: Callable[[int], object]) -> Callable[[], object]:
    """Return what is given another seed every time that it runs."""
    seeds = itertools.count()
    return lambda: run(next(seeds))


def predicted(seed: int) -> list[float]:
    """Return the times of 200 products under 10 strategies; their shares are timed together."""
    joined = replace(CHIP, intra=Link(n_links=12, bandwidth=3e11, latency=1e-6))
    system = system_of_packages(joined, chips_per_package=8)
    strategies = [parse_strategy(text) for text in STRATEGIES]
    products = [Product(m=m, k=k, n=n) for m, k, n in shapes(200, seed).T.astype(int).tolist()]
    pairs = list(itertools.product(products, strategies))
    times = Roofline().times(joined)
    times.prepare(
        [
            (*own_shape(product.m, product.k, product.n, strategy), 1.0)
            for product, strategy in pairs
        ]
    )
    return [predict(product, strategy, system, times).time for product, strategy in pairs]


def main() -> None:
    """Measure and print."""
    print_machine()
    for name, (clock, count) in CLOCKS.items():
        one = anew(lambda i: product_time(clock, CHIP, *shapes(1, i)))  # noqa: B023
        many = anew(lambda i: product_time(clock, CHIP, *shapes(count, i)))  # noqa: B023
        measure(f"{count:,} products at once, {name}", many, count=count, unit="products")
        measure(f"one product, {name}", one)
    measure("200 products under 10 strategies", anew(predicted), count=2000, unit="products")


if __name__ == "__main__":
    main()
