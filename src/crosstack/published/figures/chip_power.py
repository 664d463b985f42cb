"""Figure 9: what four accelerators draw over what they compute, and a curve through them."""

from __future__ import annotations

import itertools

import numpy as np

from crosstack.charts import LineChart, Mark, Measure, Series
from crosstack.published.dfmodel.system_space import SPACE
from crosstack.published.figures.figure import Figure, Progress, claim, figure, statement

KILO, TERA = 1e3, 1e12
# Y = 3e-7 X^2 - 4.3e-4 X + 0.04, as printed; X in TFLOP/s and Y in kW: its units are not said,
# these are those in which the largest chip comes out. Half of the last digit of each.
PRINTED = (3e-7, -4.3e-4, 0.04)
HALF_DIGITS = (0.5e-7, 0.05e-4, 0.005)
UNITS = ("kW/(TFLOP/s)^2", "kW/(TFLOP/s)", "kW")
TERMS = ("quadratic", "linear", "constant")
DATA_SHEET = 989.4  # TFLOP/s of the H100 in its data sheet (nvidia_h100); Table V has 993
CURVE = tuple(float(x) for x in np.geomspace(250.0, 8000.0, 61))


def _fitted(throughputs: list[float], values: list[float]) -> tuple[float, ...]:
    """Return the quadratic of least squares through the points, highest power first."""
    return tuple(float(c) for c in np.polyfit(throughputs, values, 2))


def _at(curve: tuple[float, ...], throughput: float) -> float:
    return float(np.polyval(curve, throughput))


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
    turned = (PRINTED[0], -PRINTED[1], PRINTED[2])
    printed = [_at(PRINTED, rate) for rate in rates]
    below = [label for label, power in zip(labels, printed, strict=True) if power < 0]
    reason = (
        f"the printed sign cannot be meant: with it {', '.join(below)} would draw less than no "
        f"power; with a plus the curve is ours. Its size is {fit[1]:.2e} with the throughputs of "
        f"Table V, and {sheet[1]:.2e}, which prints as the paper's, with {DATA_SHEET:g} TFLOP/s "
        "of the H100's data sheet"
    )
    claims = [
        claim("Fig. 9", f"{term} coefficient of the fit [{unit}]", value, ours,
              quantity="coefficient", tolerance=half / abs(value) * (1 + 1e-9), reason=reason)
        for term, value, half, unit, ours in zip(
            TERMS, PRINTED, HALF_DIGITS, UNITS, fit, strict=True
        )
    ]  # fmt: skip
    for words, values in (("power", powers), ("price", prices)):
        each = [value / rate for value, rate in zip(values, rates, strict=True)]
        claims.append(
            statement("Fig. 9", f"{words} grows faster than throughput, chip by chip",
                      [later > earlier for earlier, later in itertools.pairwise(each)])
        )  # fmt: skip
    return figure(
        "chip-power",
        rows=tuple(
            (label, rate, power * KILO, _at(fit, rate) * KILO, minus * KILO,
             _at(turned, rate) * KILO, power * KILO / rate, price, price / rate)
            for label, rate, power, minus, price in zip(
                labels, rates, powers, printed, prices, strict=True
            )
        ),
        claims=tuple(claims),
        charts=_charts(rates, powers, prices, fit, turned),
        fit=fit,
    )  # fmt: skip


def _charts(
    rates: list[float],
    powers: list[float],
    prices: list[float],
    fit: tuple[float, ...],
    turned: tuple[float, ...],
) -> tuple[LineChart, ...]:
    def curve(name: str, of: tuple[float, ...], most: float, colour: int, *, paper: bool) -> Series:
        x = tuple(x for x in CURVE if x <= most)
        y = tuple(_at(of, value) * KILO for value in x)
        return Series(name=name, x=x, y=y, colour=colour, published=paper, mark=Mark.NONE)

    def dots(values: list[float], worth: float, most: float) -> Series:
        kept = [(x, y * worth) for x, y in zip(rates, values, strict=True) if x <= most]
        x, y = zip(*kept, strict=True)
        return Series(name="chips", x=x, y=y, line=False, published=True)

    rate = Measure(label="throughput", unit="TFLOP/s", log=True)
    near = 1200.0
    return (
        LineChart(
            title="Power of a chip",
            x=rate,
            y=Measure(label="power", unit="W", log=True),
            series=(
                dots(powers, KILO, CURVE[-1]),
                curve("our fit", fit, CURVE[-1], 0, paper=False),
                curve("printed, with a plus", turned, CURVE[-1], 2, paper=True),
            ),
        ),
        LineChart(
            title="The same, three chips of one die",
            x=Measure(label="throughput", unit="TFLOP/s"),
            y=Measure(label="power", unit="W"),
            series=(
                dots(powers, KILO, near),
                curve("our fit", fit, near, 0, paper=False),
                curve("as printed", PRINTED, near, 1, paper=True),
            ),
        ),
        LineChart(
            title="Price of a chip",
            x=rate,
            y=Measure(label="price", unit="USD", log=True),
            series=(dots(prices, 1.0, CURVE[-1]),),
        ),
    )
