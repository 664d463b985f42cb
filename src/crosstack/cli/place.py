"""``crosstack place``: where the shards of a strategy stand, and which links they share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from crosstack.cli.inputs import check_outputs, options_named, rules_asked
from crosstack.cli.outputs import asked_files, json_text, show, write

if TYPE_CHECKING:
    from crosstack.machine.topology import Grid
    from crosstack.mapping.placement import Placement


def place(
    strategy: str,
    package: str,
    packages: str | None = None,
    torus: bool = False,
    order: str | None = None,
    rules: str = "crosstack",
    every: bool = False,
    json_out: Path | None = None,
    svg_out: Path | None = None,
) -> None:
    """Place the shards of a strategy on a mesh or torus."""
    from crosstack.mapping.placement import placements
    from crosstack.mapping.strategy import parse_order, parse_strategy
    from crosstack.report.placement_figure import placement_svg, placement_table

    check_outputs(None, {"--json": json_out, "--svg": svg_out})
    chosen = parse_strategy(strategy)
    grid = grid_of(package, packages, torus=torus)
    counted = rules_asked(rules, ("placement",))
    with options_named({"order": "--order"}):
        wanted = None if order is None else parse_order(order)
        found = placements(chosen, grid, counted.placement, order=wanted)
    ranked = sorted(found, key=lambda p: p.derates)
    show(placement_table(ranked if every else ranked[:1]))
    texts = asked_files(
        (json_out, lambda: json_text(_data(ranked[0]))), (svg_out, lambda: placement_svg(ranked[0]))
    )
    write(*texts)


def grid_of(package: str, packages: str | None, *, torus: bool) -> Grid:
    """Return the grid that the options say."""
    from crosstack.machine.network import parse_shape
    from crosstack.machine.topology import Grid

    with options_named({"shape": "--package"}):
        chips = parse_shape(package)
    with options_named({"shape": "--packages"}):
        grid = () if packages is None else parse_shape(packages)
    names = {"package": "--package", "packages": "--packages"}
    names |= {f"{name}[{axis}]": option for name, option in names.items() for axis in range(3)}
    with options_named(names):
        return Grid(package=chips, packages=grid, torus=torus)


def _data(placement: Placement) -> dict[str, Any]:
    """Return a placement as JSON holds it."""
    grid, all_edges = placement.grid, placement.sharing
    return {
        "strategy": str(placement.strategy),
        "package": list(grid.package),
        "packages": list(grid.packages),
        "torus": grid.torus,
        "order": [dimension.value for dimension in placement.order],
        "edges_on_busiest_link": {
            "between_packages": all_edges.between,
            "inside_packages": all_edges.inside,
        },
        "by_dimension": {
            dimension.value: {"between_packages": s.between, "inside_packages": s.inside}
            for dimension, s in placement.by_dimension.items()
        },
        "crosses_packages": sorted(dimension.value for dimension in placement.crosses),
        "hops": placement.hops,
        "positions": placement.positions.tolist(),
    }
