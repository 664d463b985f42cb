"""The loss in single precision, whatever the layers compute in.

Frameworks turn the scores of words into single precision before their softmax, whose exponentials
and sums half precision does not hold, and turn the gradient back: two kernels more, and twice the
bytes of every score (``micikevicius2018mixed``, section 3: losses; ``nvidia_megatron_core``,
``vocab_parallel_cross_entropy``, as of PyTorch's automatic mixed precision).
"""

from __future__ import annotations

from dataclasses import replace

from crosstack.workload.dataflow import Graph
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import Function
from crosstack.workload.operations import Block, Operand, Operation, Tensor

SINGLE = "single"  # how the name of what is turned ends


def single_precision_loss(graph: Graph) -> Graph:
    """Return a training graph whose cross entropies read and make numbers of single precision.

    Parameters
    ----------
    graph : Graph
        Forward and backward, as `crosstack.workload.passes.backward.training` makes it.
    """
    tensors = {**graph.tensor}
    blocks = tuple(_block(block, tensors) for block in graph.blocks)
    return Graph(axes=graph.axes, tensors=tuple(tensors.values()), blocks=blocks)


def _block(block: Block, tensors: dict[str, Tensor]) -> Block:
    turned = {
        Function.CROSS_ENTROPY: _read_in_single,
        Function.CROSS_ENTROPY_GRADIENT: _made_in_single,
    }
    operations = list[Operation]()
    for operation in block.operations:
        turn = turned.get(operation.function)
        operations += [operation] if turn is None else turn(operation, tensors)
    return replace(block, operations=tuple(operations))


def _read_in_single(operation: Operation, tensors: dict[str, Tensor]) -> list[Operation]:
    scores, *others = operation.inputs
    wide = _wide(scores.tensor, tensors)
    if wide == scores.tensor:
        return [operation]
    turned = _copy(wide, scores.tensor, wide)
    return [turned, replace(operation, inputs=(replace(scores, tensor=wide), *others))]


def _made_in_single(operation: Operation, tensors: dict[str, Tensor]) -> list[Operation]:
    scores, *others = operation.inputs
    wide = _wide(operation.made, tensors)
    reads = (replace(scores, tensor=_wide(scores.tensor, tensors)), *others)
    if wide == operation.made:
        return [replace(operation, inputs=reads)]
    output = replace(operation.output, tensor=wide)
    turned = _copy(f"{operation.name}_turned", wide, operation.made)
    return [replace(operation, inputs=reads, output=output), replace(turned, twin=operation.twin)]


def _wide(name: str, tensors: dict[str, Tensor]) -> str:
    """Return a tensor in single precision: that of a name, or a copy that is added."""
    if tensors[name].dtype is Dtype.FP32:
        return name
    made = f"{name}_{SINGLE}"
    tensors.setdefault(made, replace(tensors[name], name=made, dtype=Dtype.FP32, of=""))
    return made


def _copy(name: str, read: str, made: str) -> Operation:
    return Operation(
        name=name,
        function=Function.COPY,
        inputs=(Operand(tensor=read),),
        output=Operand(tensor=made),
    )
