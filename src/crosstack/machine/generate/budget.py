"""What a chip may take: area, power and edge, and how they are shared out.

Any number may be an array: a budget then stands for many, and everything that comes out of it has
the same shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crosstack.errors import InputError, Problem, did_you_mean, require

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Budget:
    """Area, power and edge of a chip and its parts.

    Source of the fields: ``ardalani2022deepflow``, section 4.3.

    ``package_area``: the chip and the memory beside it [m^2]; ``chip_area``: the chip [m^2];
    ``power``: everything [W]; ``areas``: on the chip, for each component; 0 for one left out [m^2];
    ``powers``: for each component; 0 for one left out [W]; ``edges``: share of the chip's
    perimeter, for main memory and links [1].
    """

    package_area: ArrayLike
    chip_area: ArrayLike
    power: ArrayLike
    areas: Mapping[str, ArrayLike] = field(default_factory=dict)
    powers: Mapping[str, ArrayLike] = field(default_factory=dict)
    edges: Mapping[str, ArrayLike] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that every number is finite and not below 0."""
        for name in ("package_area", "chip_area", "power"):
            _check(name, getattr(self, name))
        for name in ("areas", "powers", "edges"):
            for component, value in getattr(self, name).items():
                _check(f"{name}.{component}", value)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of everything that comes out. [1]"""
        values = [self.package_area, self.chip_area, self.power]
        for parts in (self.areas, self.powers, self.edges):
            values += parts.values()
        return np.broadcast_shapes(*(np.shape(value) for value in values))

    def check_components(self, components: tuple[str, ...]) -> None:
        """Raise `InputError` for a part of the budget that no component takes."""
        known = ", ".join(components)
        problems = [
            Problem(f"{name}.{part}", f"no such component.{did_you_mean(part, components)} "
                    f"Components: {known}.")
            for name in ("areas", "powers", "edges")
            for part in getattr(self, name)
            if part not in components
        ]  # fmt: skip
        if problems:
            raise InputError(problems)

    def area(self, component: str) -> Floats:
        """Of one component. [m^2]"""
        return np.asarray(self.areas.get(component, 0.0), dtype=float)

    def power_of(self, component: str) -> Floats:
        """Of one component. [W]"""
        return np.asarray(self.powers.get(component, 0.0), dtype=float)

    def edge(self, component: str) -> Floats:
        """Length of edge of one component: its share of ``4 sqrt(chip_area)``, a square. [m]"""
        perimeter = 4 * np.sqrt(np.asarray(self.chip_area, dtype=float))
        return np.asarray(perimeter * np.asarray(self.edges.get(component, 0.0), dtype=float))


def _check(name: str, value: ArrayLike) -> None:
    try:
        numbers = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        numbers = np.asarray(np.nan)
    good = bool(np.all(np.isfinite(numbers) & (numbers >= 0)))
    shown = value if np.ndim(numbers) == 0 else "an array"
    require(good, name, shown, "finite numbers, 0 or above")
