"""Search nodes: how one is bounded, fused and halved; see `crosstack.mapping.search_problem`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from crosstack.errors import require
from crosstack.machine.chip import Overlap
from crosstack.machine.system import Parallelism
from crosstack.mapping.branching import branches, first_shardings, keeps_most, tightened
from crosstack.mapping.choice_covers import (
    KnownLeast,
    LeastOfChoices,
    least_of_choices,
    may_cover,
)
from crosstack.mapping.decided import decided
from crosstack.mapping.following import choices_excess, following_bound, one_by_one_bound
from crosstack.mapping.fusion import COVER, Fusion, fuse, make_problem, sequence_cost, simple_bound
from crosstack.mapping.incumbent import masks_of, numbers_of
from crosstack.mapping.joint import UNKNOWN, Joint, joint_bound
from crosstack.mapping.layouts import make_layout_choices
from crosstack.mapping.mapping import Mapping
from crosstack.mapping.paid_layouts import least_with_layouts
from crosstack.mapping.parallelism import Use
from crosstack.mapping.pipeline import (
    StageSplit,
    fullest_stage,
    least_memory,
    make_stage_problem,
    split,
)
from crosstack.mapping.pricing import Domains
from crosstack.mapping.room import Demand
from crosstack.mapping.search_problem import BOUND, SearchNode, SearchProblem, table_key
from crosstack.mapping.stage_times import on_one_chip
from crosstack.model.alive import live_sizes
from crosstack.model.choice_index import sharding_codes
from crosstack.model.choices import Choices, summing
from crosstack.model.ends import holds_layers
from crosstack.model.host_memory import HOST_LEVERS, HOST_MEMORY
from crosstack.model.legality import Legality
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.partition import (
    ChipLoad,
    alone_sram,
    partition_cost,
    relaxed_load,
    temporal_choices,
)
from crosstack.model.temporal_load import TemporalLoad
from crosstack.workload.kernel_graph import Ints

SMALL_GRAPH = 80  # kernels up to which every node is bounded with its layouts
CONFLICT = 2  # covers of all kernels that take as long as it takes to find what is alive too much
MOST_LOADS = 10_000  # kernels of loads that are kept from a node's first bound to its second

Masks = tuple[int, ...]  # partitions, in the order they run


@dataclass(slots=True)
class SearchState(SearchProblem):
    """The problem, what is found so far, and what is done with a node."""

    # ------------------------------------------------------------ bounds

    def open(self, node: SearchNode) -> float:
        """Set the domains of a node, without choices that another beats; return a bound. [s]"""
        choices = self.table(node.plan, node.n_tiles)
        domains = self.domains(node.plan)
        if node.plan.tensor == 1:  # nothing is split, whatever the choice
            domains = tuple(d[:1] for d in domains)
        domains = self._tightened(domains, choices, node)
        if self.first.decide and node.plan.tensor > 1:
            domains = self._tightened(self.first.kept(domains, choices), choices, node)
        node.domains = domains
        return self.quick_bound(node)

    def quick_bound(self, node: SearchNode) -> float:
        """Bound on the iteration time of a node from totals alone; infinite if nothing fits."""
        assert node.domains is not None
        self.budget.spend(BOUND * self.arrays.n)
        plan, choices = self.bounding(node)
        if node.plan.tensor > 1 and not self.first.allows(node.domains, choices):
            return math.inf
        load = self.relaxed(node)
        if not self._fits(load, node):
            return math.inf
        domains, network = node.domains, sum(load.network)
        if load.temporal is None or load.overlap is Overlap.ALL:
            network = max(self.network_bound(domains, choices), network)
        follows = self.known.followed.at(
            self.key_of(node), lambda: following_bound(choices, domains, load)
        )
        layer = max(follows, simple_bound(load, network))
        if self.unfused:
            layer = max(layer, one_by_one_bound(choices, domains, load))
        return self.pricing.least_of(plan, node.bend, layer + load.extra)

    def relaxed(self, node: SearchNode) -> ChipLoad:
        """Return a load no heavier than that of any sharding of a node, kept for its next bound."""
        assert node.domains is not None
        _, choices = self.bounding(node)
        # What main memory has room for is a plan's own, also where plans have their choices alike.
        key = id(choices), id(node.plan), node.domains
        *known, load = self.lightest.get(key, (None, None, None))
        if load is None or known[0] is not choices or known[1] is not node.plan:
            load = self.lightest_load(node.plan, choices, node.domains, roomy=self.roomy)
            if len(self.lightest) * self.arrays.n > MOST_LOADS:
                self.lightest.clear()
            self.lightest[key] = choices, node.plan, load
        return load

    def lightest_load(
        self, plan: MeshPlan, choices: Choices, domains: Domains, *, roomy: bool
    ) -> ChipLoad:
        """Return a load no heavier than that of any sharding within ``domains``.

        ``roomy``: with room for whatever is in main memory, of which then nothing is said.
        """
        given = self.workload, self.system, self.arrays, plan, choices
        load = self.as_counted(relaxed_load(*given, domains, self.rules, roomy=roomy))
        return self.pricing.priced(load, plan, choices, domains)

    def network_bound(self, domains: Domains, choices: Choices) -> float:
        """Return what all communication takes at least, layouts that agree included. [s]"""
        return least_with_layouts(choices, domains, choices.network_time).bound

    def _fits(self, load: ChipLoad, node: SearchNode) -> bool:
        plan, capacity = node.plan, self.room.capacity(node.plan)
        if plan.graph_stages > 1:
            least = least_memory(load, plan.graph_stages)
            if least > capacity:
                self.incumbent.lack.stage(plan, least, capacity)
                return False
        elif load.memory_static > capacity:
            self._offer_static(plan, Demand(total=load.memory_static, activations=load.activations))
            return False
        good = True
        for i in range(load.n):
            if load.unit is None and alone_sram(load, i) <= load.sram_capacity:
                continue
            cost = partition_cost(load, 1 << i)
            if not cost.fits:
                self.incumbent.lack.alone(load.names[i], cost.sram, load.sram_capacity)
                good = False
        return good

    def _offer_static(self, plan: MeshPlan, demand: Demand) -> None:
        if math.isinf(demand.total):
            away = float(np.max(self.room.away(plan)))
            where = f"a chip's share of its host, {' and '.join(plan.offloaded.kinds)} there,"
            lacking = away, plan.offloaded.capacity, where, HOST_LEVERS
            self.incumbent.lack.offer(HOST_MEMORY, *lacking)
            return
        lack = self.room.capacity(plan), *self.room.lack(plan, demand)
        self.incumbent.lack.offer("main memory", demand.total, *lack)

    # ------------------------------------------------------------ fusing

    def fused(self, load: ChipLoad, limit: float, *, bound_only: bool = False) -> Fusion | None:
        """Return the best partitions of a load that cost less than ``limit``. [s]"""
        limit -= load.extra
        if self.unfused:
            masks = tuple(1 << i for i in load.order)
            layer = sequence_cost(load, masks)
            if not layer < limit or not self.rooms(load, masks):
                return None
            return Fusion.of((layer + load.extra, masks))
        problem = make_problem(load, slots=self.slots, separate_directions=self.separate)
        found = fuse(problem, limit, self.tables, self.budget, bound_only=bound_only)
        if found is None or not load.extra:
            return found
        return replace(found, time=found.time + load.extra, bound=found.bound + load.extra)

    def spread(
        self, node: SearchNode, load: ChipLoad, limit: float, *, bound_only: bool = False
    ) -> StageSplit | None:
        """Return the best stages of a node that splits the graph, below an objective."""
        plan, pricing = node.plan, self.pricing
        problem = make_stage_problem(
            make_problem(load, slots=self.slots, separate_directions=self.separate),
            plan,
            self.rules,
            capacity=self.room.capacity(plan),
            one_by_one=self.unfused,
            per_layer=pricing.of(plan).per_layer,
        )
        below = pricing.stages_below(plan, load, limit)
        given = below, self.tables, self.budget
        found = split(problem, *given, bound_only=bound_only)
        if found is None:
            if math.isinf(limit):  # nothing at all fits
                demand = fullest_stage(problem, self.tables)
                if demand > problem.capacity:
                    self.incumbent.lack.stage(plan, demand, problem.capacity)
            return None
        time, bound = (pricing.of_stages(plan, load, x) for x in (found.time, found.bound))
        return replace(found, time=time, bound=bound)

    def settle(self, node: SearchNode, codes: Ints, limit: float) -> float:
        """Map a node with this sharding; return a bound on what is left below ``limit``. [s]"""
        node = self.summing(node, codes)
        load = self.load(node, codes)
        if node.plan.graph_stages > 1:
            spread = self.spread(node, load, limit)
            if spread is None:
                return math.inf
            stages = numbers_of([sum(masks) for masks in spread.stages], self.arrays.n)
            partitions = tuple(mask for masks in spread.stages for mask in masks)
            self._keep(node, codes, spread.time, partitions, stages)
            return math.inf if spread.proved else spread.bound
        found = self.fused(load, self.pricing.below(node.plan, node.bend, limit))
        if found is None:
            return math.inf
        if found.partitions:
            self.offer(node, codes, load, found.partitions, found.time)
        return (
            math.inf if found.proved else self.pricing.least_of(node.plan, node.bend, found.bound)
        )

    def settle_in_room(self, node: SearchNode, codes: Ints, partitions: Masks) -> None:
        """Map a node with this sharding and these partitions, if main memory holds them.

        Where it does not, as bounds know less of it, the choice that keeps most is open first.
        """
        load = self.load(node, codes)
        layer = sequence_cost(load, partitions) + load.extra
        if not self.rooms(load, partitions):
            choices, waits = self.table(node.plan, node.n_tiles), node.plan.schedule.defers_weights
            node.apart = keeps_most(choices, node.domains, codes, waits=waits)
        elif math.isfinite(layer):
            self.offer(self.summing(node, codes), codes, load, partitions, layer)

    def summing(self, node: SearchNode, codes: Ints) -> SearchNode:
        """Return a node whose plan sums the gradients of one sharding."""
        if not self.sums:
            return node
        return replace(
            node, plan=summing(node.plan, self.arrays, self.table(node.plan, node.n_tiles), codes)
        )

    def rooms(self, load: ChipLoad, masks: tuple[int, ...]) -> bool:
        """Whether the tensors alive in each partition fit the main memory."""
        if sum(flow.held for flow in load.flows) <= load.memory_limit:
            return True
        return max(live_sizes(load, masks)) <= load.memory_limit * (1 + 1e-12)

    def offer(
        self, node: SearchNode, codes: Ints, load: ChipLoad, partitions: Masks, layer: float
    ) -> None:
        """Keep a mapping whose layer costs so much if it is the best so far; see `summing`."""
        total = self.pricing.least_of(node.plan, node.bend, layer)
        if total < self.incumbent.best:
            total = self.offered(node.plan, layer)
        if not self.pricing.weights.only_time and total < self.incumbent.best:
            total = self.pricing.exact(node.plan, load, partitions)
        self._keep(node, codes, total, partitions)

    def _keep(
        self,
        node: SearchNode,
        codes: Ints,
        total: float,
        partitions: Masks,
        stages: tuple[int, ...] | None = None,
    ) -> None:
        if total > self.incumbent.best:
            return
        plan, ended = node.plan, self.mapped_ends(node.plan)
        assert ended is not None
        assert ended.costs == plan.ends
        mapping = Mapping(
            **decided(plan),
            n_tiles=node.n_tiles,
            sharding=self.index_of(plan).sharding(codes),
            partitions=numbers_of(partitions, self.arrays.n),
            stages=stages,
            ends=ended.mappings,
        )
        self.incumbent.keep(total, mapping)

    def complete(self, node: SearchNode) -> None:
        """Try whole shardings of a node: the best for weighted sums of its terms."""
        node.tried = True
        found = self.shardings(node)
        if found[1:]:  # the least bound first: later ones are cut short
            found.sort(key=lambda codes: simple_bound(self.load(node, codes)))
        for codes in found:
            if self.incumbent.mapping is not None and self.budget.over():
                break
            self.settle(node, codes, self.incumbent.best)

    def shardings(self, node: SearchNode) -> list[Ints]:
        """Return whole shardings of a node: the best for a few weighted sums of its terms."""
        assert node.domains is not None
        self.budget.spend(2 * BOUND * self.arrays.n)
        choices, chip = self.table(node.plan, node.n_tiles), self.system.chip
        rate = self.rules.clock.reached_rate(chip, self.arrays.dtype)
        return first_shardings(node.domains, choices, chip, self.first, rate)

    # ------------------------------------------------------------ what fits at all

    def codes(self, mapping: Mapping) -> Ints:
        """Return the choice that a mapping takes for every kernel."""
        return sharding_codes(
            self.index_of(mapping), mapping.sharding, split=mapping.degree(Parallelism.TENSOR) > 1
        )

    def plan_of(self, mapping: Mapping) -> MeshPlan:
        """Return the plan of a mapping, of the first memory where all it keeps fits there.

        With the ends that are fastest; `InputError` if its microbatches do not divide the batch.
        """
        batches = (mapping.microbatch_size,)
        use = Use.of(mapping, batches)
        bare = self.bare_plans(use, mapping.microbatch_size, mapping)
        made = [self.room.with_decided(plan, mapping) for plan in bare]
        ended = [self.ended(plan) for plan in made if plan is not None]
        plans = [plan for plan in ended if plan is not None]
        allowed = f"a size that divides the batch of {self.workload.global_batch_size} a pipeline"
        require(bool(plans), "microbatch_size", mapping.microbatch_size, allowed)
        masks, codes = masks_of(mapping), self.codes(mapping)
        for plan in plans[:-1]:
            if self.rooms(self.load(SearchNode(plan, mapping.n_tiles, None), codes), masks):
                return plan
        return plans[-1]

    def too_heavy(self, plan: MeshPlan) -> bool:
        """Whether what stays in the main memory exceeds it, however the plan is filled in."""
        capacity = self.room.capacity(plan)
        if math.isinf(capacity) or self.room.least(plan).total <= capacity:
            return False
        self._offer_static(plan, self.room.least(plan))
        return True

    def fuse_node(self, node: SearchNode, *, root: bool = True) -> float:
        """Fuse a node; return a bound on the iteration time of what is left in it. [s]

        ``root``: whether the node is a whole plan, worth the dearest bound.
        """
        assert node.domains is not None
        if all(len(d) == 1 for d in node.domains):
            codes = np.array([d[0] for d in node.domains], dtype=np.int64)
            return self.settle(node, codes, self.target())
        (plan, choices), load = self.bounding(node), self.relaxed(node)
        limit = self.pricing.below(plan, node.bend, self.target())
        if node.plan.graph_stages > 1:
            spread = self.spread(node, load, self.target(), bound_only=True)
            if spread is None:
                return math.inf
            bound, load = spread.bound, on_one_chip(load)
            found = UNKNOWN
            if root or self.arrays.n <= SMALL_GRAPH:
                found = self._joint(choices, node.domains, load, limit, with_codes=root)
        else:
            bound, found = 0.0, self._least_layer(node, load, limit, root=root)
        if math.isinf(found.bound):
            return math.inf
        bound = max(bound, self.pricing.least_of(plan, node.bend, found.bound))
        if not found.bound < limit:
            return max(bound, self.target())
        if found.partitions:
            codes = np.array([found.codes[i] for i in range(self.arrays.n)], dtype=np.int64)
            self.settle_in_room(node, codes, found.partitions)
        if root and found.codes and bound < self.target():  # the sharding of the bound
            reached = {i: (code,) for i, code in found.codes.items()}
            domains = [reached.get(i, d) for i, d in enumerate(node.domains)]
            codes = least_with_layouts(choices, domains, choices.network_time).best()
            # Without a limit: moves start from sequences that are not yet good enough.
            self.settle(node, codes, math.inf)
        return bound

    def _least_layer(self, node: SearchNode, load: ChipLoad, limit: float, *, root: bool) -> Joint:
        """Bound what a layer of a node takes: infinite, where it is only known not to be less. [s]

        Less than ``limit``, or of interest no more. With the sharding that it is the least of, as
        far as that is known; ``root`` as in `fuse_node`.
        """
        assert node.domains is not None
        (_, choices), domains = self.bounding(node), node.domains
        covered = self._covered(node, load, limit - load.extra)
        if covered is not None:
            bound, node.apart = covered.bound + load.extra, covered.apart
            if not bound < limit:
                return Joint(bound, {})
            codes = dict(enumerate(covered.codes.tolist()))
            return Joint(bound, codes, covered.partitions)
        more = choices_excess(choices, domains, load, self.arrays, self.rules.traffic)
        found = self.fused(load, limit - more, bound_only=True)
        if found is None:
            return Joint(math.inf, {})
        bound = found.bound + more
        if not (root or (self.arrays.n <= SMALL_GRAPH and not more)):
            return Joint(bound, {})
        joint = self._joint(choices, domains, load, limit, with_codes=root)
        return Joint(max(bound, joint.bound), joint.codes)

    def before_ends(self, bare: SearchNode) -> float:
        """Bound on the objective of a plan whose ends are not mapped yet; 0 where none is known.

        They take the least until then; infinite where nothing is below the target. What is found of
        its layers is kept for when they are mapped. Not of ends without layers, which take no time
        to map.
        """
        target, long = self.target(), any(map(holds_layers, self.workload.ends))
        if not (self.ends and long and self.temporal and math.isfinite(target)):
            return 0.0
        node = replace(bare, n_tiles=1)
        bound = self.open(node)
        assert node.domains is not None
        single = all(len(d) == 1 for d in node.domains)
        if single or not bound < target or not self.covers(node):
            return bound
        plan = self.bounding(node)[0]
        limit = self.pricing.below(plan, node.bend, target)
        found = self._least_layer(node, self.relaxed(node), limit, root=False)
        if found.bound < limit:
            return bound
        if math.isinf(found.bound):
            return math.inf
        return max(target, self.pricing.least_of(plan, node.bend, found.bound))

    def covers(self, node: SearchNode) -> bool:
        """Whether choices and partitions of a node are looked at together."""
        if node.plan.graph_stages > 1 or self.unfused or self.slots is not None:
            return False
        load = self.relaxed(node)
        order = make_problem(load, slots=None, separate_directions=self.separate).order
        return may_cover(load, order, self.table(node.plan, node.n_tiles))

    def _covered(self, node: SearchNode, load: ChipLoad, limit: float) -> LeastOfChoices | None:
        """Return what choices and partitions of a node take at least together; None: not known.

        Of no interest beyond ``limit``. [s]
        """
        if self.unfused or self.slots is not None:
            return None
        assert node.domains is not None
        plan, (_, choices) = node.plan, self.bounding(node)
        held = None if self.roomy else self.room.kept_by_choices(plan, choices, node.domains, load)
        if held is not None and (kept := held.within(node.domains)) != node.domains:
            node.domains = kept
            load = self.relaxed(node)
            held = self.room.kept_by_choices(plan, choices, kept, load)
        problem = make_problem(load, slots=self.slots, separate_directions=self.separate)
        self.budget.spend(COVER * load.n)

        def loads(shardings: Sequence[Ints], legality: Legality) -> list[TemporalLoad]:
            given = self.workload, self.system, self.arrays, plan, choices
            return temporal_choices(*given, shardings, legality, self.rules)

        given = load, problem.order, choices, node.domains, plan.graph(self.arrays), plan, loads
        known: KnownLeast = {}
        if self.pricing.weights.only_time:
            known = self.known.covered.at(self.key_of(node), dict)
        found = least_of_choices(*given, held, limit, known, node.conflicts)
        if found is not None and found.conflicts:
            new = len(found.conflicts) - len(node.conflicts)
            self.budget.spend(COVER * load.n * (1 + CONFLICT * new))
            node.conflicts = found.conflicts
        return found

    def _joint(
        self,
        table: Choices,
        domains: Domains,
        load: ChipLoad,
        limit: float,
        *,
        with_codes: bool,
    ) -> Joint:
        """Bound the layer time of a node by a path that knows which layouts agree."""
        if self.unfused or not self.rules.traffic.shares_conversions or not math.isfinite(limit):
            return UNKNOWN
        if (choices := make_layout_choices(table, domains, load)) is None:
            return UNKNOWN
        problem = make_problem(load, slots=self.slots, separate_directions=self.separate)
        left, budget = limit - load.extra, self.budget
        found = joint_bound(problem, choices, limit=left, budget=budget, with_codes=with_codes)
        return replace(found, bound=found.bound + load.extra)

    def halve(self, node: SearchNode) -> Iterator[SearchNode]:
        """Split a node on the kernel whose choice is open, or whose choices differ most."""
        assert node.domains is not None
        choices = self.table(node.plan, node.n_tiles)
        for some in branches(node.domains, choices, self.system.chip, node.apart):
            domains = self._tightened(some, choices, node)
            yield replace(node, domains=domains, tried=False, fused=False, apart=-1)

    def _tightened(self, domains: Domains, choices: Choices, node: SearchNode) -> Domains:
        """Drop choices that another of the same kernel beats in all respects under a plan."""
        plan = node.plan
        waits = plan.schedule.defers_weights
        hidden = 1 - plan.taken if self.hides_tokens(plan) else 0.0
        given = choices, self.system.chip, self.first
        return self.known.tight.at(
            (table_key(plan, node.n_tiles), waits, hidden, domains),
            lambda: tightened(domains, *given, waits=waits, hidden=hidden),
        )
