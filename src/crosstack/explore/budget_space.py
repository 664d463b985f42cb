"""The free part of a budget as a space: shares of area, power and edge, and the chip's size."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import InputError, Problem, require
from crosstack.explore.simplex import Group, SimplexSpace
from crosstack.machine.generate.budget import Budget
from crosstack.machine.generate.template import ChipTemplate

__all__ = ["CLASSES", "AreaRange", "BudgetSpace"]

Floats = NDArray[np.float64]
CLASSES = ("area", "power", "edge")
UNUSED = "unused"
CHIP_AREA, TAKEN, LEFT = "chip area", "taken", "left"


@dataclass(frozen=True, slots=True, kw_only=True)
class AreaRange:
    """The chip may take ``low`` to ``high`` of the package. [m^2]"""

    low: float
    high: float

    def __post_init__(self) -> None:
        """Check that it is a range."""
        require(
            0 < self.low < self.high < math.inf, "chip_area", (self.low, self.high), "low < high"
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BudgetSpace:
    """How a budget may be shared out.

    Parameters
    ----------
    template : ChipTemplate
        What the chip is made of.
    budget : Budget
        Package area, power, and the shares to start from; those of ``held`` components stay.
    chip_area : AreaRange or None
        None: as in the budget.
    held : tuple of str
        Components whose shares are as in the budget.
    spare : tuple of str
        Of ``area`` and ``power``, what may be left unused.
    """

    template: ChipTemplate
    budget: Budget
    chip_area: AreaRange | None = None
    held: tuple[str, ...] = ()
    spare: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check that there is one budget, and that every held component exists."""
        require(self.budget.shape == (), "budget", "arrays", "single numbers")
        unknown = [name for name in self.held if name not in self.template.components]
        if unknown:
            allowed = ", ".join(self.template.components)
            raise InputError(Problem("held", f"no component {unknown[0]!r}; allowed: {allowed}."))

    def shares(self, kind: str) -> dict[str, float]:
        """Shares of ``area``, ``power`` or ``edge`` in the budget. [1]"""
        b = self.budget
        parts, whole = {
            "area": (b.areas, b.chip_area),
            "power": (b.powers, b.power),
            "edge": (b.edges, 1.0),
        }[kind]
        return {name: float(np.asarray(p)) / float(np.asarray(whole)) for name, p in parts.items()}

    def free(self, kind: str) -> tuple[str, ...]:
        """Components that share out what is not held; one that has nothing gets nothing."""
        shares = self.shares(kind)
        names = [n for n in self.template.components if n not in self.held and shares.get(n, 0) > 0]
        if kind in self.spare:
            names.append(UNUSED)
        return tuple(names)

    def _left(self, kind: str) -> float:
        return 1.0 - sum(s for name, s in self.shares(kind).items() if name in self.held)

    @property
    def space(self) -> SimplexSpace:
        """Everything that is free.

        Raises `InputError` if nothing is.
        """
        groups = []
        for kind in CLASSES:
            parts = self.free(kind)
            left = self._left(kind)
            if len(parts) > 1 and left > 0:
                groups.append(Group(name=kind, parts=parts, total=left))
        if self.chip_area is not None:
            groups.append(Group(name=CHIP_AREA, parts=(TAKEN, LEFT)))
        if not groups:
            raise InputError(Problem("held", "nothing is free; hold fewer components."))
        return SimplexSpace(groups=tuple(groups))

    @property
    def start(self) -> Floats:
        """The point of the budget itself, its free shares scaled up to all that is left."""
        space, point = self.space, []
        for group in space.groups:
            if group.name == CHIP_AREA:
                assert self.chip_area is not None
                low, high = self.chip_area.low, self.chip_area.high
                taken = (float(np.asarray(self.budget.chip_area)) - low) / (high - low)
                taken = min(max(taken, 0.01), 0.99)
                point += [taken, 1 - taken]
                continue
            shares = self.shares(group.name)
            known = [shares[name] for name in group.parts if name != UNUSED]
            # Of what is not used, start with a little: nothing would have no logarithm.
            point += known + [0.1 * sum(known)] * (UNUSED in group.parts)
        return space.project(np.array(point))

    @property
    def centre(self) -> Floats:
        """The point where every part of a group has the same share."""
        return self.space.project(np.ones(self.space.n_shares))

    def budgets(self, points: Floats) -> Budget:
        """Return the budgets of many points as one with arrays, an entry a point."""
        space, b = self.space, self.budget
        count = len(points)
        area = np.full(count, float(np.asarray(b.chip_area)))
        taken: dict[str, dict[str, Floats]] = {kind: {} for kind in CLASSES}
        for kind in CLASSES:
            for name, share in self.shares(kind).items():
                taken[kind][name] = np.full(count, share)
            only = [name for name in self.free(kind) if name != UNUSED]
            if len(self.free(kind)) == 1 and only:
                taken[kind][only[0]] = np.full(count, self._left(kind))
        for group, part in zip(space.groups, space.slices, strict=True):
            if group.name == CHIP_AREA:
                assert self.chip_area is not None
                low, high = self.chip_area.low, self.chip_area.high
                area = low + (high - low) * points[:, part.start]
                continue
            for name, share in zip(group.parts, points[:, part].T, strict=True):
                if name != UNUSED:
                    taken[group.name][name] = share
        return Budget(
            package_area=b.package_area,
            chip_area=area,
            power=b.power,
            areas={name: share * area for name, share in taken["area"].items()},
            powers={name: share * np.asarray(b.power) for name, share in taken["power"].items()},
            edges=taken["edge"],
        )
