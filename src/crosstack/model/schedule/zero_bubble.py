"""Zero-bubble schedules: the order of passes on each chip, gradients of weights apart.

A stage runs F forward, B back to the inputs, which the stage before waits for, and G back to the
weights, which nothing waits for but the end of the iteration.

* ZB-H1: stage s of p begins ``p - 1 - s`` microbatches before the first comes back, and s gradients
  of weights wait.
* ZB-H2: twice as many begin, and twice as many wait, so that no stage idles between its first pass
  and its last one where F = B = G.
* ZB-V: each chip has two pieces, r and ``2 p - 1 - r``, so that a microbatch goes down all chips,
  turns on the last one and ends on the first one, where it turns back at once. Chips keep p
  microbatches each.

Chips are through at different times, first to last as they begun. As an iteration ends with the
norm of all gradients, what they wait for at its ends is part of it here; the published bubbles
leave it out, for updates that do not wait (optimizer post-validation). Source: qi2024zero, sections
2.3 and 6, and 4 for what is left out; the order of ZB-V pass by pass: pytorch_pipelining.
"""

from __future__ import annotations

from collections.abc import Iterable

from crosstack.errors import require
from crosstack.model.schedule.passes import Item, Pass
from crosstack.workload.transformer_training import Schedule


def piece_chip(piece: int, chips: int, schedule: Schedule) -> int:
    """Return which chip of a pipeline has a piece of the model, numbered from the first. [1]"""
    if schedule is Schedule.ZB_V:
        return min(piece, 2 * chips - 1 - piece)
    return piece % chips


def chip_pieces(chip: int, chips: int, pieces: int, schedule: Schedule) -> list[int]:
    """Return which of ``pieces`` of the model a chip has, the first one first. [1]"""
    return [piece for piece in range(pieces) if piece_chip(piece, chips, schedule) == chip]


def least_microbatches(chips: int, schedule: Schedule) -> int:
    """Microbatches that fill a pipeline whose gradients of weights wait. [1]"""
    return schedule.ahead * (chips - 1) + 1


def check_waiting(chips: int, microbatches: int, schedule: Schedule) -> None:
    """Raise `InputError` where there are too few microbatches for gradients to wait. [1]"""
    least = least_microbatches(chips, schedule)
    words = "as many as stages" if least == chips else f"which fill {chips} stages"
    allowed = f"at least {least}, {words}, with schedule {schedule}"
    require(microbatches >= least, "microbatches", microbatches, allowed)


def waiting_order(chip: int, chips: int, microbatches: int, schedule: Schedule) -> list[Item]:
    """Return what a chip does, in order, under ZB-H1 or ZB-H2.

    With a = 1 or 2, chip c of p takes ``a (p - 1 - c)`` microbatches forward, then one forward and
    one back to the inputs in turn, then what is left back to the inputs; behind each back to the
    inputs the one ``a c`` before goes back to the weights, and the last of those at the end.
    Source: qi2024zero, section 2.3.
    """
    ahead, late = schedule.ahead * (chips - 1 - chip), schedule.ahead * chip
    order: list[Item] = [(chip, i, Pass.FORWARD) for i in range(ahead)]
    for i in range(microbatches):
        if i + ahead < microbatches:
            order.append((chip, i + ahead, Pass.FORWARD))
        order.append((chip, i, Pass.INPUTS))
        if i >= late:
            order.append((chip, i - late, Pass.WEIGHTS))
    return order + [(chip, i, Pass.WEIGHTS) for i in range(microbatches - late, microbatches)]


def v_order(chip: int, chips: int, microbatches: int) -> list[Item]:
    """Return what a chip does, in order, under ZB-V.

    Forward through its first piece until its second one has a microbatch; through both in turn;
    each that turns round at once back through the second piece, with its gradients of weights; then
    one forward, one backward, through the pieces in turn; and behind the last forward pass to the
    inputs first. Source: qi2024zero, section 6; pytorch_pipelining.
    """
    pieces, order = (chip, 2 * chips - 1 - chip), list[Item]()
    done = {(piece, kind): 0 for piece in pieces for kind in Pass}

    def run(place: int, *kinds: Pass) -> None:
        for kind in kinds:
            piece = pieces[place]
            order.append((piece, done[piece, kind], kind))
            done[piece, kind] += 1

    def left(place: int, kind: Pass) -> Iterable[int]:
        return range(microbatches - done[pieces[place], kind])

    back = Pass.INPUTS, Pass.WEIGHTS
    lead = chips - chip
    for _ in range(2 * lead - 1):
        run(0, Pass.FORWARD)
    for _ in range(chip):
        run(1, Pass.FORWARD)
        run(0, Pass.FORWARD)
    for _ in range(lead):
        run(1, Pass.FORWARD, *back)
    for _ in left(1, Pass.FORWARD):
        if left(0, Pass.FORWARD):
            run(0, Pass.FORWARD)
        run(0, *back)
        run(1, Pass.FORWARD, *back)
    for _ in range(chip):
        run(0, Pass.INPUTS)
        run(1, Pass.INPUTS)
    for _ in range(lead):
        run(0, *back)
    for place in (1, 0):
        for _ in left(place, Pass.WEIGHTS):
            run(place, Pass.WEIGHTS)
    return order
