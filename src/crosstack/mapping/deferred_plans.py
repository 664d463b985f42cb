"""Plans of a search that are made when they are needed, and bounded until then.

There may be millions. Those that are not made yet wait as one item, with a bound that holds for
each of them: all work over all chips, or, for one use of the network, the compute of its smallest
microbatch that is left.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from crosstack.mapping.blocks import block_bound
from crosstack.mapping.parallelism import Use
from crosstack.mapping.search_node import SearchNode, SearchState
from crosstack.model.attention import iteration_work
from crosstack.model.collectives import AffineTime
from crosstack.model.energy import static_power
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.schedule.allowed import most_pieces

USES_AT_ONCE = 64  # uses of the network made before the clock is looked at
ROUNDING = 1e-12  # relative, of a floor


@dataclass(slots=True)
class RestOfUse:
    """Plans that are not made yet: those of one use, from a microbatch size on; the first made."""

    use: Use
    next: int
    plans: list[MeshPlan]


Uses = Iterator[Use | None]  # plans that are not made yet: all of some uses of the network
Item = SearchNode | RestOfUse | Uses
_REST, _REST_OF_USE, _PLAN, ROOT = 3, 2, 1, 0  # depth; parts of a root are below 0


def _least_layer(state: SearchState, plan: MeshPlan) -> float:
    """Cost of a layer from compute alone. [s]"""
    return state.room.least_layer(plan) + state.room.least_work(plan) * state.pricing.of(plan).work


def _floor(state: SearchState, plan: MeshPlan) -> float:
    """Time of an iteration from compute alone. [s]"""
    return state.total(plan, _least_layer(state, plan))


def _floor_of_use(state: SearchState, plan: MeshPlan) -> float:
    """Time from compute alone of any schedule of a use, from this microbatch on. [s]"""
    pieces = state.constraints.interleave
    if pieces is None:
        pieces = most_pieces(plan, state.rules)
    if plan.graph_stages > 1 or pieces == 1:
        return _floor(state, replace(plan, stage_transfer=AffineTime()))
    return state.pricing.unsent(plan, _least_layer(state, plan), pieces)


def _least_floor(state: SearchState) -> float:
    """Time of an iteration that shares all work evenly among all chips. [s]"""
    chip, workload = state.system.chip, state.workload
    n_chips = state.system.copies * state.system.n_chips
    done = iteration_work(workload, chip, state.rules.traffic)
    time = state.rules.clock.least_time(chip, done) / n_chips
    weights = state.pricing.weights
    if not weights.only_time:
        # What a plan adds is not known yet: static power alone.
        time *= weights.time + weights.energy * n_chips * (static_power(chip)[0] or 0.0)
    # Rounded down: a plan's own floor is not to be above what holds for all.
    return time * (1 - ROUNDING)


def _rest_of_use(state: SearchState, use: Use, first: int) -> tuple[float, RestOfUse] | None:
    """Return what is left of a use from microbatch size number ``first``, with a bound. [s]

    Without transfers, which larger microbatches may shorten, and with the most pieces a stage may
    have, a larger microbatch is never faster: it only makes the bubble longer.
    """
    for i in range(first, len(use.microbatches)):
        made = state.plans(use, use.microbatches[i])
        if made:
            floor = _floor_of_use(state, made[0])
            # The second and the third size are no bound on smaller ones that follow.
            return 0.0 if i in (1, 2) else floor, RestOfUse(use, i + 1, made)
    return None


def _above(bound: float, floor: float) -> float:
    """Return the larger; ``bound`` where they are the same but for rounding, to keep ties. [s]"""
    return floor if floor > bound * (1 + 2 * ROUNDING) else bound


def unrolled(
    state: SearchState, rest: RestOfUse | Uses, bound: float
) -> Iterator[tuple[float, int, Item]]:
    """Yield some of the plans that were not made yet, and what is still left."""
    if isinstance(rest, RestOfUse):
        light = False
        for plan in rest.plans:
            state.incumbent.plans_made += 1
            if not state.too_heavy(plan):
                light = True
                floor = _floor(state, plan)
                if floor < state.target():
                    floor = max(floor, state.total(plan, block_bound(state, plan)))
                yield _above(bound, floor), _PLAN, SearchNode(plan, 1, None)
        if not light and rest.next == 1:  # a larger microbatch keeps no less in the main memory
            return
        left = _rest_of_use(state, rest.use, rest.next)
        if left is not None:
            yield _above(bound, left[0]), _REST_OF_USE, left[1]
        return
    uses = list(itertools.islice(rest, USES_AT_ONCE))
    for use in uses:
        left = None if use is None else _rest_of_use(state, use, 0)
        if left is not None:
            yield _above(bound, left[0]), _REST_OF_USE, left[1]
    if uses:
        yield bound, _REST, rest


def all_plans(state: SearchState) -> list[tuple[float, int, Item]]:
    """Return all plans, none of them made."""
    return [(_least_floor(state), _REST, state.uses())]
