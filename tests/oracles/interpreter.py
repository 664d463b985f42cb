"""A NumPy interpreter of graphs of operations over named axes, in double precision.

It follows the records and nothing else: no size, order or formula of the package is used but the
order of the operations of a block. Slow, and plain enough to be read.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from crosstack.workload.axes import Causal
from crosstack.workload.dataflow import Graph
from crosstack.workload.functions import Function, OperationKind
from crosstack.workload.loops import LoopNest, union
from crosstack.workload.operations import Block, Operand, Operation

F = Function
Array = np.ndarray
Values = dict[str, Array]


def run(graph: Graph, values: Mapping[str, Array]) -> Values:
    """Return the value of every tensor, given those from outside."""
    return _Run(graph, values).values


class _Run:
    def __init__(self, graph: Graph, values: Mapping[str, Array]) -> None:
        self.graph = graph
        self.values: Values = {name: np.asarray(value, float) for name, value in values.items()}
        self.past: dict[str, dict[int, Values]] = {}
        for block in graph.blocks:
            self._block(block)

    def _block(self, block: Block) -> None:
        places = range(self.graph.repeats(block))
        carried: Values = {first: self.values[first] for first, _ in block.carries}
        self.past[block.name] = {}
        for place in reversed(places) if block.reverse else places:
            here = self._once(block, place, carried)
            self.past[block.name][place] = here
            carried = {first: here[last] for first, last in block.carries}

    def _once(self, block: Block, place: int, carried: Values) -> Values:
        here = dict(carried)
        then = self.past[block.twin][place] if block.twin else {}
        for i in self.graph.orders[block.name]:
            operation = block.operations[i]
            nest = self.graph.nest(block, operation)
            inputs = [
                self._read(block, x, axes, place, here, then)
                for x, axes in zip(operation.inputs, nest.inputs, strict=True)
            ]
            made = self._masked(block, operation, self._compute(nest, inputs))
            here[operation.output.tensor] = made
            self._store(block, operation.output.tensor, made, place)
        return here

    def _read(
        self, block: Block, x: Operand, axes: tuple[str, ...], place: int, here: Values,
        then: Values,
    ) -> Array:  # fmt: skip
        found = here.get(x.tensor, then.get(x.tensor))
        if found is None:
            found = self.values[x.tensor]
            stored = self.graph.tensor[x.tensor].axes
            if block.axis in stored:
                found = np.take(found, place, axis=stored.index(block.axis))
        return found.reshape(self._shape(axes))

    def _store(self, block: Block, name: str, made: Array, place: int) -> None:
        stored = self.graph.tensor[name].axes
        if block.axis not in stored:
            self.values[name] = made
            return
        whole = self.values.setdefault(name, np.zeros(self._shape(stored)))
        np.moveaxis(whole, stored.index(block.axis), 0)[place] = made

    def _masked(self, block: Block, operation: Operation, made: Array) -> Array:
        tensor = self.graph.tensor[operation.output.tensor]
        own = self.graph.own_axes(block, tensor.name)
        made = made.reshape(self._shape(own))
        return made if tensor.mask is None else made * self._mask(tensor.mask, own)

    def _mask(self, mask: Causal, axes: tuple[str, ...]) -> Array:
        n, k = self.graph.sizes[mask.query], self.graph.sizes[mask.key]
        behind = (np.arange(n) + k - n)[:, None] - np.arange(k)
        seen = (behind >= 0) & (behind < (mask.window or k))
        of = np.arange(k) // (mask.document or k)  # the document of each place
        seen &= of[k - n :, None] == of
        return aligned(seen, (mask.query, mask.key), axes)

    def _shape(self, axes: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(self.graph.sizes[axis] for axis in axes)

    # ------------------------------------------------------------ kinds

    def _compute(self, nest: LoopNest, inputs: list[Array]) -> Array:
        operation, sizes = nest.operation, self.graph.sizes
        match operation.kind:
            case OperationKind.CONTRACTION | OperationKind.CONVOLUTION:
                return _products(nest, inputs, sizes)
            case OperationKind.POOLING:
                return _pooled(nest, inputs, sizes)
            case OperationKind.ELEMENTWISE:
                laid = [
                    aligned(x, a, nest.output) for x, a in zip(inputs, nest.inputs, strict=True)
                ]
                made = _element(operation, laid, nest.output, sizes)
                return np.broadcast_to(made, self._shape(nest.output)).copy()
            case OperationKind.REDUCTION:
                return self._rows(nest, inputs)
            case OperationKind.GATHER:
                return _gather(nest, *inputs, sizes)
            case OperationKind.SCATTER:
                return _scatter(nest, *inputs, sizes)
            case OperationKind.CONCATENATION:
                return _concatenation(nest, inputs, self._shape(nest.output), sizes)
            case OperationKind.SCAN:
                return _scan(nest, inputs, self._shape(nest.output))

    def _rows(self, nest: LoopNest, inputs: list[Array]) -> Array:
        """Bring the axes of the rows of the first operand last, as one, and back."""
        operation = nest.operation
        over = [a for a in nest.inputs[0] if a in operation.over]
        left = [a for a in nest.inputs[0] if a not in operation.over]
        order = (*left, *over)
        laid = [
            np.broadcast_to(aligned(x, a, order), self._shape(order)).reshape(
                *self._shape(tuple(left)), -1
            )
            for x, a in zip(inputs, nest.inputs, strict=True)
        ]
        if operation.function in (F.SOFTMAX, F.SOFTMAX_GRADIENT):
            mask = self.graph.tensor[operation.inputs[0].tensor].mask
            if mask:
                seen = np.broadcast_to(
                    self._mask(mask, nest.inputs[0]), self._shape(nest.inputs[0])
                )
                laid.append(aligned(seen, nest.inputs[0], order).reshape(laid[0].shape))
        count = self.graph.sizes[(*(a for a in nest.output if a not in left), "")[0]] if (
            operation.function is F.SELECT
        ) else 0  # fmt: skip
        made = ROWS[operation.function](operation, count, *laid)
        if operation.function is F.SELECT:
            places = next(a for a in nest.output if a not in left)
            return aligned(made, (*left, places), nest.output)
        if operation.function in (F.SUM, F.MEAN, F.CROSS_ENTROPY):
            return aligned(made, tuple(left), nest.output)
        return aligned(made.reshape(self._shape(order)), order, nest.output)


def aligned(x: Array, axes: tuple[str, ...], wanted: tuple[str, ...]) -> Array:
    """Put axes in another order, with one place on those that are not there."""
    there = [a for a in wanted if a in axes]
    x = np.transpose(x, [axes.index(a) for a in there])
    return x.reshape([x.shape[there.index(a)] if a in there else 1 for a in wanted])


# ---------------------------------------------------------------- products


def _products(nest: LoopNest, inputs: list[Array], sizes: Mapping[str, int]) -> Array:
    laid = []
    for read in zip(inputs, nest.inputs, strict=True):
        unfolded = read
        for window in nest.operation.windows:
            unfolded = _unfolded(*unfolded, window, sizes)
        laid.append(unfolded)
    result = nest.looped(nest.output)
    letter = {a: chr(97 + i) for i, a in enumerate(union(result, *(a for _, a in laid)))}
    word = ",".join("".join(letter[a] for a in axes) for _, axes in laid)
    made = np.einsum(f"{word}->{''.join(letter[a] for a in result)}", *(x for x, _ in laid))
    axes = result
    for window in nest.operation.windows:
        made, axes = _folded(made, axes, window, sizes, window.axis in nest.output)
    return aligned(made, axes, nest.output)


def _places(window, sizes: Mapping[str, int]) -> Iterator[tuple[int, int, int]]:
    for at in range(sizes[window.at]):
        for tap in range(sizes[window.tap]):
            place = window.start + window.stride * at + window.dilation * tap - window.padding
            if 0 <= place < sizes[window.axis]:
                yield at, tap, place


def _unfolded(x: Array, axes, window, sizes) -> tuple[Array, tuple[str, ...]]:
    if window.axis not in axes:
        return x, axes
    i = axes.index(window.axis)
    x = np.moveaxis(x, i, 0)
    made = np.zeros((sizes[window.at], sizes[window.tap], *x.shape[1:]))
    for at, tap, place in _places(window, sizes):
        made[at, tap] = x[place]
    return made, (window.at, window.tap, *axes[:i], *axes[i + 1 :])


def _folded(x: Array, axes, window, sizes, folds: bool) -> tuple[Array, tuple[str, ...]]:
    if not folds:
        return x, axes
    left = tuple(a for a in axes if a not in (window.at, window.tap))
    x = aligned(x, axes, (window.at, window.tap, *left))
    made = np.zeros((sizes[window.axis], *x.shape[2:]))
    for at, tap, place in _places(window, sizes):
        made[place] += x[at, tap]
    return made, (window.axis, *left)


def _pooled(nest: LoopNest, inputs: list[Array], sizes: Mapping[str, int]) -> Array:
    """Return the greatest of every window, or of each the gradient at the first such place."""
    x, axes = inputs[0], nest.inputs[0]
    if nest.operation.function in (F.CROP, F.CROP_GRADIENT):
        return _cropped(nest, x, sizes)
    at = tuple(next((w.at for w in nest.operation.windows if w.axis == a), a) for a in axes)
    shape = tuple(sizes[a] for a in at)
    best, where = np.full(shape, -np.inf), np.zeros((*shape, len(axes)), int)
    for window in itertools.product(*_reached(nest, axes, sizes)):
        here, place = tuple(a for a, _ in window), tuple(p for _, p in window)
        if x[place] > best[here]:
            best[here], where[here] = x[place], place
    if len(inputs) == 1:
        return aligned(best, at, nest.output)
    made, dy = np.zeros(x.shape), aligned(inputs[1], nest.inputs[1], at)
    for here in np.ndindex(shape):
        made[tuple(where[here])] += dy[here]
    return aligned(made, axes, nest.output)


def _cropped(nest: LoopNest, x: Array, sizes: Mapping[str, int]) -> Array:
    """Return places of a tensor, or what is put there into zeros."""
    back = nest.operation.function is F.CROP_GRADIENT
    part, whole = (nest.inputs[0], nest.output) if back else (nest.output, nest.inputs[0])
    windows = {w.axis: w for w in nest.operation.windows}
    reached = {
        a: ([p for *_, p in _places(windows[a], sizes)] if a in windows else range(sizes[a]))
        for a in whole
    }
    named = tuple(windows[a].at if a in windows else a for a in whole)
    where = np.ix_(*reached.values())
    if not back:
        return aligned(x[where], named, part)
    made = np.zeros([sizes[a] for a in whole])
    made[where] = aligned(x, part, named)
    return made


def _reached(nest: LoopNest, axes, sizes: Mapping[str, int]) -> list[list[tuple[int, int]]]:
    """Return, by axis, the pairs of a place of the result and one that it looks at."""
    windows = {w.axis: w for w in nest.operation.windows}
    return [
        [(at, place) for at, _, place in _places(windows[a], sizes)]
        if a in windows
        else [(i, i) for i in range(sizes[a])]
        for a in axes
    ]


# ---------------------------------------------------------------- elements


def _gelu(x: Array) -> tuple[Array, Array]:
    c = np.sqrt(2 / np.pi)
    t = np.tanh(c * x * (1 + 0.044715 * x * x))
    slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x)
    return 0.5 * x * (1 + t), slope


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


POINTS: dict[F, Callable[..., Array]] = {
    F.FILL: lambda o: np.array(o.parameter),
    F.COPY: lambda o, x: x,
    F.SCALE: lambda o, x: x * o.parameter,
    F.ADD: lambda o, x, y: x + y,
    F.SUBTRACT: lambda o, x, y: x - y,
    F.MULTIPLY: lambda o, x, y: x * y,
    F.DIVIDE: lambda o, x, y: x / y,
    F.EXPONENTIAL: lambda o, x: np.exp(x),
    F.LOGARITHM: lambda o, x: np.log(x),
    F.TANH: lambda o, x: np.tanh(x),
    F.TANH_GRADIENT: lambda o, y, dy: (1 - y * y) * dy,
    F.SIGMOID: lambda o, x: _sigmoid(x),
    F.SIGMOID_GRADIENT: lambda o, y, dy: y * (1 - y) * dy,
    F.RELU: lambda o, x: np.maximum(x, 0),
    F.SQUARED_RELU: lambda o, x: np.maximum(x, 0) ** 2,
    F.SQUARED_RELU_GRADIENT: lambda o, x, dy: 2 * np.maximum(x, 0) * dy,
    F.KEPT_GRADIENT: lambda o, y, dy: np.where(y != 0, dy, 0),
    F.GELU: lambda o, x: _gelu(x)[0],
    F.GELU_GRADIENT: lambda o, x, dy: _gelu(x)[1] * dy,
    F.SILU: lambda o, x: x * _sigmoid(x),
    F.SILU_GRADIENT: lambda o, x, dy: dy * _sigmoid(x) * (1 + x * (1 - _sigmoid(x))),
    F.GATED_GELU: lambda o, x, y: _gelu(x)[0] * y,
    F.GATED_SILU: lambda o, x, y: x * _sigmoid(x) * y,
    F.SOFT_CAP: lambda o, x: o.parameter * np.tanh(x / o.parameter),
    F.SOFT_CAP_GRADIENT: lambda o, y, dy: (1 - (y / o.parameter) ** 2) * dy,
    F.SOFTPLUS: lambda o, x: np.log1p(np.exp(x)),
    F.QUANTIZE: lambda o, x: x,
    F.DROPOUT: lambda o, x, mask: x * mask / (1 - o.parameter),
}


def _element(operation: Operation, laid: list[Array], axes, sizes: Mapping[str, int]) -> Array:
    if operation.function is F.SPREAD:
        return laid[0] / np.prod([sizes[a] for a in operation.over])
    if operation.function in (F.COMPLEX_MULTIPLY, F.COMPLEX_GRADIENT):
        return _complex(operation, *laid, axes.index(operation.over[0]))
    if operation.function is F.ROTARY:
        return _turned(operation, *laid, axes.index(operation.over[0]))
    return POINTS[operation.function](operation, *laid)


def _complex(operation: Operation, x: Array, y: Array, axis: int) -> Array:
    one, other = (a[0] + 1j * a[1] for a in (np.split(v, 2, axis=axis) for v in (x, y)))
    made = (one.conj() if operation.function is F.COMPLEX_GRADIENT else one) * other
    return np.concatenate([made.real, made.imag], axis=axis)


def _turned(operation: Operation, x: Array, places: Array, axis: int) -> Array:
    half = x.shape[axis] // 2
    shape = [1] * x.ndim
    shape[axis] = half
    rate = (operation.parameter ** (-np.arange(half) / half)).reshape(shape)
    angle = places * rate * (-1 if operation.reverse else 1)
    a, b = np.split(x, 2, axis=axis)
    return np.concatenate(
        [a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], axis=axis
    )


# ---------------------------------------------------------------- rows (the last axis)


def _factor(operation) -> float:
    softmax = operation.function in (F.SOFTMAX, F.SOFTMAX_GRADIENT)
    return operation.parameter if softmax and operation.parameter else 1.0


def _softmax(operation, count, x: Array, seen: Array | None = None) -> Array:
    x = x * _factor(operation)
    x = x if seen is None else np.where(seen, x, -np.inf)
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _softmax_gradient(operation, count, y: Array, dy: Array, seen=None) -> Array:
    return _factor(operation) * y * (dy - (y * dy).sum(-1, keepdims=True))


def _normalised(x: Array, epsilon: float, centred: bool) -> tuple[Array, Array]:
    c = x - x.mean(-1, keepdims=True) if centred else x
    deviation = np.sqrt((c * c).mean(-1, keepdims=True) + epsilon)
    return c / deviation, deviation


def _norm(centred: bool) -> Callable[..., Array]:
    def norm(operation, count, x, scale=1.0, shift=0.0) -> Array:
        return _normalised(x, operation.parameter, centred)[0] * scale + shift

    return norm


def _norm_gradient(centred: bool) -> Callable[..., Array]:
    def gradient(operation, count, x, dy, scale=1.0) -> Array:
        y, deviation = _normalised(x, operation.parameter, centred)
        g = dy * scale
        left = g - y * (g * y).mean(-1, keepdims=True)
        return (left - g.mean(-1, keepdims=True) if centred else left) / deviation

    return gradient


def _cross_entropy(operation, count, x: Array, label: Array) -> Array:
    right = np.take_along_axis(x, label[..., :1].astype(int), -1)[..., 0]
    top = x.max(-1)
    return np.log(np.exp(x - top[..., None]).sum(-1)) + top - right


def _cross_entropy_gradient(operation, count, x: Array, label: Array, dy: Array) -> Array:
    hit = np.arange(x.shape[-1]) == label
    return (_softmax(operation, count, x) - hit) * dy


def _top_k(operation, count, x: Array) -> Array:
    rank = np.argsort(np.argsort(-x, axis=-1, kind="stable"), axis=-1)
    return np.where(rank < operation.parameter, x, 0)


def _select(operation, count, x: Array) -> Array:
    order = np.argsort(-x, axis=-1, kind="stable")[..., :count]
    found = np.where(np.take_along_axis(x, order, -1) > 0, order, -1)
    pad = np.full((*x.shape[:-1], max(count - x.shape[-1], 0)), -1)
    return np.concatenate([found, pad], axis=-1)


ROWS: dict[F, Callable[..., Array]] = {
    F.SUM: lambda o, c, x: x.sum(-1),
    F.MEAN: lambda o, c, x: x.mean(-1),
    F.SOFTMAX: _softmax,
    F.SOFTMAX_GRADIENT: _softmax_gradient,
    F.LAYER_NORM: _norm(centred=True),
    F.LAYER_NORM_GRADIENT: _norm_gradient(centred=True),
    F.BATCH_NORM: _norm(centred=True),
    F.BATCH_NORM_GRADIENT: _norm_gradient(centred=True),
    F.RMS_NORM: _norm(centred=False),
    F.RMS_NORM_GRADIENT: _norm_gradient(centred=False),
    F.CROSS_ENTROPY: _cross_entropy,
    F.CROSS_ENTROPY_GRADIENT: _cross_entropy_gradient,
    F.TOP_K: _top_k,
    F.SELECT: _select,
}


# ---------------------------------------------------------------- places


def _gather(nest: LoopNest, table: Array, index: Array, sizes: Mapping[str, int]) -> Array:
    over = nest.operation.over
    made = np.zeros([sizes[a] for a in nest.output])
    for at in np.ndindex(made.shape):
        where = dict(zip(nest.output, at, strict=True))
        found = int(index[tuple(where[a] for a in nest.inputs[1])])
        if found >= 0:
            where |= dict(zip(over, np.unravel_index(found, [sizes[a] for a in over]), strict=True))
            made[at] = table[tuple(where[a] for a in nest.inputs[0])]
    return made


def _scatter(nest: LoopNest, values: Array, index: Array, sizes: Mapping[str, int]) -> Array:
    over = nest.operation.over
    made = np.zeros([sizes[a] for a in nest.output])
    for at in np.ndindex(values.shape):
        where = dict(zip(nest.inputs[0], at, strict=True))
        found = int(index[tuple(where[a] for a in nest.inputs[1])])
        if found >= 0:
            where |= dict(zip(over, np.unravel_index(found, [sizes[a] for a in over]), strict=True))
            made[tuple(where[a] for a in nest.output)] += values[at]
    return made


# ---------------------------------------------------------------- one behind the other


def _concatenation(
    nest: LoopNest, inputs: list[Array], shape: tuple[int, ...], sizes: Mapping[str, int]
) -> Array:
    (over,) = nest.operation.over
    if nest.operation.function is F.SLICE:
        part = next(a for a in nest.output if a not in nest.inputs[0])
        named = tuple(part if a == over else a for a in nest.inputs[0])
        x = np.moveaxis(inputs[0], named.index(part), 0)
        x = x[-sizes[part] :] if nest.operation.reverse else x[: sizes[part]]
        return aligned(np.moveaxis(x, 0, named.index(part)), named, nest.output)
    laid, place = [], nest.output.index(over)
    for x, axes in zip(inputs, nest.inputs, strict=True):
        part = next(a for a in axes if a not in nest.output)
        whole = [*shape[:place], sizes[part], *shape[place + 1 :]]
        named = tuple(over if a == part else a for a in axes)
        laid.append(np.broadcast_to(aligned(x, named, nest.output), whole))
    return np.concatenate(laid, axis=place)


# ---------------------------------------------------------------- scans


def _scan(nest: LoopNest, inputs: list[Array], shape: tuple[int, ...]) -> Array:
    operation = nest.operation
    axis = nest.output.index(operation.over[0])
    laid = [
        np.moveaxis(np.broadcast_to(aligned(x, a, nest.output), shape), axis, 0)
        for x, a in zip(inputs, nest.inputs, strict=True)
    ]
    made = np.zeros_like(laid[0])
    places = range(len(made))
    before = np.zeros_like(made[0])
    for t in reversed(places) if operation.reverse else places:
        if operation.function is F.SHIFT:
            made[t], before = before, laid[0][t]
        else:
            before = made[t] = laid[0][t] * before + laid[1][t]
    return np.moveaxis(made, 0, axis)
