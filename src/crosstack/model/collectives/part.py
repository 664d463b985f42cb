"""What a rule set says of what collectives take."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, assert_never

from crosstack.errors import require
from crosstack.machine.network import KINDS, NetworkLevel
from crosstack.machine.system import (
    AllReduceAlgorithm,
    Dimension,
    Parallelism,
    System,
    dimension_sizes,
)
from crosstack.model.collectives.compose import collective_lines, is_legal
from crosstack.model.collectives.group import Extent, Group, domain_group, group_of, neighbour_link
from crosstack.model.collectives.layouts import Layout, LayoutChange, layout_change
from crosstack.model.collectives.times import NONE, NOTHING, Arrival, ConcaveTime
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernels import Collective, Placement

Changes = Mapping[tuple[Layout, frozenset[Layout]], LayoutChange]
_WHOLE = (Layout.REPLICATED, Layout.ROWS, Layout.COLUMNS)
Row = tuple[int, Parallelism, int]  # a size, its use and the place of its dimension


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkUse:
    """What the dimensions of a network, or factors of them, are used for, innermost first.

    ``sizes``, ``parallelism`` and ``places`` (the dimension of each size) are those of a mapping;
    ``domain_size`` and ``all_reduce`` as in `crosstack.machine.system.System`. ``arrival`` is what
    a chip takes for what arrives.
    """

    dimensions: tuple[Dimension, ...]
    sizes: tuple[int, ...]
    parallelism: tuple[Parallelism, ...]
    places: tuple[int, ...] = ()
    domain_size: int | None = None
    all_reduce: AllReduceAlgorithm | None = None
    arrival: Arrival = NONE

    @classmethod
    def of(
        cls,
        system: System,
        sizes: tuple[int, ...],
        parallelism: tuple[Parallelism, ...],
        dtype: Dtype,
        places: tuple[int, ...] = (),
    ) -> NetworkUse:
        """Return how a system's network is used, by numbers of a type."""
        return cls(
            dimensions=system.network,
            sizes=sizes,
            parallelism=parallelism,
            places=places,
            domain_size=system.domain_size,
            all_reduce=system.all_reduce,
            arrival=Arrival.of(system.chip, dtype),
        )

    def used_for(self, use: Parallelism) -> list[tuple[Dimension, int]]:
        """Return the dimensions of one parallelism, and their sizes, or those of their factors."""
        return [(self.dimensions[place], size) for size, p, place in self.rows if p is use]

    @property
    def rows(self) -> Iterator[Row]:
        """Every size, with its use and the place of its dimension."""
        places = self.places or tuple(range(len(self.sizes)))
        return zip(self.sizes, self.parallelism, places, strict=True)

    def _of(self, rows: Sequence[Row]) -> NetworkUse:
        """Return the same network with other rows."""
        sizes, uses, places = zip(*rows, strict=True)
        alone = places == tuple(range(len(self.dimensions)))
        return replace(self, sizes=sizes, parallelism=uses, places=() if alone else places)

    @property
    def data_parallel(self) -> NetworkUse:
        """The same use where all chips that have the same weights, but for experts, are one group.

        Those that have parts of the experts or of sequences are side by side with those that split
        the batch, on one dimension as if these were all there are.
        """
        return self._as_data(Parallelism.EXPERT, Parallelism.CONTEXT)

    @property
    def of_replicas(self) -> NetworkUse:
        """The same use where chips that share sequences are data-parallel ones."""
        return self._as_data(Parallelism.CONTEXT)

    def with_groups(self, chips: int) -> NetworkUse | None:
        """The same use where so many tensor-parallel chips, the nearest, are a group. [1]

        Those of other groups are chips of experts, of one dimension with those that are. None where
        some group would be a part of a level whose chips have neighbours, or none of a level.
        """
        tensor, expert = Parallelism.TENSOR, Parallelism.EXPERT
        rows, left = list[Row](), chips
        for size, use, place in self.rows:
            others = size if use is expert else 1
            if use is tensor:
                own = math.gcd(size, left)
                neighbours = KINDS[self.dimensions[place].kind].by_neighbours
                if own not in (size, left) or (1 < own < size and neighbours):
                    return None
                left, others = left // own, size // own
                rows += [(own, tensor, place)] if own > 1 or others == 1 else []
            elif use is not expert:
                rows.append((size, use, place))
            if others > 1 or use is expert:
                known = [i for i, row in enumerate(rows) if row[1:] == (expert, place)]
                others *= rows.pop(known[0])[0] if known else 1
                rows.append((others, expert, place))
        return self._of(rows) if left == 1 else None

    def _as_data(self, *uses: Parallelism) -> NetworkUse:
        """Return the same use where some are data parallelism, next to which they are one group."""
        if not {*uses} & {*self.parallelism}:
            return self
        data, rows = Parallelism.DATA, list[Row]()
        for size, use, place in self.rows:
            now = data if use in uses else use
            beside = now is data and bool(rows) and rows[-1][1:] == (data, place)
            rows.append((size * (rows.pop()[0] if beside else 1), now, place))
        return self._of(rows)

    def extents(self, use: Parallelism) -> tuple[Extent, ...]:
        """Return the chips of one parallelism, level by level."""
        sizes = dimension_sizes(self.sizes, self.places)
        numbers = (i for i, p in enumerate(self.parallelism) if p is use)
        groups = (group_of(self.dimensions, sizes, self.sizes, number) for number in numbers)
        return tuple(extent for group in groups for extent in group.extents)

    def degree(self, use: Parallelism) -> int:
        """Chips of one parallelism. [1]"""
        return math.prod(size for _, size in self.used_for(use))


@dataclass(frozen=True, slots=True, kw_only=True)
class NearShards:
    """Shares of the data-parallel chips that the fastest links join; numbers, or arrays of many.

    ``chips`` are those of one such group [1]; ``scatter`` is the time of a sum that leaves each of
    them its share, ``gather`` of sending shares round, ``across`` of the sum of all shares over the
    groups, all by the bytes of what is shared. [s]
    """

    chips: Any = 1
    scatter: ConcaveTime = NOTHING
    gather: ConcaveTime = NOTHING
    across: ConcaveTime = NOTHING


NO_SHARES = NearShards()


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRoute:
    """Where tokens go: ``copies`` of each, to experts in ``nodes`` parts, ``reached`` at most. [1]

    0: to any, whatever the parts. ``once``: to each chip, and each server, once, however many of
    the experts that a token goes to are there.
    """

    copies: float = 1.0
    nodes: float = 0.0
    reached: float = 0.0
    once: bool = False

    def distinct(self, places: int) -> float:
        """Return the share of copies that go to different ones of so many places. [1]

        Where each copy goes to any of p places as often: ``p (1 - (1 - 1 / p)^k)`` of k on average.
        """
        if not self.once:
            return 1.0
        missed: float = (1 - 1 / places) ** self.copies
        return places * (1 - missed) / self.copies

    def crossing(self, servers: int) -> float:
        """Return the share of copies that pass between so many servers. [1]

        One for each server that a token reaches at most, ``min(k, servers, M ceil(servers / n))``
        of k for M of n parts; `distinct` ones where it may go to any.
        """
        if not self.nodes:
            return self.distinct(servers)
        reached = self.reached * math.ceil(servers / self.nodes)
        return min(self.copies, servers, reached) / self.copies


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """Chips that have the same routed experts; numbers, or arrays of many.

    ``chips`` are they [1]; ``periodic`` is the time of their all-reduce, ``scatter``, ``gather``
    and ``near`` as those of `crosstack.model.mesh_plan.MeshPlan`, by bytes. [s]
    """

    chips: Any = 1
    periodic: ConcaveTime = NOTHING
    scatter: ConcaveTime = NOTHING
    gather: ConcaveTime = NOTHING
    near: NearShards = NO_SHARES


NO_REPLICAS = Replicas()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextTimes:
    """Times of chips that share sequences, over bytes. [s]

    ``gather`` brings all of a tensor to each, ``scatter`` adds it up and leaves each its own, by
    the bytes of the whole; ``hop`` sends a block on to the next in a ring, by its bytes;
    ``exchange`` is all to all, by the bytes that each has.
    """

    gather: ConcaveTime = NOTHING
    scatter: ConcaveTime = NOTHING
    hop: ConcaveTime = NOTHING
    exchange: ConcaveTime = NOTHING


NO_CONTEXT_TIMES = ContextTimes()


@dataclass(frozen=True, slots=True)
class LeastTime:
    """The default part: the fastest algorithm for every size, or the one that the system asks for.

    See `crosstack.model.collectives.compose`. A published tool's has other methods.
    """

    @property
    def share_dimensions(self) -> bool:
        """Whether parallelisms may share a dimension: ranks have an order on every level."""
        return True

    @property
    def once_a_microbatch(self) -> bool:
        """Whether the sequences of a microbatch are sent together, and pay once what is fixed."""
        return True

    def kernels(self, network: NetworkUse) -> dict[Collective, ConcaveTime]:
        """Return the least times among the tensor-parallel chips.

        Raises `InputError` if the system asks for an algorithm that no dimension can run.
        """
        _check_legal(tuple(d.level for d in network.dimensions), network.all_reduce)
        return _lines(network, _group(network, Parallelism.TENSOR))

    def neighbours(self, network: NetworkUse) -> list[tuple[float, float]]:
        """Return what a message to the next stage has, with what that takes for its arrival."""
        alone = (
            Extent(dimension=d, size=1, members=1)  # a stage, which has no neighbour to reach
            for d, _ in network.used_for(Parallelism.PIPELINE)
        )
        stages = network.extents(Parallelism.PIPELINE) or alone
        return [neighbour_link(extent, network.arrival) for extent in stages]

    def changes(self, network: NetworkUse) -> Changes:
        """Return the fastest sequences of collectives among the tensor-parallel chips.

        Where the system asks for an algorithm, sums that all need are made by that.
        """
        lines, given = self.kernels(network), network.all_reduce is not None
        many = any(line.many for one in lines.values() for line in one.members)
        return (_changes if many else _known_changes)(tuple(lines.items()), given)

    def gradients(self, network: NetworkUse) -> ConcaveTime:
        """Return the least time of an all-reduce among the data-parallel chips."""
        return _taken(Collective.ALL_REDUCE, network, _group(network, Parallelism.DATA))

    def shards(self, network: NetworkUse) -> tuple[ConcaveTime, ConcaveTime]:
        """Return the least times of leaving each data-parallel chip a share, and of gathering."""
        group = _group(network, Parallelism.DATA)
        scatter, gather = Collective.REDUCE_SCATTER, Collective.ALL_GATHER
        return _taken(scatter, network, group), _taken(gather, network, group)

    def near_shards(self, network: NetworkUse) -> NearShards:
        """Return shares of the data-parallel chips of the innermost level that has several.

        None where that level has all of them, or blocks of it hold different numbers.
        """
        group = _group(network, Parallelism.DATA)
        extents = [extent for extent in group.extents if extent.members > 1]
        if len(extents) < 2 or group.torn is not None:
            return NO_SHARES
        near, far = Group(extents=tuple(extents[:1])), Group(extents=tuple(extents[1:]))
        return NearShards(
            chips=near.members,
            scatter=_taken(Collective.REDUCE_SCATTER, network, near),
            gather=_taken(Collective.ALL_GATHER, network, near),
            across=_taken(Collective.ALL_REDUCE, network, far).of_share(1 / near.members),
        )

    @property
    def spreads_experts(self) -> bool:
        """Whether data-parallel chips may each have a part of the routed experts."""
        return True

    def tokens(self, network: NetworkUse, route: TokenRoute) -> ConcaveTime:
        """Return the least time in which chips that experts are spread over exchange tokens.

        All to all, over the bytes that each of them has. Fewer copies of a token pass between
        servers, the chips of the innermost dimension, where it goes to few of them, once to each:
        what a server gets, its chips pass on (``deepseek2024v3``, section 3.2.2).
        """
        group = _group(network, Parallelism.EXPERT)
        inner = network.dimensions[0]
        servers = math.prod(e.members for e in group.extents if e.dimension is not inner)
        own = route.distinct(group.members)
        share = min(route.crossing(servers) / own, 1.0)
        if share < 1 and group.torn is None:
            extents = (
                e if e.dimension is inner else replace(e, dimension=_faster(e.dimension, 1 / share))
                for e in group.extents
            )
            group = replace(group, extents=tuple(extents))
        return _taken(Collective.ALL_TO_ALL, network, group).of_share(group.members * own)

    @property
    def shares_sequences(self) -> bool:
        """Whether chips may share the tokens of a sequence."""
        return True

    def context(self, network: NetworkUse) -> ContextTimes:
        """Return the least times of what chips that share sequences send one another."""
        group = _group(network, Parallelism.CONTEXT)
        exchange = _taken(Collective.ALL_TO_ALL, network, group).of_share(group.members)
        return ContextTimes(
            gather=_taken(Collective.ALL_GATHER, network, group),
            scatter=_taken(Collective.REDUCE_SCATTER, network, group),
            hop=_taken(Collective.POINT_TO_POINT, network, group),
            exchange=exchange,
        )

    def replicas(self, network: NetworkUse) -> Replicas:
        """Return what chips with the same routed experts take for their gradients and weights.

        Near are those on the level that `near_shards` has of all data-parallel chips.
        """
        whole = _group(network.data_parallel, Parallelism.DATA)
        network = network.of_replicas
        group = _group(network, Parallelism.DATA)
        scatter, gather = self.shards(network)
        levels = [e.dimension for e in whole.extents if e.members > 1]
        extents = [e for e in group.extents if e.members > 1]
        near = Group(extents=tuple(e for e in extents if e.dimension is levels[0]))
        far = Group(extents=tuple(e for e in extents if e.dimension is not levels[0]))
        across = _taken(Collective.ALL_REDUCE, network, far).of_share(1 / near.members)
        return Replicas(
            chips=group.members,
            periodic=self.gradients(network),
            scatter=scatter,
            gather=gather,
            near=NearShards(
                chips=near.members,
                scatter=_taken(Collective.REDUCE_SCATTER, network, near),
                gather=_taken(Collective.ALL_GATHER, network, near),
                across=across,
            ),
        )

    def placed(
        self, network: NetworkUse, placement: Placement
    ) -> tuple[dict[Collective, ConcaveTime], ConcaveTime]:
        """Return the least times among all chips, or the rows and columns of a grid.

        A pair of n chips exchanges 1/n^2 of a whole tensor, 1/n of what one chip takes part with.
        On a grid each of its rows broadcasts its share of a panel among the chips of the row, the
        last dimension; each column sends its share of the rows to the next chip of the column
        (``dongarra2003linpack``).
        """
        chips = list(zip(network.dimensions, network.sizes, strict=True))
        found = _lines(network, _whole(chips))
        match placement:
            case Placement.BATCH:
                share = math.prod(network.sizes)
                exchange = found[Collective.ALL_TO_ALL].of_share(share)
                return found | {Collective.ALL_TO_ALL: exchange}, found[Collective.ALL_REDUCE]
            case Placement.GRID:
                columns, rows = network.sizes[-1], math.prod(network.sizes[:-1])
                along = _taken(Collective.BROADCAST, network, _whole(chips[-1:]))
                down = _taken(Collective.POINT_TO_POINT, network, _whole(chips[:-1]))
                grid = {
                    Collective.BROADCAST: along.of_share(1 / rows),
                    Collective.POINT_TO_POINT: down.of_share(1 / columns),
                }
                return found | grid, NOTHING
            case Placement.COLUMNS | Placement.SEARCHED:
                return found, NOTHING
            case _:
                assert_never(placement)


@lru_cache(maxsize=256)
def _check_legal(levels: tuple[NetworkLevel, ...], given: AllReduceAlgorithm | None) -> None:
    joined = [Dimension(kind=one.kind, bandwidth=1.0, reduces=one.reduces) for one in levels]
    able = [a for a in AllReduceAlgorithm if any(is_legal(a, _whole([(d, 2)])) for d in joined)]
    legal = given is None or given in able
    require(legal, "system.all_reduce", str(given or ""), ", ".join(able))


def _changes(lines: tuple[tuple[Collective, ConcaveTime], ...], given: bool) -> Changes:
    found: dict[tuple[Layout, frozenset[Layout]], LayoutChange] = {}
    same: dict[object, LayoutChange] = {}  # what goes the same ways is the same
    counts = range(len(_WHOLE) + 1)
    needed = [frozenset(ends) for n in counts for ends in itertools.combinations(_WHOLE, n)]
    for start, ends in itertools.product(Layout, needed):
        change = layout_change(start, ends, dict(lines), whole_sums=given)
        found[start, ends] = same.setdefault(tuple(way for way, _ in change.ways), change)
    return found


_known_changes = lru_cache(maxsize=256)(_changes)


def _lines(network: NetworkUse, group: Group) -> dict[Collective, ConcaveTime]:
    return {collective: _taken(collective, network, group) for collective in Collective}


def _taken(collective: Collective, network: NetworkUse, group: Group) -> ConcaveTime:
    return collective_lines(
        collective, group, arrival=network.arrival, all_reduce=network.all_reduce
    )


def _faster(dimension: Dimension, times: float) -> Dimension:
    """Return a level that takes so much less for every byte."""
    return replace(dimension, bandwidth=dimension.bandwidth * times)


def _whole(chips: list[tuple[Dimension, int]]) -> Group:
    extents = [Extent(dimension=d, size=size, members=size) for d, size in chips]
    return Group(extents=tuple(extents))


def _group(network: NetworkUse, use: Parallelism) -> Group:
    """Return the chips of one parallelism: degrees fill every level, the innermost first."""
    numbers = [i for i, p in enumerate(network.parallelism) if p is use]
    if network.domain_size is not None and network.degree(use) > 1:
        inside = math.prod(network.sizes[: numbers[0]])
        last = network.places[numbers[-1]] if network.places else numbers[-1]
        found = network.dimensions, network.domain_size, inside, network.degree(use)
        return domain_group(*found, last=last)
    return Group(extents=network.extents(use))
