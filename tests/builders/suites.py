"""The figures of papers and the rows of the published suites, computed once in a run."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

from builders.once import once_a_run
from crosstack.published.case import Row
from crosstack.published.figures import FIGURES, Figure, figure_named
from crosstack.published.runner import run_suite


@once_a_run
def made(name: str) -> Figure:
    return figure_named(name)


@once_a_run
def rows_of(suite: str) -> tuple[Row, ...]:
    # Not under the patch, which a figure that is made there would wait for itself.
    figures = {name: made(name) for name in FIGURES} if suite == "figures" else {}
    known = {n: replace(FIGURES[n], make=lambda _, n=n: figures[n]) for n in figures}
    with patch.dict(FIGURES, known):
        return tuple(run_suite(suite))
