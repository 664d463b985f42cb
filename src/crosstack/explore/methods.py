"""How a search goes on: methods that ask for the values of points and are told them.

A method is a generator: it yields a `Request`, points with one a row, and is sent their values, the
smaller the better. It sees nothing else and draws from its own seed alone, so that a search
with the same seed asks for the same points, and one that was stopped can be run again from its
trials. It ends only when its caller does, or when there is nothing left to ask.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import (
    InputError,
    Problem,
    require,
    require_quantity,
    require_whole,
    unknown_name,
)
from crosstack.explore.simplex import SimplexSpace

__all__ = [
    "METHODS",
    "Descent",
    "DescentForm",
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


Searcher = Generator[Request, Floats, None]
Method = Callable[[SimplexSpace, Floats, int], Searcher]

LEAST = 0.01  # what a share below 0 becomes (deepflow_code)
FLAT = 1e-7  # relative: no slope, or rounding would be scaled to a whole step
SPREAD = 0.5  # first standard deviation of the logarithms of shares (benchmarks/searches.py)


class DescentForm(StrEnum):
    """What is scaled in a step of the descent.

    ``CODE``: the gradient of each group, to length 1, and the weights not (``deepflow_code``).
    ``EQUATION``: the weights, all together, before they are averaged, and the gradient not
    (``ardalani2022deepflow``, equation 6).
    """

    CODE = "code"
    EQUATION = "equation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Descent:
    """How `gradient` goes down; as it stands, as the public tool's code.

    Parameters
    ----------
    form : DescentForm
        What is scaled.
    step : float
        Learning rate, ``eta`` of equation 6. [1]
    averaging : float
        Weight of the points passed, ``beta`` of equation 6; 0 takes the last alone. [1]
    probe : float
        What a share is multiplied by to find the gradient; 1.5 in ``deepflow_code``. [1]
    steps : int
        From one start at most, ``T``; 100 (``ardalani2022deepflow``, section 7). [1]
    starts : int or None
        Points to start from, ``S``, the given one first; None: until the evaluations are used up.
        The paper takes 10. [1]
    tolerance : float
        A descent has converged, and ends, when a step changes the value by less than this part of
        it; 0: never. The paper names no number, the code has no such test. [1]
    """

    form: DescentForm = DescentForm.CODE
    step: float = 1.0
    averaging: float = 0.9
    probe: float = 1.5
    steps: int = 100
    starts: int | None = None
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        """Check every field."""
        known = isinstance(self.form, DescentForm)
        require(known, "form", self.form, " or ".join(DescentForm))
        require_quantity("step", self.step, "1", above_zero=True)
        require_quantity("averaging", self.averaging, "1")
        require(self.averaging < 1, "averaging", self.averaging, "0 or above, below 1")
        require_quantity("probe", self.probe, "1")
        require(self.probe > 1, "probe", self.probe, "above 1")
        require_quantity("tolerance", self.tolerance, "1")
        require_whole("steps", self.steps)
        if self.starts is not None:
            require_whole("starts", self.starts)

    def moved(self, space: SimplexSpace, point: Floats, value: float, slope: Floats) -> Floats:
        """Return the weights after a step against the slope, none below `LEAST`. [1]"""
        moved = point.copy()
        if self.form is DescentForm.EQUATION:
            # Of the value's own size, so that its unit does not change the step.
            moved -= self.step * slope / (abs(value) or 1.0)
        else:
            for part in space.slices:
                size = np.linalg.norm(slope[part])
                if size > 0:
                    moved[part] -= self.step * slope[part] / size
        moved[moved <= 0] = LEAST
        return moved / np.linalg.norm(moved) if self.form is DescentForm.EQUATION else moved


def gradient(
    space: SimplexSpace, start: Floats, seed: int, descent: Descent | None = None
) -> Searcher:
    """Projected gradient descent, averaged over the points it passes, from many starts.

    Notes
    -----
    For every share the value with that share times ``probe`` gives the gradient ``g``. As the code
    has it: per group ``w -= eta g / |g|``, what falls to 0 or below becomes 0.01, ``m = beta m +
    (1 - beta) w``, and ``m`` scaled to the group's total is the next point. As equation 6 has it:
    ``w -= eta g``, with ``g`` as a part of the value, and ``m`` averages ``w / |w|``. After
    ``steps``, or where it has converged, it starts again at random.

    References
    ----------
    ardalani2022deepflow, equation 6; deepflow_code, its gradient search of 2021
    """
    how = descent or Descent()
    random = np.random.default_rng(seed)
    point = start
    for _ in itertools.count() if how.starts is None else range(how.starts):
        mean = np.zeros_like(point)
        value = (yield Request(points=point[None, :]))[0]
        for _ in range(how.steps):
            width = (how.probe - 1) * point
            probed = yield Request(points=point + np.diag(width), probes=True)
            rise = np.where(np.abs(probed - value) > FLAT * abs(value), probed - value, 0.0)
            slope = np.divide(rise, width, out=np.zeros_like(point), where=width > 0)
            moved = how.moved(space, point, value, slope)
            mean = how.averaging * mean + (1 - how.averaging) * moved
            point = space.project(mean)
            before, value = value, (yield Request(points=point[None, :]))[0]
            if abs(value - before) < how.tolerance * abs(before):
                break
        point = space.draw(random, 1)[0]


def evolution(space: SimplexSpace, start: Floats, seed: int) -> Searcher:
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


def random_search(space: SimplexSpace, start: Floats, seed: int) -> Searcher:
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


def method_named(name: str, descent: Descent | None = None) -> Method:
    """Return the method called ``name``; ``descent`` says how ``gradient`` goes down.

    Raises
    ------
    InputError
        If there is none, and names the nearest; or if another than ``gradient`` gets a descent.
    """
    if descent is not None and name in METHODS:
        if METHODS[name] is not gradient:
            raise InputError(Problem("descent", f"allowed with method gradient; got {name}."))
        return partial(gradient, descent=descent)
    if name in METHODS:
        return METHODS[name]
    raise unknown_name("method", "method is", name, METHODS)
