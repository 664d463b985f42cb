"""A graph transformed step by step, as a picture: one panel a step, cross edges in colour."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group

from crosstack.mapping.transform import EdgeKind, SuperGraph
from crosstack.report.drawing import Canvas, standalone
from crosstack.report.text import rows_table, titled
from crosstack.report.wording import table_of
from crosstack.units import format_quantity

MARGIN = 24.0
NAMES = 110.0
DOT = 22.0
ROW = 34.0
GAP = 60.0
MOST_NODES = 3000  # of a panel; larger steps are named, not drawn
BEND = 9.0
_CLASSES = {
    EdgeKind.DATA: "xs-lane",
    EdgeKind.STAGE: "xs-lp",
    EdgeKind.REPLICA: "xs-dp",
    EdgeKind.ROW: "xs-kp1",
    EdgeKind.COLUMN: "xs-kp2",
}


def transform_table(steps: Sequence[SuperGraph], title: str) -> Group:
    """Return one line for each step: nodes, cross edges, and what crosses them in a training step.

    Sizes are summed over all edges, one item of the batch through one layer.
    """
    crossing = [[edge for edge in step.edges if edge.kind is not EdgeKind.DATA] for step in steps]
    table = table_of(
        zip(steps, crossing, strict=True),
        ("step", "<", lambda of: of[0].title),
        ("nodes", ">", lambda of: f"{len(of[0].nodes):,}"),
        ("edges", ">", lambda of: f"{len(of[0].edges) - len(of[1]):,}"),
        ("cross edges", ">", lambda of: f"{len(of[1]):,}"),
        ("forward", ">", lambda of: format_quantity(sum(e.forward for e in of[1]), "B")),
        ("backward", ">", lambda of: format_quantity(sum(e.backward for e in of[1]), "B")),
    )
    return titled(title, rows_table(table))


def transform_svg(steps: Sequence[SuperGraph], title: str) -> str:
    """Return the steps side by side: a row for each kernel, a dot for each of its shards."""
    rows: dict[str, int] = {}
    for node in steps[0].nodes:
        rows.setdefault(node.kernel, len(rows))
    page = Canvas()
    page.text(MARGIN, 32, title, size=18, cls="xs-ink xs-strong")
    legend = {kind.value: cls for kind, cls in _CLASSES.items()}
    end = page.legend(MARGIN, 55, legend, lines=True)
    top = 104.0
    for name, row in rows.items():
        page.text(MARGIN, top + row * ROW + 4, name, cls="xs-ink", width=NAMES - 8)
    left = MARGIN + NAMES
    for step in steps:
        page.text(left, 84, step.title, size=12, cls="xs-ink xs-strong")
        if len(step.nodes) > MOST_NODES:
            page.text(left, top, f"{len(step.nodes):,} nodes: too many to draw", cls="xs-muted")
            left += 220 + GAP
            continue
        width = _panel(page, step, rows, left, top)
        left += max(width, 130.0) + GAP
    height = top + ROW * len(rows) + MARGIN
    return standalone(page, max(left, end + MARGIN), height, title, own=True)


def _panel(page: Canvas, step: SuperGraph, rows: dict[str, int], left: float, top: float) -> float:
    """Draw one step; return its width."""
    places = []
    seen: dict[str, int] = {}
    for node in step.nodes:
        column = seen.get(node.kernel, 0)
        seen[node.kernel] = column + 1
        places.append((left + DOT * column + DOT / 2, top + rows[node.kernel] * ROW))
    for edge in step.edges:
        (x0, y0), (x1, y1) = places[edge.source], places[edge.target]
        cls = _CLASSES[edge.kind]
        if y0 == y1:
            bend = BEND + 0.12 * abs(x1 - x0)
            middle = f"{(x0 + x1) / 2:.1f} {y0 + bend:.1f}"
            page.path(f"M{x0:.1f} {y0:.1f} Q{middle} {x1:.1f} {y1:.1f}", cls)
        elif x0 == x1 and abs(y1 - y0) > ROW:  # round the kernels between
            side = x0 - min(0.8 * DOT, 8.0 + 3.0 * abs(y1 - y0) / ROW)
            page.path(f"M{x0:.1f} {y0:.1f} C{side:.1f} {y0:.1f} {side:.1f} {y1:.1f} {x1:.1f} "
                      f"{y1:.1f}", cls)  # fmt: skip
        else:
            page.line(((x0, y0), (x1, y1)), cls)
    for node, (x, y) in zip(step.nodes, places, strict=True):
        page.rectangle(x - 4, y - 4, 8, 8, "xs-fs" if node.stage % 2 == 0 else "xs-bs", 2)
    return DOT * max(seen.values())
