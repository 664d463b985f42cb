"""How fast are chips generated, many budgets at a time and one alone?

Usage: python3 benchmarks/chips.py. The budgets are made outside the timed part; nothing is cached.
"""

from __future__ import annotations

import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from crosstack.io.chip_file import read_chip
from crosstack.machine.generate.checks import feasible
from crosstack.machine.generate.generated import generate
from crosstack.machine.generate.generator import generate_chips
from crosstack.model.rules import rule_names, rules_named

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "chips" / "n5_hbm3.yaml"
N = 100_000
TIMES = 7


def measure(name: str, run: Callable[[], object], count: int) -> None:
    """Print median, fastest and slowest of ``run``, which makes ``count`` chips."""
    run()
    taken = []
    for _ in range(TIMES):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    middle = statistics.median(taken)
    print(
        f"{name:<44} median {middle:8.4f} s, fastest {min(taken):8.4f} s, slowest "
        f"{max(taken):8.4f} s, {TIMES} times; {count / middle:,.0f} chips/s"
    )


def main() -> None:
    """Measure and print."""
    print(platform.processor() or platform.machine(), sys.version.split()[0], np.__version__)
    described = read_chip(EXAMPLE.read_text(), EXAMPLE.name)
    rng = np.random.default_rng(1)
    one = described.budget
    many = replace(
        one,
        areas={name: area * rng.uniform(0.3, 1.0, N) for name, area in one.areas.items()},
        powers={name: power * rng.uniform(0.05, 1.0, N) for name, power in one.powers.items()},
    )
    for name in rule_names(("chips",)):
        made = rules_named(name).chips
        measure(f"{N:,} budgets, {name}", lambda: generate_chips(described.template, many, made), N)  # noqa: B023
    chips = generate_chips(described.template, many)
    measure(f"{N:,} budgets, checked", lambda: feasible(chips), N)
    measure("one chip, with checks", lambda: generate(described.template, one), 1)


if __name__ == "__main__":
    main()
