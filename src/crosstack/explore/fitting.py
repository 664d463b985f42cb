"""Where nothing fits: changes that make it fit, as numbers, the cheapest first.

Each change is tried: the changed task is searched under a small limit on work, so what a way needs
and takes is that of a mapping which fits. What a try does not find within its limit may exist, so a
way is never proved to be the least: a little less memory, or fewer chips, may do as well. First
comes what the same machine can do (decisions that were given, given otherwise), then another
machine: a chip with more memory, nodes of the library that have it, more chips. The time of a way
is held against that of the same task on chips whose memory holds anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from itertools import combinations
from typing import Any

from crosstack.errors import CrosstackError, InfeasibleError, InputError
from crosstack.evaluate.plan import Plan, optimise
from crosstack.io import native
from crosstack.io.library import entry, names, node, system_on
from crosstack.machine.system import System
from crosstack.mapping.degrees import FREE
from crosstack.mapping.mapping import Constraints, Task
from crosstack.model.memory import searched_recomputations
from crosstack.model.rules import MAPPED, Rules, chosen_rules
from crosstack.model.tiles import divisors
from crosstack.records import require_type
from crosstack.units import format_quantity
from crosstack.version import __version__
from crosstack.workload.transformer_training import Offload, Schedule, recompute_word

MAIN_MEMORY = "main memory"  # the resource, as errors name it
TRIED_WORK = 1e5  # units of work of a try: half a second
GROWTH = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)  # sizes tried, times the chips there are
MOST_NODES, MOST_TRIED = 3, 6  # nodes of the library that are listed, that are tried
MOST_PAIRS = 3  # of two changes at once that are listed
MOST_STEPS, STEP = 24, 1.02  # of the search for the least memory: how many, and the shortest


# What is tried on the hosts, until something fits.
OFFLOADS: tuple[tuple[Offload, ...], ...] = (
    (Offload.OPTIMIZER,),
    (Offload.ACTIVATIONS,),
    (Offload.OPTIMIZER, Offload.ACTIVATIONS),
)


class WayKind(StrEnum):
    """What a way changes: what runs on the same machine, or the machine."""

    RECOMPUTE = "recompute"
    OFFLOAD = "offload"
    MICROBATCH = "microbatch"
    SCHEDULE = "schedule"
    PARALLELISM = "parallelism"
    KERNELS = "kernels"
    SEVERAL = "several"
    EVERYTHING = "everything"
    MEMORY = "memory"
    NODE = "node"
    CHIPS = "chips"

    @property
    def same_machine(self) -> bool:
        """Whether the machine stays as it is."""
        return self not in (WayKind.MEMORY, WayKind.NODE, WayKind.CHIPS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A task that differs, in ``words`` that say in what; ``option`` is that of a command.

    ``fields`` are those of its constraints that differ.
    """

    kind: WayKind
    words: str
    task: Task
    option: str = ""
    fields: dict[str, Any] = field(default_factory=dict)

    def beside(self, other: Change) -> Change:
        """Return both changes of what is given at once."""
        words, option = f"{self.words}, {other.words}", f"{self.option} {other.option}".strip()
        fields = self.fields | other.fields
        return _given(self.task, WayKind.SEVERAL, words, option, **fields)


def _given(task: Task, kind: WayKind, words: str, option: str = "", **fields: Any) -> Change:
    """Return the change of a task of which other ``fields`` are given."""
    changed = replace(task, constraints=replace(task.constraints, **fields))
    return Change(kind=kind, words=words, option=option, task=changed, fields=fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A change with a mapping that fits; ``slowdown`` is its time over that with endless memory."""

    change: Change
    plan: Plan
    slowdown: float | None

    @property
    def chip_time(self) -> float:
        """Time of an iteration times the chips that it takes. [s]"""
        system = self.plan.task.system
        return self.plan.evaluation.time * system.n_chips * system.copies

    @property
    def option(self) -> str:
        """What to give a command, with the degrees that were decided; empty where none says it."""
        if "degrees" not in self.change.fields:
            return self.change.option
        return f"{self.change.option} --given {self.plan.degrees}".strip()

    def to_dict(self) -> dict[str, Any]:
        """Return the way as JSON holds it; ``option`` may be given to a command as it is."""
        found, mapping, system = self.plan.evaluation, self.plan.mapping, self.plan.task.system
        return {
            "kind": self.change.kind.value,
            "change": self.change.words,
            "option": self.option or None,
            "same_machine": self.change.kind.same_machine,
            "system": system.name,
            "n_chips": system.n_chips * system.copies,
            "parallelism": self.plan.degrees.by_word,
            "microbatch_size": mapping.microbatch_size,
            "recompute": recompute_word(mapping.recompute, mapping.recompute_layers),
            "memory_b": found.memory_used,
            "capacity_b": None if math.isinf(found.memory_capacity) else found.memory_capacity,
            "time_s": found.time,
            "chip_time_s": self.chip_time,
            "slowdown": self.slowdown,
            "gap": self.plan.certificate.gap,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """Why nothing fits, and what would.

    ``endless`` is the answer where main memory holds anything, None where that is not what lacks;
    ``found`` are ways, the cheapest first: on the same machine by time, then by the time of all
    chips together. ``vain`` are changes that were tried in vain, each with what happened.
    """

    task: Task
    rules: Rules
    error: InfeasibleError
    endless: Plan | None
    found: tuple[Way, ...]
    vain: tuple[tuple[Change, CrosstackError], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return them as plain data, which ``--json`` saves; see ``docs/result.md``."""
        error, system = self.error, self.task.system
        return {
            "crosstack_version": __version__,
            "workload": self.task.workload.name,
            "system": system.name,
            "n_chips": system.n_chips * system.copies,
            "rules": self.rules.name,
            "status": "infeasible",
            "resource": error.resource,
            "where": error.where,
            "demand": error.demand,
            "limit": error.limit,
            "unit": error.unit,
            "reason": str(error),
            "levers": list(error.levers),
            "endless_memory_time_s": None if self.endless is None else self.endless.evaluation.time,
            "ways": [way.to_dict() for way in self.found],
            "in_vain": [
                {"kind": change.kind.value, "change": change.words, "reason": _lack(error)}
                for change, error in self.vain
            ],
            "task": native.write_task(self.task),
        }


def _lack(error: CrosstackError) -> str:
    """Say what a change that was tried in vain still lacks."""
    if isinstance(error, InfeasibleError):
        return f"needs {format_quantity(error.demand, error.unit, 4)} of {error.resource}"
    return str(error)


def ways_to_fit(
    task: Task,
    error: InfeasibleError,
    *,
    rules: Rules | str | None = None,
    work_limit: float = TRIED_WORK,
    progress: Callable[[str], None] | None = None,
) -> Ways:
    """Try what makes a task fit of which no mapping does.

    Parameters
    ----------
    task : Task
        What was mapped, with what was given.
    error : InfeasibleError
        What `crosstack.optimise` or `crosstack.predict` raised.
    rules : Rules or str, optional
        What is counted; by name, that of the task, or ``crosstack``.
    work_limit : float
        Units of work of the search of each change. [1]
    progress : callable, optional
        Called with what is tried.
    """
    require_type("task", task, Task)
    require_type("error", error, InfeasibleError)
    trial = _Trial(
        task=task,
        error=error,
        rules=chosen_rules(rules, MAPPED, otherwise=task.rules),
        work_limit=work_limit,
        progress=progress,
    )
    return trial.ways()


Fit = tuple[Change, Plan]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial:
    """The tries of one task."""

    task: Task
    error: InfeasibleError
    rules: Rules
    work_limit: float
    progress: Callable[[str], None] | None

    def ways(self) -> Ways:
        """Try everything; see `ways_to_fit`."""
        endless, least = None, None
        if self.error.resource == MAIN_MEMORY:
            endless = self._solved(_with_capacity(self.task, None, "main memory without end"))
            least = self._least_memory() if isinstance(endless, Plan) else None
        found, vain = self._on_same_machine()
        found += self._fitting([*_more_chips(self.task)])
        if least is not None:
            room = least[1].evaluation.memory_capacity
            found += [*self._fitting([*_other_nodes(self.task, room)], MOST_NODES), least]
        known = endless.evaluation.time if isinstance(endless, Plan) else None
        ways = [
            Way(change=change, plan=plan, slowdown=known and plan.evaluation.time / known)
            for change, plan in found
        ]
        return Ways(
            task=self.task,
            rules=self.rules,
            error=self.error,
            endless=endless if isinstance(endless, Plan) else None,
            found=tuple(sorted(_different(ways), key=_cost)),
            vain=tuple(vain),
        )

    def _on_same_machine(self) -> tuple[list[Fit], list[tuple[Change, CrosstackError]]]:
        """Return what fits on the same machine, and what was tried in vain."""
        groups = [*_given_otherwise(self.task, self.rules), *_other_degrees(self.task)]
        vain: list[tuple[Change, CrosstackError]] = []
        found = [fit for group in groups for fit in self._fitting(group, vain=vain)]
        if not found:
            most = [group[-1] for group in groups]  # of each kind what needs the least memory
            pairs = [a.beside(b) for a, b in combinations(most, 2) if a.kind is not b.kind]
            found = self._fitting(pairs, MOST_PAIRS, vain=vain)
        if not found and self.task.constraints != Constraints():
            words = "everything free but the network"
            free = replace(self.task, constraints=Constraints())
            change = Change(kind=WayKind.EVERYTHING, words=words, task=free)
            found = self._fitting([change], vain=vain)
        return found, vain

    def _fitting(
        self,
        changes: Iterable[Change],
        most: int = 1,
        *,
        vain: list[tuple[Change, CrosstackError]] | None = None,
    ) -> list[Fit]:
        """Return the first of some changes that fit; ``vain`` takes those that do not."""
        found: list[Fit] = []
        for change in changes:
            plan = self._solved(change)
            if isinstance(plan, Plan):
                found.append((change, plan))
            elif vain is not None:
                vain.append((change, plan))
            if len(found) == most:
                break
        return found

    def _solved(self, change: Change) -> Plan | CrosstackError:
        """Return the answer of a changed task, or why there is none."""
        if self.progress is not None:
            self.progress(change.words)
        try:
            return optimise(change.task, rules=self.rules, work_limit=self.work_limit)
        except CrosstackError as error:
            return error

    def _least_memory(self) -> Fit | None:
        """Return the least memory of a chip that fits: each try says what the next one needs."""
        capacity = self.error.demand
        for _ in range(MOST_STEPS):
            words = f"{format_quantity(capacity, 'B', 4)} of main memory a chip"
            change = _with_capacity(self.task, capacity, words)
            plan = self._solved(change)
            if isinstance(plan, Plan):
                return change, plan
            needed = capacity
            if isinstance(plan, InfeasibleError) and plan.resource == MAIN_MEMORY:
                needed = plan.demand
            capacity = max(needed, capacity * STEP)
        return None


def _cost(way: Way) -> tuple[bool, float]:
    """Return what ways are ordered by."""
    if way.change.kind.same_machine:
        return False, way.plan.evaluation.time
    return True, way.chip_time


def _different(found: Iterable[Way]) -> list[Way]:
    """Return ways without those that come to the mapping of an earlier one on its machine."""
    kept: list[Way] = []
    for way in found:
        same = (way.plan.mapping, way.plan.task.system)
        if all(same != (one.plan.mapping, one.plan.task.system) for one in kept):
            kept.append(way)
    return kept


def _with_capacity(task: Task, capacity: float | None, words: str) -> Change:
    """Return a task whose chips have so much main memory, None for any. [B]"""
    chip = task.system.chip.with_memory(capacity=capacity)
    changed = replace(task, system=replace(task.system, chip=chip))
    return Change(kind=WayKind.MEMORY, words=words, task=changed)


# ---------------------------------------------------------------- the same machine


def _given_otherwise(task: Task, rules: Rules) -> Iterator[list[Change]]:
    """Yield what was given and needs less memory given otherwise."""
    given = task.constraints

    changed = partial(_given, task)
    if given.recompute is not None:
        kinds = searched_recomputations(task.workload.graph, rules)
        first = given.recompute_layers is None  # else all layers of the same are a way, too
        later = kinds[kinds.index(given.recompute) + first :] if given.recompute in kinds else ()
        for kind in later:
            words = f"recompute: {kind.value}"
            option = f"--recompute {kind.value}"
            whole: dict[str, Any] = {"recompute": kind, "recompute_layers": None}
            yield [changed(WayKind.RECOMPUTE, words, option, **whole)]
    if given.microbatch_size not in (None, 1):
        smaller = [size for size in divisors(given.microbatch_size) if size < given.microbatch_size]
        yield [
            changed(
                WayKind.MICROBATCH,
                f"microbatches of {size}, not {given.microbatch_size}",
                f"--microbatch-size {size}",
                microbatch_size=size,
            )
            for size in sorted(smaller, reverse=True)
        ]
    if task.system.host is not None and task.workload.training and not given.offload:
        yield [
            changed(
                WayKind.OFFLOAD,
                "on the hosts: " + " and ".join(there),
                f"--offload {'+'.join(there)}",
                offload=there,
            )
            for there in OFFLOADS
        ]
    if given.schedule not in (None, Schedule.ONE_F_ONE_B):
        words = f"schedule: {Schedule.ONE_F_ONE_B.value}"
        option = f"--schedule {Schedule.ONE_F_ONE_B.value}"
        yield [changed(WayKind.SCHEDULE, words, option, schedule=Schedule.ONE_F_ONE_B)]
    if given.interleave not in (None, 1):
        words = f"stages in one piece, not {given.interleave}"
        yield [changed(WayKind.SCHEDULE, words, "--interleave 1", interleave=1)]
    if given.sharding:
        yield [changed(WayKind.KERNELS, "sharding of kernels free", sharding=())]
    fused: dict[str, Any] = {"partitions": (), "kernel_by_kernel": False}
    fused |= dict.fromkeys(("max_partitions", "n_tiles", "tile_size"))
    if replace(given, **fused) != given:
        yield [changed(WayKind.KERNELS, "partitions and tiles free", **fused)]


def _other_degrees(task: Task) -> Iterator[list[Change]]:
    """Yield degrees of parallelism that were given, free: fewest changes first."""
    given = task.constraints
    degrees = given.degrees
    kept = {
        "more pipeline parallelism": replace(FREE, tensor=degrees.tensor),
        "more tensor parallelism": replace(FREE, pipeline=degrees.pipeline),
        "other parallelism": FREE,
    }
    seen = {degrees}
    for words, some in kept.items():
        if some in seen:
            continue
        seen.add(some)
        yield [_given(task, WayKind.PARALLELISM, words, degrees=some)]


# ---------------------------------------------------------------- another machine


def _fabric_of(system: System) -> tuple[str, str] | None:
    """Return the node and the fabric of the library that a system is made of; None if of none."""
    name = system.name.rpartition(" x ")[2]
    if name not in names("nodes"):
        return None
    for fabric in names("fabrics"):
        try:
            if system_on(name, chips=system.n_chips, fabric=fabric) == system.driven_by(None):
                return name, fabric
        except InputError:
            continue
    return None


def _more_chips(task: Task) -> Iterator[Change]:
    """Yield the task on more and more chips; degrees that were given for all chips are free."""
    given, system = task.constraints, task.system
    degrees = given.degrees
    if degrees.all_given:
        degrees = replace(FREE, tensor=degrees.tensor)
    library = _fabric_of(system)
    for times in GROWTH:
        grown = _grown(system, times, library)
        if grown is not None:
            words = f"{grown.n_chips:,} chips, not {system.n_chips:,}"
            option, larger = f"--chips {grown.n_chips}", replace(task, system=grown)
            fields = {} if degrees == given.degrees else {"degrees": degrees}
            yield _given(larger, WayKind.CHIPS, words, option, **fields)


def _grown(system: System, times: int, library: tuple[str, str] | None) -> System | None:
    """Return a system of so many times the chips: more nodes, or a longer outermost dimension."""
    count = system.n_chips * times
    if library is not None:
        try:
            grown = system_on(library[0], chips=count, fabric=library[1])
            return grown.driven_by(system.chip.framework)
        except InputError:
            return None
    *inner, last = system.network
    size = None if last.size is None else last.size * times
    try:
        grown = replace(system, n_chips=count, network=(*inner, replace(last, size=size)))
        return grown.driven_by(system.chip.framework)
    except InputError:  # of a shape of its own
        return None


def _other_nodes(task: Task, least: float) -> Iterator[Change]:
    """Yield the task on nodes of the library whose chips hold so much, the least first. [B]"""
    system = task.system
    library = _fabric_of(system)
    if library is None:
        return
    chips = {name: node(name).chip for name in names("nodes") if name != library[0]}
    rooms = {name: chip.main_memory.room for name, chip in chips.items() if chip.memories}
    enough = sorted((room, name) for name, room in rooms.items() if least <= room < math.inf)
    tried: set[str] = set()
    for room, name in enough:
        if chips[name].name in tried or len(tried) == MOST_TRIED:
            continue
        try:
            changed = system_on(name, chips=system.n_chips, fabric=None)
            changed = changed.driven_by(system.chip.framework)
        except InputError:
            continue
        tried.add(chips[name].name)
        words = f"{entry('nodes', name).title}: {format_quantity(room, 'B', 4)} a chip"
        yield Change(
            kind=WayKind.NODE,
            words=words,
            option=f"--on {name}",
            task=replace(task, system=changed),
        )
