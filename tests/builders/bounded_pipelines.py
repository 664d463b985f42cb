"""What holds of every pipeline: no path through an iteration is longer than the iteration."""

from __future__ import annotations

from dataclasses import replace

from crosstack.model.iteration import exact_time, iteration_time
from crosstack.model.rules import rules_named
from crosstack.model.stages import Pipeline

RULES = rules_named("crosstack")


def check_paths(pipeline: Pipeline, work: float, least: float) -> None:
    """Check paths of stages that work so long [s], of tokens known or between two bounds.

    ``least`` is the share of what they take that is known to be taken. [1]
    """
    whole = exact_time(pipeline, work, RULES)
    few, most = pipeline.tokens
    loose = replace(pipeline, tokens=(least * few, most * 1.5))
    assert float(iteration_time(pipeline, work, RULES)) <= whole * (1 + 1e-12)
    assert float(iteration_time(loose, work, RULES)) <= whole * (1 + 1e-12)
