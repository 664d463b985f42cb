"""The fields of a task, and of a graph over named axes, which may stand alone."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import PlainValidator

from crosstack.errors import InputError, Problem
from crosstack.io.native.schema import one_of, refused
from crosstack.io.native.tables import Table
from crosstack.workload.dtype import Dtype
from crosstack.workload.optimizer import Optimizer, optimizer_named
from crosstack.workload.passes.wide_gradients import GRADIENTS

GRAPH_SECTION = "workload.graph."  # where a graph is in the file of a task


def is_graph(tree: dict[str, Any]) -> bool:
    """Whether a file holds a graph, and not a task or another kind."""
    return "axes" in tree and bool({"blocks", "operations"} & {*tree})


def as_task(tree: dict[str, Any]) -> dict[str, Any]:
    """Return the tree of a task, given that of a graph which may have a machine beside it."""
    beside = {"name", "rules", "system", "constraints"}
    task = {field: value for field, value in tree.items() if field in beside}
    graph = {field: value for field, value in tree.items() if field not in beside}
    return {**task, "workload": {"graph": graph}}


def _one_read_alone(value: Any) -> Any:
    one = isinstance(value, dict) and isinstance(value.get("reads"), str | dict)
    return {**value, "reads": [value["reads"]]} if one else value


def _trained_or_not(value: Any) -> Any:
    flag = isinstance(value, dict) and isinstance(value.get("training"), bool)
    return {**value, "training": {} if value["training"] else None} if flag else value


def _of_a_release_alone(value: Any) -> Any:
    if isinstance(value, dict) and "hpl" in value:
        message = "no graph over named axes has all panels; allowed: dfmodel: {hpl: {...}}."
        raise InputError(Problem("hpl", message))
    return value


def _optimizer(value: Any) -> Optimizer:
    if not isinstance(value, str):
        raise refused(value, "an optimizer by name, or a size such as 14 B")
    return optimizer_named(value)


FIELDS = Table(
    __package__,
    "fields.yaml",
    {
        "gradients": Annotated[Dtype, one_of({dtype.value: dtype for dtype in GRADIENTS})],
        "optimizer": Annotated[Optimizer, PlainValidator(_optimizer)],
    },
    before={
        "operation": _one_read_alone,
        "graph": _trained_or_not,
        "workload": _of_a_release_alone,
    },
)
TaskFile = FIELDS["task"]
