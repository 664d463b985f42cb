"""What a search covered, how it was proved, and why it found nothing."""

from __future__ import annotations

import math

from crosstack.errors import InfeasibleError, InputError, LimitError, Problem
from crosstack.machine.chip import Execution
from crosstack.mapping.incumbent import Lack
from crosstack.mapping.network_uses import fills_rings, fills_servers
from crosstack.mapping.parallelism import (
    EXPERTS_WHOLE,
    LEAST_TOKENS,
    SHARED_TOKENS,
    may_split,
    most_sharing,
)
from crosstack.mapping.search_node import SearchState
from crosstack.model.context import shared_tokens
from crosstack.model.expert_degrees import cuts_experts, spread
from crosstack.model.memory import searched_recomputations
from crosstack.model.objective import Objective
from crosstack.units import format_quantity
from crosstack.workload.kernels import Placement
from crosstack.workload.transformer_training import Schedule, Zero

NOT_SEARCHED = tuple(order for order in Schedule if not order.searched)


def nothing_found(
    state: SearchState, objective: Objective
) -> InfeasibleError | InputError | LimitError:
    """Return why there is no mapping."""
    found = state.incumbent
    if not math.isinf(found.left_bound):
        return LimitError(
            "no mapping found before the limit; none beats "
            f"{format_quantity(found.left_bound, objective.unit)}, and none is ruled out. "
            "A larger --work-limit or --time-limit, fewer pins or more SRAM may help."
        )
    if not found.plans_made:
        return _no_plan(state)
    return _infeasible(state, found.lack)


def covered(state: SearchState) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Say how the bound was reached, and name decisions that were free and that were given."""
    system, constraints, workload = state.system, state.constraints, state.workload
    splits = may_split(workload, system, constraints.degrees) and (
        state.rules.iteration.has_schedules or not state.pricing.weights.energy
    )
    before = state.rules.decisions.before_time
    method = f"first a sharding that {before}, ties by time; " if before else ""
    method += "branch and bound over shardings, shortest path over order ideals for fusion"
    placed = workload.placement is not Placement.SEARCHED
    places = "places of the degrees" if constraints.degrees.all_given else "parallelism"
    decided = {
        "dimension sizes": all(d.size is not None for d in system.network),
        places: placed or all(d.parallelism is not None for d in system.network),
        "microbatch size": constraints.microbatch_size is not None,
        "number of tiles": constraints.n_tiles is not None
        or system.chip.execution is Execution.TEMPORAL,
        "sharding": placed,
        "partitions": constraints.kernel_by_kernel,
    }
    free = [name for name, is_given in decided.items() if not is_given]
    free += ["stages"] if splits else []
    given = [name for name, is_given in decided.items() if is_given]
    most = constraints.max_partitions
    said = {
        f"degrees {constraints.degrees}": constraints.degrees.given,
        "tensor parallelism fills a server before it leaves it": not placed
        and state.rules.collectives.share_dimensions
        and fills_servers(system),
        "parallelisms that share a ring or a line follow one another in the order of ranks": (
            not placed and state.rules.collectives.share_dimensions and fills_rings(system)
        ),
        "what runs before and behind the layers, each mapped by itself": workload.ends,
        f"sharding of {len(constraints.sharding)} kernels": constraints.sharding,
        f"partition of {len(constraints.partitions)} kernels": constraints.partitions,
        f"at most {most} partitions": most is not None,
        "what is sent beside the work": constraints.overlap is not None,
        f"on the hosts: {' and '.join(constraints.offload)}": constraints.offload,
        "forward and backward in separate partitions": constraints.separate_directions,
    }
    given += [words for words, is_said in said.items() if is_said]
    _add_of_training(state, free, given)
    return method + (" and stages" if splits else ""), tuple(free), tuple(given)


def _add_of_training(state: SearchState, free: list[str], given: list[str]) -> None:
    """Add decisions of experts, of sequences that are shared and of training to either."""
    system, constraints, workload = state.system, state.constraints, state.workload
    if spread(workload, state.rules) > 1:
        (free if constraints.degrees.expert is None else given).append("chips of experts")
    if cuts_experts(workload, state.rules) and constraints.degrees.tensor != 1:
        cut = constraints.degrees.expert_tensor
        given.append(EXPERTS_WHOLE if cut is None else "over how many chips each expert is cut")
    if shared_tokens(workload, state.rules) > 1:
        open_ = constraints.degrees.context is None
        chips = most_sharing(workload, system, constraints.degrees)
        few = f"no chips share a sequence of fewer than {SHARED_TOKENS:,} tokens"
        each = f", which have {LEAST_TOKENS:,} tokens each at least" if chips < math.inf else ""
        if open_ and chips == 1:
            given.append(few)
        else:
            (free if open_ else given).append(f"chips of a sequence{each}")
            exchanged = constraints.context_exchange is None and constraints.degrees.context != 1
            (free if exchanged else given).append("how those exchange keys and values")
    if len(searched_recomputations(state.arrays, state.rules)) > 1:
        (free if constraints.recompute is None else given).append("recomputation")
    if state.rules.iteration.has_schedules and workload.training:
        free_one = constraints.schedule is None
        (free if free_one else given).append("schedule")
        given += [f"no schedule {' or '.join(NOT_SEARCHED)}"] * free_one
        one = constraints.schedule in (None, Schedule.ONE_F_ONE_B)
        open_ = constraints.interleave is None and one
        (free if open_ else given).append("interleaving")
    if workload.training and not state.rules.iteration.sums_in_layers:
        (free if constraints.zero is None else given).append("what data-parallel chips share")


def _no_plan(state: SearchState) -> InputError:
    workload, constraints = state.workload, state.constraints
    some = f"that some use of the {state.system.n_chips} chips has"
    pieces = constraints.interleave
    if pieces not in (None, 1):
        allowed = "pieces of as many layers in every stage of a pipeline, with a multiple of its "
        allowed += f"stages as microbatches, {some}"
        return InputError(Problem("constraints.interleave", f"got {pieces}; allowed: {allowed}."))
    microbatch = constraints.microbatch_size or "free"
    one = constraints.schedule
    if one is not None and one.defers_weights:
        allowed = f"{Schedule.ONE_F_ONE_B}, or as many microbatches as stages at least, {some}"
        if one.ahead > 1:
            allowed = f"{Schedule.ONE_F_ONE_B}, or twice as many microbatches as stages, less one, "
            allowed += "and a number of layers that is a multiple of twice the stages, " * (
                one is Schedule.ZB_V
            )
            allowed += some
        if one.both_ends:
            allowed = f"{Schedule.ONE_F_ONE_B}, or an even number of stages, and of microbatches, "
            allowed += f"at least twice as many, {some}"
        return InputError(Problem("constraints.schedule", f"got {one}; allowed: {allowed}."))
    if one is Schedule.COMBINED:
        allowed = f"{Schedule.ONE_F_ONE_B}, or chips that share experts, with one stage and two "
        allowed += f"microbatches at least, or stages in pieces, {some}"
        return InputError(Problem("constraints.schedule", f"got {one}; allowed: {allowed}."))
    if constraints.zero not in (None, Zero.NONE):
        allowed = "0, or training on data-parallel chips"
        allowed += ", on several levels of the network" * (constraints.zero is Zero.HYBRID)
        allowed += ", with a global batch size that is a "
        allowed += f"multiple of those and the microbatch size ({microbatch}), {some}"
        return InputError(
            Problem("constraints.zero", f"got {constraints.zero}; allowed: {allowed}.")
        )
    message = (
        f"got {workload.global_batch_size}; allowed: a multiple of the data-parallel degree and "
        f"the microbatch size ({microbatch}) {some}."
    )
    return InputError(Problem("workload.global_batch_size", message))


def _infeasible(state: SearchState, lack: Lack) -> InfeasibleError:
    unit = "B"
    if not lack.resource:
        count, unit = state.slots.count if state.slots else state.arrays.n, "partitions"
        levers = ("more partitions", "fewer pinned kernels", "more SRAM")
        where = "fusing the kernels under the SRAM, the memory and the pins"
        lack = Lack(unit, float(count + 1), float(count), where, levers)
    return InfeasibleError(
        resource=lack.resource,
        demand=lack.demand,
        limit=lack.limit,
        unit=unit,
        where=lack.where,
        levers=lack.levers,
    )
