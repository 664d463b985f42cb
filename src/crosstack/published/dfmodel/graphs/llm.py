"""Transformer layers as dataflow graphs: forward, forward and backward, and several layers.

The kernels, edges and sizes are those of the public generators (``ko2025dfmodel``,
``dfmodel_code``), quirks included, so that published results can be reproduced: no backward
pass of the first layer norm, no residual-gradient additions, and the value projection's backward
kernel is not split by heads.
"""

from __future__ import annotations

from dataclasses import replace

from crosstack.errors import require, require_whole
from crosstack.io.dfmodel.vocabulary import saved_of
from crosstack.published.dfmodel.graphs.builders import join
from crosstack.published.dfmodel.graphs.serving import Layer
from crosstack.records import require_type
from crosstack.workload.architectures import Transformer
from crosstack.workload.kernel_graph import KernelGraph
from crosstack.workload.kernels import Direction
from crosstack.workload.workload import Workload

BACKWARD = Direction.BACKWARD


def _backward(layer: Layer) -> None:
    """Add the backward pass of a layer."""
    m, seq = layer.model, layer.length
    hidden, wide, heads, head = m.hidden, m.feed_forward, m.heads, m.head_size
    square, per_head = (1, hidden, hidden), (heads, head, hidden)
    outer, inner = (heads, seq, head, seq), (heads, head, seq, seq)

    def point(name: str, *reads: str, width: int = hidden) -> None:
        layer.point(name, width, *reads, direction=BACKWARD)

    def scores(name: str, read: str) -> None:
        layer.point(name, seq, read, outer=heads, direction=BACKWARD)

    def project(name: str, shape: tuple[int, int, int], read: str) -> None:
        layer.project(name, shape, read, direction=BACKWARD)

    def product(name: str, shape: tuple[int, int, int, int], *reads: str) -> None:
        layer.multiply(name, shape, *reads, direction=BACKWARD)

    def update(name: str, m: int, n: int, *reads: str) -> None:
        layer.multiply(
            f"{name}_bwd_weight_update", (1, m, seq, n), *reads, direction=BACKWARD,
            weight_update=True,
        )  # fmt: skip

    point("Loss_bwd")
    point("DropOut_3_bwd", "Loss_bwd")
    project("FFN1_bwd", (1, wide, hidden), "DropOut_3_bwd")
    point("GeLU_bwd", "FFN1_bwd", width=wide)
    project("FFN0_bwd", (1, hidden, wide), "GeLU_bwd")
    point("LayerNorm_2_bwd", "FFN0_bwd")
    point("DropOut_2_bwd", "LayerNorm_2_bwd")
    project("PROJ_GEMM_bwd", square, "DropOut_2_bwd")
    product("MHA_GEMM_2_bwd1", outer, "PROJ_GEMM_bwd", "V")
    product("MHA_GEMM_2_bwd2", inner, "PROJ_GEMM_bwd", "DropOut_1")
    project("V_bwd", square, "MHA_GEMM_2_bwd2")
    scores("DropOut_1_bwd", "MHA_GEMM_2_bwd1")
    scores("SOFTMAX_bwd", "DropOut_1_bwd")
    product("MHA_GEMM_1_bwd1", inner, "SOFTMAX_bwd", "K")
    product("MHA_GEMM_1_bwd2", inner, "SOFTMAX_bwd", "Q")
    project("Q_bwd", per_head, "MHA_GEMM_1_bwd1")
    project("K_bwd", per_head, "MHA_GEMM_1_bwd2")
    update("FFN1", wide, hidden, "DropOut_3_bwd", "GeLU")
    update("FFN0", hidden, wide, "GeLU_bwd", "LayerNorm_2")
    update("PROJ_GEMM", hidden, hidden, "DropOut_2_bwd", "MHA_GEMM_2")
    update("V", hidden, hidden, "MHA_GEMM_2_bwd2", "LayerNorm_1")
    update("K", hidden, hidden, "MHA_GEMM_1_bwd2", "LayerNorm_1")
    update("Q", hidden, hidden, "MHA_GEMM_1_bwd1", "LayerNorm_1")


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
    shape = Transformer(
        hidden=hidden, layers=1, heads=n_heads, kv_heads=n_heads, head_size=head_size,
        feed_forward=4 * hidden, vocabulary=1, context=sequence_length, gated=False,
    )  # fmt: skip
    layer = Layer(shape, sequence_length, word)
    layer.forward()
    if training:
        layer.kernels = [replace(kernel, saved=saved_of(kernel.name)) for kernel in layer.kernels]
        _backward(layer)
    return layer.graph() if layers_in_graph == 1 else _stack(layer, layers_in_graph)


def _stack(layer: Layer, layers: int) -> KernelGraph:
    """Repeat a layer."""
    size = len(layer.kernels)
    kernels = [
        replace(kernel, name=f"{kernel.name}_layer_{i}")
        for i in range(layers)
        for kernel in layer.kernels
    ]
    first, last = layer.place["Add_Prev_Layer"], layer.place["Add_2"]
    edges: list[tuple[int, int, int]] = []
    for here in range(0, layers * size, size):
        edges += [(i + here, j + here, o) for i, j, o in layer.edges]
        after = here + size
        if after < layers * size:
            edges.append((last + here, first + after, 0))
            if "Loss_bwd" in layer.place:
                edges.append((layer.place["K_bwd"] + after, layer.place["Loss_bwd"] + here, 0))
    return join(kernels, edges, layer.word)


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
