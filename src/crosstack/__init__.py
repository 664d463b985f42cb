"""crosstack: map AI and HPC workloads onto machines, and prove how good the mapping is.

A name of the package is imported when it is first used, so that ``import crosstack`` takes no time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crosstack.interrupt import loading

loading()  # before all that takes its time

from importlib import import_module

from crosstack.errors import CrosstackError, InfeasibleError, InputError
from crosstack.published.bundles import register_bundles
from crosstack.registry import VIEWS
from crosstack.version import __version__

for _package in ("evaluate", "model"):  # called like a function: imported now, its name is free
    import_module(f"{__name__}.{_package}")
    del globals()[_package]

if TYPE_CHECKING:
    from crosstack.evaluate.plan import Plan, optimise
    from crosstack.evaluate.plan import evaluate_task as evaluate
    from crosstack.evaluate.predicted import predict_job as predict
    from crosstack.evaluate.speculation import speculate
    from crosstack.explore.explain import explain
    from crosstack.explore.fitting import ways_to_fit
    from crosstack.explore.read_codesign import codesign
    from crosstack.explore.run import sweep
    from crosstack.explore.served import serve
    from crosstack.io.calibration import calibrate
    from crosstack.io.library.machines import system_on as system
    from crosstack.io.load import load, save
    from crosstack.io.transformers import model_named as model
    from crosstack.machine import (
        Chip,
        Dimension,
        DimensionKind,
        MemoryLevel,
        Overlap,
        Parallelism,
        Prices,
        System,
        flat_chip,
        main_memory,
    )
    from crosstack.mapping.degrees import Degrees
    from crosstack.mapping.mapping import Certificate, Constraints, Mapping, Status, Stop, Task
    from crosstack.model.rules import Rules
    from crosstack.workload import (
        Axis,
        Dtype,
        Job,
        JobKind,
        Kernel,
        KernelGraph,
        KernelKind,
        Placement,
        Tensor,
        Transformer,
        Workload,
    )
    from crosstack.workload.generators import dlrm, fft, hyena, mamba

# Module -> what is public of it; ``name=other``: called otherwise there.
_HOMES = {
    "crosstack.evaluate.plan": "Plan optimise evaluate=evaluate_task",
    "crosstack.evaluate.predicted": "predict=predict_job",
    "crosstack.evaluate.speculation": "speculate",
    "crosstack.explore.explain": "explain",
    "crosstack.explore.fitting": "ways_to_fit",
    "crosstack.explore.read_codesign": "codesign",
    "crosstack.explore.run": "sweep",
    "crosstack.explore.served": "serve",
    "crosstack.io.calibration": "calibrate",
    "crosstack.io.library.machines": "system=system_on",
    "crosstack.io.load": "load save",
    "crosstack.io.transformers": "model=model_named",
    "crosstack.machine": "Chip Dimension DimensionKind MemoryLevel Overlap Parallelism Prices "
    "System flat_chip main_memory",
    "crosstack.mapping.degrees": "Degrees",
    "crosstack.mapping.mapping": "Certificate Constraints Mapping Status Stop Task",
    "crosstack.model.rules": "Rules",
    "crosstack.workload": "Axis Dtype Job JobKind Kernel KernelGraph KernelKind Placement Tensor "
    "Transformer Workload",
    "crosstack.workload.generators": "dlrm fft hyena mamba",
}
_HOME = {
    name.partition("=")[0]: (module, name.rpartition("=")[2])
    for module, names in _HOMES.items()
    for name in names.split()
}

__all__ = [
    "Axis",
    "Certificate",
    "Chip",
    "Constraints",
    "CrosstackError",
    "Degrees",
    "Dimension",
    "DimensionKind",
    "Dtype",
    "InfeasibleError",
    "InputError",
    "Job",
    "JobKind",
    "Kernel",
    "KernelGraph",
    "KernelKind",
    "Mapping",
    "MemoryLevel",
    "Overlap",
    "Parallelism",
    "Placement",
    "Plan",
    "Prices",
    "Rules",
    "Status",
    "Stop",
    "System",
    "Task",
    "Tensor",
    "Transformer",
    "Workload",
    "__version__",
    "calibrate",
    "codesign",
    "dlrm",
    "evaluate",
    "explain",
    "fft",
    "flat_chip",
    "hyena",
    "load",
    "main_memory",
    "mamba",
    "model",
    "optimise",
    "predict",
    "save",
    "serve",
    "speculate",
    "sweep",
    "system",
    "ways_to_fit",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, other = _HOME[name]
    value = globals()[name] = getattr(import_module(module), other)
    return value


def __dir__() -> list[str]:
    """Return the public names, imported or not."""
    return [*__all__]


def _draw(answer: Plan) -> str:
    from crosstack.report.html import answer_html

    return answer_html(answer, whole_page=False)


def _describe(answer: Plan) -> str:
    from crosstack.report.text import answer_summary

    return answer_summary(answer)


register_bundles()
VIEWS["html"], VIEWS["text"] = _draw, _describe
