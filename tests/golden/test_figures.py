"""What `crosstack figure` prints: points, claims and published runs."""

from __future__ import annotations

import pytest
from builders.suites import made

from crosstack.published.figures import FIGURES

FAMILY = "figures"
QUICK = ("mapping-space", "parallelism-sweep", "chip-power", "table6", "roofline", "serving",
         "intensity")  # fmt: skip


def number(cell):
    """Return a cell of a table as it is compared: all numbers are floats."""
    return float(cell) if isinstance(cell, int) else cell


def rows_of(figure, row):
    yield from (
        row(
            name=f"point {i:03}",
            rules="",
            values={name: number(cell) for name, cell in zip(figure.header, cells, strict=True)},
        )
        for i, cells in enumerate(figure.rows)
    )
    for kind, checks in (("claim", figure.claims), ("run", figure.points)):
        for i, check in enumerate(checks):
            values = {"ours": float(check.ours), "holds": str(check.holds)}
            yield row(
                name=f"{kind} {i:02} {check.case}: {check.quantity}",
                rules=check.rules,
                values=values,
            )


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in FIGURES],
)
def test_figures_print_what_they_did(name, golden, row):
    golden.check(FAMILY, name, list(rows_of(made(name), row)))


def test_every_figure_of_the_file_is_computed(golden):
    golden.check_cases(FAMILY, list(FIGURES))
