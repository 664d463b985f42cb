"""Which piece a chip runs when, one forward, one backward, where stages may be cut into pieces.

A chip takes p microbatches through one of its pieces, then p through the next
(``narayanan2021megatron``, sections 2.2.1 and 2.2.2).
"""

from __future__ import annotations

from collections.abc import Sequence

from crosstack.model.schedule.levels import Steady
from crosstack.model.schedule.passes import Item, Pass

Items = tuple[Item, ...]  # what runs at a time: one pass, or one forward and one backward


def warm_up(chip: int, chips: int, pieces: int) -> int:
    """Passes forward before the first one backward of a chip whose stage is cut, of the next. [1]

    A piece behind those of the chips below is ``2 (p - 1 - c)`` passes away, forward and back.
    """
    return 2 * (chips - 1 - chip) + (pieces - 1) * chips


def passes_ahead(chip: int, chips: int, pieces: int) -> int:
    """Passes forward before the first one backward, one forward, one backward. [1]"""
    return chips - 1 - chip if pieces == 1 else warm_up(chip, chips, pieces)


def piece_of(k: int, kind: Pass, chip: int, chips: int, pieces: int) -> Item:
    """Return the k-th pass of a kind that a chip runs: its piece of the model, and microbatch.

    Parameters
    ----------
    k : int
        Its number, from 0. [1]
    chip, chips, pieces : int
        Number of the chip; of the pipeline, of a stage. [1]
    """
    round_, within = divmod(k, chips * pieces)
    turn, i = divmod(within, chips)
    own = turn if kind is Pass.FORWARD else pieces - 1 - turn
    return own * chips + chip, round_ * chips + i, kind


def turn_of(item: Item, ahead: int, late: int, chip: int, chips: int, pieces: int) -> int:
    """Return the turn of its chip that a pass is in, counted so that none waits for a later one.

    A turn is a pass forward, one backward, and one to the weights where those wait. In the same one
    a chip is a turn behind the next: passes back come from there.

    Parameters
    ----------
    item : tuple
        Piece of the model, microbatch, and what is done.
    ahead, late : int
        Passes forward before the first one backward; those to the weights that wait. [1]
    chip, chips, pieces : int
        Its number; of the pipeline, of a stage. [1]
    """
    s, i, kind = item
    round_, within = divmod(i, chips)
    own = s // chips if kind is Pass.FORWARD else pieces - 1 - s // chips
    number = i if pieces == 1 else (round_ * pieces + own) * chips + within
    lead = {Pass.FORWARD: -ahead, Pass.WEIGHTS: late}.get(kind, 0)
    return number + lead + chips - 1 - chip


def period_of(chips: int, pieces: int) -> int:
    """Microbatches after which chips do the same again. [1]"""
    return 1 if pieces == 1 else chips


def steady_turns(microbatches: int, aheads: Sequence[int], late: int, pieces: int) -> Steady:
    """Return the turns in which all chips do the same.

    Parameters
    ----------
    microbatches, late, pieces : int
        Of an iteration; those to the weights that wait at most; of a stage. [1]
    aheads : sequence of int
        Passes forward of every chip before its first one backward. [1]
    """
    chips = len(aheads)
    passes = [microbatches * pieces - ahead + chips - 1 - c for c, ahead in enumerate(aheads)]
    return Steady(chips - 1 + late, min(passes) - 1, pieces * period_of(chips, pieces))


def interleaved_order(chip: int, chips: int, microbatches: int, pieces: int) -> list[Item]:
    """Return what a chip does, in order, one forward, one backward.

    Chip c of p takes ``p - 1 - c`` microbatches forward, then one forward and one backward in turn,
    then what is left backward; cut into pieces, `warm_up` of them first.
    """
    ahead = passes_ahead(chip, chips, pieces)
    return [item for items in in_turn(ahead, chip, chips, microbatches, pieces) for item in items]


def in_turn(ahead: int, chip: int, chips: int, microbatches: int, pieces: int) -> list[Items]:
    """Return what a chip does: so many passes ``ahead``, forward and backward in turn, the rest.

    Parameters
    ----------
    ahead : int
        Passes forward before the first one backward, if there are as many. [1]
    chip, chips, microbatches, pieces : int
        Its number; of the pipeline; of an iteration; of a stage. [1]
    """
    total = microbatches * pieces
    ahead = min(ahead, total)

    def piece(k: int, kind: Pass) -> Item:
        return piece_of(k, kind, chip, chips, pieces)

    order: list[Items] = [(piece(k, Pass.FORWARD),) for k in range(ahead)]
    for k in range(total - ahead):
        order.append((piece(ahead + k, Pass.FORWARD), piece(k, Pass.BACKWARD)))
    return order + [(piece(k, Pass.BACKWARD),) for k in range(total - ahead, total)]
