"""A published figure, computed again: its points, its claims and its charts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

from crosstack.charts import Chart
from crosstack.evaluate.plan import Plan
from crosstack.io.yaml_tree import parse_yaml
from crosstack.mapping.mapping import Mapping, Task
from crosstack.model.rules import Rules
from crosstack.published.case import Row, held_row, solved
from crosstack.published.figures.drawing import charts_of

STATEMENT = "statement"  # quantity of a claim without a number
Cell = str | float | None
Ours = float | bool | Sequence[bool]
TEXTS: Any = parse_yaml(files(__package__).joinpath("figures.yaml").read_text(encoding="utf-8"))
"""What is said of every figure; see ``figures.yaml``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure of a paper and ours: how it is asked for, what it shows, and where it stands.

    ``header`` and ``rows`` are the points, ours and published ones, in the units of the header;
    ``claims`` what the paper says of them, ``points`` published runs behind single ones, ``notes``
    where the published inputs differ from the paper's text, and what we did.
    """

    name: str
    title: str
    source: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    claims: tuple[Row, ...]
    charts: tuple[Chart, ...]
    points: tuple[Row, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedPoint:
    """What a figure needs of a mapped point: ``utilization`` [1], and how sure it is."""

    utilization: float
    status: str


def figure(
    name: str,
    *,
    rows: Sequence[tuple[Cell, ...]],
    claims: Sequence[Row] | dict[str, Ours],
    charts: Sequence[Chart] = (),
    points: Sequence[Row] = (),
    **numbers: Any,
) -> Figure:
    """Return the figure called ``name`` with what ``figures.yaml`` says of it.

    Parameters
    ----------
    rows, points
        As of `Figure`.
    claims : sequence of Row, or dict
        As of `Figure`; or ours by the names of claims there: a number, or whether it holds.
    charts : sequence of Chart
        Those that ``figures.yaml`` does not describe.
    numbers
        What stands in braces in claims and notes, and what charts draw beside the rows.
    """
    said = TEXTS["figures"][name]
    return Figure(
        name=name,
        title=said["title"],
        source=said["source"],
        header=tuple(said["header"]),
        rows=tuple(rows),
        claims=held(name, claims, **numbers) if isinstance(claims, dict) else tuple(claims),
        charts=(*charts, *charts_of(said.get("charts", ()), rows, numbers)),
        points=tuple(points),
        notes=tuple(note.format(**numbers) for note in said["notes"]),
    )


def held(name: str, ours: dict[str, Ours], **numbers: Any) -> tuple[Row, ...]:
    """Return the claims that ``figures.yaml`` has of a figure, each held against ours."""
    said, rows = TEXTS["figures"][name], []
    assert ours.keys() == said["claims"].keys()
    for key, given in said["claims"].items():
        told, found = {**said["claimed"], **given}, ours[key]
        told = {k: v.format(**numbers) if isinstance(v, str) else v for k, v in told.items()}
        place, words = told.pop("place"), told.pop("words")
        if isinstance(found, float):
            rows.append(claim(place, words, told.pop("published"), found, **told))
        else:
            rows.append(statement(place, words, found, **told))
    return tuple(rows)


def claim(
    figure: str,
    words: str,
    published: float,
    ours: float,
    *,
    unit: str = "1",
    quantity: str = "ratio",
    sense: str = "equal",
    tolerance: float = 0.05,
    source: str = "",
    rules: str = "",
    state: str = "computed",
    reason: str = "",
    note: str = "",
) -> Row:
    """Return a claim held against our number.

    Parameters
    ----------
    sense, tolerance
        As of `crosstack.published.case.Check`.
    state : str
        How sure our number is, where a search made it.
    reason : str
        Why it misses, where it is known to; left out where it holds.
    """
    row = held_row(
        suite="figures",
        case=f"{figure}: {words}",
        source=source or f"ko2025dfmodel, {figure}",
        rules=rules,
        quantity=quantity,
        unit=unit,
        sense=sense,
        published=published,
        ours=ours,
        tolerance=tolerance,
        status=state,
        note=note,
        reason=reason,
    )
    return replace(row, reason="") if row.holds else row


def published_points(
    name: str, runs: Iterable[tuple[str, float, float, str, str]]
) -> tuple[Row, ...]:
    """Return the published runs behind points of a figure, held as ``figures.yaml`` says.

    Of each run: what it is called, the published number and ours, how sure ours is, and where the
    published one stands.
    """
    told = dict(TEXTS["figures"][name]["pointed"])
    place = told.pop("place")
    return tuple(
        claim(place, words, published, ours, state=state, source=source, **told)
        for words, published, ours, state, source in runs
    )


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of some ratios. [1]"""
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def statement(
    figure: str,
    words: str,
    holds: bool | Sequence[bool],
    *,
    rules: str = "",
    source: str = "",
    reason: str = "",
) -> Row:
    """Return a claim without a number, of one case or of many.

    Published is 1, ours the share of cases where it holds.
    """
    cases = [holds] if isinstance(holds, bool) else list(holds)
    share = sum(cases) / len(cases)
    told = {"rules": rules, "source": source, "reason": reason}
    return claim(figure, words, 1.0, share, quantity=STATEMENT, tolerance=0.0, **told)


def status(answer: Plan, *, given: bool = False) -> str:
    """Return how sure an answer is, or that its mapping was given."""
    return "given" if given else answer.certificate.status.value


def found(answer: Plan) -> MappedPoint:
    """Return what a figure needs of an answer."""
    return MappedPoint(utilization=answer.evaluation.utilization, status=status(answer))


def mapped(task: Task, rules: str | Rules, mapping: Mapping | None = None) -> Plan:
    """Return the best mapping of a task with its evaluation, or that of a given mapping."""
    return solved(task, rules, mapping, 60.0)[0]
