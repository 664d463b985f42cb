"""Makes rule sets and graphs of releases known by their names.

What a rule set consists of is read when it is asked for.

``+separate`` counts both halves of an all-reduce, which ``separate_rs_ag_for_ar`` switches on in
DFModel's releases E4 and E5; ``+separate-tensor`` leaves the gradient all-reduce at one half, as
one of its published runs does.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from crosstack.registry import GENERATORS, register_rules

if TYPE_CHECKING:
    from crosstack.model.rules import Rules
    from crosstack.workload.workload import Workload

__all__ = ["register_bundles"]

DFMODEL = ("dfmodel-readme", "dfmodel-e2", "dfmodel-e3b", "dfmodel-e4", "dfmodel-e5")
DEEPFLOW = (
    "deepflow-paper",
    "deepflow-2025",
    "deepflow-2025-graph",
    "deepflow-2021",
    "deepflow-2020",
)
# Section of a file -> the module here that makes the graph, by a function of the same name.
GRAPHS = {"llm": "llm", "dlrm": "dlrm", "hpl": "hpl", "fft": "fft", "mamba": "ssm", "hyena": "ssm"}


def _crosstack() -> Rules:
    from crosstack.evaluate.rules import crosstack

    return crosstack()


def _dfmodel(name: str) -> Rules:
    from crosstack.published.dfmodel.rules import release

    return release(name)


def _deepflow(name: str) -> Rules:
    from crosstack.published.deepflow.rules import release

    return release(name)


def _graph(section: str, **fields: Any) -> Workload:
    module = import_module(f"crosstack.published.dfmodel.graphs.{GRAPHS[section]}")
    made: Workload = getattr(module, section)(**fields)
    return made


def register_bundles() -> None:
    """Register every name, and the graphs that files name."""
    for section in GRAPHS:
        GENERATORS[section] = partial(_graph, section)
    register_rules("crosstack", _crosstack)
    for name in DFMODEL:
        register_rules(name, partial(_dfmodel, name))
        for halves in ("+separate", "+separate-tensor"):
            register_rules(name + halves, partial(_dfmodel, name + halves), variant=True)
    for name in DEEPFLOW:
        register_rules(name, partial(_deepflow, name))
