"""Recommendation models over named axes: perceptrons around embedding tables (``naumov2019dlrm``).

Nothing says what chips exchange: where tables lie on different chips and perceptrons work on
different samples, the all-to-all is the change from one layout to the other.
"""

from __future__ import annotations

from crosstack.errors import require_wholes
from crosstack.workload.axes import AxisUse
from crosstack.workload.dataflow import Graph
from crosstack.workload.draft import Draft
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import Function


def recommendation_graph(
    *,
    width: int,
    n_bottom: int,
    n_top: int,
    n_tables: int,
    rows: int,
    embedding_size: int,
    samples: int,
    pooled_rows: int = 1,
    dtype: Dtype = Dtype.BF16,
) -> Graph:
    """Return a model and the loss of a batch of samples, forward.

    Parameters
    ----------
    width : int
        Of every perceptron layer. [1]
    n_bottom, n_top : int
        Perceptron layers before and after the embeddings come in. [1]
    n_tables, rows, embedding_size : int
        Embedding tables, rows of one table, numbers in one row. [1]
    samples : int
        Samples that are worked on at a time. [1]
    pooled_rows : int
        Rows of each table that one sample looks up, and adds up. [1]
    dtype : Dtype
        Of every tensor but what is looked up.

    Raises
    ------
    InputError
        If a number is not a whole number above 0.

    Notes
    -----
    The first top layer reads the last bottom one's result and the products of all pairs of tables'
    rows: what would be one product of both behind one another, is a sum of two. The loss is the
    cross-entropy of a click: ``log(1 + e^x) - x`` where there was one.
    """
    require_wholes(
        width=width, n_bottom=n_bottom, n_top=n_top, n_tables=n_tables, rows=rows,
        embedding_size=embedding_size, samples=samples, pooled_rows=pooled_rows,
    )  # fmt: skip
    sizes = {"table": n_tables, "row": rows, "embedding": embedding_size, "pooled": pooled_rows}
    sizes |= {"width": width, "width_in": width}
    draft = Draft(dtype=dtype)
    draft.axis(AxisUse.TOKEN, sample=samples)
    draft.axis(**sizes, other_table=n_tables)
    last = draft.tensor("x", "sample width")
    for layer in range(1, n_bottom + 1):
        last = _perceptron(draft, layer, last)
    pairs = _pairs(draft)
    first = n_bottom + 1
    weight = draft.weight(f"W_pairs_{first}", "table other_table width")
    crossed = draft.product(f"MLP_{first}_pairs", pairs, weight, "sample width")
    last = _perceptron(draft, first, last, crossed)
    for layer in range(first + 1, n_bottom + n_top + 1):
        last = _perceptron(draft, layer, last)
    click = draft.product("click", last, draft.weight("W_click", "width"), "sample")
    likely = draft.make("softplus", Function.SOFTPLUS, click)
    clicked = draft.make("clicked", Function.MULTIPLY, click, draft.tensor("labels", "sample"))
    losses = draft.make("losses", Function.SUBTRACT, likely, clicked)
    draft.reduced("loss", Function.MEAN, losses, over="sample")
    return draft.graph()


def _perceptron(draft: Draft, layer: int, read: str, other: str = "") -> str:
    """Add a layer: a product, what else comes in, a rectifier."""
    weight = draft.weight(f"W_{layer}", "width_in width")
    seen = draft.seen(read, "sample width_in")
    made = draft.product(f"MLP_{layer}", seen, weight, "sample width")
    if other:
        made = draft.make(f"MLP_{layer}_sum", Function.ADD, made, other)
    return draft.make(f"ReLU_{layer}", Function.RELU, made)


def _pairs(draft: Draft) -> str:
    """Add the rows that samples look up, and the products of all pairs of tables."""
    tables, index = draft.weight("tables", "table row embedding"), "sample table pooled"
    places = draft.index("places", index)
    found = draft.make(
        "looked_up", Function.GATHER, tables, places, axes=f"{index} embedding", over="row"
    )
    pooled = draft.reduced("pooled_rows", Function.SUM, found, over="pooled")
    other = draft.seen(pooled, "sample other_table embedding")
    return draft.product("pairs", pooled, other, "sample table other_table")
