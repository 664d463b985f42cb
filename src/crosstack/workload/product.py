"""One matrix product: its extents, its graph over named axes, and as a workload."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from crosstack.errors import require
from crosstack.records import Checked, Count
from crosstack.workload.axes import AxisUse
from crosstack.workload.dataflow import Graph
from crosstack.workload.draft import Draft
from crosstack.workload.dtype import Dtype
from crosstack.workload.graph_workload import workload_of
from crosstack.workload.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Product(Checked):
    """An M x K by K x N product. [1]"""

    m: Count
    k: Count
    n: Count

    @property
    def name(self) -> str:
        """For people."""
        return f"GEMM {self.m} x {self.k} x {self.n}"


def product_of(step: object) -> Product | None:
    """Return a step that is a single product, None for everything else."""
    return step if isinstance(step, Product) else None


def product_graph(product: Product, *, rows: int = 1, dtype: Dtype = Dtype.BF16) -> Graph:
    """Return a product of two inputs, the columns of which are ``n``.

    Parameters
    ----------
    product : Product
        Its extents.
    rows : int
        Pieces that its rows are cut into, an axis of their own; each is as long as the longest. [1]
    dtype : Dtype
        Of every tensor.

    Raises
    ------
    InputError
        If there are fewer rows than pieces.
    """
    require(rows <= product.m, "rows", rows, f"at most the {product.m:,} rows of {product.name}")
    draft = Draft(dtype=dtype)
    draft.axis(piece=rows, m=-(-product.m // rows), k=product.k)
    draft.axis(AxisUse.TOKEN, n=product.n)
    first, second = draft.tensor("first", "piece m k"), draft.tensor("second", "k n")
    draft.product("product", first, second, "piece m n")
    return draft.graph()


@lru_cache(maxsize=16)
def product(of: Product, *, rows: int = 1, dtype: Dtype = Dtype.BF16) -> Workload:
    """Return a product as a workload; pieces of its rows are the items of a batch.

    Raises `InputError` if there are fewer rows than pieces.
    """
    return workload_of(product_graph(of, rows=rows, dtype=dtype), items="piece", name=of.name)
