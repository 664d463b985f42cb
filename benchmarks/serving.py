"""How long does a sweep of 1,000 (TP, PP, batch, context) points of serving take?

Every sweep starts from the model, as a first call does. A thousand points that share nothing are
the worst case.

Usage: python benchmarks/serving.py
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable
from itertools import product

import numpy as np

from crosstack.evaluate.serving_sweep import serving_sweep
from crosstack.published.dfmodel.machines import RING, TENSOR, chip, system
from crosstack.workload.serving import MODELS

DEGREES = (1, 2, 4, 8, 16)
GRID = tuple(
    np.array(axis)
    for axis in zip(
        *product(DEGREES, DEGREES, (1, 4, 16, 64, 256), 128 * 2 ** np.arange(8)), strict=True
    )
)
LIMIT = 2.0  # s


def machine(utilization: float | None):
    """Return SN40L chips; kernels take cycles where no utilization is given."""
    return system(
        chip("SN40L", utilization=utilization),
        (1638.4, 68719476736.0),
        ((RING, 16, 50.0, TENSOR),),
        latency=150e-9,
    )


def report(name: str, run: Callable[[], object], times: int = 5) -> None:
    """Print median, fastest and slowest of ``times`` runs; one before them does not count."""
    run()
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    middle = statistics.median(taken)
    verdict = "holds" if middle <= LIMIT else "MISSES"
    print(
        f"{name:<52} {middle:7.3f} s  ({min(taken):.3f} to {max(taken):.3f}, {times} times)  "
        f"{1000 / middle:8.0f} points/s  limit {LIMIT:g} s, {verdict}"
    )


def main() -> None:
    """Measure and print."""
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, "
          f"numpy {np.__version__}")  # fmt: skip
    model = MODELS["llama3-8b"]
    names = ("tensor", "pipeline", "batch", "context")
    given = dict(zip(names, GRID, strict=True))
    for phase in ("decode", "prefill"):
        for utilization in (0.9, None):
            counted = "cycles" if utilization is None else "utilization given"
            made = machine(utilization)
            report(
                f"1,000 points, {phase}, {counted}",
                lambda phase=phase, made=made: serving_sweep(model, made, phase=phase, **given),
            )
    draw = np.random.default_rng(0)
    spread = {
        "tensor": draw.choice(DEGREES, 1000),
        "pipeline": draw.choice(DEGREES, 1000),
        "batch": draw.integers(1, 512, 1000),
        "context": draw.permutation(32768)[:1000] + 1,
    }
    for phase in ("decode", "prefill"):
        report(
            f"1,000 points, {phase}, every context another",
            lambda phase=phase: serving_sweep(model, machine(0.9), phase=phase, **spread),
        )


if __name__ == "__main__":
    main()
