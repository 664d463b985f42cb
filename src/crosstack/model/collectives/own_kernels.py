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

from crosstack.machine.system import Dimension
from crosstack.model.collectives.protocols import LL
from crosstack.model.collectives.times import AffineTime, ConcaveTime, least

LAUNCH = 2e-6  # of a kernel in a graph, 2.2 us on an H200 (``gpu_benches``) [s]
MOST = 8 * 2**20  # of a tensor that is not left to the library [B]


class OwnKernel(Enum):
    """How often something goes from chip to chip, one after the other, in a shot. [1]"""

    READS = 4
    SENDS = 1


def own_all_reduce(level: Dimension, chips: int, kernel: OwnKernel) -> ConcaveTime:
    """Return the time of an all-reduce over its bytes in a graph of launches, of `MOST` at most.

    Parameters
    ----------
    level : Dimension
        What joins the chips; of a ``medium``.
    chips : int
        How many. [1]
    kernel : OwnKernel
        How the kernel goes about it.
    """
    assert level.medium is not None
    shot = kernel.value * level.pace * LL.steps[level.medium].ring
    launch, byte = level.pace * LAUNCH, 1 / (level.achieved * level.bandwidth)
    others = chips - 1
    lines = [AffineTime(fixed=launch + shot, per_byte=others * byte)]
    if kernel is OwnKernel.READS:
        lines.append(AffineTime(fixed=launch + 2 * shot, per_byte=2 * others / chips * byte))
    return least(lines)
