"""Tensors, operations over named axes, and blocks that repeat: what a graph is made of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from crosstack.errors import require
from crosstack.records import Bytes, Count, Name, require_types
from crosstack.workload.axes import Axes, Causal, Window
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import TABLE, Function, OperationKind


class Role(StrEnum):
    """What a tensor is for.

    An activation is made by an operation; the others may come from outside. An ``index`` says
    places; a ``mask`` which elements count, drawn where it is first read; a ``constant`` is
    computed where it is read (roots of unity).
    """

    INPUT = "input"
    ACTIVATION = "activation"
    WEIGHT = "weight"
    GRADIENT = "gradient"
    OPTIMIZER_STATE = "optimizer_state"
    KV_CACHE = "kv_cache"
    INDEX = "index"
    MASK = "mask"
    CONSTANT = "constant"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A tensor by the axes it has, in order of storage; without any it is a single number.

    ``mask`` says which of its elements count; it is the gradient or the optimizer state ``of``
    another tensor. A weight is held in so many ``copies`` [1], cast from one with ``beside`` bytes
    an element that is held, too [B].
    """

    name: Name
    axes: Axes
    dtype: Dtype = Dtype.BF16
    role: Role = Role.ACTIVATION
    mask: Causal | None = None
    of: str = ""
    copies: Count = 1
    beside: Bytes = 0.0

    def __post_init__(self) -> None:
        require_types(self)
        require(len({*self.axes}) == len(self.axes), "axes", self.axes, "every axis once")
        plain = self.copies == 1 and self.beside == 0
        single = plain or self.role is Role.WEIGHT
        require(single, "copies", self.copies, "1, and nothing beside, of what is no weight")
        ends = self.mask and {self.mask.query, self.mask.key}
        require(not ends or ends <= {*self.axes}, "mask", self.mask, "axes of the tensor")

    @property
    def held_size(self) -> float:
        """Bytes that one element takes in all copies that are held. [B]"""
        return self.copies * self.dtype.size + self.beside

    @property
    def cast_size(self) -> float:
        """Bytes that casting one element reads and writes; 0 of what is not cast. [B]"""
        cast = self.copies > 1 or self.beside > 0
        return self.held_size if cast else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """A tensor as an operation reads or makes it.

    ``axes`` are the names that the operation gives to its axes, where those are not its own: of
    the same sizes one by one (keys are tokens under another name), or of as many elements in the
    same order of storage (a width as heads times head size).
    """

    tensor: str
    axes: Axes = ()

    def __post_init__(self) -> None:
        require_types(self)
        require(len({*self.axes}) == len(self.axes), "axes", self.axes, "every axis once")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A loop nest over named axes that makes one tensor, as its ``function`` does (`TABLE`).

    ``over`` are axes of the rows that it reduces, of the places that it gathers from or scatters
    to, or of the scan; ``windows`` those that a convolution or pooling slides over. ``parameter``
    is a number that the function takes: a factor, a share left out, how many [1]. In ``reverse`` it
    runs from the last place along its axis to the first. ``twin`` is the operation whose derivative
    it belongs to.
    """

    name: Name
    function: Function
    inputs: tuple[Operand, ...]
    output: Operand
    over: Axes = ()
    windows: tuple[Window, ...] = ()
    parameter: float = 0.0
    reverse: bool = False
    twin: str = ""

    def __post_init__(self) -> None:
        require_types(self)
        row = TABLE[self.function]
        for field, count, (fewest, most) in (
            ("inputs", len(self.inputs), row.operands),
            ("over", len(self.over), row.over),
        ):
            some = str(fewest) if fewest == most else f"{fewest} to {most}"
            good = fewest <= count <= most
            require(good, field, count, f"{some} of {self.function.value}")
        allowed = "of a convolution or pooling"
        require(self.slides or not self.windows, "windows", self.windows, allowed)
        require(row.reversible or not self.reverse, "reverse", self.reverse, "false: no order")

    @property
    def kind(self) -> OperationKind:
        """What kind of loop nest it is."""
        return TABLE[self.function].kind

    @property
    def slides(self) -> bool:
        """Whether windows may slide over what it reads or makes."""
        return self.kind in (OperationKind.CONVOLUTION, OperationKind.POOLING)

    @property
    def multiplies(self) -> bool:
        """Whether it is a matrix product, plain or implied by windows."""
        return self.kind in (OperationKind.CONTRACTION, OperationKind.CONVOLUTION)

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the tensors that it reads."""
        return tuple(operand.tensor for operand in self.inputs)

    @property
    def made(self) -> str:
        """Name of the tensor that it makes."""
        return self.output.tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Operations that run once, or again and again along an axis: layers, or steps of a recurrence.

    Where it repeats, its operations see one place of the ``axis``: the slice there of a tensor that
    has it (weights of each layer; results that are kept), and all of any other. It ``carries``
    tensors on: the first of a pair is what was made before the block, and from the second time on
    what the time before made as the second. In ``reverse`` it begins at the last place. ``twin`` is
    the block that it is the backward pass of; what that made or carried has the value here that it
    had there, at the same place of the axis. ``layers`` are how many of a model one time is, more
    where layers of several kinds take turns. [1]
    """

    name: Name
    operations: tuple[Operation, ...]
    axis: str = ""
    carries: tuple[tuple[str, str], ...] = ()
    reverse: bool = False
    twin: str = ""
    layers: Count = 1

    def __post_init__(self) -> None:
        require_types(self)
        once = not (self.carries or self.reverse)
        require(bool(self.axis) or once, "axis", self.axis, "an axis, where something is carried")
        firsts = [before for before, _ in self.carries]
        require(len({*firsts}) == len(firsts), "carries", firsts, "every tensor once")
