"""A member that is added to an enum is refused wherever nobody has said what it means."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crosstack.charts import Mark, Series
from crosstack.machine.chip import Overlap
from crosstack.machine.network import Joint
from crosstack.machine.system import Dimension, DimensionKind, Parallelism
from crosstack.model.collectives import LeastTime, NetworkUse
from crosstack.model.mesh_plan import placed_use
from crosstack.model.partition import combine, combine_arrays
from crosstack.model.rules import rules_named
from crosstack.model.schedule.layer import PartitionTimes, layer_graph
from crosstack.published.dfmodel.collectives import (
    ExchangeRule,
    LatencyRule,
    ReleaseCollectives,
)
from crosstack.published.dfmodel.parts import DFModelTraffic, WeightCuts
from crosstack.report.chart_figure import _mark
from crosstack.report.drawing import Canvas
from crosstack.report.machine_figure import _wires
from crosstack.technology.wafers import YieldModel, die_yield
from crosstack.workload.kernels import ComputeUnit, Kernel, KernelKind, Placement

RULES = rules_named("crosstack")
KERNEL = Kernel(
    name="k", kind=KernelKind.ELEMENTWISE, m=1, n=1, output_size=1.0, input_sizes=(1.0,),
    unit=ComputeUnit.SIMD,
)  # fmt: skip


def added(kind: type[StrEnum]) -> Any:
    """Return a member that ``kind`` does not have."""
    member = str.__new__(kind, "new")
    member._name_, member._value_ = "NEW", "new"
    return member


def released(**changes: Any) -> ReleaseCollectives:
    """Return what a release counts, past the check of the record."""
    part = ReleaseCollectives()
    for name, value in changes.items():
        object.__setattr__(part, name, value)
    return part


def with_cuts(cuts: WeightCuts) -> DFModelTraffic:
    """Return a part with weights cut in a way of its own, past the check of the record."""
    part = DFModelTraffic()
    object.__setattr__(part, "weight_cuts", cuts)
    return part


def kernel(**changes: Any) -> Kernel:
    """Return a kernel, past the check of the record."""
    made = replace(KERNEL)
    for name, value in changes.items():
        object.__setattr__(made, name, value)
    return made


X = np.ones(1)
TIMES = PartitionTimes(compute=1.0, memory=1.0, network=1.0)
USE = NetworkUse(
    dimensions=(Dimension(kind=DimensionKind.RING, bandwidth=1e9),),
    sizes=(2,),
    parallelism=(Parallelism.TENSOR,),
)
CASES = {
    "links": lambda: added(Joint).links(2),
    "icon": lambda: _wires(Canvas(), added(Joint), [(0.0, 0.0)], (1.0, 1.0)),
    "latency": lambda: released(latency=added(LatencyRule))._hops([]),
    "exchange": lambda: released(exchange=added(ExchangeRule))._slowest_pair([]),
    "placed": lambda: LeastTime().placed(USE, added(Placement)),
    "use": lambda: placed_use(added(Placement)),
    "streams": lambda: RULES.traffic.streams(added(Placement)),
    "pieces": lambda: with_cuts(added(WeightCuts)).read_again(1.0, 1.0),
    "overlap": lambda: combine(1.0, 1.0, 1.0, added(Overlap)),
    "overlap of arrays": lambda: combine_arrays(X, X, X, added(Overlap)),
    "lanes of time": lambda: layer_graph([TIMES], added(Overlap)),
    "operands": lambda: added(KernelKind).n_inputs,
    "product": lambda: added(KernelKind).is_gemm,
    "work": lambda: kernel(unit=added(ComputeUnit)).work,
    "yield": lambda: die_yield(1.0, added(YieldModel)),
    "mark": lambda: _mark(Canvas(), 0.0, 0.0, Series(name="s", x=(), y=(), mark=added(Mark))),
}


@pytest.mark.parametrize("case", CASES)
def test_a_new_member_falls_through_to_nothing(case):
    with pytest.raises((AssertionError, KeyError)):
        CASES[case]()


def test_a_kind_of_network_without_a_row_joins_nothing():
    with pytest.raises(KeyError):
        Dimension(kind=added(DimensionKind), size=2, bandwidth=1e9)


# ---------------------------------------------------------------- chains of comparisons

SOURCE = Path(__file__).parents[1] / "src/crosstack"
# Whose rest is looked up by name, which refuses a new member, or asks what else is known.
LOOKED_UP = {
    ("model/kernels/systolic.py", "Dataflow"),
    ("explore/design.py", "Metric"),
    ("report/certificate_words.py", "Status"),
}
Compared = tuple[str, str, str]  # what, with which enum, with which member


@cache
def trees() -> tuple[tuple[str, ast.Module], ...]:
    """Return the files that define an enum or compare with a member."""
    texts = (
        (p.relative_to(SOURCE).as_posix(), p.read_text()) for p in sorted(SOURCE.rglob("*.py"))
    )
    told = re.compile(r"Enum\):|(?:is|==) [A-Z]\w+\.[A-Z]")
    return tuple((name, ast.parse(text)) for name, text in texts if told.search(text))


def members() -> dict[str, set[str]]:
    """Return the members of every enum of the package."""
    return {
        node.name: {ast.unparse(s.targets[0]) for s in node.body if isinstance(s, ast.Assign)}
        for _, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and any(ast.unparse(base).endswith("Enum") for base in node.bases)
    }


def compared(test: ast.expr, enums: dict[str, set[str]]) -> Compared | None:
    """Return what a test compares with a member, if that is all it does."""
    if not isinstance(test, ast.Compare) or len(test.ops) > 1:
        return None
    kind, _, member = ast.unparse(test.comparators[0]).partition(".")
    same = isinstance(test.ops[0], ast.Is | ast.Eq) and member in enums.get(kind, ())
    return (ast.unparse(test.left), kind, member) if same else None


def chain(
    body: list[ast.stmt], enums: dict[str, set[str]]
) -> tuple[list[Compared], list[ast.stmt]]:
    """Return what the first statements compare one thing with, and what is done otherwise."""
    found: list[Compared] = []
    while body and isinstance(body[0], ast.If):
        this = compared(body[0].test, enums)
        if this is None or (found and this[:2] != found[0][:2]):
            break
        found.append(this)
        if body[0].orelse:
            more, rest = chain(body[0].orelse, enums)
            same = more and more[0][:2] == this[:2]
            return (found + more, rest) if same else (found, body[0].orelse)
        body = body[1:]
    return found, body


def falls_through(tree: ast.Module, enums: dict[str, set[str]]) -> Iterator[str]:
    """Return the enums of which one of several members is what is left."""
    for node in ast.walk(tree):
        for block in (getattr(node, "body", None), getattr(node, "orelse", None)):
            for i, first in enumerate(block if isinstance(block, list) else ()):
                found, rest = chain(block[i:], enums) if isinstance(first, ast.If) else ([], [])
                if len(found) < 2 or not rest or "assert_never" in ast.unparse(rest[0]):
                    continue
                if enums[found[0][1]] - {member for *_, member in found}:
                    yield found[0][1]


def test_no_chain_of_comparisons_takes_what_is_left_for_a_member():
    enums = members()
    found = {(name, enum) for name, tree in trees() for enum in falls_through(tree, enums)}
    assert found == LOOKED_UP
