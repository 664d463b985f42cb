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

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import NamedTuple

import numpy as np

from crosstack.machine.chip import Overlap
from crosstack.mapping.group_covers import GroupCovers, covers_of_groups, partitions_of
from crosstack.mapping.ideals import Order
from crosstack.mapping.paid_layouts import PaidLayouts, paid_layouts
from crosstack.mapping.pricing import Domains
from crosstack.mapping.room_conflicts import (
    Bar,
    Between,
    Conflict,
    Held,
    Proof,
    barred,
    tensors_apart,
)
from crosstack.mapping.sharding import eliminate_tables
from crosstack.model.choices import Choices
from crosstack.model.context import results_sent
from crosstack.model.legality import Legality
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.partition import ChipLoad
from crosstack.model.temporal_load import TemporalLoad
from crosstack.workload.kernel_graph import Bools, Floats, Ints, KernelGraph

MOST_ENTRIES = 300_000  # of one table of the elimination
MOST_PRICES, DEARER = 10, 4.0  # of main memory that are tried, and by how much while all is kept
MOST_ROUNDS = 24  # in which it is found what main memory has no room for
STAYS, ROUNDING = 1e-6, 1e-12  # relative, of bounds


Loads = Callable[[Sequence[Ints], Legality], Sequence[TemporalLoad]]


class LeastOfChoices(NamedTuple):
    """``bound`` on any choices and sequence of partitions [s], and choices it is the least of.

    Where those keep too much, the fastest that were seen and do not; then ``apart`` is a kernel
    whose choice is open between two that are as good at the price of main memory, or that takes
    most of what is too much, -1: none is. ``covers`` are those of every group, by number, and
    ``partitions`` are those of the covers in the order they run, where main memory may not hold
    them in another; ``conflicts`` say why it did not hold others.
    """

    bound: float
    codes: Ints
    apart: int = -1
    covers: tuple[int, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    partitions: tuple[int, ...] = ()


# What is the least at a price of main memory [s/B], by the slopes of what is held there and what
# has no room.
KnownLeast = dict[tuple[float, tuple[float, float] | None, bytes], LeastOfChoices]


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
    conflicts: tuple[Conflict, ...] = (),
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
    conflicts : sequence of Conflict
        Why main memory had no room for choices of which these are some.
    """
    if load.temporal is None or not may_cover(load, order, choices):
        return None
    legality = load.temporal.legality
    covers = covers_of_groups(legality, order, load.unmixed)
    assert covers is not None
    known = {} if known is None else known
    given = choices, domains, arrays, plan, loads

    def within(held: Held | None, bars: Sequence[Bar] = ()) -> LeastOfChoices:
        made = list[_Model | None]()

        def least(price: float) -> LeastOfChoices:
            slopes = None if held is None or not price else held.slopes
            key = price, slopes, b";".join(bar.key for bar in bars)
            if key not in known:
                if not made:
                    made.append(_model(load, legality, covers, *given, bars))
                known[key] = _least(made[0], domains, price, held)
            return known[key]

        return least(0.0) if held is None else _within(least, held, limit)

    found = within(held)
    if held is None or held.results is None or not (found.covers and found.bound < limit):
        return found
    tensors = tuple((flow.producer, flow.mask) for flow in load.flows if not flow.kept)
    whole, applied = found.bound, 0
    for _ in range(MOST_ROUNDS):
        proof = _proof(order, covers[0], found, tensors, held)
        ordered = proof.ordered()
        if not ordered.none_in(proof.room):
            found = found._replace(partitions=ordered.sequence)
            break
        if applied == len(conflicts):
            why = _why(proof, domains, held)
            if why is None or why in conflicts:
                found = found._replace(apart=_fullest(proof, why, found, domains, held))
                break
            conflicts = (*conflicts, why)
        # The same without what there is no room for.
        applied, bars = len(conflicts), barred(conflicts, covers[0], domains, held)
        found = within(held, bars)
        if not found.bound < limit or found.apart >= 0 or not found.covers:
            break
    return found._replace(bound=max(found.bound, whole), conflicts=conflicts)


def _proof(
    order: Order,
    groups: Sequence[GroupCovers],
    found: LeastOfChoices,
    tensors: Between,
    held: Held,
) -> Proof:
    """Return what is to be in main memory together with choices and under their covers."""
    partitions = partitions_of(groups, found.covers)
    return Proof(
        order,
        tuple(mask for mask in partitions if mask & (mask - 1)),
        tensors_apart(partitions, tensors),
        held.made(found.codes),
        held.whole - float(held.sizes[found.codes].sum()),
    )


def _why(proof: Proof, domains: Domains, held: Held) -> Conflict | None:
    """Return why there is no order, whatever choices keep; None where that is why."""
    roomy = replace(proof, room=held.whole)
    if not roomy.ordered().none_in(held.whole):
        return None
    return roomy.conflict(held.least_made(domains))


def _fullest(
    proof: Proof, why: Conflict | None, found: LeastOfChoices, domains: Domains, held: Held
) -> int:
    """Return the kernel whose choice takes most beyond the least it may; -1: all take that.

    Of those that are ``why`` there is no room, if that is known.
    """
    least = held.least_made(domains)
    if why is not None:
        smaller = why.smaller(least)
        return max(smaller, key=lambda one: one[1] - least[one[0]])[0] if smaller else -1
    makers = np.zeros(len(found.codes))
    makers[[maker for maker, _ in proof.apart]] = 1.0
    more = makers * (proof.made - least) + held.sizes[found.codes]
    return int(more.argmax()) if more.any() else -1


@dataclass(frozen=True, slots=True, eq=False)
class _Model:
    """The pairwise model (1) to (4): ``variables``, costs by one or two of them, and kernels. [s]

    The first variables are the pairs of kernels, by their ``codes``; ``covers`` has the variable of
    every group, -1 for none, and the numbers of its covers there.
    """

    codes: tuple[Ints, ...]
    variables: Sequence[Ints | range]
    tables: dict[tuple[int, ...], Floats]
    covers: tuple[tuple[int, Ints], ...]

    def least(self, price: float, held: Held | None) -> LeastOfChoices:
        """Return the least that choices take at a price of what they keep. [s/B]"""
        priced = dict(self.tables)
        if held is not None and price:
            for i, codes in enumerate(self.codes):
                priced[(i,)] = priced[(i,)] + price * held.sizes[codes]
        found = eliminate_tables(self.variables, priced, most=MOST_ENTRIES)
        best = found.best()
        covers = (kept[best[place] if place >= 0 else 0] for place, kept in self.covers)
        return LeastOfChoices(found.bound, best[: len(self.codes)], -1, tuple(map(int, covers)))


def _model(
    load: ChipLoad,
    legality: Legality,
    known: tuple[tuple[GroupCovers, ...], dict[tuple[int, int], Floats]],
    choices: Choices,
    domains: Domains,
    arrays: KernelGraph,
    plan: MeshPlan,
    loads: Loads,
    bars: Sequence[Bar],
) -> _Model | None:
    """Return the model of choices and covers; parameters as `least_of_choices`.

    None where ``bars`` leave a group no cover.
    """
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
    numbers = list[tuple[int, Ints]]()
    for place, group in enumerate(groups):
        several = any(place in pair for pair in waiting)
        left = [(bar.covers[place], bar.size) for bar in bars if place in bar.covers]
        own = [cover for cover, size in left if size > len(cover)]
        never = np.any([cover for cover, size in left if size == len(cover)] or [[False]], axis=0)
        given_of = group, pairs, taken, arrays.succs, own, never
        fixed, by_kernel, kept = _of_group(*given_of, every=several)
        if not len(fixed):
            return None
        number = arrays.n + len(covers)
        numbers.append((number if len(fixed) > 1 else -1, kept))
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
    tables |= paid.apart
    for bar in bars:
        chosen_of = {k: own[pairs.places[k]] for k, own in bar.choices.items()}
        for place, own in bar.covers.items():
            number, kept = numbers[place]
            chosen_of[number] = chosen_of.get(number, True) & own[kept]  # -1: of all without
        _add_bar(tables, chosen_of)
    return _Model(paid.codes, [*paid.codes, *covers], tables, tuple(numbers))


def _add_bar(tables: dict[tuple[int, ...], Floats], barred: dict[int, Bools]) -> None:
    """Add infinity where each of some variables has one of those values; -1: of all the same."""
    if not barred.pop(-1, np.True_).all():
        return
    scope = tuple(sorted(barred))
    if not scope:
        scope, barred = (0,), {0: np.ones_like(tables[(0,)], dtype=np.bool_)}
    shaped = [barred[i].reshape([-1 if i == j else 1 for j in scope]) for i in scope]
    table = np.where(np.asarray(reduce(np.logical_and, shaped)), np.inf, 0.0)
    tables[scope] = tables[scope] + table if scope in tables else table


def _least(
    model: _Model | None, domains: Domains, price: float, held: Held | None
) -> LeastOfChoices:
    """Return the least that choices take at a price of what they keep; infinite: none fit."""
    if model is None:
        return LeastOfChoices(math.inf, np.array([domain[0] for domain in domains]))
    return model.least(price, held)


def may_cover(load: ChipLoad, order: Order, choices: Choices) -> bool:
    """Whether `least_of_choices` knows chips and rules like these, and groups have few covers."""
    hides = load.overlap is Overlap.ALL or load.network_takes_maximum
    if load.temporal is None or not choices.conversions.shared or hides:
        return False
    return covers_of_groups(load.temporal.legality, order, load.unmixed) is not None


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
    best, kept = free.bound, free
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
            kept = found
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
    differ = np.abs(held.sizes[more] - held.sizes[kept.codes])
    return kept._replace(bound=best, apart=int(differ.argmax()) if differ.any() else -1)


def _of_group(
    group: GroupCovers,
    pairs: _Pairs,
    taken: _Taken,
    readers: Sequence[int],
    told_apart: Sequence[Bools],
    never: Bools,
    *,
    every: bool,
) -> tuple[Floats, dict[int, Floats], Ints]:
    """Return what a group takes by cover, what each kernel with several pairs adds, and the covers.

    The second by pair and cover. [s] Covers that are the same for all of those are one, the best,
    unless it matters which one it is: then ``every``, or by what they are ``told_apart``.
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
    held = group.held[:, [column for column, _ in several.values()]]
    held = np.concatenate([held, *(own[:, None] for own in told_apart)], axis=1)
    fixed = np.where(never, np.inf, fixed)
    kept = np.flatnonzero(np.isfinite(fixed))
    if not every and len(kept):
        # Of covers that are the same, the one that takes least.
        ranked = kept[np.argsort(fixed[kept], kind="stable")]
        kept = ranked[np.unique(held[ranked], axis=0, return_index=True)[1]]
    chosen = group.held[kept]
    by_kernel = {i: times[chosen[:, column]].T for i, (column, times) in several.items()}
    return fixed[kept], by_kernel, kept
