"""A mapping that a search starts from, held against what is given."""

from __future__ import annotations

from crosstack.errors import InputError, Problem
from crosstack.mapping.incumbent import masks_of
from crosstack.mapping.mapping import Mapping
from crosstack.mapping.search_node import SearchState
from crosstack.workload.kernel_graph import bits


def offer_start(state: SearchState, start: Mapping, time_taken: float) -> None:
    """Start from a mapping; by rules of fewest bytes first, only if it moves no more.

    Raises
    ------
    InputError
        If the mapping contradicts what is given.
    """
    given, codes, backward = state.constraints, state.codes(start), state.arrays.backward
    directions = [{bool(backward[i]) for i in bits(mask)} for mask in masks_of(start)]
    order = [max(found) for found in directions]
    length = -(-state.workload.sequence_length // start.n_tiles)
    kept = {
        "degrees": given.degrees.are_those_of(start.sizes, start.parallelism),
        "tile_size": given.n_tiles is not None or length <= (given.tile_size or length),
        "kernel_by_kernel": not state.unfused or len(directions) == state.arrays.n,
        "overlap": given.overlap == start.overlap,
        "offload": given.offload == start.offload,
        "separate_directions": not state.separate
        or (all(len(found) == 1 for found in directions) and order == sorted(order)),
        "partitions": state.slots is None or state.slots.hold(start.partitions),
        "sharding": state.index_of(start).inside(state.domains(start))[codes].all(),
        "expert_tensor": given.degrees.expert_tensor in (None, start.expert_tensor),
    }
    if given.recompute is not None:
        kept["recompute_layers"] = given.recompute_layers == start.recompute_layers
    for name in (
        "microbatch_size",
        "n_tiles",
        "recompute",
        "schedule",
        "interleave",
        "zero",
        "context_exchange",
    ):
        kept[name] = getattr(given, name) in (None, getattr(start, name))
    problems = [
        Problem(f"constraints.{name}", "the mapping to start from does not keep to it.")
        for name, is_kept in kept.items()
        if not is_kept
    ]
    if problems:
        raise InputError(problems)
    if state.rules.decisions.before_time:
        plan = state.plan_of(start)
        domains = tuple((int(code),) for code in codes)
        if plan.tensor > 1 and not state.first.allows(domains, state.table(plan, start.n_tiles)):
            return
    state.incumbent.keep(time_taken, start)
