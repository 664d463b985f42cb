"""A job or a training step as people name it: by its model, with what is published of its batch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from crosstack.errors import InputError, Problem, unknown_name
from crosstack.io.transformers import known_models, model_named
from crosstack.workload.architectures import Model, Transformer
from crosstack.workload.job import Job, JobKind
from crosstack.workload.lstm import LstmModel
from crosstack.workload.published_steps import BATCHES, LSTMS, changed_step, step_of
from crosstack.workload.transformer_training import ImageTraining, TransformerTraining

__all__ = ["job_named", "step_named"]


def step_named(
    name: str, changes: Mapping[str, Any] = MappingProxyType({})
) -> LstmModel | TransformerTraining | ImageTraining:
    """Return one step of training the model called ``name``.

    That is one of the library, of `LSTMS`, or the path of a ``config.json``. ``changes`` are values
    for `crosstack.workload.published_steps.CHANGES`; what is None stays as published. `InputError`
    if there is no such model, saying the nearest; if nothing is published of its batch and
    ``changes`` do not say it; or if they do not fit the model.
    """
    if name in LSTMS:
        return changed_step(LSTMS[name], changes)
    step: TransformerTraining | ImageTraining = _training(name, changes)
    return changed_step(step, changes)


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
        ``batch``, ``sequence``, ``context``, ``dtype``, ``expert_imbalance``,
        ``expert_dispatch``, ``packed``, ``gradients`` and ``optimizer`` of `Job`; what is None is
        as published, where that is known of training, else as usual.
    """
    model = model_named(name)
    given = {field: value for field, value in numbers.items() if value is not None}
    if kind == JobKind.TRAIN:
        given = _batch(name, model, given) | given
    return Job(model=model, kind=kind, **given)


def _batch(name: str, model: Model, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return how much a step trains on, and what updates; `InputError` where nothing says it."""
    usual = BATCHES.get(name)
    required = ("batch", "sequence") if isinstance(model, Transformer) else ("batch",)
    found = {
        field: getattr(usual, field, None) if given.get(field) is None else given[field]
        for field in ("batch", "sequence", "optimizer")
    }
    missing = [field for field in required if found[field] is None]
    if missing:
        message = f"required: none is published here for {model.name}."
        raise InputError(Problem(field, message) for field in missing)
    return {field: value for field, value in found.items() if value is not None}


def _training(name: str, changes: Mapping[str, Any]) -> TransformerTraining | ImageTraining:
    if Path(name).suffix.lower() != ".json" and name not in known_models():
        raise unknown_name("model", "model is", name, (*known_models(), *LSTMS))
    model = model_named(name)
    return step_of(Job(model=model, **_batch(name, model, changes)))
