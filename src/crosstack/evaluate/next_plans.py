"""The plans next to an answer: what each decides otherwise, and what it trades for that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crosstack.evaluate.evaluation import Evaluation
from crosstack.machine.system import Parallelism
from crosstack.mapping.mapping import GeneralDecisions, Mapping

__all__ = ["PLACES", "Difference", "RankedStrategies", "decided_otherwise", "places_of"]

PLACES = "places"  # of degrees that are the same
_OF_DEGREES = {"sizes", "parallelism", "dimensions"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedStrategies:
    """The fastest strategies, best first, of ``total``; ``blocks`` were solved for them. [1]"""

    found: tuple[tuple[Mapping, Evaluation], ...]
    total: int
    blocks: int

    def without(self, mapping: Mapping, count: int) -> RankedStrategies:
        """Return the first so many that decide something for the whole graph otherwise. [1]"""
        others = [one for one in self.found if _asked(one[0]) != _asked(mapping)]
        return RankedStrategies(found=tuple(others[:count]), total=self.total, blocks=self.blocks)


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
