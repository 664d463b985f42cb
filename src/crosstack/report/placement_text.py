"""Placements as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group

from crosstack.mapping.placement import Placement
from crosstack.mapping.strategy import ParallelDimension
from crosstack.report.text import rows_table, titled
from crosstack.report.wording import Table, plural


def placement_table(placements: Sequence[Placement]) -> Group:
    """Return one line for each placement, the edges on its busiest links by dimension."""
    first = placements[0]
    shape = " x ".join(str(size) for size in first.grid.shape)
    kind = "torus" if first.grid.torus else "mesh"
    packages = plural(first.grid.n_packages, "package")
    used = [d for d in ParallelDimension if first.strategy.degree(d) > 1]
    rows = tuple(
        (
            ", ".join(d.value for d in p.order if d in used) or "one chip",
            *(f"{s.inside} / {s.between}" for s in (p.sharing, *(p.by_dimension[d] for d in used))),
            ", ".join(d.value for d in ParallelDimension if d in p.crosses) or "none",
            f"{p.hops:,}",
        )
        for p in placements
    )
    names = (d.value for d in used)
    header = ("order, innermost first", "all edges", *names, "between packages run", "hops")
    numeric = (False, *[True] * (1 + len(used)), False, True)
    return titled(
        f"{first.strategy} on a {kind} of {shape} chips in {packages}",
        "Edges on the busiest link, inside a package / between packages:",
        rows_table(Table(header=header, numeric=numeric, rows=rows)),
    )
