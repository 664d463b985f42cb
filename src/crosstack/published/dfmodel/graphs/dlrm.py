"""Recommendation models as dataflow graphs: multilayer perceptrons around embedding tables.

The kernels, edges and sizes are those of the public generator (``ko2025dfmodel``,
``dfmodel_code``) for the model of ``naumov2019dlrm``. The tables are spread over all chips; each
chip runs the perceptrons on a batch of its own and gets the rows it looks up from the others.
"""

from __future__ import annotations

from crosstack.errors import require, require_whole
from crosstack.published.dfmodel.graphs.builders import MOST_KERNELS, join, product_of
from crosstack.records import require_type
from crosstack.workload.kernel_graph import KernelGraph
from crosstack.workload.kernels import Axis, Collective, Communication, Direction, Kernel, Placement
from crosstack.workload.workload import Workload


def _graph(
    width: int, n_bottom: int, layers: int, samples: int, *, looked_up: float, training: bool,
    word: int,
) -> KernelGraph:  # fmt: skip
    """Perceptron layers of one batch: L kernels and L - 1 edges forward, 3 L and 4 (L - 1) in all.

    The last bottom layer (and its backward kernel) brings the exchange of embeddings: each chip
    reads from main memory, and takes part in an all-to-all of, what is ``looked_up``. [B]
    """
    activation = float(width * samples * word)
    exchange = Communication(collective=Collective.ALL_TO_ALL, size=looked_up)

    def perceptron(layer: int, suffix: str, direction: Direction) -> Kernel:
        embeds = layer == n_bottom
        return product_of(
            f"MLP_{layer}{suffix}",
            (1, width, width, samples),
            word=word,
            input_sizes=(activation,),
            weight_size=float(width * width * word),
            direction=direction,
            tiling=Axis.NONE,
            communications=(exchange,) if embeds else (),
            memory_traffic=looked_up if embeds else 0.0,
        )

    kernels = [perceptron(i, "", Direction.FORWARD) for i in range(1, layers + 1)]
    edges = [(i, i + 1, 0) for i in range(1, layers)]
    if not training:
        return join(kernels, edges, word)
    back = Direction.BACKWARD
    kernels += [perceptron(i, "_bwd", back) for i in range(layers, 0, -1)]
    kernels += [
        product_of(
            f"MLP_{i}_bwd_weight_update", (1, width, samples, width), word=word,
            input_sizes=(activation, activation), direction=back, weight_update=True,
            tiling=Axis.NONE,
        )
        for i in range(layers, 0, -1)
    ]  # fmt: skip
    edges += [(i, i + 1, 0) for i in range(layers + 1, 2 * layers)]
    # The update of layer l multiplies what layer l - 1 made and the gradient layer l + 1 handed
    # back; the first layer's input and the last one's gradient come from outside.
    edges += [(i, 3 * layers - i, 0) for i in range(1, layers)]
    edges += [
        (i, i + layers + 1, 0 if i == 2 * layers - 1 else 1) for i in range(layers + 1, 2 * layers)
    ]
    return join(kernels, edges, word)


def dlrm(
    *,
    width: int,
    n_bottom: int,
    n_top: int,
    n_tables: int,
    rows: int,
    embedding_size: int,
    samples: int,
    global_batch_size: int,
    pooled_rows: int = 1,
    training: bool = True,
    word: int = 2,
    name: str = "dlrm",
) -> Workload:
    """Return a recommendation model: its graph, its tables and the batch.

    Parameters
    ----------
    width : int
        Of every perceptron layer. [1]
    n_bottom, n_top : int
        Perceptron layers before and after the embeddings come in. [1]
    n_tables, rows, embedding_size : int
        Embedding tables, rows of one table, numbers in one row. [1]
    samples : int
        Samples that one chip works on at a time. [1]
    global_batch_size : int
        Such batches of ``samples`` in one iteration, over all chips. [1]
    pooled_rows : int
        Rows of each table that one sample looks up. [1]
    training : bool
        With the backward pass.
    word : int
        Bytes of one element. [B]

    Raises
    ------
    InputError
        If a number is not a whole number above 0.

    References
    ----------
    ko2025dfmodel, dfmodel_code, naumov2019dlrm
    """
    require_type("training", training, bool)
    for field, value in {
        "width": width, "n_bottom": n_bottom, "n_top": n_top, "n_tables": n_tables,
        "pooled_rows": pooled_rows, "embedding_size": embedding_size, "samples": samples,
        "word": word, "rows": rows,
    }.items():  # fmt: skip
        require_whole(field, value)
    for field, layers in (("n_bottom", n_bottom), ("n_top", n_top)):
        require(layers <= MOST_KERNELS // 6, field, layers, f"at most {MOST_KERNELS // 6} layers")
    looked_up = float(n_tables * pooled_rows * embedding_size * samples * word)
    graph = _graph(
        width, n_bottom, n_bottom + n_top, samples, looked_up=looked_up, training=training,
        word=word,
    )  # fmt: skip
    return Workload(
        graph=graph,
        global_batch_size=global_batch_size,
        placement=Placement.BATCH,
        data_size=float(n_tables * rows * embedding_size * word),
        name=name,
        item="sample" if samples == 1 else f"batch of {samples:,} samples",
    )
