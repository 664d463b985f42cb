"""A layered drawing of a directed acyclic graph: coordinates, no ink.

Layers by longest path, each cluster a band of layers of its own; short edges pass through the
layers on dummy nodes, ordered by barycentres; long edges leave the graph for lanes at its right,
one a producer (``sugiyama1981``). The same input gives the same picture.
"""

from __future__ import annotations

import bisect
import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter

LONG = 5  # edges over more layers than this take a lane
MOST_IN_LAYER = 6
SWEEPS = 12
NODE_GAP, DUMMY_WIDTH = 18.0, 8.0
LAYER_GAP, TRACK_GAP, LANE_GAP = 30.0, 7.0, 9.0
TOP, PAD = 18.0, 16.0

Edge = tuple[int, int]
Point = tuple[float, float]
Track = tuple[str, int]  # ("out", producer) or ("in", edge)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rectangle:
    """A rectangle by its upper left corner."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """An edge as a polyline; ``lane`` wires have right angles, others are to be drawn curved."""

    points: tuple[Point, ...]
    lane: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Boxes of nodes and clusters, wires of edges in the order given, and the whole size."""

    nodes: tuple[Rectangle, ...]
    clusters: tuple[Rectangle, ...]
    wires: tuple[Wire, ...]
    width: float
    height: float


@dataclass(slots=True)
class _Layers:
    """Nodes and dummies layer by layer; dummies are numbered after the nodes."""

    edges: Sequence[Edge]
    rank: list[int]
    width: list[float]
    rows: list[list[int]]
    links: list[Edge] = field(default_factory=list)  # between neighbouring layers
    chains: dict[int, list[int]] = field(default_factory=dict)  # of short edges: all their nodes
    lanes: list[int] = field(default_factory=list)  # edges that take a lane
    x: list[float] = field(default_factory=list)  # centres
    tracks: dict[int, list[Track]] = field(default_factory=dict)


def layered(
    widths: Sequence[float],
    edges: Sequence[Edge],
    clusters: Sequence[int],
    *,
    node_height: float,
    gutter: float = 0.0,
) -> Layout:
    """Lay a graph out in layers from top to bottom.

    Parameters
    ----------
    widths : sequence of float
        Of each node.
    edges : sequence of (int, int)
        From node to node; acyclic, and never from a later cluster to an earlier one.
    clusters : sequence of int
        Of each node, from 0, none empty; clusters follow each other from top to bottom.
    node_height : float
        Of every node.
    gutter : float
        Room for words at the left of every cluster; 0 draws no frames.

    References
    ----------
    sugiyama1981
    """
    layers = _make_layers(widths, edges, clusters)
    _order(layers)
    x = _across(layers, len(widths))
    left, right = _ends(layers, x, range(len(x)))
    frame = max(gutter, PAD) + right - left + PAD
    layers.x = [at + max(gutter, PAD) - left for at in x]
    layers.tracks = _tracks(layers)
    band = [0] * len(layers.rows)
    for i, cluster in enumerate(clusters):
        band[layers.rank[i]] = cluster
    top, boxes = _down(layers, band, node_height, frame, gutter > 0)
    nodes = tuple(
        Rectangle(x=layers.x[i] - wide / 2, y=top[layers.rank[i]], width=wide, height=node_height)
        for i, wide in enumerate(widths)
    )
    wires, used = _wires(layers, nodes, top, frame)
    height = boxes[-1].y + boxes[-1].height + 2.0
    return Layout(nodes=nodes, clusters=boxes, wires=wires, width=used, height=height)


def _make_layers(
    widths: Sequence[float], edges: Sequence[Edge], clusters: Sequence[int]
) -> _Layers:
    rank = _ranks(len(widths), edges, clusters)
    rows: list[list[int]] = [[] for _ in range(max(rank) + 1)]
    layers = _Layers(edges=edges, rank=rank, width=list(widths), rows=rows)
    for i, at in enumerate(rank):
        layers.rows[at].append(i)
    for e, (source, target) in enumerate(edges):
        if rank[target] - rank[source] > LONG:
            layers.lanes.append(e)
            continue
        chain = [source]
        for at in range(rank[source] + 1, rank[target]):
            dummy = len(layers.width)
            layers.width.append(DUMMY_WIDTH)
            layers.rank.append(at)
            layers.rows[at].append(dummy)
            chain.append(dummy)
        chain.append(target)
        layers.chains[e] = chain
        layers.links.extend(itertools.pairwise(chain))
    return layers


def _ranks(n: int, edges: Sequence[Edge], clusters: Sequence[int]) -> list[int]:
    """Longest path from the top within each cluster, no layer overfull; then sources sink."""
    before: list[list[int]] = [[] for _ in range(n)]
    after: list[list[int]] = [[] for _ in range(n)]
    for source, target in edges:
        before[target].append(source)
        after[source].append(target)
    rank = [0] * n
    count: dict[int, int] = defaultdict(int)
    base = 0
    members: dict[int, list[int]] = defaultdict(list)
    for i in TopologicalSorter(dict(enumerate(before))).static_order():
        members[clusters[i]].append(i)
    for cluster in sorted(members):
        for i in members[cluster]:
            at = max([base, *(rank[j] + 1 for j in before[i] if clusters[j] == cluster)])
            while count[at] >= MOST_IN_LAYER:
                at += 1
            rank[i] = at
            count[at] += 1
        for i in reversed(members[cluster]):
            readers = [rank[j] for j in after[i] if clusters[j] == cluster]
            makers = [j for j in before[i] if clusters[j] == cluster]
            low = min(readers) - 1 if len(readers) > len(makers) else rank[i]
            while low > rank[i] and count[low] >= MOST_IN_LAYER:
                low -= 1
            count[rank[i]] -= 1
            rank[i] = low
            count[low] += 1
        used = sorted({rank[i] for i in members[cluster]})
        closed = {at: base + k for k, at in enumerate(used)}  # sinking may empty a layer
        for i in members[cluster]:
            rank[i] = closed[rank[i]]
        base += len(used)
        count.clear()
    return rank


def _order(layers: _Layers) -> None:
    """Order every layer by the barycentres of its neighbours; keep what crosses least."""
    up: list[list[int]] = [[] for _ in layers.width]
    down: list[list[int]] = [[] for _ in layers.width]
    for a, b in layers.links:
        down[a].append(b)
        up[b].append(a)
    best = [row[:] for row in layers.rows]
    fewest = _crossings(layers.rows, down)
    for sweep in range(SWEEPS):
        downwards = sweep % 2 == 0
        rows = layers.rows if downwards else layers.rows[::-1]
        near = up if downwards else down
        for previous, row in itertools.pairwise(rows):
            # Positions relative to the width of the layer, so that layers stay centred.
            place = {i: (k + 0.5) / len(previous) for k, i in enumerate(previous)}
            own = {i: (k + 0.5) / len(row) for k, i in enumerate(row)}
            centre = {
                i: sum(place[j] for j in near[i]) / len(near[i]) if near[i] else own[i] for i in row
            }
            row.sort(key=centre.__getitem__)
        crossings = _crossings(layers.rows, down)
        if crossings < fewest:
            fewest, best = crossings, [row[:] for row in layers.rows]
    layers.rows = best


def _crossings(rows: list[list[int]], down: list[list[int]]) -> int:
    total = 0
    for row, following in itertools.pairwise(rows):
        place = {i: k for k, i in enumerate(following)}
        seen: list[int] = []
        for i in row:
            ends = sorted(place[j] for j in down[i])
            total += sum(len(seen) - bisect.bisect_right(seen, end) for end in ends)
            for end in ends:
                bisect.insort(seen, end)
    return total


def _across(layers: _Layers, n: int) -> list[float]:
    """Centres of all nodes: each near the mean of its neighbours, in order, not overlapping.

    Links among dummies (those numbered from ``n``) weigh most, so that long edges run straight.
    """
    near: list[list[tuple[int, int]]] = [[] for _ in layers.width]
    for a, b in layers.links:
        weight = (1, 3, 12)[(a >= n) + (b >= n)]
        near[a].append((b, weight))
        near[b].append((a, weight))
    weights = [max(1, sum(w for _, w in near[i])) for i in range(len(near))]
    x = [0.0] * len(layers.width)
    for row in layers.rows:
        _place(row, [0.0] * len(row), weights, layers.width, x)
    for sweep in range(4 * SWEEPS):
        for row in layers.rows if sweep % 2 == 0 else layers.rows[::-1]:
            wanted = [
                sum(x[j] * w for j, w in near[i]) / weights[i] if near[i] else x[i] for i in row
            ]
            _place(row, wanted, weights, layers.width, x)
    _centre(layers, x)
    return x


def _centre(layers: _Layers, x: list[float]) -> None:
    """Centre every run of layers that no short edge joins to the next."""
    joined = {layers.rank[a] for a, _ in layers.links}
    run: list[int] = []
    for r, row in enumerate(layers.rows):
        run += row
        if r not in joined:
            left, right = _ends(layers, x, run)
            for i in run:
                x[i] -= (left + right) / 2
            run = []


def _ends(layers: _Layers, x: Sequence[float], nodes: Sequence[int]) -> tuple[float, float]:
    """Return where some nodes begin at the left and end at the right."""
    left = min(x[i] - layers.width[i] / 2 for i in nodes)
    return left, max(x[i] + layers.width[i] / 2 for i in nodes)


def _place(
    row: list[int], wanted: list[float], weights: list[int], width: list[float], x: list[float]
) -> None:
    """Least squares under the order and the widths: isotonic regression by pooling neighbours."""
    offsets, at = [], 0.0
    for k, i in enumerate(row):
        if k:
            at += (width[row[k - 1]] + width[i]) / 2 + NODE_GAP
        offsets.append(at)
    pools: list[tuple[float, int, int]] = []  # weighted sum, weight, nodes
    for i, want, offset in zip(row, wanted, offsets, strict=True):
        total, weight, count = (want - offset) * weights[i], weights[i], 1
        while pools and pools[-1][0] / pools[-1][1] > total / weight:
            more, heavy, many = pools.pop()
            total, weight, count = total + more, weight + heavy, count + many
        pools.append((total, weight, count))
    means = [total / weight for total, weight, count in pools for _ in range(count)]
    for i, mean, offset in zip(row, means, offsets, strict=True):
        x[i] = mean + offset


def _tracks(layers: _Layers) -> dict[int, list[Track]]:
    """Horizontal pieces of lane wires in the gap below each layer; -1 is above the first."""
    tracks: dict[int, list[Track]] = defaultdict(list)
    for e in sorted(layers.lanes, key=lambda e: (-layers.x[layers.edges[e][1]], e)):
        source, target = layers.edges[e]
        out = ("out", source)
        if out not in tracks[layers.rank[source]]:
            tracks[layers.rank[source]].append(out)
        tracks[layers.rank[target] - 1].append(("in", e))
    return tracks


def _down(
    layers: _Layers, band: list[int], node_height: float, width: float, framed: bool
) -> tuple[list[float], tuple[Rectangle, ...]]:
    """Tops of the layers, and the frames of the clusters."""
    tracks = layers.tracks
    pad, head = (PAD, TOP) if framed else (4.0, 4.0)
    top: list[float] = []
    boxes: list[Rectangle] = []
    y = start = 2.0
    for r, cluster in enumerate(band):
        ins = sum(kind == "in" for kind, _ in tracks.get(r - 1, ()))
        if r == 0 or cluster != band[r - 1]:
            start = y
            y += head + TRACK_GAP * ins
        top.append(y)
        y += node_height
        last = r + 1 == len(band) or band[r + 1] != cluster
        outs = sum(kind == "out" for kind, _ in tracks.get(r, ()))
        if last:
            y += pad + TRACK_GAP * outs
            boxes.append(Rectangle(x=0.0, y=start, width=width, height=y - start))
            y += 14.0 if framed else LAYER_GAP
        else:
            y += LAYER_GAP + TRACK_GAP * len(tracks.get(r, ()))
    return top, tuple(boxes)


def _wires(
    layers: _Layers, nodes: tuple[Rectangle, ...], top: list[float], right: float
) -> tuple[tuple[Wire, ...], float]:
    ports = _ports(layers, nodes, right)
    lanes, count = _lanes(layers)
    x, tracks, height = layers.x, layers.tracks, nodes[0].height
    wires = []
    for e, (source, target) in enumerate(layers.edges):
        start = (x[source], nodes[source].y + height)
        end = (ports[e], nodes[target].y)
        if e not in layers.chains:
            lane = right + LANE_GAP * (lanes[source] + 1)
            out = [t for t in tracks[layers.rank[source]] if t[0] == "out"]
            into = [t for t in tracks[layers.rank[target] - 1] if t[0] == "in"]
            low = start[1] + 6 + TRACK_GAP * out.index(("out", source))
            high = end[1] - 11 - TRACK_GAP * into.index(("in", e))
            points = [start, (start[0], low), (lane, low), (lane, high), (end[0], high), end]
            wires.append(Wire(points=tuple(points), lane=True))
            continue
        points = [start]
        for dummy in layers.chains[e][1:-1]:
            y = top[layers.rank[dummy]]
            points += [(x[dummy], y), (x[dummy], y + height)]
        wires.append(Wire(points=(*points, end), lane=False))
    return tuple(wires), right + LANE_GAP * (count + 1 if count else 0)


def _ports(layers: _Layers, nodes: tuple[Rectangle, ...], right: float) -> list[float]:
    """Where each edge enters its target: side by side, in the order in which they come."""
    x = layers.x
    arriving: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for e, (_, target) in enumerate(layers.edges):
        comes = x[layers.chains[e][-2]] if e in layers.chains else right
        arriving[target].append((comes, e))
    ports = [0.0] * len(layers.edges)
    for target, came in arriving.items():
        step = min(22.0, (nodes[target].width - 16) / len(came))
        for k, (_, e) in enumerate(sorted(came)):
            ports[e] = x[target] + (k - (len(came) - 1) / 2) * step
    return ports


def _lanes(layers: _Layers) -> tuple[dict[int, int], int]:
    """Give each producer of long edges the innermost lane free down to its last reader."""
    reach: dict[int, int] = {}
    for e in layers.lanes:
        source, target = layers.edges[e]
        reach[source] = max(reach.get(source, 0), layers.rank[target])
    ends: list[list[tuple[int, int]]] = []
    lanes: dict[int, int] = {}
    # Shortest first: wires that begin late and end early lie inside of those around them.
    for source in sorted(reach, key=lambda s: (reach[s] - layers.rank[s], s)):
        first, last = layers.rank[source], reach[source]
        free = (
            lane for lane, taken in enumerate(ends) if all(last < a or b < first for a, b in taken)
        )
        lane = next(free, len(ends))
        if lane == len(ends):
            ends.append([])
        ends[lane].append((first, last))
        lanes[source] = lane
    return lanes, len(ends)
