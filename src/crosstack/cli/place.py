"""``crosstack place``: where the shards of a strategy stand, and which links they share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crosstack.cli.inputs import check_outputs, options_named
from crosstack.cli.outputs import show, write
from crosstack.errors import InputError, Problem

if TYPE_CHECKING:
    from crosstack.mapping.placement import Placement
    from crosstack.mapping.placement_rules import PlacementRules
    from crosstack.system.topology import Grid

__all__ = ["grid_of", "place"]

PLACEMENT_RULES = ("crosstack", "deepflow")
Package = Annotated[
    str,
    typer.Option("--package", metavar="XxYxZ", help="Chips of a package along each axis."),
]
Packages = Annotated[
    str | None,
    typer.Option("--packages", metavar="XxYxZ", help="Packages along each axis (default: one)."),
]
Torus = Annotated[
    bool, typer.Option("--torus", help="Join the last chip of every axis to the first.")
]


def place(
    strategy: Annotated[
        str, typer.Argument(metavar="STRATEGY", help="RC-4-2-d8-p1 or CR-4-d8-p1.")
    ],
    package: Package,
    packages: Packages = None,
    torus: Torus = False,
    rules: Annotated[
        str, typer.Option("--rules", metavar="NAME", help="crosstack or deepflow.")
    ] = "crosstack",
    every: Annotated[
        bool, typer.Option("--all", help="List the best placement of every order.")
    ] = False,
    json_out: Annotated[
        Path | None, typer.Option("--json", metavar="OUT", help="Save the result as JSON.")
    ] = None,
    svg_out: Annotated[
        Path | None,
        typer.Option("--svg", metavar="OUT", help="Save a picture: chips, edges, link loads."),
    ] = None,
) -> None:
    """Place the shards of a strategy on a mesh or torus; every order of its dimensions is tried.

    Example: `crosstack place RC-4-2-d8-p1 --package 4x4 --packages 2x2 --svg place.svg`
    """
    from crosstack.mapping.placement import placements
    from crosstack.mapping.strategy import parse_strategy
    from crosstack.report.placement_figure import placement_svg
    from crosstack.report.placement_text import placement_table

    check_outputs(None, {"--json": json_out, "--svg": svg_out})
    chosen = parse_strategy(strategy)
    grid = grid_of(package, packages, torus=torus)
    found = placements(chosen, grid, _rules(rules))
    best = min(found, key=lambda p: p.derates)
    ranked = sorted(found, key=lambda p: p.derates) if every else [best]
    show(placement_table(ranked))
    texts = []
    if json_out is not None:
        texts.append((json_out, json.dumps(_data(best), indent=1) + "\n"))
    if svg_out is not None:
        texts.append((svg_out, placement_svg(best)))
    write(*texts)


def grid_of(package: str, packages: str | None, *, torus: bool) -> Grid:
    """Return the grid that the options say."""
    from crosstack.system.topology import Grid

    names = {"package": "--package", "packages": "--packages"}
    names |= {f"{name}[{axis}]": option for name, option in names.items() for axis in range(3)}
    with options_named(names):
        return Grid(
            package=_axes("--package", package),
            packages=() if packages is None else _axes("--packages", packages),
            torus=torus,
        )


def _axes(option: str, text: str) -> tuple[int, ...]:
    parts = text.lower().split("x")
    if len(text) > 40 or not all(part.isascii() and part.isdecimal() for part in parts):
        allowed = "whole numbers joined by x, such as 8, 4x4 or 4x4x2"
        raise InputError(Problem(option, f"got {text[:40]!r}; allowed: {allowed}."))
    return tuple(int(part) for part in parts)


def _rules(name: str) -> PlacementRules:
    from crosstack.mapping.placement_rules import PlacementRules

    if name not in PLACEMENT_RULES:
        allowed = ", ".join(PLACEMENT_RULES)
        raise InputError(Problem("--rules", f"got {name[:40]!r}; allowed: {allowed}."))
    return PlacementRules() if name == "crosstack" else PlacementRules.deepflow()


def _data(placement: Placement) -> dict[str, Any]:
    """Return a placement as JSON holds it."""
    grid = placement.grid
    return {
        "strategy": str(placement.strategy),
        "package": list(grid.package),
        "packages": list(grid.packages),
        "torus": grid.torus,
        "order": [dimension.value for dimension in placement.order],
        "edges_on_busiest_link": {
            "between_packages": placement.sharing.between,
            "inside_packages": placement.sharing.inside,
        },
        "by_dimension": {
            dimension.value: {"between_packages": s.between, "inside_packages": s.inside}
            for dimension, s in placement.by_dimension.items()
        },
        "crosses_packages": sorted(dimension.value for dimension in placement.crosses),
        "hops": placement.hops,
        "positions": placement.positions.tolist(),
    }
