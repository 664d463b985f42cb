"""One matrix product over named axes, and as a workload."""

from __future__ import annotations

from functools import lru_cache

from crosstack.errors import require
from crosstack.workload.axes import AxisUse
from crosstack.workload.dataflow import Graph
from crosstack.workload.draft import Draft
from crosstack.workload.dtype import Dtype
from crosstack.workload.graph_workload import workload_of
from crosstack.workload.product import Product
from crosstack.workload.workload import Workload

__all__ = ["product", "product_graph"]


def product_graph(product: Product, *, dtype: Dtype = Dtype.BF16) -> Graph:
    """Return a product of two inputs, the columns of which are ``n``."""
    draft = Draft(dtype=dtype)
    draft.axis(m=product.m, k=product.k)
    draft.axis(AxisUse.TOKEN, n=product.n)
    first, second = draft.tensor("first", "m k"), draft.tensor("second", "k n")
    draft.product("product", first, second, "m n")
    return draft.graph()


@lru_cache(maxsize=16)
def product(of: Product, *, rows: int = 1, dtype: Dtype = Dtype.BF16) -> Workload:
    """Return a product as a workload; ``rows`` pieces of its rows are the items of a batch. [1]

    Every piece is as long as the longest.

    Raises
    ------
    InputError
        If there are fewer rows than pieces.
    """
    require(rows <= of.m, "rows", rows, f"at most the {of.m:,} rows of {of.name}")
    draft = Draft(dtype=dtype)
    draft.axis(piece=rows, m=-(-of.m // rows), k=of.k)
    draft.axis(AxisUse.TOKEN, n=of.n)
    first, second = draft.tensor("first", "piece m k"), draft.tensor("second", "k n")
    draft.product("product", first, second, "piece m n")
    return workload_of(draft.graph(), items="piece", name=of.name)
