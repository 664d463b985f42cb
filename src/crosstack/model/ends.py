"""What runs before the first layer and behind the last one: the embedding, the head and its loss.

An end is a graph of its own (`crosstack.workload.workload.End`). It runs on the chips of the first
or of the last stage, split over the tensor-parallel chips as its own mapping says, on every
microbatch; its formulas are those of the layers. What it hands to the layers or takes from them is
in the layout that each needs. Ends that hold layers (dense ones before those with experts, those
that predict further tokens) compute again what layers do; of others nothing is computed again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np

from crosstack.machine.chip import Overlap
from crosstack.machine.system import System
from crosstack.model.alive import live_sizes
from crosstack.model.attention import attention_core, work_done
from crosstack.model.caches import keeps_cache
from crosstack.model.choices import Choices, least_activations
from crosstack.model.collectives import NOTHING, AffineTime, ConcaveTime
from crosstack.model.dispatch import host_time
from crosstack.model.end_cost import NO_END, EndCost
from crosstack.model.legality import mask_of
from crosstack.model.memory import (
    COPY_COLUMNS,
    computed_again,
    copy_memory,
    gradient_size,
    recomputations,
)
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.partition import ChipLoad, PartitionCost, make_load, one_by_one, partition_cost
from crosstack.model.rules import Rules
from crosstack.workload.kernel_graph import Bools, Ints
from crosstack.workload.transformer_training import Recompute, Zero
from crosstack.workload.workload import End, Workload

ANY_EXCHANGE = ConcaveTime((AffineTime(fixed=0.0, per_byte=1e-12),))  # stands for all


def counted(workload: Workload, rules: Rules) -> Workload:
    """Return what of a workload a rule set counts: with its ends, or the layers alone."""
    return workload if rules.iteration.has_ends else workload.without_ends()


def holds_layers(end: End) -> bool:
    """Whether an end has layers of its own, with attention: then it is long, and keeps much."""
    return bool(attention_core(end.graph).any())


def computed_again_of(end: End, layers: Recompute) -> Recompute:
    """What the backward pass of an end computes again: what ``layers`` do, if it has some."""
    return layers if holds_layers(end) else Recompute.NONE


def plan_of_end(plan: MeshPlan, end: End) -> MeshPlan:
    """Return the plan of one run of an end, on the chips of its stage."""
    ones = "pipeline", "layers_per_stage", "n_layers", "graph_stages", "graph_repetitions"
    single: dict[str, Any] = dict.fromkeys((*ones, "interleave"), 1)
    single |= {"first_fewer": 0, "last_fewer": 0}
    again = computed_again_of(end, plan.recompute)
    return replace(plan, **single, recompute=again, again=1.0, ends=(NO_END, NO_END))


def block_of_end(plan: MeshPlan, end: End, overlap: Overlap) -> MeshPlan:
    """Return the plan of one microbatch through an end, without what follows once an iteration.

    Plans have it in common that differ in their stages, in how many microbatches they have, in what
    data-parallel chips share or, of an end without experts, in where those of layers are. Where
    nothing is split and sends wait, the exchange of tokens adds the same to every mapping.
    """
    nothing: dict[str, Any] = dict.fromkeys(("summed", "expert_summed", "update", "casting"), 0.0)
    if not (end.graph.experts > 0).any():
        nothing |= {"expert": 1, "expert_tensor": 1, "exchange": NOTHING, "cut_over": None}
    elif plan.tensor == 1 and overlap is not Overlap.ALL:
        nothing |= {"exchange": ANY_EXCHANGE}
    one = replace(plan_of_end(plan, end), **nothing, periodic=NOTHING)
    return replace(one, n_microbatches=1, zero=Zero.NONE.number)


def least_ends(workload: Workload, system: System, plan: MeshPlan, rules: Rules) -> MeshPlan:
    """Return a plan with ends that take no more than any mapping of them does."""
    costs = []
    for end in workload.ends:
        graph, ways = plan.graph(end.graph), plan.tensor * math.prod(plan.split)
        chip, traffic = system.chip, rules.traffic
        taken, there = (
            end.count * rules.clock.least_time(chip, work_done(graph, chip, traffic, forward=once))
            for once in (False, True)
        )
        own = graph.weight_size / graph.sharers
        shared = end.shared_size if plan.pipeline == 1 else 0.0
        weights = (float(own[~graph.backward].sum()) + end.table_size - shared) / ways
        numbers = weights / end.element_size if workload.training else 0.0
        trained = rules.memory.as_trained(workload)
        gradients = gradient_size(workload, plan, rules)
        spread = ~graph.backward & (graph.experts > 0) & (plan.expert > 1)
        experts = float(own[spread].sum()) / ways
        kept, again = _least_kept(workload, end, plan, rules)
        its = experts / end.element_size if workload.training else 0.0
        costs.append(
            EndCost(
                time=taken / ways,
                forward=there / ways,
                summed=end.count * weights * workload.training * gradient_share(workload, end),
                weights=end.count * weights,
                gradients=end.count * gradients * numbers,
                optimizer_state=end.count * trained.optimizer_bytes * numbers,
                expert_summed=end.count
                * experts
                * workload.training
                * gradient_share(workload, end),
                expert_weights=end.count * experts,
                expert_gradients=end.count * gradients * its,
                expert_state=end.count * trained.optimizer_bytes * its,
                kept=end.count * kept,
                live=again,
            )
        )
    return with_ends(workload, plan, costs)


def _least_kept(workload: Workload, end: End, plan: MeshPlan, rules: Rules) -> tuple[float, float]:
    """Return what a run of an end keeps of a sequence at least, and what comes to that once. [B]

    Where an end computes again what layers do, whatever that is: what is kept of less is at least
    what is kept of all and computed again.
    """
    if not (workload.training and rules.memory.keeps_activations):
        return 0.0, 0.0
    ways = plan.tensor, plan.expert, plan.expert_tensor, plan.split
    if ways not in (known := _kept_of_end(workload, end, rules)):
        kinds = recomputations(end.graph, rules) if holds_layers(end) else (Recompute.NONE,)
        own = replace(plan_of_end(plan, end), recompute=kinds[-1])
        known[ways] = least_activations(workload.of_end(end), end.graph, own, rules)
    return known[ways]


@lru_cache(maxsize=64)
def _kept_of_end(
    workload: Workload, end: End, rules: Rules
) -> dict[tuple[int, int, int, tuple[int, int, int]], tuple[float, float]]:
    """Return what `_least_kept` knows of an end, by how many chips split it and how."""
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedBlock:
    """One run of a graph under a mapping: its choices, load, partitions as masks, their costs."""

    choices: Choices
    codes: Ints
    load: ChipLoad
    masks: tuple[int, ...]
    costs: tuple[PartitionCost, ...]


def priced_end(
    workload: Workload,
    system: System,
    end: End,
    plan: MeshPlan,
    rules: Rules,
    choices: Choices,
    codes: Ints,
    masks: tuple[int, ...],
) -> PricedBlock:
    """Price one run of an end, by choices of it under `plan_of_end`, and ``codes`` of those taken.

    Parameters
    ----------
    workload, plan
        Of which it is an end, and the plan of all of that.
    masks : tuple of int
        Its partitions, in the order that they run.
    """
    alone = workload.of_end(end), system, end.graph, plan_of_end(plan, end)
    load = make_load(*alone, choices, codes, rules)
    if len(masks) == end.graph.n:
        load = one_by_one(load, rules)
    costs = tuple(partition_cost(load, mask) for mask in masks)
    return PricedBlock(choices=choices, codes=codes, load=load, masks=masks, costs=costs)


def end_cost(
    workload: Workload, system: System, end: End, plan: MeshPlan, rules: Rules, priced: PricedBlock
) -> EndCost:
    """Return what all runs of an end take of a chip; ``workload`` and ``plan`` as `priced_end`.

    A table that is looked up in is split over the tensor-parallel chips; its gradient is summed
    over the data-parallel ones. What two ends share is there once where both are on one chip.
    """
    load, codes, choices = priced.load, priced.codes, priced.choices
    alone, graph = workload.of_end(end), end.graph
    column = {name: getattr(choices, name)[codes] for name in COPY_COLUMNS}
    its = plan_of_end(plan, end)
    held = copy_memory(alone, graph, its, rules, **column)
    table, own = end.table_size / plan.tensor, own_table(workload, end, plan)
    numbers = own / end.element_size if workload.training else 0.0
    summed, spread = (float(c[codes].sum()) for c in (choices.summed, choices.expert_summed))
    if workload.training:
        once = table
        if end in workload.after and plan.pipeline > 1:  # a copy, whose gradients are a part
            once += end.shared_size / plan.tensor
        summed += once * gradient_share(workload, end)
    clock, chip = rules.clock, system.chip
    peak, slower = clock.peak_rate(chip, graph.dtype), clock.slower(chip, graph)
    joules = 0.0 if choices.clocked is None else float(choices.clocked.joules[codes].sum())
    # Its weights are sent before a microbatch, its gradients behind it, and nothing runs beside.
    sent: Any = plan.bringing_time(summed, spread) / plan.microbatch_size
    left: Any = plan.leaving_time(summed, spread) / plan.microbatch_size
    taken: Any = sum(cost.time for cost in priced.costs)
    again = computed_again(graph, its.recompute)
    forward: Any = _forward(priced, again)
    exchanged = choices.exchange_time[codes]
    if plan.driven is not None:  # nothing is as long before its host has launched it
        host = host_time(graph, chip, its.recompute, plan.expert_parts) / plan.microbatch_size
        launched = np.maximum(taken, host)
        nothing = np.equal(taken, 0)
        forward = forward * np.where(nothing, 1.0, launched / np.where(nothing, 1.0, taken))
        taken = launched
    trained = rules.memory.as_trained(workload)
    one = EndCost(
        time=taken + sent + left,
        forward=forward + sent,
        compute=float((choices.work[codes] * slower).sum()) / peak,
        memory=sum(cost.memory for cost in priced.costs),
        tensor=sum(load.network),
        expert=float(exchanged.sum()),
        expert_forward=float((exchanged / (1 + again))[~graph.backward].sum()),
        context=float(choices.context_busy[codes].sum()),
        waited=float(choices.context_time[codes].sum()),
        on_chip=joules,
        summed=summed,
        weights=float(held.weights.sum()) + own,
        gradients=float(held.gradients.sum()) + gradient_size(workload, plan, rules) * numbers,
        optimizer_state=float(held.optimizer_state.sum()) + trained.optimizer_bytes * numbers,
        expert_summed=spread,
        expert_weights=float(held.weights[held.experts].sum()),
        expert_gradients=float(held.gradients[held.experts].sum()),
        expert_state=float(held.optimizer_state[held.experts].sum()),
        caches=float(held.caches[keeps_cache(graph)].sum()),
        buffers=float(held.buffers.sum()),
        kept=float(held.kept.sum()),
        live=max(live_sizes(load, priced.masks)) + max(float(held.again.sum()), 0.0),
    )
    return end_runs(one, end.count)


def end_runs(cost: EndCost, count: int) -> EndCost:
    """Return what so many runs take; what is alive is that of one."""
    sizes = {f.name: count * getattr(cost, f.name) for f in fields(cost)}
    return EndCost(**{**sizes, "live": cost.live})


def gradient_share(workload: Workload, end: End) -> float:
    """Bytes of the gradient of each byte of the weights of an end. [1]"""
    said = workload.gradients
    return 1.0 if said is None else said.size / end.element_size


def own_table(workload: Workload, end: End, plan: MeshPlan) -> float:
    """Bytes of a chip's part of the table that an end looks up in, if no other end has it. [B]"""
    once = end.shared_size if plan.pipeline == 1 and end in workload.before else 0.0
    return max(end.table_size - once, 0.0) / plan.tensor


def with_ends(workload: Workload, plan: MeshPlan, costs: Sequence[EndCost]) -> MeshPlan:
    """Return a plan whose first and last stage have ends that cost so much, one by one."""
    count = len(workload.before)
    return replace(plan, ends=(_added(costs[:count]), _added(costs[count:])))


def _forward(priced: PricedBlock, again: Bools) -> float:
    """Time of partitions before the backward pass, by kernels where one has both. [s]

    Kernels that run ``again`` do so in the backward pass: half of what they take.
    """
    total, twice = 0.0, mask_of(again)
    for mask, cost in zip(priced.masks, priced.costs, strict=True):
        before = mask & ~priced.load.backward
        kernels = before.bit_count() - (before & twice).bit_count() / 2
        total += cost.time * kernels / mask.bit_count()
    return total


def _added(costs: Sequence[EndCost]) -> EndCost:
    """Return what ends on one chip take together."""
    if not costs:
        return NO_END
    sums = {f.name: sum(getattr(cost, f.name) for cost in costs) for f in fields(EndCost)}
    live: Any = np.maximum.reduce([cost.live for cost in costs])
    return EndCost(**{**sums, "live": live})
