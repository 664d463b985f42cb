"""What operations compute: a table with a row for each function, its work and its derivative.

A derivative is a list of *steps*, operations again, so that the backward pass of a graph is a
graph of the same kind. A step reads operands of the function (``x0``, ``x1``, ...; left out where
there is none), its result ``y``, the gradient of that ``dy``, and the results of the steps before
it (``s0``, ...). What is on axes that the operand does not have is added up afterwards; no steps
at all pass ``dy`` on. A new function of single elements is one row, and one in the interpreter
that the tests check derivatives with.

*Work* is floating-point operations on each element that is looped over (two for each term of a
product): an addition, product, quotient, comparison, exponential, logarithm or tanh counts one, as
the formula of the source has them; what is done once a row, such as a root, counts nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

ANY = 99  # axes


class OperationKind(StrEnum):
    """What kind of loop nest an operation is.

    ``contraction``: products of two operands, added up over axes that the result does not have;
    ``convolution``: one with windows over axes (`crosstack.workload.axes.Window`), in an operand or
    in the result; ``pooling``: what lies in a window is looked at as a whole; ``elementwise``:
    operands broadcast by the names of their axes; ``reduction``: rows over some axes are looked at
    as a whole; ``gather`` and ``scatter``: places along axes are read from, or added to, where an
    index says; -1 is nowhere; ``scan``: along an axis, each place needs the one before;
    ``concatenation``: an axis of the one is the first or last places of an axis of the other.
    """

    CONTRACTION = "contraction"
    CONVOLUTION = "convolution"
    POOLING = "pooling"
    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    GATHER = "gather"
    SCATTER = "scatter"
    SCAN = "scan"
    CONCATENATION = "concatenation"


class Result(StrEnum):
    """Axes of what a reduction makes: those of its first operand, fewer, or others instead."""

    KEEPS = "keeps"
    REDUCES = "reduces"
    SELECTS = "selects"


class Function(StrEnum):
    """What an operation computes; `TABLE` has a row for each."""

    PRODUCT = "product"
    CONVOLVE = "convolve"
    FILL = "fill"
    COPY = "copy"
    QUANTIZE = "quantize"
    SPREAD = "spread"
    SCALE = "scale"
    ADD = "add"
    SUBTRACT = "subtract"
    MULTIPLY = "multiply"
    DIVIDE = "divide"
    EXPONENTIAL = "exponential"
    LOGARITHM = "logarithm"
    TANH = "tanh"
    TANH_GRADIENT = "tanh_gradient"
    SIGMOID = "sigmoid"
    SIGMOID_GRADIENT = "sigmoid_gradient"
    RELU = "relu"
    SQUARED_RELU = "squared_relu"
    SQUARED_RELU_GRADIENT = "squared_relu_gradient"
    KEPT_GRADIENT = "kept_gradient"
    GELU = "gelu"
    GELU_GRADIENT = "gelu_gradient"
    SILU = "silu"
    SILU_GRADIENT = "silu_gradient"
    GATED_GELU = "gated_gelu"
    GATED_SILU = "gated_silu"
    SOFTPLUS = "softplus"
    SOFT_CAP = "soft_cap"
    SOFT_CAP_GRADIENT = "soft_cap_gradient"
    COMPLEX_MULTIPLY = "complex_multiply"
    COMPLEX_GRADIENT = "complex_gradient"
    DROPOUT = "dropout"
    ROTARY = "rotary"
    SUM = "sum"
    MEAN = "mean"
    SOFTMAX = "softmax"
    SOFTMAX_GRADIENT = "softmax_gradient"
    LAYER_NORM = "layer_norm"
    LAYER_NORM_GRADIENT = "layer_norm_gradient"
    BATCH_NORM = "batch_norm"
    BATCH_NORM_GRADIENT = "batch_norm_gradient"
    RMS_NORM = "rms_norm"
    RMS_NORM_GRADIENT = "rms_norm_gradient"
    CROSS_ENTROPY = "cross_entropy"
    CROSS_ENTROPY_GRADIENT = "cross_entropy_gradient"
    MAX_POOL = "max_pool"
    MAX_POOL_GRADIENT = "max_pool_gradient"
    CROP = "crop"
    CROP_GRADIENT = "crop_gradient"
    TOP_K = "top_k"
    SELECT = "select"
    GATHER = "gather"
    SCATTER = "scatter"
    CONCATENATE = "concatenate"
    SLICE = "slice"
    SHIFT = "shift"
    RECURRENCE = "recurrence"


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of a derivative.

    ``reverse`` runs it the other way along its axis than the function; ``parameter`` None: that of
    the function.
    """

    function: Function
    reads: tuple[str, ...]
    reverse: bool = False
    parameter: float | None = None


Derivative = tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionRow:
    """What is known of a function.

    ``operands`` and axes ``over`` that it names: the fewest and the most [1]; ``work`` is
    floating-point operations on each element. ``derivatives`` are steps by operand, None where
    there is no derivative (an index); empty: nobody takes it. ``result`` are the axes of what a
    reduction makes; ``reversible``: it may run the other way along its axis. Operands that are
    ``linear`` it may have as parts of a sum, all of them at once: its results then are parts of the
    sum. ``passes``: how often it reads its operands, more than once where rows are too long to be
    held on a chip [1]. ``source`` is where its formula is from.
    """

    kind: OperationKind
    operands: tuple[int, int]
    work: float
    over: tuple[int, int] = (0, 0)
    derivatives: tuple[Derivative | None, ...] = ()
    result: Result = Result.KEEPS
    reversible: bool = False
    linear: tuple[int, ...] = ()
    passes: int = 1
    source: str = ""


def _steps(*said: str, parameter: float | None = None) -> Derivative:
    """Return steps, each a function and what it reads, with ``~`` before one in reverse.

    ``parameter`` is that of the last.
    """
    steps = []
    for number, (name, *reads) in enumerate(map(str.split, said), start=1):
        function, own = Function(name.removeprefix("~")), parameter if number == len(said) else None
        steps.append(Step(function, tuple(reads), name.startswith("~"), own))
    return tuple(steps)


def _row(
    kind: OperationKind,
    operands: int | tuple[int, int],
    work: float,
    *derivatives: Derivative | None,
    **more: Any,
) -> FunctionRow:
    """Return a row; one number of operands is both the fewest and the most."""
    counts = operands if isinstance(operands, tuple) else (operands, operands)
    return FunctionRow(kind=kind, operands=counts, work=work, derivatives=derivatives, **more)


_point = partial(_row, OperationKind.ELEMENTWISE)
_rows = partial(_row, OperationKind.REDUCTION, over=(1, ANY))
_window = partial(_row, OperationKind.POOLING)
_places = partial(_row, over=(1, ANY), linear=(0,))
_along = partial(_row, over=(1, 1), reversible=True)
# A product of complex numbers: six operations for two numbers.
_halves = partial(_row, OperationKind.ELEMENTWISE, 2, 3, over=(1, 1), source="bailey1990fft")


F = Function
# A term that is added to all, as the shift of a norm, passes the gradient on: no steps.
PASSED: Derivative = ()
_GELU, _ATTENTION, _GATED = "hendrycks2016gelu", "dao2022flashattention", "shazeer2020glu"


def _gated(name: str) -> tuple[Derivative, Derivative]:
    """Return the derivatives of f(x0) x1, which read what it read and nothing that it made."""
    return _steps("multiply dy x1", f"{name}_gradient x0 s0"), _steps(
        f"{name} x0", "multiply dy s0"
    )


TABLE: dict[Function, FunctionRow] = {
    # ------------------------------------------------------------ products
    F.PRODUCT: _row(
        OperationKind.CONTRACTION, 2, 2, _steps("product dy x1"), _steps("product dy x0")
    ),
    F.CONVOLVE: _row(
        OperationKind.CONVOLUTION, 2, 2, _steps("convolve dy x1"), _steps("convolve dy x0")
    ),
    # ------------------------------------------------------------ elements
    F.FILL: _point(0, 0),
    F.COPY: _point(1, 0, PASSED, linear=(0,)),
    # Into numbers of fewer bits: a product with a scale, and the largest for the next one. The
    # parameter is how many copies are written, the second one transposed.
    F.QUANTIZE: _point(1, 2, source="micikevicius2022fp8"),
    F.SPREAD: _point(1, 1, over=(1, ANY), linear=(0,)),  # each gets an equal share of a mean
    F.SCALE: _point(1, 1, _steps("scale dy"), linear=(0,)),
    F.ADD: _point(2, 1, PASSED, PASSED, linear=(0, 1)),
    F.SUBTRACT: _point(2, 1, PASSED, _steps("scale dy", parameter=-1.0), linear=(0, 1)),
    F.MULTIPLY: _point(2, 1, _steps("multiply dy x1"), _steps("multiply dy x0")),
    F.DIVIDE: _point(
        2, 1, _steps("divide dy x1"),
        _steps("multiply dy y", "divide s0 x1", "scale s1", parameter=-1.0),
    ),
    F.EXPONENTIAL: _point(1, 1, _steps("multiply dy y")),
    F.LOGARITHM: _point(1, 1, _steps("divide dy x0")),
    F.TANH: _point(1, 1, _steps("tanh_gradient y dy")),
    F.TANH_GRADIENT: _point(2, 3),  # (1 - y y) dy
    F.SIGMOID: _point(1, 3, _steps("sigmoid_gradient y dy")),
    F.SIGMOID_GRADIENT: _point(2, 3),  # y (1 - y) dy
    F.RELU: _point(1, 1, _steps("kept_gradient y dy")),
    F.SQUARED_RELU: _point(1, 2, _steps("squared_relu_gradient x0 dy"), source="so2021primer"),
    F.SQUARED_RELU_GRADIENT: _point(2, 3, source="so2021primer"),  # 2 max(x, 0) dy
    F.KEPT_GRADIENT: _point(2, 1),  # dy where y is not zero
    F.GELU: _point(1, 9, _steps("gelu_gradient x0 dy"), source=_GELU),  # with tanh
    F.GELU_GRADIENT: _point(2, 18, source=_GELU),
    F.SILU: _point(1, 3, _steps("silu_gradient x0 dy"), source=_GELU),
    F.SILU_GRADIENT: _point(2, 8, source=_GELU),
    # The first through the nonlinearity, times the second: one kernel, as they are run.
    F.GATED_GELU: _point(2, 10, *_gated("gelu"), source=_GATED),
    F.GATED_SILU: _point(2, 4, *_gated("silu"), source=_GATED),
    F.SOFTPLUS: _point(1, 3, _steps("sigmoid x0", "multiply dy s0"), source="gu2023mamba"),
    # c tanh(x / c), c being the parameter.
    F.SOFT_CAP: _point(1, 3, _steps("soft_cap_gradient y dy"), source="gemma2024gemma2"),
    F.SOFT_CAP_GRADIENT: _point(2, 4, source="gemma2024gemma2"),
    # Of complex numbers: an axis has real parts in its first half, imaginary ones in the second.
    F.COMPLEX_MULTIPLY: _halves(_steps("complex_gradient x1 dy"), _steps("complex_gradient x0 dy")),
    F.COMPLEX_GRADIENT: _halves(),  # the conjugate of the first times the second
    # Operands and a mask; the parameter is the share that is left out.
    F.DROPOUT: _point(
        2, 2, _steps("dropout dy x1"), None, linear=(0,), source="korthikanti2023reducing"
    ),
    # Halves of an axis turned by angles of their place, to a base that is the parameter.
    F.ROTARY: _along(
        OperationKind.ELEMENTWISE, 2, 3, _steps("~rotary dy x1"), None, source="su2021roformer"
    ),
    # ------------------------------------------------------------ windows
    # The greatest of a window; its gradient goes to the first of those, which is looked for again.
    F.MAX_POOL: _window(1, 1, _steps("max_pool_gradient x0 dy"), source="he2016resnet"),
    F.MAX_POOL_GRADIENT: _window(2, 2, source="he2016resnet"),
    # The places from a start on, as many as the result has: windows of one tap. Its gradient is
    # zero at the others.
    F.CROP: _window(1, 0, _steps("crop_gradient dy"), linear=(0,), source="ronneberger2015unet"),
    F.CROP_GRADIENT: _window(1, 0, linear=(0,), source="ronneberger2015unet"),
    # ------------------------------------------------------------ rows
    F.SUM: _rows(1, 1, _steps("copy dy"), result=Result.REDUCES, linear=(0,)),
    F.MEAN: _rows(1, 1, _steps("spread dy"), result=Result.REDUCES, linear=(0,)),
    # The parameter is a factor of the row where it is not 0: part of the exponent, and no kernel.
    F.SOFTMAX: _rows(1, 5, _steps("softmax_gradient y dy"), source=_ATTENTION),
    F.SOFTMAX_GRADIENT: _rows(2, 4, source=_ATTENTION),
    # With or without a factor and a term of its own; the parameter keeps a root from zero.
    F.LAYER_NORM: _rows(
        (1, 3), 7, _steps("layer_norm_gradient x0 dy x1"),
        _steps("layer_norm x0", "multiply dy s0"), PASSED, source="ba2016layer",
    ),
    F.LAYER_NORM_GRADIENT: _rows((2, 3), 13, source="ba2016layer"),
    # The same over all places of all items for each channel: once for mean and deviation, and once
    # for what follows from them.
    F.BATCH_NORM: _rows(
        (1, 3), 7, _steps("batch_norm_gradient x0 dy x1"),
        _steps("batch_norm x0", "multiply dy s0"), PASSED, passes=2, source="ioffe2015batch",
    ),
    F.BATCH_NORM_GRADIENT: _rows((2, 3), 13, passes=2, source="ioffe2015batch"),
    F.RMS_NORM: _rows(
        (1, 2), 4, _steps("rms_norm_gradient x0 dy x1"), _steps("rms_norm x0", "multiply dy s0"),
        source="zhang2019root",
    ),
    F.RMS_NORM_GRADIENT: _rows((2, 3), 9, source="zhang2019root"),
    # Of logits and the index that is right.
    F.CROSS_ENTROPY: _rows(
        2, 4, _steps("cross_entropy_gradient x0 x1 dy"), None, result=Result.REDUCES,
        source="korthikanti2023reducing",
    ),
    F.CROSS_ENTROPY_GRADIENT: _rows(3, 7, source="korthikanti2023reducing"),
    # The greatest of a row stay, the others are zero; the parameter says how many.
    F.TOP_K: _rows(1, 1, _steps("kept_gradient y dy"), source="shazeer2017moe"),
    # Places of the greatest of a row, greatest first; -1 where they are not above zero. The
    # parameter says in how many parts of the row they lie at most, or of how many parts they are
    # places; 0: in any.
    F.SELECT: _rows(1, 1, None, result=Result.SELECTS, source="shazeer2017moe"),
    # ------------------------------------------------------------ places
    F.GATHER: _places(OperationKind.GATHER, 2, 0, _steps("scatter dy x1"), None),
    F.SCATTER: _places(OperationKind.SCATTER, 2, 1, _steps("gather dy x1"), None),
    # ------------------------------------------------------------ one behind the other
    # The places of the second follow those of the first.
    F.CONCATENATE: _row(
        OperationKind.CONCATENATION, 2, 0, _steps("slice dy"), _steps("~slice dy"), over=(1, 1),
        linear=(0, 1),
    ),
    # The first places, or in reverse the last.
    F.SLICE: _along(OperationKind.CONCATENATION, 1, 0, linear=(0,)),
    # ------------------------------------------------------------ scans
    # What was one place before; zero at the first.
    F.SHIFT: _along(OperationKind.SCAN, 1, 0, _steps("~shift dy"), linear=(0,)),
    # y[t] = x0[t] y[t - 1] + x1[t]; without the axis, x0 is the same at every place.
    F.RECURRENCE: _along(
        OperationKind.SCAN, 2, 2,
        _steps("~shift x0", "~recurrence s0 dy", "shift y", "multiply s1 s2"),
        _steps("~shift x0", "~recurrence s0 dy"), source="blelloch1990prefix",
    ),
}  # fmt: skip
