"""Transformer layers as dataflow graphs: forward, forward and backward, and several layers.

The kernels, edges and sizes are those of the public generators (``ko2025dfmodel``,
``dfmodel_code``), quirks included, so that published results can be reproduced: no backward
pass of the first layer norm, no residual-gradient additions, and the value projection's backward
kernel is not split by heads.
"""

from __future__ import annotations

from dataclasses import replace

from crosstack.errors import require, require_whole
from crosstack.io.dfmodel.vocabulary import is_row_wise, saved_of
from crosstack.published.dfmodel.graphs.builders import elementwise, join, product_of
from crosstack.records import require_type
from crosstack.workload.kernel_graph import KernelGraph
from crosstack.workload.kernels import Direction, Kernel
from crosstack.workload.workload import Workload

# (producer, consumer, operand): kernel numbers of the forward layer, from 1.
_FORWARD_EDGES = (
    (1, 2, 0), (2, 3, 0), (2, 4, 0), (2, 5, 0), (3, 6, 0), (4, 6, 1), (6, 7, 0), (7, 8, 0),
    (5, 9, 0), (8, 9, 1), (9, 10, 0), (10, 11, 0), (11, 12, 0), (1, 12, 1), (12, 13, 0),
    (13, 14, 0), (14, 15, 0), (15, 16, 0), (16, 17, 0), (17, 18, 0), (12, 18, 1),
)  # fmt: skip
_BACKWARD_EDGES = (
    (19, 20, 0), (20, 21, 0), (21, 22, 0), (22, 23, 0), (23, 24, 0), (24, 25, 0), (25, 26, 0),
    (26, 27, 0), (5, 27, 1), (26, 28, 0), (8, 28, 1), (27, 30, 0), (28, 29, 0), (30, 31, 0),
    (31, 32, 0), (31, 33, 0), (4, 32, 1), (3, 33, 1), (32, 34, 0), (33, 35, 0),
    (20, 36, 0), (15, 36, 1), (22, 37, 0), (13, 37, 1), (25, 38, 0), (9, 38, 1), (28, 39, 0),
    (2, 39, 1), (33, 40, 0), (2, 40, 1), (32, 41, 0), (2, 41, 1),
)  # fmt: skip


def _layer(hidden: int, seq: int, heads: int, head: int, word: int) -> tuple[list[Kernel], ...]:
    """Return the kernels of a layer, forward and backward."""
    a, q, w = (float(count * word) for count in (hidden * seq, seq * seq * heads, hidden * hidden))

    def direction(name: str) -> Direction:
        return Direction.BACKWARD if "_bwd" in name else Direction.FORWARD

    def point(name: str, rows: int = hidden, *, outer: int = 1, inputs: int = 1) -> Kernel:
        return elementwise(
            name, rows, seq, outer=outer, word=word, inputs=inputs, row_wise=is_row_wise(name),
            direction=direction(name),
        )  # fmt: skip

    def scores(name: str) -> Kernel:
        return point(name, seq, outer=heads)

    def product(
        name: str, shape: tuple[int, int, int, int], *inputs: float, weight: float = 0.0
    ) -> Kernel:
        return product_of(
            name, shape, word=word, input_sizes=inputs, weight_size=weight,
            direction=direction(name),
        )  # fmt: skip

    def update(name: str, m: int, n: int, *inputs: float) -> Kernel:
        return product_of(
            f"{name}_bwd_weight_update", (1, m, seq, n), word=word, input_sizes=inputs,
            direction=Direction.BACKWARD, weight_update=True,
        )  # fmt: skip

    wide = 4 * hidden
    per_head, square = (heads, head, hidden, seq), (1, hidden, hidden, seq)
    into, out_of = (1, wide, hidden, seq), (1, hidden, wide, seq)
    outer, inner = (heads, seq, head, seq), (heads, head, seq, seq)
    forward = [
        point("Add_Prev_Layer"),
        point("LayerNorm_1"),
        *(product(name, per_head, a, weight=w) for name in ("Q", "K", "V")),
        product("MHA_GEMM_1", outer, a, a),
        scores("SOFTMAX"),
        scores("DropOut_1"),
        product("MHA_GEMM_2", inner, a, q),
        product("PROJ_GEMM", square, a, weight=w),
        point("DropOut_2"),
        point("Add_1", inputs=2),
        point("LayerNorm_2"),
        product("FFN0", into, a, weight=4 * w),
        point("GeLU", wide),
        product("FFN1", out_of, 4 * a, weight=4 * w),
        point("DropOut_3"),
        point("Add_2", inputs=2),
    ]
    backward = [
        point("Loss_bwd"),
        point("DropOut_3_bwd"),
        product("FFN1_bwd", into, a, weight=4 * w),
        point("GeLU_bwd", wide),
        product("FFN0_bwd", out_of, 4 * a, weight=4 * w),
        point("LayerNorm_2_bwd"),
        point("DropOut_2_bwd"),
        product("PROJ_GEMM_bwd", square, a, weight=w),
        product("MHA_GEMM_2_bwd1", outer, a, a),
        product("MHA_GEMM_2_bwd2", inner, a, q),
        product("V_bwd", square, a, weight=w),
        scores("DropOut_1_bwd"),
        scores("SOFTMAX_bwd"),
        product("MHA_GEMM_1_bwd1", inner, q, a),
        product("MHA_GEMM_1_bwd2", inner, q, a),
        product("Q_bwd", per_head, a, weight=w),
        product("K_bwd", per_head, a, weight=w),
        update("FFN1", wide, hidden, a, 4 * a),
        update("FFN0", hidden, wide, 4 * a, a),
        *(update(name, hidden, hidden, a, a) for name in ("PROJ_GEMM", "V", "K", "Q")),
    ]
    return forward, backward


def llm_graph(
    *,
    hidden: int,
    sequence_length: int,
    n_heads: int,
    head_size: int,
    training: bool,
    word: int = 2,
    layers_in_graph: int = 1,
) -> KernelGraph:
    """Transformer layers: 18 kernels and 21 edges each forward, 41 and 53 in training.

    Parameters
    ----------
    hidden, sequence_length, n_heads, head_size : int
        Model width, tokens of a sequence, attention heads and width of one head. [1]
    training : bool
        With the backward pass.
    word : int
        Bytes of one element. [B]
    layers_in_graph : int
        Layers to spell out; layer l > 1 reads layer l - 1, and the backward pass of layer l that of
        layer l + 1 (the sum of the gradients of the query and key projections is not modelled: the
        key's is passed on). [1]

    Raises
    ------
    InputError
        If ``n_heads * head_size != hidden`` or a number is not a whole number above 0.

    References
    ----------
    ko2025dfmodel, dfmodel_code
    """
    for name, value in {
        "hidden": hidden, "sequence_length": sequence_length, "n_heads": n_heads,
        "head_size": head_size, "word": word, "layers_in_graph": layers_in_graph,
    }.items():  # fmt: skip
        require_whole(name, value)
    filled = n_heads * head_size
    allowed = (
        f"n_heads x head_size = hidden ({n_heads} x {head_size} is {filled}, hidden is {hidden})"
    )
    require(filled == hidden, "n_heads", n_heads, allowed)
    one, back = _layer(hidden, sequence_length, n_heads, head_size, word)
    if not training:
        return _stack(one, _FORWARD_EDGES, word, layers_in_graph, joins=((18, 1, 0),))
    one = [replace(kernel, saved=saved_of(kernel.name)) for kernel in one]
    edges = _FORWARD_EDGES + _BACKWARD_EDGES
    return _stack(
        one + back, edges, word, layers_in_graph, joins=((18, 1, 0),), back_joins=((35, 19, 0),)
    )


def _stack(
    one: list[Kernel],
    edges: tuple[tuple[int, int, int], ...],
    word: int,
    layers: int,
    *,
    joins: tuple[tuple[int, int, int], ...],
    back_joins: tuple[tuple[int, int, int], ...] = (),
) -> KernelGraph:
    """Repeat a layer; ``joins`` lead from layer l to l + 1, ``back_joins`` from l + 1 to l."""
    if layers == 1:
        return join(one, edges, word)
    size = len(one)
    kernels = [
        replace(kernel, name=f"{kernel.name}_layer_{layer}")
        for layer in range(layers)
        for kernel in one
    ]
    all_edges: list[tuple[int, int, int]] = []
    for layer in range(layers):
        here, after = layer * size, (layer + 1) * size
        all_edges += [(i + here, j + here, o) for i, j, o in edges]
        if layer + 1 < layers:
            all_edges += [(i + here, j + after, o) for i, j, o in joins]
            all_edges += [(i + after, j + here, o) for i, j, o in back_joins]
    return join(kernels, all_edges, word)


def llm(
    *,
    hidden: int,
    sequence_length: int,
    n_heads: int,
    head_size: int,
    n_layers: int,
    global_batch_size: int,
    training: bool = True,
    word: int = 2,
    layers_in_graph: int = 1,
    name: str = "llm",
) -> Workload:
    """Return a whole model: a layer graph, its repetitions and the batch.

    See `llm_graph` for the parameters of a layer.
    """
    require_type("training", training, bool)
    graph = llm_graph(
        hidden=hidden, sequence_length=sequence_length, n_heads=n_heads, head_size=head_size,
        word=word, layers_in_graph=layers_in_graph, training=training,
    )  # fmt: skip
    return Workload(
        graph=graph,
        n_layers=n_layers,
        layers_in_graph=layers_in_graph,
        global_batch_size=global_batch_size,
        sequence_length=sequence_length,
        boundary_size=float(hidden * sequence_length * word),
        item="sequence",
        item_part="token",
        name=name,
    )
