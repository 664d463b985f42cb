"""How a search goes on: methods that ask for the values of points and are told them.

A method is a generator: it yields a `Request`, points with one a row, and is sent their values, the
smaller the better. It sees nothing else and draws from its own seed alone, so that a search
with the same seed asks for the same points, and one that was stopped can be run again from its
history. It ends only when its caller does, or when there is nothing left to ask.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import InputError, Problem, nearest
from crosstack.explore.simplex import SimplexSpace

__all__ = [
    "METHODS",
    "Method",
    "Request",
    "evolution",
    "gradient",
    "method_named",
    "random_search",
]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Request:
    """Points to evaluate; ``probes`` lie outside the space and are no candidates."""

    points: Floats
    probes: bool = False


Asking = Generator[Request, Floats, None]
Method = Callable[[SimplexSpace, Floats, int], Asking]

STEPS = 100  # of a descent, before it starts again elsewhere (ardalani2022deepflow, section 7)
PROBE = 1.5  # a share is multiplied by it for the gradient (deepflow_code)
KEPT = 0.9  # beta of equation 6
LEAST = 0.01  # what a share below 0 becomes (deepflow_code)
FLAT = 1e-7  # relative: no slope, or rounding would be scaled to a whole step
SPREAD = 0.5  # first standard deviation of the logarithms of shares (benchmarks/searches.py)


def gradient(space: SimplexSpace, start: Floats, seed: int) -> Asking:
    """Projected gradient descent, averaged over the points it passes, from many starts.

    Notes
    -----
    Equation 6 as its code has it: for every share the value with that share times 1.5 gives the
    gradient ``g``; per group ``w -= g / |g|``, what falls to 0 or below becomes 0.01,
    ``m = 0.9 m + 0.1 w``, and ``m`` scaled to the group's total is the next point. After 100
    steps it starts again at random. Nothing is scaled before the averaging, as the text would
    have it, since that is what the numbers on record were made with.

    References
    ----------
    ardalani2022deepflow, equation 6; deepflow_code, its gradient search of 2021
    """
    random = np.random.default_rng(seed)
    point = start
    while True:
        mean = np.zeros_like(point)
        value = (yield Request(points=point[None, :]))[0]
        for _ in range(STEPS):
            width = (PROBE - 1) * point
            probed = yield Request(points=point + np.diag(width), probes=True)
            rise = np.where(np.abs(probed - value) > FLAT * abs(value), probed - value, 0.0)
            slope = np.divide(rise, width, out=np.zeros_like(point), where=width > 0)
            moved = point.copy()
            for part in space.slices:
                size = np.linalg.norm(slope[part])
                if size > 0:
                    moved[part] -= slope[part] / size
            moved[moved <= 0] = LEAST
            mean = KEPT * mean + (1 - KEPT) * moved
            point = space.project(mean)
            value = (yield Request(points=point[None, :]))[0]
        point = space.draw(random, 1)[0]


def evolution(space: SimplexSpace, start: Floats, seed: int) -> Asking:
    """CMA-ES over the logarithms of shares; restarts with twice the population where it stalls.

    Notes
    -----
    The library `cma` does the adaptation. Shares matter by their ratios (a level of memory may want
    a hundredth of what compute does), which is why their logarithms are searched; a point far
    outside a group is the same as one inside, so there are no bounds to keep. It begins at the
    better of the given start and even shares, and the best point so far stays a parent, which
    pays in a few hundred evaluations (benchmarks/searches.py).

    References
    ----------
    hansen2016cma; auger2005restart
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is no matplotlib to draw with
        import cma

    starts = np.stack([start, space.project(np.ones_like(start))])
    values = yield Request(points=starts)
    middle, population, number = space.logarithms(starts[values.argmin()]), None, 0
    random = np.random.default_rng(seed)
    while True:
        options = {"seed": seed * 1000 + number + 1, "verbose": -9, "CMA_elitist": True}
        if population is not None:
            options["popsize"] = population
        strategy = cma.CMAEvolutionStrategy(middle, SPREAD, options)
        while not strategy.stop():
            asked = np.array(strategy.ask())
            values = yield Request(points=space.from_logarithms(asked))
            strategy.tell(list(asked), values.tolist())
        population, number = 2 * strategy.popsize, number + 1
        middle = space.logarithms(space.draw(random, 1)[0])


def random_search(space: SimplexSpace, start: Floats, seed: int) -> Asking:
    """Draw points evenly: what any other method has to beat."""
    random = np.random.default_rng(seed)
    yield Request(points=start[None, :])
    while True:
        yield Request(points=space.draw(random, 10))


METHODS: dict[str, Method] = {
    "cma-es": evolution,
    "gradient": gradient,
    "random": random_search,
}


def method_named(name: str) -> Method:
    """Return the method called ``name``.

    Raises
    ------
    InputError
        If there is none; names the nearest.
    """
    if name in METHODS:
        return METHODS[name]
    close = nearest(name, METHODS, 1)
    hint = f' Did you mean "{close[0]}"?' if close else ""
    message = f'no method is called "{name[:60]}".{hint} Allowed: {", ".join(METHODS)}.'
    raise InputError(Problem("method", message))
