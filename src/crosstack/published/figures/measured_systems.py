"""Figure 6: DFModel beside measured systems; what is known of each bar, and what is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crosstack.published.case import Case, Progress, run_case
from crosstack.published.dfmodel.runs import dfmodel_cases, published_task
from crosstack.published.figures.figure import (
    TEXTS,
    Cell,
    Figure,
    Ours,
    figure,
    geometric_mean,
    mapped,
    published_points,
)
from crosstack.published.figures.serving import counted_rate, log_rate
from crosstack.published.measured import Measured, measured_cases, run_measured

TERA = 1e12
CIRCE = 3057.0 * TERA  # FLOP/s, Rmax (top500_circe)
CIRCE_LOG = 0.06304543074356042  # s, HPL/Compare_w_existing/GPU/Circe, commit 04f93d5
_TOLD: Any = TEXTS["figures"]["measured-systems"]
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
    unit: str = "-"
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
    def above(self) -> float | None:
        """Ours over measured. [1]"""
        if self.measured is None or self.ours is None:
            return None
        return self.ours / self.measured

    def cells(self) -> tuple[Cell, ...]:
        """Return its row, with what can be had of it."""
        known = "both, by time" if self.unit == RUNS else "both"
        if self.measured is None:
            known = "nothing" if self.logged is None else "DFModel's"
        performances = (self.measured, self.logged, self.ours)
        return (self.name, self.reference, self.unit, *performances, self.ratio, self.above, known)


def _measured(case: Measured) -> _Bar:
    """Return the bar of a row of the measured suite; a time as runs a second."""
    row = run_measured(case)
    worth, unit = {"FLOP/s": (TERA, "TFLOP/s"), "s": (1.0, RUNS)}.get(row.unit, (1.0, row.unit))

    def performance(value: float) -> float:
        return 1 / value if unit == RUNS else value / worth

    return _Bar(
        name=case.name.removesuffix(", DFModel's input"),
        reference=_TOLD["measured"][case.name],
        unit=unit,
        measured=performance(row.published),
        logged=None if row.modelled is None else performance(row.modelled),
        ours=performance(row.ours),
    )


def _logged(case: Case) -> _Bar:
    """Return the bar of a published run whose measurement is drawn only."""
    reference, samples = _TOLD["logged"][case.source]
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


def measured_systems(progress: Progress) -> Figure:
    """Return Figure 6: what is printed, logged and measured of each bar, and ours."""
    progress("HPL on Circe")
    circe = mapped(published_task("hpl_circe"), "dfmodel-e2").evaluation
    bars = [
        _Bar(
            name="HPL on Circe", reference="[3]", unit="TFLOP/s", measured=CIRCE / TERA,
            logged=circe.work / CIRCE_LOG / TERA, ours=circe.work / circe.time / TERA,
        )
    ]  # fmt: skip
    progress("measured suite")
    bars += [_measured(case) for case in measured_cases() if case.name in _TOLD["measured"]]
    for case in dfmodel_cases():
        if case.source in _TOLD["logged"]:
            progress(case.name)
            bars.append(_logged(case))
    bars += [_Bar(name=name, reference=place) for name, place in _TOLD["drawn"].items()]
    progress("speculative decoding")
    pairs = _pairs()
    known = [(bar.ratio, bar.unit == RUNS) for bar in bars if bar.ratio is not None]
    (decoding,) = (bar.above for bar in bars if bar.name.startswith("Llama-3 8B"))
    claims: dict[str, Ours] = {
        "decoding": decoding or 0.0,
        "mean": geometric_mean([ratio for ratio, runs in known if not runs]),
    }
    point = ("HPL on Circe", CIRCE_LOG, circe.time, "computed", "HPL/Compare_w_existing/GPU/Circe")
    return figure(
        "measured-systems",
        rows=[*(bar.cells() for bar in bars), *pairs],
        claims=claims,
        points=published_points("measured-systems", [point]),
        drawn=len(bars) + len(pairs) - len(known),
        by_time=" and ".join(f"{ratio:.2f}" for ratio, runs in known if runs),
        paired_error=PAIRED_ERROR,
        window=WINDOW,
        acceptances=ACCEPTANCES,
        vendor=VENDOR,
        needed={target: _needed(target) for target in VENDOR},
    )
