"""Why main memory has no room for covers of kernels, whatever the sequence, and what else it bars.

Where no order of the sets of covers (`crosstack.mapping.group_covers`) leaves room for what is
alive, few of the sets and tensors are why: kernels that run together in them, and tensors that are
made in one set and read in another. Each that the proof (`crosstack.mapping.room_order`) does
without is left out, as are sizes beyond the least that kernels may have. What is left is a
*conflict*: all covers with such sets and tensors are barred, as no-goods are
(``dechter1990enhancement``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from crosstack.mapping.group_covers import GroupCovers
from crosstack.mapping.ideals import Order
from crosstack.mapping.pricing import Domains
from crosstack.mapping.room_order import InRoom, in_room
from crosstack.workload.kernel_graph import Bools, Floats, Ints, bits

MOST_TRIED = 200  # sets of partitions that have run, of one proof that may do with less
MOST_ROOMS = 8  # of which one may be enough for what a conflict is of
MOST_BARRED = 100_000  # entries of the table of what a conflict bars
Between = tuple[tuple[int, int], ...]  # who makes each tensor, and the mask of its readers


class Held(NamedTuple):
    """What each choice keeps beyond the least of its kernel, and the ``room`` for all. [B]

    ``slopes`` tell sizes of the same choices from others. [1] Beside the room there is ``alive``,
    for tensors between partitions, of which each choice makes ``results``, where that is known. [B]
    """

    sizes: Floats
    room: float
    slopes: tuple[float, float]
    alive: float = 0.0
    results: Floats | None = None

    def within(self, domains: Domains) -> Domains:
        """Return the choices that alone do not keep more than there is room for.

        All of them where even the least of all does.
        """
        if self.room < 0:
            return domains
        fits = (self.sizes <= self.room).tolist()
        return tuple(d if len(d) == 1 else tuple(c for c in d if fits[c]) for d in domains)

    @property
    def whole(self) -> float:
        """Room for what is kept and what is alive. [B]"""
        return self.room + self.alive

    def made(self, codes: Ints | Sequence[int]) -> Floats:
        """Return what the results of some choices take. [B]"""
        assert self.results is not None
        return np.asarray(self.results[codes])

    def least_made(self, domains: Domains) -> Floats:
        """Return the least that the result of every kernel takes. [B]"""
        return np.array([self.made(list(domain)).min() for domain in domains])


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Sets of kernels that run together, and tensors, that leave no order with less than ``room``.

    ``together`` are masks; ``apart`` are tensors by who makes each and the mask of readers in other
    sets, that take ``sizes`` at least. [B]
    """

    together: tuple[int, ...]
    apart: Between
    sizes: tuple[float, ...]
    room: float

    def smaller(self, least: Floats) -> list[tuple[int, float]]:
        """Return who makes a tensor that may take less than here, and what it takes here. [B]"""
        pairs = {maker: size for (maker, _), size in zip(self.apart, self.sizes, strict=True)}
        return [(maker, size) for maker, size in pairs.items() if least[maker] < size]


@dataclass(frozen=True, slots=True, eq=False)
class Proof:
    """A graph whose kernels run together in some sets, and the tensors between them."""

    order: Order
    together: tuple[int, ...]
    apart: Between
    made: Floats
    room: float

    def ordered(self, most: int | None = None) -> InRoom:
        """Return an order of it, or whether there is none."""
        tensors = [(float(self.made[maker]), maker, mask) for maker, mask in self.apart]
        joined = sum(self.together)
        alone = [1 << i for i in range(self.order.n) if not joined >> i & 1]
        given = (*self.together, *alone), self.order, tensors, self.room
        return in_room(*given) if most is None else in_room(*given, most=most)

    @property
    def fails(self) -> bool:
        """Whether it is proved, without much work, that there is no order."""
        return self.ordered(MOST_TRIED).none_in(self.room)

    def conflict(self, least: Floats) -> Conflict:
        """Return what of it the proof that there is no order cannot do without.

        Parameters
        ----------
        least : array, shape (n,)
            What the result of each kernel takes at least. [B]
        """
        proof = replace(
            self, together=_needed(self.together, lambda x: replace(self, together=x).fails)
        )
        tensors = sorted(proof.apart, key=lambda each: float(proof.made[each[0]]))
        whole = proof
        proof = replace(whole, apart=_needed(tensors, lambda x: replace(whole, apart=x).fails))
        for kernel in sorted({maker for maker, _ in proof.apart}):
            made = proof.made.copy()
            made[kernel] = least[kernel]
            other = replace(proof, made=made)
            if made[kernel] < proof.made[kernel] and other.fails:
                proof = other
        needed = proof.room
        for _ in range(MOST_ROOMS):
            found = replace(proof, room=needed).ordered(MOST_TRIED)
            if not found.none_in(needed):
                break
            needed = found.needed
        sizes = tuple(float(proof.made[maker]) for maker, _ in proof.apart)
        return Conflict(together=proof.together, apart=proof.apart, sizes=sizes, room=needed)


def _needed(items: Sequence[Any], holds: Callable[[tuple[Any, ...]], bool]) -> tuple[Any, ...]:
    """Return those of some items without any of which something does not hold."""
    kept, count = tuple(items), len(items)
    while count:
        at = 0
        while at < len(kept):
            left = kept[:at] + kept[at + count :]
            if holds(left):
                kept = left
            else:
                at += count
        count //= 2
    return kept


def tensors_apart(partitions: Sequence[int], tensors: Between) -> Between:
    """Return the tensors that are read in other sets than the one that makes them, and there."""
    of = {i: mask for mask in partitions for i in bits(mask)}
    apart = ((maker, readers & ~of[maker]) for maker, readers in tensors)
    return tuple(tensor for tensor in apart if tensor[1])


# ---------------------------------------------------------------- what is barred


@dataclass(frozen=True, slots=True, eq=False)
class Bar:
    """What is barred together: some choices of each of some kernels, some covers of some groups.

    By kernel which of its choices, by group which of its covers.
    """

    choices: dict[int, Bools]
    covers: dict[int, Bools]

    @property
    def size(self) -> int:
        """Entries of a table of it. [1]"""
        return math.prod(len(own) for own in (*self.choices.values(), *self.covers.values()))

    @property
    def alone(self) -> bool:
        """Whether covers of one group are barred, whatever else."""
        return not self.choices and len(self.covers) == 1

    @property
    def key(self) -> bytes:
        """What tells it from others."""
        tables = [(b"%d" % k, own) for k, own in self.choices.items()]
        tables += [(b"group %d" % n, own) for n, own in self.covers.items()]
        return b"".join(of + b":" + np.packbits(own).tobytes() for of, own in tables)


def barred(
    conflicts: Sequence[Conflict],
    groups: Sequence[GroupCovers],
    domains: Domains,
    held: Held,
) -> list[Bar]:
    """Return what conflicts bar of choices within ``domains``, but for what takes large tables."""
    least, found = held.least_made(domains), list[Bar]()
    for one in conflicts:
        if held.whole >= one.room:
            continue
        where = {n: own for n, group in enumerate(groups) if not (own := _has(group, one)).all()}
        over = {k: held.made(list(domains[k])) >= size for k, size in one.smaller(least)}
        bar = Bar(over, where)
        if bar.size <= MOST_BARRED and all(own.any() for own in (*over.values(), *where.values())):
            found.append(bar)
    return found


def _has(group: GroupCovers, conflict: Conflict) -> Bools:
    """Return which covers of a group have what a conflict needs of them."""
    column = {i: place for place, i in enumerate(group.kernels)}
    good = np.ones(len(group.held), dtype=np.bool_)
    firsts = list[int]()
    for inside in conflict.together:
        places = [column[i] for i in bits(inside) if i in column]
        for place in places[1:]:
            good &= group.held[:, place] == group.held[:, places[0]]
        for other in firsts if places else ():
            good &= group.held[:, other] != group.held[:, places[0]]
        firsts += places[:1]
    for maker, readers in conflict.apart:
        if maker in column:
            for reader in bits(readers):
                if reader in column:
                    good &= group.held[:, column[reader]] != group.held[:, column[maker]]
    return good
