"""How long measured steps of training took over what is said of them, by machine and framework.

A proof says that no mapping is faster by the engine's own account of time. How far that account is
from machines is another question, which measured runs answer: the middle eight in ten of their
ratios are the range that a step of such a machine is to be expected in.

The runs are those of ``docs/parallelism.md`` that were measured, not computed
(`crosstack.evaluate.run_scores`), forty of every source at most. What is written here is what
``python tests/published/compared.py`` prints; a test holds it against the runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from crosstack.machine.calibration import is_calibrated
from crosstack.mapping.mapping import Task
from crosstack.model.rules import Rules
from crosstack.records import plain
from crosstack.workload.workload import Workload

AMPERE = ("a100-sxm-80gb", "a100-sxm-40gb")
HOPPER = ("h100-sxm", "h800-sxm", "h200-sxm")
BLACKWELL = ("b200", "gb200", "b300", "gb300")
GENERATIONS = {"A100": AMPERE, "Hopper": HOPPER, "Blackwell": BLACKWELL}
SHARES = (0.1, 0.5, 0.9)  # of runs that took so long at most: the middle eight in ten, and half [1]
COMPARED_RULES = "crosstack"  # that the steps were predicted under


class Ratios(NamedTuple):
    """Measured over predicted step times of which `SHARES` of runs have less. [1]"""

    low: float
    middle: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Measured steps on chips of one ``generation``, driven by one framework, and their ratios.

    ``experts``: of models that route tokens to experts, or of those that do not. ``sources`` are
    those of `crosstack.io.measured_runs`.
    """

    framework: str
    generation: str
    experts: bool
    runs: int
    sources: tuple[str, ...]
    ratios: Ratios

    def expected(self, time: float) -> tuple[float, float, float]:
        """Return what a step may take that is said to take some time: low, middle, high. [s]"""
        low, middle, high = (ratio * time for ratio in self.ratios)
        return low, middle, high

    def to_dict(self, time: float) -> dict[str, Any]:
        """Return it as plain data, with what a step that is said to take so long may take. [s]"""
        said: dict[str, Any] = plain(self)
        return said | {"ratios": list(self.ratios), "time_s": list(self.expected(time))}


COMPARISONS = (
    Comparison(
        framework="composer",
        generation="A100",
        experts=False,
        runs=40,
        sources=("mpt",),
        ratios=Ratios(low=1.039, middle=1.113, high=1.229),
    ),
    Comparison(
        framework="megatron",
        generation="A100",
        experts=False,
        runs=51,
        sources=("megatron-selene", "megatron-table5", "vtrain-multi"),
        ratios=Ratios(low=0.974, middle=1.033, high=1.119),
    ),
    Comparison(
        framework="megatron",
        generation="Blackwell",
        experts=False,
        runs=31,
        sources=("megatron-bridge", "simumax"),
        ratios=Ratios(low=0.916, middle=0.99, high=1.096),
    ),
    Comparison(
        framework="megatron",
        generation="Blackwell",
        experts=True,
        runs=22,
        sources=("megatron-bridge", "simumax"),
        ratios=Ratios(low=0.886, middle=1.067, high=1.816),
    ),
    Comparison(
        framework="megatron",
        generation="Hopper",
        experts=False,
        runs=4,
        sources=("megatron-bridge",),
        ratios=Ratios(low=1.09, middle=1.142, high=1.158),
    ),
    Comparison(
        framework="megatron",
        generation="Hopper",
        experts=True,
        runs=4,
        sources=("megatron-bridge",),
        ratios=Ratios(low=1.028, middle=1.121, high=1.248),
    ),
    Comparison(
        framework="nanotron",
        generation="Hopper",
        experts=False,
        runs=18,
        sources=("nanotron",),
        ratios=Ratios(low=0.677, middle=0.997, high=1.648),
    ),
)


def comparison_of(task: Task, rules: Rules) -> Comparison | None:
    """Return measured steps like those of a task; None where none were compared."""
    framework = task.system.chip.framework
    workload, chip = task.workload, task.system.chip
    if rules.name != COMPARED_RULES or framework is None or not is_of_tokens(workload):
        return None
    if is_calibrated(task.system):  # the runs were predicted on machines of data sheets
        return None
    for one in COMPARISONS:
        asked = one.framework, one.experts, chip.name in GENERATIONS[one.generation]
        if asked == (framework.name, workload.experts > 1, True):
            return one
    return None


def is_of_tokens(workload: Workload) -> bool:
    """Whether it is training on sequences of tokens, as all steps that were compared."""
    return workload.training and workload.item == "sequence"
