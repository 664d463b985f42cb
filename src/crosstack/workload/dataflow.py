"""A workload as a graph of operations over named axes, from which everything else is derived.

Names of axes say what happens: an axis that a product's operands have and its result does not is
added up; what an operand of a sum does not have is broadcast. Nothing is reshaped, split or
transposed by an operation: an `Operand` calls axes by other names. Blocks run once, or along an
axis: layers of a model, and the steps of a recurrence, are the same thing.

Kinds of loop nest are few, and the derivative of each is made of the same few, so the backward pass
of any graph is a graph (`crosstack.workload.passes.backward`): a block of it names the block it is
the *twin* of, and reads that block's tensors as they were at the same place. What memory keeps is
what is read that way: nothing has to say so. Sizes, work and products of matrices follow from axes
(`crosstack.workload.loops`). How often a graph runs, on what, and in which layout, is not here.

Source of the idea that shards and layouts are assignments of named axes: ``xu2021gspmd``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from crosstack.errors import InputError, Problem, require
from crosstack.records import brief, require_types
from crosstack.workload.axes import Axes, AxisSize, AxisUse
from crosstack.workload.loops import LoopNest
from crosstack.workload.operations import Block, Operand, Operation, Role, Tensor
from crosstack.workload.ordering import cycle_of, topological_order
from crosstack.workload.shapes import shape_problems
from crosstack.workload.validation import name_problems, order_problems, tensor_problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Operations over named axes; acyclic but for what blocks carry.

    Parameters
    ----------
    axes : tuple of AxisSize
        All that tensors and operations name.
    tensors : tuple of Tensor
        What operations make, and what comes from outside.
    blocks : tuple of Block
        In the order in which they run.

    Raises
    ------
    InputError
        With every problem found: unknown names, axes that do not fit, a tensor made twice or never,
        a cycle.
    """

    axes: tuple[AxisSize, ...]
    tensors: tuple[Tensor, ...]
    blocks: tuple[Block, ...]
    sizes: Mapping[str, int] = field(init=False, repr=False, compare=False)
    uses: Mapping[str, AxisUse] = field(init=False, repr=False, compare=False)
    tensor: Mapping[str, Tensor] = field(init=False, repr=False, compare=False)
    makers: Mapping[str, tuple[Block, Operation]] = field(init=False, repr=False, compare=False)
    orders: Mapping[str, tuple[int, ...]] = field(init=False, repr=False, compare=False)

    __repr__ = brief

    def __post_init__(self) -> None:
        require_types(self)
        require(len(self.blocks) > 0, "blocks", len(self.blocks), "at least one block")
        problems = name_problems(self.axes, self.tensors, self.blocks)
        if problems:
            raise InputError(problems)
        derived: dict[str, object] = {
            "sizes": {axis.name: axis.size for axis in self.axes},
            "uses": {axis.name: axis.use for axis in self.axes},
            "tensor": {tensor.name: tensor for tensor in self.tensors},
            "makers": {o.made: (b, o) for b in self.blocks for o in b.operations},
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)
        problems = [*tensor_problems(self.tensor, self.blocks, self.sizes), *self._shapes()]
        problems += order_problems(self.tensor, self.blocks)
        if problems:
            raise InputError(problems)
        orders = {block.name: self._order(b, block) for b, block in enumerate(self.blocks)}
        object.__setattr__(self, "orders", orders)

    # ------------------------------------------------------------ checks

    def _shapes(self) -> Iterator[Problem]:
        for b, block in enumerate(self.blocks):
            for o, operation in enumerate(block.operations):
                path = f"blocks[{b}].operations[{o}]"
                views = list(self._view_problems(block, operation))
                found = views or shape_problems(self.nest(block, operation), self.sizes)
                yield from (Problem(f"{path}.{place}", message) for place, message in found)

    def _view_problems(self, block: Block, operation: Operation) -> Iterator[tuple[str, str]]:
        places = [f"inputs[{i}]" for i in range(len(operation.inputs))] + ["output"]
        for place, operand in zip(places, (*operation.inputs, operation.output), strict=True):
            unknown = [axis for axis in operand.axes if axis not in self.sizes]
            own = self.own_axes(block, operand.tensor)
            if unknown:
                yield f"{place}.axes", f"no axis is called {unknown[0]!r}."
            elif operand.axes and self.count(operand.axes) != self.count(own):
                stored = f"{self.count(own):,} of {operand.tensor!r} ({', '.join(own)})"
                got = f"{self.count(operand.axes):,} elements ({', '.join(operand.axes)})"
                yield f"{place}.axes", f"got {got}; allowed: {stored}."

    def _order(self, b: int, block: Block) -> tuple[int, ...]:
        makers = {operation.made: i for i, operation in enumerate(block.operations)}
        edges = [
            (makers[name], j)
            for j, operation in enumerate(block.operations)
            for name in operation.reads
            if name in makers
        ]
        order, _ = topological_order(len(block.operations), edges)
        if len(order) < len(block.operations):
            names = cycle_of(len(block.operations), edges, order)
            loop = " -> ".join(block.operations[i].name for i in names)
            raise InputError(Problem(f"blocks[{b}]", f"the graph has a cycle: {loop}."))
        return order

    # ------------------------------------------------------------ what is where

    def own_axes(self, block: Block, tensor: str) -> Axes:
        """Return the axes of a tensor as operations of a block see it."""
        return tuple(axis for axis in self.tensor[tensor].axes if axis != block.axis)

    def shares(self, block: Block, tensor: str) -> bool:
        """Whether a tensor is the same each time that a block repeats."""
        return block.axis != "" and block.axis not in self.tensor[tensor].axes

    def names(self, block: Block, operand: Operand) -> Axes:
        """Return the names that an operation of a block gives to the axes of an operand."""
        return operand.axes or self.own_axes(block, operand.tensor)

    def nest(self, block: Block, operation: Operation) -> LoopNest:
        """Return the loop nest of an operation of a block."""
        return LoopNest(
            operation=operation,
            inputs=tuple(self.names(block, operand) for operand in operation.inputs),
            output=self.names(block, operation.output),
            uses=self.uses,
            weights=tuple(self.tensor[name].role is Role.WEIGHT for name in operation.reads),
        )

    def nests(self) -> Iterator[tuple[Block, LoopNest]]:
        """Yield every operation as a loop nest, with its block."""
        for block in self.blocks:
            for operation in block.operations:
                yield block, self.nest(block, operation)

    def block(self, name: str) -> Block:
        """Return the block called ``name``."""
        return next(block for block in self.blocks if block.name == name)

    @property
    def forward_blocks(self) -> tuple[Block, ...]:
        """Blocks that belong to no backward pass, nor add up its gradients."""
        gradients = {t.name for t in self.tensors if t.role is Role.GRADIENT}
        blocks = (block for block in self.blocks if not block.twin)
        return tuple(b for b in blocks if {o.made for o in b.operations} - gradients)

    def repeats(self, block: Block) -> int:
        """How often a block runs. [1]"""
        return self.sizes[block.axis] if block.axis else 1

    # ------------------------------------------------------------ how large

    def count(self, axes: Iterable[str]) -> int:
        """Elements of something with these axes. [1]"""
        return math.prod(self.sizes[axis] for axis in axes)

    def size(self, tensor: str) -> float:
        """Bytes of a whole tensor. [B]"""
        found = self.tensor[tensor]
        return self.count(found.axes) * found.dtype.size

    def own_size(self, block: Block, tensor: str) -> float:
        """Bytes of a tensor as operations of a block see it. [B]"""
        return self.count(self.own_axes(block, tensor)) * self.tensor[tensor].dtype.size

    def work(self, nest: LoopNest) -> float:
        """Operations of one run of a loop nest, all elements counted. [FLOP]"""
        return nest.work * self.count(nest.loops)

    def density(self, operation: Operation) -> float:
        """Share of the work of an operation on elements that count (`Causal`). [1]"""
        return min(self.counted(o.tensor) for o in (operation.output, *operation.inputs))

    def counted(self, tensor: str) -> float:
        """Share of the elements of a tensor that count (`Causal`). [1]"""
        mask = self.tensor[tensor].mask
        return mask.density(self.sizes[mask.query], self.sizes[mask.key]) if mask else 1.0

    @property
    def total_work(self) -> float:
        """Operations of all runs of all blocks. [FLOP]"""
        return math.fsum(self.work(nest) * self.repeats(block) for block, nest in self.nests())

    @property
    def n_parameters(self) -> int:
        """Elements of all weights. [1]"""
        return sum(self.count(t.axes) for t in self.tensors if t.role is Role.WEIGHT)

    @property
    def gradients(self) -> Mapping[str, str]:
        """By tensor, the one that is its gradient."""
        return {t.of: t.name for t in self.tensors if t.of and t.role is Role.GRADIENT}
