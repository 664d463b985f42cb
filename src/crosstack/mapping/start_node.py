"""A mapping as a search sees it: its plan, and the choice that it takes for every kernel."""

from __future__ import annotations

from crosstack.errors import require
from crosstack.machine.system import Parallelism
from crosstack.mapping.incumbent import masks_of
from crosstack.mapping.mapping import Mapping
from crosstack.mapping.parallelism import Use
from crosstack.mapping.search_node import SearchNode, SearchState
from crosstack.model.choice_index import sharding_codes
from crosstack.model.mesh_plan import MeshPlan
from crosstack.workload.kernel_graph import Ints


def codes_of(state: SearchState, mapping: Mapping) -> Ints:
    """Return the choice that a mapping takes for every kernel."""
    split = mapping.degree(Parallelism.TENSOR) > 1
    return sharding_codes(state.index_of(mapping), mapping.sharding, split=split)


def plan_of(state: SearchState, mapping: Mapping) -> MeshPlan:
    """Return the plan of a mapping, of the first memory where all it keeps fits there.

    With the ends that are fastest; `InputError` if its microbatches do not divide the batch.
    """
    size = mapping.microbatch_size
    bare = state.bare_plans(Use.of(mapping, (size,)), size, mapping)
    made = [state.room.with_decided(plan, mapping) for plan in bare]
    ended = [state.ended(plan) for plan in made if plan is not None]
    plans = [plan for plan in ended if plan is not None]
    allowed = f"a size that divides the batch of {state.workload.global_batch_size} a pipeline"
    require(bool(plans), "microbatch_size", size, allowed)
    masks, codes = masks_of(mapping), codes_of(state, mapping)
    for plan in plans[:-1]:
        if state.rooms(state.load(SearchNode(plan, mapping.n_tiles, None), codes), masks):
            return plan
    return plans[-1]
