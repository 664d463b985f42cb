"""Figure 9: what four accelerators draw over what they compute, and a curve through them."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from crosstack.charts import Mark
from crosstack.published.case import Progress
from crosstack.published.dfmodel.system_space import SPACE
from crosstack.published.figures.figure import Figure, Ours, figure

Curve = tuple[float, ...]
KILO, TERA = 1e3, 1e12
# Y = 3e-7 X^2 - 4.3e-4 X + 0.04, as printed; X in TFLOP/s and Y in kW: its units are not said,
# these are those in which the largest chip comes out.
PRINTED, PLUS = (3e-7, -4.3e-4, 0.04), (3e-7, 4.3e-4, 0.04)
TERMS = ("quadratic", "linear", "constant")
DATA_SHEET = 989.4  # TFLOP/s of the H100 in its data sheet (nvidia_h100); Table V has 993
POINTS = np.geomspace(250.0, 8000.0, 61)


def _fitted(throughputs: list[float], values: list[float]) -> Curve:
    """Return the quadratic of least squares through the points, highest power first."""
    return tuple(float(c) for c in np.polyfit(throughputs, values, 2))


def _at(curve: Curve, throughput: float) -> float:
    """Power on a curve. [W]"""
    return float(np.polyval(curve, throughput)) * KILO


def chip_power(progress: Progress) -> Figure:
    """Return Figure 9: power of a chip over its throughput, the fit as printed and ours."""
    progress("fitting")
    chips = sorted(SPACE["chips"].values(), key=lambda chip: chip["peak"])
    labels = [chip["name"] for chip in chips]
    rates = [chip["peak"] / TERA for chip in chips]
    prices = [chip["price"] for chip in chips]
    powers = [chip["power"] / KILO for chip in chips]
    fit = _fitted(rates, powers)
    sheet = _fitted(
        [DATA_SHEET if n == "H100" else r for n, r in zip(labels, rates, strict=True)], powers
    )
    below = [label for label, rate in zip(labels, rates, strict=True) if _at(PRINTED, rate) < 0]
    claims: dict[str, Ours] = dict(zip(TERMS, fit, strict=True))
    for words, values in (("power", powers), ("price", prices)):
        each = [value / rate for value, rate in zip(values, rates, strict=True)]
        claims[words] = [later > earlier for earlier, later in itertools.pairwise(each)]
    drawn = [power * KILO for power in powers]

    def curve(name: str, of: Curve, colour: int, most: float = math.inf) -> dict[str, Any]:
        x = tuple(float(x) for x in POINTS if x <= most)
        y, ours = tuple(_at(of, value) for value in x), of is fit
        look = {"colour": colour, "published": not ours, "mark": Mark.NONE}
        return {"name": name, "x": x, "y": y, **look}

    beside = {
        "Power of a chip": [curve("our fit", fit, 0), curve("printed, with a plus", PLUS, 2)],
        "The same, three chips of one die": [
            curve("our fit", fit, 0, 1200.0), curve("as printed", PRINTED, 1, 1200.0),
        ],
    }  # fmt: skip
    return figure(
        "chip-power",
        rows=[
            (label, x, power, *(_at(curve, x) for curve in (fit, PRINTED, PLUS)), power / x, price,
             price / x)
            for label, x, power, price in zip(labels, rates, drawn, prices, strict=True)
        ],
        claims=claims,
        beside=beside,
        fit=fit,
        sheet=sheet,
        below=", ".join(below),
        data_sheet=DATA_SHEET,
    )  # fmt: skip
