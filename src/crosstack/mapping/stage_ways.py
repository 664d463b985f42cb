"""Ways of a stage between any two borders: its partitions, what they keep waiting and take.

For time alone the fastest sequence of partitions is the only way. Where the objective adds to what
partitions move, a slower one may be cheaper, so all are kept that none beats in time, in what is
added, and in main memory; see `crosstack.mapping.pipeline`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from crosstack.mapping.budget import Budget
from crosstack.mapping.spans import Label, Spans
from crosstack.model.iteration import stage_time
from crosstack.workload.kernel_graph import Floats, Ints

if TYPE_CHECKING:
    from crosstack.mapping.pipeline import StageProblem

__all__ = ["Ways", "make_ways"]


@dataclass(slots=True)
class Ways:
    """What every way of a stage between two borders keeps waiting, and what it takes. [s]

    ``taken`` and ``added`` have the shape (borders, borders, ways). Without ``fronts`` there is one
    way, the fastest, and a stage that is chosen is checked for what is alive in its middle.
    """

    net: Spans
    nodes: Ints
    taken: Floats
    added: Floats
    fronts: dict[tuple[int, int], list[Label]] | None
    checked: dict[tuple[int, int], tuple[int, ...]]

    def check(self, a: int, b: int) -> None:
        """Price a stage again under all that it has to hold."""
        if self.fronts is not None or (a, b) in self.checked:
            return
        net, start, end = self.net, int(self.nodes[a]), int(self.nodes[b])
        alone, self.checked[a, b] = net.path(start, end)
        sent, held = float(net.out[end // net.labels]), alone * net.microbatch
        slow = stage_time(np.array(held), np.array(sent), net.load.overlap)
        self.taken[a, b, 0] = max(self.taken[a, b, 0], float(slow))
        self.added[a, b, 0] = max(self.added[a, b, 0], held + sent)

    def masks(self, a: int, b: int, k: int) -> tuple[int, ...]:
        """Return the partitions of a way."""
        if self.fronts is None:
            return self.checked[a, b]
        return self.fronts[int(self.nodes[a]), int(self.nodes[b])][k].masks()


def make_ways(problem: StageProblem, net: Spans, nodes: Ints, budget: Budget) -> Ways | None:
    """Return the ways of all stages between two of ``nodes``; None if late."""
    fronts = None
    if problem.priced:
        fronts = net.fronts(nodes, budget)
        if fronts is None:
            return None
        count = max((len(front) for front in fronts.values()), default=1)
        place = {node: position for position, node in enumerate(nodes.tolist())}
        work, price, alive = np.full((3, len(nodes), len(nodes), count), math.inf)
        for (start, end), front in fronts.items():
            cell = place[start], place[end], slice(len(front))
            work[cell] = [label.time for label in front]
            price[cell] = [label.price for label in front]
            alive[cell] = [label.alive for label in front]
    else:
        partitioned = net.times(nodes, budget)
        if partitioned is None:
            return None
        work = partitioned[:, nodes][:, :, None]
        price = np.zeros_like(work)
    at, room = nodes // net.labels, problem.room
    out = net.out[at][None, :, None]
    if net.binds:
        held = (net.held[at][None, :] - net.held[at][:, None])[:, :, None]
        if fronts is None:
            live = net.alive[at]
            alive = net.microbatch * np.maximum(live[:, None], live[None, :])[:, :, None]
        work = np.where(held + alive > room, math.inf, work)
    work = np.where((at[:, None] >= at[None, :])[:, :, None], math.inf, work) * net.microbatch
    added = work + out
    if fronts is not None:
        added = np.where(
            np.isinf(work), math.inf, added + problem.per_layer * price / problem.repeats
        )
    return Ways(
        net=net,
        nodes=nodes,
        taken=stage_time(work, out, net.load.overlap),
        added=added,
        fronts=fronts,
        checked={},
    )
