"""The plans next to an answer: what each decides otherwise, and what it trades for that."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from crosstack.evaluate.evaluation import Evaluation
from crosstack.machine.system import Parallelism
from crosstack.mapping.mapping import GeneralDecisions, Mapping

__all__ = ["PLACES", "Difference", "RankedStrategies", "decided_otherwise", "places_of"]

PROVED = 1e-9  # relative gap that counts as none
PLACES = "places"  # of degrees that are the same
_OF_DEGREES = {"sizes", "parallelism", "dimensions"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedStrategies:
    """The fastest strategies, best first, of ``total``; ``blocks`` were solved for them. [1]

    ``bounds``: what no mapping of each takes less than, ``left`` what no strategy does that is not
    found; where nothing is said of them, 0. [s]
    """

    found: tuple[tuple[Mapping, Evaluation], ...]
    total: int
    blocks: int
    bounds: tuple[float, ...] = ()
    left: float = 0.0

    def gap(self, number: int) -> float | None:
        """Return how much faster a mapping of one of them may be, of its time; None: not known."""
        if number >= len(self.bounds) or self.bounds[number] <= 0:
            return None
        return max(0.0, 1 - self.bounds[number] / self.found[number][1].time)

    @property
    def exact(self) -> bool:
        """Whether these are the fastest, each with the time of its best mapping."""
        if not self.found or len(self.bounds) < len(self.found):
            return False
        gaps = [self.gap(number) for number in range(len(self.found))]
        last = self.found[-1][1].time * (1 - PROVED)
        return self.left >= last and all(gap is not None and gap <= PROVED for gap in gaps)

    def without(self, mapping: Mapping, count: int) -> RankedStrategies:
        """Return the first so many that decide something for the whole graph otherwise. [1]"""
        bounds = self.bounds or (0.0,) * len(self.found)
        pairs = zip(self.found, bounds, strict=True)
        others = [(one, b) for one, b in pairs if _asked(one[0]) != _asked(mapping)]
        return replace(
            self,
            found=tuple(one for one, _ in others[:count]),
            bounds=tuple(b for _, b in others[:count]),
            left=min([self.left, *(b for _, b in others[count:])]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A decision that another mapping makes otherwise: ``here``, and ``there``."""

    decision: str
    here: Any
    there: Any


def decided_otherwise(here: Mapping, there: Mapping) -> tuple[Difference, ...]:
    """Return what another mapping decides otherwise for the whole graph, degrees first.

    Degrees are those of `Parallelism`; that they are the same on other levels of the network is a
    decision of its own, `PLACES`.
    """
    pairs: list[tuple[str, Any, Any]] = [
        (use.value, here.degree(use), there.degree(use)) for use in Parallelism
    ]
    if all(a == b for _, a, b in pairs):
        pairs.append((PLACES, places_of(here), places_of(there)))
    before, after = here.general, there.general
    pairs += [
        (name, getattr(before, name), getattr(after, name))
        for name in GeneralDecisions._fields
        if name not in _OF_DEGREES
    ]
    return tuple(Difference(decision=name, here=a, there=b) for name, a, b in pairs if a != b)


def _asked(mapping: Mapping) -> tuple[Any, ...]:
    """Return what a mapping decides for the whole graph; levels that one chip has say nothing."""
    general = mapping.general._asdict()
    return places_of(mapping), *(value for n, value in general.items() if n not in _OF_DEGREES)


def places_of(mapping: Mapping) -> tuple[tuple[int, str, int], ...]:
    """Return the level, the parallelism and the chips of every use of the network."""
    levels = mapping.dimensions or range(len(mapping.sizes))
    uses = zip(levels, mapping.parallelism, mapping.sizes, strict=True)
    return tuple((level, use.value, size) for level, use, size in uses if size > 1)
