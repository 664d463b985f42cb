"""Round numbers along an axis, and where a value stands on it."""

from __future__ import annotations

import math
from dataclasses import dataclass

_ROUND = (1, 2, 2.5, 5, 10)
FLAT = 1e-6  # relative span below which values are one
SLACK = 1e-9  # of a step; rounding does not add one


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis from ``low`` to ``high`` with its ``ticks``, in the unit that is shown."""

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False

    def at(self, value: float) -> float:
        """Return where a value stands: 0 at the low end, 1 at the high end; held inside."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(max(value, low))
        return min(max((value - low) / (high - low), 0.0), 1.0)


def round_scale(high: float, low: float = 0.0, *, most: int = 5) -> Scale:
    """Return a linear axis of about ``most`` round steps that holds ``low`` to ``high``."""
    if high - low <= FLAT * abs(high):  # one value, as far as a picture goes
        high = low + (abs(low) or 1.0)
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in _ROUND if m * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + SLACK), math.ceil(high / step - SLACK)
    ticks = tuple(k * step for k in range(first, last + 1))
    return Scale(ticks[0], ticks[-1], ticks)


def log_scale(low: float, high: float) -> Scale:
    """Return a logarithmic axis that holds ``low`` to ``high``, both above 0.

    Ticks are powers of ten, with 2 and 5 times them where there are few.
    """
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    if last <= first:
        last = first + 1
    factors = (1, 2, 5) if last - first <= 2 else (1,)
    every = 1 + (last - first) // 8
    ticks = [m * 10.0**k for k in range(first, last + 1, every) for m in factors]
    start = max((t for t in ticks if t <= low * (1 + 1e-9)), default=10.0**first)
    end = min((t for t in ticks if t >= high * (1 - 1e-9)), default=10.0**last)
    if end <= start:
        start, end = 10.0**first, 10.0**last
    return Scale(start, end, tuple(t for t in ticks if start <= t <= end), log=True)


def number_words(value: float) -> str:
    """Return a number with at most three or four digits, large ones with commas."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if abs(value) >= 1e7 or abs(value) < 1e-3:
        return f"{value:.3g}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) >= 100 else f"{value:.3g}"
