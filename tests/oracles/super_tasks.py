"""A transformed graph as tasks: every node on its chip, every round of every ring on its link.

The long way to the time of a step, for checking the closed form on small graphs: a ring
collective is p - 1 rounds in which each chip sends the next one a share, all shards run on their
own chips, and nothing is taken as equal. Additions and copies on the chip are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from crosstack.mapping.strategy import ParallelDimension, Strategy
from crosstack.mapping.transform import EdgeKind, SuperEdge, SuperGraph
from crosstack.model.schedule.events import TaskGraph, TaskGraphBuilder
from crosstack.published.deepflow.distributed import DP, KP1, KP2, LP, Peers
from crosstack.workload.kernels import Collective

__all__ = ["super_tasks"]

_DIMENSION = {EdgeKind.REPLICA: DP, EdgeKind.ROW: KP1, EdgeKind.COLUMN: KP2, EdgeKind.STAGE: LP}


def super_tasks(
    graph: SuperGraph,
    strategy: Strategy,
    kernel_time: Callable[[str, bool], float],
    links: Mapping[ParallelDimension, Peers],
) -> TaskGraph:
    """Return the tasks of one step without microbatches.

    Parameters
    ----------
    graph : SuperGraph
        The last step of `crosstack.mapping.transform.transform`.
    strategy : Strategy
        The strategy it was transformed by.
    kernel_time : callable
        Time of one shard of a kernel by its name; forward if the second argument is true. [s]
    links : mapping
        Link of every dimension.
    """
    build = TaskGraphBuilder()
    order = _topological(graph)
    inputs: dict[int, list[SuperEdge]] = {i: [] for i in order}
    outputs: dict[int, list[SuperEdge]] = {i: [] for i in order}
    rings: dict[tuple[EdgeKind, int], SuperEdge] = {}
    for edge in graph.edges:
        if edge.kind in (EdgeKind.DATA, EdgeKind.STAGE):
            inputs[edge.target].append(edge)
            outputs[edge.source].append(edge)
        else:
            rings[edge.kind, edge.source] = edge
    turn: dict[int, int] = {}  # the last task of every node, forward
    sending = _Sender(build, graph, strategy, links)
    groups = _groups(graph, order)
    for group in groups:
        ran = {
            i: build.add(
                graph.nodes[i].kernel,
                kernel_time(graph.nodes[i].kernel, True),
                resource=f"chip {graph.nodes[i].chip}",
                after=[sending.data(e, turn[e.source], forward=True) for e in inputs[i]],
                kind="forward",
            )
            for i in group
        }
        turn.update(sending.collect(rings, ran, forward=True))
    everything = build.add("turn", after=sorted(set(turn.values())))
    back: dict[int, int] = {}
    for group in reversed(groups):
        ran = {
            i: build.add(
                graph.nodes[i].kernel,
                kernel_time(graph.nodes[i].kernel, False),
                resource=f"chip {graph.nodes[i].chip}",
                after=[everything]
                + [sending.data(e, back[e.target], forward=False) for e in outputs[i]],
                kind="backward",
            )
            for i in group
        }
        done = sending.collect(rings, ran, forward=False)
        back.update(done)
        sending.rounds(EdgeKind.REPLICA, rings, done, forward=False, halves=2)
    return build.build()


def _topological(graph: SuperGraph) -> list[int]:
    waits = [0] * len(graph.nodes)
    following: list[list[int]] = [[] for _ in graph.nodes]
    for edge in graph.edges:
        if edge.kind in (EdgeKind.DATA, EdgeKind.STAGE):
            waits[edge.target] += 1
            following[edge.source].append(edge.target)
    order = [i for i, count in enumerate(waits) if count == 0]
    for i in order:  # grows while it runs
        for j in following[i]:
            waits[j] -= 1
            if not waits[j]:
                order.append(j)
    return order


def _groups(graph: SuperGraph, order: list[int]) -> list[list[int]]:
    """Shards of each kernel together, kernels in topological order."""
    groups: dict[str, list[int]] = {}
    for i in order:
        groups.setdefault(graph.nodes[i].kernel, []).append(i)
    return list(groups.values())


class _Sender:
    """Adds the transfers of edges and rings."""

    def __init__(
        self,
        build: TaskGraphBuilder,
        graph: SuperGraph,
        strategy: Strategy,
        links: Mapping[ParallelDimension, Peers],
    ) -> None:
        self.build, self.graph, self.strategy, self.links = build, graph, strategy, links

    def _send(self, edge: SuperEdge, size: float, after: list[int], *, forward: bool) -> int:
        link = self.links[_DIMENSION[edge.kind]]
        ends = edge.source, edge.target
        one, other = ends if forward or edge.kind is not EdgeKind.STAGE else ends[::-1]
        chips = self.graph.nodes[one].chip, self.graph.nodes[other].chip
        return self.build.add(
            f"{edge.kind} {self.graph.nodes[one].kernel}",
            link.time(Collective.POINT_TO_POINT, size),
            resource=f"{edge.kind} link {chips[0]} to {chips[1]}",
            after=after,
            kind="transfer",
        )

    def data(self, edge: SuperEdge, after: int, *, forward: bool) -> int:
        """Hand a tensor on; over a link where stages differ."""
        if edge.kind is EdgeKind.DATA:
            return after
        return self._send(
            edge, edge.forward if forward else edge.backward, [after], forward=forward
        )

    def collect(
        self, rings: Mapping[tuple[EdgeKind, int], SuperEdge], ran: dict[int, int], *, forward: bool
    ) -> dict[int, int]:
        """Run the rings of a kernel split one after the other."""
        done = self.rounds(EdgeKind.ROW, rings, ran, forward=forward)
        return self.rounds(EdgeKind.COLUMN, rings, done, forward=forward)

    def rounds(
        self,
        kind: EdgeKind,
        rings: Mapping[tuple[EdgeKind, int], SuperEdge],
        ready: dict[int, int],
        *,
        forward: bool,
        halves: int = 1,
    ) -> dict[int, int]:
        """Add the rounds of one ring; a chip sends on what it got in the round before."""
        count = halves * (self.strategy.degree(_DIMENSION[kind]) - 1)
        edges = [rings[kind, i] for i in ready if (kind, i) in rings]
        if not edges or not any(e.forward if forward else e.backward for e in edges):
            return ready
        latest = dict(ready)
        for _ in range(count):
            sent = {
                e.target: self._send(
                    e,
                    (e.forward if forward else e.backward) / count,
                    [latest[e.source]],
                    forward=forward,
                )
                for e in edges
            }
            # The next round needs what came, and a chip is through with all its sends.
            latest = {i: self.build.add("round", after=[sent[i]], kind="hand over") for i in latest}
        return latest
