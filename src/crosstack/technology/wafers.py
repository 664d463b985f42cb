"""What a die costs: how many fit a wafer, how many of them work, and what the wafer costs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, assert_never

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crosstack.errors import InfeasibleError, require
from crosstack.records import Positive, Quantity, require_types

Floats = NDArray[np.float64]


class YieldModel(StrEnum):
    """How defects are spread: what share of dies has none.

    ``poisson``: evenly; ``murphy``: with a triangular spread of densities; ``seeds``: with an
    exponential one; ``negative_binomial``: in clusters, between Seeds (clustering of 1) and
    Poisson (clustering without end).
    """

    NEGATIVE_BINOMIAL = "negative_binomial"
    MURPHY = "murphy"
    POISSON = "poisson"
    SEEDS = "seeds"


def die_yield(
    defects: ArrayLike, model: YieldModel = YieldModel.NEGATIVE_BINOMIAL, *, clustering: float = 10
) -> Floats:
    """Share of dies without a defect.

    Parameters
    ----------
    defects : array_like
        Mean number of defects a die, density times area. [1]
    model : YieldModel
        How they are spread.
    clustering : float
        Of the negative binomial model, its ``alpha``. [1]

    Notes
    -----
    With ``x`` defects a die: Poisson ``exp(-x)``; Murphy ``((1 - exp(-x)) / x)^2``; Seeds
    ``1 / (1 + x)``; negative binomial ``(1 + x / alpha)^-alpha``. All are 1 where x is 0.

    References
    ----------
    murphy1964yield; stapper1983yield
    """
    x = np.asarray(defects, dtype=float)
    match model:
        case YieldModel.POISSON:
            return np.asarray(np.exp(-x))
        case YieldModel.SEEDS:
            return np.asarray(1 / (1 + x))
        case YieldModel.NEGATIVE_BINOMIAL:
            return np.asarray((1 + x / clustering) ** -clustering)
        case YieldModel.MURPHY:
            # (1 - exp(-x)) / x, 1 in the limit of no defects.
            mean = np.divide(-np.expm1(-x), x, out=np.ones_like(x), where=x > 0)
            return np.asarray(mean**2)
        case _:
            assert_never(model)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wafer:
    """A processed wafer and the dies that it gives.

    The defaults are the public parameters of ``feng2022actuary``.
    """

    price: Annotated[float, Positive("USD", "processed")]
    defect_density: Annotated[float, Quantity("1/m^2", "defects that break a die")]
    model: YieldModel = YieldModel.NEGATIVE_BINOMIAL
    clustering: Annotated[float, Positive("1", "of the negative binomial model")] = 10.0
    diameter: Annotated[float, Positive("m")] = 0.3
    edge: Annotated[float, Quantity("m", "ring at the rim that gives no dies")] = 5e-3
    scribe: Annotated[float, Quantity("m", "between two dies")] = 2e-4

    def __post_init__(self) -> None:
        """Check every field."""
        require_types(self)
        usable = self.edge < self.diameter / 2
        require(usable, "edge", self.edge, "0 to below half the diameter")

    def dies(self, area: ArrayLike) -> Floats:
        """Dies of ``area``, squares, that lie whole on the wafer, working or not, on average. [1]

        ``pi d^2 / (4 A) - pi d / sqrt(2 A)`` with the diameter inside the ring and the area with
        its scribe lines; the second term is what the rim cuts. 0 where it is below 0.

        References
        ----------
        devries2005dies; feng2022actuary
        """
        d = self.diameter - 2 * self.edge
        whole = (np.sqrt(np.asarray(area, dtype=float)) + self.scribe) ** 2
        found = np.pi * d**2 / (4 * whole) - np.pi * d / np.sqrt(2 * whole)
        return np.asarray(np.maximum(found, 0.0))

    def yield_of(self, area: ArrayLike) -> Floats:
        """Share of dies that work; see `die_yield`. [1]"""
        defects = self.defect_density * np.asarray(area, dtype=float)
        return die_yield(defects, self.model, clustering=self.clustering)

    def die_price(self, area: ArrayLike) -> Floats:
        """Price of one working die: that of the wafer over its working dies. [USD]

        `InfeasibleError` if less than one working die comes from a wafer.
        """
        working = self.dies(area) * self.yield_of(area)
        if np.any(working < 1):
            raise InfeasibleError(
                resource="working dies",
                demand=1.0,
                limit=float(np.min(working)),
                unit="a wafer",
                where="a wafer",
                levers=("a smaller chip", "a lower defect density"),
            )
        return np.asarray(self.price / working)
