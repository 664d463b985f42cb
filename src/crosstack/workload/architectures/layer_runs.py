"""Layers of a model as groups that repeat: what one block of a graph holds, and how often it runs.

Layers that alternate (a window, then all tokens; experts in every other one) are a group of as many
as come before they repeat. Those that are left when groups no longer fit follow, and those before
the first one with experts go before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from crosstack.workload.architectures.layer import LayerKind
from crosstack.workload.architectures.transformer import Transformer

MOST_TOGETHER = 12  # layers of a group: a graph of more is mapped kind by kind [1]


@dataclass(frozen=True, slots=True)
class LayerRun:
    """``count`` groups of layers, one after the other [1]; ``kinds`` of a group, in order.

    Names of things in a layer begin with its one of ``labels``, those of the block with ``label``.
    """

    kinds: tuple[LayerKind, ...]
    count: int
    label: str
    labels: tuple[str, ...]

    @classmethod
    def alone(cls, kind: LayerKind, count: int, label: str) -> LayerRun:
        """Return layers of one kind."""
        return cls((kind,), count, label, (label,))


def layer_runs(model: Transformer) -> tuple[LayerRun, ...]:
    """Return all layers of a model, in its order where few repeat; else by kind."""
    kinds = [model.layer(index) for index in range(model.layers)]
    known = list(dict.fromkeys(kinds))
    first = 0 if model.experts is None else model.experts.first_dense
    rest = kinds[first:]
    period = _period(rest)
    count = len(rest) // period
    if len(known) > 1 and (count < 2 or period > MOST_TOGETHER):
        found = Counter(kinds).items()
        return tuple(LayerRun.alone(kind, n, _label(kind, known)) for kind, n in found)
    group, left = rest[:period], rest[period * count :]
    alike = period == 1
    main = (
        LayerRun.alone(group[0], count, _label(group[0], known))
        if alike
        else LayerRun(tuple(group), count, "", tuple(_labels(group, known)))
    )
    before = _alike(kinds[:first], known, "" if alike else "first_")
    return (*before, main, *_alike(left, known, "last_"))


def _period(kinds: Sequence[LayerKind]) -> int:
    """Return how many layers come before they repeat, by the longest start that is an end. [1]"""
    longest = [0]
    for kind in kinds[1:]:
        length = longest[-1]
        while length and kind != kinds[length]:
            length = longest[length - 1]
        longest.append(length + (kind == kinds[length]))
    return len(kinds) - longest[-1]


def _alike(kinds: Sequence[LayerKind], known: list[LayerKind], word: str) -> Iterator[LayerRun]:
    """Yield layers that follow one another and are of one kind, called by a word of their own."""
    runs = [(kind, len(list(run))) for kind, run in groupby(kinds)]
    labels = _labels([kind for kind, _ in runs], known)
    for (kind, count), label in zip(runs, labels, strict=True):
        yield LayerRun.alone(kind, count, word + label)


def _labels(group: Sequence[LayerKind], known: list[LayerKind]) -> Iterator[str]:
    """Yield a label of each layer of a group, with its number among several of a kind."""
    many, seen = Counter(group), Counter[LayerKind]()
    for kind in group:
        seen[kind] += 1
        number = f"{seen[kind]}_" if many[kind] > 1 else ""
        yield _label(kind, known) + number


def _label(kind: LayerKind, known: list[LayerKind]) -> str:
    """Return what the names of a kind of layer begin with: what tells it from the others."""
    words = []
    if len({other.experts for other in known}) > 1:
        words.append("expert_" if kind.experts else "dense_")
    if len({other.window for other in known}) > 1:
        words.append("window_" if kind.window else "global_")
    return "".join(words)
