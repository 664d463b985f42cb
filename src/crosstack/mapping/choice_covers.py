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

Where choices keep to it, but no order of the sets leaves main memory room for what is alive between
them, it is found why (`crosstack.mapping.room_conflicts`), and all is minimised once more without
what that bars, until there is an order, or a choice to halve the node at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from crosstack.machine.chip import Overlap
from crosstack.mapping.cover_model import CoverCosts, CoverModel, Loads
from crosstack.mapping.group_covers import GroupCovers, covers_of_groups, partitions_of
from crosstack.mapping.ideals import Order
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
from crosstack.model.choices import Choices
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.partition import ChipLoad
from crosstack.workload.kernel_graph import Ints, KernelGraph

MOST_PRICES, DEARER = 10, 4.0  # of main memory that are tried, and by how much while all is kept
MOST_ROUNDS = 24  # in which it is found what main memory has no room for
STAYS, ROUNDING = 1e-6, 1e-12  # relative, of bounds


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
KnownLeast = dict[tuple[float, tuple[float, float] | None, tuple[bytes, ...]], LeastOfChoices]


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
    covers = covers_of_groups(load.temporal.legality, order, load.unmixed)
    assert covers is not None
    known = {} if known is None else known
    costs = partial(CoverCosts.of, load, covers, choices, domains, arrays, plan, loads)
    least = _Least(costs, domains, held, limit, known)
    found = least.without()
    if held is None or held.results is None or not (found.covers and found.bound < limit):
        return found
    tensors = tuple((flow.producer, flow.mask) for flow in load.flows if not flow.kept)
    return _with_room(least, found, held, order, covers[0], tensors, conflicts)


@dataclass(slots=True)
class _Least:
    """The least of choices within ``domains``, less than ``limit``, that is found once. [s]

    ``costs`` makes what the models have in common, `KnownLeast` has what is known.
    """

    costs: Callable[[], CoverCosts]
    domains: Domains
    held: Held | None
    limit: float
    known: KnownLeast
    made: CoverCosts | None = None

    def without(self, bars: Sequence[Bar] = ()) -> LeastOfChoices:
        """Return the least where something is barred, and what is kept has room."""
        models = list[CoverModel | None]()

        def least(price: float) -> LeastOfChoices:
            slopes = None if self.held is None or not price else self.held.slopes
            key = price, slopes, tuple(bar.key for bar in bars)
            if key not in self.known:
                if not models:
                    self.made = self.costs() if self.made is None else self.made
                    models.append(self.made.without(bars))
                self.known[key] = _least(models[0], self.domains, price, self.held)
            return self.known[key]

        return least(0.0) if self.held is None else _within(least, self.held, self.limit)


def _with_room(
    least: _Least,
    found: LeastOfChoices,
    held: Held,
    order: Order,
    groups: Sequence[GroupCovers],
    tensors: Between,
    conflicts: tuple[Conflict, ...],
) -> LeastOfChoices:
    """Return what is found without what main memory has no room for besides what is kept.

    Parameters
    ----------
    found : LeastOfChoices
        With all that has room by itself.
    tensors : sequence
        Those that are in main memory between partitions alone.
    conflicts : sequence of Conflict
        As of `least_of_choices`.
    """
    whole, applied, domains = found.bound, 0, least.domains
    for _ in range(MOST_ROUNDS):
        proof = _proof(order, groups, found, tensors, held)
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
        applied = len(conflicts)
        found = least.without(barred(conflicts, groups, domains, held))
        if not found.bound < least.limit or found.apart >= 0 or not found.covers:
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


def _least(
    model: CoverModel | None, domains: Domains, price: float, held: Held | None
) -> LeastOfChoices:
    """Return the least that choices take at a price of what they keep; infinite: none fit."""
    if model is None:
        return LeastOfChoices(math.inf, np.array([domain[0] for domain in domains]))
    found = model.least(price, np.zeros(0) if held is None else held.sizes)
    best = found.best()
    return LeastOfChoices(found.bound, best[: len(domains)], covers=model.covers_of(best))


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
