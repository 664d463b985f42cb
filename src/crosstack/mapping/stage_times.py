"""What every stage from one order ideal to a larger one takes, for many pairs of them at once.

A stage is a shortest path over the ideals between its borders (`crosstack.mapping.pipeline`). Where
the objective adds to what partitions move, a slower one may be cheaper, so all are kept that none
beats in time, in what is added, and in main memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from crosstack.machine.chip import Overlap
from crosstack.mapping.budget import CALL, Budget
from crosstack.mapping.ideals import IdealTables
from crosstack.mapping.shortest import valid_ideals
from crosstack.mapping.temporal_steps import make_steps
from crosstack.model.iteration import border_time, stage_time
from crosstack.model.partition import ChipLoad
from crosstack.workload.kernel_graph import Bools, Floats, Ints

if TYPE_CHECKING:
    from crosstack.mapping.pipeline import StageProblem

MOST_LABELS = 400_000  # of all stages of a problem


def _front(labels: list[Label]) -> list[Label]:
    """Return the labels that no other one beats."""
    kept = list[Label]()
    for label in sorted(labels, key=lambda one: (one.time, one.price, one.alive)):
        if not any(other.beats(label) for other in kept):
            kept.append(label)
    return kept


def on_one_chip(load: ChipLoad) -> ChipLoad:
    """Return a load whose best sequence of partitions no stages beat in sum.

    Every weight stays on the chip, and the main memory holds all tensors.
    """
    weights = (0.0,) * load.n
    return replace(load, weight_time=weights, resident_alone=False, memory_limit=math.inf)


@dataclass(frozen=True, slots=True)
class _Leaving:
    """Steps that leave an ideal: time with weights read, with weights kept [s], bytes alive [B].

    ``read_price`` and ``kept_price`` are what the objective adds to either. [s]
    """

    to: Ints
    read: Floats
    kept: Floats
    alive: Floats
    read_price: Floats
    kept_price: Floats


@dataclass(frozen=True, slots=True)
class Label:
    """Partitions from the start of a stage: their time, what the objective adds [s], bytes alive.

    ``mask`` is the last partition, ``before`` what comes before it.
    """

    time: float
    price: float
    alive: float
    mask: int = 0
    before: Label | None = None

    def masks(self) -> tuple[int, ...]:
        """Return the partitions in order."""
        found, here = list[int](), self
        while here.before is not None:
            found.append(here.mask)
            here = here.before
        return tuple(reversed(found))

    def beats(self, other: Label) -> bool:
        """Whether it is no worse in any respect."""
        return self.time <= other.time and self.price <= other.price and self.alive <= other.alive


class StageTimes:
    """Stages between any two ideals of ``tables``, none longer than ``limit`` for a microbatch. [s]

    A node is an ideal and the number of partitions up to it: ``ideal x labels + number``; without
    a limit on partitions there is one label.
    """

    def __init__(self, problem: StageProblem, tables: IdealTables, limit: float) -> None:
        self.problem, self.tables = problem, tables
        self.prices = problem.load.memory_price, problem.load.network_price
        load = self.load = replace(problem.load, memory_price=0.0, network_price=0.0)
        self.steps = make_steps(on_one_chip(load), tables)
        self.so_far, self.rest = self.steps.so_far, self.steps.rest
        self.steps.rest = np.zeros_like(self.rest)  # of a stage: nothing has to follow
        member = tables.member.astype(float)
        self.weights = member @ np.array(load.weight_time)
        self.held = member @ np.array(load.kept)
        self.size = np.array([flow.held for flow in load.flows])  # in main memory
        self.alive = tables.live @ self.size
        self.cut = np.array([cost.cuts > 1 for cost in self.steps.alone])
        self.microbatch = problem.plan.microbatch_size
        self.binds = self.held[-1] + self.microbatch * self.size.sum() > problem.room
        slots = problem.fusion.slots
        self.labels = 1 if slots is None else slots.count + 1
        valid = np.ones((1, len(tables.masks)), dtype=np.bool_)
        self.valid: Bools = valid if slots is None else valid_ideals(slots, tables)
        self.out = border_time(problem.plan, tables.live @ np.array([f.total for f in load.flows]))
        self.out[-1] = problem.last_transfer
        self.leaving: dict[int, _Leaving] = {}
        self.longest = limit  # of a stage, for one microbatch

    def borders(self) -> Ints:
        """Ideals that may stand between stages, the empty and the full one among them."""
        p, longest, room = self.problem, self.longest, self.problem.room or 1.0
        before = np.maximum(self.so_far * self.microbatch / longest, self.held / room)
        left = self.held[-1] - self.held
        after = np.maximum(self.rest * self.microbatch / longest, left / room)
        # Rounding drops none.
        stages = np.ceil(before - 1e-9) + np.ceil(after - 1e-9)
        good = (stages <= len(p.slots)) & (self.out < longest)
        good[[0, -1]] = True
        return np.flatnonzero(good)

    def _leave(self, j: int) -> _Leaving:
        """Return the steps that leave ideal ``j``, faster than any stage may be."""
        tables, load = self.tables, self.load
        terms = self.steps.terms(j, self.longest / self.microbatch)
        if self.problem.one_by_one:
            terms = terms.part(tables.count[terms.to] == tables.count[j] + 1)
        to, kept = terms.to, terms.time
        weights = self.weights[to] - self.weights[j]
        if load.overlap is Overlap.NONE:
            read = kept + weights
        else:
            beside = terms.network if load.overlap is Overlap.COMPUTE_MEMORY else 0.0
            read = np.maximum(kept - beside, terms.memory + weights) + beside
        stays = np.full(len(to), load.resident_alone)
        alone = tables.count[to] == tables.count[j] + 1
        kernel = (tables.member[to[alone]] & ~tables.member[j]).argmax(axis=1)
        stays[alone] &= ~self.cut[kernel]  # a weight that is cut cannot stay
        kept = np.where(stays, kept, read)
        memory_price, network_price = self.prices
        read_price = memory_price * (terms.memory + weights) + network_price * terms.network
        kept_price = read_price - memory_price * weights * stays
        alive = np.zeros(len(to))
        if self.binds:
            alive = self.microbatch * ((tables.live[to] | tables.live[j]) @ self.size)
            fits = self.held[to] - self.held[j] + alive <= self.problem.room
            to, read, kept, alive = to[fits], read[fits], kept[fits], alive[fits]
            read_price, kept_price = read_price[fits], kept_price[fits]
        return _Leaving(to, read, kept, alive, read_price, kept_price)

    def nodes(self, ideals: Ints) -> Ints:
        """Return the nodes of some ideals that a border may have, ascending."""
        nodes = (ideals[:, None] * self.labels + np.arange(self.labels)).ravel()
        return np.asarray(nodes[self.valid[nodes % self.labels, nodes // self.labels]])

    def moves(self, nodes: Ints) -> list[tuple[Ints, Ints]]:
        """Return positions among ``nodes`` that an empty partition joins, by its number."""
        labels, into = nodes % self.labels, np.isin(nodes - 1, nodes)
        targets = [np.flatnonzero((labels == p) & into) for p in range(1, self.labels)]
        return [(np.searchsorted(nodes, nodes[target] - 1), target) for target in targets]

    def follow(self, j: int, p: int) -> tuple[_Leaving, Bools, Ints]:
        """Return the steps that leave a node, which of them are allowed, and the nodes of those."""
        if j not in self.leaving:
            self.leaving[j] = self._leave(j)
        found, number = self.leaving[j], p if self.labels == 1 else p + 1
        if number >= self.labels:
            return found, np.zeros(len(found.to), dtype=np.bool_), found.to[:0]
        good = self.valid[number, found.to]
        return found, good, found.to[good] * self.labels + number

    def along(self, rows: Ints, budget: Budget, *, most_alive: bool = False) -> Floats | None:
        """Least time from each node of ``rows`` to any, weights read; None if late. [s]

        With ``most_alive`` least main memory for tensors instead: the most of any partition. [B]
        """
        labels, n = self.labels, len(self.tables.masks)
        limit = self.longest / self.microbatch
        least = np.full((len(rows), n * labels), math.inf)
        least[np.arange(len(rows)), rows] = 0.0
        for j in range(n):
            for p in range(labels):
                column = least[:, j * labels + p]
                if p and self.valid[p, j]:  # an empty partition
                    np.minimum(column, least[:, j * labels + p - 1], out=column)
                active = np.flatnonzero(column < limit)
                if j == n - 1 or not len(active):
                    continue
                found, good, target = self.follow(j, p)
                if budget.spend(CALL + len(active) * len(target) // 50):
                    return None
                before, cells = column[active][:, None], np.ix_(active, target)
                if most_alive:
                    reached = np.maximum(before, found.alive[good][None, :])
                else:
                    reached = before + found.read[good][None, :]
                least[cells] = np.minimum(least[cells], reached)
        return least

    def times(self, rows: Ints, budget: Budget) -> Floats | None:
        """Time of the best stage from each node of ``rows`` to any, or None if late. [s]"""
        least, n = self.along(rows, budget), len(self.tables.masks)
        if least is None or not self.load.resident_alone:
            return least
        for row, node in enumerate(rows.tolist()):
            if node // self.labels < n - 1:
                found, good, target = self.follow(*divmod(node, self.labels))
                least[row, target] = np.minimum(least[row, target], found.kept[good])
        return least

    def fronts(self, rows: Ints, budget: Budget) -> dict[tuple[int, int], list[Label]] | None:
        """Return by nodes of ``rows`` what no other stage between them beats; None if late.

        In time, in what the objective adds, and in bytes alive.
        """
        labels, n, wanted = self.labels, len(self.tables.masks), set(rows.tolist())
        limit, found, made = self.longest / self.microbatch, {}, 0
        for start in rows.tolist():
            reached: dict[int, list[Label]] = {start: [Label(0.0, 0.0, 0.0)]}
            whole: dict[int, Label] = {}
            for node in range(start, n * labels):
                j, p = divmod(node, labels)
                here = reached.get(node, [])
                if p and self.valid[p, j]:  # an empty partition
                    here = [*here, *reached.get(node - 1, [])]
                here = reached[node] = _front(here)
                if node != start and node in wanted and (here or node in whole):
                    more = [whole[node]] if node in whole else []
                    found[start, node] = _front([*here, *more])
                if j == n - 1 or not here:
                    continue
                leaving, good, target = self.follow(j, p)
                made += len(here) * len(target)
                if made > MOST_LABELS or budget.spend(CALL + len(here) * len(target)):
                    return None
                columns = (leaving.read, leaving.read_price, leaving.alive, leaving.kept,
                           leaving.kept_price)  # fmt: skip
                steps = zip(target.tolist(), *(c[good].tolist() for c in columns), strict=True)
                for to, time, price, alive, kept, kept_price in steps:
                    mask = self.tables.masks[to // labels] ^ self.tables.masks[j]
                    if node == start:
                        whole[to] = Label(kept, kept_price, alive, mask, here[0])
                    reached.setdefault(to, []).extend(
                        Label(one.time + time, one.price + price, max(one.alive, alive), mask, one)
                        for one in here
                        if one.time + time < limit
                    )
        return found

    def path(self, start: int, end: int) -> tuple[float, tuple[int, ...]]:
        """Best partitions of the stage between two nodes that keep to its memory, and their time.

        The time is infinite where there are none.
        """
        tables, labels = self.tables, self.labels
        i, k = start // labels, end // labels
        room = self.problem.room - (self.held[k] - self.held[i])
        inside = ((tables.words[: k + 1] & ~tables.words[k]) == 0).all(axis=1)
        taken = np.full((k + 1) * labels, math.inf)
        parent = np.full((k + 1) * labels, -1, dtype=np.int64)
        taken[start] = 0.0
        for j in (np.flatnonzero(inside[i:]) + i).tolist():
            for p in range(labels):
                node = j * labels + p
                if p and self.valid[p, j] and taken[node - 1] < taken[node]:
                    taken[node], parent[node] = taken[node - 1], node - 1
                if j == k or math.isinf(taken[node]):
                    continue
                found, good, target = self.follow(j, p)
                fits = target // labels <= k
                fits[fits] = inside[target[fits] // labels]
                if self.binds:
                    fits &= found.alive[good] <= room
                target, steps = target[fits], found.read[good][fits]
                if node == start:  # the whole stage in one partition
                    steps = np.where(target == end, found.kept[good][fits], steps)
                reached = taken[node] + steps
                better = reached < taken[target]
                taken[target[better]] = reached[better]
                parent[target[better]] = node
        masks, node = list[int](), end
        while node != start and math.isfinite(taken[end]):
            before = int(parent[node])
            masks.append(tables.masks[node // labels] ^ tables.masks[before // labels])
            node = before
        return float(taken[end]), tuple(reversed(masks))


@dataclass(slots=True)
class StageChoices:
    """What every way of a stage between two borders keeps waiting, and what it takes. [s]

    ``taken`` and ``added`` have the shape (borders, borders, ways). Without ``fronts`` there is one
    way, the fastest, and a stage that is chosen is checked for what is alive in its middle.
    """

    net: StageTimes
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


def make_stage_choices(
    problem: StageProblem, net: StageTimes, nodes: Ints, budget: Budget
) -> StageChoices | None:
    """Return the ways of all stages between two of ``nodes``; None if late."""
    fronts = net.fronts(nodes, budget) if problem.priced else None
    if fronts is not None:
        count = max((len(front) for front in fronts.values()), default=1)
        place = {node: position for position, node in enumerate(nodes.tolist())}
        work, price, alive = np.full((3, len(nodes), len(nodes), count), math.inf)
        for (start, end), front in fronts.items():
            cell = place[start], place[end], slice(len(front))
            work[cell] = [label.time for label in front]
            price[cell] = [label.price for label in front]
            alive[cell] = [label.alive for label in front]
    else:
        partitioned = None if problem.priced else net.times(nodes, budget)
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
    return StageChoices(
        net=net,
        nodes=nodes,
        taken=stage_time(work, out, net.load.overlap),
        added=added,
        fronts=fronts,
        checked={},
    )
