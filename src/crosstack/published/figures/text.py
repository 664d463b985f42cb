"""A figure as tables on a terminal, as a page, as JSON and as CSV."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from crosstack.io.csv_text import csv_text
from crosstack.published.case import Row, markdown_table
from crosstack.published.figures.catalogue import FIGURES, UNAVAILABLE, Entry, Unavailable
from crosstack.published.figures.figure import STATEMENT, Cell, Figure

WIDTH = 100
CLAIMS = ("claim", "published", "ours", "verdict")


def figure_list() -> str:
    """Return the names of all figures with what they show, and which cannot be made again."""
    wide = max(map(len, [*FIGURES, *UNAVAILABLE]))

    def lines(entries: Mapping[str, Entry | Unavailable]) -> list[str]:
        return [f"{name:<{wide}}  {e.place:<17}  {e.shows}" for name, e in entries.items()]

    shown = [*lines(FIGURES), "", "Not to be made again (asked for one, it says why):"]
    return "\n".join([*shown, *lines(UNAVAILABLE)]) + "\n"


def claim_cells(row: Row) -> tuple[str, str, str, str]:
    """Return a claim, the published number, ours and the verdict."""
    words = row.case.partition(": ")[2]
    verdict = "holds" if row.holds else "MISSES"
    if row.quantity == STATEMENT:
        return words, "yes", "yes" if row.ours == 1 else f"in {100 * row.ours:.0f} %", verdict
    bound = {"equal": "", "at most": "<= ", "at least": ">= "}[row.sense]
    unit = "" if row.unit == "1" else f" {row.unit}"
    published = f"{bound}{row.published:.4g}{unit}"
    return words, published, f"{row.ours:.4g}{unit}", verdict


def _number(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, str):
        return cell
    if cell == round(cell) and abs(cell) < 1e6:
        return f"{cell:.0f}"
    return f"{cell:.4g}" if abs(cell) < 1000 else f"{cell:,.1f}"


def _columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines with the first column to the left and the others to the right."""
    table = [header, *rows]
    wide = [max(len(row[k]) for row in table) for k in range(len(header))]
    lines = []
    for row in table:
        first, *others = (
            cell.ljust(width) if k == 0 else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, wide, strict=True))
        )
        lines.append("  ".join(("  " + first, *others)).rstrip())
    return lines


def _points(figure: Figure) -> str:
    """Say how the published runs behind the points fared."""
    if not figure.points:
        return ""
    held = sum(row.holds for row in figure.points)
    equal = [abs(row.error) for row in figure.points if row.sense == "equal"]
    largest = f"; of {len(equal)} equalities the worst error is {max(equal):.1e}" if equal else ""
    return f"{held} of {len(figure.points)} published runs are matched or beaten{largest}."


def figure_table(figure: Figure) -> str:
    """Return points, claims and notes as plain text."""
    cells = [[_number(cell) for cell in row] for row in figure.rows]
    lines = [figure.title, "", *_columns(figure.header, cells), "", *_claims(figure)]
    for sentence in figure.notes:
        lines += ["", *textwrap.wrap(sentence, WIDTH)]
    return "\n".join(lines) + "\n"


def figure_claims(figure: Figure) -> str:
    """Return what the paper says of a figure beside ours, why what misses does, and who draws it.

    Plain text.
    """
    where = f"crosstack figure {figure.name} -o {figure.name}.svg draws it."
    return "\n".join([figure.title, "", *_claims(figure), "", where]) + "\n"


def _claims(figure: Figure) -> list[str]:
    lines = _columns(CLAIMS, [claim_cells(row) for row in figure.claims])
    missed = [row for row in (*figure.claims, *figure.points) if not row.holds]
    said = [f"{row.case} misses: {row.reason or 'not known why'}." for row in missed]
    for sentence in (*said, _points(figure)):
        if sentence:
            lines += ["", *textwrap.wrap(sentence, WIDTH)]
    return lines


def figure_json(figure: Figure) -> str:
    """Return everything but the picture."""
    data = {
        "name": figure.name,
        "title": figure.title,
        "source": figure.source,
        "header": figure.header,
        "rows": figure.rows,
        "claims": [{**asdict(row), "error": row.error} for row in figure.claims],
        "points": [{**asdict(row), "error": row.error} for row in figure.points],
        "notes": figure.notes,
    }
    return json.dumps(data, indent=2, allow_nan=False) + "\n"


def figure_csv(figure: Figure) -> str:
    """Return the points: a line of headings, then a line a point."""
    return csv_text(figure.header, figure.rows)


def figures_markdown(made: Sequence[Figure], pictures: str = "images/figure_{}.svg") -> str:
    """Return a page of figures; ``pictures`` says where the picture of a name is."""
    lines = [
        "# Figures",
        "",
        "Figures and tables of the papers of DFModel (`ko2025dfmodel`) and DeepFlow",
        "(`ardalani2022deepflow`), computed again, with their claims and ours side by side. "
        "Written by",
        "`crosstack figure all -o docs/figures.md`; do not edit.",
        "",
        "In the pictures what is published is hollow or dashed, what is ours filled or solid. "
        "*yes*",
        "stands for a statement that holds, *in 80 %* for one that holds for that share of points.",
    ]
    for figure in made:
        lines += [
            "",
            f"## {figure.title}",
            "",
            f"`crosstack figure {figure.name}`. Source: {figure.source}.",
            "",
            f"![{figure.title}]({pictures.format(figure.name)})",
            "",
        ]
        claims = [(*claim_cells(row), row.reason or row.note) for row in figure.claims]
        lines += markdown_table((*CLAIMS, "why"), claims, right=(1, 2))
        points = _points(figure)
        missed = [row for row in figure.points if not row.holds]
        said = [f"Missed: {row.case}. {row.reason}" for row in missed]
        for sentence in (points, *said, *figure.notes):
            if sentence:
                lines += ["", *textwrap.wrap(sentence, WIDTH)]
        lines += ["", "<details><summary>Points</summary>", ""]
        cells = [[_number(cell) for cell in row] for row in figure.rows]
        lines += markdown_table(figure.header, cells, right=range(1, len(figure.header)))
        lines += ["", "</details>"]
    if len(made) == len(FIGURES):
        missing = [(e.place, e.shows, e.why) for e in UNAVAILABLE.values()]
        lines += ["", "## Not to be made again", ""]
        lines += markdown_table(("figure", "shows", "why not"), missing)
    return "\n".join(lines) + "\n"
