"""Placements as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.text import Text

from crosstack.mapping.placement import Placement
from crosstack.mapping.strategy import ParallelDimension
from crosstack.report.text import rows_table
from crosstack.report.wording import Table, plural

__all__ = ["placement_table"]


def placement_table(placements: Sequence[Placement]) -> Group:
    """Return one line for each placement, the edges on its busiest links by dimension."""
    first = placements[0]
    shape = " x ".join(str(size) for size in first.grid.shape)
    kind = "torus" if first.grid.torus else "mesh"
    packages = plural(first.grid.n_packages, "package")
    used = [d for d in ParallelDimension if first.strategy.degree(d) > 1]
    rows = []
    for placement in placements:
        each = [placement.by_dimension[dimension] for dimension in used]
        crossing = [d.value for d in ParallelDimension if d in placement.crosses]
        order = [d.value for d in placement.order if d in used]
        rows.append(
            (
                ", ".join(order) or "one chip",
                *(f"{s.inside} / {s.between}" for s in (placement.sharing, *each)),
                ", ".join(crossing) or "none",
                f"{placement.hops:,}",
            )
        )
    table = Table(
        header=(
            "order, innermost first", "all edges", *(d.value for d in used),
            "between packages run", "hops",
        ),
        numeric=(False, *[True] * (1 + len(used)), False, True),
        rows=tuple(rows),
    )  # fmt: skip
    return Group(
        Text(f"{first.strategy} on a {kind} of {shape} chips in {packages}", style="bold"),
        Text("Edges on the busiest link, inside a package / between packages:"),
        rows_table(table),
    )
