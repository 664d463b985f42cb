"""What a die costs: how many fit a wafer, how many of them work, and what the wafer costs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crosstack.errors import InfeasibleError, require, require_quantity

__all__ = ["Wafer", "YieldModel", "die_yield"]

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

    Parameters
    ----------
    price : float
        Processed. [USD]
    defect_density : float
        Defects that break a die, per area. [1/m^2]
    model : YieldModel
        How they are spread.
    clustering : float
        Of the negative binomial model. [1]
    diameter : float
        [m]
    edge : float
        Ring at the rim that gives no dies. [m]
    scribe : float
        Between two dies. [m]

    References
    ----------
    feng2022actuary; its public parameters are the defaults: 300 mm, a ring of 5 mm, 0.2 mm
    between dies, clustering of 10
    """

    price: float
    defect_density: float
    model: YieldModel = YieldModel.NEGATIVE_BINOMIAL
    clustering: float = 10.0
    diameter: float = 0.3
    edge: float = 5e-3
    scribe: float = 2e-4

    def __post_init__(self) -> None:
        """Check every field."""
        require_quantity("price", self.price, "USD", above_zero=True)
        require_quantity("defect_density", self.defect_density, "1/m^2")
        require(isinstance(self.model, YieldModel), "model", self.model, ", ".join(YieldModel))
        require_quantity("clustering", self.clustering, "1", above_zero=True)
        require_quantity("diameter", self.diameter, "m", above_zero=True)
        require_quantity("scribe", self.scribe, "m")
        usable = 0 <= self.edge < self.diameter / 2
        require(usable, "edge", self.edge, "0 to below half the diameter")

    def dies(self, area: ArrayLike) -> Floats:
        """Dies that lie whole on the wafer, working or not, on average. [1]

        Parameters
        ----------
        area : array_like
            Of one die, a square. [m^2]

        Notes
        -----
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

        Raises
        ------
        InfeasibleError
            If less than one working die comes from a wafer.
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
