"""A Fourier transform of very many points as a dataflow graph.

The kernels and sizes are those of the public generator (``ko2025dfmodel``,
``dfmodel_code``): the points form a square; all columns are transformed, the square is transposed
by an all-to-all, and all rows are transformed (``bailey1990fft``).
"""

from __future__ import annotations

import math

from crosstack.errors import require, require_whole
from crosstack.published.dfmodel.graphs.builders import join
from crosstack.workload import kernels as ops
from crosstack.workload.dtype import dtype_of_complex
from crosstack.workload.workload import Workload


def fft(*, length: int, radix: int = 2, word: int = 8, name: str = "fft") -> Workload:
    """Return the transform of ``length`` points with butterflies of ``radix`` points.

    Parameters
    ----------
    length, radix : int
        Points, and points of one butterfly. [1]
    word : int
        Bytes of one point, a complex number: it is computed with numbers of half of it. [B]

    Raises
    ------
    InputError
        If the radix is below 2 or above the side of the square, or there are fewer than 4 points.

    Notes
    -----
    With ``n`` the whole part of the square root of ``length``, each of the two steps is written
    as an n x K by K x n product, K = floor(4 log2(n) / log2(radix) radix), which costs as much as
    n transforms of n complex points when each of the log_radix(n) levels takes 8 radix FLOP a
    point. The first factor is no weight: twiddle factors are computed.

    References
    ----------
    ko2025dfmodel, dfmodel_code, bailey1990fft
    """
    require_whole("length", length, minimum=4)
    require_whole("word", word)
    n = math.isqrt(length)
    require_whole("radix", radix, minimum=2)
    require(radix <= n, "radix", radix, f"2 to {n}, the square root of the length")
    size = float(n * n * word)
    transpose = ops.Communication(collective=ops.Collective.ALL_TO_ALL, size=size)
    kernels = [
        ops.Kernel(
            name=f"Step_{step}",
            kind=ops.KernelKind.GEMM_WEIGHT,
            m=n,
            k=int(4 * math.log2(n) / math.log2(radix) * radix),
            n=n,
            input_sizes=(size,),
            output_size=size,
            unit=ops.ComputeUnit.SYSTOLIC,
            tiling=ops.Axis.NONE,
            communications=(transpose,) if step == 2 else (),
        )
        for step in (1, 2)
    ]
    return Workload(
        graph=join(kernels, [(1, 2, 0)], word, dtype_of_complex(word)),
        placement=ops.Placement.COLUMNS,
        data_size=float(length) * word,
        name=name,
        item="transform",
    )
