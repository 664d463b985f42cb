"""All plans of a search, as it makes them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from crosstack.mapping.bounded_strategies import bounded
from crosstack.mapping.search_node import SearchState
from crosstack.model.mesh_plan import MeshPlan


def every_plan(state: SearchState) -> Iterator[MeshPlan]:
    """Yield the plans that main memory may hold, use by use of the network."""
    uses = state.uses()
    while (some := bounded(state, uses)) is not None:
        for number in np.flatnonzero(some.light).tolist():
            yield some.plan(state, number)
