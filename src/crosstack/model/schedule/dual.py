"""DualPipe: microbatches enter a pipeline at both ends, and what two of them do runs together.

Chip r of p holds stage r for microbatches that come from the first chip, and stage ``p - 1 - r``
for those that come from the last one, half of all each; so it has two stages' weights. Most of the
time it takes one forward and one backward *together*: while tokens of the one are on their way to
experts and back, it computes the other. A pair whose passes take T seconds, of which tokens E,
takes

    max( E , T - E + x E )

where communication takes a share x of the units of the chip. As from both ends the same is done,
chips r and ``p - 1 - r`` do the same at the same time, and half of the chips are looked at: a
microbatch goes down their first stages (phase 0), turns into their second ones (phase 1) and comes
back. Sources: ``deepseek2024v3`` (section 3.2.1, figure 5, table 2), ``deepseek_dualpipe`` (the
order of passes, step by step).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from crosstack.errors import require, require_whole
from crosstack.model.schedule.levels import NONE, LevelBuilder, Levels
from crosstack.model.schedule.passes import Operation, Pass, Stage


class Part(NamedTuple):
    """A pass of a microbatch, of those from one end, through a chip's first or second stage. [1]"""

    phase: int
    microbatch: int
    kind: Pass


Way = tuple[Any, Any]  # how often the work of a stage [1], and what takes time beside [s]
Parts = tuple[Part, ...]  # what runs together: one pass, or one forward and one backward


def check_dual(stages: int, microbatches: int) -> None:
    """Raise `InputError` where DualPipe has no such stages and microbatches. [1]"""
    require_whole("stages", stages)
    require(stages % 2 == 0, "stages", stages, "an even number, for DualPipe")
    good = microbatches % 2 == 0 and microbatches >= 2 * stages
    allowed = f"an even number, at least {2 * stages}, twice the stages, for DualPipe"
    require(good, "microbatches", microbatches, allowed)


def together(passes: Way, tokens: tuple[Any, Any], taken: float) -> tuple[Way, ...]:
    """Return ways of which the longest is what a pair takes at least.

    Where it is known how long tokens take, it is the first or the last of them. Whatever that is,
    the shortest is where they take as long as all else, which the second one is.

    Parameters
    ----------
    passes : tuple of float or array
        T, both passes one after the other: how often the work of a stage [1], and what beside. [s]
    tokens : tuple of float or array
        What tokens of T take on their way, at least and at most. [s]
    taken : float
        Share of the chip's units that communication takes. [1]
    """
    (work, beside), (least, most), hidden = passes, tokens, 1.0 - taken
    return (
        (work, beside - hidden * most),
        (work / (1.0 + hidden), beside / (1.0 + hidden)),
        (0.0 * work, least),
    )


def pair_time(one: Stage, other: Stage) -> float:
    """Time of a forward pass of a stage together with a backward pass of another. [s]"""
    both = one.time(Pass.FORWARD) + other.time(Pass.BACKWARD)
    tokens = one.tokens[0] + other.tokens[1]
    return max(tokens, both - (1.0 - one.taken) * tokens)


def dual_order(chip: int, chips: int, microbatches: int) -> Iterator[Parts]:
    """Yield what a chip of the first half does, in order.

    Forward until the last stage has the first microbatch; then, for each that comes back, its
    gradients of weights at once; pairs; and behind the last pair backward passes, the later ones
    without gradients of weights, which fill what would be idle.

    Parameters
    ----------
    chip, chips, microbatches : int
        Its number; of the pipeline; of an iteration, from both ends. [1]
    """
    check_dual(chips, microbatches)
    half, each = chips // 2, microbatches // 2
    after = half - chip - 1
    done = {(phase, kind): 0 for phase in (0, 1) for kind in Pass}
    queue: list[Part] = []

    def part(phase: int, kind: Pass) -> Part:
        number = done[phase, kind]
        done[phase, kind] += 1
        return Part(phase, number, kind)

    def back(phase: int, *, later: bool) -> Parts:
        if not later:
            return (part(phase, Pass.BACKWARD),)
        number = done[phase, Pass.BACKWARD]
        done[phase, Pass.BACKWARD] += 1
        queue.append(Part(phase, number, Pass.WEIGHTS))
        return (Part(phase, number, Pass.INPUTS),)

    def pair(there: int, back: int) -> Parts:
        return part(there, Pass.FORWARD), part(back, Pass.BACKWARD)

    for _ in range(2 * after):
        yield (part(0, Pass.FORWARD),)
    for _ in range(chip + 1):
        yield (part(0, Pass.FORWARD),)
        yield (part(1, Pass.FORWARD),)
    for _ in range(after):
        yield back(1, later=True)
        yield (queue.pop(0),)
        yield (part(1, Pass.FORWARD),)
    for turn in range(each - chips + chip + 1):
        if turn or after:
            yield pair(0, 1)
        else:  # the chips in the middle wait for one another
            yield (part(0, Pass.FORWARD),)
            yield back(1, later=False)
        yield pair(1, 0)
    for _ in range(after):
        yield back(1, later=False)
        yield pair(1, 0)
    for turn in range(chip + 1):
        middle = (chip + 1) // 2
        yield back(1, later=turn > middle or (turn == middle and chip % 2 == 1))
        yield back(0, later=turn >= middle)
    for _ in range(after):
        yield (queue.pop(0),)
        yield back(0, later=True)
    for each_left in queue:
        yield (each_left,)


def came_from(chip: int, chips: int, part: Part) -> tuple[int, Part] | None:
    """Return which pass a pass waits for, and on which chip of the first half; None: for none."""
    phase, number, kind = part
    last = chips // 2 - 1
    if not kind.step:  # gradients of weights
        return None
    if kind.step > 0:
        if phase:
            return (chip, Part(0, number, kind)) if chip == last else (chip + 1, part)
        return (chip - 1, part) if chip else None
    if phase:
        return (chip - 1, part) if chip else (chip, Part(1, number, Pass.FORWARD))
    return (chip, Part(1, number, kind)) if chip == last else (chip + 1, part)


def known_as(part: Part) -> Part:
    """Return a pass as those that wait for it name it: to the inputs is backward."""
    return part._replace(kind=Pass.BACKWARD) if part.kind is Pass.INPUTS else part


def dual_items(chips: int, microbatches: int) -> Iterator[tuple[int, Parts]]:
    """Yield (chip of the first half, what runs together), what is waited for first."""
    half = chips // 2
    orders = [list(dual_order(chip, chips, microbatches)) for chip in range(half)]
    position, passed = [0] * half, set[tuple[int, Part]]()
    while any(position[chip] < len(order) for chip, order in enumerate(orders)):
        for chip, order in enumerate(orders):
            while position[chip] < len(order):
                parts = order[position[chip]]
                waits = (came_from(chip, chips, known_as(part)) for part in parts)
                if any(before is not None and before not in passed for before in waits):
                    break
                yield chip, parts
                passed.update((chip, known_as(part)) for part in parts)
                position[chip] += 1


def taken_by(stages: Sequence[Stage], chip: int, parts: Parts) -> float:
    """Time that a chip of the first half takes for what it runs together. [s]"""
    own = stages[chip], stages[len(stages) - 1 - chip]
    if len(parts) == 1:
        return own[parts[0].phase].time(parts[0].kind)
    return pair_time(own[parts[0].phase], own[parts[1].phase])


_Step = tuple[int, int, int, int, int, int]


def _program(chips: int, microbatches: int) -> list[_Step]:
    """Return what chips of the first half run, what is waited for first, as numbers.

    Of each its chip; which of the times it takes, see `_times`; the places of two passes that it
    waits for, 0 for none; and those of two passes that it is, one that nobody waits for if it is
    fewer. Where a pass is backward behind its own forward pass, what it waits for is negative:
    nothing is sent.
    """
    each, half = microbatches // 2, chips // 2
    nowhere = 1 + 4 * half * each

    def place(chip: int, part: Part) -> int:
        back = part.kind.step < 0
        return 1 + ((chip * 2 + part.phase) * each + part.microbatch) * 2 + back

    def places(chip: int, part: Part) -> tuple[int, int]:
        """Return where what a pass of the first microbatch waits for is, and where it is."""
        before = came_from(chip, chips, part)
        if before is None:
            return 0, place(chip, part)
        turned = before[0] == chip and before[1].phase == part.phase  # the loss
        return place(*before) * (-1 if turned else 1), place(chip, part)

    def steps(chip: int) -> Iterator[_Step]:
        known = {
            (phase, kind): places(chip, known_as(Part(phase, 0, kind)))
            for phase in (0, 1)
            for kind in Pass
            if kind.step
        }

        def of(part: Part) -> tuple[int, int]:
            wait, make = known[part.phase, part.kind]
            later = 2 * part.microbatch
            return wait and (wait + later if wait > 0 else wait - later), make + later

        for parts in dual_order(chip, chips, microbatches):
            first = parts[0]
            kind = _PAIR if len(parts) == 2 else _NUMBER[first.kind]
            which = (chip * 2 + first.phase) * (_PAIR + 1) + kind
            wait, make = of(first) if first.kind is not Pass.WEIGHTS else (0, nowhere)
            second, other = of(parts[1]) if len(parts) == 2 else (0, nowhere)
            yield chip, which, wait, second, make, other

    orders = [list(steps(chip)) for chip in range(half)]
    passed, position = bytearray(1 + nowhere), [0] * half
    passed[0] = 1
    found = list[_Step]()
    while any(position[chip] < len(order) for chip, order in enumerate(orders)):
        for chip, order in enumerate(orders):
            at = position[chip]
            while at < len(order):
                _, _, wait, second, make, other = order[at]
                if not (passed[abs(wait)] and passed[abs(second)]):
                    break
                passed[make] = passed[other] = 1
                found.append(order[at])
                at += 1
            position[chip] = at
    return found


@lru_cache(maxsize=64)
def _levels(chips: int, microbatches: int, *, sends: bool) -> Levels:
    """Return what chips of the first half run, and what they send where that takes time, by levels.

    Which take what: as `_times` lists it by chip, then a send.
    """
    each, half = microbatches // 2, chips // 2
    nowhere, sent, build = 1 + 4 * half * each, half * 2 * (_PAIR + 1), LevelBuilder()
    # When a pass is through stands at its place from the end, when it is sent at its place.
    busy, ready, links = [NONE] * half, [NONE] * (4 + 8 * half * each), [NONE] * (4 * half)
    for chip, which, wait, second, make, other in _program(chips, microbatches):
        done = build.add(which, busy[chip], ready[wait], ready[second])
        busy[chip] = ready[-make] = ready[-other] = done
        for slot in (make, other):
            if sends and slot != nowhere:
                link = (slot - 1) // (2 * each) * 2 + (slot - 1) % 2
                links[link] = ready[slot] = build.add(sent, links[link], done)
            else:
                ready[slot] = done
    return build.build(busy)


_KINDS = tuple(Pass)
_NUMBER = {kind: number for number, kind in enumerate(_KINDS)}
_PAIR = len(_KINDS)  # the number of a pair


def _times(stages: Sequence[Stage], chip: int) -> list[float]:
    """Time of what a chip of the first half may run: each pass, or a pair, by the first's phase."""
    own, pairs = (stages[chip], stages[len(stages) - 1 - chip]), pairs_of(stages, chip)
    return [x for phase in (0, 1) for x in (*map(own[phase].time, _KINDS), pairs[phase])]


def dual_ends(stages: Sequence[Stage], microbatches: int) -> list[float]:
    """When every chip is through. [s]

    Chips take what is next in their order, each when it and what it needs are through; a send
    takes no chip's time.
    """
    chips = len(stages)
    check_dual(chips, microbatches)
    send = max((stage.send for stage in stages[:-1]), default=0.0)
    times = [time for chip in range(chips // 2) for time in _times(stages, chip)]
    levels = _levels(chips, microbatches, sends=send > 0)
    busy = levels.through(np.array([*times, send])).tolist()
    return [*busy, *reversed(busy)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DualWork:
    """What so many ``stages`` do of a microbatch, of which the ``first`` and the ``last`` differ.

    Each is forward, backward, and of that for gradients of weights, and tokens forward and backward
    [s]; ``send`` is from one to the next [s], ``taken`` the share of a chip's units that
    communication takes [1].
    """

    stages: int
    first: tuple[float, ...]
    inner: tuple[float, ...]
    last: tuple[float, ...]
    send: float
    taken: float

    def as_stages(self) -> tuple[Stage, ...]:
        """Return the stages, one operation each."""
        rows = [self.first, *[self.inner] * (self.stages - 2), self.last]
        return tuple(
            Stage(
                operations=(
                    Operation(
                        name="layers",
                        forward=there,
                        backward=back,
                        weights=min(weights, back),
                        tokens=(sent, returned),
                    ),
                ),
                send=self.send,
                taken=self.taken,
            )
            for there, back, weights, sent, returned in rows
        )

    @property
    def pair(self) -> float:
        """Time of a forward and a backward pass together, on the slowest chip. [s]"""
        stages = self.as_stages()
        halves = range(self.stages // 2)
        return max(sum(pairs_of(stages, chip)) / 2 for chip in halves)


def pairs_of(stages: Sequence[Stage], chip: int) -> tuple[float, float]:
    """Time of a forward pass of each stage of a chip with a backward pass of its other one. [s]"""
    one, other = stages[chip], stages[len(stages) - 1 - chip]
    return pair_time(one, other), pair_time(other, one)


def hidden_time(stages: Sequence[Stage], chip: int, microbatches: int) -> float:
    """How much less a chip takes for passes that run together than one after the other. [s]"""
    chips = len(stages)
    place = min(chip, chips - 1 - chip)
    pairs = [parts[0].phase for parts in dual_order(place, chips, microbatches) if parts[1:]]
    own = stages[place], stages[chips - 1 - place]
    taken = pairs_of(stages, place)
    alone = [own[i].time(Pass.FORWARD) + own[1 - i].time(Pass.BACKWARD) for i in (0, 1)]
    return sum(pairs.count(i) * (alone[i] - taken[i]) for i in (0, 1))


@lru_cache(maxsize=4096)
def dual_through(work: DualWork, microbatches: int) -> tuple[float, ...]:
    """When every chip is through; see `dual_ends`. [s]"""
    return tuple(dual_ends(work.as_stages(), microbatches))
