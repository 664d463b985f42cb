"""What was printed of DFModel's published runs, by name; see ``cases.yaml``."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from crosstack.io.yaml_tree import parse_yaml
from crosstack.mapping.mapping import Mapping, Task
from crosstack.published.case import Case, Check

__all__ = ["published_case"]

_PRINTED: Any = parse_yaml(files(__package__).joinpath("cases.yaml").read_text(encoding="utf-8"))


def published_case(name: str, task: Task, mapping: Mapping | None = None) -> Case:
    """Return a published run with its task.

    Parameters
    ----------
    name : str
        In ``cases.yaml``.
    task : Task
        What computes the same.
    mapping : Mapping or None
        That of the run, where it is given; else it is searched.
    """
    told = _PRINTED[name]
    return Case(
        name=name,
        source=told["source"],
        rules=told["rules"],
        task=task,
        checks=tuple(Check(*check) for check in told["checks"]),
        mapping=mapping,
        proved=told.get("proved", False),
        note=told.get("note", ""),
    )
