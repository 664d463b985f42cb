"""The backward pass of any graph, derived: reverse-mode differentiation of the graph as it is.

Operations are taken from last to first. The gradient of what one makes is the sum of what its
readers hand back; the steps of its function (`crosstack.workload.functions`) make from it what goes
to each operand, added up over axes that broadcast the operand. A gradient that is merely passed on
is the same tensor under one name.

A block that repeats has a backward block that repeats the other way. What the block carries, that
carries the gradient of, from the last to the first; gradients of what has the axis of the block are
slices; of what it only reads, sums that are carried along. Blocks of the backward pass name the
block that they are the twin of, operations the operation whose derivative they belong to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from crosstack.errors import require
from crosstack.workload.axes import Axes
from crosstack.workload.dataflow import Graph
from crosstack.workload.functions import TABLE, Function, OperationKind, Step
from crosstack.workload.loops import LoopNest, union
from crosstack.workload.operations import Block, Operand, Operation, Role, Tensor

# Their results have the axes asked for; the others work on all axes that they read.
_DIRECT = (
    OperationKind.CONTRACTION,
    OperationKind.CONVOLUTION,
    OperationKind.POOLING,
    OperationKind.GATHER,
    OperationKind.SCATTER,
)
Received = defaultdict[str, list[str]]  # by tensor: the gradients that its readers hand back
Seen = tuple[Operand, Axes]  # a tensor, and how an operation calls its axes


def training(graph: Graph, loss: str, *, of: Sequence[Role] = (Role.WEIGHT,)) -> Graph:
    """Return a graph with the blocks that make the gradients of a loss behind its own.

    Parameters
    ----------
    graph : Graph
        Forward.
    loss : str
        A tensor without axes.
    of : sequence of Role
        What gradients are asked for, of tensors that come from outside; see `Graph.gradients`.

    Raises
    ------
    InputError
        If there is no such loss, it does not depend on any of them, or a function on the way has
        no derivative.
    """
    known = loss in graph.makers and not graph.tensor[loss].axes
    require(known, "loss", loss, "a tensor without axes that an operation makes")
    active = differentiable(graph, of)
    require(loss in active, "loss", loss, f"what depends on something of role {', '.join(of)}")
    return _Backward(graph=graph, active=active, of=tuple(of)).derive(loss)


def differentiable(graph: Graph, of: Container[Role]) -> frozenset[str]:
    """Return the tensors that depend smoothly on what comes from outside in some roles."""
    active = {t.name for t in graph.tensors if t.role in of and t.name not in graph.makers}
    for block in graph.blocks:
        before = -1
        while len(active) > before:  # once more where something active is carried
            before = len(active)
            for i in graph.orders[block.name]:
                if _depends(block.operations[i], active):
                    active.add(block.operations[i].made)
            for pair in block.carries:
                if active & {*pair}:
                    active |= {*pair}
    return frozenset(active)


def _depends(operation: Operation, active: Container[str]) -> bool:
    derivatives = TABLE[operation.function].derivatives
    return any(
        name in active and (i >= len(derivatives) or derivatives[i] is not None)
        for i, name in enumerate(operation.reads)
    )


def kept(graph: Graph) -> Mapping[str, float]:
    """Return what the backward pass reads of the forward pass: bytes by tensor.

    Weights are there anyway; what a block has to itself is kept every time it runs.
    """
    backward = [block for block in graph.blocks if block.twin]
    made = {o.made for block in backward for o in block.operations}
    found: dict[str, float] = {}
    for block in backward:
        twin = graph.block(block.twin)
        inside = {o.made for o in twin.operations} | {first for first, _ in twin.carries}
        for name in {name for o in block.operations for name in o.reads} - made:
            tensor = graph.tensor[name]
            if tensor.role not in (Role.WEIGHT, Role.GRADIENT):
                own = name in inside and twin.axis not in tensor.axes
                found[name] = graph.size(name) * (graph.repeats(twin) if own else 1)
    return found


@dataclass(slots=True, kw_only=True)
class _Backward:
    """The backward pass as far as it is written down."""

    graph: Graph
    active: frozenset[str]
    of: tuple[Role, ...]
    tensors: dict[str, Tensor] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    made: list[Operation] = field(default_factory=list)  # of the block at hand
    received: Received = field(default_factory=lambda: defaultdict(list))
    taken: dict[str, str] = field(default_factory=dict)  # gradients that are somebody's own

    def derive(self, loss: str) -> Graph:
        """Write down the whole pass."""
        seed = self._fill(f"{loss}_gradient", self.graph.tensor[loss], 1.0)
        self.received[loss].append(seed)
        for block in reversed(self.graph.blocks):
            if not any(self.received[operation.made] for operation in block.operations):
                continue
            if block.axis:
                self._repeated(block)
            else:
                self._operations(block)
                self._end(Block(name=f"{block.name}_bwd", operations=(), twin=block.name))
        for tensor in self.graph.tensors:
            if tensor.role in self.of and self.received[tensor.name]:
                self._own(tensor, tensor.axes)
        self._end(Block(name="gradients", operations=()))
        return Graph(
            axes=self.graph.axes,
            tensors=(*self.graph.tensors, *self.tensors.values()),
            blocks=(*self.graph.blocks, *self.blocks),
        )

    def _end(self, block: Block) -> None:
        """End a block: the operations at hand are its own."""
        if self.made:
            self.blocks.append(replace(block, operations=tuple(self.made)))
            self.made = []

    @contextmanager
    def _writing(self, made: list[Operation]) -> Iterator[None]:
        """Write down operations in a list of their own meanwhile."""
        self.made, before = made, self.made
        yield
        self.made = before

    # ------------------------------------------------------------ blocks

    def _operations(self, block: Block) -> None:
        """Write down the derivatives of all operations of a block, last first."""
        for i in reversed(self.graph.orders[block.name]):
            operation = block.operations[i]
            gradients = self.received.pop(operation.made, [])
            if gradients and operation.made in self.active:
                tensor = self.graph.tensor[operation.made]
                total = self._sum(tensor, self.graph.own_axes(block, tensor.name), gradients)
                _Derivative(self, block, self.graph.nest(block, operation), total).write()

    def _repeated(self, block: Block) -> None:
        """Write down the backward pass of a block that repeats: what it begins with, and itself."""
        outside, self.received = self.received, defaultdict(list)
        start, inside = list[Operation](), list[Operation]()
        with self._writing(start):
            carried = self._begin(block, outside)
        with self._writing(inside):
            self._operations(block)
            carries = [(first, self._carry(block, name)) for name, first in carried.items()]
        for name, (_, last) in zip(carried, carries, strict=True):
            outside[name].append(last)
        for name in [name for name, gradients in self.received.items() if gradients]:
            tensor = self.graph.tensor[name]
            if block.axis in tensor.axes:  # its places are the times that the block runs
                with self._writing(inside):
                    outside[name].append(self._own(tensor, tensor.axes))
                continue
            total = f"{name}_sum_of_{block.name}"
            with self._writing(start):
                first = self._fill(f"{total}_start", tensor, 0.0)
            with self._writing(inside):
                gradient = self._sum(tensor, tensor.axes, self.received[name])
                last = self._add(total, tensor, tensor.axes, Function.ADD, first, gradient)
            carries.append((first, last))
            outside[name].append(last)
        self.received = outside
        with self._writing(start):
            self._end(Block(name=f"{block.name}_bwd_start", operations=()))
        back = Block(
            name=f"{block.name}_bwd", operations=(), axis=block.axis, carries=tuple(carries),
            reverse=not block.reverse, twin=block.name,
        )  # fmt: skip
        with self._writing(inside):
            self._end(back)

    def _begin(self, block: Block, outside: Received) -> dict[str, str]:
        """Take gradients from outside into a block; return those of what it carries."""
        carried = {}
        for before, after in block.carries:
            if before in self.active:
                kept = block.axis in self.graph.tensor[after].axes
                like, later = self.graph.tensor[before], [] if kept else outside.pop(after, [])
                # At first it is a gradient that nothing else has the name of.
                self.received[after] = later or [self._fill(f"{after}_no_gradient", like, 0.0)]
                carried[before] = self._own(replace(like, name=after), like.axes)
                self.received[after].append(carried[before])
        for operation in block.operations:
            if outside.get(operation.made):
                tensor = self.graph.tensor[operation.made]
                total = self._sum(tensor, tensor.axes, outside.pop(tensor.name))
                self.received[tensor.name].append(total)
        return carried

    def _carry(self, block: Block, name: str) -> str:
        """Return what a backward block hands on to the time before: the gradient of what came."""
        tensor = self.graph.tensor[name]
        if self.received[name]:
            return self._own(tensor, tensor.axes)
        return self._fill(f"{name}_no_gradient_{block.name}", tensor, 0.0)

    # ------------------------------------------------------------ sums

    def _sum(self, tensor: Tensor, axes: Axes, gradients: list[str]) -> str:
        total, *others = gradients
        for i, other in enumerate(others, start=1):
            last = f"{tensor.name}_gradient"
            name = self.free(last if i == len(others) else f"{last}_{i}")
            total = self._add(name, tensor, axes, Function.ADD, total, other)
        return total

    def _own(self, tensor: Tensor, axes: Axes) -> str:
        """Return the gradient of a tensor, stored with some axes, as one that is no other's."""
        total = self._sum(tensor, axes, self.received.pop(tensor.name))
        fits = any(o.made == total for o in self.made) or self.tensors[total].axes == axes
        if self.taken.get(total, tensor.name) != tensor.name or not fits:
            name = self.free(f"{tensor.name}_gradient")
            total = self._add(name, tensor, axes, Function.COPY, total)
        self.taken[total] = tensor.name
        self.tensors[total] = replace(self.tensors[total], axes=axes, of=tensor.name)
        return total

    # ------------------------------------------------------------ operations

    def free(self, name: str) -> str:
        """Return a name that no tensor has yet."""
        i, found = 1, name
        while found in self.tensors or found in self.graph.tensor:
            i, found = i + 1, f"{name}_{i + 1}"
        return found

    def _fill(self, name: str, like: Tensor, value: float) -> str:
        return self._add(self.free(name), like, like.axes, Function.FILL, parameter=value)

    def _add(
        self, name: str, like: Tensor, axes: Axes, function: Function, *reads: str,
        parameter: float = 0.0,
    ) -> str:  # fmt: skip
        """Write down an operation on whole tensors that are like another one."""
        inputs = tuple(Operand(tensor=read) for read in reads)
        output = Operand(tensor=name)
        made = Operation(
            name=name, function=function, inputs=inputs, output=output, parameter=parameter
        )
        return self.write(made, replace(like, axes=axes))

    def write(self, operation: Operation, like: Tensor) -> str:
        """Write down an operation, and that what it makes is a gradient with axes, as another."""
        name = operation.made
        self.tensors[name] = replace(like, name=name, role=Role.GRADIENT, of="")
        self.made.append(operation)
        return name


@dataclass(slots=True)
class _Derivative:
    """The derivative of one operation, given the gradient of what it makes."""

    backward: _Backward
    block: Block
    nest: LoopNest
    gradient: str
    known: dict[tuple[object, ...], Operand] = field(default_factory=dict)

    def write(self) -> None:
        """Write down what goes to each operand that has a gradient."""
        operation = self.nest.operation
        derivatives = TABLE[operation.function].derivatives
        for i, name in enumerate(operation.reads):
            if name in self.backward.active:
                allowed = f"a function with a derivative, on the way to {name!r}"
                has = i < len(derivatives)
                require(has, operation.name, operation.function.value, allowed)
                steps = derivatives[i]
                if steps is not None:
                    self.backward.received[name].append(self._operand(i, steps))

    def _operand(self, i: int, steps: tuple[Step, ...]) -> str:
        """Return the tensor that goes to operand ``i``."""
        operation, names = self.nest.operation, self.nest.inputs[i]
        read: dict[str, Seen] = {
            "y": (operation.output, self.nest.output),
            "dy": (Operand(tensor=self.gradient, axes=operation.output.axes), self.nest.output),
        }
        for x, pair in enumerate(zip(operation.inputs, self.nest.inputs, strict=True)):
            read[f"x{x}"] = pair
        last = "dy"
        for s, step in enumerate(steps):
            inputs = [read[name] for name in step.reads if name in read]
            if step.function is Function.SHIFT and not {*operation.over} <= {*inputs[0][1]}:
                read[f"s{s}"] = inputs[0]  # the same at every place
                continue
            axes = self._result(step, inputs, names)
            fits = TABLE[step.function].kind in _DIRECT or {*axes} <= {*names}
            if s == len(steps) - 1 and fits:  # nothing is to be added up
                return self._final(i, step, inputs)
            last = f"s{s}"
            read[last] = self._between(f"{operation.name}_bwd{i}_{s}", step, inputs, axes)
        return self._passed(i, *read[last])

    def _result(self, step: Step, inputs: Sequence[Seen], names: Axes) -> Axes:
        """Return the axes of what a step makes for an operand with ``names``."""
        axes = union(*(axes for _, axes in inputs))
        if step.function is not Function.SLICE:
            return axes
        part = next(axis for axis in names if axis not in self.nest.output)
        return tuple(part if axis in self.nest.operation.over else axis for axis in axes)

    def _passed(self, i: int, operand: Operand, axes: Axes) -> str:
        """Hand a gradient to operand ``i``: added up over what broadcasts it, or as it is."""
        backward, names = self.backward, self.nest.inputs[i]
        gone = tuple(axis for axis in axes if axis not in names)
        if gone:
            return self._final(i, Step(Function.SUM, ()), [(operand, axes)], over=gone)
        mine = backward.graph.tensor[self.nest.operation.reads[i]]
        other = backward.tensors[operand.tensor]
        own = backward.graph.own_axes(self.block, mine.name)
        plain = not operand.axes and names == own == axes
        if plain and (mine.mask, mine.dtype) == (other.mask, other.dtype):
            return operand.tensor
        return self._final(i, Step(Function.COPY, ()), [(operand, axes)])

    def _final(self, i: int, step: Step, inputs: Sequence[Seen], over: Axes = ()) -> str:
        """Write down the operation that makes what goes to operand ``i``."""
        operand = self.nest.operation.inputs[i]
        name = self.backward.free(f"{self.nest.operation.name}_bwd{i}")
        made = self._step(name, step, inputs, Operand(tensor=name, axes=operand.axes), over)
        graph = self.backward.graph
        own = graph.own_axes(self.block, operand.tensor)
        return self.backward.write(made, replace(graph.tensor[operand.tensor], axes=own))

    def _between(self, name: str, step: Step, inputs: Sequence[Seen], axes: Axes) -> Seen:
        """Write down a step whose result, with some axes, only later steps read, once."""
        key = (step, *(operand for operand, _ in inputs))
        if key not in self.known:
            like = self.backward.graph.tensor[self.nest.operation.made]
            made = self._step(name, step, inputs, Operand(tensor=name))
            self.backward.write(made, replace(like, axes=axes, mask=None))
            self.known[key] = made.output
        return self.known[key], axes

    def _step(
        self, name: str, step: Step, inputs: Sequence[Seen], output: Operand, over: Axes = ()
    ) -> Operation:
        operation, row = self.nest.operation, TABLE[step.function]
        slides = row.kind in (OperationKind.CONVOLUTION, OperationKind.POOLING)
        reverse = operation.reverse is not step.reverse
        return Operation(
            name=name,
            function=step.function,
            inputs=tuple(operand for operand, _ in inputs),
            output=output,
            over=over or (operation.over if row.over[1] else ()),
            windows=operation.windows if slides else (),
            parameter=operation.parameter if step.parameter is None else step.parameter,
            reverse=reverse and row.reversible,
            twin=operation.name,
        )
