"""Random small graphs of operations over named axes: every kind and every function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from builders.named_models import probed
from crosstack.workload.axes import AxisUse, Causal, Window
from crosstack.workload.dataflow import Graph
from crosstack.workload.draft import Draft, Read
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import Function
from crosstack.workload.functions import Function as Of
from crosstack.workload.operations import Role

SIZES = {"a": 2, "b": 3, "c": 4, "d": 2, "e": 3, "at": 2, "tap": 3, "places": 2, "time": 3,
         "one": 1}  # fmt: skip
PLAIN = "abcde"
MOST_AXES = 4
TAME = (
    Of.TANH, Of.SIGMOID, Of.GELU, Of.SILU, Of.SOFTPLUS, Of.RELU, Of.SQUARED_RELU, Of.SOFT_CAP,
)  # fmt: skip


@dataclass(slots=True)
class Sketch:
    """A draft, what has been made so far, and a source of chance."""

    rng: Random
    draft: Draft = field(default_factory=Draft)
    pool: list[str] = field(default_factory=list)
    count: int = 0

    def name(self, what: str) -> str:
        self.count += 1
        return f"{what}_{self.count}"

    def axes(self, read: Read) -> list[str]:
        return list(self.draft.names(read))

    def some(self, axes: list[str], fewest: int = 1) -> list[str]:
        """A random part of some axes."""
        return self.rng.sample(axes, self.rng.randint(min(fewest, len(axes)), len(axes)))

    def any(self, least: int = 0) -> str:
        """A random tensor with at least so many axes."""
        fitting = [name for name in self.pool if len(self.axes(name)) >= least]
        return self.rng.choice(fitting or self.pool[:1])

    def weight(self, axes: list[str], lead: str = "") -> str:
        return self.draft.weight(self.name("w"), f"{lead} {' '.join(axes)}")

    def one(self, function: Function, *reads: Read, **more: object) -> str:
        return self.draft.make(self.name(function.value), function, *reads, **more)  # type: ignore[arg-type]


def unary(s: Sketch) -> str:
    function = s.rng.choice([*TAME, Of.SCALE, Of.EXPONENTIAL, Of.LOGARITHM, Of.COPY])
    x = s.any()
    match function:
        case Of.EXPONENTIAL:
            x = s.one(Of.TANH, x)
        case Of.LOGARITHM:
            x = s.one(Of.SOFTPLUS, x)
        case Of.COPY:  # along a further axis, stored in any order
            axes = [*dict.fromkeys([*s.axes(x), s.rng.choice(PLAIN)])]
            return s.one(function, x, axes=" ".join(s.rng.sample(axes, len(axes))))
    return s.one(function, x, parameter=0.7)


def binary(s: Sketch) -> str:
    x = s.any()
    y = s.weight(s.some([*PLAIN], 0)[:2]) if s.rng.random() < 0.4 else s.any()
    if len({*s.axes(x), *s.axes(y)}) > MOST_AXES:
        y = x
    function = s.rng.choice(
        [Of.ADD, Of.SUBTRACT, Of.MULTIPLY, Of.DIVIDE, Of.GATED_SILU, Of.GATED_GELU]
    )
    if function is Of.DIVIDE:
        y = s.one(Of.EXPONENTIAL, s.one(Of.TANH, y))
    return s.one(function, x, y)


def weighted(s: Sketch) -> str:
    x = s.any(1)
    axes = s.axes(x)
    both = s.some(axes)
    added = s.some(both)
    new = [a for a in s.some([*PLAIN], 0) if a not in axes][:1]
    made = [a for a in axes if a not in added] + new
    w = s.weight([*both, *new])
    first, second = (x, w) if s.rng.random() < 0.5 else (w, x)
    return s.one(Of.PRODUCT, first, second, axes=" ".join(s.rng.sample(made, len(made))))


def product(s: Sketch) -> str:
    x, y = s.any(1), s.any(1)
    both = [a for a in s.axes(x) if a in s.axes(y)]
    alone = [*dict.fromkeys(a for a in (*s.axes(x), *s.axes(y)) if a not in both)]
    if len(alone) > MOST_AXES:
        return weighted(s)
    made = [*alone, *s.some(both, 0)]
    return s.one(Of.PRODUCT, x, y, axes=" ".join(made))


def rows(s: Sketch) -> str:
    x = s.any(1)
    if not s.axes(x):
        return unary(s)
    over = s.some(s.axes(x))
    function = s.rng.choice([Of.SOFTMAX, Of.LAYER_NORM, Of.BATCH_NORM, Of.RMS_NORM, Of.TOP_K])
    reads: list[Read] = [x]
    if function in (Of.LAYER_NORM, Of.BATCH_NORM, Of.RMS_NORM):
        most = 1 if function is Of.RMS_NORM else 2
        reads += [s.weight(s.some(over)) for _ in range(s.rng.randint(0, most))]
    parameter = 2.0 if function is Of.TOP_K else s.rng.choice([0.1, 1.5])
    name = s.name(function.value)
    return s.draft.rows(name, function, *reads, over=" ".join(over), parameter=parameter)


def reduced(s: Sketch) -> str:
    x = s.any(1)
    function = s.rng.choice([Of.SUM, Of.MEAN, Of.CROSS_ENTROPY])
    over = s.some(s.axes(x))
    reads: list[Read] = [x]
    if function is Of.CROSS_ENTROPY:
        over = [s.axes(x)[0]]
        left = [a for a in s.axes(x) if a not in over]
        # The index is 0, 1 or 2.
        if SIZES.get(over[0], 0) < 3:
            function = Of.SUM
        else:
            reads.append(s.draft.index(s.name("label"), " ".join(left)))
    return s.draft.reduced(s.name(function.value), function, *reads, over=" ".join(over))


def gathered(s: Sketch) -> str:
    """Rows by an index, or the best of them."""
    x = s.any(1)
    axes = s.axes(x)
    over = next((a for a in axes if SIZES[a] >= 3), "")
    left = [a for a in axes if a != over]
    if not over or "places" in axes:
        return unary(s)
    index = (
        s.one(
            Of.SELECT, x, axes=" ".join([*left, "places"]), over=over, role=Role.INDEX,
            dtype=Dtype.INT32,
        )
        if s.rng.random() < 0.5
        else s.draft.index(s.name("index"), " ".join(["places", *s.some(left, 0)]))
    )  # fmt: skip
    return s.one(Of.GATHER, x, index, axes=" ".join([*left, "places"]), over=over)


def scattered(s: Sketch) -> str:
    x = s.any(1)
    to = [a for a in PLAIN if a not in s.axes(x) and SIZES[a] >= 3]
    gone = s.some(s.axes(x))
    if not to:
        return unary(s)
    index = s.draft.index(s.name("index"), " ".join(gone))
    left = [a for a in s.axes(x) if a not in gone]
    return s.one(Of.SCATTER, x, index, axes=" ".join([to[0], *left]), over=to[0])


def joined(s: Sketch) -> str:
    """Two places of one tensor and two of another, which may lack other axes: four."""
    x = s.any(1)
    axes = s.axes(x)
    if "a" not in axes or {"c", "d"} & {*axes}:
        return unary(s)
    left = [a for a in axes if a != "a"]
    second: Read = s.weight(["d", *s.some(left, 0)])
    if s.rng.random() < 0.3:
        second = s.draft.seen(x, " ".join("d" if a == "a" else a for a in axes))
    made = s.rng.sample(["c", *left], len(axes))
    reads = (x, second) if s.rng.random() < 0.5 else (second, x)
    return s.one(Of.CONCATENATE, *reads, axes=" ".join(made), over="c")


def scanned(s: Sketch) -> str:
    x = s.any(1)
    over, reverse = s.rng.choice(s.axes(x)), s.rng.random() < 0.5
    if s.rng.random() < 0.3:
        return s.one(Of.SHIFT, x, over=over, reverse=reverse)
    lead = [over] if s.rng.random() < 0.7 else []
    decay = s.weight([*lead, *s.some([a for a in s.axes(x) if a != over], 0)])
    return s.one(Of.RECURRENCE, decay, x, over=over, reverse=reverse)


def convolved(s: Sketch) -> str:
    x = s.any(1)
    axes = s.axes(x)
    slid = s.rng.choice(axes)
    if {"at", "tap"} & {*axes}:
        return weighted(s)
    left = [a for a in axes if a != slid]
    new = [a for a in PLAIN if a not in axes][:1]
    window = Window(
        axis=slid, at="at", tap="tap", stride=s.rng.randint(1, 2), dilation=s.rng.randint(1, 2),
        padding=s.rng.randint(0, 2),
    )  # fmt: skip
    added = s.some(left, 0)
    made = ["at", *[a for a in left if a not in added], *new]
    w = s.weight(["tap", *added, *new])
    return s.one(Of.CONVOLVE, x, w, axes=" ".join(made), windows=(window,))


def pooled(s: Sketch) -> str:
    x = s.any(1)
    axes = s.axes(x)
    if {"at", "tap"} & {*axes} or not axes:
        return weighted(s)
    slid = s.rng.choice(axes)
    window = Window(
        axis=slid, at="at", tap="tap", stride=s.rng.randint(1, 2), padding=s.rng.randint(0, 1)
    )
    if window.stride * (SIZES["at"] - 1) - window.padding >= SIZES[slid]:
        return unary(s)  # a window without any place has no greatest
    made = ["at", *[a for a in axes if a != slid]]
    return s.one(Of.MAX_POOL, x, axes=" ".join(made), windows=(window,))


def cropped(s: Sketch) -> str:
    """Two places of an axis that has more."""
    x = s.any(1)
    axes = s.axes(x)
    longer = [a for a in axes if SIZES[a] > SIZES["at"]]
    if "at" in axes or not longer:
        return unary(s)
    slid = s.rng.choice(longer)
    start = s.rng.randint(0, SIZES[slid] - SIZES["at"])
    window = Window(axis=slid, at="at", tap="one", start=start)
    made = ["at", *[a for a in axes if a != slid]]
    return s.one(Of.CROP, x, axes=" ".join(made), windows=(window,))


def dropped(s: Sketch) -> str:
    x = s.any()
    mask = s.draft.tensor(s.name("mask"), " ".join(s.axes(x)), Role.MASK, dtype=Dtype.INT8)
    return s.one(Of.DROPOUT, x, mask, parameter=0.2)


def turned(s: Sketch) -> str:
    x = s.any(2)
    even = [a for a in s.axes(x) if SIZES[a] % 2 == 0]
    if not even:
        return unary(s)
    left = [a for a in s.axes(x) if a != even[0]]
    places = s.draft.index(s.name("place"), " ".join(left[:1]))
    return s.one(Of.ROTARY, x, places, axes=" ".join(s.axes(x)), over=even[0], parameter=10.0)


def complex_product(s: Sketch) -> str:
    x = s.any(1)
    even = [a for a in s.axes(x) if SIZES[a] % 2 == 0]
    if not even:
        return unary(s)
    other = s.weight([even[0], *s.some([a for a in s.axes(x) if a != even[0]], 0)])
    reads = (x, other) if s.rng.random() < 0.5 else (other, x)
    return s.one(Of.COMPLEX_MULTIPLY, *reads, axes=" ".join(s.axes(x)), over=even[0])


def seen(s: Sketch) -> str:
    """A product of a tensor with itself under other names: scores, with or without a mask."""
    x = s.any(1)
    axes = s.axes(x)
    query = next((a for a in axes if a in "be"), "")
    key = {"b": "e", "e": "b"}.get(query, "")
    if not query or key in axes or len(axes) < 2:
        return weighted(s)
    other = s.draft.seen(x, " ".join(key if a == query else a for a in axes))
    mask = Causal(query=query, key=key, window=s.rng.randint(0, 2))
    said = mask if s.rng.random() < 0.7 else None
    scores = s.one(Of.PRODUCT, x, other, axes=f"{query} {key}", mask=said)
    name = s.name("softmax")
    weights = s.draft.rows(name, Of.SOFTMAX, scores, over=key, mask=said)
    made = " ".join(s.rng.sample(axes, len(axes)))
    return s.one(Of.PRODUCT, weights, other, axes=made)


def reshaped(s: Sketch) -> str:
    """Four places as two by two."""
    x = s.any(1)
    axes = s.axes(x)
    if "c" not in axes or {"a", "d"} & {*axes}:
        return unary(s)
    names = " ".join("a d" if a == "c" else a for a in axes)
    return s.one(Of.MULTIPLY, s.draft.seen(x, names), s.weight(["d"]))


def repeated(s: Sketch) -> str:
    """A block along an axis: carries, weights of each time and of all, and what it keeps."""
    first = s.any()
    axes = s.axes(first)
    if "time" in axes or len(axes) > MOST_AXES - 1:
        return unary(s)
    last, kept = s.name("last"), s.name("kept")
    outside = s.pool
    with s.draft.repeated(s.name("block"), "time", (first, last), reverse=s.rng.random() < 0.5):
        s.pool = [first, *(p for p in outside if "time" in s.draft.tensors[p].axes)]
        each, shared = s.weight(s.some(axes, 0), "time"), s.weight(s.some(axes, 0))
        s.pool.append(s.one(Of.MULTIPLY, first, each))
        s.pool.append(s.one(Of.ADD, s.any(), shared))
        for _ in range(s.rng.randint(0, 2)):
            s.pool.append(s.rng.choice([unary, binary, weighted, rows])(s))
        again = s.one(Of.TANH, s.any())
        gone = [a for a in s.axes(again) if a not in axes]
        if gone:
            again = s.draft.reduced(s.name("sum"), Of.SUM, again, over=" ".join(gone))
        s.draft.make(last, Of.ADD, first, again, axes=" ".join(axes))
        own = [a for a in s.axes(s.pool[-1]) if a != "time"]
        s.draft.make(kept, Of.SIGMOID, s.pool[-1], axes=" ".join(own),
                     stored=" ".join(["time", *own]))  # fmt: skip
    s.pool = [*outside, kept]
    return last


KINDS: tuple[Callable[[Sketch], str], ...] = (
    unary, binary, weighted, product, rows, reduced, gathered, scattered, joined, scanned,
    convolved, pooled, cropped, dropped, turned, complex_product, seen, reshaped, repeated,
)  # fmt: skip


def random_graph(rng: Random, operations: int = 6, *, repeats: bool = True) -> Graph:
    """A graph of some random operations, with a loss of the last."""
    kinds = KINDS if repeats else KINDS[:-1]
    s = Sketch(rng)
    for name, size in SIZES.items():
        s.draft.axis(rng.choice(list(AxisUse)), **{name: size})
    for _ in range(2):
        axes = rng.sample(PLAIN, rng.randint(1, 3))
        s.pool.append(s.draft.tensor(s.name("x"), " ".join(axes)))
    for _ in range(operations):
        made = rng.choice(kinds)(s)
        # Small numbers stay small.
        axes = len(s.axes(made))
        if axes > MOST_AXES:
            over = " ".join(s.axes(made)[MOST_AXES - 1 :])
            made = s.draft.reduced(s.name("sum"), Of.SUM, made, over=over)
        s.pool.append(s.one(Of.TANH, made) if rng.random() < 0.5 else made)
    last = next(name for name in reversed(s.pool) if s.axes(name))
    probed(s.draft, last, " ".join(s.axes(last)))
    return s.draft.graph()
