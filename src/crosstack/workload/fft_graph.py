"""A Fourier transform of very many points over named axes (``bailey1990fft``).

The points form a square: columns are transformed, then rows. A transform of ``radix^l`` points is
``l`` products with a matrix of ``radix`` points, over one digit of a point's place after another.
Nothing says that the square is transposed: where all chips have columns first and then rows, an
all-to-all is the change from one layout to the other.
"""

from __future__ import annotations

import math

from crosstack.errors import require, require_whole
from crosstack.workload.axes import AxisUse
from crosstack.workload.dataflow import Graph
from crosstack.workload.draft import Draft
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import Function
from crosstack.workload.operations import Role


def fourier_graph(*, length: int, radix: int = 2, dtype: Dtype = Dtype.FP32) -> Graph:
    """Return the transform of ``length`` complex points.

    Parameters
    ----------
    length : int
        Points, the square of a power of the radix. [1]
    radix : int
        Points of one small transform. [1]
    dtype : Dtype
        Of the two parts of every number.

    Raises
    ------
    InputError
        If the length is no square of a power of the radix.

    Notes
    -----
    Point ``p = row n + column`` and frequency ``k = row_wave + n column_wave``. Each of the 2 l
    small transforms works 8 radix operations on a point; roots of unity between them (`Role`
    constant), 6 on a point.
    """
    require_whole("length", length, minimum=4)
    require_whole("radix", radix, minimum=2)
    side = math.isqrt(length)
    levels = round(math.log(side, radix))
    good = side * side == length and radix**levels == side
    require(good, "length", length, f"the square of a power of the radix, {radix}")
    draft = Draft(dtype=dtype)
    draft.axis(AxisUse.TOKEN, column=side)
    draft.axis(row=side, row_wave=side, part=2, other_part=2)
    for what in ("row", "column"):
        for name in (what, f"{what}_wave"):
            draft.axis(**{f"{name}_{j}": radix for j in range(1, levels + 1)})
    points = draft.tensor("x", "row column part")
    matrix = draft.tensor("Small", "row_1 part row_wave_1 other_part", Role.CONSTANT)
    waves = _transform(draft, points, matrix, "row", ("", "column"), levels)
    both = "row_wave column part"
    roots = draft.tensor("Roots", both, Role.CONSTANT)
    turned = _turned(draft, "Turned", waves, roots, both)
    _transform(draft, turned, matrix, "column", ("row_wave", ""), levels)
    return draft.graph()


def _turned(draft: Draft, name: str, read: str, roots: str, axes: str) -> str:
    """Add a product of complex numbers, of what is seen with some axes."""
    seen = draft.seen(read, axes)
    return draft.make(name, Function.COMPLEX_MULTIPLY, seen, roots, axes=axes, over="part")


def _transform(
    draft: Draft, read: str, matrix: str, what: str, others: tuple[str, str], levels: int
) -> str:
    """Add a transform along an axis that has others before and behind it.

    Digits of a place come most significant first; those of a wave least significant first, so they
    are stored the other way round.
    """
    before, behind = others

    def named(done: int, part: str) -> str:
        waves = [f"{what}_wave_{j}" for j in range(done, 0, -1)]
        left = [f"{what}_{j}" for j in range(done + 1, levels + 1)]
        return " ".join([before, *left, *waves, behind, part])

    for j in range(1, levels + 1):
        small = draft.seen(matrix, f"{what}_{j} part {what}_wave_{j} other_part")
        seen = draft.seen(read, named(j - 1, "part"))
        read = draft.product(f"Step_{what}_{j}", seen, small, named(j, "other_part"))
        if j < levels:
            left = " ".join(f"{what}_{i}" for i in range(j + 1, levels + 1))
            axes, made = f"{left} {what}_wave_{j} part", named(j, "part")
            roots = draft.tensor(f"Roots_{what}_{j}", axes, Role.CONSTANT)
            read = _turned(draft, f"Turned_{what}_{j}", read, roots, made)
    return read
