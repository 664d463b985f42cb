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

from crosstack.errors import InputError, Problem
from crosstack.mapping.slots import unknown_kernel
from crosstack.model.choice_index import ChoiceIndex, axis_names, choice_index, named_axis
from crosstack.workload.kernel_graph import Bools, Floats, Ints, KernelGraph
from crosstack.workload.kernels import Axis
from crosstack.workload.transformer_training import Exchange

MOST_ENTRIES = 2_000_000  # of one table
Sharding = tuple[tuple[str, str], ...]
SPLIT = ("heads", "kv_heads", "feed_forward")  # that no chip has all of
TOKENS = "sequence"


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
    """In which order kernels are eliminated, and the kernels that each table is over.

    The ``largest`` sum of tables has so many entries. [1]
    """

    steps: tuple[_Step, ...]
    scopes: tuple[tuple[int, ...], ...]
    exact: bool
    largest: int


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
    nodes, edges : array, shape (choices,) and (entries,)
        Cost of every choice, and of each edge by the choices of its ends; see `ChoiceIndex`.
    """
    tables = {(i,): nodes[list(domain)] for i, domain in enumerate(domains)}
    return eliminate_tables(domains, tables | _edge_tables(domains, index, edges))


def eliminate_tables(
    domains: Sequence[Sequence[int] | Ints],
    costs: dict[tuple[int, ...], Floats],
    *,
    most: int | None = None,
) -> Elimination:
    """As `eliminate`, of costs over the domains of one kernel or of two, ascending.

    ``most``: entries of one table, `MOST_ENTRIES` if left out. [1]
    """
    order = _order_of(tuple(map(len, domains)), tuple(costs), most or MOST_ENTRIES)
    tables, bound = _eliminated(order, list(costs.values()))
    return Elimination(domains=domains, order=order, tables=tables, bound=float(bound))


def least_of_tables(
    domains: Sequence[Sequence[int] | Ints], costs: dict[tuple[int, ...], Floats], count: int
) -> Floats:
    """Least costs, or bounds on them, of so many models at once that have their domains alike.

    Parameters
    ----------
    costs : dict of array
        As of `eliminate_tables`, those that differ with the models along the first axis.
    count : int
        Models. [1]
    """
    order = _order_of(tuple(map(len, domains)), tuple(costs), MOST_ENTRIES)
    tables, some = list(costs.values()), max(MOST_ENTRIES // order.largest, 1)
    own = [len(kernels) < table.ndim for kernels, table in zip(costs, tables, strict=True)]
    found = np.zeros(count)
    for start in range(0, count, some):
        here = slice(start, start + some)
        each = [t[here] if differs else t for t, differs in zip(tables, own, strict=True)]
        found[here] = _eliminated(order, each)[1]
    return found


def _eliminated(order: _Order, tables: list[Floats]) -> tuple[list[Floats], Floats | float]:
    """Return costs and then messages, and the least costs; tables may have an axis of models."""
    bound: Floats | float = 0.0
    scopes = order.scopes

    def shaped(t: int, shape: tuple[int, ...]) -> Floats:
        table = tables[t]
        models = table.shape[: table.ndim - len(scopes[t])]
        return table.reshape((*models, *shape))

    for step in order.steps:
        for members, axis in step.groups:
            (first, shape), *others = members
            total = shaped(first, shape)
            for t, shape in others:
                total = total + shaped(t, shape)
            message = np.minimum.reduce(total, axis=axis - len(shape))
            if len(shape) > 1:
                tables.append(message)
            else:
                bound = bound + message
    return tables, bound


@lru_cache(maxsize=4096)
def _order_of(sizes: tuple[int, ...], given: tuple[tuple[int, ...], ...], most: int) -> _Order:
    """Eliminate first what leaves the smallest table; ``most`` entries a table. [1]"""
    scopes: list[tuple[int, ...]] = []
    neighbours: list[set[int]] = [set() for _ in sizes]
    at: list[set[int]] = [set() for _ in sizes]  # tables over every kernel

    def add(scope: tuple[int, ...]) -> None:
        for i in scope:
            at[i].add(len(scopes))
            neighbours[i].update(scope)
        scopes.append(scope)

    for scope in given:
        add(scope)

    def left_by(i: int) -> int:
        return math.prod(sizes[j] for j in neighbours[i] if j != i)

    heap = [(left_by(i), i) for i in range(len(sizes))]
    heapq.heapify(heap)
    left, steps, exact, largest = set(range(len(sizes))), list[_Step](), True, 1
    while left:
        size, kernel = heapq.heappop(heap)
        if kernel not in left or size != left_by(kernel):
            continue
        left.discard(kernel)
        bucket, groups = tuple(sorted(at[kernel])), []
        around = neighbours[kernel] - {kernel}
        split = _mini_buckets([(t, scopes[t]) for t in bucket], sizes, most)
        for t in bucket:
            for i in scopes[t]:
                at[i].discard(t)
        for i in around:
            neighbours[i].discard(kernel)
        for scope, grouped in split:
            # The smallest are added up first: few sums are over all kernels of the group.
            members = sorted(grouped, key=lambda t: math.prod(sizes[i] for i in scopes[t]))
            shapes = (tuple(sizes[i] if i in scopes[t] else 1 for i in scope) for t in members)
            axis = scope.index(kernel)
            largest = max(largest, math.prod(sizes[i] for i in scope))
            groups.append((tuple(zip(members, shapes, strict=True)), axis))
            if len(scope) > 1:
                add(scope[:axis] + scope[axis + 1 :])
        for i in around:
            heapq.heappush(heap, (left_by(i), i))
        exact = exact and len(split) == 1
        steps.append(_Step(kernel, bucket, tuple(groups)))
    return _Order(tuple(steps), tuple(scopes), exact, largest)


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
    """Return the choice of every kernel whose sharding is given; `InputError` where none is."""
    number = {name: i for i, name in enumerate(arrays.names)}
    problems, given = [], {}
    for name, along in sharding:
        path = f"constraints.sharding.{name}"
        if name not in number:
            problems.append(unknown_kernel(path, name, number))
            continue
        i = number[name]
        axes, axis = index.axes(i), named_axis(arrays, i, along)
        if axis in axes:
            given[i] = int(index.start[i]) + axes.index(axis)
        else:
            can = ", ".join(axis_names(arrays, i)[each] for each in axes)
            problems.append(Problem(path, f"got {along}; allowed for this kernel: {can}."))
    if problems:
        raise InputError(problems)
    return given


def with_given(index: ChoiceIndex, given: dict[int, int]) -> tuple[tuple[int, ...], ...]:
    """Return the choices each kernel may take when some are given."""
    return tuple((given[i],) if i in given else domain for i, domain in enumerate(index.domains()))


def dominated(
    domains: Sequence[Sequence[int]], terms: Sequence[Floats], index: ChoiceIndex, edges: Floats
) -> list[list[int]]:
    """Drop every choice that another one of the same kernel beats in all respects, until none is.

    Choice a beats b where every array of ``terms`` (choices,) and every cost of an edge
    (entries, costs), for every choice the neighbour still has, is no larger. Some best choice
    survives, whatever non-decreasing function of these terms is minimised.
    """
    left = [list(domain) for domain in domains]
    touching: list[list[tuple[int, int]]] = [[] for _ in domains]  # edges, and where they lead
    ends = zip(index.source.tolist(), index.target.tolist(), strict=True)
    for e, (source, target) in enumerate(ends):
        touching[source].append((e, target))
        touching[target].append((e, source))
    stacked = np.stack(terms, axis=1)  # (choices, terms)

    def costs_no_more(i: int, a: int, b: int) -> bool:
        for e, other in touching[i]:
            if index.source[e] == i:
                better, worse = index.table(e, (a, b), left[other])
            else:
                better, worse = index.table(e, left[other], (a, b)).T
            if not (edges[better] <= edges[worse]).all():
                return False
        return True

    queue = list(range(len(left)))
    while queue:
        i = queue.pop()
        domain = left[i]
        if len(domain) == 1:
            continue
        costs = stacked[domain]
        less: Bools = np.asarray((costs[:, None] <= costs).all(axis=2))
        np.fill_diagonal(less, False)
        dropped = list[int]()
        for b, by in enumerate(less.T):
            if any(costs_no_more(i, domain[a], domain[b]) for a in np.flatnonzero(by).tolist()):
                less[b] = False  # it drops no other
                dropped.append(domain[b])
        if dropped:
            left[i] = [code for code in domain if code not in dropped]
            queue.extend({i, *(other for _, other in touching[i])})
    return left


# ---------------------------------------------------------------- by what is sent


def exchange_sharding(graph: KernelGraph, exchange: Exchange) -> Sharding:
    """Return the sharding of every kernel of a layer over named axes, as constraints take it.

    Kernels that have heads or the width of the feed-forward network are split along those, so that
    the second product of each pair leaves sums to be added up; all others are done by every chip
    (``paired``), or along tokens (``sequence``). Parts of sums are added up once.

    Raises
    ------
    InputError
        For another exchange, which is one of releases, and for a graph without such axes.

    References
    ----------
    shoeybi2019megatron, korthikanti2023reducing
    """
    if exchange is Exchange.GATHERED:
        message = f"got {exchange}; allowed: paired or sequence; gathered is one of releases."
        raise InputError(Problem("exchange", message))
    index = choice_index(graph, named=True)
    beside = (TOKENS, Axis.NONE) if exchange is Exchange.SEQUENCE else (Axis.NONE,)
    found, split = [], False
    for i, name in enumerate(graph.names):
        names = axis_names(graph, i)
        known = [names[axis] for axis in index.axes(i)]
        along = next((axis for axis in (*SPLIT, Axis.PARTIAL, *beside) if axis in known), None)
        split |= along in SPLIT
        found += [] if along is None else [(name, str(along))]
    if not split:
        message = f"got {exchange}; allowed with heads or a feed-forward network, which is split."
        raise InputError(Problem("exchange", message))
    return tuple(found)


def sum_sharding(graph: KernelGraph) -> Sharding:
    """Return products split along their sums, where they may be; other kernels are left free."""
    index = choice_index(graph, named=bool(graph.layouts))
    return tuple(
        (name, Axis.K.value)
        for i, name in enumerate(graph.names)
        if not graph.backward[i] and Axis.K in index.axes(i)
    )
