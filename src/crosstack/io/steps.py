"""A job or a training step as people name it: by its model, with what is published of its batch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from crosstack.errors import InputError, Problem, unknown_name
from crosstack.io import library
from crosstack.io.transformers import transformer
from crosstack.workload.architectures import Transformer
from crosstack.workload.job import Job, JobKind
from crosstack.workload.lstm import LstmModel
from crosstack.workload.published_steps import BATCHES, LSTMS, changed_step
from crosstack.workload.transformer_training import TransformerTraining

__all__ = ["job_named", "step_named"]


def step_named(
    name: str, changes: Mapping[str, Any] = MappingProxyType({})
) -> LstmModel | TransformerTraining:
    """Return one step of training the model called ``name``.

    That is one of the library, of `LSTMS`, or the path of a ``config.json``. ``changes`` are values
    for `crosstack.workload.published_steps.CHANGES`; what is None stays as published. `InputError`
    if there is no such model, saying the nearest; if nothing is published of its batch and
    ``changes`` do not say it; or if they do not fit the model.
    """
    if name in LSTMS:
        return changed_step(LSTMS[name], changes)
    return changed_step(_training(name, changes), changes)


def job_named(name: str, kind: JobKind | str = JobKind.TRAIN, **numbers: Any) -> Job:
    """Return what is done with the model called ``name``.

    `InputError` if there is no such model, saying the nearest, or a number is missing or out of
    range.

    Parameters
    ----------
    name : str
        Of the library, or the path of a ``config.json``.
    kind : JobKind or str
        ``train``, ``prefill`` or ``decode``.
    **numbers
        ``batch``, ``sequence``, ``context`` and ``dtype`` of `Job`; what is None is as published,
        where that is known of training, else as usual.
    """
    model = transformer(name)
    published = BATCHES.get(name) if kind == JobKind.TRAIN else None
    usual = {field: getattr(published, field, None) for field in ("batch", "sequence")}
    given = {field: value for field, value in numbers.items() if value is not None}
    known = {field: value for field, value in usual.items() if value is not None}
    if kind == JobKind.TRAIN:
        _require_numbers(model, usual | given)
    return Job(model=model, kind=kind, **(known | given))


def _require_numbers(model: Transformer, numbers: Mapping[str, Any]) -> None:
    """Raise `InputError` where nothing says how much a step trains on."""
    missing = [field for field in ("batch", "sequence") if numbers.get(field) is None]
    if missing:
        raise InputError(
            Problem(field, f"required: none is published here for {model.name}.")
            for field in missing
        )


def _training(name: str, changes: Mapping[str, Any]) -> TransformerTraining:
    if Path(name).suffix.lower() != ".json" and name not in library.names("models"):
        raise unknown_name("model", "model is", name, (*library.names("models"), *LSTMS))
    known = BATCHES.get(name)
    numbers = {
        field: getattr(known, field, None) if changes.get(field) is None else changes[field]
        for field in ("batch", "sequence")
    }
    model = transformer(name)
    _require_numbers(model, numbers)
    return TransformerTraining(model=model, **numbers)  # type: ignore[arg-type]
