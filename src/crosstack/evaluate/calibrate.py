"""Factors of a machine that a table of measured kernels or steps tells, and how far to trust them.

Sets and parameters: rows i, measured to take t_i [s] and said to take T_i(f) [s]; factors f_j, each
with its range (`crosstack.machine.calibration`). Variables: x_j = ln f_j [1]. Objective: the least
sum of ``rho(e_i)``, where ``e_i = ln T_i - ln t_i`` and ``rho(e) = s^2 (sqrt(1 + (e / s)^2) - 1)``,
squared where errors are small and linear where they are large ("soft L1").

Which factors are found: the slopes ``d ln T_i / d ln f_j`` are columns of a matrix. One is refused
whose column is small, or nearly a sum of multiples of others, so that no row tells them apart, or
whose interval of 95 % reaches further than to twice or half of what was found.

Method: least squares with weights that follow from the errors, again and again
(``holland1977robust``), of times that are linear in x; a factor that leaves its range stays at its
end, and the others are found anew; then times are predicted again where that came to, and so on.
Intervals are those of an M-estimator, of rows that need not be equally far off.

Trust: errors of rows that a fit has not seen. Of five parts of the rows each is predicted with the
factors that the other four give.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import InputError, Problem, require
from crosstack.evaluate.kernel_scores import kernels_said, measured_times, shortest_tells
from crosstack.evaluate.run_scores import MeasuredRun, Said, said_of, time_as_mapped
from crosstack.evaluate.scores import Score
from crosstack.machine.calibration import FACTORS, Calibration
from crosstack.machine.chip import Chip
from crosstack.workload.kernel_graph import Floats

OF_KERNELS = ("products", "memory", "launch")
OF_RUNS = ("products", "memory", "links", "ports", "dispatch")
OF_EXPERTS = ("imbalance",)  # of runs whose models have experts

STEP = 0.1  # by which a factor is changed for its slope [1]
SMALL = 0.02  # a slope that moves no row [1]
ALIKE = 0.97  # share of a column that others make up, from which on it is refused [1]
WIDEST = np.log(2.0)  # half of an interval of ln factor, from which on it is refused [1]
MOST_TIMES = 100.0  # that are said of one that is wider [1]
PARTS = 5  # of the rows that are held out in turn [1]
ROUNDS = 3  # of predictions [1]
SETTLED = 0.005  # a step that is the last, of ln factor [1]
SOFT = 0.1  # s: an error from which on it counts less than squared [1]
WEIGHED = 20  # times that weights are made from errors [1]
FEWEST = 8  # rows [1]
NEAR_END = 1e-3  # of a range [1]
SURE = 1.96  # standard errors of an interval of 95 % [1]

Rows = NDArray[np.intp]
Times = Callable[[Calibration, Rows], Floats]
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A factor that was found, with its interval of 95 %. [1]"""

    name: str
    value: float
    low: float
    high: float

    @property
    def at_an_end(self) -> bool:
        """Whether it is at an end of its range, so that something else is likely to be amiss."""
        least, most, _ = FACTORS[self.name]
        return min(self.value / least, most / self.value) <= 1 + NEAR_END


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A factor that the rows cannot tell, and why."""

    name: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What rows tell of a machine.

    ``before``: all rows without factors; ``held_out``: all rows, each with factors found without
    it; ``after``: all rows with the factors.
    """

    calibration: Calibration
    fitted: tuple[Fitted, ...]
    refused: tuple[Refused, ...]
    before: Score
    held_out: Score
    after: Score


def fit_kernels(
    sets: Sequence[Sequence[object]], chip: Chip, *, most: int | None = None, tell: Tell
) -> Fit:
    """Fit factors of a chip to kernels that were measured on it.

    Parameters
    ----------
    sets : sequence of sequence
        Kernels, of one kind and type each, as `crosstack.evaluate.kernel_scores` scores them.
    chip : Chip
        As it is without factors.
    most : int, optional
        So many kernels at most, spread over all of them.
    tell : callable
        Called with what is done next.

    Raises
    ------
    InputError
        As of `fit_factors`.
    """
    # The kernel of a set that tells what all of it take besides is not fitted.
    tells = [
        int(kernels_said(rows, chip).argmin()) if shortest_tells(rows) else None for rows in sets
    ]

    def said(under: Calibration) -> Floats:
        made, found = under.chip(chip), []
        for rows, first in zip(sets, tells, strict=True):
            times = kernels_said(rows, made)
            if first is not None:
                beyond = max(measured_times(rows)[first] - times[first], 0.0)
                times = np.delete(times, first) + beyond
            found.append(times)
        return np.concatenate(found)

    measured = np.concatenate(
        [
            measured_times(rows) if first is None else np.delete(measured_times(rows), first)
            for rows, first in zip(sets, tells, strict=True)
        ]
    )
    count = len(measured) if most is None else min(most, len(measured))
    kept = np.linspace(0, len(measured) - 1, count).round().astype(np.intp)
    return fit_factors(
        lambda under, rows: said(under)[kept[rows]], measured[kept], OF_KERNELS, tell
    )


def fit_runs(runs: Sequence[MeasuredRun], tell: Tell) -> Fit:
    """Fit factors of a machine to training runs on it that have a time and can be spread so.

    How a step changes with a factor is that of the mapping that was found last.

    Raises `InputError` as of `fit_factors`.
    """
    found: dict[int, Said] = {}

    def times(under: Calibration, rows: Rows) -> Floats:
        found.update({i: said_of(runs[i].under(under)) for i in rows.tolist()})
        return np.array([found[i].time for i in rows.tolist()], dtype=np.float64)

    def near(under: Calibration, rows: Rows) -> Floats:
        again = [time_as_mapped(runs[i].under(under), found[i]) for i in rows.tolist()]
        return np.array(again, dtype=np.float64)

    with_experts = any(run.has_experts for run in runs)
    names = OF_RUNS + (OF_EXPERTS if with_experts else ())
    measured = np.array([run.time for run in runs], dtype=np.float64)
    return fit_factors(times, measured, names, tell, near)


def fit_factors(
    times: Times, measured: Floats, names: Sequence[str], tell: Tell, near: Times | None = None
) -> Fit:
    """Fit factors to measured times.

    Parameters
    ----------
    times : callable
        What is said of rows under a calibration, (calibration, numbers of rows). [s]
    measured : array, shape (rows,)
        What they took. [s]
    names : sequence of str
        Factors that may be found, those that come first rather.
    tell : callable
        Called with what is done next.
    near : callable, optional
        The same of calibrations that differ little from those that ``times`` was asked about last,
        of which slopes are taken; ``times`` if left out.

    Raises
    ------
    InputError
        If there are fewer than eight rows, or they tell no factor.
    """
    require(len(measured) >= FEWEST, "rows", len(measured), f"{FEWEST} or more")
    every, real = np.arange(len(measured)), np.log(measured)

    def said(names: Sequence[str], logs: Floats, rows: Rows) -> Floats:
        return np.log(times(_calibration(names, logs), rows))

    def beside(names: Sequence[str], logs: Floats, rows: Rows) -> Floats:
        return np.log((near or times)(_calibration(names, logs), rows))

    tell("rows as they are")
    base = said((), np.zeros(0), every)
    slopes = _slopes(beside, names, np.zeros(len(names)), base, tell)
    kept, refused = _told(names, slopes, base - real)
    if not kept:
        why = "; ".join(f"{one.name}: {one.why}" for one in refused)
        message = f"got {len(measured)} that tell no factor ({why}); allowed: rows that follow one."
        raise InputError(Problem("rows", message))
    slopes = slopes[:, [names.index(name) for name in kept]]
    found, now = np.zeros(len(kept)), base
    while True:
        for number in range(ROUNDS):
            step = _least(now - real, slopes, kept, found) - found
            found = found + step
            tell(f"rows with factors, {number + 1} of {ROUNDS}")
            now = said(kept, found, every)
            if np.abs(step).max() < SETTLED:
                break
            if number + 1 < ROUNDS:
                slopes = _slopes(beside, kept, found, now, tell)
        spread = _spread(now - real, slopes)
        worst = int(spread.argmax())
        if spread[worst] <= WIDEST or len(kept) == 1:
            break
        refused.append(_too_wide(kept.pop(worst), spread[worst]))
        found, slopes = np.delete(found, worst), np.delete(slopes, worst, axis=1)
        now = said(kept, found, every)
    held = np.empty_like(real)
    part = np.random.default_rng(0).permutation(len(real)) % PARTS
    for number in range(PARTS):
        tell(f"rows held out, {number + 1} of {PARTS}")
        own, rest = np.flatnonzero(part == number), np.flatnonzero(part != number)
        others = _least((now - real)[rest], slopes[rest], kept, found)
        held[own] = said(kept, others, own)
    return Fit(
        calibration=_calibration(kept, found),
        fitted=tuple(
            Fitted(name=name, value=exp(x), low=exp(x - s), high=exp(x + s))
            for name, x, s in zip(kept, found.tolist(), spread.tolist(), strict=True)
        ),
        refused=tuple(refused),
        before=Score.of(np.exp(base), measured),
        held_out=Score.of(np.exp(held), measured),
        after=Score.of(np.exp(now), measured),
    )


def _calibration(names: Sequence[str], logs: Floats) -> Calibration:
    values: dict[str, Any] = {}
    for name, value in zip(names, np.exp(logs).tolist(), strict=True):
        least, most, _ = FACTORS[name]  # of whose logarithms the last digit may be another
        values[name] = min(max(value, least), most)
    return Calibration(**values)


def _slopes(
    said: Callable[[Sequence[str], Floats, Rows], Floats],
    names: Sequence[str],
    at: Floats,
    now: Floats,
    tell: Tell,
) -> Floats:
    """Return d ln time / d ln factor of every row and factor, (rows, factors). [1]"""
    every, columns = np.arange(len(now)), []
    for j, name in enumerate(names):
        tell(f"rows with another {FACTORS[name].of}")
        up = at[j] + np.log(1 + STEP) <= np.log(FACTORS[name].most)
        step = np.log(1 + STEP) if up else -np.log(1 + STEP)
        other = at + step * (np.arange(len(at)) == j)
        columns.append((said(names, other, every) - now) / step)
    return np.stack(columns, axis=1)


def _told(names: Sequence[str], slopes: Floats, errors: Floats) -> tuple[list[str], list[Refused]]:
    """Return the factors that rows tell, and the others."""
    kept: list[str] = []
    refused: list[Refused] = []
    for j, name in enumerate(names):
        here = [names.index(one) for one in kept]
        why = _as_others(slopes[:, j], slopes[:, here], kept)
        if np.abs(slopes[:, j]).max() < SMALL:
            refused.append(Refused(name=name, why=f"no row follows the {FACTORS[name].of}"))
        elif why:
            refused.append(Refused(name=name, why=why))
        else:
            kept.append(name)
    while kept:
        columns = slopes[:, [names.index(name) for name in kept]]
        found = _least(errors, columns, kept, np.zeros(len(kept)))
        spread = _spread(errors + columns @ found, columns)
        worst = int(spread.argmax())
        if spread[worst] <= WIDEST:
            break
        refused.append(_too_wide(kept.pop(worst), spread[worst]))
    return kept, refused


def _too_wide(name: str, spread: float) -> Refused:
    times = f"{min(exp(spread), MOST_TIMES):.1f}"
    why = f"rows tell the {FACTORS[name].of} no closer than {times} times either way"
    return Refused(name=name, why=why)


def _as_others(column: Floats, others: Floats, names: Sequence[str]) -> str:
    """Return how a factor moves the rows as others do; empty where it does not."""
    length = float(np.linalg.norm(column))
    if not names or length == 0:
        return ""
    lengths = np.linalg.norm(others, axis=0) * length
    alike = np.abs(column @ others) / lengths
    nearest = int(alike.argmax())
    if alike[nearest] > ALIKE:
        return f"moves rows as {names[nearest]} does ({alike[nearest]:.3f} alike)"
    made = others @ np.linalg.lstsq(others, column)[0]
    together = float(np.linalg.norm(made)) / length
    if together > ALIKE:
        return f"moves rows as {' and '.join(names)} together do ({together:.3f} alike)"
    return ""


def _least(errors: Floats, slopes: Floats, names: Sequence[str], at: Floats) -> Floats:
    """Return logarithms of factors of the least errors, as a linear model has them from ``at``.

    Source: holland1977robust.
    """
    lower = np.log([FACTORS[name].least for name in names])
    upper = np.log([FACTORS[name].most for name in names])
    found = np.clip(at, lower, upper)
    for _ in range(WEIGHED):
        weights = (1 + ((errors + slopes @ (found - at)) / SOFT) ** 2) ** -0.25
        free = np.ones(len(names), dtype=bool)
        while free.any():
            left = errors + slopes[:, ~free] @ (found - at)[~free]
            step = np.linalg.lstsq(weights[:, None] * slopes[:, free], -weights * left)[0]
            asked = at[free] + step
            found[free] = np.clip(asked, lower[free], upper[free])
            if (found[free] == asked).all():
                break
            free[np.flatnonzero(free)[found[free] != asked]] = False
    return found


def _spread(errors: Floats, slopes: Floats) -> Floats:
    """Return half of the interval of 95 % of logarithms of factors. [1]

    ``A^-1 B A^-1`` with ``A = S' rho'' S`` and ``B = S' rho'^2 S``, slopes S.
    """
    rows, count = slopes.shape
    soft = 1 + (errors / SOFT) ** 2
    inverse = np.linalg.pinv(slopes.T @ (slopes * (soft**-1.5)[:, None]))
    pull = slopes * (errors * soft**-0.5)[:, None]
    covariance = inverse @ (pull.T @ pull) @ inverse * rows / max(rows - count, 1)
    return np.asarray(SURE * np.sqrt(np.diag(covariance)))
