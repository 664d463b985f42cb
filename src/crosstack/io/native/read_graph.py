"""Reads a graph of operations over named axes from native YAML, all problems in one error.

What the file leaves out follows from the names of axes: a tensor that an operation makes need not
be listed, and has the axes that its function gives it (`_made_axes`). Where they cannot be known,
as those of a product, the operation says them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crosstack.errors import InputError, Problem
from crosstack.io.files import of_file, read_text
from crosstack.io.kinds import FileKind
from crosstack.io.native.overrides import read_fields
from crosstack.io.native.problems import collecting
from crosstack.io.native.schema import FileModel
from crosstack.io.native.task_fields import FIELDS, is_graph
from crosstack.io.yaml_tree import parse_yaml
from crosstack.workload.axes import Axes, AxisSize, Causal, Window
from crosstack.workload.dataflow import Graph
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import TABLE, Function, OperationKind, Result
from crosstack.workload.graph_workload import workload_of
from crosstack.workload.loops import union
from crosstack.workload.operations import Block, Operand, Operation, Role, Tensor
from crosstack.workload.ordering import cycle_of, topological_order
from crosstack.workload.passes.backward import training
from crosstack.workload.workload import Workload

_PLACE = re.compile(r"(axes|tensors|carries)\[(\d+)\]")
_OPERATION = re.compile(r"^blocks\[(\d+)\](?:\.operations\[(\d+)\])?")
_FIELDS = {"inputs": "reads", "output.axes": "axes", "output": "makes", "axis": "repeats"}
_FIELD = re.compile(r"\.(inputs|output\.axes|output|axis)\b")


def read_graph(path: str | Path, overrides: Sequence[str] = ()) -> Graph:
    """Return the graph that a native YAML file holds.

    ``overrides`` are ``path=value``, such as ``axes.batch=64``, applied before the file is checked.
    `InputError` says every problem, one line each: ``FILE: path: what is wrong``.
    """
    return graph_in(read_text(path), str(path), overrides)


def graph_in(text: str, source: str, overrides: Sequence[str] = ()) -> Graph:
    """Return the graph in the text of a file called ``source``; as `read_graph`."""
    with of_file(source):
        return graph_of(read_fields(FIELDS["graph"], FileKind.GRAPH, text, overrides))


def holds_graph(path: str | Path) -> bool:
    """Whether a file is YAML of a graph, and not of a task or another kind."""
    try:
        tree = parse_yaml(read_text(path))
    except InputError:  # whoever reads it says why
        return False
    return isinstance(tree, dict) and "workload" not in tree and is_graph(tree)


def graph_of(file: FileModel) -> Graph:
    """Return the graph of a file, with its backward pass if that is asked for.

    `InputError` says every problem by the path of its field.
    """
    graph = _Written(file).graph()
    if file.training is None:
        return graph
    problems: list[Problem] = []
    with collecting(problems, "training"):
        return training(graph, _loss(graph, file.training), of=file.training.of)
    raise InputError(problems)


def workload_in(file: FileModel, name: str, **trained: Any) -> Workload:
    """Return the workload of a graph's block that is mapped, and how many items it is for.

    ``trained`` are gradients and the optimizer, as of `workload_of`.
    """
    said: dict[str, Any] = {"block": file.block or "", "items": file.items or "", "name": name}
    return workload_of(graph_of(file), **said, **trained)


def _own(said: FileModel) -> dict[str, Any]:
    """Return what only a tensor that is among ``tensors`` says."""
    return {"of": said.of or "", "copies": said.copies, "beside": said.beside}


def _loss(graph: Graph, asked: FileModel) -> str:
    """Return the loss that is asked for; else the one result without axes that nobody reads."""
    if asked.loss is not None:
        return str(asked.loss)
    read = {x.tensor for block in graph.blocks for o in block.operations for x in o.inputs}
    found = [name for name in graph.makers if not graph.tensor[name].axes and name not in read]
    if len(found) != 1:
        names = ", ".join(map(repr, found)) or "none"
        message = f"left out; results without axes that nobody reads, of which one is: {names}."
        raise InputError(Problem("loss", message))
    return found[0]


class _Written:
    """What a file says, operation by operation, and the records that it becomes."""

    def __init__(self, file: FileModel) -> None:
        if (file.operations is None) is (file.blocks is None):
            raise InputError(Problem("blocks", "allowed: blocks or operations, one of the two."))
        alone = FIELDS["block"](name="operations", operations=file.operations or [])
        self.file = file
        self.blocks = [alone] if file.blocks is None else file.blocks
        self.operations = [
            (b, o, operation)
            for b, block in enumerate(self.blocks)
            for o, operation in enumerate(block.operations)
        ]
        self.maker: dict[str, int] = {}
        for i, (_, _, operation) in enumerate(self.operations):
            self.maker.setdefault(operation.makes, i)
        self.tensors: dict[str, Tensor] = {}
        self.problems: list[Problem] = []

    def graph(self) -> Graph:
        """Return the checked graph."""
        axes = []
        for name, axis in self.file.axes.items():
            with collecting(self.problems, f"axes.{name}"):
                axes.append(AxisSize(name=name, size=axis.size, use=axis.use))
        for name, said in self.file.tensors.items():
            self._add_tensor(name, said.axes, said, f"tensors.{name}")
        for i in self._order():
            self._add_made(i)
        blocks = [self._block(b, said) for b, said in enumerate(self.blocks)]
        if self.problems:
            raise InputError(self.problems)
        try:
            return Graph(
                axes=tuple(axes),
                tensors=tuple(self.tensors.values()),
                blocks=tuple(block for block in blocks if block is not None),
            )
        except InputError as error:
            found = [problem for problem in error.problems if not self._follows(problem)]
            raise InputError(map(self._own, found)) from None

    # ------------------------------------------------------------ records

    def _add_tensor(self, name: str, axes: Axes, said: FileModel, path: str) -> None:
        role = self._usual_role(name) if said.role is None else said.role
        index = Dtype.INT32 if role is Role.INDEX else self.file.dtype
        with collecting(self.problems, path):
            self.tensors[name] = Tensor(
                name=name,
                axes=axes,
                dtype=said.dtype or index,
                role=role,
                mask=said.mask.record(Causal) if said.mask else None,
                **_own(said) if path.startswith("tensors.") else {},
            )

    def _usual_role(self, name: str) -> Role:
        """Role of a tensor that does not say it: what comes from outside is an input."""
        if name not in self.maker:
            return Role.INPUT
        function = self.operations[self.maker[name]][2].function
        return Role.INDEX if TABLE[function].result is Result.SELECTS else Role.ACTIVATION

    def _order(self) -> list[int]:
        """Return operations in an order in which what is read is made before."""
        edges = [
            (self.maker[x.tensor], j)
            for j, (_, _, operation) in enumerate(self.operations)
            for x in operation.reads
            if x.tensor in self.maker and x.tensor not in self.file.tensors
        ]
        order, _ = topological_order(len(self.operations), edges)
        if len(order) < len(self.operations):
            names = cycle_of(len(self.operations), edges, order)
            loop = " -> ".join(self.operations[i][2].makes for i in names)
            raise InputError(Problem(self._path(names[0]), f"the graph has a cycle: {loop}."))
        return list(order)

    def _add_made(self, i: int) -> None:
        """Add what an operation makes to the tensors, unless it is there."""
        b, _, said = self.operations[i]
        name, path = said.makes, self._path(i)
        if name in self.tensors or name in self.file.tensors:
            for field in ("dtype", "role", "mask"):
                if name in self.file.tensors and getattr(said, field) is not None:
                    message = f"tensors.{name} says it; allowed: one place."
                    self.problems.append(Problem(f"{path}.{field}", message))
            return
        axes = said.axes
        if axes is None:
            reads = [_names(x, self.tensors, self.blocks[b].repeats) for x in said.reads]
            axes = _made_axes(said, reads)
        if axes is None:
            message = f"required of {said.function.value}, unless {name!r} is among tensors."
            self.problems.append(Problem(f"{path}.axes", message))
        self._add_tensor(name, axes or (), said, path)

    def _block(self, b: int, said: FileModel) -> Block | None:
        operations, block = [], None
        found: list[Problem] = []
        for o, operation in enumerate(said.operations):
            with collecting(found, f"blocks[{b}].operations[{o}]"):
                operations.append(self._operation(operation))
        with collecting(found, f"blocks[{b}]"):
            block = Block(
                name=said.name,
                operations=tuple(operations),
                axis=said.repeats or "",
                carries=tuple(said.carries.items()),
                reverse=said.reverse,
                twin=said.twin or "",
                layers=said.layers,
            )
        self.problems += map(self._own, found)
        return block

    def _operation(self, said: FileModel) -> Operation:
        listed = said.makes in self.file.tensors
        return Operation(
            name=said.name or said.makes,
            function=said.function,
            inputs=tuple(Operand(tensor=x.tensor, axes=x.axes or ()) for x in said.reads),
            output=Operand(tensor=said.makes, axes=(said.axes or ()) if listed else ()),
            over=said.over,
            windows=tuple(window.record(Window) for window in said.windows),
            parameter=said.parameter,
            reverse=said.reverse,
            twin=said.twin or "",
        )

    # ------------------------------------------------------------ problems

    def _path(self, i: int) -> str:
        b, o, _ = self.operations[i]
        return f"operations[{o}]" if self.file.blocks is None else f"blocks[{b}].operations[{o}]"

    def _own(self, problem: Problem) -> Problem:
        """Return a problem of a record with the fields that the file has."""
        message = re.sub(
            r"blocks\[\d+\]\.operations\[\d+\]", lambda m: self._own_path(m[0]), problem.message
        )
        return Problem(self._own_path(problem.path), message, problem.count)

    def _follows(self, problem: Problem) -> bool:
        """Whether a problem follows from another: an unknown axis of what made axes are from."""
        place = _PLACE.match(problem.path)
        if place is None or place[1] != "tensors" or not problem.message.startswith("no axis"):
            return False
        name = [*self.tensors][int(place[2])]
        if name in self.file.tensors:
            return False
        return self.operations[self.maker[name]][2].axes is None

    def _own_path(self, path: str) -> str:
        block = _OPERATION.match(path)
        if block:
            carries = list(self.blocks[int(block[1])].carries)
            path = _PLACE.sub(lambda m: f"{m[1]}.{carries[int(m[2])]}", path)
            path = _FIELD.sub(lambda m: f".{_FIELDS[m[1]]}", path)
            one = self.file.blocks is None
            return re.sub(r"^blocks\[0\]\.?", "", path) if one else path
        place = _PLACE.match(path)
        if place is None:
            return path
        what, rest = place[1], path[place.end() :]
        name = [*(self.file.axes if what == "axes" else self.tensors)][int(place[2])]
        if what == "tensors" and name not in self.file.tensors:
            return self._path(self.maker[name]) + rest
        return f"{what}.{name}{rest}"


def _names(read: FileModel, tensors: Mapping[str, Tensor], along: str | None) -> Axes:
    """Return the axes of what is read; none where there is no such tensor: that is said later."""
    if read.axes is not None:
        return tuple(read.axes)
    stored = tensors[read.tensor].axes if read.tensor in tensors else ()
    return tuple(axis for axis in stored if axis != along)


def _made_axes(said: FileModel, reads: Sequence[Axes]) -> Axes | None:
    """Return the axes of what an operation makes that says nothing; None where it has to."""
    row = TABLE[said.function]
    first: Any = reads[0] if reads else ()
    match row.kind:
        case OperationKind.REDUCTION if row.result is Result.SELECTS:
            return None
        case OperationKind.REDUCTION:
            gone = said.over if row.result is Result.REDUCES else ()
            return tuple(axis for axis in first if axis not in gone)
        case OperationKind.GATHER:
            return union(*reads[1:], [axis for axis in first if axis not in said.over])
        case OperationKind.ELEMENTWISE | OperationKind.SCAN if said.function is not Function.FILL:
            return union(*reads)
        case _:
            return None
