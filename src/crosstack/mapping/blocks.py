"""Blocks: what plans that use tensor parallelism alike share of a layer, bounded once for all.

What a chip does for one layer depends on the tensor-parallel dimensions, on what is computed again
and, where a chip runs kernels one after the other, on the microbatch size. A bound on that without
what plans add (gradients, weights, prices) holds for each of them, and the closed form of the
iteration turns it into a bound on the plan. Thousands of plans have tens of blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from crosstack.machine.chip import Overlap
from crosstack.mapping.following import following_bounds, one_by_one_bound
from crosstack.mapping.fusion import simple_bound
from crosstack.mapping.paid_layouts import least_of_many
from crosstack.mapping.pricing import Bend, Domains
from crosstack.mapping.search_node import SearchState
from crosstack.mapping.search_problem import BOUND
from crosstack.model.choices import Choices, make_choices
from crosstack.model.collectives import NOTHING
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.partition import ChipLoad
from crosstack.model.schedule.allowed import with_recompute
from crosstack.workload.kernel_graph import Floats
from crosstack.workload.transformer_training import Recompute, Schedule, Zero

AT_ONCE = 64  # blocks that are bounded together, whose tables are all there then


def chips_of_block(plan: MeshPlan) -> tuple[object, ...]:
    """Return what tells the chips that share a block of a plan from others."""
    lines, splits = tuple(plan.collectives.items()), plan.graph_stages > 1
    return plan.tensor, chips_of_tokens(plan), plan.split, plan.spilled, lines, splits


def chips_of_tokens(plan: MeshPlan) -> tuple[object, ...]:
    """Return what tells the chips that share sequences and experts of a plan from others."""
    shared = plan.context, plan.context_exchange, plan.context_times
    cut = plan.cut_over and plan.cut_over.key
    return plan.expert, plan.expert_tensor, plan.exchange, cut, *shared


def block_of(state: SearchState, plan: MeshPlan) -> tuple[object, ...]:
    """Return what tells the block of a plan from others."""
    # A temporal chip takes other times for a sequence of a larger microbatch.
    size = plan.microbatch_size if state.temporal else None
    return *chips_of_block(plan), plan.recompute, size


def unburdened_plan(state: SearchState, plan: MeshPlan) -> MeshPlan:
    """Return a plan that takes no longer than any of a block for what they share.

    By a schedule that any number of microbatches may follow.
    """
    largest = plan.microbatch_size if state.temporal else state.workload.global_batch_size
    one = replace(plan, microbatch_size=largest, n_microbatches=1, interleave=1, periodic=NOTHING)
    # Of one microbatch, on chips that share nothing: gradients are neither added up nor sent.
    return replace(one, schedule=Schedule.GPIPE, data=1, zero=Zero.NONE.number)


def unburdened(load: ChipLoad) -> ChipLoad:
    """Return a load without what plans add: weights, tensors that have to fit, and prices."""
    return replace(
        load,
        memory_limit=math.inf,
        weight_time=(0.0,) * load.n,
        resident_alone=False,
        memory_price=0.0,
        network_price=0.0,
        extra=0.0,
    )


def block_bound(state: SearchState, plan: MeshPlan, *, together: bool = False) -> float:
    """Bound the layer time under all plans of the block of ``plan``. [s]

    ``together``: of passes that run together, where tokens on their way take the share of the
    units alone that communicates (`crosstack.model.schedule.dual`).
    With one tile nothing is cut raggedly, so no number of tiles has less work or traffic; what
    one tile needs of the SRAM is not looked at.
    """
    return float(layers_of_block(state, plan, np.asarray(plan.again), together=together))


def bend_of(state: SearchState, plan: MeshPlan) -> Bend | None:
    """Return a line below the objective of a plan; None where `Pricing.total` is exact."""
    if not state.pricing.exact_matters(plan):
        return None
    state.spend_on_passes(plan)
    return state.pricing.bend(plan, block_bound(state, plan, together=plan.schedule.pairs))


def layers_of_block(
    state: SearchState, plan: MeshPlan, again: Floats, *, together: bool = False
) -> Floats:
    """Bound the layer times under plans of the block of ``plan``, of which shares compute again.

    A layer takes on average a sum of what those that compute again take and what others do; each
    takes its own bound at least, whatever kernels they have in common. [s]

    Parameters
    ----------
    again : array
        Shares of the layers of a stage that compute again. [1]
    together : bool
        As `block_bound` has it.
    """
    pure = _pure_plans(state, plan, again)
    whole, *none = (_pure_bound(state, one, together=together) for one in pure)
    if not none:
        return np.full(np.shape(again), whole)
    return np.asarray(none[0] + again * (whole - none[0]))


def know_blocks(state: SearchState, some: Sequence[tuple[MeshPlan, Floats, bool]]) -> None:
    """Bound the blocks of plans that are not bounded yet, those of one graph at once.

    Parameters
    ----------
    some : sequence of (MeshPlan, array, bool)
        A plan of each block, shares of layers that compute again under plans of it [1], and whether
        passes run together.
    """
    new: dict[object, tuple[MeshPlan, bool]] = {}
    for plan, again, pairs in some:
        together = pairs and state.waits_for_tokens(plan)
        for pure in _pure_plans(state, plan, again):
            key = *block_of(state, pure), together
            if key not in state.known.blocks and key not in new:
                new[key] = unburdened_plan(state, pure), together
    keys = list(new)
    for start in range(0, len(keys), AT_ONCE):
        here = keys[start : start + AT_ONCE]
        found = _layer_bounds(state, [new[key] for key in here])
        state.known.blocks.update(zip(here, found, strict=True))


def _pure_plans(state: SearchState, plan: MeshPlan, again: Floats) -> list[MeshPlan]:
    """Return plans whose layers all compute the same again, of which shares are a mean.

    Where all compute again what the plan says, that is one; else there is one that computes
    nothing again behind it.
    """
    whole = replace(plan, again=1.0)
    if np.all(again == 1):
        return [whole]
    return [whole, with_recompute(plan, state.arrays, Recompute.NONE)]


def _pure_bound(state: SearchState, plan: MeshPlan, *, together: bool = False) -> float:
    """Bound the layer time where all layers compute the same again. [s]"""
    together = together and state.waits_for_tokens(plan)
    key = *block_of(state, plan), together
    if key not in state.known.blocks:
        (state.known.blocks[key],) = _layer_bounds(
            state, [(unburdened_plan(state, plan), together)]
        )
    return state.known.blocks[key]


def _layer_bounds(state: SearchState, plans: Sequence[tuple[MeshPlan, bool]]) -> list[float]:
    """Bound the layer times of plans that nothing burdens, whose passes may run together. [s]"""
    many, simple, loads = list[tuple[Choices, Domains]](), list[float](), list[ChipLoad]()
    for plan, together in plans:
        choices = state.table_together(plan, 1) if together else state.table(plan, 1)
        domains, network = state.domains(plan), 0.0
        load = unburdened(state.lightest_load(plan, choices, domains, roomy=True))
        state.budget.spend(BOUND * load.n // 2)
        if plan.tensor > 1:
            network = sum(load.network)
            if load.temporal is None or load.overlap is Overlap.ALL:  # else told with the device
                state.budget.spend(BOUND * load.n // 2)
                network = max(state.network_bound(domains, choices), network)
        loads.append(replace(load, sram_capacity=math.inf, unit=None))
        simple.append(simple_bound(loads[-1], network))
        many.append((choices, domains))
    found = np.maximum(following_bounds(many, loads[0]), simple).tolist()
    if not state.unfused:
        return list(found)
    alone = (one_by_one_bound(*one, load) for one, load in zip(many, loads, strict=True))
    return [max(pair) for pair in zip(found, alone, strict=True)]


def know_network_floors(state: SearchState, plans: Sequence[MeshPlan]) -> None:
    """Bound what the network takes of plans for which it is not known yet; see `network_floor`."""
    new: dict[object, tuple[Choices, Domains]] = {}
    for plan in plans:
        key = _key_of_network(plan)
        if plan.tensor == 1 or key in state.known.blocks or key in new:
            continue
        whole = replace(plan, microbatch_size=state.workload.global_batch_size, n_microbatches=1)
        whole = replace(whole, periodic=NOTHING)
        state.budget.spend(BOUND * state.arrays.n)
        choices = make_choices(state.workload, state.arrays, whole, 1, state.rules)
        new[key] = choices, state.domains(whole)
    found = least_of_many([(c, d, c.network_time) for c, d in new.values()])
    state.known.blocks.update(zip(new, found.tolist(), strict=True))


def network_floor(state: SearchState, plan: MeshPlan) -> float:
    """Return what the network takes of a layer for one sequence, whatever the microbatches. [s]

    Of a microbatch that is the whole batch: a message is never slower for each byte than a smaller
    one, as its time is the least of lines that begin above nothing.
    """
    if plan.tensor == 1:  # tokens alone are sent, whose exchange strategies know
        return 0.0
    know_network_floors(state, [plan])
    return state.known.blocks[_key_of_network(plan)]


def _key_of_network(plan: MeshPlan) -> tuple[object, ...]:
    """Return what tells what the network takes of plans at least from others."""
    return "network", *chips_of_block(plan), plan.recompute
