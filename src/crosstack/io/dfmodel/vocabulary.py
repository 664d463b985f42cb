"""DFModel's words beside crosstack's, in both directions, and what its text implies.

Source: ``dfmodel_code``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from crosstack.errors import InputError, Problem
from crosstack.io.dfmodel.schema import ENUMS
from crosstack.machine.chip import Overlap
from crosstack.machine.system import DimensionKind, Parallelism
from crosstack.workload.kernels import Axis, Collective, ComputeUnit, Direction, KernelKind, Saved

T = TypeVar("T")
# Bandwidths are GB/s, clocks GHz, latencies ns and unit prices per GB/s: all by one factor.
# Small quantities are divided by it, not multiplied by 1e-9, so that 150 ns is exactly 1.5e-7 s.
GIGA = 1e9

UNITS = {"SYSTOLIC": ComputeUnit.SYSTOLIC, "SIMD": ComputeUnit.SIMD}
DIRECTIONS = {"FWD": Direction.FORWARD, "BWD": Direction.BACKWARD}
_AXES = {"OUTER": Axis.OUTER, "M": Axis.M, "K": Axis.K, "N": Axis.N, "NO": Axis.NONE}
TILINGS = {f"{name}_TILING": axis for name, axis in _AXES.items()}
SHARDINGS = {f"{name}_SHARDING": axis for name, axis in _AXES.items()}
# ALL_REDUCE_PERIODIC is an all-reduce with `Communication.periodic` set.
PERIODIC = "ALL_REDUCE_PERIODIC"
COLLECTIVES = {
    "ALL_REDUCE": Collective.ALL_REDUCE,
    "ALL_TO_ALL": Collective.ALL_TO_ALL,
    "ALL_GATHER": Collective.ALL_GATHER,
    PERIODIC: Collective.ALL_REDUCE,
    "POINT_TO_POINT": Collective.POINT_TO_POINT,
    "BROADCAST": Collective.BROADCAST,
}
OVERLAPS = {
    "PERFECT_OVERLAP": Overlap.ALL,
    "NO_OVERLAP": Overlap.NONE,
    "OVERLAP_COMPUTE_MEMORY": Overlap.COMPUTE_MEMORY,
}
LINKS = {
    "r": DimensionKind.RING,
    "sw": DimensionKind.SWITCH,
    "fc": DimensionKind.FULLY_CONNECTED,
}
PARALLELISMS = {
    "TP": Parallelism.TENSOR,
    "PP": Parallelism.PIPELINE,
    "DP": Parallelism.DATA,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One ``kernel_variant``: the kind it stands for and what it calls the operands' bytes."""

    kind: KernelKind
    inputs: tuple[str, ...]
    weight: str | None = None


_ONE_INPUT = ("input_tensor_size",)
_TWO_INPUTS = ("input_tensor_1_size", "input_tensor_2_size")
VARIANTS = {
    "gemm_input1_weight": Variant(
        kind=KernelKind.GEMM_WEIGHT, inputs=_ONE_INPUT, weight="weight_tensor_size"
    ),
    "gemm_input1_input2": Variant(kind=KernelKind.GEMM, inputs=_TWO_INPUTS),
    "elementwise_input1": Variant(kind=KernelKind.ELEMENTWISE, inputs=_ONE_INPUT),
    "elementwise_input1_input2": Variant(kind=KernelKind.ELEMENTWISE_2, inputs=_TWO_INPUTS),
}

# Field of `Kernel`: field of every variant.
KERNEL_FIELDS = {
    "outer": "outer",
    "m": "M",
    "n": "N",
    "output_size": "output_tensor_size",
    "memory_traffic": "memory_size",
    "sram_extra": "sram_extra",
    "memory_extra": "dram_extra",
}


# Field of `Prices`: field of the block of costs.
PRICES = {
    "link": "link_unit_price",
    "switch": "switch_unit_price",
    "memory": "dram_unit_price",
    "switch_power": "switch_unit_power",
    "memory_power": "dram_unit_power",
}


def single(value: float) -> float:
    """Round to the nearest float32, as every real number of a DFModel file is; may be infinite."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def matching_operands(
    edges: Sequence[tuple[int, int]],
    made: Sequence[float],
    inputs: Sequence[tuple[float, ...]],
) -> list[int | None]:
    """Recognise by its bytes which operand each edge feeds; None where the bytes fit neither.

    Parameters
    ----------
    edges : sequence of (int, int)
        Producing and consuming kernel, in listing order.
    made : sequence of float
        Bytes each kernel makes, rounded by `single`. [B]
    inputs : sequence of tuple of float
        Bytes of each kernel's operands, rounded likewise. [B]

    Notes
    -----
    The published tool gives every edge of two equal operands to the first; here the second edge
    takes the second. A rule set says which is counted (`operand_by_size`).
    """
    taken: set[tuple[int, int]] = set()
    operands: list[int | None] = []
    for source, target in edges:
        fits = [o for o, size in enumerate(inputs[target]) if size == made[source]]
        free = [o for o in fits if (target, o) not in taken]
        operand = next(iter(free or fits), None)
        operands.append(operand)
        if operand is not None:
            taken.add((target, operand))
    return operands


# What the backward pass needs of a kernel besides what edges name: its backward kernel reads the
# gradient alone.
_SAVED = {
    "LayerNorm_1": Saved.INPUT,
    "SOFTMAX": Saved.OUTPUT,
    "DropOut_1": Saved.MASK,
    "DropOut_2": Saved.MASK,
    "LayerNorm_2": Saved.INPUT,
    "GeLU": Saved.INPUT,
    "DropOut_3": Saved.MASK,
}


def saved_of(name: str) -> Saved:
    """Return what the backward pass of a layer needs of the kernel ``name``, in any layer."""
    return _SAVED.get(name.partition("_layer_")[0], Saved.NOTHING)


def is_row_wise(name: str) -> bool:
    """Return whether the kernel ``name`` of a layer, in any layer, needs whole rows."""
    return name.startswith(("LayerNorm", "SOFTMAX"))


def release(dse: Any, execution: Any) -> str:
    """Guess the rule set of a file from the fields that only some releases have.

    ``execution`` is the block of that name, or ``miscellany``. Release E3b cannot be told from
    the README's (E3a) without ``second_dram_*``.
    """
    bodies = [getattr(k, k.WhichOneof("kernel_variant") or "gemm_input1_weight")
              for k in dse.dataflow_graph.kernels]  # fmt: skip
    fifth = (
        dse.system.WhichOneof("topology_variant") == "r_r_r_r"
        or execution.optimization != ""
        or execution.skip_inter_chip_optimization
        or execution.turn_off_p_and_r
        or execution.effective_stage != 0
        or any(body.sram_extra or body.dram_extra for body in bodies)
    )
    fourth = (
        execution.overlap != 0
        or execution.separate_rs_ag_for_ar
        or dse.system.accelerator.link_latency != 0
        or any(connection.zero_out for connection in dse.dataflow_graph.connections)
    )
    if fifth or fourth:
        both_halves = "+separate" if execution.separate_rs_ag_for_ar else ""
        return ("dfmodel-e5" if fifth else "dfmodel-e4") + both_halves
    if dse.system.memory.second_dram_cap or dse.system.memory.second_dram_bw:
        return "dfmodel-e3b"
    return "dfmodel-e2" if dse.HasField("miscellany") else "dfmodel-readme"


@contextmanager
def fields_of(path: str, names: Mapping[str, str]) -> Iterator[None]:
    """Say the errors of a record, made from the block at ``path``, in the file's words.

    ``names``: field of the record -> field of the block, or a whole path after a leading ``/``.
    """
    try:
        yield
    except InputError as error:
        raise InputError(
            problem.at(_renamed(path, names, problem.path)) for problem in error.problems
        ) from None


def _renamed(path: str, names: Mapping[str, str], field: str) -> str:
    name = names.get(field, field)
    return name[1:] if name.startswith("/") else f"{path}.{name}"


def choice(
    path: str, enum: str, number: int, meanings: Mapping[str, T], *, unset: T | None = None
) -> T:
    """Return what a value of ``enum`` means; ``unset`` for 0, where that may be left out.

    `InputError` if the value is not set and must be, or is none of the enum's.
    """
    if number == 0 and unset is not None:
        return unset
    values = ENUMS[enum]
    word = values[number] if 0 < number < len(values) else None
    if word is None or word not in meanings:
        came = "not set" if number == 0 else f"got {word or number}"
        raise refused(path, came, ", ".join(meanings))
    return meanings[word]


def refused(path: str, came: str, allowed: str) -> InputError:
    """Return the error for a field: what came, and what is allowed."""
    return InputError(Problem(path, f"{came}; allowed: {allowed}."))


def unsupported(path: str, what: str, allowed: str) -> InputError:
    """Return the error for something DFModel has and crosstack has not."""
    return refused(path, f"{what} is not supported yet", allowed)
