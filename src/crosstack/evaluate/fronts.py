"""The front of time and memory: how much slower the fastest mapping is that leaves memory free.

The least time of a task where chips have M bytes of main memory never rises with M. So one search
with less memory than the fastest mapping fills finds the next point of the front, and it is exact:
between what that point fills and what it was given, nothing is faster. Searches go down in steps,
so that a front has a number of points; between two neighbours the least time is between theirs.
On one machine the price of a step is its time at what the machine costs: it adds no points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from crosstack.errors import InfeasibleError, InputError, LimitError, Problem, unknown_name
from crosstack.evaluate.evaluation import Evaluation
from crosstack.machine.chip import Chip
from crosstack.mapping.mapping import Certificate, Mapping, Task

__all__ = ["METRICS", "POINTS", "Front", "FrontPoint", "checked_metrics", "front_below"]

METRICS = ("time", "memory", "price")
NEEDED = METRICS[:2]
POINTS = 10  # of a front, at most [1]
LESS = 1e-9  # relative; what a step takes off memory at least
PROVED = 1e-9  # gap that counts as none

Found = tuple[Mapping, Evaluation, Certificate]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontPoint:
    """The fastest mapping found where chips have ``limit`` of main memory. [B]

    ``bound``: what none that fits there takes less than. [s]
    """

    mapping: Mapping
    evaluation: Evaluation
    limit: float
    bound: float

    @property
    def gap(self) -> float:
        """How much faster another mapping that fits there may be, of its time. [1]"""
        return max(0.0, 1 - self.bound / self.evaluation.time)


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """Points with ever less memory, fastest first.

    ``nothing`` fits in so much main memory; None where the search for points ended before. [B]
    """

    points: tuple[FrontPoint, ...]
    nothing: float | None = None

    @property
    def exact(self) -> bool:
        """Whether every point is proved to be the fastest in the memory that it was given."""
        return all(point.gap <= PROVED for point in self.points)


def checked_metrics(names: Sequence[str], chip: Chip) -> None:
    """Raise `InputError` for a front that there is not: of other metrics, or of two memories.

    Parameters
    ----------
    names : sequence of str
        ``time`` and ``memory``, and ``price``.
    chip : Chip
        That memory is of.
    """
    for name in names:
        if name not in METRICS:
            raise unknown_name("front", "metric is", name, METRICS)
    missing = [name for name in NEEDED if name not in names]
    if missing:
        message = f"got {','.join(names)}; allowed: {' and '.join(NEEDED)}, and price."
        raise InputError(Problem("front", message))
    if chip.has_second_memory:
        message = "a chip with two main memories has none; allowed: one main memory."
        raise InputError(Problem("front", message))


def front_below(task: Task, first: Found, points: int, find: Callable[[Task], Found]) -> Front:
    """Return the front below an answer, by searches with ever less memory.

    Parameters
    ----------
    task : Task
        What was mapped.
    first : (Mapping, Evaluation, Certificate)
        The answer, the fastest point.
    points : int
        At most. [1]
    find : callable
        Maps a task, within limits.
    """
    room = task.system.chip.memory_room(spilled=False)
    room = min(room, first[1].memory_used)  # more than is used changes nothing
    step, limit = room / points, room
    found = [_point(first, room)]
    while len(found) < points:
        limit = min(limit - step, found[-1].evaluation.memory_used * (1 - LESS))
        if limit <= 0:
            break
        try:
            point = _point(find(with_room(task, limit)), limit)
        except InfeasibleError:
            return Front(points=tuple(found), nothing=limit)
        except LimitError:
            break
        while found and found[-1].evaluation.time >= point.evaluation.time:
            found.pop()  # as fast in less memory
        found.append(point)
    return Front(points=tuple(found))


def with_room(task: Task, room: float) -> Task:
    """Return a task whose chips have so much main memory. [B]"""
    system = task.system
    chip = system.chip.with_memory(capacity=room, banks=None, bank_capacity=None)
    return replace(task, system=replace(system, chip=chip))


def _point(found: Found, limit: float) -> FrontPoint:
    mapping, evaluation, certificate = found
    bound = min(certificate.bound, evaluation.time)
    return FrontPoint(mapping=mapping, evaluation=evaluation, limit=limit, bound=bound)
