"""What a search knows of each strategy, for searches of the same task on machines like its own."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from crosstack.machine.system import System
from crosstack.mapping.parallelism import Use
from crosstack.mapping.strategies import RECOMPUTED, Strategies
from crosstack.model.partition import ROUNDING
from crosstack.workload.kernel_graph import Bools, Floats, Ints
from crosstack.workload.transformer_training import Recompute

__all__ = ["Noted", "StrategyBounds"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StrategyBounds:
    """Strategies of a task that may fit a machine, each with what it takes there at least.

    ``of`` is the place among the ``uses`` of the network of the plan of each strategy there is;
    ``bounds``, shape (n,), are those of the objective [s], ``roomy`` those that hold whatever room
    main memory has [s], and ``rest`` is one on every strategy
    that may fit and is not here [s]; ``floors``, shape (n,), hold whatever memories on the chip
    hold: they are by compute and links alone. [s] ``system`` is the machine that they were bounded
    on; ``heavy`` are those that its main memory does not hold, with what each ``held`` there at
    least, where all of them are known. [B]
    """

    uses: tuple[Use, ...]
    of: Ints
    strategies: Strategies
    bounds: Floats
    floors: Floats
    roomy: Floats
    rest: float = math.inf
    system: System | None = None
    heavy: Strategies | None = None
    held: Floats = field(default_factory=lambda: np.zeros(0))

    def at(self, places: Ints | Bools) -> StrategyBounds:
        """Return some of them, and none that are too heavy."""
        return replace(
            self,
            heavy=None,
            strategies=self.strategies.at(places),
            bounds=self.bounds[places],
            floors=self.floors[places],
            roomy=self.roomy[places],
        )

    def lighter(self, light: Bools) -> StrategyBounds:
        """Return those that main memory holds, and the others apart.

        Parameters
        ----------
        light : array
            Which of them it holds; ``held`` are of all. [B]
        """
        heavy = self.strategies.at(~light)
        return replace(self.at(light), heavy=heavy, held=self.held[~light])

    def in_room(self, capacity: float) -> StrategyBounds | None:
        """Return what holds where main memory has more room; None where too little is known. [B]

        A strategy takes as long there, but where fewer layers may compute again: then nothing is
        known of it, as of those that came to fit. Of the floors, nothing is known either.
        """
        if self.heavy is None or not math.isinf(self.rest):
            return None
        own = self.strategies
        again = own.recompute != RECOMPUTED.index(Recompute.NONE)
        fewer = again & (own.again * own.layers > 1)
        new = self.heavy.at(self.held <= capacity * (1 + ROUNDING))
        strategies = own.with_more(new)
        bounds = np.concatenate((np.where(fewer, 0.0, self.roomy), np.zeros(len(new))))
        return replace(
            self,
            strategies=strategies,
            bounds=bounds,
            floors=np.zeros(len(bounds)),
            roomy=bounds,
            heavy=None,
        )

    def elsewhere(self, share: float, of_floors: float) -> StrategyBounds:
        """Return what holds on a machine where strategies take a share of what they take here.

        Parameters
        ----------
        share, of_floors : float
            Of bounds, and of floors. [1]
        """
        bounds = self.bounds * share if share > 0 else np.zeros_like(self.bounds)
        floors = self.floors * of_floors if of_floors > 0 else np.zeros_like(self.floors)
        rest = self.rest if math.isinf(self.rest) else self.rest * share
        roomy = self.roomy * share if share > 0 else np.zeros_like(self.roomy)
        return replace(
            self,
            bounds=np.maximum(bounds, floors),
            floors=floors,
            roomy=np.maximum(roomy, floors),
            rest=rest,
        )

    def with_others(self, other: StrategyBounds) -> StrategyBounds:
        """Return the tighter of two bounds on each of the same strategies."""
        return replace(
            self,
            bounds=np.maximum(self.bounds, other.bounds),
            floors=np.maximum(self.floors, other.floors),
            roomy=np.maximum(self.roomy, other.roomy),
            rest=max(self.rest, other.rest),
        )

    def of_uses(self) -> dict[Use, float]:
        """Return what no strategy of each use of the network takes less than. [s]"""
        least = np.full(len(self.uses), math.inf)
        np.minimum.at(least, self.of[self.strategies.use], self.bounds)
        return dict(zip(self.uses, least.tolist(), strict=True))

    @property
    def least(self) -> float:
        """A bound on all strategies, those that are not here, too. [s]"""
        return min(float(self.bounds.min(initial=math.inf)), self.rest)

    def same_as(self, other: StrategyBounds) -> bool:
        """Whether both are of the same strategies, in the same order."""
        return self.strategies is other.strategies


@dataclass(slots=True, eq=False)
class Noted:
    """What a search has noted of strategies: those of some uses, and a bound on all others. [s]

    ``parts`` are the least of the bounds of what became of a strategy whose plan was made, by where
    it is noted and its place there. [s]
    """

    found: list[StrategyBounds] = field(default_factory=list)
    rest: float = 0.0
    parts: dict[tuple[int, int], float] = field(default_factory=dict)

    def leave(self, of: tuple[int, int] | None, bound: float) -> None:
        """Note the bound of a part of a strategy that is not looked at further. [s]"""
        if of is not None:
            self.parts[of] = min(self.parts.get(of, math.inf), bound)

    def joined(self) -> StrategyBounds | None:
        """Return what is known of all strategies as one; None where none were looked at."""
        found = self.found
        if not found:
            return None
        counts = [len(one.uses) for one in found], [len(one.of) for one in found]
        uses, plans = (np.concatenate(([0], np.cumsum(own)[:-1])) for own in counts)
        strategies = [
            replace(one.strategies, use=one.strategies.use + start)
            for one, start in zip(found, plans, strict=True)
        ]
        return StrategyBounds(
            uses=tuple(use for one in found for use in one.uses),
            of=np.concatenate([one.of + start for one, start in zip(found, uses, strict=True)]),
            strategies=Strategies.joined(strategies),
            bounds=np.concatenate(self._sharpened()),
            roomy=np.concatenate([one.roomy for one in found]),
            floors=np.concatenate([one.floors for one in found]),
            held=np.concatenate([one.held for one in found]),
            system=found[0].system,
            rest=self.rest,
        )

    def _sharpened(self) -> list[Floats]:
        """Return the bounds of all that are noted, with what became of those with a plan. [s]"""
        bounds = [one.bounds.copy() for one in self.found]
        for (number, place), bound in self.parts.items():
            own = bounds[number]
            own[place] = max(own[place], bound)
        return bounds
