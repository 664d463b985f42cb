"""Placements as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from crosstack.mapping.placement import Placement
from crosstack.mapping.strategy import ParallelDimension
from crosstack.report.wording import plural

__all__ = ["placement_table"]


def placement_table(placements: Sequence[Placement]) -> Table:
    """Return one line for each placement, the edges on its busiest links by dimension."""
    first = placements[0]
    shape = " x ".join(str(size) for size in first.grid.shape)
    kind = "torus" if first.grid.torus else "mesh"
    packages = plural(first.grid.n_packages, "package")
    title = (
        f"{first.strategy} on a {kind} of {shape} chips in {packages}; edges on the busiest link,"
    )
    table = Table(title=f"{title}\ninside a package / between packages:", title_justify="left")
    used = [d for d in ParallelDimension if first.strategy.degree(d) > 1]
    table.add_column("order, innermost first", no_wrap=True)
    table.add_column("all edges", justify="right")
    for dimension in used:
        table.add_column(dimension.value, justify="right")
    table.add_column("between packages run")
    table.add_column("hops", justify="right")
    for placement in placements:
        each = [placement.by_dimension[dimension] for dimension in used]
        crossing = [d.value for d in ParallelDimension if d in placement.crosses]
        order = [d.value for d in placement.order if d in used]
        table.add_row(
            ", ".join(order) or "one chip",
            f"{placement.sharing.inside} / {placement.sharing.between}",
            *(f"{sharing.inside} / {sharing.between}" for sharing in each),
            ", ".join(crossing) or "none",
            str(placement.hops),
        )
    return table
