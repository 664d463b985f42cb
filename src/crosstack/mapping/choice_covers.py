"""The least that choices and partitions take together, on a chip that runs kernels one by one.

There a partition takes a launch and what each of its kernels takes in it, which depends on the
kernel's own choice and on which kernels are with it. So once it is known which sets of kernels
cover the graph, the choices are a pairwise model (`crosstack.mapping.paid_layouts`); and as sets
with kernels in common are few, all their covers are listed (`crosstack.mapping.covering`).

Sets and parameters: kernel i with pairs (a, K) of a choice and of layouts that it pays for; group g
of kernels with covers by sets S; what i takes in S, d_i(a, S), and sends, n_i(a) + p_i(a, K); a
launch l(S). Variables: one pair a kernel, one cover a group.

(1) minimise sum_g sum_(S in cover of g) l(S) + sum_i d_i(a_i, S(i)) + n_i(a_i) + p_i(a_i, K_i);
(2) readers go with what they read; (3) a kernel that sends its result is in no set with a reader;
(4) of no two sets each waits for the other.

All that is left out are longer circles of sets, and what is alive between them: a bound on all
sequences and choices, and the least of them where its sets are a sequence. Exact as long as no
table of the elimination (`crosstack.mapping.sharding`) grows too large.

What choices keep in main memory adds up: (5) sum_i h_i(a_i) <= r. At a price y of a byte, the least
of (1) and y (sum_i h_i(a_i) - r) is no more than what any choices take that keep to it
(``geoffrion1974lagrangean``), for the price where it is most: the one of the lines of two prices.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from crosstack.machine.chip import Overlap
from crosstack.mapping.covering import closed, groups_of_sets, union
from crosstack.mapping.ideals import Order
from crosstack.mapping.paid_layouts import PaidLayouts, paid_layouts
from crosstack.mapping.pricing import Domains
from crosstack.mapping.sharding import eliminate_tables
from crosstack.model.choices import Choices
from crosstack.model.context import results_sent
from crosstack.model.legality import Legality
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.partition import ChipLoad
from crosstack.model.temporal_load import TemporalLoad
from crosstack.workload.kernel_graph import Bools, Floats, Ints, KernelGraph, bits

MOST_COVERS = 2048  # of one group of kernels
MOST_ENTRIES = 300_000  # of one table of the elimination
MOST_PRICES, DEARER = 10, 4.0  # of main memory that are tried, and by how much while all is kept
STAYS, ROUNDING = 1e-6, 1e-12  # relative, of bounds


Loads = Callable[[Sequence[Ints], Legality], Sequence[TemporalLoad]]


class LeastOfChoices(NamedTuple):
    """``bound`` on any choices and sequence of partitions [s], and choices it is the least of.

    Where those keep too much, the fastest that were seen and do not; then ``apart`` is a kernel
    whose choice is open between two that are as good at the price of main memory, -1: none is.
    """

    bound: float
    codes: Ints
    apart: int = -1


# What is the least at a price of main memory [s/B], and the slopes of what is held there.
KnownLeast = dict[tuple[float, tuple[float, float] | None], LeastOfChoices]


class Held(NamedTuple):
    """What each choice keeps beyond the least of its kernel, and the ``room`` for all. [B]

    ``slopes`` tell sizes of the same choices from others. [1]
    """

    sizes: Floats
    room: float
    slopes: tuple[float, float]


@dataclass(frozen=True, slots=True, eq=False)
class _Covers:
    """All covers of a group of kernels: its ``sets``, and which of them holds each in each cover.

    ``held`` has shape (covers, kernels). [1]
    """

    kernels: tuple[int, ...]
    sets: tuple[int, ...]
    held: Ints


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """What each pair of each kernel sends [s], and whether that leaves before it is read.

    ``places`` is the number of its choice among those of the kernel.
    """

    network: tuple[Floats, ...]
    sent: tuple[Bools, ...]
    places: tuple[Ints, ...]

    @classmethod
    def of(
        cls,
        choices: Choices,
        domains: Domains,
        paid: PaidLayouts,
        arrays: KernelGraph,
        plan: MeshPlan,
    ) -> _Pairs:
        """Return it of the pairs that are ``paid``."""
        codes = paid.codes
        sent = [choices.network_time[c] + p for c, p in zip(codes, paid.price, strict=True)]
        leaves = tuple(np.zeros(len(c), dtype=np.bool_) for c in codes)
        for row in range(max(map(len, codes))):
            at = [min(row, len(c) - 1) for c in codes]
            network = np.array([times[k] for times, k in zip(sent, at, strict=True)])
            chosen = np.array([c[k] for c, k in zip(codes, at, strict=True)])
            gone = results_sent(arrays, plan, network, choices.context_time[chosen]) > 0
            for own, k, left in zip(leaves, at, gone.tolist(), strict=True):
                own[k] = left
        number = np.zeros(len(choices.network_time), dtype=np.int64)
        for domain in domains:
            number[list(domain)] = np.arange(len(domain))
        places = (number[c] for c in codes)
        times = tuple(n + choices.data_time[c] for n, c in zip(sent, codes, strict=True))
        return cls(times, leaves, tuple(places))


@dataclass(frozen=True, slots=True, eq=False)
class _Taken:
    """What each kernel takes in a set, by its choice; ``near`` are those it matters for."""

    loads: Sequence[TemporalLoad]
    memory_price: float
    near: tuple[int, ...]
    known: dict[tuple[int, int], Floats] = field(default_factory=dict)

    @classmethod
    def of(cls, loads: Sequence[TemporalLoad], memory_price: float) -> _Taken:
        """Return it of loads that have each kernel's choices in turn."""
        near = [0] * len(loads[0].work)
        for run in loads[0].runs:
            for i, moves in enumerate(run.moves):
                for mask, _ in moves:
                    near[i] |= mask
        return cls(loads, memory_price, tuple(near))

    def by_choice(self, i: int, inside: int) -> Floats:
        """Return what a kernel takes in a set, and what the objective adds. [s]"""
        own = 1 << i
        key = i, inside & self.near[i]
        if key not in self.known:
            busy = [load.busy(own, key[1] | own) for load in self.loads]
            self.known[key] = np.array([b[0] + self.memory_price * b[2] for b in busy])
        return self.known[key]


def least_of_choices(
    load: ChipLoad,
    order: Order,
    choices: Choices,
    domains: Domains,
    arrays: KernelGraph,
    plan: MeshPlan,
    loads: Loads,
    held: Held | None = None,
    limit: float = math.inf,
    known: KnownLeast | None = None,
) -> LeastOfChoices | None:
    """Return what choices within ``domains`` and partitions take at least; None: not known.

    Not known are chips that run kernels side by side or hide what they send, rules by which readers
    do not share changes of layout, and groups of kernels with too many covers.

    Parameters
    ----------
    load : ChipLoad
        No heavier than that of any of the choices.
    order : Order
        Of the kernels.
    arrays, plan
        The graph of a chip, and the plan.
    loads : callable
        What kernels take of the chip in each of some shardings, by what may be a partition.
    held : Held, optional
        What choices keep in main memory.
    limit : float
        More than this need not be known. [s]
    known : dict, optional
        What is known at prices of main memory, of whatever room there is, and is added to.
    """
    if load.temporal is None or not may_cover(load, order, choices):
        return None
    legality = load.temporal.legality
    covers = _covers_of(legality, order, load.unmixed)
    assert covers is not None
    known, made = {} if known is None else known, list[_Model]()

    def least(price: float) -> LeastOfChoices:
        key = price, None if held is None or not price else held.slopes
        if key not in known:
            if not made:
                given = choices, domains, arrays, plan, loads
                made.append(_model(load, legality, covers, *given))
            known[key] = made[0].least(price, held)
        return known[key]

    return least(0.0) if held is None else _within(least, held, limit)


@dataclass(frozen=True, slots=True, eq=False)
class _Model:
    """The pairwise model (1) to (4): ``variables``, costs by one or two of them, and kernels. [s]

    The first variables are the pairs of kernels, by their ``codes``.
    """

    codes: tuple[Ints, ...]
    variables: Sequence[Ints | range]
    tables: dict[tuple[int, ...], Floats]

    def least(self, price: float, held: Held | None) -> LeastOfChoices:
        """Return the least that choices take at a price of what they keep. [s/B]"""
        priced = dict(self.tables)
        if held is not None and price:
            for i, codes in enumerate(self.codes):
                priced[(i,)] = priced[(i,)] + price * held.sizes[codes]
        found = eliminate_tables(self.variables, priced, most=MOST_ENTRIES)
        return LeastOfChoices(found.bound, found.best()[: len(self.codes)])


def _model(
    load: ChipLoad,
    legality: Legality,
    known: tuple[tuple[_Covers, ...], dict[tuple[int, int], Floats]],
    choices: Choices,
    domains: Domains,
    arrays: KernelGraph,
    plan: MeshPlan,
    loads: Loads,
) -> _Model:
    """Return the model of choices and covers; parameters as `least_of_choices`."""
    groups, waiting = known
    paid = paid_layouts(choices, domains)
    pairs = _Pairs.of(choices, domains, paid, arrays, plan)
    shardings = [
        np.array([domain[min(k, len(domain) - 1)] for domain in domains])
        for k in range(max(map(len, domains)))
    ]
    taken = _Taken.of(loads(shardings, legality), load.memory_price)
    tables: dict[tuple[int, ...], Floats] = {
        (i,): network * (1 + load.network_price) for i, network in enumerate(pairs.network)
    }
    covers, chosen = list[range](), dict[int, tuple[int, Ints]]()
    for place, group in enumerate(groups):
        several = any(place in pair for pair in waiting)
        fixed, by_kernel, kept = _of_group(group, pairs, taken, arrays.succs, every=several)
        number = arrays.n + len(covers)
        if len(fixed) == 1:  # one cover, whatever the choices
            tables[group.kernels[:1]] = tables[group.kernels[:1]] + fixed[0]
            for i, times in by_kernel.items():
                tables[(i,)] = tables[(i,)] + times[:, 0]
            continue
        chosen[place] = number, kept
        covers.append(range(len(fixed)))
        tables[(number,)] = fixed
        tables |= {(i, number): times for i, times in by_kernel.items()}
    for (a, b), apart in waiting.items():
        if a in chosen and b in chosen:
            (one, ones), (other, others) = chosen[a], chosen[b]
            tables[one, other] = apart[ones][:, others]
    return _Model(paid.codes, [*paid.codes, *covers], tables | paid.apart)


def may_cover(load: ChipLoad, order: Order, choices: Choices) -> bool:
    """Whether `least_of_choices` knows chips and rules like these, and groups have few covers."""
    hides = load.overlap is Overlap.ALL or load.network_takes_maximum
    if load.temporal is None or not choices.conversions.shared or hides:
        return False
    return _covers_of(load.temporal.legality, order, load.unmixed) is not None


def _within(least: Callable[[float], LeastOfChoices], held: Held, limit: float) -> LeastOfChoices:
    """Return what choices take at least that keep to the room there is.

    The prices that are tried follow from what is held alone, so other rooms ask for many of them.

    Parameters
    ----------
    least : callable
        The least that choices take at a price of what they keep, all of which is paid for. [s/B]
    limit : float
        More than this need not be known. [s]
    """
    if held.room < 0:
        return LeastOfChoices(math.inf, least(0.0).codes)
    free = least(0.0)
    size = float(held.sizes[free.codes].sum())
    if size <= held.room or not free.bound < limit:
        return free
    best, kept = free.bound, free.codes
    # Lines of bounds over the price, but for what all the room costs: at 0, and slope.
    heavy, light = (free.bound, size), None
    more = free.codes  # the choices of the former
    price = free.bound / size
    for _ in range(MOST_PRICES):
        found = least(price)
        size = float(held.sizes[found.codes].sum())
        bound = (found.bound - price * held.room) * (1 - ROUNDING)
        at_nought = found.bound - price * size
        if size <= held.room and (light is None or at_nought < light[0]):
            kept = found.codes
        stays = bound <= best * (1 + STAYS)
        best = max(best, bound)
        if not best < limit or size == held.room or (stays and light is not None):
            break
        if size > held.room:
            heavy, more = (at_nought, size), found.codes
        else:
            light = at_nought, size
        if light is None:
            price *= DEARER
        else:
            price = (light[0] - heavy[0]) / (heavy[1] - light[1])
            if price <= 0:
                break
    differ = np.abs(held.sizes[more] - held.sizes[kept])
    return LeastOfChoices(best, kept, int(differ.argmax()) if differ.any() else -1)


def _of_group(
    group: _Covers, pairs: _Pairs, taken: _Taken, readers: Sequence[int], *, every: bool
) -> tuple[Floats, dict[int, Floats], Ints]:
    """Return what a group takes by cover, what each kernel with several pairs adds, and the covers.

    The second by pair and cover. [s] Covers that are the same for all of those are one, the best,
    unless it matters which one it is: then ``every``.
    """
    launch = taken.loads[0].launches
    begun = np.array([launch(s) / s.bit_count() for s in group.sets])
    fixed = begun[group.held].sum(axis=1)
    several = dict[int, tuple[int, Floats]]()
    for column, i in enumerate(group.kernels):
        times = np.full((len(group.sets), len(pairs.places[i])), np.inf)
        for number in np.unique(group.held[:, column]).tolist():
            inside = group.sets[number]
            times[number] = taken.by_choice(i, inside)[pairs.places[i]]
            if inside & readers[i]:
                times[number, pairs.sent[i]] = np.inf
        if times.shape[1] > 1:
            several[i] = column, times
        else:
            fixed = fixed + times[group.held[:, column], 0]
    if every:
        kept = np.flatnonzero(np.isfinite(fixed))
        chosen = group.held[kept]
        return fixed[kept], {i: times[chosen[:, c]].T for i, (c, times) in several.items()}, kept
    held = group.held[:, [column for column, _ in several.values()]]
    _, first, back = np.unique(held, axis=0, return_index=True, return_inverse=True)
    least = np.full(len(first), np.inf)
    np.minimum.at(least, back.ravel(), fixed)
    good = np.isfinite(least)
    kept, chosen = first[good], group.held[first[good]]
    return least[good], {i: times[chosen[:, c]].T for i, (c, times) in several.items()}, kept


@lru_cache(maxsize=1024)
def _covers_of(
    legality: Legality, order: Order, unmixed: tuple[int, ...]
) -> tuple[tuple[_Covers, ...], dict[tuple[int, int], Floats]] | None:
    """Return the covers of every group of kernels; None where some has too many.

    And of groups, by number, what pairs of covers cost of which a set waits for one of the other's
    that waits for it: infinity, or nothing.
    """
    if (groups := groups_of_sets(legality, order)) is None:
        return None
    behind, found = tuple(closed(order.preds)), list[_Covers]()
    for group in groups:
        if (covers := _covers_of_group(group, behind, unmixed)) is None:
            return None
        found.append(covers)
    waiting = dict[tuple[int, int], Floats]()
    for a, b in itertools.combinations(range(len(found)), 2):
        if (both := _apart(found[a], found[b], behind)) is not None:
            waiting[a, b] = both
    return tuple(found), waiting


# Of one graph legalities differ in what is exchanged, and so in few groups.
@lru_cache(maxsize=4096)
def _covers_of_group(
    group: tuple[int, ...], behind: tuple[int, ...], unmixed: tuple[int, ...]
) -> _Covers | None:
    """Return the covers of a group of sets no two of which wait for each other; None: too many."""
    sets = [s for s in group if not any(s & apart not in (0, s) for apart in unmixed)]
    if (covers := _covers(sets)) is None:
        return None
    kernels = tuple(bits(sum(covers[0])))
    number = {s: k for k, s in enumerate(sets)}
    holder = [{i: number[s] for s in cover for i in bits(s)} for cover in covers]
    held = np.array([[own[i] for i in kernels] for own in holder], dtype=np.int64)
    each = _waits(sets, sets, behind)
    good = [not each[np.ix_(own, own)].any() for own in held]
    return _Covers(kernels, tuple(sets), held[good])


@lru_cache(maxsize=16384)
def _apart(one: _Covers, other: _Covers, behind: tuple[int, ...]) -> Floats | None:
    """Return what pairs of covers of two groups cost, infinity or nothing; None: all nothing."""
    each = _waits(one.sets, other.sets, behind)
    if not each.any():
        return None
    both = [each[own][:, other.held].any(axis=(0, 2)) for own in one.held]
    return np.where(np.array(both), np.inf, 0.0)


def _waits(ones: Sequence[int], others: Sequence[int], behind: Sequence[int]) -> Bools:
    """Return of which pairs of sets each has to wait for the other, shape (ones, others)."""
    before = [union(behind, bits(s)) & ~s for s in (*ones, *others)]
    own, its = before[: len(ones)], before[len(ones) :]
    found = [
        [bool(own[i] & t and its[j] & s and not s & t) for j, t in enumerate(others)]
        for i, s in enumerate(ones)
    ]
    return np.array(found, dtype=np.bool_).reshape(len(ones), len(others))


def _covers(sets: Sequence[int]) -> list[tuple[int, ...]] | None:
    """Return all ways to cover the kernels of some sets once each; None where they are many."""
    whole, by_lowest = 0, dict[int, list[int]]()
    for s in sets:
        whole |= s
        by_lowest.setdefault(s & -s, []).append(s)
    found = list[tuple[int, ...]]()
    waiting: list[tuple[int, tuple[int, ...]]] = [(whole, ())]
    while waiting:
        rest, chosen = waiting.pop()
        if not rest:
            found.append(chosen)
            if len(found) > MOST_COVERS:
                return None
            continue
        ways = [s for s in by_lowest.get(rest & -rest, ()) if not s & ~rest]
        waiting += [(rest ^ s, (*chosen, s)) for s in ways]
    return found
