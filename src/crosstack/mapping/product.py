"""The mapping of least energy times time, T E, from weighted sums of the two.

For prices a, b >= 0 the search (`crosstack.mapping.search`) gives a mapping of small ``a T + b E``
and a bound c on it: every mapping has ``a T + b E >= c``. Such cuts leave a convex region, on which
T E, being quasi-concave, is least at a corner, which bounds it. The next prices are those of the
tangent at the best mapping so far, ``(E, T)``, and after that those that cut off the least corner;
a mapping that no weighted sum prefers is not found, and the gap says what that may cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from crosstack.mapping.mapping import Certificate, Mapping, Status, Stop
from crosstack.model.objective import Objective, Weights

MOST_SEARCHES = 8
PROOF = 1e-9


@dataclass(frozen=True, slots=True)
class Point:
    """A mapping with its time [s] and energy [J]."""

    time: float
    energy: float
    mapping: Mapping

    @property
    def product(self) -> float:
        """[J s]"""
        return self.time * self.energy


@dataclass(frozen=True, slots=True)
class Cut:
    """``time T + energy E >= bound`` for every mapping."""

    time: float
    energy: float
    bound: float


def least_corner(cuts: list[Cut]) -> tuple[float, float]:
    """Return the time and energy of least product in the region of all cuts. [s], [J]"""
    corners = [
        corner
        for i, one in enumerate(cuts)
        for two in cuts[i + 1 :]
        if (corner := _meeting(one, two)) is not None
        and all(
            cut.time * corner[0] + cut.energy * corner[1] >= cut.bound * (1 - PROOF) for cut in cuts
        )
    ]
    return min(corners, key=lambda corner: corner[0] * corner[1])


def _meeting(one: Cut, two: Cut) -> tuple[float, float] | None:
    determinant = one.time * two.energy - one.energy * two.time
    if abs(determinant) <= PROOF * (one.time * two.energy + one.energy * two.time):
        return None
    time = (one.bound * two.energy - one.energy * two.bound) / determinant
    energy = (one.time * two.bound - one.bound * two.time) / determinant
    return (time, energy) if time >= 0 and energy >= 0 else None


def least_product(
    find: Callable[[Weights], tuple[Point, Certificate]], gap: float
) -> tuple[Mapping, Certificate]:
    """Return the mapping of least energy times time that weighted sums find, with its bound.

    ``find`` searches with prices of time and energy; ``gap`` is the relative one to stop at. [1]
    """
    cuts: list[Cut] = []
    points: list[Point] = []
    certificates: list[Certificate] = []

    def search(weights: Weights) -> None:
        point, certificate = find(weights)
        points.append(point)
        certificates.append(certificate)
        cuts.append(Cut(weights.time, weights.energy, certificate.bound))

    search(Weights(energy=1.0))  # first, as it may lack a power
    search(Weights(time=1.0))
    tried: set[tuple[float, float]] = set()
    while True:
        best = min(points, key=lambda point: point.product)
        at = least_corner(cuts)
        bound = min(at[0] * at[1], best.product)
        if len(tried) == MOST_SEARCHES or bound >= best.product * (1 - max(gap, PROOF)):
            break
        weights = Weights(time=best.energy, energy=best.time)
        if (weights.time, weights.energy) in tried:
            weights = Weights(time=at[1], energy=at[0])
        if (weights.time, weights.energy) in tried:
            break
        tried.add((weights.time, weights.energy))
        search(weights)
    proved = bound >= best.product * (1 - PROOF)
    inside = bound >= best.product * (1 - gap)
    status = Status.OPTIMAL if proved else Status.FEASIBLE if inside else Status.LIMIT
    last = certificates[-1]
    stopped = next((c.stopped for c in reversed(certificates) if c.stopped), Stop.METHOD)
    return best.mapping, replace(
        last,
        status=status,
        metric=Objective.ENERGY_DELAY,
        objective=best.product,
        bound=best.product if proved else bound,
        method=f"{len(points)} searches for weighted sums of time and energy; each: {last.method}",
        runtime=sum(certificate.runtime for certificate in certificates),
        stopped=stopped if status is Status.LIMIT else None,
    )
