"""How fast are chips generated, many budgets at a time and one alone?

Usage: python3 benchmarks/chips.py. The budgets are made outside the timed part; nothing is cached.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from timing import measure, print_machine

from crosstack.io.chip_file import read_chip
from crosstack.machine.generate.checks import feasible
from crosstack.machine.generate.generated import generate
from crosstack.machine.generate.generator import generate_chips
from crosstack.model.rules import rule_names, rules_named

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "chips" / "n5_hbm3.yaml"
N = 100_000


def main() -> None:
    """Measure and print."""
    print_machine()
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
        measure(
            f"{N:,} budgets, {name}",
            lambda made=made: generate_chips(described.template, many, made),
            count=N,
            unit="chips",
        )
    chips = generate_chips(described.template, many)
    measure(f"{N:,} budgets, checked", lambda: feasible(chips), count=N, unit="chips")
    measure("one chip, with checks", lambda: generate(described.template, one))


if __name__ == "__main__":
    main()
