"""Tasks that an iteration of training begins and ends with: weights sent round, sums, updates.

What is sent beside passes takes a share x of the chip, so that those take x times as long more as
it is beside them. All chips are sent their weights at the same time; who sums gradients beside its
passes, and why others do behind theirs: `crosstack.model.optimizer_step`, whose closed forms these
tasks end with.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from crosstack.model.schedule.events import TaskGraphBuilder
from crosstack.model.schedule.passes import Ending

Pieces = Sequence[Sequence[int]]  # those of each chip, in the order in which weights come


def slower_first(ending: Ending, pieces: Pieces) -> tuple[float, float]:
    """What the first chip takes longer beside weights: in its first pass, and behind it. [s]

    ``pieces`` are those of each chip.
    """
    step, chips = ending.step, len(pieces)
    if not step.ahead:
        return 0.0, 0.0
    bucket, own = step.gather / ending.layers, ending.held(0, chips) * step.gather
    piece = own * chips / sum(map(len, pieces))
    heads = step.behind * (chips == 1)
    return ending.taken * (piece - bucket + heads), ending.taken * (own - piece)


def slower_last(ending: Ending, pieces: Pieces, chip: int, piece: int, *, deferred: bool) -> float:
    """What the last pass through a piece of a chip takes longer beside sums of gradients. [s]

    ``deferred``: whether gradients of weights wait, so that every chip sums beside its passes.
    """
    step, chips = ending.step, len(pieces)
    if not step.overlapped or not (deferred or chip == 0):
        return 0.0
    count = sum(map(len, pieces))
    whole = ending.held(chip, chips) * step.sums * chips / count
    whole += _sum_of_last(ending, chips) * (piece == count - 1)
    if piece == pieces[chip][0]:  # whose last layer is summed behind it
        whole -= step.sums / ending.layers
    return float(ending.taken * whole)


def _sum_of_last(ending: Ending, chips: int) -> float:
    """How long gradients of the last stage's end take, without the first one's. [s]"""
    return float(ending.step.last - ending.step.first * (chips == 1))


def add_gathers(
    build: TaskGraphBuilder, ending: Ending, pieces: Pieces
) -> dict[int, tuple[int, list[tuple[int, float]]]]:
    """Add sending round the weights that the iteration before updated, of each chip's ``pieces``.

    Return of each piece what its first microbatch begins behind, and which tasks it ends at least
    so many seconds behind. [s]
    """
    step, chips = ending.step, len(pieces)
    if not step.gather:
        return {}
    count = sum(map(len, pieces))
    bucket = step.gather / ending.layers
    found: dict[int, tuple[int, list[tuple[int, float]]]] = {}
    for chip in range(chips):
        own = partial(build.add, resource=f"weights {chip}", kind="transfer")
        besides = step.before * (chip == 0), step.behind * (chip == chips - 1)
        held = ending.held(chip, chips)
        each = held * ending.layers * chips / count  # layers of a piece
        if not step.ahead:
            whole = own("weights sent round", held * step.gather + sum(besides))
            found.update({s: (whole, []) for s in pieces[chip]})
            continue
        after: list[int] = []  # pieces in their order, which a link does not know
        for s in pieces[chip]:
            one = bucket + besides[0] * (s == 0)
            begun = own(f"weights of the first layer, stage {s}", one, after=after)
            rest = own(f"weights of stage {s}", (each - 1) * bucket, after=[begun])
            head = ending.head[0] * (s == count - 1)
            pending = [(rest, held * ending.forward / each + head)]
            if s == count - 1:
                last = own("weights of the head", besides[1], after=[rest])
                pending.append((last, head))
            found[s], after = (begun, pending), [rest]
    return found


def add_ending(
    build: TaskGraphBuilder,
    ending: Ending,
    final: dict[int, tuple[list[int], int]],
    pieces: Pieces,
    through: Sequence[int],
    *,
    deferred: bool,
) -> None:
    """Add the sums of gradients, by layers where they are overlapped, and the updates.

    ``final`` is what the last backward pass of every stage waits for, and its last task;
    ``through`` the last task of every chip, which has ``pieces``; ``deferred`` as `slower_last`.
    """
    step, count, chips = ending.step, len(final), len(pieces)
    last = _sum_of_last(ending, chips)
    bucket, summed = step.sums / ending.layers, []
    for chip in range(chips):
        own = {"resource": f"sums {chip}", "kind": "transfer"}
        besides = step.first * (chip == 0), last * (chip == chips - 1)
        held = ending.held(chip, chips)
        each = held * ending.layers * chips / count  # layers of a piece
        if not step.overlapped:
            whole = held * step.sums + sum(besides)
            summed.append(build.add("sum of gradients", whole, after=[through[chip]], **own))
            continue
        for place, s in reversed(list(enumerate(pieces[chip]))):
            waits, done = final[s]
            if chip and not deferred:  # behind the last piece; others when the first chip does
                after = [final[pieces[0][place]][1] if place else done]
                whole = each * bucket + besides[1] * (s == count - 1)
                task = build.add(f"sums of stage {s}", whole, after=after, **own)
                continue
            one = ending.lead + ending.head[1] * (s == count - 1)
            begun = build.add(f"first layer back, stage {s}", one, after=waits, kind="hand over")
            most = (each - 1) * bucket + besides[1] * (s == count - 1)
            task = build.add(f"sums of stage {s}", most, after=[begun], **own)
            rest = bucket + besides[0] * (s == 0)
            task = build.add(f"last sum of stage {s}", rest, after=[task, done], **own)
        summed.append(task)
    add_updates(build, ending, summed)


def add_updates(build: TaskGraphBuilder, ending: Ending, summed: Sequence[int]) -> None:
    """Add the update of each chip, behind the norm of what all chips have ``summed``."""
    known = build.add("norm of all gradients", after=summed, kind="hand over")
    for chip in range(len(summed)):
        own = {"resource": f"memory {chip}", "kind": "update"}
        build.add("update of weights", ending.step.update, after=[known], **own)
