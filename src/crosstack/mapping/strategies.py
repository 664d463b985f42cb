"""Strategies as arrays: what is decided for all layers, of thousands of plans at once.

A *strategy* is a use of the network by the kinds of parallelism, what data-parallel
chips share, a microbatch size, what is computed again, a schedule and the pieces of a stage. What a
layer takes is not in it: formulas of `crosstack.model` take arrays, so one call prices all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any

import numpy as np

from crosstack.errors import require
from crosstack.machine.system import System
from crosstack.mapping.mapping import Constraints, Mapping
from crosstack.mapping.parallelism import workload_uses
from crosstack.model.choices import least_summing
from crosstack.model.collectives import AffineTime, ConcaveTime, NearShards, Replicas
from crosstack.model.end_cost import EndCost
from crosstack.model.memory import searched_recomputations
from crosstack.model.mesh_plan import MeshPlan, microbatch_count, with_offloaded
from crosstack.model.rules import Rules
from crosstack.model.schedule.allowed import (
    may_follow,
    may_recompute,
    schedules,
    useful_zero_stages,
    with_recompute,
)
from crosstack.model.tiles import divisors
from crosstack.model.tokens import with_tokens
from crosstack.records import known_again
from crosstack.workload.kernel_graph import Bools, Floats, Ints
from crosstack.workload.kernels import Placement
from crosstack.workload.transformer_training import Recompute, Schedule
from crosstack.workload.workload import Workload

RECOMPUTED, ORDERS = tuple(Recompute), tuple(Schedule)
SUMS = "periodic", "scatter", "gather"  # what sums of gradients take, and weights sent round
COLUMNS = "use", "microbatch_size", "recompute", "again", "schedule", "interleave", "left"


@known_again(64, by_value=1)
def column(plans: tuple[MeshPlan, ...], name: str) -> Any:
    """Return a number of every plan as an array."""
    return np.array([attrgetter(name)(plan) for plan in plans])


@known_again(16)
def _ends(plans: tuple[MeshPlan, ...]) -> tuple[dict[str, Any], ...]:
    """Return what the ends of every plan take, by field; none of them where no plan has ends."""
    if not any(plan.has_ends for plan in plans):
        return ()
    names = [field.name for field in fields(EndCost)]
    return tuple(
        {name: np.array([getattr(plan.ends[i], name) for plan in plans], float) for name in names}
        for i in range(2)
    )


@known_again(128, by_value=1)
def exchanges(plans: tuple[MeshPlan, ...], name: str) -> tuple[Ints, Floats]:
    """Return which time of a name each plan has, and the lines of all, shape (2, lines, times)."""
    known: dict[ConcaveTime, int] = {}
    lines = map(attrgetter(name), plans)
    numbers = np.array([known.setdefault(line, len(known)) for line in lines])
    table = np.zeros((2, max(len(line.members) for line in known), len(known)))
    table[0] = np.inf  # lines that one does not have
    for one, i in known.items():
        for j, line in enumerate(one.members):
            table[:, j, i] = line.fixed, line.per_byte
    return numbers, table


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Strategies:
    """Arrays of strategies, shape (n,).

    ``use`` is the place of the network's use, with what data-parallel chips share, among ``plans``,
    one each, of one microbatch size; ``recompute`` and ``schedule`` are those of the kind among
    all; ``again`` is the share of the layers of a stage that compute again [1];
    ``microbatch_size`` [1], ``interleave`` [1]; ``left`` is what a layer leaves on the host of a
    sequence at least [B].
    """

    plans: tuple[MeshPlan, ...]
    use: Ints
    microbatch_size: Ints
    recompute: Ints
    again: Floats
    schedule: Ints
    interleave: Ints
    left: Floats

    def __len__(self) -> int:
        return len(self.use)

    def of_use(self, name: str) -> Any:
        """Return a number of the plan of each, by its name there."""
        return column(self.plans, name)[self.use]

    def at(self, places: Ints | Bools) -> Strategies:
        """Return some of them."""
        return replace(self, **{name: getattr(self, name)[places] for name in COLUMNS})

    def with_more(self, other: Strategies) -> Strategies:
        """Return these and others of the same plans."""
        columns: dict[str, Any] = {
            name: np.concatenate((getattr(self, name), getattr(other, name))) for name in COLUMNS
        }
        return replace(self, **columns)

    @classmethod
    def joined(cls, each: Sequence[Strategies]) -> Strategies:
        """Return those of several as one, whose ``use`` counts the plans of all of them."""
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(one, name) for one in each]) for name in COLUMNS
        }
        return cls(plans=tuple(plan for one in each for plan in one.plans), **columns)

    def place_of(self, mapping: Mapping) -> int | None:
        """Return the place of the strategy of a mapping, however many layers compute again.

        None where it is none of these.
        """
        wanted = _of_use(mapping), mapping.zero.number
        uses = [n for n, plan in enumerate(self.plans) if (_of_use(plan), plan.zero) == wanted]
        alike = np.isin(self.use, uses)
        alike &= self.microbatch_size == mapping.microbatch_size
        alike &= self.recompute == RECOMPUTED.index(mapping.recompute)
        alike &= self.schedule == ORDERS.index(mapping.schedule)
        alike &= self.interleave == mapping.interleave
        found = np.flatnonzero(alike)
        return int(found[0]) if found.size else None

    def counts(self, workload: Workload, schedule: Schedule) -> MeshPlan:
        """Return the plan of all of them by one schedule, as far as that asks who may follow it."""
        names = "pipeline", "layers_per_stage", "zero", "expert"
        count = microbatch_count(workload, self.of_use("data"), self.microbatch_size)
        numbers: dict[str, Any] = {name: self.of_use(name) for name in names}
        numbers |= {"n_microbatches": count, "interleave": self.interleave}
        return replace(self.plans[0], schedule=schedule, **numbers)

    def plan(
        self, workload: Workload, schedule: Schedule, *, without_times: bool = False
    ) -> MeshPlan:
        """Return the plan of all of them as arrays, by one schedule.

        ``without_times``: all but what the network takes, as memory and legality ask for.
        """
        first, data = self.plans[0], self.of_use("data")
        numbers = {
            "microbatch_size": self.microbatch_size,
            "pipeline": self.of_use("pipeline"),
            "data": data,
            "expert": self.of_use("expert"),
            "context": self.of_use("context"),
            "n_microbatches": microbatch_count(workload, data, self.microbatch_size),
            **{n: self.of_use(n) for n in ("layers_per_stage", "first_fewer", "last_fewer")},
            "interleave": self.interleave,
            "again": self.again,
            "left": self.left,
            "zero": self.of_use("zero"),
        }
        ends = _ends(self.plans)
        if ends:
            numbers["ends"] = tuple(
                EndCost(**{name: values[self.use] for name, values in end.items()}) for end in ends
            )
        stages = self.of_use("graph_stages")
        numbers["graph_stages"] = stages if (stages > 1).any() else 1
        numbers |= self._sharers() if without_times else self._times(workload, schedule)
        found = replace(first, schedule=schedule, **numbers)
        exchanged = bool(workload.graph.exchanged.any()) and not without_times
        return with_tokens(found, workload.graph, self.recompute) if exchanged else found

    def _sharers(self) -> dict[str, Any]:
        """Return among how many chips all of them share what lies on a chip. [1]"""
        near = NearShards(chips=self.of_use("replicas.near.chips"))
        return {
            "near": NearShards(chips=self.of_use("near.chips")),
            "replicas": Replicas(chips=self.of_use("replicas.chips"), near=near),
        }

    def _times(self, workload: Workload, schedule: Schedule) -> dict[str, Any]:
        """Return what the network takes of all of them, and shares of work in a copy."""
        first, graph = self.plans[0], workload.graph
        again = [with_recompute(first, graph, kind, self.again) for kind in RECOMPUTED]
        shares = "forward", "weight_gradients", "rerun", "host"
        numbers: dict[str, Any] = {
            "stage_transfer": self._sends("stage_transfer"),
            **{name: self._by_kind([getattr(p, name) for p in again]) for name in shares},
            **{name: self._line(name) for name in SUMS},
            "summed": self.of_use("summed"),
            "expert_summed": self.of_use("expert_summed"),
            "near": self._near("near"),
            "replicas": Replicas(
                chips=self.of_use("replicas.chips"),
                near=self._near("replicas.near"),
                **{name: self._line(f"replicas.{name}") for name in SUMS},
            ),
        }
        if schedule.both_ends:
            numbers["border"] = self._sends("border")
        if graph.exchanged.any():
            numbers["tensor"] = self.of_use("tensor")
            numbers["exchange"] = self._line("exchange")
            cut = next((plan.cut_over for plan in self.plans if plan.cut_over is not None), None)
            if cut is not None:
                cut = replace(cut, exchange=self._line("exchange_of_groups"))
            numbers["cut_over"] = cut
        return numbers

    def _sends(self, name: str) -> AffineTime:
        """Return what a message takes of all of them, of which plans have one line each."""
        return AffineTime(**{n: self.of_use(f"{name}.{n}") for n in ("fixed", "per_byte")})

    def _by_kind(self, values: Sequence[Any]) -> Floats:
        """Return of numbers by what is computed again those of each."""
        known = [np.broadcast_to(value, len(self)) for value in values]
        return np.stack(known)[self.recompute, np.arange(len(self))]

    @property
    def layers(self) -> Ints:
        """Layers of every piece of a stage. [1]"""
        return np.asarray(self.of_use("layers_per_stage") // self.interleave)

    def with_again(self, layers: Ints) -> Strategies:
        """Return the same where so many layers of every piece compute again. [1]"""
        return replace(self, again=layers / self.layers)

    def fewest_again(self, held: Callable[[Strategies], Floats], capacity: Floats) -> Strategies:
        """Return the same where the fewest layers compute again with which main memory holds all.

        An iteration takes no less with more of them, as a layer takes no less; and what is held is
        no more, as each that computes again keeps less of every microbatch, and what the one that
        runs has besides is there once. So the fewest that fit are best, whatever else is decided:
        they are found by halving, all at once. All of them where none fit.

        Parameters
        ----------
        held : callable
            What some of these strategies hold of the main memory of a chip. [B]
        capacity : array, shape (n,)
            Of it. [B]
        """
        least, most = np.ones(len(self), dtype=np.int64), self.layers

        def fitting(these: Ints, layers: Ints) -> Bools:
            return np.asarray(held(self.at(these).with_again(layers)) <= capacity[these])

        open_ = np.flatnonzero(least < most)
        if open_.size:  # most of those that do not fit at all, or fit at once, are known so
            never = open_[~fitting(open_, most[open_])]
            least[never] = most[never]
            open_ = np.flatnonzero(least < most)
        if open_.size:
            once = fitting(open_, least[open_])
            most[open_[once]], least[open_[~once]] = 1, 2
        while (least < most).any():
            open_ = np.flatnonzero(least < most)
            tried = (least[open_] + most[open_]) // 2
            fits = fitting(open_, tried)
            most[open_[fits]] = tried[fits]
            least[open_[~fits]] = tried[~fits] + 1
        return self.with_again(most)

    def _near(self, name: str) -> NearShards:
        """Return shares of the nearest chips of each plan, as arrays."""
        lines = {one: self._line(f"{name}.{one}") for one in ("scatter", "gather", "across")}
        return NearShards(chips=self.of_use(f"{name}.chips"), **lines)

    def _line(self, name: str) -> ConcaveTime:
        """Return a time over bytes of each plan, as one line of arrays."""
        number, table = exchanges(self.plans, name)
        pairs = zip(*table[:, :, number[self.use]], strict=True)
        return ConcaveTime(tuple(AffineTime(fixed=a, per_byte=b) for a, b in pairs))

    def by_schedule(
        self, workload: Workload, *, without_times: bool = False
    ) -> Iterator[tuple[Ints, MeshPlan]]:
        """Yield the places of all that follow one schedule, with their plan as arrays; see `plan`.

        Stages that hold whole copies of the graph and those that split it are apart.
        """
        split = self.of_use("graph_stages") > 1
        for number in np.unique(self.schedule).tolist():
            for parted in (False, True):
                here = np.flatnonzero((self.schedule == number) & (split == parted))
                if here.size:
                    those = self.at(here)
                    yield here, those.plan(workload, ORDERS[number], without_times=without_times)

    def by_use(self, workload: Workload) -> Iterator[tuple[Ints, MeshPlan]]:
        """Yield those that have a use of the network and a schedule, as `by_schedule` does."""
        for here, _ in self.by_schedule(workload):
            for use in np.unique(self.use[here]).tolist():
                own = here[self.use[here] == use]
                alike = replace(self.at(own), plans=(self.plans[use],), use=np.zeros_like(own))
                plan = alike.plan(workload, ORDERS[self.schedule[own[0]]])
                known = {name: getattr(self.plans[use], name) for name in ("data", "graph_stages")}
                yield own, replace(plan, **known)

    def one(
        self, number: int, workload: Workload, plan: MeshPlan | None = None, *, whole: bool = False
    ) -> MeshPlan:
        """Return the plan of one strategy; but for its schedule, unless it is asked for ``whole``.

        Parameters
        ----------
        number : int
            Its place.
        plan : MeshPlan, optional
            Of the use of the network; its own if left out.
        """
        plan = self.plans[self.use[number]] if plan is None else plan
        size = int(self.microbatch_size[number])
        count = microbatch_count(workload, plan.data, size)
        decided: dict[str, Any] = {"microbatch_size": size, "n_microbatches": count}
        if whole:
            decided["schedule"] = ORDERS[self.schedule[number]]
            decided["interleave"] = int(self.interleave[number])
        plan = replace(plan, **decided, left=self.left[number])
        kind, again = RECOMPUTED[self.recompute[number]], float(self.again[number])
        return with_recompute(plan, workload.graph, kind, again)


def _of_use(one: MeshPlan | Mapping) -> tuple[object, ...]:
    """Return what tells a use of the network from others."""
    return one.sizes, one.parallelism, one.dimensions, one.context_exchange, one.expert_tensor


def with_shares(plan: MeshPlan, rules: Rules, given: Constraints) -> list[MeshPlan]:
    """Return a plan with all that its data-parallel chips may share, and that may help."""
    shares = useful_zero_stages(plan, rules, given.zero)
    return [replace(plan, zero=zero.number) for zero in shares]


def strategies_of(
    plans: Sequence[MeshPlan],
    sizes: Sequence[Sequence[int]],
    workload: Workload,
    rules: Rules,
    given: Constraints,
    orders: Sequence[Schedule] | None = None,
) -> Strategies:
    """Return the strategies of uses of the network, at least one of them.

    Parameters
    ----------
    plans : sequence of MeshPlan
        Of each use, with what data-parallel chips share, of one microbatch size.
    sizes : sequence of sequences of int
        Microbatch sizes of each. [1]
    given : Constraints
        Decisions that are given.
    orders : sequence of Schedule, optional
        Schedules; that of ``given``, or all that are searched, if left out.
    """
    kinds = (
        searched_recomputations(workload.graph, rules)
        if given.recompute is None
        else (given.recompute,)
    )
    layers = {n for count in {plan.layers_per_stage for plan in plans} for n in divisors(count)}
    cuts = sorted(layers) if given.interleave is None else [given.interleave]
    if orders is None:
        free = tuple(order for order in Schedule if order.searched)
        orders = free if given.schedule is None else (given.schedule,)
    allowed = schedules(plans[0], workload.graph, rules)
    ordered = [
        (order, cut)
        for order in orders
        if order in allowed
        for cut in ([order.pieces] if order.pieces else cuts)
        if given.interleave in (None, cut)
    ]
    often = np.array([len(some) for some in sizes], dtype=np.int64)
    flat = np.array([size for some in sizes for size in some], dtype=np.int64)
    pairs = np.repeat(np.arange(len(plans)), often), flat
    pair, kind, order = (
        index.ravel() for index in np.indices((len(flat), len(kinds), len(ordered)))
    )
    found = Strategies(
        plans=tuple(plans),
        use=pairs[0][pair],
        microbatch_size=pairs[1][pair],
        recompute=np.array([RECOMPUTED.index(one) for one in kinds], dtype=np.int64)[kind],
        schedule=np.array([ORDERS.index(one) for one, _ in ordered], dtype=np.int64)[order],
        interleave=np.array([cut for _, cut in ordered], dtype=np.int64)[order],
        again=np.ones(len(kind)),
        left=np.zeros(len(kind)),
    )
    if not len(found):
        return found
    good = np.zeros(len(found), dtype=np.bool_)
    for number in np.unique(found.schedule).tolist():
        here = np.flatnonzero(found.schedule == number)
        plan = found.at(here).counts(workload, ORDERS[number])
        good[here] = may_follow(plan, rules) & may_recompute(plan)[found.recompute[here]]
    found = found.at(good & ~_one_stage_otherwise(found, ordered))
    if given.recompute_layers is None:
        return found
    found = found.with_again(np.full(len(found), given.recompute_layers))
    alike = np.array([order.ends_meet for order in ORDERS])[found.schedule]
    return found.at(np.where(alike, found.again == 1, found.again <= 1))


def _one_stage_otherwise(found: Strategies, ordered: Sequence[tuple[Schedule, int]]) -> Bools:
    """Which have one stage and a schedule that is, of one stage, that of another or keeps more.

    A stage alone takes its microbatches forward and backward one by one, as soon as it can, or
    combines them; where the former is among the ``ordered``, no other way is faster or keeps less.
    """
    usual = (Schedule.ONE_F_ONE_B, 1)
    if usual not in ordered:
        return np.zeros(len(found), dtype=np.bool_)
    alone = np.array([plan.pipeline == 1 for plan in found.plans])[found.use]
    as_usual = (found.schedule == ORDERS.index(usual[0])) & (found.interleave == usual[1])
    combined = found.schedule == ORDERS.index(Schedule.COMBINED)
    return np.asarray(alone & ~as_usual & ~combined)


def all_strategies(
    workload: Workload,
    system: System,
    rules: Rules,
    constraints: Constraints | None = None,
    orders: Sequence[Schedule] | None = None,
) -> Strategies:
    """Return every strategy whose stages hold whole copies of the graph.

    Parameters
    ----------
    constraints : Constraints, optional
        Decisions that are given.
    orders : sequence of Schedule, optional
        Schedules; that of the constraints, or all that are searched, if left out.

    Raises
    ------
    InputError
        If the workload brings its own distribution over the chips, or none is left.
    """
    given = constraints or Constraints()
    searched = workload.placement is Placement.SEARCHED
    require(searched, "workload.placement", workload.placement, Placement.SEARCHED)
    plans, sizes = list[MeshPlan](), list[tuple[int, ...]]()
    for use in workload_uses(workload, system, given, rules):
        if use is None:
            continue
        plan = use.plan(use.microbatches[0], workload, system, rules)
        if plan is not None and plan.graph_stages == 1:
            plan = replace(least_summing(workload.graph, plan), hidden=given.overlap)
            plan = with_offloaded(plan, workload, system, rules, given.offload)
            for shared in with_shares(plan, rules, given):
                plans.append(replace(shared, summed=0.0, expert_summed=0.0))
                sizes.append(use.microbatches)
    require(bool(plans), "workload.global_batch_size", workload.global_batch_size, "another")
    return strategies_of(plans, sizes, workload, rules, given, orders)
