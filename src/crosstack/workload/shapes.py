"""Whether the axes of what an operation reads and makes fit its kind: a rule for each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from crosstack.workload.functions import TABLE, Function, OperationKind, Result
from crosstack.workload.loops import LoopNest, union

_CROPS = (Function.CROP, Function.CROP_GRADIENT)
_HALVES = (Function.ROTARY, Function.COMPLEX_MULTIPLY, Function.COMPLEX_GRADIENT)
Problems = list[tuple[str, str]]  # field of the operation, message


def shape_problems(nest: LoopNest, sizes: Mapping[str, int]) -> Problems:
    """Return what is wrong with the axes of an operation: pairs of a field and a message."""
    found = _RULES[nest.operation.kind](nest)
    if nest.operation.kind is OperationKind.CONCATENATION and not found:
        found = _lengths(nest, sizes)
    return [*found, *_window_problems(nest, sizes), *_odd_halves(nest, sizes)]


def _named(axes: Iterable[str]) -> str:
    return ", ".join(sorted(axes)) or "none"


def _equal(field: str, got: Iterable[str], wanted: Iterable[str]) -> Problems:
    if {*got} == {*wanted}:
        return []
    return [(field, f"got axes {_named(got)}; allowed: {_named(wanted)}, in any order.")]


def _within(field: str, some: Iterable[str], axes: Iterable[str], what: str) -> Problems:
    outside = {*some} - {*axes}
    return [(field, f"{_named(outside)} is not among the axes of {what}.")] if outside else []


def _product(nest: LoopNest) -> Problems:
    first, second = (nest.looped(axes) for axes in nest.inputs)
    result = nest.looped(nest.output)
    found = _within("output", result, union(first, second), "an operand")
    left = ({*first} ^ {*second}) - {*result}
    if left:
        message = f"{_named(left)} stands in one operand alone; what is added up, in both."
        found.append(("inputs", message))
    return found


def _pooling(nest: LoopNest) -> Problems:
    """Return what is wrong with a pooling, or with its gradient.

    The latter reads what that made, and before it what that read, but for a crop.
    """
    alone = nest.operation.function is Function.CROP_GRADIENT
    whole = nest.output if alone else nest.inputs[0]
    taps = {window.tap for window in nest.operation.windows}
    made = {*nest.looped(whole)} - taps
    if alone:
        return _equal("inputs[0]", nest.inputs[0], made)
    if len(nest.inputs) == 1:
        return _equal("output", nest.output, made)
    return [*_equal("output", nest.output, whole), *_equal("inputs[1]", nest.inputs[1], made)]


def _elementwise(nest: LoopNest) -> Problems:
    over = _within("over", nest.operation.over, nest.output, "the result")
    return [*_within("inputs", union(*nest.inputs), nest.output, "the result"), *over]


def _reduction(nest: LoopNest) -> Problems:
    operation, rows = nest.operation, nest.inputs[0]
    found = _within("over", operation.over, rows, "the first operand")
    left = {*rows} - {*operation.over}
    match TABLE[operation.function].result:
        case Result.KEEPS:
            found += _equal("output", nest.output, rows)
        case Result.REDUCES:
            found += _equal("output", nest.output, left)
        case Result.SELECTS:
            found += _equal("output", {*nest.output} & {*rows}, left)
            if len({*nest.output} - {*rows}) != 1:
                found.append(("output", "allowed: one axis of places, besides those of the rows."))
    return found + _within("inputs", union(*nest.inputs[1:]), rows, "the first operand")


def _gather(nest: LoopNest) -> Problems:
    """Return what is wrong with a gather, or with a scatter, which goes the other way."""
    over, index = nest.operation.over, nest.inputs[1]
    scatters = nest.operation.kind is OperationKind.SCATTER
    table, values = (nest.output, nest.inputs[0]) if scatters else (nest.inputs[0], nest.output)
    found = _within("over", over, table, "the result" if scatters else "the first operand")
    read = union([a for a in table if a not in over], index)
    found += _equal("inputs" if scatters else "output", values, read)
    both = {*over} & {*index}
    return found + ([("over", f"the index has {_named(both)} itself.")] if both else [])


def _scan(nest: LoopNest) -> Problems:
    over = nest.operation.over
    found = _equal("output", nest.output, union(*nest.inputs))
    constant = nest.operation.function is Function.RECURRENCE  # the first may be
    for i, axes in enumerate(nest.inputs):
        if i > 0 or not constant:
            found += _within(f"inputs[{i}]", over, axes, "the operand")
    return found


def _concatenation(nest: LoopNest) -> Problems:
    (axis,) = nest.operation.over
    parts, whole = nest.parts
    found = _within("over", [axis], whole, "the operand" if len(parts) == 1 else "the result")
    for part in parts:
        if len({*part} - {*whole}) != 1 or axis in part:
            found.append(("output", f"allowed: one axis of a part for {axis}, and of the others."))
    return found


def _lengths(nest: LoopNest, sizes: Mapping[str, int]) -> Problems:
    (axis,), (parts, whole) = nest.operation.over, nest.parts
    count = sum(sizes[a] for part in parts for a in part if a not in whole)
    if count == sizes[axis] or (len(parts) == 1 and count < sizes[axis]):
        return []
    return [("over", f"{axis} has {sizes[axis]} places, the parts have {count}.")]


def _window_problems(nest: LoopNest, sizes: Mapping[str, int]) -> Problems:
    found: Problems = []
    ends = (nest.output, *nest.inputs)
    for i, window in enumerate(nest.operation.windows):
        field = f"windows[{i}]"
        unknown = {window.axis, window.at, window.tap} - {*sizes}
        beside = (window.axis in one and {window.at, window.tap} & {*one} for one in ends)
        if unknown:
            found.append((field, f"no axis is called {_named(unknown)}."))
        elif window.axis not in union(*ends):
            found.append((field, f"no operand has {window.axis}."))
        elif any(beside):
            found.append((field, f"{window.axis} stands beside {window.at} or {window.tap}."))
        elif nest.operation.function in _CROPS and sizes[window.tap] > 1:
            message = f"{window.tap} has {sizes[window.tap]} places; allowed: one, of a crop."
            found.append((field, message))
    return found


def _odd_halves(nest: LoopNest, sizes: Mapping[str, int]) -> Problems:
    if nest.operation.function not in _HALVES:
        return []
    odd = [a for a in nest.operation.over if sizes.get(a, 0) % 2]
    return [("over", f"{a} has {sizes[a]} places; allowed: an even number.") for a in odd]


_RULES: dict[OperationKind, Callable[[LoopNest], Problems]] = {
    OperationKind.CONTRACTION: _product,
    OperationKind.CONVOLUTION: _product,
    OperationKind.POOLING: _pooling,
    OperationKind.ELEMENTWISE: _elementwise,
    OperationKind.REDUCTION: _reduction,
    OperationKind.GATHER: _gather,
    OperationKind.SCATTER: _gather,
    OperationKind.SCAN: _scan,
    OperationKind.CONCATENATION: _concatenation,
}
