"""Labels of a part of a series-parallel graph, without those that others beat.

A label says what tensors of the part move at least, by the SRAM it takes in three places
(`crosstack.mapping.series_parallel`). One that moves no less and takes no less in any place than
another one of the same kind is *beaten*: whatever is added to both, it stays so. Where too many are
left, SRAM is rounded down to steps, which only makes labels better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum

import numpy as np

from crosstack.workload.kernel_graph import Bools, Floats, Ints

__all__ = ["How", "Labels", "Most", "Reader", "least_labels", "pairs_of"]

FINEST = 1024  # steps of SRAM where labels are too many, halved until they are few enough
READ_STEPS = 64  # the same of SRAM of closed readers
CELLS = 300  # of a table of steps, for each label that is kept
COARSE = 40  # steps by which labels are told that others beat clearly
MOST_PAIRS = 500_000  # of labels at a time
FEW = 1000  # labels that are compared without
MOST_COMPARED = 20_000  # of those that no other beats clearly
ROWS = 256  # labels compared with all others at a time


class How(IntEnum):
    """Where the node between two parts is; of parts side by side it says nothing."""

    APART = 0  # in a partition that is not that of either end
    WITH_FIRST = 1
    WITH_LAST = 2


class Reader(IntEnum):
    """Where readers of tensor x are, in a part that begins with it."""

    WITH_PRODUCER = 0  # all of them, or x is a kernel
    ELSEWHERE = 1  # some in closed partitions, none in that of y
    WITH_LAST = 2  # some in that of y


@dataclass(frozen=True, slots=True)
class Most:
    """SRAM of any partition [B], and how many labels of a part are kept for each `Reader`."""

    sram: float
    labels: int


@dataclass(frozen=True, slots=True)
class Labels:
    """What is moved [s], the SRAM at the first and the last node [B], and a `Reader`, by label.

    ``read`` is the SRAM of closed partitions that read the first node, but for its buffers. [B]
    ``how`` and the labels ``one`` and ``other`` of two parts are what each was made of.
    """

    moved: Floats
    first: Floats
    last: Floats
    read: Floats
    reader: Ints
    how: Ints
    one: Ints
    other: Ints

    def at(self, kept: Bools | Ints) -> Labels:
        """Return some of the labels."""
        return Labels(*(getattr(self, name)[kept] for name in COLUMNS))

    @property
    def parted(self) -> Bools:
        """Whether some reader is not with the producer."""
        return np.asarray(self.reader != Reader.WITH_PRODUCER)

    @classmethod
    def joined(cls, every: Sequence[Labels]) -> Labels:
        """Return those of all."""
        if len(every) == 1:
            return every[0]
        return cls(*(np.concatenate([getattr(one, name) for one in every]) for name in COLUMNS))


COLUMNS = [field.name for field in fields(Labels)]


def least_labels(some: Sequence[Labels], most: Most) -> Labels:
    """Return all labels but those that others beat or that take more than ``most`` SRAM."""
    every = Labels.joined(some)
    every = every.at(np.flatnonzero((every.first <= most.sram) & (every.last <= most.sram)))
    kept = [_least(one, most) for one in _by_reader(every)]
    return Labels.joined(kept) if kept else every


def pairs_of(
    a: Labels, b: Labels, fitting: Callable[[slice], Bools], made: Callable[[Ints, Ints], Labels]
) -> list[Labels]:
    """Return what is ``made`` of pairs of labels that fit, of many without what is clearly beaten.

    ``fitting`` tells of some of the first ones whether they fit each of the others.
    """
    none = np.zeros(0, dtype=np.int64)
    found, rows = [made(none, none)], max(MOST_PAIRS // max(len(b.moved), 1), 1)
    for start in range(0, len(a.moved), rows):
        i, j = np.nonzero(fitting(slice(start, start + rows)))
        pairs = made(i + start, j)
        found += [pairs] if len(a.moved) <= rows else [_clear(one) for one in _by_reader(pairs)]
    return found


def _by_reader(labels: Labels) -> list[Labels]:
    """Return those labels of each `Reader` that there are."""
    found = [np.flatnonzero(labels.reader == one) for one in Reader]
    return [labels.at(those) for those in found if len(those)]


def _least(labels: Labels, most: Most) -> Labels:
    """Return labels of one `Reader` that none beats, SRAM rounded down where they are too many."""
    labels = _clear(labels)
    if len(labels.moved) <= MOST_COMPARED:
        labels = _unbeaten(labels)
    steps, read_steps = FINEST, float(READ_STEPS)
    while len(labels.moved) > most.labels:
        levels = len(np.unique(np.floor(labels.read / (most.sram / read_steps))))
        if (steps + 1) ** 2 * levels <= CELLS * most.labels:
            labels = _rounded(labels, most.sram, steps, read_steps)
        if levels > steps:
            read_steps /= 2
        else:
            steps = max(steps // 2, 1)
    return labels


def _clear(labels: Labels) -> Labels:
    """Return labels of one `Reader`, of many without those that others beat clearly."""
    if len(labels.moved) <= FEW:
        return labels
    return labels.at(np.flatnonzero(~_clearly_beaten(labels)))


def _clearly_beaten(labels: Labels) -> Bools:
    """Whether one that moves less is in lower steps of SRAM than each label, or also takes none."""
    table = np.full((COARSE + 1,) * 3, np.inf)
    each = []
    for sram in (labels.first, labels.last, labels.read):
        most = float(sram.max())
        steps = np.ceil(sram / (most / COARSE if most > 0 else 1.0))
        each.append(np.minimum(steps, COARSE).astype(int))
    np.minimum.at(table, tuple(each), labels.moved)
    for axis in range(3):
        table = np.minimum.accumulate(table, axis=axis)
    lower = tuple(np.maximum(place - 1, 0) for place in each)
    return np.asarray(table[lower] < labels.moved)


def _unbeaten(labels: Labels) -> Labels:
    """Return the labels that none beats in what is moved and SRAM, of equal ones the first."""
    if len(labels.moved) == 1:
        return labels
    labels = labels.at(np.lexsort((labels.read, labels.last, labels.first, labels.moved)))
    columns = np.stack([labels.first, labels.last, labels.read])
    kept = np.zeros(0, dtype=np.int64)
    for start in range(0, len(labels.moved), ROWS):
        rows = np.arange(start, min(start + ROWS, len(labels.moved)))
        beaten = np.zeros(len(rows), dtype=np.bool_)
        for before, own in ((kept, False), (rows, True)):
            less = np.ones((len(rows), len(before)), dtype=np.bool_)
            for sram in columns:
                less &= sram[rows, None] >= sram[before]
            beaten |= (np.tril(less, -1) if own else less).any(axis=1)
        kept = np.concatenate([kept, rows[~beaten]])
    return labels.at(kept)


def _rounded(labels: Labels, most: float, steps: int, read_steps: float) -> Labels:
    """Return labels whose SRAM is rounded down to steps, and none beats another."""
    units = most / steps, most / steps, most / read_steps
    columns = labels.first, labels.last, labels.read
    each = [np.floor(x / unit).astype(int) for x, unit in zip(columns, units, strict=True)]
    read, each[2] = np.unique(each[2], return_inverse=True)  # few, and without end
    shape = steps + 1, steps + 1, len(read)
    table = np.full(shape, np.inf)
    np.minimum.at(table, tuple(each), labels.moved)
    below = table
    for axis in range(3):
        below = np.minimum.accumulate(below, axis=axis)
    beaten = np.full(shape, np.inf)
    beaten[1:] = below[:-1]
    beaten[:, 1:] = np.minimum(beaten[:, 1:], below[:, :-1])
    beaten[:, :, 1:] = np.minimum(beaten[:, :, 1:], below[:, :, :-1])
    a, b, c = np.nonzero(table < beaten)
    least = np.zeros(shape, dtype=np.int64)  # the label of each step that moves least
    rank = np.argsort(-labels.moved, kind="stable")
    least[tuple(steps_of[rank] for steps_of in each)] = rank
    return replace(
        labels.at(np.asarray(least[a, b, c])),
        first=np.multiply(a, units[0]),
        last=np.multiply(b, units[1]),
        read=np.multiply(read[c], units[2]),
    )
