"""The axes of a study: what is varied, over which values."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import InputError, require
from crosstack.io.yaml_tree import Tree
from crosstack.units import UNITS, parse_quantity

__all__ = ["MOST_VALUES", "Assignment", "Axis", "Span", "axis_of_values", "in_bits", "quantity_in"]

Assignment: TypeAlias = "tuple[str, Tree]"
"""A field of the base, by its path, and the value it gets."""

MOST_VALUES = 10_000_000  # of one axis
_QUANTITY = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*(\S.*?)\s*", re.ASCII)
# Bits a second are the rate of a wire or a bandwidth; as a quantity of a study, the latter.
_UNIT_OF = {
    spelling: unit for unit, spellings in UNITS.items() for spelling in spellings if unit != "bit/s"
}


def quantity_in(value: object) -> tuple[float, str] | None:
    """Return a number, or text with a unit, in SI with its unit ("" where it has none).

    None where ``value`` is neither.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if not isinstance(value, str):
        return float(value), ""
    match = _QUANTITY.fullmatch(value)
    if match is None or match[1] not in _UNIT_OF:
        return None
    spelled = match[1]
    try:
        return parse_quantity(value, _UNIT_OF[spelled]), _UNIT_OF[spelled]
    except InputError:
        return None


def in_bits(value: object) -> bool:
    """Return whether ``value`` is text in bits a second, whose number depends on the field."""
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    return match is not None and match[1] in UNITS["bit/s"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Every number from ``low`` to ``high``, in SI: what samples are drawn from.

    ``log``: evenly by logarithm; ``whole``: rounded to whole numbers. ``count`` values of it make
    a grid.
    """

    low: float
    high: float
    count: int
    log: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        """Check both ends."""
        for name in ("low", "high"):
            value = getattr(self, name)
            require(math.isfinite(value), name, value, "a finite number")
            require(value > 0 or not self.log, name, value, "above 0 where values are by logarithm")
        require(self.low <= self.high, "high", self.high, f"at least the low end, {self.low:g}")
        require(1 <= self.count <= MOST_VALUES, "count", self.count, f"1 to {MOST_VALUES:,}")

    def at(self, share: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the numbers at shares of the way, 0 to 1; the ends are met exactly."""
        if self.log:
            low, high = math.log(self.low), math.log(self.high)
            found = np.exp(low + share * (high - low))
        else:
            found = self.low + share * (self.high - self.low)
        found = np.where(share <= 0, self.low, np.where(share >= 1, self.high, found))
        found = np.clip(found, self.low, self.high)
        return np.rint(found) if self.whole else found

    @property
    def grid(self) -> NDArray[np.float64]:
        """``count`` numbers from end to end."""
        return np.unique(self.at(np.linspace(0.0, 1.0, self.count)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One thing that is varied.

    Parameters
    ----------
    name : str
        Of its column.
    labels : tuple of float or str
        What stands in the column for each choice; empty where there is a ``span``.
    choices : tuple of tuple of Assignment
        What each choice sets.
    paths : tuple of str
        Fields that a number of ``span`` is set in.
    span : Span or None
        Where the values are a range.
    unit : str
        SI unit of the numbers, "" where there is none.
    """

    name: str
    labels: tuple[float | str, ...] = ()
    choices: tuple[tuple[Assignment, ...], ...] = ()
    paths: tuple[str, ...] = ()
    span: Span | None = None
    unit: str = ""

    def __post_init__(self) -> None:
        """Check that there is something to choose from."""
        if self.span is None:
            require(len(self.labels) > 0, self.name, "no value", "at least one")
            require(len(set(self.labels)) == len(self.labels), self.name, "a value twice", "once")

    @property
    def is_number(self) -> bool:
        """Whether the column holds numbers."""
        return self.span is not None or not any(isinstance(label, str) for label in self.labels)

    @property
    def fields(self) -> tuple[str, ...]:
        """Every path that some choice sets."""
        if self.span is not None:
            return self.paths
        return tuple(dict.fromkeys(path for choice in self.choices for path, _ in choice))

    def numbers(self) -> NDArray[np.float64]:
        """Return the values of the grid, where they are numbers."""
        return np.array(self.labels, dtype=float) if self.span is None else self.span.grid

    def sets(self, number: float) -> tuple[Assignment, ...]:
        """Return what a number of the span sets."""
        assert self.span is not None  # only spans have numbers that are not labels
        value = int(number) if self.span.whole else float(number)
        return tuple((path, value) for path in self.paths)


def axis_of_values(name: str, rows: Sequence[Mapping[str, Tree]], labels: Sequence[Tree]) -> Axis:
    """Return an axis of listed choices; its column is numbers where all labels are quantities.

    Parameters
    ----------
    rows : sequence of mapping
        What each choice sets: path to value.
    labels : sequence
        What to call each choice.

    Raises
    ------
    InputError
        For an empty list, or one with a value twice.
    """
    found = [quantity_in(label) for label in labels]
    units = {unit for item in found if item is not None for unit in (item[1],)}
    shown: tuple[float | str, ...]
    if None not in found and len(units) == 1:
        shown, unit = tuple(item[0] for item in found if item is not None), units.pop()
    else:
        shown, unit = tuple(_words(label) for label in labels), ""
    choices = tuple(tuple(row.items()) for row in rows)
    return Axis(name=name, labels=shown, choices=choices, unit=unit)


def _words(label: Tree) -> str:
    if isinstance(label, list):
        return " ".join(_words(part) for part in label)
    if isinstance(label, dict):
        return ", ".join(f"{key} {_words(part)}" for key, part in label.items())
    if isinstance(label, bool) or label is None:
        return {True: "true", False: "false", None: "null"}[label]
    return str(label)
