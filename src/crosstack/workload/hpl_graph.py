"""One step of the factorisation of a dense matrix over named axes (``dongarra2003linpack``).

Nothing says what chips send: on a grid of chips, rows of the panel and columns of what it is
solved for are gathered along the other dimension, which is the change from one layout to another.
"""

from __future__ import annotations

from crosstack.errors import require_wholes
from crosstack.workload.axes import AxisUse
from crosstack.workload.dataflow import Graph
from crosstack.workload.draft import Draft
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import Function


def factorisation_graph(*, side: int, block: int, dtype: Dtype = Dtype.FP64) -> Graph:
    """Return the step that takes a panel of ``block`` columns out of what is left of a matrix.

    Parameters
    ----------
    side : int
        Rows and columns that are left beside the panel. [1]
    block : int
        Columns of the panel. [1]
    dtype : Dtype
        Of every element.

    Raises
    ------
    InputError
        If a number is not a whole number above 0.

    Notes
    -----
    The panel comes factorised, with the inverse of its triangle: rows beside the triangle are
    solved for as a product, ``2 block^2 side``, and taken from the rest, ``2 block side^2``.
    """
    require_wholes(side=side, block=block)
    draft = Draft(dtype=dtype)
    draft.axis(AxisUse.TOKEN, column=side)
    draft.axis(row=side, pivot=block, other_pivot=block)
    inverse = draft.tensor("inverse", "pivot other_pivot")
    beside = draft.tensor("beside", "other_pivot column")
    solved = draft.product("Solve", inverse, beside, "pivot column")
    panel, rest = draft.tensor("panel", "row pivot"), draft.tensor("rest", "row column")
    update = draft.product("Update", panel, solved, "row column")
    draft.make("Rest", Function.SUBTRACT, rest, update)
    return draft.graph()
