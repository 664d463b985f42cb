"""Units of quantities, what each is worth, and quantities written as people write them.

1 GB is 1e9 B, 1 GiB is 2^30 B; 1 Gb/s, or Gbit/s, is 1e9 bits a second, 1.25e8 B/s.
"""

from __future__ import annotations

import math
from decimal import Decimal

__all__ = ["UNITS", "compared", "format_quantity"]

MOST_DIGITS = 12  # that are tried to tell two quantities apart
FAR = 1e6  # times one unit, above which a quantity is written in its own

_DECIMAL = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_SMALL = {"m": -3, "u": -6, "n": -9, "p": -12, "f": -15}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50}


def _scaled(pattern: str, exponents: dict[str, int]) -> dict[str, Decimal]:
    return {pattern.format(p): Decimal(1).scaleb(e) for p, e in exponents.items()}


def _bytes(pattern: str) -> dict[str, Decimal]:
    binary = {pattern.format(p): Decimal(2) ** e for p, e in _BINARY.items()}
    return _scaled(pattern, _DECIMAL) | binary


def _bits(pattern: str) -> dict[str, Decimal]:
    return {unit: worth / 8 for unit, worth in _scaled(pattern, _DECIMAL).items()}


def _per_bandwidth(unit: str) -> dict[str, Decimal]:
    by_spelling = {f"{unit}/({p}B/s)": Decimal(1).scaleb(-e) for p, e in _DECIMAL.items()}
    return {u: by_spelling[u] for u in (f"{unit}/({p}B/s)" for p in ("", "M", "G", "T"))}


UNITS: dict[str, dict[str, Decimal]] = {
    "B": _bytes("{}B"),
    "B/s": _bytes("{}B/s") | _bits("{}b/s") | _bits("{}bit/s"),
    "FLOP": _scaled("{}FLOP", _DECIMAL),
    "FLOP/s": _scaled("{}FLOP/s", _DECIMAL),
    "Hz": _scaled("{}Hz", _DECIMAL),
    "s": _scaled("{}s", {"": 0} | _SMALL) | {"min": Decimal(60), "h": Decimal(3600)},
    "W": _scaled("{}W", _SMALL | _DECIMAL),
    "J": _scaled("{}J", _SMALL | _DECIMAL),
    "m^2": {"m^2": Decimal(1), "mm^2": Decimal("1e-6"), "um^2": Decimal("1e-12")},
    "V": {"V": Decimal(1), "mV": Decimal("1e-3")},
    "bit/s": _scaled("{}bit/s", _DECIMAL) | _scaled("{}b/s", _DECIMAL),
    "1/m": {"/m": Decimal(1), "/mm": Decimal(1000)},
    "1/m^2": {"/m^2": Decimal(1), "/cm^2": Decimal(10000), "/mm^2": Decimal(1000000)},
    "m": {"m": Decimal(1), "mm": Decimal("1e-3")},
    "USD": {"USD": Decimal(1)},
    "USD/J": {
        "USD/J": Decimal(1),
        "USD/kWh": Decimal(1) / 3600000,
        "USD/MWh": Decimal(1) / 3600000000,
    },
    "USD/B": {"USD/B": Decimal(1), "USD/GB": Decimal("1e-9"), "USD/GiB": 1 / Decimal(2**30)},
    "USD/(B/s)": _per_bandwidth("USD"),
    "W/(B/s)": _per_bandwidth("W"),
    "1": {"%": Decimal("0.01")},
}
"""For every SI unit crosstack uses, the spellings a file may use and what each is worth."""

_NEVER_SHOWN = {"min", "h", "%", *(u.format(p) for p in _BINARY for u in ("{}B", "{}B/s"))}
_ONLY_SHOWN = {"B/s": set(_scaled("{}B/s", _DECIMAL)), "bit/s": set(_scaled("{}bit/s", _DECIMAL))}


def format_quantity(value: float, unit: str, digits: int = 4, *, like: float | None = None) -> str:
    """Return ``value`` as a person would write it: 3.0e11 B/s is ``"300 GB/s"``.

    Parameters
    ----------
    value : float
        In ``unit``.
    unit : str
        A key of `UNITS`; ``"1"`` writes the bare number.
    digits : int
        Significant digits; a whole number without a unit, which is a count, keeps all. [1]
    like : float, optional
        Beside which the value stands in a sentence: written in the unit of that one.
    """
    if not math.isfinite(value):
        return f"{value} {unit}".removesuffix(" 1")
    if unit == "1" and 10**digits <= abs(value) < 2**53 and value == int(value):
        return f"{int(value):,}"
    value = float(f"{value:.{digits}g}")  # rounded first, so that 999.99 GB/s is 1 TB/s
    best = _unit_of(value if like is None else like, unit)
    group = "" if like is None else ","
    return f"{_plain(value / _worth(best, unit), digits, group)} {best}".removesuffix(" 1")


def compared(value: float, other: float, unit: str) -> tuple[str, str]:
    """Return two quantities, in one unit unless they are far apart, with digits that differ.

    Parameters
    ----------
    value, other : float
        In ``unit``.
    unit : str
        A key of `UNITS`, or any noun, such as cores.
    """
    pair = (value, other)
    best = _unit_of(min(map(abs, filter(None, pair)), default=0.0), unit)
    worth = _worth(best, unit)
    if not max(map(abs, pair)) <= FAR * worth:
        return format_quantity(value, unit), format_quantity(other, unit)
    for digits in range(4, MOST_DIGITS + 1):
        words = [f"{_plain(v / worth, digits, ',')} {best if v else unit}" for v in pair]
        if words[0] != words[1] or value == other:
            break
    return words[0], words[1]


def _unit_of(value: float, unit: str) -> str:
    """Return the largest unit that leaves a whole number before the point."""
    if unit not in UNITS or unit in ("USD", "1") or value == 0:
        return unit
    if "/(" in unit:
        return f"{unit.partition('/')[0]}/(GB/s)"
    shown = _ONLY_SHOWN.get(unit, UNITS[unit].keys() - _NEVER_SHOWN)
    by_size = sorted(shown, key=lambda u: UNITS[unit][u])
    fitting = [u for u in by_size if float(UNITS[unit][u]) <= abs(value) * (1 + 1e-12)]
    return fitting[-1] if fitting else by_size[0]


def _worth(spelled: str, unit: str) -> float:
    return 1.0 if spelled == unit else float(UNITS[unit][spelled])


def _plain(value: float, digits: int, group: str = "") -> str:
    value = float(f"{value:.{digits}g}")
    if abs(value) >= 10**digits:
        return f"{value:,.0f}" if abs(value) < 1e15 else f"{value:.{digits}g}"
    return f"{value:{group}.{digits}g}"
