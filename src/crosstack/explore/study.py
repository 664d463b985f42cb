"""A study: a base problem, what is varied around it, and what is asked of every point."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crosstack.errors import InputError, Problem, did_you_mean, require_whole, unknown_name
from crosstack.explore.axes import Axis, Span, axis_of_values, in_bits, quantity_in
from crosstack.explore.evaluators import EVALUATORS, BaseProblem, Evaluator, evaluator_named
from crosstack.io.files import in_file, read_text
from crosstack.io.native.schema import FileModel, shown
from crosstack.io.study_file import Goal, Sampling, study_file
from crosstack.io.yaml_tree import Content, Tree, parse_yaml

__all__ = ["Bound", "Goal", "Sample", "Sampling", "Study", "read_study"]

NAME = re.compile(r"\w[\w.-]{0,79}")  # it becomes part of the name of a file
YAML = (".yaml", ".yml")
HOW = "values, range, log_range, presets, zip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """``count`` points drawn together from the ranges of ``axes``, the same for a ``seed``."""

    method: Sampling
    count: int
    seed: int
    axes: tuple[str, ...]

    def __post_init__(self) -> None:
        """Check the numbers."""
        require_whole("count", self.count)
        require_whole("seed", self.seed, minimum=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A constraint: a column stays within ``minimum`` and ``maximum``, in SI; None: unbounded."""

    column: str
    minimum: float | None = None
    maximum: float | None = None

    @property
    def words(self) -> str:
        """For people."""
        low = "" if self.minimum is None else f"{self.minimum:g} <= "
        high = "" if self.maximum is None else f" <= {self.maximum:g}"
        return f"{low}{self.column}{high}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What a study file holds.

    Parameters
    ----------
    base : BaseProblem
        The problem that the axes vary, and what an evaluator is told besides.
    evaluator : Evaluator
        What is done with every point.
    axes : tuple of Axis
        What is varied; all combinations, but for axes of the sample, which are drawn together.
    sample : Sample or None
        Which axes are drawn, and how.
    bounds : tuple of Bound
        On axes: other points are left out. On terms: rows that break them are marked.
    objectives : tuple of (str, Goal)
        Columns that tell good points.
    keep : tuple of str
        Numbers of the whole answer to keep besides the terms, by their path in it.
    """

    name: str
    base: BaseProblem
    evaluator: Evaluator
    axes: tuple[Axis, ...]
    sample: Sample | None = None
    bounds: tuple[Bound, ...] = ()
    objectives: tuple[tuple[str, Goal], ...] = ()
    keep: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        """Check that names are there, and that no field is set by two axes."""
        problems: list[Problem] = []
        if not NAME.fullmatch(self.name):
            message = f"got {shown(self.name)}; allowed: letters, digits, and . _ - inside."
            problems.append(Problem("name", message))
        if not self.axes:
            problems.append(Problem("axes", "got none; allowed: at least one."))
        setters: dict[str, str] = {}
        for axis in self.axes:
            for path in axis.fields:
                other = setters.setdefault(path, axis.name)
                if other != axis.name:
                    message = f'sets {path}, as "{other}" does; allowed: one axis a field.'
                    problems.append(Problem(f"axes.{axis.name}", message))
        taken = [column.name for column in self.evaluator.columns(self.base)]
        fixed = {"key", "status", "reason", "runtime", "model"}
        for axis in self.axes:
            if axis.name in {*taken, *fixed}:
                message = f'a column of the result is called "{axis.name}"; allowed: another name.'
                problems.append(Problem(f"axes.{axis.name}", message))
        for path in self.keep:
            if path in {*taken, *fixed, *(axis.name for axis in self.axes)}:
                message = "is a column already; allowed: other numbers of the answer."
                problems.append(Problem(f"keep.{path}", message))
        columns = [*(axis.name for axis in self.axes), *taken, *self.keep]
        for where, names in (
            ("constraints", [bound.column for bound in self.bounds]),
            ("objectives", [name for name, _ in self.objectives]),
        ):
            for name in names:
                if name not in columns:
                    problems.append(Problem(f"{where}.{name}", _no_column(name, columns)))
        if problems:
            raise InputError(problems)

    @property
    def axis_bounds(self) -> tuple[Bound, ...]:
        """Constraints on axes alone: they leave points out."""
        names = {axis.name for axis in self.axes}
        return tuple(bound for bound in self.bounds if bound.column in names)


def _no_column(name: str, columns: list[str]) -> str:
    hint = did_you_mean(name, columns)
    return f"no such axis or term.{hint} Allowed: {', '.join(columns)}."


def read_study(
    path: str | Path, overrides: Mapping[str, Any] | None = None, *, evaluator: Any = None
) -> Study:
    """Return the study that a YAML file holds.

    Parameters
    ----------
    path : str or Path
        The file; its ``base`` is looked for beside it.
    overrides : mapping, optional
        Options that replace those of the file.
    evaluator : Evaluator, optional
        What is done with every point, where it is none of `EVALUATORS`; ``evaluate`` of the file
        is its name then.

    Raises
    ------
    InputError
        With every problem found: ``FILE: path: what is wrong``.
    """
    source = str(path)
    file = study_file(read_text(path), source)
    try:
        return _study(file, Path(path), dict(overrides or {}), evaluator)
    except InputError as error:
        raise in_file(error, source) from None


def _study(file: FileModel, path: Path, overrides: dict[str, Any], evaluator: Any) -> Study:
    problems: list[Problem] = []
    if evaluator is None:
        if file.evaluate not in EVALUATORS:
            hint = did_you_mean(file.evaluate, EVALUATORS)
            message = f"got {shown(file.evaluate)}; allowed: {', '.join(EVALUATORS)}.{hint}"
            raise InputError(Problem("evaluate", message))
        evaluator = evaluator_named(file.evaluate)
    axes = []
    for name, given in file.axes.items():
        try:
            axes.append(_axis(name, given))
        except InputError as error:  # what is wrong with the axis itself is said under its name
            for problem in error.problems:
                inside = problem.path and problem.path != name
                where = f"axes.{name}.{problem.path}" if inside else f"axes.{name}"
                problems.append(Problem(where, problem.message))
    sample = _sample(file, axes, problems)
    bounds = _bounds(file, problems)
    content: Content = ""
    options = {**file.options, **overrides}
    if file.base != "none":
        try:
            content = read_text(path.parent / file.base)
            if Path(file.base).suffix.lower() in YAML:
                tree = parse_yaml(content)
                content = tree if isinstance(tree, dict) else content
        except InputError as error:
            message = str(error).removeprefix(f"{path.parent / file.base}: ")
            problems.append(Problem("base", f"{file.base}: {message}"))
    if problems:
        raise InputError(problems)
    base = BaseProblem(
        content=content,
        source=file.base,
        options=evaluator.options(options, path.parent),
    )
    return Study(
        name=file.name or _name_of(path),
        base=base,
        evaluator=evaluator,
        axes=tuple(axes),
        sample=sample,
        bounds=bounds,
        objectives=tuple(file.objectives.items()) or evaluator.objectives,
        keep=tuple(file.keep),
    )


def _name_of(path: Path) -> str:
    """Return the name of a study that gives none: that of its file, as a name may be."""
    return re.sub(r"[^\w.-]+", "_", path.stem).lstrip(".-")[:80] or "study"


def _axis(name: str, file: FileModel) -> Axis:
    ways = ("values", "range", "log_range", "presets", "zip")
    given = [way for way in ways if getattr(file, way) is not None]
    if len(given) != 1:
        came = " and ".join(given) or "none of them"
        raise InputError(Problem("", f"got {came}; allowed: exactly one of {HOW}."))
    paths = file.path or [name]
    if file.presets is not None:
        return axis_of_values(name, list(file.presets.values()), list(file.presets))
    if file.zip is not None:
        return _zipped(name, file.zip)
    if file.values is not None:
        rows = [dict.fromkeys(paths, value) for value in file.values]
        return axis_of_values(name, rows, file.values)
    log = file.log_range is not None
    chosen = file.log_range if file.log_range is not None else file.range
    assert chosen is not None  # one of the ways is given
    try:
        span, unit = _span(chosen, log=log, whole=file.whole)
    except InputError as error:
        raise error.under(given[0]) from None
    return Axis(name=name, paths=tuple(paths), span=span, unit=unit)


def _zipped(name: str, columns: dict[str, list[Tree]]) -> Axis:
    lengths = {len(values) for values in columns.values()}
    if len(lengths) != 1:
        counts = ", ".join(f"{path}: {len(values)}" for path, values in columns.items())
        raise InputError(Problem("zip", f"got {counts}; allowed: lists of one length."))
    rows = [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]
    labels: list[Tree] = [
        next(iter(row.values())) if len(row) == 1 else list(row.values()) for row in rows
    ]
    return axis_of_values(name, rows, labels)


def _span(file: FileModel, *, log: bool, whole: bool) -> tuple[Span, str]:
    """Return the values of a range, and their unit."""
    ends = {"from": file.start, "to": file.to} | ({} if file.step is None else {"step": file.step})
    found = {where: _end(where, value) for where, value in ends.items()}
    low, unit = found["from"]
    high, other = found["to"]
    if unit != other:
        message = f"is in {other or 'no unit'}; from is in {unit or 'no unit'}."
        raise InputError(Problem("to", message))
    if (file.count is None) == (file.step is None):
        came = "none" if file.count is None else "both"
        raise InputError(Problem("", f"got {came}; allowed: exactly one of count and step."))
    for where, value in (("from", low), ("to", high)):
        if log and value <= 0:
            message = f"got {shown(ends[where])}; allowed: above 0, as values are by logarithm."
            raise InputError(Problem(where, message))
    if high < low:
        message = f"got {shown(file.to)}; allowed: at least where it starts, {shown(file.start)}."
        raise InputError(Problem("to", message))
    if file.count is not None:
        count = file.count
    else:
        step = _step_of(file, found["step"], unit, log=log)
        count, high = _steps(low, high, step, log=log)
    integers = all(isinstance(value, int) for value in ends.values())
    whole = whole or (integers and file.step is not None)
    return Span(low=low, high=high, count=count, log=log, whole=whole), unit


def _end(where: str, value: Any) -> tuple[float, str]:
    """Return one end of a range, or its step, with its unit."""
    number = quantity_in(value)
    if in_bits(value):
        allowed = "GB/s for a bandwidth, or a plain number [bit/s] for the rate of a wire"
        raise InputError(Problem(where, f"got {shown(value)}; allowed in a range: {allowed}."))
    if number is None or not math.isfinite(number[0]):
        message = f"got {shown(value)}; allowed: a finite number, with a unit."
        raise InputError(Problem(where, message))
    return number


def _step_of(file: FileModel, given: tuple[float, str], unit: str, *, log: bool) -> float:
    """Return the step of a range, which is a factor where it is logarithmic."""
    step, step_unit = given
    good = step > 1 and not step_unit if log else step > 0 and step_unit == unit
    if not good:
        allowed = "a factor above 1" if log else "a step above 0, in the unit of the ends"
        raise InputError(Problem("step", f"got {shown(file.step)}; allowed: {allowed}."))
    return step


def _steps(low: float, high: float, step: float, *, log: bool) -> tuple[int, float]:
    """Return how many values ``step`` makes, and the last of them."""
    count = math.floor((math.log(high / low, step) if log else (high - low) / step) + 1e-9)
    return count + 1, low * step**count if log else low + step * count


def _sample(file: FileModel, axes: list[Axis], problems: list[Problem]) -> Sample | None:
    if file.sample is None:
        return None
    ranges = [axis.name for axis in axes if axis.span is not None]
    named = file.sample.axes if file.sample.axes is not None else ranges
    for i, name in enumerate(named):
        if name not in ranges:
            where = f"sample.axes[{i}]"
            problems += unknown_name(where, "range is", name, ranges, "Ranges").problems
    if not named:
        problems.append(Problem("sample", "allowed: with at least one axis that is a range."))
    return Sample(
        method=file.sample.method,
        count=file.sample.count,
        seed=file.sample.seed,
        axes=tuple(named),
    )


def _bounds(file: FileModel, problems: list[Problem]) -> tuple[Bound, ...]:
    bounds = []
    for column, given in file.constraints.items():
        ends: dict[str, float | None] = {"min": None, "max": None}
        for side in ends:
            value = getattr(given, side)
            if value is not None:
                number = quantity_in(value)
                if number is None:
                    message = f"got {shown(value)}; allowed: a number, with a unit."
                    problems.append(Problem(f"constraints.{column}.{side}", message))
                else:
                    ends[side] = number[0]
        bounds.append(Bound(column=column, minimum=ends["min"], maximum=ends["max"]))
    return tuple(bounds)
