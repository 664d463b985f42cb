"""Sharding: which choice each kernel takes of how it is split over the tensor-parallel chips.

Sets and parameters: kernels i with choices A_i; cost c_i(a) of kernel i under choice a; cost
e_ij(a, b) of the edge from i to j under choices a and b (layout conversion).
Variables: one choice a_i in A_i per kernel.

(1) minimise sum_i c_i(a_i) + sum_ij e_ij(a_i, a_j)   (``ko2025dfmodel``, equations 5 and 6).

Exact method. A pairwise model: kernels are eliminated one by one, each leaving a table over its
remaining neighbours (variable elimination, ``dechter1999bucket``); width 4 on a transformer
layer. Where a table would grow past ``MOST_ENTRIES`` it is split, which keeps a lower bound.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from crosstack.errors import InputError, Problem, nearest
from crosstack.model.choice_index import ChoiceIndex, axis_names, named_axis
from crosstack.workload.kernel_graph import Floats, Ints, KernelGraph

MOST_ENTRIES = 2_000_000  # of one table


@dataclass(frozen=True, slots=True)
class _Step:
    """One kernel is eliminated: ``tables`` name it, in ``groups`` that each leave one message.

    Tables are numbered as given, then in the order they are sent. A group has the shape of each of
    its tables over all kernels in them, and the place of this kernel there.
    """

    kernel: int
    tables: tuple[int, ...]
    groups: tuple[tuple[tuple[tuple[int, tuple[int, ...]], ...], int], ...]


@dataclass(frozen=True, slots=True)
class _Order:
    """In which order kernels are eliminated, and the kernels that each table is over."""

    steps: tuple[_Step, ...]
    scopes: tuple[tuple[int, ...], ...]
    exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Elimination:
    """The result of eliminating all kernels.

    ``tables`` holds the costs that were given and then the messages. ``bound`` is the least cost,
    or a lower bound on it where ``exact`` is False.
    """

    domains: Sequence[Sequence[int] | Ints]
    order: _Order
    tables: list[Floats]
    bound: float

    @property
    def exact(self) -> bool:
        """Whether no table was split."""
        return self.order.exact

    def best(self) -> Ints:
        """Return the choices of the least cost; of equal ones the first, the last kernel first."""
        steps = self.order.steps
        codes = np.empty(len(steps), dtype=np.int64)
        chosen: dict[int, int | slice] = {}
        for step in reversed(steps):
            domain, position = self.domains[step.kernel], 0
            if len(domain) > 1:
                chosen[step.kernel] = slice(None)
                total = np.zeros(len(domain))
                for t in step.tables:
                    where = tuple(chosen[i] for i in self.order.scopes[t])
                    total = total + self.tables[t][where]
                position = int(total.argmin())
            chosen[step.kernel] = position
            codes[step.kernel] = domain[position]
        return codes


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
    domains: Sequence[Sequence[int] | Ints], costs: dict[tuple[int, ...], Floats]
) -> Elimination:
    """As `eliminate`, of costs by kernel and by pair of kernels, ascending.

    Parameters
    ----------
    domains : sequence of sequences of int
        Choices each kernel may take, perhaps several times.
    costs : dict of array
        Costs over the domains of the kernels in each key.
    """
    order = _order_of(tuple(map(len, domains)), tuple(costs), MOST_ENTRIES)
    tables, constant = list(costs.values()), 0.0
    for step in order.steps:
        for members, axis in step.groups:
            total: Floats | float = 0.0
            for t, shape in members:
                total = total + tables[t].reshape(shape)
            message = np.asarray(total).min(axis=axis)
            if message.ndim:
                tables.append(message)
            else:
                constant += float(message)
    return Elimination(domains=domains, order=order, tables=tables, bound=constant)


@lru_cache(maxsize=4096)
def _order_of(sizes: tuple[int, ...], given: tuple[tuple[int, ...], ...], most: int) -> _Order:
    """Eliminate first what has the fewest neighbours.

    Parameters
    ----------
    sizes : tuple of int
        Choices of every kernel. [1]
    given : tuple of tuples of int
        Kernels of every table, ascending.
    most : int
        Entries of one table. [1]
    """
    scopes = list(given)
    neighbours: list[set[int]] = [set() for _ in sizes]
    at: list[set[int]] = [set() for _ in sizes]
    for t, scope in enumerate(scopes):
        for i in scope:
            at[i].add(t)
            neighbours[i].update(scope)
    heap = [(len(neighbours[i]), i) for i in range(len(sizes))]
    heapq.heapify(heap)
    left = set(range(len(sizes)))
    steps: list[_Step] = []
    exact = True
    while left:
        size, kernel = heapq.heappop(heap)
        if kernel not in left or size != len(neighbours[kernel]):
            continue
        left.discard(kernel)
        bucket = tuple(sorted(at[kernel]))
        groups = []
        around = neighbours[kernel] - {kernel}
        split = _mini_buckets([(t, scopes[t]) for t in bucket], sizes, most)
        for t in bucket:
            for i in scopes[t]:
                at[i].discard(t)
        for i in around:
            neighbours[i].discard(kernel)
        for scope, members in split:
            shapes = (tuple(sizes[i] if i in scopes[t] else 1 for i in scope) for t in members)
            axis = scope.index(kernel)
            groups.append((tuple(zip(members, shapes, strict=True)), axis))
            rest = scope[:axis] + scope[axis + 1 :]
            if not rest:
                continue
            for i in rest:
                at[i].add(len(scopes))
                neighbours[i].update(rest)
            scopes.append(rest)
        for i in around:
            heapq.heappush(heap, (len(neighbours[i]), i))
        exact = exact and len(split) == 1
        steps.append(_Step(kernel, bucket, tuple(groups)))
    return _Order(tuple(steps), tuple(scopes), exact)


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


def _mini_buckets(
    bucket: Sequence[tuple[int, tuple[int, ...]]], sizes: Sequence[int], most: int
) -> list[tuple[tuple[int, ...], list[int]]]:
    """Group tables and the kernels they are over so that none grows past ``most``."""
    groups: list[tuple[set[int], list[int]]] = []
    for t, kernels in sorted(bucket, key=lambda table: -len(table[1])):
        for scope, members in groups:
            joined = scope | set(kernels)
            if math.prod(sizes[i] for i in joined) <= most and len(joined) <= 30:
                scope.update(joined)
                members.append(t)
                break
        else:
            groups.append((set(kernels), [t]))
    return [(tuple(sorted(scope)), members) for scope, members in groups]


# ---------------------------------------------------------------- given shardings and dominance


def given_choices(
    arrays: KernelGraph, sharding: Sequence[tuple[str, str]], index: ChoiceIndex
) -> dict[int, int]:
    """Return the choice of every kernel whose sharding is given.

    Raises
    ------
    InputError
        For unknown kernels and axes the kernel cannot be split along.
    """
    number = {name: i for i, name in enumerate(arrays.names)}
    problems, given = [], {}
    for name, along in sharding:
        path = f"constraints.sharding.{name}"
        if name not in number:
            close = ", ".join(f'"{c}"' for c in nearest(name, number))
            hint = f" Nearest: {close}." if close else ""
            problems.append(Problem(path, f'no kernel is called "{name}".{hint}'))
            continue
        i = number[name]
        axes, axis = index.axes(i), named_axis(arrays, i, along)
        if axis not in axes:
            can = ", ".join(axis_names(arrays, i)[each] for each in axes)
            problems.append(Problem(path, f"got {along}; allowed for this kernel: {can}."))
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
