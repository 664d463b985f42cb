"""The problem of a search: what is given, what is found so far, and plans and tables of it.

A *search node* is a plan (parallelism and microbatch size), a number of tiles, and the choices left
to each kernel; see `crosstack.mapping.search`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from crosstack.machine.chip import Execution, Overlap
from crosstack.machine.system import System
from crosstack.mapping.branching import FirstCosts
from crosstack.mapping.budget import CALL, Budget
from crosstack.mapping.choice_covers import KnownLeast
from crosstack.mapping.ideals import TableCache
from crosstack.mapping.incumbent import PROOF, Incumbent, Lack
from crosstack.mapping.mapping import Constraints, EndMapping, Mapping
from crosstack.mapping.parallelism import Use, workload_uses
from crosstack.mapping.pricing import Bend, Domains, Pricing
from crosstack.mapping.room import Room
from crosstack.mapping.room_conflicts import Conflict
from crosstack.mapping.sharding import given_choices, with_given
from crosstack.mapping.slots import Slots
from crosstack.mapping.strategy_bounds import Noted, StrategyBounds
from crosstack.model.choice_index import ChoiceIndex, choice_index
from crosstack.model.choices import Choices, least_summing, make_choices
from crosstack.model.end_cost import EndCost
from crosstack.model.ends import computed_again_of, least_ends, with_ends
from crosstack.model.mesh_plan import MeshPlan, with_offloaded
from crosstack.model.partition import (
    ChipLoad,
    make_load,
    one_by_one,
)
from crosstack.model.rules import Rules
from crosstack.model.schedule.levels import few_microbatches
from crosstack.model.tokens import without_hidden
from crosstack.workload.kernel_graph import Ints, KernelGraph
from crosstack.workload.passes.expert_parallel import cut_experts
from crosstack.workload.transformer_training import Zero
from crosstack.workload.workload import Workload

Answer = TypeVar("Answer")
MACHINES = "machines"  # key of what searches know of machines, whatever the room of main memory
MOST_TABLES, MOST_KEPT = 512, 4096  # tables, and answers to nodes, that are kept
TABLE, LOAD, BOUND = 6, 3, 10  # units of work a kernel, see `crosstack.mapping.budget`
PASSES_A_UNIT = 4  # of all microbatches through all stages, of which it is found when they end


@dataclass(slots=True)
class SearchNode:
    """A plan, a number of tiles, and the choices left to each kernel (None: not opened yet).

    ``bend`` is a line below its objective, where `Pricing.total` is not exact; ``of`` is where its
    strategy is noted (`crosstack.mapping.strategy_bounds.Noted`), None: nowhere.
    """

    plan: MeshPlan
    n_tiles: int
    domains: Domains | None
    tiled: bool = False
    tried: bool = False  # with whole shardings
    fused: bool = False
    bend: Bend | None = None
    apart: int = -1  # the kernel whose choice is open first, if that is known
    conflicts: tuple[Conflict, ...] = ()  # why main memory does not hold some choices
    of: tuple[int, int] | None = None


EndSearch = Callable[[MeshPlan], tuple[EndMapping, EndCost] | Lack]  # the fastest of one end


@dataclass(frozen=True, slots=True)
class _Ended:
    """The ends of a plan: how each is mapped, and what they take."""

    mappings: tuple[EndMapping, ...]
    costs: tuple[EndCost, EndCost]


class Kept(Generic[Answer]):
    """Answers that are kept by key, `MOST_KEPT` of them, and then begun anew."""

    def __init__(self) -> None:
        """Begin with none."""
        self._kept: dict[object, Answer] = {}

    def at(self, key: object, make: Callable[[], Answer]) -> Answer:
        """Return an answer, made where it is not known."""
        if key not in self._kept:
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            self._kept[key] = make()
        return self._kept[key]


@dataclass(slots=True, eq=False)
class Known:
    """What is known of a machine whatever the room of its main memory, of one graph.

    ``choices`` are tables of them, ``blocks`` bounds on what a layer takes, ``ended_plans`` ends.
    Of search nodes, ``tight`` are choices that no other beats, ``followed`` bounds by kernels one
    after the other, ``covered`` what choices and partitions take at prices of main memory.
    """

    choices: dict[object, Choices] = field(default_factory=dict)
    blocks: dict[object, float] = field(default_factory=dict)
    ended_plans: dict[object, _Ended | None] = field(default_factory=dict)
    tight: Kept[Domains] = field(default_factory=Kept)
    followed: Kept[float] = field(default_factory=Kept)
    covered: Kept[KnownLeast] = field(default_factory=Kept)


def but_for_room(system: System) -> System:
    """Return a machine that differs from others like it in the room of its main memory alone."""
    return replace(system, chip=system.chip.with_memory(capacity=None, spare=0.0))


def _known_of(machines: dict[System, Known], system: System) -> Known:
    """Return what is known of one of some machines.

    Tables are large: those of the first stay, of others those of the latest.
    """
    own = but_for_room(system)
    for number, (other, known) in enumerate(machines.items()):
        if number and other != own:
            known.choices.clear()
    return machines.setdefault(own, Known())


@dataclass(slots=True)
class SearchProblem:
    """The problem, what is found so far, and what is known of plans."""

    workload: Workload
    system: System
    constraints: Constraints
    rules: Rules
    gap: float
    pricing: Pricing
    arrays: KernelGraph
    given: dict[int, int]
    slots: Slots | None
    separate: bool
    unfused: bool
    roomy: bool = False  # main memory holds whatever a mapping needs
    only: Sequence[Use] | None = None  # uses of the network that are searched; None: all
    among: StrategyBounds | None = None  # the only strategies that are searched; None: all
    noted: Noted | None = None  # what is known of strategies, if it is asked for
    room: Room = field(init=False)
    first: FirstCosts = field(init=False)
    budget: Budget = field(default_factory=Budget)
    incumbent: Incumbent = field(default_factory=Incumbent)
    tables: TableCache = field(default_factory=dict)
    known: Known = field(default_factory=Known)
    counted: set[object] = field(default_factory=set)  # tables whose work is, and that are not kept
    useful_tiles: dict[tuple[object, ...], list[int]] = field(default_factory=dict)
    lightest: dict[object, tuple[Choices, MeshPlan, ChipLoad]] = field(default_factory=dict)
    ends: tuple[EndSearch, ...] = ()

    def __post_init__(self) -> None:
        """Look at the main memory, and at what comes before time."""
        self.first = FirstCosts(self.rules.decisions, with_given(self.index, self.given))
        if MACHINES in self.tables:
            of_graph = self.tables[MACHINES].setdefault(self.arrays, {})
            self.known = _known_of(of_graph, self.system)
        chip = self.system.chip  # what is kept does not depend on its numbers
        alike = chip.execution, chip.fused, chip.overlap, chip.framework
        key = "kept", self.arrays, self.rules, *alike, tuple(self.given.items())
        self.room = Room(
            workload=self.workload,
            system=self.system,
            arrays=self.arrays,
            rules=self.rules,
            table=self.table,
            free=lambda plan: self.index_of(plan).inside(self.domains(plan)),
            known=self.count_table,
            held=self.tables.setdefault(key, {}),
        )

    @property
    def temporal(self) -> bool:
        """Whether the chip runs kernels one after the other."""
        return self.system.chip.execution is Execution.TEMPORAL

    @property
    def sums(self) -> bool:
        """Whether an iteration ends with sums of gradients."""
        later = not self.rules.iteration.sums_in_layers
        return later and bool(self.arrays.periodic_size.any())

    @property
    def index(self) -> ChoiceIndex:
        """The choices of every kernel, of experts that are whole."""
        return self._index(self.arrays)

    def index_of(self, plan: MeshPlan | Mapping) -> ChoiceIndex:
        """Return the choices of every kernel under a plan, or a mapping, which may cut experts."""
        return self._index(cut_experts(self.arrays)) if plan.expert_tensor > 1 else self.index

    def _index(self, arrays: KernelGraph) -> ChoiceIndex:
        named = self.rules.traffic.traces_layouts
        return choice_index(arrays, self.workload.placement, named=named)

    def domains(self, plan: MeshPlan | Mapping) -> Domains:
        """Return the choices of every kernel under a plan, or a mapping, and what is given."""
        index, given = self.index_of(plan), self.given
        if plan.expert_tensor > 1:
            given = given_choices(cut_experts(self.arrays), self.constraints.sharding, index)
        return with_given(index, given)

    # ------------------------------------------------------------ loads

    def table(self, plan: MeshPlan, n_tiles: int) -> Choices:
        """Return the costs of all choices under a plan and a number of tiles, kept for a while."""
        key = table_key(plan, n_tiles)
        if key not in self.known.choices:
            self.count_table(plan, n_tiles)
            if len(self.known.choices) > MOST_TABLES:
                self.known.choices.clear()
            self.known.choices[key] = make_choices(
                self.workload, self.arrays, plan, n_tiles, self.rules, self.system.chip
            )
        self.counted.discard(key)
        return self.known.choices[key]

    def table_together(self, plan: MeshPlan, n_tiles: int) -> Choices:
        """Return `table` without what passes that run together hide of tokens on their way."""
        key = "together", *table_key(plan, n_tiles)
        if key not in self.known.choices:
            found = without_hidden(self.table(plan, n_tiles), plan)
            if len(self.known.choices) > MOST_TABLES:
                self.known.choices.clear()
            self.known.choices[key] = found
        return self.known.choices[key]

    def bounding(self, node: SearchNode) -> tuple[MeshPlan, Choices]:
        """Return the plan and costs that bound a node, without what passes that pair up hide."""
        if not self.hides_tokens(node.plan):
            return node.plan, self.table(node.plan, node.n_tiles)
        assert node.domains is not None
        choices = self.table_together(node.plan, node.n_tiles)
        index = choices.index
        least = index.least(choices.exchange_time, index.inside(node.domains))
        return replace(node.plan, tokens=(float(least.sum()), 0.0)), choices

    def hides_tokens(self, plan: MeshPlan) -> bool:
        """Whether passes of a plan run together and hide tokens on their way to experts."""
        return plan.schedule.pairs and self.waits_for_tokens(plan)

    def waits_for_tokens(self, plan: MeshPlan) -> bool:
        """Whether tokens are on their way to experts while nothing else of a pass is done."""
        sent = plan.expert > 1 or plan.cut_over is not None
        return sent and self.system.chip.overlap is not Overlap.ALL

    def key_of(self, node: SearchNode) -> object:
        """Return what tells what choices of a node take from others, as it is bounded."""
        return self.hides_tokens(node.plan), table_key(node.plan, node.n_tiles), node.domains

    def count_table(self, plan: MeshPlan, n_tiles: int) -> None:
        """Count the work of a table, once whether all of it is made or what is asked is known."""
        key = table_key(plan, n_tiles)
        if key not in self.counted and key not in self.known.choices:
            self.counted.add(key)
            self.budget.spend(TABLE * self.arrays.n)

    def load(self, node: SearchNode, codes: Ints) -> ChipLoad:
        """Return the load of a node under one sharding."""
        self.budget.spend(LOAD * self.arrays.n)
        choices = self.table(node.plan, node.n_tiles)
        given = self.workload, self.system, self.arrays, node.plan, choices
        load = self.as_counted(make_load(*given, codes, self.rules, roomy=self.roomy))
        return self.pricing.priced(load, node.plan, choices, codes)

    def as_counted(self, load: ChipLoad) -> ChipLoad:
        """Return a load as this problem counts it, kernel by kernel or not."""
        return one_by_one(load, self.rules) if self.unfused else load

    def uses(self) -> Iterator[Use | None]:
        """Yield every use of the network, or those that are given; see `workload_uses`."""
        if self.only is not None:
            return iter(self.only)
        return workload_uses(self.workload, self.system, self.constraints, self.rules)

    def bare_plans(self, use: Use, microbatch: int, like: Mapping | None = None) -> list[MeshPlan]:
        """Return the plans of a use of the network but for its schedules and recomputation.

        ``like``: a mapping whose decision on what is hidden is taken; None: what is given.
        """
        plans = [
            plan if self.pricing.splits(plan) else replace(plan, graph_stages=1)
            for plan in use.plans(microbatch, self.workload, self.system, self.rules)
        ]
        given, parts = like or self.constraints, (self.workload, self.system, self.rules)
        plans = [
            with_offloaded(replace(plan, hidden=given.overlap), *parts, given.offload)
            for plan in plans
        ]
        if self.sums:
            plans = [least_summing(self.arrays, plan) for plan in plans]
        if self.ends:
            plans = [least_ends(self.workload, self.system, plan, self.rules) for plan in plans]
        return plans

    def ended(self, plan: MeshPlan) -> MeshPlan | None:
        """Return a plan with its ends, each mapped by itself; None where one does not fit."""
        found = self.mapped_ends(plan)
        return None if found is None else replace(plan, ends=found.costs)

    def mapped_ends(self, plan: MeshPlan) -> _Ended | None:
        """Return how the ends of a plan are mapped; None where one does not fit."""
        if not self.ends:
            return _Ended((), plan.ends)
        key = (
            plan.sizes, plan.parallelism, plan.dimensions, plan.microbatch_size,
            plan.n_microbatches, plan.spilled, plan.zero, plan.context_exchange, plan.expert_tensor,
            tuple(computed_again_of(end, plan.recompute) for end in self.workload.ends),
        )  # fmt: skip
        # The same work whether it is known or not, and so for any number of processes.
        self.budget.spend(sum(TABLE * end.graph.n for end in self.workload.ends))
        if key not in self.known.ended_plans:
            self.known.ended_plans[key] = None
            mapped = []
            for end in self.ends:
                found = end(plan)
                if isinstance(found, Lack):
                    self.incumbent.lack.join(found)
                    return None
                mapped.append(found)
            mappings, costs = zip(*mapped, strict=True)
            ends = with_ends(self.workload, plan, costs).ends
            self.known.ended_plans[key] = _Ended(mappings, ends)
        return self.known.ended_plans[key]

    def offered(self, plan: MeshPlan, layer: float) -> float:
        """Return the objective for a layer's cost, exactly; see `Pricing.offered`."""
        self.spend_on_passes(plan)
        return self.pricing.offered(plan, layer)

    def spend_on_passes(self, plan: MeshPlan) -> None:
        """Count the work of finding when the stages of a plan end."""
        events = plan.has_ends or not plan.schedule.searched
        if events and plan.pipeline > 1:  # every pass is run until turns repeat
            some = min(plan.n_microbatches, few_microbatches(plan.pipeline))
            passes = some * plan.pipeline * plan.interleave
            self.budget.spend(CALL + passes // PASSES_A_UNIT)

    def target(self) -> float:
        """Only times below this are of interest. [s]"""
        best = self.incumbent.best
        return best * (1 - max(self.gap, PROOF / 10)) if math.isfinite(best) else math.inf

    def prune(self, bound: float) -> None:
        """Drop a node; where a gap is allowed, its bound stays part of the answer's."""
        if self.gap > 0:
            known = bound if math.isfinite(bound) else 0.0
            self.incumbent.left_bound = min(self.incumbent.left_bound, max(known, self.target()))


def table_key(plan: MeshPlan, n_tiles: int) -> tuple[object, ...]:
    """Return what tells the choices under a plan from those under others."""
    return (
        plan.sizes, plan.parallelism, plan.dimensions, plan.microbatch_size,
        plan.n_microbatches, plan.periodic, plan.spilled, plan.recompute, plan.again, n_tiles,
        plan.context_exchange, plan.expert_tensor, plan.hidden,
        plan.driven is not None and plan.zero >= Zero.GRADIENTS.number,  # who adds gradients up
    )  # fmt: skip
