"""Combined 1F1B: a forward pass of one microbatch runs together with a backward pass of another.

As interleaved with one forward, one backward, but for one forward pass more before the first
backward pass, so that the two that follow in turn are of different microbatches and run at the same
time: while tokens of the one are on their way to experts and back, the other is computed. What two
take together is that of DualPipe (`crosstack.model.schedule.dual.pair_time`). One stage takes all
but its first forward and its last backward pass so; several are cut into pieces. Source:
``nvidia_combined_1f1b``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from crosstack.errors import require
from crosstack.model.schedule.dual import pair_time
from crosstack.model.schedule.interleaved import (
    Items,
    in_turn,
    period_of,
    steady_turns,
    turn_of,
    warm_up,
)
from crosstack.model.schedule.levels import NONE, LevelBuilder, Levels, through_many
from crosstack.model.schedule.passes import Item, Pass, Stage


def check_combined(chips: int, pieces: int) -> None:
    """Raise `InputError` where several chips have one piece of the model each. [1]"""
    allowed = f"at least 2 with {chips} stages, in combined 1F1B"
    require(chips == 1 or pieces > 1, "interleave", pieces, allowed)


def combined_order(chip: int, chips: int, microbatches: int, pieces: int) -> list[Items]:
    """Return what a chip does, in order, and which passes of it run together.

    Parameters
    ----------
    chip, chips, microbatches, pieces : int
        Its number; of the pipeline; of an iteration; of a stage. [1]
    """
    return in_turn(warm_up(chip, chips, pieces) + 1, chip, chips, microbatches, pieces)


def combined_items(chips: int, microbatches: int, pieces: int) -> Iterator[Items]:
    """Yield what runs together on any chip, what is waited for first; see `combined_order`."""
    count = chips * pieces
    orders = [combined_order(chip, chips, microbatches, pieces) for chip in range(chips)]
    position = [0] * chips
    passed = {kind: [0] * count for kind in (Pass.FORWARD, Pass.BACKWARD)}
    while any(position[chip] < len(order) for chip, order in enumerate(orders)):
        for chip, order in enumerate(orders):
            while position[chip] < len(order):
                items = order[position[chip]]
                if not all(_may_run(item, passed, count) for item in items):
                    break
                yield items
                for s, _, kind in items:
                    passed[kind][s] += 1
                position[chip] += 1


def _may_run(item: Item, passed: dict[Pass, list[int]], count: int) -> bool:
    """Whether a pass has what it waits for, by microbatches that each piece has ``passed``."""
    s, i, kind = item
    before = s - kind.step
    if 0 <= before < count:
        return passed[kind][before] > i
    return kind is Pass.FORWARD or passed[Pass.FORWARD][s] > i


_KINDS = 3  # of what a piece takes: forward, backward, its send; then pairs by both pieces


@lru_cache(maxsize=32)
def _levels(chips: int, microbatches: int, pieces: int, *, turns: bool = False) -> Levels:
    """Return passes, pairs and sends by levels, and the turns of each.

    Which takes what: as `_times` lists it.
    """
    count, build = chips * pieces, LevelBuilder()
    aheads = [warm_up(chip, chips, pieces) + 1 for chip in range(chips)]
    busy, add = [NONE] * chips, build.add
    links = {kind: [NONE] * chips for kind in (Pass.FORWARD, Pass.BACKWARD)}
    ready: dict[Item, int] = {}
    turn = 0
    for items in combined_items(chips, microbatches, pieces):
        came = [ready.get((s - kind.step, i, kind), NONE) for s, i, kind in items]
        s, i, kind = items[0]
        chip = s % chips
        if turns:
            turn = turn_of(items[0], aheads[chip], 0, chip, chips, pieces)
        if len(items) == 2:
            takes = _KINDS * count + s * pieces + items[1][0] // chips
            if items[1][0] == count - 1:  # the loss
                came[1] = ready[(*items[1][:2], Pass.FORWARD)]
        else:
            takes = s * _KINDS + (kind is Pass.BACKWARD)
            if kind is Pass.BACKWARD and s == count - 1:
                came[0] = ready[s, i, Pass.FORWARD]
        busy[chip] = done = add(takes, busy[chip], *came, at=(takes, turn))
        for s, i, kind in items:
            to = s + kind.step
            sent = done
            if chips > 1 and 0 <= to < count:
                link = min(s, to)
                wire = link % chips
                way = (_KINDS * count + pieces * count + 2 * s + (kind is Pass.BACKWARD), turn)
                sent = add(link * _KINDS + 2, links[kind][wire], done, at=way)
                links[kind][wire] = sent
            ready[s, i, kind] = sent
    return build.build(busy, steady_turns(microbatches, aheads, 0, pieces) if turns else None)


def combined_ends(stages: Sequence[Stage], microbatches: int, pieces: int) -> list[float]:
    """When every chip is through. [s]

    Chips take what is next in their order, each when it and what it needs are through.

    Parameters
    ----------
    stages : sequence of Stage
        Pieces of the model, ``pieces`` of them on every chip.
    microbatches, pieces : int
        Of an iteration, of a stage. [1]
    """
    chips = len(stages) // pieces
    check_combined(chips, pieces)

    def levels_of(some: int, *, turns: bool) -> Levels:
        return _levels(chips, some, pieces, turns=turns)

    times, each = np.array(_times(stages, chips)), period_of(chips, pieces)
    return [float(end) for end in through_many(levels_of, times, chips, microbatches, each)]


def _times(stages: Sequence[Stage], chips: int) -> list[float]:
    """Times of pieces forward, backward and sent on, then of pairs of a chip by the forward one.

    [s]
    """
    own = [(s.time(Pass.FORWARD), s.time(Pass.BACKWARD), s.send) for s in stages]
    pairs = [
        pair_time(one, other)
        for s, one in enumerate(stages)
        for other in stages[s % chips :: chips]
    ]
    return [x for row in own for x in row] + pairs


def hidden_in_pairs(stages: Sequence[Stage], chip: int, microbatches: int, pieces: int) -> float:
    """How much less a chip takes for passes that run together than one after the other. [s]"""
    hidden = 0.0
    for items in combined_order(chip, len(stages) // pieces, microbatches, pieces):
        if len(items) == 2:
            one, other = (stages[s] for s, _, _ in items)
            alone = one.time(Pass.FORWARD) + other.time(Pass.BACKWARD)
            hidden += alone - pair_time(one, other)
    return hidden
