"""Makes rule sets and graphs of releases known by their names.

What a rule set consists of is read when it is asked for.

``+separate`` counts both halves of an all-reduce, which ``separate_rs_ag_for_ar`` switches on in
DFModel's releases E4 and E5; ``+separate-tensor`` leaves the gradient all-reduce at one half, as
one of its published runs does.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from crosstack.registry import RELEASED_GRAPHS, register_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from crosstack.model.rules import Rules
    from crosstack.workload.workload import Workload

DFMODEL = ("dfmodel-readme", "dfmodel-e2", "dfmodel-e3b", "dfmodel-e4", "dfmodel-e5")
DEEPFLOW = (
    "deepflow-paper", "deepflow-2025", "deepflow-2025-graph", "deepflow-2021", "deepflow-2020",
)  # fmt: skip


def _crosstack() -> Rules:
    from crosstack.evaluate.rules import crosstack

    return crosstack()


def _released(name: str) -> Rules:
    if name.startswith("dfmodel"):
        from crosstack.published.dfmodel.rules import release
    else:
        from crosstack.published.deepflow.rules import release
    return release(name)


def _graphs() -> Mapping[str, Callable[..., Workload]]:
    from crosstack.published.dfmodel.graphs.sections import GRAPHS

    return GRAPHS


def register_bundles() -> None:
    """Register every name, and the graphs that files name."""
    RELEASED_GRAPHS["dfmodel"] = _graphs
    register_rules("crosstack", _crosstack)
    for name in (*DFMODEL, *DEEPFLOW):
        register_rules(name, partial(_released, name))
    for name, halves in product(DFMODEL, ("+separate", "+separate-tensor")):
        register_rules(name + halves, partial(_released, name + halves), variant=True)
