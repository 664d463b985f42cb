"""Sections of a native file that are a ready-made workload: what makes it of their fields."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from typing import Any

from crosstack.errors import InputError, Problem
from crosstack.io.files import under
from crosstack.io.native.problems import unknown_fields
from crosstack.io.native.schema import FileModel
from crosstack.io.native.workload_schema import WorkloadFile
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
READY_MADE = (*JOBS, *GENERATORS, *RELEASES)


def section_of(file: WorkloadFile) -> str:
    """Return the name of the ready-made workload that a section says; empty if it says none."""
    return next((name for name in READY_MADE if getattr(file, name) is not None), "")


def made_of_section(file: WorkloadFile, section: str, name: str | None) -> Workload:
    """Return the workload of a section of ``file``.

    Parameters
    ----------
    file : WorkloadFile
        Where it stands.
    section : str
        Its name.
    name : str or None
        What to call the workload.

    Raises
    ------
    InputError
        By the fields of the section.
    """
    if section in RELEASES:
        return _of_release(file, section, name)
    asked: FileModel = getattr(file, section)
    values = asked.model_dump()
    if file.dtype is not None:
        values["dtype"] = file.dtype
    if section not in JOBS:
        return GENERATORS[section](**values, **({"name": name} if name else {}))
    shape = {field: values.pop(field) for field in SHAPE}
    given = {field: value for field, value in shape.items() if value is not None}
    model = shaped(values.pop("model"), given, name or section)
    kind = JOBS[section] if values.pop("training", True) else JobKind.FORWARD
    tokens = {"sequence": values.pop("tokens")} if "tokens" in values else {}
    made = Job(model=model, kind=kind, **values, **tokens).workload
    return replace(made, name=name) if name else made


def _of_release(file: WorkloadFile, source: str, name: str | None) -> Workload:
    """Return the one graph of a release that a section names."""
    asked: dict[str, dict[str, Any]] = getattr(file, source)
    makers = RELEASED_GRAPHS[source]()
    if wrong := unknown_fields([graph for graph in asked if graph not in makers], makers):
        raise InputError(wrong)
    if len(asked) != 1:
        raise InputError(Problem("", f"got {len(asked)} graphs; allowed: one."))
    ((graph, values),) = asked.items()
    known = dict(signature(makers[graph]).parameters)
    known.pop("name")
    wrong = unknown_fields([field for field in values if field not in known], known, graph)
    wrong += [
        Problem(f"{graph}.{field}", "required, but missing.")
        for field, parameter in known.items()
        if parameter.default is parameter.empty and field not in values
    ]
    if wrong:
        raise InputError(wrong)
    with under(graph):
        made: Workload = makers[graph](name=name or graph, **values)
    dtype = file.dtype or made.graph.dtype
    return replace(made, graph=replace(made.graph, dtype=dtype))
