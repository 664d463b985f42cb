"""Refusing, by its field, what a model has and a graph or a step has no operations for."""

from __future__ import annotations

from collections.abc import Mapping

from crosstack.errors import InputError, Problem
from crosstack.records import require_type
from crosstack.workload.architectures.transformer import Transformer


def require_said(model: object, unsaid: Mapping[str, str], reach: int, where: str) -> None:
    """Refuse a model that has what nothing computes here.

    Parameters
    ----------
    model : Transformer
        What is asked for.
    unsaid : mapping of str to str
        Fields of which nothing is computed, and what a model without one has instead.
    reach : int
        Tokens that a token may look at; a window that is shorter is refused. [1]
    where : str
        What refuses, in words: ``serving``.

    Raises
    ------
    InputError
        With a problem for each such field, ``model.experts``.
    """
    require_type("model", model, Transformer)
    assert isinstance(model, Transformer)
    problems = [
        Problem(f"model.{field}", f"{model.name} has it; allowed in {where}: {allowed}.")
        for field, allowed in unsaid.items()
        if getattr(model, field)
    ]
    if 0 < model.window < reach:
        message = (
            f"tokens of {model.name} look at {model.window:,} at most, and {reach:,} are there; "
            f"allowed in {where}: no more than the window."
        )
        problems.append(Problem("model.window", message))
    if problems:
        raise InputError(problems)
