"""Sections of a native file that are a ready-made workload: what makes it of their fields."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from inspect import signature
from typing import Any

from pydantic import create_model

from crosstack.errors import InputError, Problem
from crosstack.io import library
from crosstack.io.files import under
from crosstack.io.native.problems import checked, unknown_fields
from crosstack.io.native.schema import Count, FileModel, Flag, Text
from crosstack.io.native.task_fields import FIELDS
from crosstack.io.transformers import SHAPE, shaped
from crosstack.registry import RELEASED_GRAPHS
from crosstack.workload.generators import dlrm, fft, hyena, mamba
from crosstack.workload.job import Job, JobKind
from crosstack.workload.workload import Workload

GENERATORS: dict[str, Callable[..., Workload]] = {
    "dlrm": dlrm,
    "fft": fft,
    "mamba": mamba,
    "hyena": hyena,
}
RELEASES = ("dfmodel",)
JOBS = {"llm": JobKind.TRAIN, "prefill": JobKind.PREFILL, "decode": JobKind.DECODE}
IMAGES = "images"  # of a model that works on them
TRAINED = ("llm", IMAGES)  # what may say its gradients and its optimizer
_KINDS = {"bool": Flag, "Transformer": Text}
READY_MADE = (*JOBS, IMAGES, *GENERATORS, *RELEASES)


def section_of(file: FileModel) -> str:
    """Return the name of the ready-made workload that a section says; empty if it says none."""
    return next((name for name in READY_MADE if getattr(file, name) is not None), "")


def made_of_section(file: FileModel, section: str, name: str | None) -> Workload:
    """Return the workload of a section of ``file``; ``name`` is what to call it.

    `InputError` by the fields of the section.
    """
    if section in RELEASES:
        return _of_release(file, section, name)
    asked: FileModel = getattr(file, section)
    values = {k: v for k, v in asked.model_dump().items() if v is not None}
    if file.dtype is not None:
        values["dtype"] = file.dtype
    if section == IMAGES:
        kind = JobKind.TRAIN if values.pop("training") else JobKind.FORWARD
        return _of_images(values.pop("model"), kind, name, **values, **trained_by(file))
    if section not in JOBS:
        return GENERATORS[section](**values, **({"name": name} if name else {}))
    shape = {field: values.pop(field) for field in SHAPE if field in values}
    model = shaped(values.pop("model", None), shape, name or section)
    kind = JOBS[section] if values.pop("training", True) else JobKind.FORWARD
    tokens = {"sequence": values.pop("tokens")} if "tokens" in values else {}
    made = Job(model=model, kind=kind, **values, **tokens, **trained_by(file)).workload
    return replace(made, name=name) if name else made


def _of_images(model: str, kind: JobKind, name: str | None, **said: Any) -> Workload:
    """Return what is done with a model of images of the library."""
    try:
        shape = library.image_model(model)
    except InputError as error:
        raise InputError(p.at("model") for p in error.problems) from None
    made = Job(model=shape, kind=kind, **said).workload
    return replace(made, name=name) if name else made


def trained_by(file: FileModel) -> dict[str, Any]:
    """Return what a section says of its gradients and of its optimizer."""
    said = {"gradients": file.gradients, "optimizer": file.optimizer}
    return {name: value for name, value in said.items() if value is not None}


def _of_release(file: FileModel, source: str, name: str | None) -> Workload:
    """Return the one graph of a release that a section names."""
    asked: dict[str, dict[str, Any]] = getattr(file, source)
    makers = RELEASED_GRAPHS[source]()
    if wrong := unknown_fields([graph for graph in asked if graph not in makers], makers):
        raise InputError(wrong)
    if len(asked) != 1:
        raise InputError(Problem("", f"got {len(asked)} graphs; allowed: one."))
    ((graph, values),) = asked.items()
    given = checked(_shape_of(makers[graph]), values, graph).given()
    with under(graph):
        made: Workload = makers[graph](name=name or graph, **given)
    dtype = file.dtype or made.graph.dtype
    return replace(made, graph=made.graph.computed_in(dtype))


def _shape_of(maker: Callable[..., Workload]) -> type[FileModel]:
    """Return the shape of a mapping of the parameters of a function, but the name it gives."""
    fields: dict[str, Any] = {}
    for field, parameter in signature(maker).parameters.items():
        kind: Any = _KINDS.get(str(parameter.annotation), Count)
        if isinstance(parameter.default, StrEnum):
            kind = Any  # its maker says which there are
        elif field in SHAPE:
            kind = FIELDS["transformer"].model_fields[field].annotation
        required = parameter.default is parameter.empty
        fields[field] = (kind, ...) if required else (kind | None, None)
    fields.pop("name")
    return create_model("GraphFile", __base__=FileModel, **fields)
