"""How long does a sweep of 1,000 (TP, PP, batch, context) points of serving take?

Every sweep starts from the model, as a first call does. A thousand points that share nothing are
the worst case.

Usage: python benchmarks/serving.py
"""

from __future__ import annotations

from itertools import product

import numpy as np
from timing import measure, print_machine

from crosstack.evaluate.serving_sweep import serving_sweep
from crosstack.io import library
from crosstack.published.dfmodel.machines import RING, TENSOR, chip, system

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


def main() -> None:
    """Measure and print."""
    print_machine()
    model = library.model("llama3-8b")
    names = ("tensor", "pipeline", "batch", "context")
    given = dict(zip(names, GRID, strict=True))
    for phase in ("decode", "prefill"):
        for utilization in (0.9, None):
            counted = "cycles" if utilization is None else "utilization given"
            made = machine(utilization)
            measure(
                f"1,000 points, {phase}, {counted}",
                lambda phase=phase, made=made: serving_sweep(model, made, phase=phase, **given),
                count=1000,
                limit=LIMIT,
            )
    draw = np.random.default_rng(0)
    spread = {
        "tensor": draw.choice(DEGREES, 1000),
        "pipeline": draw.choice(DEGREES, 1000),
        "batch": draw.integers(1, 512, 1000),
        "context": draw.permutation(32768)[:1000] + 1,
    }
    for phase in ("decode", "prefill"):
        measure(
            f"1,000 points, {phase}, every context another",
            lambda phase=phase: serving_sweep(model, machine(0.9), phase=phase, **spread),
            count=1000,
            limit=LIMIT,
        )


if __name__ == "__main__":
    main()
