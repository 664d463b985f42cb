"""One matrix product over named axes."""

from __future__ import annotations

from crosstack.workload.axes import AxisUse
from crosstack.workload.dataflow import Graph
from crosstack.workload.draft import Draft
from crosstack.workload.dtype import Dtype
from crosstack.workload.product import Product

__all__ = ["product_graph"]


def product_graph(product: Product, *, dtype: Dtype = Dtype.BF16) -> Graph:
    """Return a product of two inputs, the columns of which are ``n``."""
    draft = Draft(dtype=dtype)
    draft.axis(m=product.m, k=product.k)
    draft.axis(AxisUse.TOKEN, n=product.n)
    first, second = draft.tensor("first", "m k"), draft.tensor("second", "k n")
    draft.product("product", first, second, "m n")
    return draft.graph()
