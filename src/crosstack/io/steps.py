"""A training step as people name it: by its model, with what is published of its batch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from crosstack.errors import InputError, Problem, unknown_name
from crosstack.io import library
from crosstack.io.transformers import transformer
from crosstack.workload.lstm import LstmModel
from crosstack.workload.published_steps import BATCHES, LSTMS, changed_step
from crosstack.workload.transformer_training import TransformerTraining

__all__ = ["step_named"]


def step_named(
    name: str, changes: Mapping[str, Any] = MappingProxyType({})
) -> LstmModel | TransformerTraining:
    """Return one step of training the model called ``name``.

    Parameters
    ----------
    name : str
        Of the library, of `LSTMS`, or the path of a ``config.json``.
    changes : mapping of str to object
        Values for `crosstack.workload.published_steps.CHANGES`; what is None stays as published.

    Raises
    ------
    InputError
        If there is no such model, saying the nearest; if nothing is published of its batch and
        ``changes`` do not say it; or if they do not fit the model.
    """
    if name in LSTMS:
        return changed_step(LSTMS[name], changes)
    return changed_step(_training(name, changes), changes)


def _training(name: str, changes: Mapping[str, Any]) -> TransformerTraining:
    if Path(name).suffix.lower() != ".json" and name not in library.names("models"):
        raise unknown_name("model", "model is", name, (*library.names("models"), *LSTMS))
    known = BATCHES.get(name)
    numbers = {
        field: getattr(known, field, None) if changes.get(field) is None else changes[field]
        for field in ("batch", "sequence")
    }
    model = transformer(name)
    missing = [field for field, value in numbers.items() if value is None]
    if missing:
        raise InputError(
            Problem(field, f"required: none is published here for {model.name}.")
            for field in missing
        )
    return TransformerTraining(model=model, **numbers)  # type: ignore[arg-type]
