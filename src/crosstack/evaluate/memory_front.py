"""The front of what a step takes and the memory of a chip: what a plan costs that leaves more free.

A search for the best mapping with so much memory of a chip and no more bounds every mapping that
takes at most that. So each such *limit* that is searched gives a point, and a bound that holds for
all limits below it. Where the bound just below the memory of a point is what the next best one
takes, nothing lies between the two; where all are so, the front is exact. Limits are searched where
most is open: in the middle of what a point leaves open while that is wide, just below the next
point's memory then. What is left open when the searches are through is said point by point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from crosstack.errors import InfeasibleError, InputError, LimitError, Problem, require
from crosstack.evaluate.evaluation import Evaluation
from crosstack.evaluate.next_plans import PROVED
from crosstack.evaluate.time import evaluate
from crosstack.machine.system import System
from crosstack.mapping.mapping import Certificate, Mapping, Task
from crosstack.mapping.strategy_bounds import StrategyBounds
from crosstack.model.objective import Objective, value_of
from crosstack.model.rules import Rules

__all__ = ["MEMORY", "FrontPoint", "MemoryFront", "front_metric", "memory_front"]

MEMORY = "memory"  # of the fullest chip, next to the objectives
SEARCHES = 128  # limits that are searched if not said otherwise, if points ask for as many
WIDE = 1 / 16  # of all memory: what is left open is halved while it is wider
NARROW = 1 / 64  # the same of memory that nothing is known to fit
BELOW = 1e-9  # relative; how far below the memory of a point a limit lies that it does not keep
MOST_OPEN = 0.2  # what is open counts as so much at most: few want plans that are far slower
FAR = 2.0  # so many times as slow as the best of all, from which on it counts for less
# What is found on a machine from a mapping of it and its value, and what is known of strategies.
Searched = Callable[
    [System, tuple[Mapping, float] | None, StrategyBounds | None],
    tuple[Mapping, Certificate, StrategyBounds | None],
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontPoint:
    """A mapping that none with less memory is better than, as far as is known.

    ``value`` of the objective, and ``bound``: no mapping with less memory than the next point takes
    less; of the point with most memory, no mapping at all. No mapping with as little memory as this
    one takes less than ``least``. [s, J or USD]
    """

    mapping: Mapping
    evaluation: Evaluation
    value: float
    bound: float
    least: float = 0.0

    @property
    def memory(self) -> float:
        """What the fullest chip takes. [B]"""
        return self.evaluation.memory_used

    @property
    def proved(self) -> bool:
        """Whether no mapping with as little memory is better, so that it is on the front."""
        return self.least >= self.value * (1 - PROVED)

    @property
    def gap(self) -> float:
        """How much better a mapping between this point and the next may be, of its value."""
        return max(0.0, 1 - self.bound / self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFront:
    """Points of least memory first, each better than those before it.

    ``metrics`` are those that were asked for, ``metric`` is what is searched: a price that is a
    rate times the time moves with it. No mapping takes less memory than ``least_memory`` [B];
    ``searches`` were made. [1]
    """

    metrics: tuple[str, ...]
    metric: Objective
    points: tuple[FrontPoint, ...]
    least_memory: float
    searches: int

    @property
    def ends(self) -> bool:
        """Whether it is proved that nothing takes less memory than the first point."""
        return self.least_memory >= self.points[0].memory * (1 - 2 * BELOW)

    @property
    def exact(self) -> bool:
        """Whether these are all points of the front."""
        return self.ends and all(point.gap <= PROVED for point in self.points)

    @property
    def moves_with_time(self) -> bool:
        """Whether a price was asked for that is the time at a rate, so no dimension of its own."""
        return Objective.TIME in self.metrics and Objective.PRICE in self.metrics


def front_metric(metrics: Sequence[str], system: System) -> Objective:
    """Return what is searched for a front of metrics.

    Raises
    ------
    InputError
        If they are no two that trade against each other, or the memory of a chip has no one limit.
    """
    allowed = (Objective.TIME, Objective.ENERGY, Objective.PRICE, MEMORY)
    names = (metrics,) if isinstance(metrics, str) else tuple(str(one) for one in metrics)
    known = all(one in allowed for one in names) and len(set(names)) == len(names) >= 2
    require(known, "front", ",".join(names), f"two or more of {', '.join(allowed)}")
    moves = {Objective.TIME, Objective.PRICE}
    if MEMORY not in names:
        why = "is a single plan: the price is the time at a rate" if set(names) == moves else (
            "without memory is not searched; the objective energy-delay is"
        )  # fmt: skip
        raise InputError(Problem("front", f"of {','.join(names)} {why}. Add {MEMORY}."))
    costs = [one for one in names if one != MEMORY]
    if len(costs) > 1 and set(costs) != moves:
        message = f"of {','.join(names)} is not searched; allowed: {MEMORY} and time or energy."
        raise InputError(Problem("front", message))
    if Objective.PRICE in costs and any(one.size is None for one in system.network):
        message = "of a price needs the size of every level of the network."
        raise InputError(Problem("front", message))
    main = system.chip.memories[0]
    if system.chip.has_second_memory or main.banks is not None:
        message = "of memory needs a chip whose main memory is one, without banks."
        raise InputError(Problem("front", message))
    return Objective.ENERGY if Objective.ENERGY in costs else Objective.TIME


def memory_front(
    task: Task,
    rules: Rules,
    search: Searched,
    first: tuple[Mapping, float, StrategyBounds | None],
    *,
    metrics: Sequence[str],
    gap: float = 0.0,
    searches: int = SEARCHES,
) -> MemoryFront:
    """Return the front of what a step takes and the memory of a chip.

    Parameters
    ----------
    search : callable
        Searches the task on another machine, within its limits; see `Searched`.
    first : (Mapping, float, StrategyBounds or None)
        The best mapping of all, what none takes less than, in the unit of what is searched, and
        what is known of strategies.
    metrics : sequence of str
        Of ``time``, ``energy``, ``price`` and ``memory``.
    gap : float
        Relative gap at which a search is done. [1]
    searches : int
        Limits that are searched at most. [1]

    Raises
    ------
    InputError
        As `front_metric`.
    """
    metric = front_metric(metrics, task.system)
    mapping, bound, known = first
    found = _Front(task=task, rules=rules, metric=metric, gap=gap, known={math.inf: known})
    found.add(mapping)
    found.bounds[math.inf] = bound
    made = 0
    while made < searches and (limit := found.next_limit()) is not None:
        found.search(limit, search)
        made += 1
    return MemoryFront(
        metrics=tuple(str(one) for one in metrics),
        metric=found.metric,
        points=found.points(),
        least_memory=found.least,
        searches=made,
    )


@dataclass(slots=True, kw_only=True)
class _Front:
    """What is found: mappings, and by limit what none within it takes less than.

    Nothing takes as little memory as ``least``. [B] ``known`` are bounds on strategies within
    limits, which hold within all that are lower; ``tables`` what is known of graphs.
    """

    task: Task
    rules: Rules
    metric: Objective
    pool: list[tuple[float, float, Mapping, Evaluation]] = field(default_factory=list)
    bounds: dict[float, float] = field(default_factory=dict)
    gap: float = 0.0
    known: dict[float, StrategyBounds | None] = field(default_factory=dict)
    least: float = 0.0

    def add(self, mapping: Mapping) -> None:
        """Add a mapping, and leave out those that it makes no better than another."""
        task = self.task
        found = evaluate(task.workload, task.system, mapping, self.rules)
        sizes = mapping.dimension_sizes
        value = value_of(self.metric, task.system, sizes, time=found.time, energy=found.energy)
        self.pool.append((found.memory_used, value, mapping, found))
        kept, best = [], math.inf
        for one in sorted(self.pool, key=lambda one: one[:2]):
            if one[1] < best * (1 - PROVED):
                kept.append(one)
                best = one[1]
        self.pool = kept

    def bound(self, limit: float) -> float:
        """Return what no mapping within so much memory takes less than. [B]"""
        return max(bound for known, bound in self.bounds.items() if known >= limit)

    def points(self) -> tuple[FrontPoint, ...]:
        """Return the front so far, least memory first."""
        tops = [*(_below(one[0]) for one in self.pool[1:]), math.inf]
        return tuple(
            FrontPoint(
                mapping=mapping,
                evaluation=found,
                value=value,
                bound=min(self.bound(top), value),
                least=min(self.bound(memory), value),
            )
            for (memory, value, mapping, found), top in zip(self.pool, tops, strict=True)
        )

    def next_limit(self) -> float | None:
        """Return the memory to search within next, where most is open; None: nothing is. [B]"""
        range_ = self.pool[-1][0] - self.least
        ranked = []
        for low, top, open_ in self._open():
            middle = (low + top) / 2
            # Where nothing may fit at all, halving tells soonest.
            halved = top - low > (NARROW if low == self.least else WIDE) * range_
            limits = (middle, top) if halved else (top,)
            left = [one for one in limits if one not in self.bounds]
            if left:
                ranked.append(((top - low) * open_, left[0]))
        return max(ranked)[1] if ranked else None

    def _open(self) -> list[tuple[float, float, float]]:
        """Return ranges of memory [B] in which a mapping may be better, each with by how much.

        As the logarithm of the ratio, at most `MOST_OPEN`, as below all that are known; less where
        the best known is more than `FAR` times as slow as the best of all.
        """
        found, best = [], self.pool[-1][1]
        if self.least < (top := _below(self.pool[0][0])):
            found.append((self.least, top, MOST_OPEN * min(1.0, FAR * best / self.pool[0][1])))
        for one, after in zip(self.pool, self.pool[1:], strict=False):
            memory, value, top = one[0], one[1], _below(after[0])
            bound = self.bound(top)
            if bound >= value * (1 - PROVED):
                continue
            sure = [x for x in self.bounds if x < top and self.bound(x) >= value * (1 - PROVED)]
            open_ = min(math.log(value / bound), MOST_OPEN) if bound > 0 else MOST_OPEN
            found.append((max([memory, *sure]), top, open_ * min(1.0, FAR * best / value)))
        return found

    def search(self, limit: float, search: Searched) -> None:
        """Search for the best mapping within so much memory. [B]"""
        known, system = self.known_within(limit), _with_room(self.task.system, limit)
        within = [one for one in self.pool if one[0] <= limit]
        start = (within[-1][2], within[-1][1]) if within else None
        if start is None and known is not None and self.pool:
            start = self.adopted(system, known)
        if start is not None and known is not None:
            least = known.least
            if not least < start[1] * (1 - max(self.gap, PROVED)):
                self.add(start[0])
                self.bounds[limit] = min(least, start[1])
                return
        try:
            mapping, certificate, now = search(system, start, known)
        except InfeasibleError:
            self.least, self.bounds[limit] = max(self.least, limit), math.inf
            return
        except LimitError:
            self.bounds[limit] = self.bound(limit)
            return
        self.add(mapping)
        self.bounds[limit], self.known[limit] = certificate.bound, now

    def adopted(self, system: System, known: StrategyBounds) -> tuple[Mapping, float] | None:
        """Return the best mapping within less memory with kernels of one that takes more."""
        from crosstack.mapping.search import adopted

        given = self.task.workload, system, self.task.constraints, self.rules
        return adopted(*given, self.pool[0][2], known)

    def known_within(self, limit: float) -> StrategyBounds | None:
        """Return the tightest of what is known of strategies within so much memory. [B]"""
        found: StrategyBounds | None = None
        for one in [self.known[at] for at in sorted(self.known) if at >= limit]:
            if one is None or not math.isinf(one.rest):
                continue
            if found is None:
                found = one
            elif found.same_as(one):
                found = found.with_others(one)
        return found


def _below(memory: float) -> float:
    """Return a limit that just does not hold so much. [B]"""
    return memory * (1 - BELOW)


def _with_room(system: System, limit: float) -> System:
    """Return a system whose chips hold so much and no more. [B]"""
    room = limit + system.chip.set_aside
    return replace(system, chip=system.chip.with_memory(capacity=room, spare=0.0))
