"""Makes rule sets and graphs of releases known by their names.

What a rule set consists of is read when it is asked for.

``+separate`` counts both halves of an all-reduce, which ``separate_rs_ag_for_ar`` switches on in
DFModel's releases E4 and E5; ``+separate-tensor`` leaves the gradient all-reduce at one half, as
one of its published runs does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from crosstack.io.generators import register_generator
from crosstack.model.rules import Rules, register
from crosstack.published.dfmodel.graphs.dlrm import dlrm
from crosstack.published.dfmodel.graphs.fft import fft
from crosstack.published.dfmodel.graphs.hpl import hpl
from crosstack.published.dfmodel.graphs.llm import llm
from crosstack.published.dfmodel.graphs.ssm import hyena, mamba
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
GRAPHS: dict[str, Callable[..., Workload]] = {
    "llm": llm,
    "dlrm": dlrm,
    "hpl": hpl,
    "fft": fft,
    "mamba": mamba,
    "hyena": hyena,
}


def _crosstack() -> Rules:
    from crosstack.evaluate.rules import crosstack

    return crosstack()


def _dfmodel(name: str) -> Rules:
    from crosstack.published.dfmodel.rules import release

    return release(name)


def _deepflow(name: str) -> Rules:
    from crosstack.published.deepflow.rules import release

    return release(name)


def register_bundles() -> None:
    """Register every name, and the graphs that files name."""
    for section, make in GRAPHS.items():
        register_generator(section, make)
    register("crosstack", _crosstack)
    for name in DFMODEL:
        register(name, partial(_dfmodel, name))
        for halves in ("+separate", "+separate-tensor"):
            register(name + halves, partial(_dfmodel, name + halves), variant=True)
    for name in DEEPFLOW:
        register(name, partial(_deepflow, name))
