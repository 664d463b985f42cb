"""Quantities as people write them: ``300 GB/s``, ``640 MiB``, ``150 ns``, ``2 USD/(GB/s)``.

Inside crosstack every number is SI; this is where text with a unit becomes one, and back.
1 GB is 1e9 B, 1 GiB is 2^30 B; 1 Gb/s, or Gbit/s, is 1e9 bits a second, 1.25e8 B/s.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable
from decimal import Context, Decimal

from crosstack.errors import InputError, Problem, require

__all__ = ["UNITS", "format_quantity", "parse_quantity"]

_DECIMAL = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_SMALL = {"m": -3, "u": -6, "n": -9, "p": -12, "f": -15}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50}
_EXACT = Context(prec=60)


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
    "USD/B": {"USD/B": Decimal(1), "USD/GB": Decimal("1e-9"), "USD/GiB": 1 / Decimal(2**30)},
    "USD/(B/s)": _per_bandwidth("USD"),
    "W/(B/s)": _per_bandwidth("W"),
    "1": {"%": Decimal("0.01")},
}
"""For every SI unit crosstack uses, the spellings a file may use and what each is worth."""

_QUANTITY = re.compile(
    r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,5})?)\s*([^\s\d.+-].*?)?\s*", re.ASCII
)
_NEVER_SHOWN = {"min", "h", "%", *(u.format(p) for p in _BINARY for u in ("{}B", "{}B/s"))}
_OTHER = re.compile(r"USD|W/|min")  # their first letters are no prefix and unit
_ONLY_SHOWN = {"B/s": set(_scaled("{}B/s", _DECIMAL)), "bit/s": set(_scaled("{}bit/s", _DECIMAL))}


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


def format_quantity(value: float, unit: str, digits: int = 4) -> str:
    """Return ``value`` as a person would write it: 3.0e11 B/s is ``"300 GB/s"``.

    Parameters
    ----------
    value : float
        In ``unit``.
    unit : str
        A key of `UNITS`; ``"1"`` writes the bare number.
    digits : int
        Significant digits. [1]
    """
    require(unit in UNITS, "unit", unit, ", ".join(UNITS))
    if not math.isfinite(value):
        return f"{value} {unit}".removesuffix(" 1")
    value = float(f"{value:.{digits}g}")  # rounded first, so that 999.99 GB/s is 1 TB/s
    if unit in ("USD", "1"):
        return f"{_plain(value, digits)} {unit}".removesuffix(" 1")
    fit_to_show = _ONLY_SHOWN.get(unit, UNITS[unit].keys() - _NEVER_SHOWN)
    shown = {u: float(f) for u, f in UNITS[unit].items() if u in fit_to_show}
    size: Callable[[str], float] = shown.__getitem__
    fitting = [u for u in shown if shown[u] <= abs(value) * (1 + 1e-12)]
    if "/(" in unit:
        best = f"{unit.partition('/')[0]}/(GB/s)"
    elif value == 0:
        best = unit
    else:
        best = max(fitting, key=size) if fitting else min(shown, key=size)
    return f"{_plain(value / shown[best], digits)} {best}"


def _plain(value: float, digits: int) -> str:
    value = float(f"{value:.{digits}g}")
    if abs(value) >= 10**digits:
        return f"{value:,.0f}" if abs(value) < 1e15 else f"{value:.{digits}g}"
    return f"{value:.{digits}g}"
