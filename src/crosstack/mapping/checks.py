"""What is given before a search, against the workload, the machine and the rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from crosstack.errors import InputError, Problem, require
from crosstack.machine.chip import Chip, Execution
from crosstack.machine.framework import Framework
from crosstack.machine.system import Parallelism, System
from crosstack.mapping.degrees import Degrees
from crosstack.mapping.mapping import Constraints, GeneralDecisions
from crosstack.mapping.network_uses import network_uses
from crosstack.mapping.parallelism import expert_cuts
from crosstack.model.context import context_refused, shared_tokens
from crosstack.model.expert_cut import GROUPS_ALLOWED
from crosstack.model.expert_degrees import cuts_experts, experts_allowed, spread
from crosstack.model.memory import recomputations, weight_gradients
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.rules import Rules
from crosstack.model.runnable import runs_again, runs_schedule, schedules_allowed
from crosstack.model.schedule.allowed import (
    interleavings,
    may_follow,
    schedules,
    some_layers_again,
)
from crosstack.model.schedule.zero_bubble import least_microbatches
from crosstack.model.tiles import divisors
from crosstack.workload.kernel_graph import KernelGraph
from crosstack.workload.kernels import Placement
from crosstack.workload.transformer_training import Hidden, Offload, Recompute, Schedule, Zero
from crosstack.workload.workload import Workload


def check_given(workload: Workload, system: System, constraints: Constraints, rules: Rules) -> None:
    """Raise `InputError` where something is given that cannot be, naming what is allowed."""
    _dimensions(workload, system, constraints, rules)
    _degrees(workload, system, constraints, rules)
    _tiles(workload, system, constraints, rules)
    _recompute(workload, system, constraints, rules)
    _schedule(workload, system, constraints, rules)
    if workload.training:
        _sharing(system, constraints)
    check_overlap(workload, rules, constraints.overlap, "constraints.overlap")
    check_offload(workload, system, rules, constraints, "constraints.")
    exchange = constraints.context_exchange
    some = exchange is None or shared_tokens(workload, rules) > 1
    allowed = f"none, as no chips may share the sequences of {workload.name}"
    require(some, "constraints.context_exchange", str(exchange), allowed)


def check_overlap(
    workload: Workload, rules: Rules, overlap: tuple[Hidden, ...] | None, path: str
) -> None:
    """Raise `InputError` at ``path`` where what is hidden cannot be said of a workload."""
    if overlap is None:
        return
    said = ",".join(overlap) or "none"
    counted = workload.training and rules.iteration.has_schedules
    where = f"for {workload.name} by rules {rules.name}"
    require(counted, path, said, f"nothing {where}")
    apart = not workload.graph.shares_weights or {*overlap} <= {Hidden.SENDS}
    require(apart, path, said, f"none or sends: layers of {workload.name} share weights")


def check_offload(
    workload: Workload,
    system: System,
    rules: Rules,
    given: Constraints | GeneralDecisions,
    path: str,
) -> None:
    """Raise `InputError` below ``path`` where what is on the hosts cannot be there."""
    kinds, host, where = given.offload, system.host, f"{path}offload"
    if not kinds:
        return
    said, allowed = "+".join(kinds), f"none for {workload.name} by rules {rules.name}"
    counted = workload.training and rules.iteration.has_schedules
    require(counted and not workload.graph.shares_weights, where, said, allowed)
    allowed = f"none on {system.name}, of whose hosts nothing is known: system.host says it "
    allowed += "(bandwidth, capacity, memory_bandwidth of a chip's share)"
    require(host is not None, where, said, allowed)
    assert host is not None
    slow = Offload.OPTIMIZER in kinds and host.memory_bandwidth is None
    allowed = "state, or system.host.memory_bandwidth, by which a host updates"
    require(not slow, where, said, allowed)
    if Offload.ACTIVATIONS not in kinds:
        return
    some = given.recompute_layers
    allowed = f"none with {Offload.ACTIVATIONS} on the host: all layers are alike"
    require(some is None, f"{path}recompute_layers", some, allowed)
    waits = given.schedule is not None and given.schedule.defers_weights
    others = ", ".join(kind for kind in Schedule if not kind.defers_weights)
    allowed = f"{others} with {Offload.ACTIVATIONS} on the host"
    require(not waits, f"{path}schedule", str(given.schedule), allowed)


def _dimensions(workload: Workload, system: System, constraints: Constraints, rules: Rules) -> None:
    experts = spread(workload, rules)
    for i, d in enumerate(system.network):
        if d.parallelism is Parallelism.EXPERT:
            good, said = experts % (d.size or 1) == 0, f"{d.parallelism} of {d.size or 'any'} chips"
            allowed = experts_allowed(workload, experts, d.size or 1)
            good = good and (experts > 1 or d.size == 1)
            require(good, f"system.network[{i}].parallelism", said, allowed)
        if d.parallelism is Parallelism.CONTEXT:
            given: dict[str, Any] = {
                "tensor": 1,
                "context": d.size or 2,
                "exchange": constraints.context_exchange,
            }
            allowed = context_refused(workload, system, rules, **given)
            said = f"{d.parallelism} of {d.size or 'any'} chips"
            require(not allowed, f"system.network[{i}].parallelism", said, allowed)


def _degrees(workload: Workload, system: System, constraints: Constraints, rules: Rules) -> None:
    degrees, field, n_chips = constraints.degrees, "constraints.degrees", system.n_chips
    if not degrees.by_word:
        return
    said, placed = str(degrees), workload.placement is not Placement.SEARCHED
    require(not placed, field, said, f"none for {workload.name}, which brings its own")
    experts = spread(workload, rules)
    cut = cuts_experts(workload, rules)
    if degrees.expert is not None:
        besides = 1 if cut or degrees.expert_tensor is not None else degrees.tensor or 1
        good = degrees.expert == 1 or experts % (degrees.expert * besides) == 0
        allowed = experts_allowed(workload, experts, degrees.expert, besides)
        require(good, field, said, allowed)
    alone = degrees.expert_tensor in (None, 1) or cut
    allowed = f"etp=1: no chips cut experts of {workload.name} by rules {rules.name}"
    require(alone, field, said, allowed)
    context, tokens = degrees.context or 1, shared_tokens(workload, rules)
    asked: dict[str, Any] = {"tensor": degrees.tensor or 1, "context": context}
    asked["exchange"] = constraints.context_exchange
    refused = context_refused(workload, system, rules, **asked)
    require(not refused, field, said, refused)
    others = replace(degrees, context=context) if tokens == 1 else degrees
    product = degrees.n_chips
    fits = product == n_chips if others.all_given else n_chips % product == 0
    part = "" if others.all_given else " a divisor of"
    require(fits, field, said, f"degrees whose product is{part} {n_chips}, the number of chips")
    batch, data = workload.global_batch_size, degrees.data or degrees.expert_chips or 1
    which = "a dp" if degrees.data else "an ep"
    require(batch % data == 0, field, said, f"{which} that divides the batch of {batch}")
    shared = rules.collectives.share_dimensions
    uses = network_uses(
        system, shared=shared, degrees=degrees, experts=experts, tokens=tokens, cut=cut
    )
    some = next(uses, None)
    sizes = " x ".join(str(d.size or "free") for d in system.network)
    allowed = f"degrees that the dimensions of the network, {sizes}, can be used for"
    require(some is not None, field, said, allowed)
    if cut and degrees.expert_tensor not in (None, 1, degrees.tensor):
        _groups(system, degrees, experts, shared=shared, tokens=tokens)


def _groups(system: System, degrees: Degrees, experts: int, *, shared: bool, tokens: int) -> None:
    """Check that the network has groups of chips that cut experts, as many as divide them."""
    asked = degrees.expert_tensor or 1

    def divide(chips: int, said: Degrees) -> bool:
        uses = network_uses(
            system, shared=shared, degrees=said, experts=experts, tokens=tokens, cut=True
        )
        ways = (expert_cuts(use, system, experts, chips, whole=True, cut=True) for use in uses)
        return any(chips in way for way in ways)

    if divide(asked, degrees):
        return
    free = replace(degrees, expert=None, expert_tensor=None)
    good = [n for n in divisors(degrees.tensor or system.n_chips) if divide(n, free)]
    near = [*[n for n in good if n < asked][-1:], *[n for n in good if n > asked][:1]]
    close = " or ".join(f"etp={n}" for n in near)
    levels = " x ".join(str(d.size or "free") for d in system.network)
    message = (
        f"got {str(degrees)!r}; allowed: {GROUPS_ALLOWED}, {levels}, in as many groups as divide "
        f"the {experts} experts; nearest: {close}."
    )
    raise InputError(Problem("constraints.degrees", message))


def require_layers_again(
    chip: Chip, rules: Rules, layers: int, path: str, plan: MeshPlan | None = None
) -> None:
    """Raise `InputError` at ``path`` unless ``layers`` of a stage may compute again, of a plan."""
    allowed = f"all layers of a stage, by rules {rules.name} on {chip.name}: one time of a layer "
    allowed += "for all, but on chips that run kernels one by one and wait for their network"
    require(some_layers_again(chip, rules), path, layers, allowed)
    if plan is not None:
        most = plan.layers_per_stage // plan.interleave
        where = f"layers of each of {plan.pipeline * plan.interleave} pieces of the model"
        require(layers <= most, path, layers, f"up to {most}, the {where}")


def require_schedule(
    plan: MeshPlan, arrays: KernelGraph, rules: Rules, order: Schedule, where: str
) -> None:
    """Raise `InputError` at ``mapping.schedule`` unless a plan may follow a schedule.

    ``where`` says for what and by which rules.
    """
    orders, path = schedules(plan, arrays, rules), "mapping.schedule"
    framework = plan.framework
    runs = not plan.training or bool(runs_schedule(framework, order, plan.pipeline))
    allowed = f"{', '.join(orders)} {where}" if runs else schedules_allowed(framework, order)
    require(order in orders and runs, path, order.value, allowed)
    least = least_microbatches(plan.pipeline, order)
    few = f"{Schedule.ONE_F_ONE_B}, or at least as many microbatches as stages, {plan.pipeline}"
    if least > plan.pipeline:
        few = f"{Schedule.ONE_F_ONE_B}, or at least {least} microbatches, of {plan.pipeline} stages"
    enough = not order.defers_weights or plan.n_microbatches >= least
    if order.both_ends:
        few = f"{Schedule.ONE_F_ONE_B}, or an even number of stages, and of microbatches at least "
        few += f"twice as many as the {plan.pipeline} stages"
        enough = bool(may_follow(replace(plan, schedule=order, interleave=1), rules))
    if order is Schedule.COMBINED:
        few = f"{Schedule.ONE_F_ONE_B}, or chips that share experts (ep), and weights of layers of "
        few += "their own (zero 0 or 1), with one stage and two microbatches at least, or with "
        few += f"stages in pieces (interleave) and a multiple of {plan.pipeline} microbatches"
        enough = len(interleavings(replace(plan, schedule=order), rules)) > 0
    require(enough, path, f"{order} of {plan.n_microbatches} microbatches", few)


def require_again(
    framework: Framework | None, order: Schedule, again: Recompute, path: str
) -> None:
    """Raise `InputError` where a framework does not compute so much again by a schedule."""
    whose = "" if framework is None else f" and {framework.name}"
    allowed = f"{Recompute.NONE} or {Recompute.ATTENTION} with schedule {order}{whose}"
    require(runs_again(framework, order, again), path, again.value, allowed)


def _recompute(workload: Workload, system: System, constraints: Constraints, rules: Rules) -> None:
    some, given = recomputations(workload.graph, rules), constraints.recompute
    allowed = f"{', '.join(some)} for {workload.name} by rules {rules.name}"
    good = given is None or given in some
    require(good, "constraints.recompute", given and given.value, allowed)
    if constraints.recompute_layers is not None:
        layers, path = constraints.recompute_layers, "constraints.recompute_layers"
        require_layers_again(system.chip, rules, layers, path)
        pieces = (constraints.degrees.pipeline or 1) * (constraints.interleave or 1)
        most = -(-workload.graph_repetitions // pieces)
        where = f"the {workload.graph_words[1]} of the model"
        where += f", cut in {pieces} pieces" if pieces > 1 else ""
        require(layers <= most, path, layers, f"up to {most}, {where}")
        ends = constraints.schedule is not None and constraints.schedule.ends_meet
        allowed = f"none with schedule {constraints.schedule}: all layers are alike"
        require(not ends, path, layers, allowed)


def _tiles(workload: Workload, system: System, constraints: Constraints, rules: Rules) -> None:
    length, n_tiles = workload.sequence_length, constraints.n_tiles
    size = constraints.tile_size
    if system.chip.execution is Execution.TEMPORAL:
        whole = "as a kernel has a temporal chip to itself, and tiles of its own"
        require(n_tiles in (None, 1), "constraints.n_tiles", n_tiles, f"1, {whole}")
        short = size is not None and size < length
        require(not short, "constraints.tile_size", size, f"at least {length}, {whole}")
    allowed = "" if size is None else rules.decisions.tile_sizes(length, size)
    require(not allowed, "constraints.tile_size", size, f"{allowed} by rules {rules.name}")
    if n_tiles is None:
        return
    require(n_tiles <= length, "constraints.n_tiles", n_tiles, f"1 to sequence_length, {length}")
    cover = f"so that {n_tiles} tiles cover the sequence of {length}"
    covered, allowed = (size or length) * n_tiles >= length, f"at least {-(-length // n_tiles)}"
    require(covered, "constraints.tile_size", size, f"{allowed}, {cover}")


def _sharing(system: System, constraints: Constraints) -> None:
    framework, data = system.chip.framework, constraints.degrees.data
    if framework is None or not framework.sharing or data == constraints.degrees.context == 1:
        return
    zero, schedule, shares = constraints.zero, constraints.schedule, ", ".join(framework.sharing)
    alone = zero is Zero.NONE and data is None  # with one data-parallel chip
    good = zero is None or zero in framework.sharing or alone
    require(good, "constraints.zero", str(zero), f"{shares} with {framework.name}")
    waits = schedule is not None and schedule.defers_weights
    waits = waits and data is not None and Zero.STATE not in framework.sharing
    others = ", ".join(kind for kind in Schedule if not kind.defers_weights)
    allowed = f"{others} with {framework.name}, whose layers exchange gradients"
    require(not waits, "constraints.schedule", str(schedule), allowed)


def _schedule(workload: Workload, system: System, constraints: Constraints, rules: Rules) -> None:
    schedule, pieces = constraints.schedule, constraints.interleave
    one = Schedule.ONE_F_ONE_B
    if not (rules.iteration.has_schedules and workload.training):
        where = f"for {workload.name} by rules {rules.name}"
        require(schedule in (None, one), "constraints.schedule", str(schedule), f"{one} {where}")
        require(pieces in (None, 1), "constraints.interleave", pieces, f"1 {where}")
    if schedule is None:
        return
    refused = schedules_allowed(system.chip.framework, schedule)
    require(not (refused and workload.training), "constraints.schedule", schedule.value, refused)
    if constraints.recompute is not None:
        framework, again = system.chip.framework, constraints.recompute
        require_again(framework, schedule, again, "constraints.recompute")
    sends = schedule is not Schedule.COMBINED or bool(workload.graph.exchanged.any())
    allowed = f"{', '.join(kind for kind in Schedule if kind is not Schedule.COMBINED)}: "
    allowed += f"{workload.name} has no experts that tokens are sent to"
    require(sends, "constraints.schedule", schedule.value, allowed)
    apart = not schedule.defers_weights or bool(weight_gradients(workload.graph).any())
    others = f"{', '.join(kind for kind in Schedule if not kind.defers_weights)}: {workload.name}"
    allowed = f"{others} has no gradients of weights to compute apart"
    require(apart, "constraints.schedule", schedule.value, allowed)
    zero = not schedule.keeps_weights or constraints.zero in (None, Zero.NONE, Zero.STATE)
    allowed = f"0 or 1 with schedule {schedule}, whose layers exchange no weights; more with {one}"
    require(zero, "constraints.zero", str(constraints.zero), allowed)
    alone = pieces is None or schedule.pieces in (None, pieces)
    allowed = f"{schedule.pieces} with schedule {schedule}; more with {one}"
    require(alone, "constraints.interleave", pieces, allowed)
