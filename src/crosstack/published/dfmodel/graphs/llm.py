"""Transformer layers as dataflow graphs: forward, forward and backward, and several layers.

The kernels, edges and sizes are those of the public generators (``ko2025dfmodel``,
``dfmodel_code``), quirks included, so that published results can be reproduced: no backward
pass of the first layer norm, no residual-gradient additions, and the value projection's backward
kernel is not split by heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from crosstack.errors import require, require_whole
from crosstack.io.dfmodel.vocabulary import is_row_wise, saved_of
from crosstack.records import require_type
from crosstack.workload.builders import elementwise, join, product_of
from crosstack.workload.kernel_graph import KernelGraph
from crosstack.workload.kernels import Direction, Kernel
from crosstack.workload.workload import Workload

__all__ = ["llm", "llm_forward", "llm_training"]

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


def _forward_kernels(hidden: int, seq: int, heads: int, head: int, word: int) -> list[Kernel]:
    a = float(hidden * seq * word)
    q = float(seq * seq * heads * word)
    w = float(hidden * hidden * word)
    projection = {"word": word, "input_sizes": (a,), "weight_size": w}

    def norm(name: str, inputs: int = 1) -> Kernel:
        rows = is_row_wise(name)
        return elementwise(name, hidden, seq, word=word, inputs=inputs, row_wise=rows)

    def attention(name: str) -> Kernel:
        rows = is_row_wise(name)
        return elementwise(name, seq, seq, outer=heads, word=word, row_wise=rows)

    return [
        norm("Add_Prev_Layer"),
        norm("LayerNorm_1"),
        *(
            product_of(name, (heads, head, hidden, seq), **projection)  # type: ignore[arg-type]
            for name in ("Q", "K", "V")
        ),
        product_of("MHA_GEMM_1", (heads, seq, head, seq), word=word, input_sizes=(a, a)),
        attention("SOFTMAX"),
        attention("DropOut_1"),
        product_of("MHA_GEMM_2", (heads, head, seq, seq), word=word, input_sizes=(a, q)),
        product_of("PROJ_GEMM", (1, hidden, hidden, seq), **projection),  # type: ignore[arg-type]
        norm("DropOut_2"),
        norm("Add_1", inputs=2),
        norm("LayerNorm_2"),
        product_of(
            "FFN0", (1, 4 * hidden, hidden, seq), word=word, input_sizes=(a,), weight_size=4 * w
        ),
        elementwise("GeLU", 4 * hidden, seq, word=word),
        product_of(
            "FFN1", (1, hidden, 4 * hidden, seq), word=word, input_sizes=(4 * a,), weight_size=4 * w
        ),
        norm("DropOut_3"),
        norm("Add_2", inputs=2),
    ]


def _backward_kernels(hidden: int, seq: int, heads: int, head: int, word: int) -> list[Kernel]:
    a = float(hidden * seq * word)
    q = float(seq * seq * heads * word)
    w = float(hidden * hidden * word)
    back = Direction.BACKWARD

    def norm(name: str) -> Kernel:
        rows = is_row_wise(name)
        return elementwise(name, hidden, seq, word=word, direction=back, row_wise=rows)

    def attention(name: str) -> Kernel:
        rows = is_row_wise(name)
        return elementwise(name, seq, seq, outer=heads, word=word, direction=back, row_wise=rows)

    def product(
        name: str, shape: tuple[int, int, int, int], inputs: tuple[float, ...], weight: float = 0.0
    ) -> Kernel:
        return product_of(
            name, shape, word=word, input_sizes=inputs, weight_size=weight, direction=back
        )

    def update(name: str, m: int, n: int, inputs: tuple[float, float]) -> Kernel:
        return product_of(
            f"{name}_bwd_weight_update",
            (1, m, seq, n),
            word=word,
            input_sizes=inputs,
            direction=back,
            weight_update=True,
        )

    per_head, square = (heads, head, hidden, seq), (1, hidden, hidden, seq)
    return [
        norm("Loss_bwd"),
        norm("DropOut_3_bwd"),
        product("FFN1_bwd", (1, 4 * hidden, hidden, seq), (a,), 4 * w),
        elementwise("GeLU_bwd", 4 * hidden, seq, word=word, direction=back),
        product("FFN0_bwd", (1, hidden, 4 * hidden, seq), (4 * a,), 4 * w),
        norm("LayerNorm_2_bwd"),
        norm("DropOut_2_bwd"),
        product("PROJ_GEMM_bwd", square, (a,), w),
        product("MHA_GEMM_2_bwd1", (heads, seq, head, seq), (a, a)),
        product("MHA_GEMM_2_bwd2", (heads, head, seq, seq), (a, q)),
        product("V_bwd", square, (a,), w),
        attention("DropOut_1_bwd"),
        attention("SOFTMAX_bwd"),
        product("MHA_GEMM_1_bwd1", (heads, head, seq, seq), (q, a)),
        product("MHA_GEMM_1_bwd2", (heads, head, seq, seq), (q, a)),
        product("Q_bwd", per_head, (a,), w),
        product("K_bwd", per_head, (a,), w),
        update("FFN1", 4 * hidden, hidden, (a, 4 * a)),
        update("FFN0", hidden, 4 * hidden, (4 * a, a)),
        *(update(name, hidden, hidden, (a, a)) for name in ("PROJ_GEMM", "V", "K", "Q")),
    ]


def _check(hidden: int, seq: int, heads: int, head: int, word: int, layers: int) -> None:
    named: Mapping[str, int] = {
        "hidden": hidden, "sequence_length": seq, "n_heads": heads, "head_size": head,
        "word": word, "layers_in_graph": layers,
    }  # fmt: skip
    for name, value in named.items():
        require_whole(name, value)
    require(
        heads * head == hidden,
        "n_heads",
        heads,
        f"n_heads x head_size = hidden ({heads} x {head} is {heads * head}, hidden is {hidden})",
    )


def llm_forward(
    *,
    hidden: int,
    sequence_length: int,
    n_heads: int,
    head_size: int,
    word: int = 2,
    layers_in_graph: int = 1,
) -> KernelGraph:
    """Forward pass of transformer layers: 18 kernels and 21 edges a layer.

    Parameters
    ----------
    hidden, sequence_length, n_heads, head_size : int
        Model width, tokens of a sequence, attention heads and width of one head. [1]
    word : int
        Bytes of one element. [B]
    layers_in_graph : int
        Layers to spell out; layer l > 1 reads layer l - 1. [1]

    Raises
    ------
    InputError
        If ``n_heads * head_size != hidden`` or a number is not a whole number above 0.

    References
    ----------
    ko2025dfmodel, dfmodel_code
    """
    _check(hidden, sequence_length, n_heads, head_size, word, layers_in_graph)
    one = _forward_kernels(hidden, sequence_length, n_heads, head_size, word)
    return _stack(one, _FORWARD_EDGES, word, layers_in_graph, joins=((18, 1, 0),))


def llm_training(
    *,
    hidden: int,
    sequence_length: int,
    n_heads: int,
    head_size: int,
    word: int = 2,
    layers_in_graph: int = 1,
) -> KernelGraph:
    """Forward and backward pass of transformer layers: 41 kernels and 53 edges a layer.

    Parameters and errors as `llm_forward`. With several layers, the forward pass of layer l + 1
    reads that of layer l, and the backward pass of layer l reads that of layer l + 1 (the sum of
    the gradients of the query and key projections is not modelled: the key's is passed on).

    References
    ----------
    ko2025dfmodel, dfmodel_code
    """
    _check(hidden, sequence_length, n_heads, head_size, word, layers_in_graph)
    one = [
        replace(kernel, saved=saved_of(kernel.name))
        for kernel in _forward_kernels(hidden, sequence_length, n_heads, head_size, word)
    ]
    one += _backward_kernels(hidden, sequence_length, n_heads, head_size, word)
    edges = _FORWARD_EDGES + _BACKWARD_EDGES
    return _stack(one, edges, word, layers_in_graph, joins=((18, 1, 0),), back_joins=((35, 19, 0),))


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

    See `llm_training` and `llm_forward` for the parameters of a layer.
    """
    require_type("training", training, bool)
    layer = llm_training if training else llm_forward
    graph = layer(
        hidden=hidden,
        sequence_length=sequence_length,
        n_heads=n_heads,
        head_size=head_size,
        word=word,
        layers_in_graph=layers_in_graph,
    )
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
