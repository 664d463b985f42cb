"""Sharding: which choice each kernel takes of how it is split over the tensor-parallel chips.

Sets and parameters: kernels i with choices A_i; cost c_i(a) of kernel i under choice a; cost
e_ij(a, b) of the edge from i to j under choices a and b (layout conversion).
Variables: one choice a_i in A_i per kernel.

(1) minimise sum_i c_i(a_i) + sum_ij e_ij(a_i, a_j)   (``ko2025dfmodel``, equations 5 and 6).

Exact method. A pairwise model: kernels are eliminated one by one, each leaving a table over its
remaining neighbours (variable elimination, ``dechter1999bucket``); width 4 on a transformer
layer. Where a table would grow past ``MOST_ENTRIES`` it is split, which keeps a lower bound.
Solutions come back in ascending order of cost, so ties and near-ties can be listed.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import InputError, Problem, nearest
from crosstack.model.choice_index import ChoiceIndex
from crosstack.workload.kernel_graph import Ints, KernelGraph
from crosstack.workload.kernels import Axis

__all__ = [
    "Elimination",
    "dominated",
    "eliminate",
    "eliminate_tables",
    "given_choices",
    "with_given",
]

Floats = NDArray[np.float64]
MOST_ENTRIES = 2_000_000  # of one table


@dataclass(frozen=True, slots=True)
class _Table:
    """Costs over the choices of the kernels in ``scope`` (ascending), one dimension each."""

    scope: tuple[int, ...]
    values: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Elimination:
    """The result of eliminating all kernels.

    ``bound`` is the least cost, or a lower bound on it where ``exact`` is False.
    """

    domains: tuple[tuple[int, ...], ...]
    sequence: tuple[int, ...]
    buckets: tuple[tuple[_Table, ...], ...]
    messages: tuple[_Table | None, ...]
    bound: float
    exact: bool

    def best(self) -> Ints:
        """Return the choices of the least cost, the first of `solutions`."""
        codes = np.empty(len(self.sequence), dtype=np.int64)
        chosen: dict[int, int] = {}
        for step in reversed(range(len(self.sequence))):
            kernel = self.sequence[step]
            chosen[kernel] = int(self._increase(step, chosen).argmin())
            codes[kernel] = self.domains[kernel][chosen[kernel]]
        return codes

    def solutions(self) -> Iterator[tuple[float, Ints]]:
        """Yield (cost, choices) in ascending order of cost; exact eliminations only.

        With a split table the order is by lower bound and the cost is that bound.
        """
        n = len(self.sequence)
        backwards = tuple(reversed(range(n)))
        ticket = itertools.count()
        heap: list[tuple[float, int, int, tuple[int, ...]]] = [(self.bound, 0, next(ticket), ())]
        while heap:
            cost, depth, _, choice = heapq.heappop(heap)
            if -depth == n:
                codes = np.empty(n, dtype=np.int64)
                for step, position in zip(backwards, choice, strict=True):
                    kernel = self.sequence[step]
                    codes[kernel] = self.domains[kernel][position]
                yield cost, codes
                continue
            step = backwards[-depth]
            chosen = dict(zip((self.sequence[s] for s in backwards), choice, strict=False))
            for position, added in enumerate(self._increase(step, chosen)):
                if np.isfinite(added):
                    entry = (cost + added, depth - 1, next(ticket), (*choice, position))
                    heapq.heappush(heap, entry)

    def _increase(self, step: int, chosen: dict[int, int]) -> Floats:
        """Cost over the completion already counted, for each choice of the kernel of ``step``."""
        kernel = self.sequence[step]
        total = np.zeros(len(self.domains[kernel]))
        for table in self.buckets[step]:
            where = tuple(slice(None) if i == kernel else chosen[i] for i in table.scope)
            total = total + table.values[where]
        message = self.messages[step]
        counted = 0.0
        if message is not None:
            counted = float(message.values[tuple(chosen[i] for i in message.scope)])
        elif len(total):
            counted = float(total.min())
        return np.asarray(total - counted)


def eliminate(
    domains: Sequence[Sequence[int]], nodes: Floats, index: ChoiceIndex, edges: Floats
) -> Elimination:
    """Minimise a pairwise model exactly, or bound it from below where it is too wide.

    Parameters
    ----------
    domains : sequence of sequences of int
        Choices each kernel may take.
    nodes : array, shape (choices,)
        Cost of every choice.
    index : ChoiceIndex
        Where the choices and the entries of edges are.
    edges : array, shape (entries,)
        Cost of each edge by the choices of its ends.
    """
    tables = {(i,): nodes[list(domain)] for i, domain in enumerate(domains)}
    return eliminate_tables(domains, tables | _edge_tables(domains, index, edges))


def eliminate_tables(
    domains: Sequence[Sequence[int]], costs: dict[tuple[int, ...], Floats]
) -> Elimination:
    """As `eliminate`, of costs by kernel and by pair of kernels, ascending.

    Parameters
    ----------
    domains : sequence of sequences of int
        Choices each kernel may take, perhaps several times.
    costs : dict of array
        Costs over the domains of the kernels in each key.
    """
    n = len(domains)
    tables = [_Table(scope, values) for scope, values in costs.items()]
    neighbours: list[set[int]] = [set() for _ in range(n)]
    at: list[set[int]] = [set() for _ in range(n)]
    for t, table in enumerate(tables):
        for i in table.scope:
            at[i].add(t)
            neighbours[i].update(table.scope)
    heap = [(len(neighbours[i]), i) for i in range(n)]
    heapq.heapify(heap)
    left = set(range(n))
    sequence: list[int] = []
    buckets: list[tuple[_Table, ...]] = []
    messages: list[_Table | None] = []
    constant, exact = 0.0, True
    while left:
        size, kernel = heapq.heappop(heap)
        if kernel not in left or size != len(neighbours[kernel]):
            continue
        left.discard(kernel)
        bucket = [tables[t] for t in sorted(at[kernel])]
        groups = _mini_buckets(bucket, domains)
        exact = exact and len(groups) == 1
        sent: list[_Table] = []
        for group in groups:
            sent.append(_minimise_out(kernel, group, domains))
        for t in at[kernel].copy():
            for i in tables[t].scope:
                at[i].discard(t)
        around = neighbours[kernel] - {kernel}
        for i in around:
            neighbours[i].discard(kernel)
        for message in sent:
            if not message.scope:
                constant += float(message.values)
                continue
            tables.append(message)
            for i in message.scope:
                at[i].add(len(tables) - 1)
                neighbours[i].update(message.scope)
        for i in around:
            heapq.heappush(heap, (len(neighbours[i]), i))
        sequence.append(kernel)
        buckets.append(tuple(bucket))
        whole = sent[0] if len(groups) == 1 and sent[0].scope else None
        messages.append(whole)
    return Elimination(
        domains=tuple(tuple(domain) for domain in domains),
        sequence=tuple(sequence),
        buckets=tuple(buckets),
        messages=tuple(messages),
        bound=constant,
        exact=exact,
    )


def _edge_tables(
    domains: Sequence[Sequence[int]], index: ChoiceIndex, edges: Floats
) -> dict[tuple[int, ...], Floats]:
    summed: dict[tuple[int, ...], Floats] = {}
    paid = index.most(edges) > 0
    ends = zip(index.source.tolist(), index.target.tolist(), strict=True)
    for e, (source, target) in enumerate(ends):
        if not paid[e]:
            continue
        values = edges[index.table(e, domains[source], domains[target])]
        key = (source, target) if source < target else (target, source)
        values = values if source < target else values.T
        summed[key] = summed[key] + values if key in summed else values
    return {key: values for key, values in summed.items() if values.any()}


def _mini_buckets(bucket: list[_Table], domains: Sequence[Sequence[int]]) -> list[list[_Table]]:
    """Group the tables of a bucket so that no product grows past `MOST_ENTRIES`."""
    groups: list[tuple[set[int], list[_Table]]] = []
    for table in sorted(bucket, key=lambda t: -len(t.scope)):
        for scope, members in groups:
            joined = scope | set(table.scope)
            if _entries(joined, domains) <= MOST_ENTRIES and len(joined) <= 30:
                scope |= set(table.scope)
                members.append(table)
                break
        else:
            groups.append((set(table.scope), [table]))
    return [members for _, members in groups]


def _entries(scope: set[int], domains: Sequence[Sequence[int]]) -> int:
    entries = 1
    for i in scope:
        entries *= len(domains[i])
    return entries


def _minimise_out(kernel: int, group: list[_Table], domains: Sequence[Sequence[int]]) -> _Table:
    scope = tuple(sorted({i for table in group for i in table.scope}))
    total: Floats = np.zeros([len(domains[i]) for i in scope])
    for table in group:
        shape = [len(domains[i]) if i in table.scope else 1 for i in scope]
        total = total + table.values.reshape(shape)
    axis = scope.index(kernel)
    return _Table(scope[:axis] + scope[axis + 1 :], np.asarray(total.min(axis=axis)))


# ---------------------------------------------------------------- given shardings and dominance


def given_choices(
    arrays: KernelGraph, sharding: Sequence[tuple[str, Axis]], index: ChoiceIndex
) -> dict[int, int]:
    """Return the choice of every kernel whose sharding is given.

    Raises
    ------
    InputError
        For unknown kernels and axes the kernel cannot be split along.
    """
    number = {name: i for i, name in enumerate(arrays.names)}
    problems, given = [], {}
    for name, axis in sharding:
        path = f"constraints.sharding.{name}"
        if name not in number:
            close = ", ".join(f'"{c}"' for c in nearest(name, number))
            hint = f" Nearest: {close}." if close else ""
            problems.append(Problem(path, f'no kernel is called "{name}".{hint}'))
            continue
        i = number[name]
        axes = index.axes(i)
        if axis not in axes:
            can = ", ".join(axes)
            problems.append(Problem(path, f"got {axis.value}; allowed for this kernel: {can}."))
            continue
        given[i] = int(index.start[i]) + axes.index(axis)
    if problems:
        raise InputError(problems)
    return given


def with_given(index: ChoiceIndex, given: dict[int, int]) -> tuple[tuple[int, ...], ...]:
    """Return the choices each kernel may take when some are given."""
    return tuple((given[i],) if i in given else domain for i, domain in enumerate(index.domains()))


def dominated(
    domains: Sequence[Sequence[int]],
    terms: Sequence[Floats],
    index: ChoiceIndex,
    edges: Floats,
) -> list[list[int]]:
    """Drop every choice that another one of the same kernel beats in all respects, until none is.

    Choice a beats b where every array of ``terms`` (choices,) and every cost of an edge
    (entries, costs), for every choice the neighbour still has, is no larger. Some best choice
    survives, whatever non-decreasing function of these terms is minimised.
    """
    left = [list(domain) for domain in domains]
    touching: list[list[int]] = [[] for _ in domains]
    sources, targets = index.source.tolist(), index.target.tolist()
    for e, (source, target) in enumerate(zip(sources, targets, strict=True)):
        touching[source].append(e)
        touching[target].append(e)
    stacked = np.stack(terms, axis=1)  # (choices, terms)
    queue = list(range(len(left)))
    while queue:
        i = queue.pop()
        dropped = False
        for b in list(left[i]):
            for a in left[i]:
                if a == b or not (stacked[a] <= stacked[b]).all():
                    continue
                if _edges_beat(i, a, b, touching[i], index, edges, left):
                    left[i].remove(b)
                    dropped = True
                    break
        if dropped:
            queue.extend({sources[e] for e in touching[i]} | {targets[e] for e in touching[i]})
    return left


def _edges_beat(
    i: int,
    a: int,
    b: int,
    touching: list[int],
    index: ChoiceIndex,
    edges: Floats,
    left: list[list[int]],
) -> bool:
    for e in touching:
        if index.source[e] == i:
            better, worse = index.table(e, (a, b), left[int(index.target[e])])
        else:
            better, worse = index.table(e, left[int(index.source[e])], (a, b)).T
        if not (edges[better] <= edges[worse]).all():
            return False
    return True
