"""The loop nest of an operation: the axes it runs over, and what it is as products of matrices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from crosstack.workload.axes import Axes, AxisUse
from crosstack.workload.functions import TABLE, Function, OperationKind
from crosstack.workload.operations import Operation


def union(*several: Iterable[str]) -> Axes:
    """Return all axes, each once, in the order in which they come."""
    return tuple(dict.fromkeys(name for axes in several for name in axes))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductAxes:
    """The axes of an operation by what they are in ``outer`` products of M x K by K x N.

    What is no product has no ``k``: it makes ``outer`` x M x N elements.
    """

    outer: Axes
    m: Axes
    k: Axes
    n: Axes

    @property
    def uses_twice(self) -> bool:
        """Whether numbers of both factors enter several products: rows, columns, and a depth."""
        return bool(self.m and self.n and self.k)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopNest:
    """An operation with the axes of what it reads and makes, by the names it gives them.

    ``uses`` are those of all axes of the graph; ``weights`` tells which operands are weights.
    """

    operation: Operation
    inputs: tuple[Axes, ...]
    output: Axes
    uses: Mapping[str, AxisUse]
    weights: tuple[bool, ...]

    def looped(self, axes: Axes) -> Axes:
        """Return axes with the two that a window runs over in place of the one it slides along."""
        windows = {w.axis: (w.at, w.tap) for w in self.operation.windows}
        return union(*(windows.get(axis, (axis,)) for axis in axes))

    @property
    def loops(self) -> Axes:
        """The axes that it runs over; work is done once for every place in them."""
        match self.operation.kind:
            case OperationKind.GATHER | OperationKind.CONCATENATION:
                return self.output
            case OperationKind.REDUCTION | OperationKind.SCATTER:
                return self.inputs[0]
            case _:
                return union(self.looped(self.output), *map(self.looped, self.inputs))

    @property
    def parts(self) -> tuple[tuple[Axes, ...], Axes]:
        """Axes of the parts of a concatenation or of a slice, and of the whole."""
        if self.operation.function is Function.CONCATENATE:
            return self.inputs, self.output
        return (self.output,), self.inputs[0]

    @property
    def work(self) -> float:
        """Floating-point operations at every place of its loops. [FLOP]"""
        return TABLE[self.operation.function].work

    @property
    def product(self) -> ProductAxes:
        """The operation as products of matrices.

        Notes
        -----
        Axes of a product are *outer* where both factors and the result have them, or where they are
        groups (`AxisUse.GROUP`) of a weight and of the result; *k* where the result does not, or
        where several places of a window add to one of the result (the gradient of what a
        convolution read: its taps). Windows over what is read need no copy of it: they are the
        products that a kernel takes them for (implicit GEMM, ``chetlur2014cudnn``). What is left
        belongs to one factor: the one that is no weight, else that of the tokens, else the
        first, has the columns (*n*), the other the rows (*m*).
        """
        if not self.operation.multiplies:
            return self.elements(self.output)
        first, second = (set(self.looped(axes)) for axes in self.inputs)
        folded = {w.tap for w in self.operation.windows if w.axis in self.output}
        result = tuple(a for a in self.looped(self.output) if a not in folded)
        weighted = first if self.weights[0] else second if self.weights[1] else set[str]()
        groups = {a for a in weighted if self.uses[a] is AxisUse.GROUP}
        outer = ((first & second) | groups) & {*result}
        sides = [[a for a in result if a in side - outer] for side in (first, second)]
        rows = 0 if self._columns(sides) else 1
        return ProductAxes(
            outer=tuple(a for a in result if a in outer),
            m=tuple(sides[rows]),
            k=tuple(a for a in self.loops if a not in result),
            n=tuple(sides[1 - rows]),
        )

    def _columns(self, sides: list[list[str]]) -> int:
        """Return which factor of a product has the columns."""
        if self.weights[0] is not self.weights[1]:
            return int(self.weights[0])
        tokens = [any(self.uses[a] is AxisUse.TOKEN for a in side) for side in sides]
        return int(tokens[1] and not tokens[0])

    def elements(self, axes: Axes) -> ProductAxes:
        """Return axes of elements by what they are for: groups, tokens, and all others."""
        outer, m, n = (
            tuple(axis for axis in axes if self.uses[axis] is use)
            for use in (AxisUse.GROUP, AxisUse.FEATURE, AxisUse.TOKEN)
        )
        return ProductAxes(outer=outer, m=m, k=(), n=n)
