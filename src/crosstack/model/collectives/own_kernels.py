"""All-reduces that frameworks bring, for few bytes among chips of one server.

One kernel on every chip works on all others' memories itself. In one shot each chip gets the whole
tensor of every other and adds up; in two shots it adds up its part, and then all get the parts. A
chip says by flags when its tensor may be read, and when it has read (vLLM, in one shot or two: a
flag there, a read that asks and is answered, a flag at the end); or it sends words to all that are
there when they are seen (TensorRT-LLM, in one shot: one way). Larger tensors are left to the
library of collectives, and so is what that does faster.

Sources: ``vllm_allreduce``, ``tensorrt_llm_allreduce`` (the kernels), ``nccl`` (the time of a way).
A ``pace`` is of a whole call, so of its launch, too (`crosstack.machine.system.Dimension`).
"""

from __future__ import annotations

from enum import Enum

from crosstack.model.collectives.group import Axis
from crosstack.model.collectives.times import AffineTime

LAUNCH = 2e-6  # of a kernel in a graph, 2.2 us on an H200 (``gpu_benches``) [s]
MOST = 8 * 2**20  # of a tensor that is not left to the library [B]


class OwnKernel(Enum):
    """How often something goes from chip to chip, one after the other, in a shot. [1]"""

    READS = 4
    SENDS = 1


def own_all_reduce(axis: Axis, kernel: OwnKernel, kept: float) -> tuple[AffineTime, ...]:
    """Return the times of an all-reduce over its bytes, in one shot and two, in a graph.

    Parameters
    ----------
    axis : Axis
        Chips of one server, at a switch.
    kernel : OwnKernel
        How the kernel goes about it.
    kept : float
        What a byte of a chip's own part takes in its memory, as of a ring. [s/B]
    """
    shot = kernel.value * axis.pace * axis.latency
    launch, byte = axis.pace * LAUNCH, 1 / (axis.achieved * axis.bandwidth)
    others = axis.members - 1
    once = AffineTime(fixed=launch + shot, per_byte=others * byte + kept)
    if kernel is OwnKernel.SENDS:
        return (once,)
    twice = 2 * others / axis.members * byte + kept
    return once, AffineTime(fixed=launch + 2 * shot, per_byte=twice)
