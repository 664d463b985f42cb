"""Main memory of the plans of a search: which cannot fit, which always do, what a mapping decides.

What a plan keeps follows from the choices of its kernels, so the least and the most of each say
what is sure before anything is decided.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from crosstack.machine.system import System
from crosstack.mapping.mapping import Constraints, Mapping
from crosstack.mapping.pricing import Domains
from crosstack.mapping.room_conflicts import Held
from crosstack.mapping.strategies import ORDERS, RECOMPUTED, Strategies
from crosstack.model.alive import least_live
from crosstack.model.attention import density_on
from crosstack.model.boundary import streams_memory
from crosstack.model.choices import Choices
from crosstack.model.context import shared_tokens
from crosstack.model.memory import (
    COPY_COLUMNS,
    COPY_ROWS,
    CopyMemory,
    activations_held,
    computed_again,
    copy_memory,
    end_sizes,
    host_held,
    kept_slopes,
    kept_tensors,
    recomputations,
    static_size,
    static_sizes,
)
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.partition import ROUNDING, ChipLoad
from crosstack.model.rules import Rules
from crosstack.model.schedule.allowed import (
    interleavings,
    layers_again,
    schedules,
    share_again,
    some_layers_again,
    with_recompute,
    zero_stages,
)
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernel_graph import Bools, Floats, Ints, KernelGraph
from crosstack.workload.transformer_training import Offload, Recompute
from crosstack.workload.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a plan needs of the main memory of a chip, ``activations`` among it. [B]"""

    total: float
    activations: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Least:
    """What strategies take at least, shape (n,): a layer, by its compute [s], ``work`` [FLOP].

    ``held`` is what stays in the fullest chip's main memory, ``left`` what a layer leaves on the
    host of a sequence. [B]
    """

    layer: Floats
    work: Floats
    held: Floats
    left: Floats


@dataclass(slots=True, kw_only=True)
class Room:
    """The main memory of one problem; ``table`` prices a plan's choices, ``free`` are left.

    ``held`` may be known from machines like this one: then ``known`` is told of tables not asked.
    """

    workload: Workload
    system: System
    arrays: KernelGraph
    rules: Rules
    table: Callable[[MeshPlan, int], Choices]
    free: Callable[[MeshPlan], Bools]
    known: Callable[[MeshPlan, int], None]
    held: dict[object, dict[str, Floats]] = field(default_factory=dict)
    asked: set[object] = field(default_factory=set)
    totals: dict[object, Floats] = field(default_factory=dict)
    demands: dict[object, Demand] = field(default_factory=dict)
    moving: dict[object, float] = field(default_factory=dict)
    work: dict[Recompute, dict[Dtype, tuple[float, float]]] = field(default_factory=dict)

    def capacity(self, plan: MeshPlan) -> float:
        """Main memory of a chip under a plan. [B]"""
        return self.system.chip.memory_room(spilled=plan.spilled)

    def least(self, plan: MeshPlan) -> Demand:
        """Return what stays in the fullest chip's memory, however the plan is filled in."""
        key = (
            _way(plan), plan.pipeline, plan.data, plan.microbatch_size, plan.recompute, plan.again,
            plan.schedule, plan.interleave, plan.graph_stages, plan.ends, plan.zero,
        )  # fmt: skip
        if key not in self.demands:  # wherever its chips lie
            memory = self.lightest(plan)
            total = float(static_size(self.workload, plan, memory))
            if plan.graph_stages > 1:  # the fullest stage holds at least its share
                held = float(memory.held(plan))
                total += held / plan.graph_stages - held
            activations = float(activations_held(plan, memory))
            self.demands[key] = Demand(total=total, activations=activations)
        return self.demands[key]

    def away(self, plan: MeshPlan) -> Floats:
        """Return what chips of every stage have on their hosts at least. [B]"""
        return host_held(plan, self.lightest(plan), np.arange(plan.pipeline))

    def lightest(self, plan: MeshPlan) -> CopyMemory:
        """Return the least that a copy of the graph takes under a plan, choice by choice."""
        return self._memory(plan, most=False)

    def always_fits(self, plan: MeshPlan) -> bool:
        """Whether a plan fits, however it is filled in."""
        if math.isinf(self.capacity(plan)):
            return True
        moving = self._most_moving(plan) * plan.microbatch_size * plan.schedule.at_once
        most = float(static_size(self.workload, plan, self._memory(plan, most=True)))
        return most + moving + self._most_of_ends(plan) <= self.capacity(plan)

    def _most_of_ends(self, plan: MeshPlan) -> float:
        """Bytes that ends take at most: of chips that each have all of them. [B]"""
        memory, most = self.rules.memory.as_trained(self.workload), 0.0
        for end in self.workload.ends:
            graph = end.graph
            own, table = graph.parameters / graph.sharers, end.table_size
            weights = float((own * graph.weight_held).sum()) + table
            numbers = (float(own.sum()) + table / end.element_size) * self.workload.training
            state = weights + numbers * (memory.gradient_bytes + memory.optimizer_bytes)
            made = float((graph.output_size + graph.input_sizes.sum(axis=1)).sum())
            caches = float(graph.cache_size.sum()) * self.workload.global_batch_size
            flying = max(plan.n_microbatches, 1) * plan.microbatch_size
            running = plan.microbatch_size * plan.schedule.at_once
            most += end.count * (
                state + made * (flying + running) + caches + graph.memory_extra.sum()
            )
        return float(most)

    def of_many(self, strategies: Strategies) -> Least:
        """Return what strategies take at least, however they are filled in."""
        line, ones = self._lines(strategies)
        ends = [(replace(one, again=0.0), replace(one, again=1.0)) for one in ones]
        table = [
            (*map(self.least_layer, pair), *map(self.least_work, pair), self.leaving(one))
            for one, pair in zip(ones, ends, strict=True)
        ]
        layer, most, work, all_work, left = np.array(table).reshape(-1, 5).T[:, line]
        again = strategies.again
        return Least(
            layer=layer + again * (most - layer),
            work=work + again * (all_work - work),
            held=self.held_of_many(strategies),
            left=left,
        )

    def leaving(self, plan: MeshPlan) -> float:
        """Bytes that a layer leaves on the host of a sequence at least. [B]"""
        away = plan.offloaded.activations
        return float(self.lightest(plan).kept.sum()) if away else 0.0

    def held_of_many(self, strategies: Strategies) -> Floats:
        """Bytes that stay at least in the fullest chip's memory under strategies. [B]"""
        held, (line, ones) = np.zeros(len(strategies)), self._lines(strategies)
        apart = np.array([False, self.workload.experts > 0])
        rows = np.array([self._totals(one) for one in ones]).reshape(-1, len(COPY_ROWS), 2)
        for here, many in strategies.by_schedule(self.workload, without_times=True):
            sizes = dict(zip(COPY_ROWS, rows[line[here]].swapaxes(0, 1), strict=True))
            sequences = -(-self.workload.global_batch_size // np.asarray(many.data))
            sizes["caches"] = sizes["caches"] * sequences[:, None]
            memory = CopyMemory(**sizes, experts=apart)
            held[here] = static_size(self.workload, many, memory)
            if np.any(np.greater(many.graph_stages, 1)):  # the fullest holds at least its share
                own = memory.held(many)
                held[here] += own / many.graph_stages - own
        return held

    def _totals(self, plan: MeshPlan) -> Floats:
        """Return rows of the least that a copy of the graph takes, routed experts behind the rest.

        Caches are those of one sequence; shape (rows, 2). [B]
        """
        key = _way(plan), plan.recompute
        if key not in self.totals:
            memory = self.lightest(plan)
            sums = {name: getattr(memory, name) for name in COPY_ROWS}
            sums["caches"] = sums["caches"] / -(-self.workload.global_batch_size // plan.data)
            self.totals[key] = np.array(
                [(x[~memory.experts].sum(), x[memory.experts].sum()) for x in sums.values()]
            )
        return self.totals[key]

    def _lines(self, strategies: Strategies) -> tuple[Ints, list[MeshPlan]]:
        """Number strategies by what a chip does and keeps of a layer; and return a plan of each."""
        known: dict[object, int] = {}
        ways = [known.setdefault(_way(p), len(known)) for p in strategies.plans]
        kinds = np.array(ways, np.int64)[strategies.use] * len(RECOMPUTED) + strategies.recompute
        _, first, line = np.unique(kinds, return_index=True, return_inverse=True)
        return line.ravel(), [strategies.one(i, self.workload) for i in first.tolist()]

    def eased(self, strategies: Strategies, given: Constraints) -> Strategies:
        """Return strategies where as few layers compute again as may fit, if that is free."""
        again = strategies.recompute != RECOMPUTED.index(Recompute.NONE)
        again &= ~np.array([order.ends_meet for order in ORDERS])[strategies.schedule]
        if not (self.some_layers_again(given) and again.any()):
            return strategies
        some = np.flatnonzero(again)
        those = strategies.at(some)
        capacity = np.array([self.capacity(plan) for plan in strategies.plans])[those.use]
        share = strategies.again.copy()
        share[some] = those.fewest_again(self.held_of_many, capacity * (1 + ROUNDING)).again
        return replace(strategies, again=share)

    def some_layers_again(self, given: Constraints | Mapping) -> bool:
        """Whether it is free how many layers of a stage compute something again."""
        alike = Offload.ACTIVATIONS in given.offload or given.recompute is not None
        return not alike and some_layers_again(self.system.chip, self.rules)

    def fewest_again(
        self, plan: MeshPlan, memory: CopyMemory, moving: float = 0.0, *, ends: bool = False
    ) -> MeshPlan | None:
        """Return a plan where the fewest layers compute again with which it fits; None: none do.

        See `Strategies.fewest_again`. At least as many as the plan says already.

        Parameters
        ----------
        memory : CopyMemory
            Of a copy of the graph.
        moving : float
            What tensors between kernels take besides. [B]
        ends : bool
            Whether what runs in the ends has to fit as well.
        """
        most = plan.layers_per_stage // plan.interleave
        first = max(layers_again(plan) or most, 1)
        shares = np.arange(first, most + 1) / most
        many = replace(plan, again=shares)
        idle, running = static_sizes(self.workload, many, memory)
        held = np.maximum(idle + moving, running) if ends else idle + moving
        good = np.flatnonzero(held <= self.capacity(plan) * (1 + ROUNDING))
        if not good.size:
            return None
        return with_recompute(plan, self.arrays, plan.recompute, float(shares[good[0]]))

    def with_more_again(self, plan: MeshPlan, given: Constraints) -> MeshPlan | None:
        """Return a plan where one more layer computes again; None where that is of no use."""
        some = layers_again(plan)
        again = plan.recompute is not Recompute.NONE and some is not None
        if not (again and self.some_layers_again(given)) or self.always_fits(plan):
            return None
        share = share_again(plan, (some or 0) + 1)
        return with_recompute(plan, self.arrays, plan.recompute, min(share, 1.0))

    def again_for_nothing(self, plan: MeshPlan, given: Constraints) -> bool:
        """Whether a plan computes again what would fit in any case, if that is free."""
        if given.recompute is not None or plan.recompute is Recompute.NONE:
            return False
        return self.always_fits(with_recompute(plan, self.arrays, Recompute.NONE))

    def with_decided(self, plan: MeshPlan, mapping: Mapping) -> MeshPlan | None:
        """Return a plan of a use of the network with what a mapping decides; None: it may not."""
        if mapping.zero not in zero_stages(plan, self.rules):
            return None
        plan = replace(plan, zero=mapping.zero.number)
        if mapping.schedule not in schedules(plan, self.arrays, self.rules):
            return None
        plan = replace(plan, schedule=mapping.schedule)
        if mapping.interleave not in interleavings(plan, self.rules):
            return None
        plan = replace(plan, interleave=mapping.interleave)
        share = share_again(plan, mapping.recompute_layers)
        plan = with_recompute(plan, self.arrays, mapping.recompute, share)
        if plan.again > 1 or (plan.again < 1 and plan.schedule.ends_meet):
            return None
        return replace(plan, left=self.leaving(plan))

    def least_work(self, plan: MeshPlan) -> float:
        """Operations of a layer for one sequence on one chip, at least. [FLOP]

        As many as take that long in what most products compute with.
        """
        clock, chip, main = self.rules.clock, self.system.chip, self.arrays.dtype
        peak, done = clock.peak_rate(chip, main), self._done(plan)
        each = (
            work if dtype is main else work * (peak / clock.peak_rate(chip, dtype))
            for dtype, work in done.items()
        )
        return sum(each, 0.0) / plan.tensor / plan.context / math.prod(plan.split)

    def least_layer(self, plan: MeshPlan) -> float:
        """Time that a layer takes at least for one sequence. [s]"""
        time = self.rules.clock.least_time(self.system.chip, self._done(plan))
        return time / plan.tensor / plan.context / math.prod(plan.split)

    def _done(self, plan: MeshPlan) -> dict[Dtype, float]:
        """Operations of a layer for one sequence, by what they compute with. [FLOP]"""
        if plan.recompute not in self.work:
            again = computed_again(self.arrays, plan.recompute)
            density = density_on(self.arrays, self.system.chip, self.rules.traffic)
            work = self.arrays.work * density.min(axis=1)
            self.work[plan.recompute] = {
                dtype: (float(work[those].sum()), float((work * again)[those].sum()))
                for dtype, those in self.arrays.kernels_by_dtype
            }
        known = self.work[plan.recompute].items()
        return {dtype: once + plan.again * more for dtype, (once, more) in known}

    def lack(self, plan: MeshPlan, demand: Demand) -> tuple[str, tuple[str, ...]]:
        """Return where a plan does not fit, with what takes most, and what would help."""
        kind = "weights and optimizer state" if self.workload.training else "weights and caches"
        levers = ["more tensor or pipeline parallelism (fewer layers a stage)"]
        logits = max(float(rows.get("logits", 0.0)) for rows in end_sizes(plan))
        if max(demand.activations, logits) > demand.total / 2:
            kind = "activations" if demand.activations > logits else "logits and their gradients"
            levers = ["more tensor parallelism"]
            if shared_tokens(self.workload, self.rules) > plan.context:
                levers = ["more tensor or context parallelism"]
            if plan.microbatch_size > 1:
                levers.append("smaller microbatches")
            last = recomputations(self.arrays, self.rules)[-1]
            if plan.recompute is not last and demand.activations > logits:
                levers.insert(0, "recompute: full")
        elif self.workload.experts > plan.expert * plan.tensor:
            levers.append("experts over more data-parallel chips")
        again = f", recomputation {plan.recompute}" if self.workload.training else ""
        data = f"{plan.data} with experts over {plan.expert}" if plan.expert > 1 else plan.data
        context = f" x context {plan.context}" if plan.context > 1 else ""
        where = (
            f"a chip at tensor {plan.tensor}{context} x pipeline {plan.pipeline} x data {data}, "
            f"{plan.layers_per_stage} layers a stage{again}, most of it {kind},"
        )
        return where, (*levers, "more memory a chip", "more chips")

    def kept_by_choices(
        self, plan: MeshPlan, choices: Choices, domains: Domains, load: ChipLoad
    ) -> Held | None:
        """Return what choices keep in main memory beyond the least; None where that is not known.

        Of sizes that the model of memory adds up; what else it holds is at its least, and what is
        alive under ``load``, the least of the choices.
        """
        capacity = self.capacity(plan)
        if math.isinf(capacity) or not self.workload.training:
            return None
        kept = choices.index.inside(domains)
        columns = {name: getattr(choices, name) for name in COPY_COLUMNS}
        least = {name: choices.index.least(column, kept) for name, column in columns.items()}
        memory = copy_memory(self.workload, self.arrays, plan, self.rules, **least)
        slopes = kept_slopes(self.workload, plan, memory)
        if slopes is None:
            return None
        row = choices.index.kernel
        sizes = slopes.kept * (columns["kept"] - least["kept"][row])
        sizes = sizes + slopes.again * (columns["again"] - least["again"][row])
        running = plan.microbatch_size * plan.schedule.at_once
        passes = streams_memory(self.workload.placement, self.rules)
        results = choices.output_total * (running * (not passes))
        alive = least_live(load) * running
        room = capacity * (1 + ROUNDING) - slopes.least - alive
        return Held(sizes, room, (slopes.kept, slopes.again), alive, results)

    def _memory(self, plan: MeshPlan, *, most: bool) -> CopyMemory:
        """Return the least that a copy of the graph takes, or the most, choice by choice."""
        key = (_way(plan), plan.recompute, most)
        if key not in self.held:
            choices, sign = self.table(plan, 1), -1 if most else 1
            self.held[key] = {
                name: sign * choices.index.least(sign * getattr(choices, name), self.free(plan))
                for name in COPY_COLUMNS
            }
        elif key not in self.asked:
            self.known(plan, 1)
        self.asked.add(key)
        return copy_memory(self.workload, self.arrays, plan, self.rules, **self.held[key])

    def _most_moving(self, plan: MeshPlan) -> float:
        """Bytes that the tensors of one sequence take at most, but for those kept anyway. [B]"""
        key = _way(plan)
        if key not in self.moving:
            # A ragged last tile adds less than the length of a sequence to an extent.
            tables = [self.table(plan, n) for n in (1, self.workload.sequence_length)]
            loose = ~kept_tensors(self.arrays).output
            free = self.free(plan)
            made = [-t.index.least(-t.output_total, free)[loose].sum() for t in tables]
            self.moving[key] = float(sum(made))
        return self.moving[key]


def _way(plan: MeshPlan) -> tuple[object, ...]:
    """Return what tells the chips that share a copy of the graph from others, wherever they lie."""
    shared = plan.expert, plan.expert_tensor, plan.context, plan.context_exchange
    return plan.tensor, plan.split, *shared
