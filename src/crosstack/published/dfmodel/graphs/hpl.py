"""The factorisation of a dense matrix, panel by panel, as a dataflow graph.

The kernels and sizes are those of the public generator (``ko2025dfmodel``,
``dfmodel_code``), which keeps of high-performance LINPACK (``dongarra2003linpack``) the update of
the trailing matrix, the broadcast of the panel and the exchange of rows.
"""

from __future__ import annotations

from crosstack.errors import require, require_whole
from crosstack.published.dfmodel.graphs.builders import MOST_KERNELS, join
from crosstack.workload import kernels as ops
from crosstack.workload.workload import Workload


def hpl(
    *,
    size: int,
    block: int,
    iterations: int | None = None,
    word: int = 8,
    name: str = "hpl",
) -> Workload:
    """Return the factorisation of a ``size`` x ``size`` matrix by panels of ``block`` columns.

    One kernel an iteration, each reading the panel of the one before.

    Parameters
    ----------
    size, block : int
        Rows of the matrix, columns of a panel. [1]
    iterations : int, optional
        How many iterations, from the first; all of them, ``size / block`` rounded up, if left out.
        [1]
    word : int
        Bytes of one element. [B]

    Raises
    ------
    InputError
        If the block is larger than the matrix, or there are more iterations than panels.

    Notes
    -----
    Iteration i has ``m = size - i block`` rows left and works ``2 m m block`` FLOP; its panel of
    ``m x block`` words is broadcast along the rows of chips and as much is exchanged along the
    columns.

    References
    ----------
    ko2025dfmodel, dfmodel_code, dongarra2003linpack
    """
    for field, value in {"size": size, "block": block, "word": word}.items():
        require_whole(field, value)
    require(block <= size, "block", block, f"at most the size of the matrix, {size}")
    panels = -(-size // block)
    count = panels if iterations is None else iterations
    require_whole("iterations", count)
    require(count <= panels, "iterations", count, f"at most size / block = {panels}")
    most = f"at most {MOST_KERNELS} (now {panels} panels; a larger block has fewer)"
    require(count <= MOST_KERNELS, "iterations", count, most)
    sides = [size - i * block for i in range(count)]
    panel_sizes = [float(side * block * word) for side in sides]
    kernels = [
        ops.Kernel(
            name=f"Iteration_{i + 1}",
            kind=ops.KernelKind.GEMM,
            m=side,
            k=side,
            n=block,
            # The second factor is the rest of the matrix, which lies in main memory.
            input_sizes=(panel_sizes[max(i - 1, 0)], float(side) * side * word),
            output_size=panel_sizes[i],
            unit=ops.ComputeUnit.SYSTOLIC,
            tiling=ops.Axis.NONE,
            communications=tuple(
                ops.Communication(collective=collective, size=panel_sizes[i])
                for collective in (ops.Collective.BROADCAST, ops.Collective.POINT_TO_POINT)
            ),
        )
        for i, side in enumerate(sides)
    ]
    return Workload(
        graph=join(kernels, [(i, i + 1, 0) for i in range(1, count)], word),
        placement=ops.Placement.GRID,
        data_size=float(size) * size * word,
        name=name,
        item="matrix",
    )
