"""Quantities as people write them: ``300 GB/s``, ``640 MiB``, ``150 ns``, ``2 USD/(GB/s)``.

Inside crosstack every number is SI; this is where text with a unit becomes one, and back.
1 GB is 1e9 B, 1 GiB is 2^30 B; 1 Gb/s, or Gbit/s, is 1e9 bits a second, 1.25e8 B/s.
"""

from __future__ import annotations

import difflib
import math
import re
from decimal import Context, Decimal

from crosstack.errors import InputError, Problem, require
from crosstack.quantities import UNITS, format_quantity

__all__ = ["UNITS", "format_quantity", "parse_quantity"]

_EXACT = Context(prec=60)


_QUANTITY = re.compile(
    r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,5})?)\s*([^\s\d.+-].*?)?\s*", re.ASCII
)
_OTHER = re.compile(r"USD|W/|min")  # their first letters are no prefix and unit


def parse_quantity(value: object, unit: str) -> float:
    """Return ``value`` in ``unit``: a number is taken as it is, text may carry a unit.

    Parameters
    ----------
    value : int, float or str
        ``3.0e11``, ``"300 GB/s"`` or ``"300e9"``.
    unit : str
        The SI unit wanted, a key of `UNITS`.

    Raises
    ------
    InputError
        If it is not a finite number, or the unit is not one of this quantity; names the units
        allowed and the nearest.
    """
    require(unit in UNITS, "unit", unit, ", ".join(UNITS))
    if isinstance(value, str):
        return _parse_text(value, unit)
    good = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        number = float(value) if good else math.nan  # type: ignore[arg-type]
    except OverflowError:
        number = math.inf
    return _finite(number, value, unit)


def _finite(number: float, value: object, unit: str) -> float:
    if math.isfinite(number):
        return number
    units = [u for u in UNITS[unit] if u != unit]
    with_unit = f", or with one of {', '.join(units)}" if units else ""
    raise InputError(
        Problem("", f"got {_short(value)}; allowed: a finite number [{unit}]{with_unit}.")
    )


def _parse_text(text: str, unit: str) -> float:
    match = _QUANTITY.fullmatch(text[:200])
    if not match or len(text) > 200:
        return _finite(math.nan, text, unit)
    spelled = match[2] or unit
    allowed = UNITS[unit] | {unit: Decimal(1)}
    if spelled not in allowed:
        close = _nearest_units(spelled, list(allowed))
        hint = f" Did you mean {' or '.join(map(_quoted, close))}?" if close else ""
        raise InputError(
            Problem("", f"got {_short(text)}; allowed units: {', '.join(allowed)}.{hint}")
        )
    # Exact in decimal, rounded once: "0.052 W/(GB/s)" is the float nearest to 5.2e-11.
    return _finite(float(_EXACT.multiply(Decimal(match[1]), allowed[spelled])), text, unit)


def _nearest_units(spelled: str, allowed: list[str]) -> list[str]:
    """Return the units that ``spelled`` may stand for; none that would change its value.

    Where a letter reads as either of two (``gb``: bits or bytes; ``KB``: 1,000 or 1,024; ``mw``:
    milli or mega), both are named or neither is. The exact letters mean what they say: ``Gb`` of
    memory is no ``GB``.
    """
    folded = [u for u in allowed if u.casefold() == spelled.casefold()]
    if spelled.startswith("K"):
        folded += [u for u in allowed if u == f"Ki{spelled[1:]}"]
    if folded:
        return folded if len(folded) > 1 or _reads_alike(spelled, folded[0]) else []
    # Another spelling of the unit after the same prefix: "GBps", "msec", but not "USD/MB".
    same = [
        u
        for u in allowed
        if u[:2] == spelled[:2] and ("bit" in u) == ("bit" in spelled) and not _OTHER.match(u)
    ]
    return difflib.get_close_matches(spelled, same, n=1, cutoff=0.4)


def _reads_alike(spelled: str, unit: str) -> bool:
    pairs = zip(re.sub("bit", "", spelled, flags=re.I), unit.replace("bit", ""), strict=True)
    return all(a == b or a.casefold() not in "bkmp" for a, b in pairs)


def _quoted(text: str) -> str:
    return f'"{text}"'


def _short(value: object) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**40 else "a huge number"
    return text if len(text) <= 60 else f"{text[:50]}...{text[-1]}"
