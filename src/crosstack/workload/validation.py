"""Whether the names in a graph stand for something, once, and where it can be read."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping

from crosstack.errors import MOST_SHOWN, Problem, nearest
from crosstack.workload.axes import AxisSize
from crosstack.workload.kernels import MOST_ELEMENTS
from crosstack.workload.operations import Block, Operation, Role, Tensor

Placed = list[tuple[str, Operation]]  # operations with their path


def name_problems(
    axes: tuple[AxisSize, ...], tensors: tuple[Tensor, ...], blocks: tuple[Block, ...]
) -> list[Problem]:
    """Return names that stand twice, and names that nothing has."""
    operations = _placed(blocks)
    found = [
        *twice("axis", ((f"axes[{i}]", axis.name) for i, axis in enumerate(axes))),
        *twice("tensor", ((f"tensors[{i}]", t.name) for i, t in enumerate(tensors))),
        *twice("block", ((f"blocks[{i}]", block.name) for i, block in enumerate(blocks))),
        *twice("operation", ((path, o.name) for path, o in operations)),
    ]
    known_axes, known = {axis.name for axis in axes}, {tensor.name for tensor in tensors}
    for path, name in _axes_named(tensors, blocks, operations):
        found += unknown(path, "axis", name, known_axes, len(found))
    for path, name in _tensors_named(blocks, operations):
        found += unknown(path, "tensor", name, known, len(found))
    for b, block in enumerate(blocks):
        if block.twin:
            before = {other.name for other in blocks[:b]}
            found += unknown(f"blocks[{b}].twin", "block before it", block.twin, before)
    return found


def twice(what: str, named: Iterable[tuple[str, str]]) -> Iterator[Problem]:
    """Yield names of ``what`` that stand at two of their paths."""
    first: dict[str, str] = {}
    for path, name in named:
        if name in first:
            message = f"duplicate {what} name {name!r}; {first[name]} has it already."
            yield Problem(f"{path}.name", message)
        first.setdefault(name, path)


def unknown(
    path: str, what: str, name: str, known: Collection[str], count: int = 0
) -> Iterator[Problem]:
    """Yield a name that is none of ``known``, with the nearest where few problems were found.

    Looking for the nearest of thousands of names takes a while.
    """
    if name not in known:
        close = nearest(name, sorted(known)) if count < MOST_SHOWN else []
        hint = f" Nearest: {', '.join(map(repr, close))}." if close else ""
        yield Problem(path, f"no {what} is called {name!r}.{hint}")


def _placed(blocks: tuple[Block, ...]) -> Placed:
    return [
        (f"blocks[{b}].operations[{o}]", operation)
        for b, block in enumerate(blocks)
        for o, operation in enumerate(block.operations)
    ]


def _axes_named(
    tensors: tuple[Tensor, ...], blocks: tuple[Block, ...], operations: Placed
) -> Iterator[tuple[str, str]]:
    for t, tensor in enumerate(tensors):
        yield from ((f"tensors[{t}].axes", axis) for axis in tensor.axes)
    yield from ((f"blocks[{b}].axis", x.axis) for b, x in enumerate(blocks) if x.axis)
    for path, operation in operations:
        yield from ((f"{path}.over", axis) for axis in operation.over)


def _tensors_named(blocks: tuple[Block, ...], operations: Placed) -> Iterator[tuple[str, str]]:
    for path, operation in operations:
        yield from ((f"{path}.inputs[{i}]", name) for i, name in enumerate(operation.reads))
        yield f"{path}.output", operation.made
    for b, block in enumerate(blocks):
        for i, pair in enumerate(block.carries):
            yield from ((f"blocks[{b}].carries[{i}]", name) for name in pair)


def tensor_problems(
    tensors: Mapping[str, Tensor], blocks: tuple[Block, ...], sizes: Mapping[str, int]
) -> Iterator[Problem]:
    """Yield tensors that are too large, made twice or by nobody, and carries that do not fit."""
    makers: dict[str, str] = {}
    for path, operation in _placed(blocks):
        if operation.made in makers:
            message = f"{makers[operation.made]} makes {operation.made!r} already."
            yield Problem(f"{path}.output", message)
        makers.setdefault(operation.made, path)
    for i, tensor in enumerate(tensors.values()):
        if tensor.role is Role.ACTIVATION and tensor.name not in makers:
            message = "an activation that no operation makes; what comes from outside is an input."
            yield Problem(f"tensors[{i}]", message)
        if math.prod(sizes[axis] for axis in tensor.axes) >= MOST_ELEMENTS:
            yield Problem(f"tensors[{i}].axes", "2^62 elements or more.")
    for b, block in enumerate(blocks):
        for i, pair in enumerate(block.carries):
            yield from _carry_problems(f"blocks[{b}].carries[{i}]", pair, block, tensors)


def _carry_problems(
    path: str, pair: tuple[str, str], block: Block, tensors: Mapping[str, Tensor]
) -> Iterator[Problem]:
    before, after = pair
    made = {operation.made for operation in block.operations}
    if before in made:
        yield Problem(path, f"the block makes {before!r} itself; allowed: what was made before.")
    if after not in made:
        yield Problem(path, f"the block does not make {after!r}.")
    first, later = tensors[before].axes, tensors[after].axes
    if first != tuple(axis for axis in later if axis != block.axis):
        axes = f"({', '.join(first)}) and ({', '.join(later)})"
        yield Problem(path, f"{before!r} and {after!r} have different axes: {axes}.")


def order_problems(tensors: Mapping[str, Tensor], blocks: tuple[Block, ...]) -> Iterator[Problem]:
    """Yield what is read before it is made, or where it cannot be seen."""
    maker = {o.made: b for b, block in enumerate(blocks) for o in block.operations}
    for b, block in enumerate(blocks):
        for o, operation in enumerate(block.operations):
            for i, name in enumerate(operation.reads):
                why = _hidden(tensors[name], b, maker, blocks)
                if why:
                    yield Problem(f"blocks[{b}].operations[{o}].inputs[{i}]", why)
        for i, (before, _) in enumerate(block.carries):
            if maker.get(before, -1) > b:
                yield Problem(f"blocks[{b}].carries[{i}]", f"{before!r} is made later.")


def _hidden(tensor: Tensor, b: int, maker: Mapping[str, int], blocks: tuple[Block, ...]) -> str:
    """Say why block ``b`` cannot read a tensor; empty where it can."""
    made = maker.get(tensor.name, b)
    block, source = blocks[b], blocks[made]
    if made > b:
        return f"{tensor.name!r} is made later, by block {source.name!r}."
    inside = made == b or not source.axis or block.twin == source.name
    if inside or source.axis in tensor.axes or tensor.name in {last for _, last in source.carries}:
        return ""
    return (
        f"{tensor.name!r} has another value every time that block {source.name!r} runs; "
        f"allowed: what it carries, and what has its axis, {source.axis!r}."
    )
