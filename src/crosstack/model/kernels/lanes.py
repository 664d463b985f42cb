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
from crosstack.machine.compute import MathLibrary
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


@dataclass(frozen=True, slots=True)
class Steps:
    """What a library's functions of single precision take. [1]"""

    exponential: Instructions
    quotient: Instructions
    logarithm: Instructions
    tanh: Instructions


# A step of the exponential of single precision: the exponent taken off and put back around one of
# base 2; of a quotient: a reciprocal, two steps of Newton's and the last bit put right; of tanh:
# both of them, and a polynomial near zero. Assumed, as libraries for CUDA compile; AMD's are
# counted in its source, without extra accuracy, where lanes go both ways of tanh (``amd_ocml``).
ONE = Instructions(1)
STEPS = {
    MathLibrary.CUDA: Steps(
        Instructions(7, 1), Instructions(9, 1), Instructions(9, 1), Instructions(10, 2)
    ),
    MathLibrary.OCML: Steps(
        Instructions(12, 1), Instructions(10, 1), Instructions(10, 1), Instructions(25, 2)
    ),
}
RANDOM = Instructions(26)  # a fourth of Philox with ten rounds (``salmon2011random``)

F = Function


def _instructions(steps: Steps) -> dict[Function, Instructions]:
    """Return what functions take on each element.

    Each operand and the result change their type, one instruction each. What is not here has one
    for every operation of its row.
    """
    exponential, quotient, tanh = steps.exponential, steps.quotient, steps.tanh
    sigmoid = exponential + quotient + ONE
    return {
        F.DIVIDE: ONE * 3 + quotient,
        F.EXPONENTIAL: ONE * 2 + exponential,
        F.LOGARITHM: ONE * 2 + steps.logarithm,
        F.TANH: ONE * 2 + tanh,
        F.SIGMOID: ONE * 2 + sigmoid,
        F.GELU: ONE * 8 + tanh,
        F.GELU_GRADIENT: ONE * 15 + tanh,
        F.GATED_GELU: ONE * 10 + tanh,
        F.SILU: ONE * 2 + sigmoid,
        F.SILU_GRADIENT: ONE * 7 + sigmoid,
        F.GATED_SILU: ONE * 4 + sigmoid,
        F.SOFTPLUS: ONE * 3 + exponential + steps.logarithm,
        F.SOFT_CAP: ONE * 4 + tanh,
        F.SOFT_CAP_GRADIENT: ONE * 7 + tanh,
        F.DROPOUT: ONE * 6 + RANDOM,
        # Three passes of a row: its maximum, its sum of exponentials, each over the sum.
        F.SOFTMAX: ONE * 2 + (ONE * 3 + exponential) + (ONE * 3 + exponential + quotient),
        F.CROSS_ENTROPY: ONE * 2 + (ONE * 3 + exponential),
        F.CROSS_ENTROPY_GRADIENT: ONE * 5 + exponential,
    }


INSTRUCTIONS = {library: _instructions(steps) for library, steps in STEPS.items()}
SCALED = 128  # of K, that share a scale in ``fp8-blocks`` (``deepseek2024v3``, 3.3.2) [1]

# In an attention that is one kernel exponentials are of base 2, and the sums of rows are divided by
# once (``dao2023flashattention2``, 3.1): scale and maximum, exponential, sum, type; backward the
# difference times what there is, and types.
FUSED: dict[Function, Instructions] = {
    F.SOFTMAX: Instructions(4, 1),
    F.SOFTMAX_GRADIENT: Instructions(5),
}


def in_attention(chip: Chip, function: Function, *, alone: bool = False) -> Instructions | None:
    """Return what nothing hides of a function in an attention that is one kernel, if it is there.

    Forward lanes work beside the arrays, which have another tile of the same multiprocessor
    meanwhile, or the same one where they read operands from memory by themselves; where a tile is
    ``alone`` and they do not, they wait for each other.
    """
    needed = FUSED.get(function)
    hidden = chip.compute.operand_rows or not alone
    if needed is not None and function is Function.SOFTMAX and hidden:
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


def array_rate(chip: Chip, dtype: Dtype) -> float:
    """Return what arrays reach in numbers of a type with what lanes add up for them. [FLOP/s]

    Blocks of K have scales of their own in ``fp8-blocks``. Where arrays know no such scales lanes
    multiply what these made of a block, and add it to what there is, one after the other
    (``deepgemm``: to hide some of it instructions had to be moved, and large products reach 1.0 to
    1.36 PFLOP/s of an H800's 1.98).
    """
    rate = chip.throughput(dtype)
    scaled = dtype is not Dtype.FP8_BLOCKS or Dtype.MXFP8 in dict(chip.compute.relative_rates)
    if scaled or not has_lanes(chip):
        return rate
    return 1 / (1 / rate + element_time(chip, Instructions(1)) / (2 * SCALED))


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
            needed = INSTRUCTIONS[chip.compute.functions].get(function, Instructions(work))
            if function is F.DROPOUT and graph.backward[i]:
                needed = Instructions(work)  # by the mask that there is
            rates[i] = work / element_time(chip, needed)
    if Fusion.ATTENTION in chip.fused:
        rates[in_attentions(graph) & graph.row_wise] = np.inf
    return rates


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """How a kernel of its own goes over rows that are longer than what its lanes hold. [B]

    ``again``: bytes that it reads after the first time; ``between``: what all multiprocessors move
    meanwhile. ``alone``: one row fills a multiprocessor, so that nothing is computed while its
    bytes are on their way.
    """

    again: float = 0.0
    between: float = 0.0
    alone: bool = False


ONCE = Passes()


def function_time(
    chip: Chip, function: Function, elements: float, traffic: float, passes: Passes = ONCE
) -> float:
    """Time of a function of elements that a kernel of its own computes, without a launch. [s]

    The longer of lanes and main memory, which moves ``traffic`` bytes. Of a chip whose lanes are
    not known, main memory's. What is read again comes from the cache that all multiprocessors share
    where what moves meanwhile fits in the part that is nearest to one, else from main memory.
    """
    memory, cache = chip.main_memory, chip.shared_level
    kept = cache is not None and passes.between <= cache.room / cache.partitions
    outside = traffic + (0.0 if kept else passes.again)
    streams = cache is None or outside > cache.room  # what is less was just made, and is there
    waits = memory.delay if streams else memory.latency
    moving = outside / memory.speed + waits if outside > 0 else 0.0
    if cache is not None:
        moving = max(moving, (traffic + passes.again) / cache.speed)
    if not has_lanes(chip):
        return moving
    needed = INSTRUCTIONS[chip.compute.functions].get(function, Instructions(TABLE[function].work))
    computing = elements * element_time(chip, needed)
    return computing + moving if passes.alone else max(computing, moving)
