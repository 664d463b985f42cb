"""A graph as it is written down: a line for each operation, which also says what it makes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from crosstack.workload.axes import Axes, AxisSize, AxisUse, Causal, Window
from crosstack.workload.dataflow import Graph
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import Function
from crosstack.workload.loops import union
from crosstack.workload.operations import Block, Operand, Operation, Role, Tensor

Read = str | Operand


@dataclass(slots=True, kw_only=True)
class Draft:
    """Axes, tensors and blocks so far; `graph` checks them.

    Axes are written as words in one string. Whatever makes something returns the name of it, and
    an operation has the name of what it makes. Operations outside of `repeated` follow one another
    in blocks that run once.
    """

    dtype: Dtype = Dtype.BF16
    axes: list[AxisSize] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    along: str = ""

    def axis(self, use: AxisUse = AxisUse.FEATURE, /, **sizes: int) -> None:
        """Add axes by name and size."""
        self.axes += [AxisSize(name=name, size=size, use=use) for name, size in sizes.items()]

    def tensor(
        self,
        name: str,
        axes: str,
        role: Role = Role.INPUT,
        *,
        dtype: Dtype | None = None,
        mask: Causal | None = None,
    ) -> str:
        """Add a tensor: what comes from outside, unless an operation follows that makes it."""
        self.tensors[name] = Tensor(
            name=name, axes=tuple(axes.split()), dtype=dtype or self.dtype, role=role, mask=mask
        )
        return name

    def weight(self, name: str, axes: str) -> str:
        """Add a weight."""
        return self.tensor(name, axes, Role.WEIGHT)

    def index(self, name: str, axes: str) -> str:
        """Add an index from outside, of 4 bytes a place."""
        return self.tensor(name, axes, Role.INDEX, dtype=Dtype.INT32)

    def seen(self, tensor: str, axes: str) -> Operand:
        """Return a tensor with other names for its axes."""
        return Operand(tensor=tensor, axes=tuple(axes.split()))

    def names(self, read: Read) -> Axes:
        """Return the axes of what is read, without that of the block."""
        operand = _operand(read)
        own = (axis for axis in self.tensors[operand.tensor].axes if axis != self.along)
        return operand.axes or tuple(own)

    # ------------------------------------------------------------ operations

    def make(
        self,
        name: str,
        function: Function,
        *reads: Read,
        axes: str | None = None,
        over: str = "",
        role: Role = Role.ACTIVATION,
        mask: Causal | None = None,
        stored: str | None = None,
        dtype: Dtype | None = None,
        **more: Any,
    ) -> str:
        """Add an operation and what it makes, both called ``name``.

        ``axes`` are those of what it makes, all of what it reads if left out; ``stored`` those that
        the tensor has itself, where the operation calls them by other names, or where it keeps
        every place of the axis of a repeated block. ``role``, ``mask`` and ``dtype`` as of
        `Tensor`, ``over`` and ``more`` as of `Operation`.
        """
        made = union(*map(self.names, reads)) if axes is None else tuple(axes.split())
        self.tensor(
            name, " ".join(made) if stored is None else stored, role, dtype=dtype, mask=mask
        )
        self.operations.append(
            Operation(
                name=name,
                function=function,
                inputs=tuple(map(_operand, reads)),
                output=Operand(tensor=name, axes=() if self.names(name) == made else made),
                over=tuple(over.split()),
                **more,
            )
        )
        return name

    def product(self, name: str, first: Read, second: Read, axes: str, **more: Any) -> str:
        """Add a product with a result of some axes; the others of its factors are added up."""
        return self.make(name, Function.PRODUCT, first, second, axes=axes, **more)

    def convolve(
        self, name: str, first: Read, second: Read, axes: str, *windows: Window, **more: Any
    ) -> str:
        """Add a convolution."""
        return self.make(name, Function.CONVOLVE, first, second, axes=axes, windows=windows, **more)

    def rows(self, name: str, function: Function, *reads: Read, over: str, **more: Any) -> str:
        """Add a reduction whose result has the axes of its first operand: a norm, a softmax."""
        axes = " ".join(self.names(reads[0]))
        return self.make(name, function, *reads, axes=axes, over=over, **more)

    def reduced(self, name: str, function: Function, *reads: Read, over: str) -> str:
        """Add a reduction whose result lacks the axes of its rows: a sum, a loss."""
        gone = over.split()
        axes = " ".join(axis for axis in self.names(reads[0]) if axis not in gone)
        return self.make(name, function, *reads, axes=axes, over=over)

    # ------------------------------------------------------------ blocks

    @contextmanager
    def repeated(
        self,
        name: str,
        axis: str,
        *carries: tuple[str, str],
        reverse: bool = False,
        layers: int = 1,
    ) -> Iterator[None]:
        """Put the operations that are added meanwhile into a block that repeats along an axis.

        ``reverse`` and ``layers`` as of `Block`.
        """
        self.close()
        self.along = axis
        yield
        block = Block(
            name=name, operations=tuple(self.operations), axis=axis, carries=carries,
            reverse=reverse, layers=layers,
        )  # fmt: skip
        self.operations, self.along = [], ""
        self.blocks.append(block)

    def close(self, name: str = "") -> None:
        """End a block that runs once, if there is anything in it."""
        if self.operations:
            called = name or f"part_{len(self.blocks) + 1}"
            self.blocks.append(Block(name=called, operations=tuple(self.operations)))
            self.operations = []

    def graph(self) -> Graph:
        """Return the graph.

        Raises `InputError` if it is none, see `Graph`.
        """
        self.close()
        return Graph(
            axes=tuple(self.axes), tensors=tuple(self.tensors.values()), blocks=tuple(self.blocks)
        )


def _operand(read: Read) -> Operand:
    return Operand(tensor=read) if isinstance(read, str) else read
