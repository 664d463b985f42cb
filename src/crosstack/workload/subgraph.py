"""A graph of some kernels of another one, some of them perhaps twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from crosstack.workload.kernel_graph import COLUMNS, Edge, KernelGraph, neighbours
from crosstack.workload.ordering import topological_order

# Columns of `KernelGraph` that say how its kernels are joined, not what each is.
_JOINED = (
    "n", "source", "target", "operand", "tensor", "elided", "tensor_size", "join_source",
    "join_target", "join_operand", "depth", "levels", "order", "preds", "succs", "open_output",
    "layouts",
)  # fmt: skip


def graph_of_rows(
    graph: KernelGraph,
    rows: Sequence[int],
    edges: Sequence[Edge],
    later: Sequence[tuple[int, int]] = (),
) -> KernelGraph:
    """Return a graph of some kernels of another, some of them perhaps twice.

    Parameters
    ----------
    rows : sequence of int
        Which kernel of the other one each is; as far as they are in both, by the same numbers. [1]
    edges : sequence of Edge
        Between them, by the new numbers; that of the tensor does not matter, as each kernel makes
        one.
    later : sequence of pairs, optional
        Kernels of which the second runs behind the first, though it reads nothing of it.
    """
    of_kernels = dict[str, Any]()
    for name in COLUMNS:
        value = getattr(graph, name)
        if name in _JOINED or not isinstance(value, tuple | np.ndarray) or len(value) != graph.n:
            continue  # lists have no splits
        of_kernels[name] = (
            tuple(value[i] for i in rows) if isinstance(value, tuple) else value[[*rows]]
        )
    size = dict(zip(graph.source.tolist(), graph.tensor_size[graph.tensor].tolist(), strict=True))
    joined = sorted((i, j, operand, elided) for i, j, operand, _, elided in edges)
    makers = {maker: number for number, maker in enumerate(dict.fromkeys(i for i, *_ in joined))}
    pairs = [*(edge[:2] for edge in joined), *later]
    order, levels = topological_order(len(rows), pairs)
    source, target, operand = np.array([edge[:3] for edge in joined], dtype=np.int64).T.copy()
    level = np.array(levels, dtype=np.int64)
    preds, succs = neighbours(len(rows), pairs)
    return replace(
        graph,
        **of_kernels,
        n=len(rows),
        open_output=~np.isin(np.arange(len(rows)), source),
        tensor_size=np.array([size[rows[maker]] for maker in makers], dtype=np.float64),
        source=source,
        target=target,
        operand=operand,
        tensor=np.array([makers[i] for i in source.tolist()], dtype=np.int64),
        elided=np.array([edge[3] for edge in joined], dtype=np.bool_),
        order=order,
        levels=levels,
        depth=level[target] - level[source] + 1,
        preds=preds,
        succs=succs,
    )
