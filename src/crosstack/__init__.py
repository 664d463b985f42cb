"""crosstack: map AI and HPC workloads onto machines, and prove how good the mapping is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crosstack.interrupt import loading

loading()  # before all that takes its time

from crosstack.errors import CrosstackError, InfeasibleError, InputError
from crosstack.evaluate.answer import Answer, optimise
from crosstack.evaluate.answer import evaluate_task as evaluate
from crosstack.evaluate.speculation import speculate
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
from crosstack.published.bundles import register_bundles
from crosstack.published.dfmodel.graphs.dlrm import dlrm
from crosstack.published.dfmodel.graphs.fft import fft
from crosstack.published.dfmodel.graphs.hpl import hpl
from crosstack.published.dfmodel.graphs.llm import llm
from crosstack.published.dfmodel.graphs.ssm import hyena, mamba
from crosstack.version import __version__
from crosstack.workload import (
    Axis,
    Dtype,
    Job,
    Kernel,
    KernelGraph,
    KernelKind,
    Placement,
    Tensor,
    Workload,
    decode,
    prefill,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

__all__ = [
    "Answer",
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
    "Kernel",
    "KernelGraph",
    "KernelKind",
    "Mapping",
    "MemoryLevel",
    "Overlap",
    "Parallelism",
    "Placement",
    "Prices",
    "Rules",
    "Status",
    "Stop",
    "System",
    "Task",
    "Tensor",
    "Workload",
    "__version__",
    "decode",
    "dlrm",
    "evaluate",
    "fft",
    "flat_chip",
    "hpl",
    "hyena",
    "llm",
    "load",
    "main_memory",
    "mamba",
    "optimise",
    "prefill",
    "save",
    "speculate",
    "sweep",
    "system_on",
]


register_bundles()


def _draw(answer: Answer) -> str:
    from crosstack.report.html import answer_html

    return answer_html(answer, whole_page=False)


def _describe(answer: Answer) -> str:
    from crosstack.report.text import answer_summary

    return answer_summary(answer)


Answer.renderer = _draw
Answer.describer = _describe


def system_on(
    name: str, *, chips: int | None = None, fabric: str | None = None, port: str | None = None
) -> System:
    """Return a machine of the library; see `crosstack.io.library.system_on`."""
    from crosstack.io import library

    return library.system_on(name, chips=chips, fabric=fabric, port=port)


def load(path: str | Path, overrides: Sequence[str] = ()) -> Task:
    """Read a task from native YAML or DFModel text; the format is detected.

    Parameters
    ----------
    overrides : sequence of str
        ``path=value`` changes applied before the file is checked.

    Raises
    ------
    InputError
        With every problem found, one line each.
    """
    from crosstack.io.load import load as read  # pydantic and protobuf only where they are used

    return read(path, overrides)


def sweep(study: str | Path, **options: Any) -> Any:
    """Answer every point of a study and return a table; see `crosstack.explore.run.sweep`.

    Parameters
    ----------
    study : str or Path
        A study's YAML file, or a `crosstack.explore.study.Study`.
    **options
        ``store``, ``resume``, ``jobs``, ``timeout``, ``dask``, ``evaluator``, ``table`` and
        ``progress``.

    Raises
    ------
    InputError
        With every problem found, one line each.
    """
    from crosstack.explore.run import sweep as run  # pyarrow only where it is used

    return run(study, **options)


def save(task: Task, path: str | Path) -> None:
    """Write a task: ``.yaml`` native, ``.txt`` or ``.pbtxt`` as DFModel text.

    Raises
    ------
    InputError
        If the format cannot say what the task holds.
    """
    from crosstack.io.load import save as write

    write(task, path)
