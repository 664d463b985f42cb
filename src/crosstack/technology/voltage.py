"""Voltage, frequency and power of a circuit that is run faster or slower than designed for.

Rate and power follow the alpha-power law with alpha = 2 (``sakurai1990alpha``), as in
``ardalani2022deepflow`` (4.4.1): ``f ~ (V - Vt)^2 / V`` and ``P ~ f V^2``, so that

    P / Pn = V (V - Vt)^2 / (Vn (Vn - Vt)^2).                                        (V1)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crosstack.errors import require
from crosstack.records import Positive, Quantity, require_types

Floats = NDArray[np.float64]
STEPS = 60  # of Newton's method; it takes about 7


class RateBound(IntEnum):
    """What keeps a circuit from running faster."""

    POWER = 0
    MINIMUM_VOLTAGE = 1
    MAXIMUM_VOLTAGE = 2
    GIVEN = 3
    NOTHING = 4

    @property
    def words(self) -> str:
        """For people."""
        return self.name.lower().replace("_", " ").replace("nothing", "-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """The voltages of a circuit; ``maximum`` is None where it is not known."""

    nominal: Annotated[float, Positive("V", "at which nominal rate and power hold")]
    threshold: Annotated[float, Quantity("V", "of its transistors")]
    minimum: Annotated[float, Quantity("V", "below which it does not work")]
    maximum: Annotated[float, Quantity("V", "above which it breaks")] | None = None

    def __post_init__(self) -> None:
        """Check that the voltages are in order."""
        require_types(self)
        allowed = f"volts above the threshold, {self.threshold:g} V"
        require(self.nominal > self.threshold, "nominal", self.nominal, allowed)
        require(self.minimum > self.threshold, "minimum", self.minimum, allowed)
        if self.maximum is not None:
            top = max(self.minimum, self.threshold)
            allowed = f"volts, at least the minimum, {top:g} V"
            require(self.maximum >= top, "maximum", self.maximum, allowed)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OperatingPoint:
    """Where a circuit runs; every field an array of one shape.

    ``voltage``, and ``free``, what it would be without minimum and maximum [V]; ``rate`` and
    ``power``, relative to nominal [1]; ``throttle``, the share of the rate that is left where the
    minimum voltage holds [1]; ``bound``, a `RateBound`.
    """

    voltage: Floats
    free: Floats
    rate: Floats
    power: Floats
    throttle: Floats
    bound: NDArray[np.int64]


def relative_rate(voltage: ArrayLike, supply: Supply) -> Floats:
    """Rate at ``voltage``, relative to nominal: ``((V - Vt)^2 / V) / ((Vn - Vt)^2 / Vn)``. [1]

    References
    ----------
    sakurai1990alpha; ardalani2022deepflow, 4.4.1
    """
    volts = np.asarray(voltage, dtype=float)
    nominal, threshold = supply.nominal, supply.threshold
    # Without a threshold, no voltage is no rate.
    speed = np.divide((volts - threshold) ** 2, volts, out=np.zeros_like(volts), where=volts > 0)
    rate: Floats = speed / ((nominal - threshold) ** 2 / nominal)
    return rate


def relative_power(voltage: ArrayLike, supply: Supply) -> Floats:
    """Dynamic power at ``voltage`` and the rate it allows, relative to nominal (V1). [1]"""
    volts = np.asarray(voltage, dtype=float)
    return relative_rate(volts, supply) * (volts / supply.nominal) ** 2


def voltage_for_power(power: ArrayLike, supply: Supply) -> Floats:
    """Voltage at which the power is ``power`` times nominal: the root of (V1) above Vt. [V]

    Newton's method for ``u^2 (u + Vt) = c`` with ``u = V - Vt``, from above: convex and
    increasing, so it falls to the root from any start beyond it, and u keeps its digits where
    the power goes to zero.
    """
    ratio = np.asarray(power, dtype=float)
    nominal, threshold = supply.nominal, supply.threshold
    c = ratio * nominal * (nominal - threshold) ** 2
    u = np.cbrt(c)
    if threshold > 0:
        with np.errstate(over="ignore"):  # a threshold near 0 bounds nothing
            u = np.minimum(u, np.sqrt(c / threshold))
    for _ in range(STEPS):
        slope = u * (3.0 * u + 2.0 * threshold)
        step = np.divide(u * u * (u + threshold) - c, slope, out=np.zeros_like(u), where=slope > 0)
        u = u - step
        if not np.any(np.abs(step) > 4e-16 * u):
            break
    return threshold + u


def voltage_for_rate(rate: ArrayLike, supply: Supply) -> Floats:
    """Voltage that allows ``rate`` times the nominal rate. [V]

    The larger root of ``(V - Vt)^2 = r V``: ``V = Vt + r/2 + sqrt(r Vt + r^2/4)``, with r in volts.
    """
    r = np.asarray(rate, dtype=float) * (supply.nominal - supply.threshold) ** 2 / supply.nominal
    return supply.threshold + r / 2 + np.sqrt(r * supply.threshold + r * r / 4)


def operating_point(power: ArrayLike, supply: Supply) -> OperatingPoint:
    """Find voltage and rate of a circuit that may draw ``power`` times its nominal power. [1]

    Notes
    -----
    Where (V1) asks for less than the minimum voltage, the circuit runs at the minimum and its
    clock is held back. ``P ~ f V^2`` then leaves ``f = f(V) (V / Vmin)^2``: the budget is spent
    exactly. Above the maximum voltage the circuit runs at the maximum and leaves power unused.
    """
    free = voltage_for_power(np.asarray(power, dtype=float), supply)
    return point_at(free, supply, throttled=free)


def point_at(free: Floats, supply: Supply, *, throttled: Floats) -> OperatingPoint:
    """Find where a circuit runs that would run at the voltage ``free`` without limits.

    Parameters
    ----------
    free : ndarray
        The voltage. [V]
    supply : Supply
        The voltages of the circuit.
    throttled : ndarray
        The voltage whose rate is held back where the minimum voltage holds. [V]
    """
    low = free < supply.minimum
    voltage = np.maximum(free, supply.minimum)
    throttle = np.where(low, (free / supply.minimum) ** 2, 1.0)
    rate = throttle * relative_rate(throttled, supply)
    bound = np.where(low, int(RateBound.MINIMUM_VOLTAGE), int(RateBound.POWER))
    if supply.maximum is not None:
        high = free > supply.maximum
        voltage = np.where(high, supply.maximum, voltage)
        rate = np.where(high, relative_rate(supply.maximum, supply), rate)
        bound = np.where(high, int(RateBound.MAXIMUM_VOLTAGE), bound)
    used = rate * (voltage / supply.nominal) ** 2
    return OperatingPoint(
        voltage=voltage, free=free, rate=rate, power=used, throttle=throttle, bound=bound
    )
