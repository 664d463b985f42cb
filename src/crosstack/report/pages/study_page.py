"""A study as one page: heat map, Pareto front, parallel coordinates and table of its points.

The page is one file: style, script and data are inside, and its policy forbids fetching anything
(a live page may ask its own server for new points). The script draws on canvases and ordinary HTML
tables; it is kept beside this file, one part for each view.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from crosstack.report.drawing import CONTROLS, THEMES, attribute
from crosstack.report.pages.study_table import Cell, StudyTable, finite_cells, terms
from crosstack.version import __version__

VIEWS = ("heat_map", "scatter", "parallel", "table", "point")
PARTS = tuple(f"{part}.js" for part in ("state", "format", "palette", "filters", *VIEWS, "main"))
SHARED = ("page", "ink", "muted", "line", "frame", "frame-line")
"""Colours that pages have in common with figures."""


def study_html(table: StudyTable, *, live: bool = False) -> str:
    """Return a study as one page; `StudyTable.thinned` says which points of a large one.

    ``live`` says that a server behind the page has newer points now and then.
    """
    data = json.dumps(study_data(table), allow_nan=False, separators=(",", ":"))
    # Text of a study cannot end the element it stands in.
    safe = data.replace("<", "\\u003c")
    connect = "'self'" if live else "'none'"
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
        f"connect-src {connect}; img-src data:; base-uri 'none'; form-action 'none'"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{attribute(table.title)}</title>\n<style>\n{page_css()}</style>\n</head>\n"
        f'<body data-live="{"data.json" if live else ""}">\n{_part("study.html")}'
        f'<script type="application/json" id="study">{safe}</script>\n'
        f'<script type="module">\n{"".join(_part(name) for name in PARTS)}</script>\n'
        "</body>\n</html>\n"
    )


def study_data(table: StudyTable) -> dict[str, Any]:
    """Return what the page's script reads: plain data, every number as it is."""
    shown = table.thinned()
    return {
        "title": shown.title,
        "version": __version__,
        "points": len(shown),
        "total": shown.total or len(shown),
        "axes": list(shown.axes),
        "terms": terms(shown),
        "objectives": [name for name, _ in shown.objectives],
        "details": [{"title": title, "columns": list(names)} for title, names in shown.details],
        "notes": list(shown.notes),
        "columns": [_column(shown, name, values) for name, values in shown.columns.items()],
    }


def _column(table: StudyTable, name: str, values: Sequence[Cell]) -> dict[str, Any]:
    """Return a column; one with few different values as these, and which of them each point has."""
    finite = finite_cells(values)  # JSON has no infinity
    number = table.is_number(name)
    found: dict[str, Any] = {"name": name, "number": number, "unit": table.units.get(name, "")}
    if number:
        found["goal"] = table.goal(name).value
    different = list(dict.fromkeys(finite))
    if len(different) * 4 <= len(finite):
        index = {value: i for i, value in enumerate(different)}
        return found | {"levels": different, "codes": [index[value] for value in finite]}
    return found | {"values": finite}


@cache
def page_css() -> str:
    """Return the style of the page, with its colours for light, dark and print."""
    colours = {name: THEMES[name] for name in SHARED} | CONTROLS
    light, dark = (
        " ".join(f"--{name}: {pair[k]};" for name, pair in colours.items()) for k in (0, 1)
    )
    return (
        f":root {{ {light} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
        f"{_part('study.css')}"
    )


@cache
def _part(name: str) -> str:
    return files("crosstack.report.pages").joinpath(name).read_text(encoding="utf-8")
