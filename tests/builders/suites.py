"""The figures of papers and the rows of the published suites, computed once in a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

from builders.once import once_a_run
from crosstack.evaluate.plan import Plan, optimise
from crosstack.published.case import Row
from crosstack.published.dfmodel import system_space
from crosstack.published.figures import FIGURES, Figure, figure_named
from crosstack.published.runner import run_suite


@once_a_run
def space_answers(workload: str) -> tuple[Plan, ...]:
    """Return the answers of the 80 points of DFModel's design space that run a workload."""
    points = system_space.design_space((workload,))
    return tuple(optimise(system_space.task_of(p), rules=system_space.RULES) for p in points)


@contextmanager
def space_answered(workload: str) -> Iterator[None]:
    """Let the 80 points of a workload be asked in their order without a search of each."""
    answers = iter(space_answers(workload))
    with patch.object(system_space, "optimise", lambda *_, **__: next(answers)):
        yield


def space_results(workload: str) -> list[system_space.PointResult]:
    with space_answered(workload):
        return [system_space.result_of(p) for p in system_space.design_space((workload,))]


@once_a_run
def made(name: str) -> Figure:
    start, _, workload = name.partition("-")
    if start == "systems":
        with space_answered(workload):
            return figure_named(name)
    return figure_named(name)


@once_a_run
def rows_of(suite: str) -> tuple[Row, ...]:
    # Not under the patch, which a figure that is made there would wait for itself.
    figures = {name: made(name) for name in FIGURES} if suite == "figures" else {}
    known = {n: replace(FIGURES[n], make=lambda _, n=n: figures[n]) for n in figures}
    with patch.dict(FIGURES, known):
        return tuple(run_suite(suite))
