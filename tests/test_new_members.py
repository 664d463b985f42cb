"""A member that is added to an enum is refused wherever nobody has said what it means."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Any

import numpy as np
import pytest

from crosstack.charts import Mark
from crosstack.chip.chip import Chip, Overlap
from crosstack.model.lines import _halves, latency_charged
from crosstack.model.partition import _read_again, _streams, combine, combine_arrays
from crosstack.model.placed import placed_use
from crosstack.model.rules import LatencyRule, ModelRules, WeightCuts
from crosstack.report.chart_figure import _mark
from crosstack.report.drawing import Canvas
from crosstack.report.layer_figure import _starts
from crosstack.report.machine_figure import _wires
from crosstack.system.collectives import all_gather_time, all_to_all_time, slowest_cut, steps
from crosstack.system.prices import link_amounts, switch_amounts
from crosstack.system.system import Dimension, DimensionKind, Memory, System
from crosstack.technology.wafers import YieldModel, die_yield
from crosstack.workload.graph import ComputeUnit, Kernel, KernelKind, Placement

RULES = ModelRules.crosstack()
CHIP = Chip(n_cores=1, lanes=1, stages=1, frequency=1e9, sram_capacity=1e6)
KERNEL = Kernel(
    name="k", kind=KernelKind.ELEMENTWISE, m=1, n=1, output_size=1.0, input_sizes=(1.0,),
    unit=ComputeUnit.SIMD,
)  # fmt: skip


def added(kind: type[StrEnum]) -> Any:
    """Return a member that ``kind`` does not have."""
    member = str.__new__(kind, "new")
    member._name_, member._value_ = "NEW", "new"
    return member


def system() -> System:
    """Return two chips joined in a way that nobody knows."""
    one = Dimension(kind=added(DimensionKind), size=2, bandwidth=1e9)
    return System(chip=CHIP, memory=Memory(bandwidth=1e9), network=(one,), n_chips=2)


def with_latency(rule: LatencyRule) -> ModelRules:
    """Return rules with a latency of their own, past the check of the record."""
    rules = replace(RULES)
    object.__setattr__(rules, "latency", rule)
    return rules


def kernel(**changes: Any) -> Kernel:
    """Return a kernel, past the check of the record."""
    made = replace(KERNEL)
    for name, value in changes.items():
        object.__setattr__(made, name, value)
    return made


X = np.ones(1)
CASES = {
    "links": lambda: link_amounts(system(), (2,)),
    "switch ports": lambda: switch_amounts(system(), (2,)),
    "steps": lambda: steps(added(DimensionKind), 4),
    "all-gather": lambda: all_gather_time(added(DimensionKind), 1.0, n_chips=4, bandwidth=1.0),
    "all-to-all": lambda: all_to_all_time(added(DimensionKind), 1.0, n_chips=4, bandwidth=1.0),
    "cut": lambda: slowest_cut([added(DimensionKind)], [4], [1.0], ring_links=1, all_pairs=True),
    "halves": lambda: _halves(added(DimensionKind), RULES),
    "icon": lambda: _wires(Canvas(), added(DimensionKind), [(0.0, 0.0)], (1.0, 1.0)),
    "latency": lambda: latency_charged(with_latency(added(LatencyRule)), kernel=True),
    "use": lambda: placed_use(added(Placement)),
    "streams": lambda: _streams(added(Placement), RULES),
    "pieces": lambda: _read_again(added(WeightCuts), 1.0, 1.0),
    "overlap": lambda: combine(1.0, 1.0, 1.0, added(Overlap)),
    "overlap of arrays": lambda: combine_arrays(X, X, X, added(Overlap)),
    "lanes of time": lambda: _starts((1.0, 1.0, 1.0), added(Overlap)),
    "operands": lambda: added(KernelKind).n_inputs,
    "product": lambda: added(KernelKind).is_gemm,
    "work": lambda: kernel(unit=added(ComputeUnit)).work,
    "yield": lambda: die_yield(1.0, added(YieldModel)),
    "mark": lambda: _mark(Canvas(), 0.0, 0.0, 0, added(Mark), published=False),
}


@pytest.mark.parametrize("case", CASES)
def test_a_new_member_falls_through_to_nothing(case):
    with pytest.raises(AssertionError):
        CASES[case]()
