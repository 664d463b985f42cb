"""What is given before a search, against the workload, the machine and the rules."""

from __future__ import annotations

from crosstack.errors import require
from crosstack.machine.chip import Execution
from crosstack.machine.system import System
from crosstack.mapping.mapping import Constraints
from crosstack.model.memory import recomputations
from crosstack.model.rules import Rules
from crosstack.workload.transformer_training import Schedule
from crosstack.workload.workload import Workload

__all__ = ["check_given"]


def check_given(workload: Workload, system: System, constraints: Constraints, rules: Rules) -> None:
    """Raise `InputError` where something is given that cannot be.

    Parameters
    ----------
    constraints : Constraints
        What is given.

    Raises
    ------
    InputError
        Naming what is allowed.
    """
    _tiles(workload, system, constraints, rules)
    _recompute(workload, constraints, rules)
    _schedule(workload, constraints, rules)


def _recompute(workload: Workload, constraints: Constraints, rules: Rules) -> None:
    allowed = recomputations(workload.graph, rules)
    given = constraints.recompute
    require(
        given is None or given in allowed,
        "constraints.recompute",
        given and given.value,
        f"{', '.join(allowed)} for {workload.name} by rules {rules.name}",
    )


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
    require(
        size is None or n_tiles * size >= length,
        "constraints.tile_size",
        size,
        f"at least {-(-length // n_tiles)}, so that {n_tiles} tiles cover the sequence of {length}",
    )


def _schedule(workload: Workload, constraints: Constraints, rules: Rules) -> None:
    schedule, pieces = constraints.schedule, constraints.interleave
    one = Schedule.ONE_F_ONE_B
    if not (rules.iteration.has_schedules and workload.training):
        where = f"for {workload.name} by rules {rules.name}"
        require(schedule is one, "constraints.schedule", schedule.value, f"{one} {where}")
        require(pieces in (None, 1), "constraints.interleave", pieces, f"1 {where}")
    alone = schedule is one or pieces in (None, 1)
    allowed = f"1 with schedule {schedule}; more with {one}"
    require(alone, "constraints.interleave", pieces, allowed)
