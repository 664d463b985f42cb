"""What kernels of single elements and rows take of the lanes beside the arrays.

Libraries compute them in single precision, whatever they read: a lane does
an instruction a cycle, and its multiply-add, two operations, is one. Exponentials, logarithms and
reciprocals are started in units of their own, 16 a cycle of 128 or 64 lanes
(``nvidia_cuda_guide``), and what needs their result waits, so that the two add up. One in full
precision is several instructions around that.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from crosstack.machine.chip import Chip
from crosstack.machine.framework import Fusion
from crosstack.model.attention import in_attentions
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import TABLE, Function
from crosstack.workload.kernel_graph import Floats, KernelGraph


@dataclass(frozen=True, slots=True)
class Instructions:
    """Instructions of a lane, and results of special functions, on each element. [1]"""

    lane: float
    special: float = 0.0

    def __add__(self, other: Instructions) -> Instructions:
        return Instructions(self.lane + other.lane, self.special + other.special)

    def __mul__(self, times: float) -> Instructions:
        return Instructions(self.lane * times, self.special * times)


# A step of the exponential of single precision: the exponent taken off and put back around one of
# base 2; of a quotient: a reciprocal, two steps of Newton's and the last bit put right; of tanh:
# both of them, and a polynomial near zero. Assumed, as libraries for CUDA compile.
ONE = Instructions(1)
EXPONENTIAL = Instructions(7, 1)
QUOTIENT = Instructions(9, 1)
LOGARITHM = Instructions(9, 1)
TANH = Instructions(10, 2)
SIGMOID = EXPONENTIAL + QUOTIENT + ONE
RANDOM = Instructions(26)  # a fourth of Philox with ten rounds (``salmon2011random``)

F = Function
# Each operand and the result change their type, one instruction each. What is not here has one for
# every operation of its row.
INSTRUCTIONS: dict[Function, Instructions] = {
    F.DIVIDE: ONE * 3 + QUOTIENT,
    F.EXPONENTIAL: ONE * 2 + EXPONENTIAL,
    F.LOGARITHM: ONE * 2 + LOGARITHM,
    F.TANH: ONE * 2 + TANH,
    F.SIGMOID: ONE * 2 + SIGMOID,
    F.GELU: ONE * 8 + TANH,
    F.GELU_GRADIENT: ONE * 15 + TANH,
    F.GATED_GELU: ONE * 10 + TANH,
    F.SILU: ONE * 2 + SIGMOID,
    F.SILU_GRADIENT: ONE * 7 + SIGMOID,
    F.GATED_SILU: ONE * 4 + SIGMOID,
    F.SOFTPLUS: ONE * 3 + EXPONENTIAL + LOGARITHM,
    F.SOFT_CAP: ONE * 4 + TANH,
    F.SOFT_CAP_GRADIENT: ONE * 7 + TANH,
    F.DROPOUT: ONE * 6 + RANDOM,
    # Three passes of a row: its maximum, its sum of exponentials, each over the sum.
    F.SOFTMAX: ONE * 2 + (ONE * 3 + EXPONENTIAL) + (ONE * 3 + EXPONENTIAL + QUOTIENT),
    F.CROSS_ENTROPY: ONE * 2 + (ONE * 3 + EXPONENTIAL),
    F.CROSS_ENTROPY_GRADIENT: ONE * 5 + EXPONENTIAL,
}
# In an attention that is one kernel exponentials are of base 2, and the sums of rows are divided by
# once (``dao2023flashattention2``, 3.1): scale and maximum, exponential, sum, type; backward the
# difference times what there is, and types.
FUSED: dict[Function, Instructions] = {
    F.SOFTMAX: Instructions(4, 1),
    F.SOFTMAX_GRADIENT: Instructions(5),
}


def in_attention(chip: Chip, function: Function) -> Instructions | None:
    """Return what nothing hides of a function in an attention that is one kernel, if it is there.

    Where arrays read operands from memory by themselves lanes work beside them, forward.
    """
    needed = FUSED.get(function)
    if needed is not None and function is Function.SOFTMAX and chip.compute.operand_rows:
        return Instructions(0, needed.special)
    return needed


def has_lanes(chip: Chip) -> bool:
    """Whether a chip is known to have lanes beside its arrays, in single precision."""
    return Dtype.FP32 in dict(chip.compute.relative_vector_rates)


def element_time(chip: Chip, instructions: Instructions) -> float:
    """Return what an element takes of all lanes and special units of a chip that has them. [s]"""
    lanes = chip.vector_throughput(Dtype.FP32) / 2
    compute = chip.compute
    special = compute.special_per_cycle * compute.n_multiprocessors
    special *= compute.frequency * compute.boost
    # Where there are no units of their own, one is one more instruction.
    return instructions.lane / lanes + instructions.special / (special or lanes)


@lru_cache(maxsize=256)
def lane_rates(chip: Chip, graph: KernelGraph) -> Floats:
    """Return the rate at which the operations of kernels are done beside the arrays. [FLOP/s]

    Shape (n,). Of chips whose lanes are not known, and of kernels of which it is not said what they
    compute, what `Chip.vector_throughput` says of the type. The softmax of an attention that is one
    kernel takes nothing here: the product that begins it tells what it takes
    (`crosstack.model.kernels.attention`).
    """
    rates = np.array([chip.vector_throughput(dtype) for dtype in graph.dtypes])
    if not has_lanes(chip):
        return rates
    for i, name in enumerate(graph.functions):
        function = Function(name) if name else None
        work = TABLE[function].work if function else 0.0
        if function and work:
            needed = INSTRUCTIONS.get(function, Instructions(work))
            if function is F.DROPOUT and graph.backward[i]:
                needed = Instructions(work)  # by the mask that there is
            rates[i] = work / element_time(chip, needed)
    if Fusion.ATTENTION in chip.fused:
        rates[in_attentions(graph) & graph.row_wise] = np.inf
    return rates


def function_time(chip: Chip, function: Function, elements: float, traffic: float) -> float:
    """Time of a function of elements that a kernel of its own computes, without a launch. [s]

    The longer of lanes and main memory, which moves ``traffic`` bytes. Of a chip whose lanes are
    not known, main memory's.
    """
    memory = chip.main_memory
    moving = traffic / memory.speed + memory.latency if traffic > 0 else 0.0
    if not has_lanes(chip):
        return moving
    needed = INSTRUCTIONS.get(function, Instructions(TABLE[function].work))
    return max(elements * element_time(chip, needed), moving)
