"""Figure 6: DFModel beside measured systems; what is known of each bar, and what is not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from crosstack.charts import BarChart, Bars, Measure
from crosstack.published.case import Case, Row, run_case
from crosstack.published.dfmodel.cases import dfmodel_cases
from crosstack.published.dfmodel.runs import published_task
from crosstack.published.figures.figure import TEXTS, Cell, Figure, Progress, claim, figure, mapped
from crosstack.published.figures.speculation import counted_rate, log_rate
from crosstack.published.measured import Measured, measured_cases, run_measured

TERA = 1e12
E2, E5 = "dfmodel-e2", "dfmodel-e5+separate"
CIRCE = 3057.0 * TERA  # FLOP/s, Rmax (top500_circe)
CIRCE_LOG = 0.06304543074356042  # s, HPL/Compare_w_existing/GPU/Circe, commit 04f93d5
_TOLD: Any = TEXTS["figures"]["measured-systems"]
MEASURED: dict[str, str] = _TOLD["measured"]
LOGGED: dict[str, tuple[str, float]] = {run: tuple(told) for run, told in _TOLD["logged"].items()}
WINDOW = 4  # the logs of both targets check five tokens
ACCEPTANCES = (0.5, 1.0)
# Tokens a second of one user that the vendor published two weeks after its talk ([67]), whose
# numbers are not at hand. (sambanova2024inference, Table 1)
VENDOR = {"70B": 457.0, "405B": 129.0}
PAIRED_ERROR = "12 %"  # VIII.B
RUNS = "runs/s"  # of a time; what a bar of a transform counts is not said


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bar:
    """A bar of the figure: performances in ``unit``, None where nothing is printed or logged."""

    name: str
    reference: str
    unit: str
    measured: float | None = None
    logged: float | None = None
    ours: float | None = None

    @property
    def ratio(self) -> float | None:
        """DFModel over measured. [1]"""
        if self.measured is None or self.logged is None:
            return None
        return self.logged / self.measured

    @property
    def known(self) -> str:
        """What can be had of it."""
        if self.logged is None:
            return "nothing"
        if self.measured is None:
            return "DFModel's"
        return "both, by time" if self.unit == RUNS else "both"

    def cells(self) -> tuple[Cell, ...]:
        """Return its row."""
        above = None if self.measured is None or self.ours is None else self.ours / self.measured
        performances = (self.measured, self.logged, self.ours)
        return (self.name, self.reference, self.unit, *performances, self.ratio, above, self.known)


def _hpl_circe(progress: Progress) -> tuple[_Bar, float]:
    """Return the bar of Circe, and the time of our run. [s]"""
    progress("HPL on Circe")
    found = mapped(published_task("hpl_circe"), E2).evaluation
    bar = _Bar(
        name="HPL on Circe", reference="[3]", unit="TFLOP/s", measured=CIRCE / TERA,
        logged=found.work / CIRCE_LOG / TERA, ours=found.work / found.time / TERA,
    )  # fmt: skip
    return bar, found.time


def _measured(case: Measured) -> _Bar:
    """Return the bar of a row of the measured suite; a time as runs a second."""
    row = run_measured(case)
    units = {"FLOP/s": (TERA, "TFLOP/s"), "s": (1.0, RUNS)}
    worth, unit = units.get(row.unit, (1.0, row.unit))

    def performance(value: float) -> float:
        return 1 / value if unit == RUNS else value / worth

    return _Bar(
        name=case.name.removesuffix(", DFModel's input"),
        reference=MEASURED[case.name],
        unit=unit,
        measured=performance(row.published),
        logged=None if row.modelled is None else performance(row.modelled),
        ours=performance(row.ours),
    )


def _logged(case: Case) -> _Bar:
    """Return the bar of a published run whose measurement is drawn only."""
    reference, samples = LOGGED[case.source]
    (row,) = (row for row in run_case(case, "") if row.quantity == "time")
    unit = "samples/s" if case.source.startswith("DLRM") else "sequences/s"
    return _Bar(
        name=case.name, reference=reference, unit=unit,
        logged=samples / row.published, ours=samples / row.ours,
    )  # fmt: skip


def _pairs() -> list[tuple[Cell, ...]]:
    """Return the rows of speculative decoding: ranges, as the acceptance is not known."""
    rows: list[tuple[Cell, ...]] = []
    for target in VENDOR:
        logs = " to ".join(f"{log_rate(target, WINDOW, a):.0f}" for a in ACCEPTANCES)
        ours = " to ".join(
            f"{counted_rate('8B', WINDOW, a, target=target):.0f}" for a in ACCEPTANCES
        )
        name = f"Llama-3 {target}, draft 8B, window {WINDOW}"
        rows.append((name, "[67]", "token/s", None, logs, ours, None, None, "not the acceptance"))
    return rows


def _needed(target: str) -> float:
    """Acceptance at which the logs give the vendor's rate, as the public tool counts it. [1]"""
    none, all_ = (log_rate(target, WINDOW, a) for a in (0.0, 1.0))
    return (VENDOR[target] - none) / (all_ - none)


def _mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def _bars(circe: _Bar, progress: Progress) -> list[_Bar]:
    """Return every bar but those of speculative decoding."""
    progress("measured suite")
    bars = [circe]
    bars += [_measured(case) for case in measured_cases() if case.name in MEASURED]
    for case in dfmodel_cases():
        if case.source in LOGGED:
            progress(case.name)
            bars.append(_logged(case))
    return bars + [
        _Bar(name=name, reference=place, unit="-") for name, place in _TOLD["drawn"].items()
    ]


def _claims(bars: Sequence[_Bar], n_pairs: int) -> tuple[Row, ...]:
    serving = next(bar for bar in bars if bar.name.startswith("Llama-3 8B"))
    ratios = [(bar.ratio, bar.unit == RUNS) for bar in bars if bar.ratio is not None]
    drawn = len(bars) + n_pairs - len(ratios)
    by_time = " and ".join(f"{ratio:.2f}" for ratio, runs in ratios if runs)
    return (
        claim("Fig. 6", "Llama-3 8B decoding over measured", 1.08,
              (serving.ours or 0.0) / (serving.measured or 1.0), tolerance=0.005 / 1.08,
              rules=E5, source="ko2025dfmodel, VIII.A"),
        claim("Fig. 6", "DFModel over measured, mean of the bars that are known", 1.10,
              _mean([ratio for ratio, runs in ratios if not runs]), tolerance=0.005 / 1.10,
              source="ko2025dfmodel, VI.B",
              reason=f"the paper's mean is of all its bars; of {drawn} of ours the measured number "
              "is drawn only, and what the bars of transforms count is not said (by time DFModel "
              f"is {by_time} times as fast as "
              "measured), so that they are left out"),
    )  # fmt: skip


def _chart(bars: Sequence[_Bar]) -> BarChart:
    full = [bar for bar in bars if bar.ratio is not None]
    ours = [(bar.ours or 0.0) / (bar.measured or 1.0) for bar in full]
    logged = tuple(bar.ratio for bar in full)
    return BarChart(
        title="Performance over measured, where both numbers are known",
        y=Measure(label="over measured"),
        groups=tuple(bar.name for bar in full),
        bars=(
            Bars(
                name="DFModel's log",
                values=logged,
                colour=0,
                published=True,
            ),
            Bars(name="ours, same input", values=tuple(ours), colour=0),
        ),
    )


def measured_systems(progress: Progress) -> Figure:
    """Return Figure 6: what is printed, logged and measured of each bar, and ours."""
    circe, circe_time = _hpl_circe(progress)
    bars = _bars(circe, progress)
    progress("speculative decoding")
    pairs = _pairs()
    points = (
        claim("Fig. 6", "HPL on Circe", CIRCE_LOG, circe_time, unit="s", quantity="time",
              sense="at most", tolerance=1e-6, rules=E2, source="HPL/Compare_w_existing/GPU/Circe"),
    )  # fmt: skip
    return figure(
        "measured-systems",
        rows=(*(bar.cells() for bar in bars), *pairs),
        claims=_claims(bars, len(pairs)),
        points=points,
        charts=(_chart(bars),),
        paired_error=PAIRED_ERROR,
        window=WINDOW,
        acceptances=ACCEPTANCES,
        vendor=VENDOR,
        needed={target: _needed(target) for target in VENDOR},
    )  # fmt: skip
