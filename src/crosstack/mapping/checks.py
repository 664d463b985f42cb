"""What is given before a search, against the workload, the machine and the rules."""

from __future__ import annotations

from crosstack.errors import require
from crosstack.machine.chip import Execution
from crosstack.machine.system import Parallelism, System
from crosstack.mapping.mapping import Constraints
from crosstack.mapping.parallelism import network_uses
from crosstack.model.memory import recomputations, weight_gradients
from crosstack.model.mesh_plan import experts_allowed, spread
from crosstack.model.rules import Rules
from crosstack.workload.kernels import Placement
from crosstack.workload.transformer_training import Hidden, Schedule, Zero
from crosstack.workload.workload import Workload


def check_given(workload: Workload, system: System, constraints: Constraints, rules: Rules) -> None:
    """Raise `InputError` where something is given that cannot be, naming what is allowed."""
    _dimensions(workload, system, rules)
    _degrees(workload, system, constraints, rules)
    _tiles(workload, system, constraints, rules)
    _recompute(workload, constraints, rules)
    _schedule(workload, constraints, rules)
    if workload.training:
        _sharing(system, constraints)
    check_overlap(workload, rules, constraints.overlap, "constraints.overlap")


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


def _dimensions(workload: Workload, system: System, rules: Rules) -> None:
    experts = spread(workload, rules)
    for i, d in enumerate(system.network):
        if d.parallelism is Parallelism.EXPERT:
            good, said = experts % (d.size or 1) == 0, f"{d.parallelism} of {d.size or 'any'} chips"
            allowed = experts_allowed(workload, experts, 1)
            good = good and (experts > 1 or d.size == 1)
            require(good, f"system.network[{i}].parallelism", said, allowed)


def _degrees(workload: Workload, system: System, constraints: Constraints, rules: Rules) -> None:
    degrees, field, n_chips = constraints.degrees, "constraints.degrees", system.n_chips
    if not degrees.given:
        return
    said, placed = str(degrees), workload.placement is not Placement.SEARCHED
    require(not placed, field, said, f"none for {workload.name}, which brings its own")
    experts = spread(workload, rules)
    if degrees.expert is not None:
        wide = degrees.expert * (degrees.tensor or 1)
        good = degrees.expert == 1 or experts % wide == 0
        require(good, field, said, experts_allowed(workload, experts, degrees.tensor or 1))
    product = degrees.n_chips
    fits = product == n_chips if degrees.all_given else n_chips % product == 0
    part = "" if degrees.all_given else " a divisor of"
    require(fits, field, said, f"degrees whose product is{part} {n_chips}, the number of chips")
    batch, data = workload.global_batch_size, degrees.data or degrees.expert or 1
    which = "a dp" if degrees.data else "an ep"
    require(batch % data == 0, field, said, f"{which} that divides the batch of {batch}")
    shared = rules.collectives.share_dimensions
    some = next(network_uses(system, shared=shared, degrees=degrees, experts=experts), None)
    sizes = " x ".join(str(d.size or "free") for d in system.network)
    allowed = f"degrees that the dimensions of the network, {sizes}, can be used for"
    require(some is not None, field, said, allowed)


def _recompute(workload: Workload, constraints: Constraints, rules: Rules) -> None:
    some, given = recomputations(workload.graph, rules), constraints.recompute
    allowed = f"{', '.join(some)} for {workload.name} by rules {rules.name}"
    good = given is None or given in some
    require(good, "constraints.recompute", given and given.value, allowed)


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
    if framework is None or not framework.sharing or data == 1:
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


def _schedule(workload: Workload, constraints: Constraints, rules: Rules) -> None:
    schedule, pieces = constraints.schedule, constraints.interleave
    one = Schedule.ONE_F_ONE_B
    if not (rules.iteration.has_schedules and workload.training):
        where = f"for {workload.name} by rules {rules.name}"
        require(schedule in (None, one), "constraints.schedule", str(schedule), f"{one} {where}")
        require(pieces in (None, 1), "constraints.interleave", pieces, f"1 {where}")
    if schedule is None:
        return
    apart = not schedule.defers_weights or bool(weight_gradients(workload.graph).any())
    others = f"{', '.join(kind for kind in Schedule if not kind.defers_weights)}: {workload.name}"
    allowed = f"{others} has no gradients of weights to compute apart"
    require(apart, "constraints.schedule", schedule.value, allowed)
    zero = not schedule.defers_weights or constraints.zero in (None, Zero.NONE, Zero.STATE)
    allowed = f"0 or 1 with schedule {schedule}, whose gradients of weights wait; more with {one}"
    require(zero, "constraints.zero", str(constraints.zero), allowed)
    alone = schedule is one or pieces in (None, 1)
    allowed = f"1 with schedule {schedule}; more with {one}"
    require(alone, "constraints.interleave", pieces, allowed)
