"""Which piece a chip runs when, one forward, one backward, where stages may be cut into pieces.

A chip takes p microbatches through one of its pieces, then p through the next
(``narayanan2021megatron``, sections 2.2.1 and 2.2.2).
"""

from __future__ import annotations

from crosstack.model.schedule.passes import Item, Pass


def warm_up(chip: int, chips: int, pieces: int) -> int:
    """Passes forward before the first one backward of a chip whose stage is cut, of the next. [1]

    A piece behind those of the chips below is ``2 (p - 1 - c)`` passes away, forward and back.
    """
    return 2 * (chips - 1 - chip) + (pieces - 1) * chips


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


def interleaved_order(chip: int, chips: int, microbatches: int, pieces: int) -> list[Item]:
    """Return what a chip does, in order, one forward, one backward.

    Chip c of p takes ``p - 1 - c`` microbatches forward, then one forward and one backward in turn,
    then what is left backward; cut into pieces, `warm_up` of them first.
    """
    total = microbatches * pieces
    lead = chips - 1 - chip if pieces == 1 else warm_up(chip, chips, pieces)
    ahead = min(lead, total)

    def piece(k: int, kind: Pass) -> Item:
        return piece_of(k, kind, chip, chips, pieces)

    order = [piece(k, Pass.FORWARD) for k in range(ahead)]
    for k in range(total - ahead):
        order += [piece(ahead + k, Pass.FORWARD), piece(k, Pass.BACKWARD)]
    return order + [piece(k, Pass.BACKWARD) for k in range(total - ahead, total)]
