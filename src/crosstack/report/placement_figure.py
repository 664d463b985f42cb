"""Placements as a table, and one as a picture: chips, shards, edges, the load of every link."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Sequence

import numpy as np
from rich.console import Group

from crosstack.mapping.placement import Placement, Sharing, logical_edges
from crosstack.mapping.strategy import ParallelDimension
from crosstack.report.drawing import Canvas, Figure, standalone
from crosstack.report.text import rows_table, titled
from crosstack.report.wording import plural, table_of

PITCH = 74.0
CHIP = 44.0
MARGIN = 24.0
GAP = 26.0  # more between two packages
MOST_EDGES = 600  # drawn; more of them are a blot
MOST_CHIPS = 4096
MOST_BEND = 0.9 * PITCH  # of an arc, so that long ones do not leave the picture
NARROW = 480.0
HEAD = 140.0


def placement_table(placements: Sequence[Placement]) -> Group:
    """Return one line for each placement, the edges on its busiest links by dimension."""
    first = placements[0]
    used = [d for d in ParallelDimension if first.strategy.degree(d) > 1]

    def names(dimensions: Iterable[ParallelDimension], among: Container[ParallelDimension]) -> str:
        return ", ".join(d.value for d in dimensions if d in among)

    def edges(of: ParallelDimension) -> tuple[str, str, Callable[[Placement], str]]:
        return of.value, ">", lambda p: _shared(p.by_dimension[of])

    table = table_of(
        placements,
        ("order, innermost first", "<", lambda p: names(p.order, used) or "one chip"),
        ("all edges", ">", lambda p: _shared(p.sharing)),
        *map(edges, used),
        ("between packages run", "<", lambda p: names(ParallelDimension, p.crosses) or "none"),
        ("hops", ">", lambda p: f"{p.hops:,}"),
    )
    packages = plural(first.grid.n_packages, "package")
    return titled(
        f"{first.strategy} on a {_grid_words(first)} in {packages}",
        "Edges on the busiest link, inside a package / between packages:",
        rows_table(table),
    )


def _shared(sharing: Sharing) -> str:
    return f"{sharing.inside} / {sharing.between}"


def placement_svg(placement: Placement) -> str:
    """Return a placement as one figure with a heading and a legend."""
    figure = placement_figure(placement)
    width = max(figure.width, NARROW) + 3 * MARGIN
    page, title = Canvas(), f"{placement.strategy} placed"
    page.text(MARGIN, 32, title, size=18, cls="xs-ink xs-strong")
    order = ", ".join(d.value for d in placement.order)
    packages = f"packages: {placement.grid.n_packages}"
    chips = f"{_grid_words(placement)}, {packages}; innermost first: {order}"
    page.text(MARGIN, 54, chips, size=12, cls="xs-muted")
    sharing = placement.sharing
    edges = f"{sharing.inside} edges inside a package, {sharing.between} between them"
    page.text(MARGIN, 71, f"busiest link: {edges}", size=12, cls="xs-muted")
    degrees = {d.value: placement.strategy.degree(d) for d in ParallelDimension}
    legend = {f"{d} ({degree})": f"xs-{d}" for d, degree in degrees.items() if degree > 1}
    page.legend(MARGIN, 95, legend, lines=True)
    said = "chip: shard kp1.kp2.dp.lp; on a link: its edges, both ways"
    page.text(MARGIN, 113, said, cls="xs-muted")
    page.put(figure.canvas, MARGIN * 2, HEAD)
    return standalone(page, width, figure.height + HEAD + MARGIN, title, own=True)


def _grid_words(placement: Placement) -> str:
    shape = " x ".join(map(str, placement.grid.shape))
    return f"{'torus' if placement.grid.torus else 'mesh'} of {shape} chips"


def placement_figure(placement: Placement) -> Figure:
    """Return chips, links and edges; the third axis is a row of slabs."""
    canvas = Canvas()
    grid = placement.grid
    if grid.n_chips > MOST_CHIPS:
        canvas.text(0, 14, f"{grid.n_chips} chips are too many to draw", cls="xs-muted")
        return Figure(canvas, NARROW, 24)
    centres = _centres(placement)
    labels = _links(canvas, placement, centres)
    low, high = _edges(canvas, placement, centres)
    shards = {}
    for shard in np.ndindex(placement.positions.shape[:-1]):
        shards[tuple(placement.positions[shard].tolist())] = ".".join(str(i) for i in shard)
    for chip in np.ndindex(grid.shape):
        x, y = centres[chip]
        name = shards.get(chip, "")
        canvas.rectangle(x - CHIP / 2, y - 13, CHIP, 26, "xs-fs" if name else "xs-frame", 4)
        canvas.text(x, y + 4, name, size=9.5, anchor="middle", width=CHIP - 4)
    for x, y, load in labels:
        canvas.text(x, y, load, size=10, cls="xs-ink xs-halo")
    width, height = np.maximum(centres.reshape(-1, 2).max(axis=0) + PITCH / 2, high + 6)
    moved = Canvas()
    left, top = np.maximum(0.0, 6 - low)
    moved.put(canvas, left, top)
    return Figure(moved, float(width + left), float(height + top))


def _centres(placement: Placement) -> np.ndarray:
    """Where every chip is drawn, as (..., x and y)."""
    grid = placement.grid
    at = np.stack(np.meshgrid(*(np.arange(s) for s in grid.shape), indexing="ij"), axis=-1)
    spread = at * PITCH + at // np.array(grid.package) * GAP
    x = spread[..., 0].astype(float)
    y = spread[..., 1].astype(float) if len(grid.shape) > 1 else np.zeros_like(x)
    if len(grid.shape) > 2:
        slab = spread[:, 0, 0, 0].max() + 2 * PITCH
        x = x + slab * at[..., 2]
    return np.stack([x + PITCH / 2, y + PITCH / 2], axis=-1)


def _links(
    canvas: Canvas, placement: Placement, centres: np.ndarray
) -> list[tuple[float, float, str]]:
    """Draw links as wide as their load; return the labels, which go on top of everything."""
    grid = placement.grid
    labels = []
    for axis, counts in enumerate(placement.loads.counts):
        total = counts[0].sum(axis=0)
        between = grid.is_between(axis)
        for chip in np.ndindex(grid.shape):
            load = int(total[chip])
            last = chip[axis] + 1 == grid.shape[axis]
            if last and not load:
                continue
            after = list(chip)
            after[axis] = (chip[axis] + 1) % grid.shape[axis]
            (x0, y0), (x1, y1) = centres[chip], centres[tuple(after)]
            cls = "xs-hot" if between[chip[axis]] else "xs-lane"
            wide = 1.0 + 1.4 * math.log2(1 + load)
            if last:  # the link that closes the ring, shown as a stub
                x1, y1 = (x0 + PITCH * 0.45, y0) if axis != 1 else (x0, y0 + PITCH * 0.45)
            canvas.add(
                f'<path class="{cls}" style="stroke-width:{wide:.1f}" '
                f'd="M{x0:.1f} {y0:.1f} L{x1:.1f} {y1:.1f}"/>'
            )
            if load and axis < 2:
                x, y = (x1, y1) if last else ((x0 + x1) / 2, (y0 + y1) / 2)
                labels.append((x + (4 if axis else -3), y + (4 if axis else -5), str(load)))
    return labels


def _edges(
    canvas: Canvas, placement: Placement, centres: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Draw logical edges as arcs, bent more the farther they reach; return how far they go."""
    flat = placement.positions.reshape(-1, placement.positions.shape[-1])
    at = centres[tuple(flat.T)]
    low, high = at.min(axis=0), at.max(axis=0)
    for k, d in enumerate(ParallelDimension):
        first, last = logical_edges(placement.strategy, d, both_ways=False)
        if len(first) > MOST_EDGES:
            continue
        start, end = at[first], at[last]
        across = (end - start)[:, ::-1] * (-1.0, 1.0)
        length = np.hypot(*across.T)[:, None]
        bend = np.minimum(0.14 + 0.05 * k, MOST_BEND / np.maximum(length, 1.0))
        middle = (start + end) / 2 + bend * across
        for (x0, y0), (x, y), (x1, y1) in zip(start, middle, end, strict=True):
            canvas.path(f"M{x0:.1f} {y0:.1f} Q{x:.1f} {y:.1f} {x1:.1f} {y1:.1f}", f"xs-{d.value}")
        if len(first):
            apex = (start + 2 * middle + end) / 4
            low, high = np.minimum(low, apex.min(axis=0)), np.maximum(high, apex.max(axis=0))
    return low, high
