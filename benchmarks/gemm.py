"""How long does the time of a matrix product take to find, with a full search over its tiles?

Usage: python benchmarks/gemm.py. First calls are measured: every repetition has shapes of its own,
and the tiles of a chip are drawn or listed once, before.
"""

from __future__ import annotations

import itertools
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from crosstack.evaluate.cluster import Cluster, two_levels
from crosstack.evaluate.distributed import own_shape
from crosstack.evaluate.predict import predict
from crosstack.io import library
from crosstack.machine.chip import Link
from crosstack.mapping.strategy import parse_strategy
from crosstack.model.kernels.roofline import Roofline, gemm_time
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


def measure(name: str, run: Callable[[int], object], count: int) -> None:
    """Print median, fastest and slowest of ``run``, which is given the repetition."""
    run(TIMES)
    taken = []
    for i in range(TIMES):
        start = time.perf_counter()
        run(i)
        taken.append(time.perf_counter() - start)
    middle = statistics.median(taken)
    print(
        f"{name:<46} median {middle:8.4f} s, fastest {min(taken):8.4f} s, slowest "
        f"{max(taken):8.4f} s, {TIMES} times; {1e3 * middle / count:.4f} ms each"
    )


def predicted(seed: int) -> list[float]:
    """Return the times of 200 products under 10 strategies; their shares are timed together."""
    joined = replace(CHIP, intra=Link(n_links=12, bandwidth=3e11, latency=1e-6))
    cluster = Cluster(chip=joined, network=two_levels(joined, chips_per_package=8))
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
    return [predict(product, strategy, cluster, times).time for product, strategy in pairs]


def main() -> None:
    """Measure and print."""
    print(platform.processor() or platform.machine(), sys.version.split()[0], np.__version__)
    for name, (clock, count) in CLOCKS.items():
        measure(
            f"{count:,} products at once, {name}",
            lambda i: gemm_time(CHIP, *shapes(count, i), clock=clock),  # noqa: B023
            count,
        )
        measure(f"one product, {name}", lambda i: gemm_time(CHIP, *shapes(1, i), clock=clock), 1)  # noqa: B023
    measure("200 products under 10 strategies", predicted, 2000)


if __name__ == "__main__":
    main()
