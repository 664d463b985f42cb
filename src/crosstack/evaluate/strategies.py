"""Many strategies at once: time, memory and what fits, as arithmetic on arrays.

A *strategy* is a use of the network by tensor, pipeline and data parallelism, a microbatch size,
what is computed again, a schedule and the pieces of a stage. The kernels of a layer are a block
(`crosstack.evaluate.blocks`) that many strategies share; where the blocks are known, the rest are
the closed forms of `crosstack.model`, which take arrays. The numbers are those of
`crosstack.evaluate.time.evaluate` of every mapping, to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np

from crosstack.errors import require
from crosstack.evaluate.blocks import NOUGHT, BlockTable, BlockTerms
from crosstack.machine.chip import Execution
from crosstack.machine.system import System
from crosstack.mapping.mapping import Constraints, Mapping
from crosstack.mapping.parallelism import workload_uses
from crosstack.model.choices import least_summing
from crosstack.model.collectives import AffineTime, ConcaveTime, NearShards, Replicas
from crosstack.model.iteration import iteration_time, pipeline_of
from crosstack.model.memory import STATE, CopyMemory, recomputations, static_size
from crosstack.model.mesh_plan import MeshPlan, make_plan, microbatch_count
from crosstack.model.partition import ROUNDING, combine_arrays
from crosstack.model.rules import Rules
from crosstack.model.schedule.allowed import (
    may_follow,
    schedules,
    useful_zero_stages,
    with_recompute,
)
from crosstack.model.tiles import divisors
from crosstack.records import known_again
from crosstack.workload.kernel_graph import Bools, Floats, Ints
from crosstack.workload.kernels import Placement
from crosstack.workload.transformer_training import ZEROS, Recompute, Schedule
from crosstack.workload.workload import Workload

RECOMPUTED, ORDERS = tuple(Recompute), tuple(Schedule)


@known_again(64, by_value=1)
def _column(plans: tuple[MeshPlan, ...], name: str) -> Any:
    """Return a number of every plan as an array."""
    return np.array([attrgetter(name)(plan) for plan in plans])


@known_again(16)
def _exchanges(plans: tuple[MeshPlan, ...], name: str) -> tuple[Ints, Floats]:
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

    ``use`` is the place of the network's use among ``plans``, one each, of one microbatch size;
    ``recompute`` and ``schedule`` are those of the kind among all; ``microbatch_size`` [1],
    ``interleave`` [1].
    """

    plans: tuple[MeshPlan, ...]
    use: Ints
    microbatch_size: Ints
    recompute: Ints
    schedule: Ints
    interleave: Ints

    def __len__(self) -> int:
        return len(self.use)

    def of_use(self, name: str) -> Any:
        """Return a number of the plan of each, by its name there."""
        return _column(self.plans, name)[self.use]

    def at(self, places: Ints | Bools) -> Strategies:
        """Return some of them."""
        names = ("use", "microbatch_size", "recompute", "schedule", "interleave")
        return replace(self, **{name: getattr(self, name)[places] for name in names})

    def plan(self, workload: Workload, schedule: Schedule) -> MeshPlan:
        """Return the plan of all of them as arrays, by one schedule."""
        first, data = self.plans[0], self.of_use("data")
        again = [with_recompute(first, workload.graph, kind) for kind in RECOMPUTED]
        shares = ("forward", "weight_gradients")
        lines = ("fixed", "per_byte")
        numbers = {
            "microbatch_size": self.microbatch_size,
            "pipeline": self.of_use("pipeline"),
            "data": data,
            "expert": self.of_use("expert"),
            "n_microbatches": microbatch_count(workload, data, self.microbatch_size),
            "layers_per_stage": self.of_use("layers_per_stage"),
            "stage_transfer": AffineTime(**{n: self.of_use(f"stage_transfer.{n}") for n in lines}),
            "interleave": self.interleave,
            **{n: np.array([getattr(p, n) for p in again])[self.recompute] for n in shares},
            **{name: self._line(name) for name in ("periodic", "scatter", "gather")},
            "zero": self.of_use("zero"),
            "near": self._near("near"),
            "replicas": Replicas(
                chips=self.of_use("replicas.chips"),
                near=self._near("replicas.near"),
                **{n: self._line(f"replicas.{n}") for n in ("periodic", "scatter", "gather")},
            ),
        }
        return replace(first, schedule=schedule, **numbers)

    def _near(self, name: str) -> NearShards:
        """Return shares of the nearest chips of each plan, as arrays."""
        lines = {one: self._line(f"{name}.{one}") for one in ("scatter", "gather", "across")}
        return NearShards(chips=self.of_use(f"{name}.chips"), **lines)

    def _line(self, name: str) -> ConcaveTime:
        """Return a time over bytes of each plan, as one line of arrays."""
        number, table = _exchanges(self.plans, name)
        pairs = zip(*table[:, :, number[self.use]], strict=True)
        return ConcaveTime(tuple(AffineTime(fixed=a, per_byte=b) for a, b in pairs))

    def by_schedule(self, workload: Workload) -> Iterator[tuple[Ints, MeshPlan]]:
        """Yield the places of all that follow one schedule, with their plan as arrays."""
        for number in np.unique(self.schedule).tolist():
            here = np.flatnonzero(self.schedule == number)
            yield here, self.at(here).plan(workload, ORDERS[number])


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
        Schedules; that of the constraints if left out.

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
        parts = use.sizes, use.parallelism, use.microbatches[0]
        plan = make_plan(workload, system, *parts, rules, use.dimensions)
        if plan is not None and plan.graph_stages == 1:
            plan = least_summing(workload.graph, plan)
            for zero in useful_zero_stages(plan, rules, given.zero):
                plans.append(replace(plan, zero=zero.number, summed=0.0, expert_summed=0.0))
                sizes.append(use.microbatches)
    require(bool(plans), "workload.global_batch_size", workload.global_batch_size, "another")
    kinds = recomputations(workload.graph, rules) if given.recompute is None else (given.recompute,)
    layers = {n for count in {plan.layers_per_stage for plan in plans} for n in divisors(count)}
    cuts = sorted(layers) if given.interleave is None else [given.interleave]
    orders = (given.schedule,) if orders is None else orders
    orders = [order for order in orders if order in schedules(plans[0], rules)]
    counts = np.array([len(some) for some in sizes])
    pairs = np.repeat(np.arange(len(plans)), counts), np.concatenate([*map(np.array, sizes)])
    shape = (len(pairs[0]), len(kinds), len(orders), len(cuts))
    pair, kind, order, cut = (index.ravel() for index in np.indices(shape))
    found = Strategies(
        plans=tuple(plans),
        use=pairs[0][pair],
        microbatch_size=pairs[1][pair],
        recompute=np.array([RECOMPUTED.index(one) for one in kinds])[kind],
        schedule=np.array([ORDERS.index(one) for one in orders])[order],
        interleave=np.array(cuts)[cut],
    )
    good = np.zeros(len(found), dtype=np.bool_)
    for here, plan in found.by_schedule(workload):
        good[here] = may_follow(plan, rules)
    return found.at(good)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StrategyTimes:
    """What strategies take, each shape (n,): see `crosstack.evaluate.evaluation.Evaluation`.

    ``time`` of an iteration and of a ``layer`` of one sequence [s], ``memory_used`` and
    ``memory_capacity`` of the fullest chip [B], ``utilization`` [1]. ``fits``: whether main memory
    and the chip hold it; the numbers of others are what they would be.
    """

    time: Floats
    layer_time: Floats
    memory_used: Floats
    memory_capacity: Floats
    utilization: Floats
    fits: Bools


def strategy_times(strategies: Strategies, table: BlockTable) -> StrategyTimes:
    """Price strategies; blocks that the table does not have are solved first.

    What runs before the first layer and behind the last one is left out: a workload with ends takes
    longer and keeps more, see `crosstack.evaluate.ranking`.
    """
    system = table.system
    used, capacity, layer, summed, fits = _priced(strategies, table, spilled=False)
    if system.chip.has_second_memory:
        over = np.flatnonzero(used > capacity * (1 + ROUNDING))
        found = _priced(strategies.at(over), table, spilled=True)
        for column, values in zip((used, capacity, layer, summed, fits), found, strict=True):
            column[over] = values
    workload = table.workload
    time = times_of_layers(strategies, layer, workload, system, table.rules, summed)
    rate = table.rules.clock.peak_rate(system.chip, workload.graph.dtype)
    peak = rate * system.copies * system.n_chips
    return StrategyTimes(
        time=time,
        layer_time=layer,
        memory_used=used,
        memory_capacity=capacity,
        utilization=workload.work / time / peak,
        fits=fits & (used <= capacity * (1 + ROUNDING)),
    )


def times_of_layers(
    strategies: Strategies,
    layer: Floats,
    workload: Workload,
    system: System,
    rules: Rules,
    summed: Floats | None = None,
) -> Floats:
    """Time of an iteration of every strategy. [s]

    Parameters
    ----------
    layer : array, shape (n,)
        Time of a layer of one sequence. [s]
    summed : array, shape (n, 2), optional
        Gradients of a layer that are summed once an iteration, and those of routed experts that
        fewer chips sum; none if left out. [B]
    """
    time = np.zeros(len(strategies))
    if summed is None:
        summed = np.zeros((len(strategies), 2))
    for here, known in strategies.by_schedule(workload):
        plan = replace(known, summed=summed[here, 0], expert_summed=summed[here, 1])
        work = layer[here] * plan.microbatch_size * plan.layers_per_stage
        pipeline = pipeline_of(plan, system.chip.overlap, rules)
        time[here] = iteration_time(pipeline, work, rules) / plan.copies
    return time


def _priced(
    strategies: Strategies, table: BlockTable, *, spilled: bool
) -> tuple[Floats, Floats, Floats, Floats, Bools]:
    """Return memory used and there is [B], what a layer takes [s] and sums [B], and what fits."""
    rows = _rows(strategies, table, spilled=spilled)
    known = table.terms
    used = np.zeros(len(strategies))
    for here, plan in strategies.by_schedule(table.workload):
        used[here] = _memory(plan, known, rows[here], table.workload)
    exchange, sums = _exchanges(strategies.plans, "periodic")
    code = rows * sums.shape[2] + exchange[strategies.use]
    both, first, back = np.unique(code, return_index=True, return_inverse=True)
    plan = strategies.at(first).plan(table.workload, ORDERS[0])
    spread = np.asarray(table.rules.iteration.shares_of_gradients(plan))
    row, number = np.divmod(both, sums.shape[2])
    pairs = zip(*sums[:, :, number, None], strict=True)
    lines = ConcaveTime(tuple(AffineTime(fixed=a, per_byte=b) for a, b in pairs))
    layer = _layer_times(known, row, lines, spread, table)
    capacity = table.system.chip.memory_room(spilled=spilled)
    return used, np.full(len(used), capacity), layer[back], known.summed[rows], known.fits[rows]


def _memory(plan: MeshPlan, known: BlockTerms, rows: Ints, workload: Workload) -> Floats:
    """Bytes of main memory that the fullest chip needs, of strategies by one schedule. [B]"""
    # As of two kernels: one of all but routed experts that chips have parts of, one of those.
    state = zip(STATE, np.moveaxis(known.state[rows], 1, 0), strict=True)
    memory = CopyMemory(
        **dict(state),
        caches=np.zeros((len(rows), 1)),
        buffers=known.rest[rows, None],
        kept=known.kept[rows, None],
        again=known.again[rows, None],
        waiting=known.waiting[rows, None],
        experts=np.array([False, bool(np.any(np.greater(plan.expert, 1)))]),
    )
    return static_size(workload, plan, memory) + known.working[rows] * plan.microbatch_size


def _layer_times(
    known: BlockTerms, rows: Ints, lines: ConcaveTime, spread: Ints, table: BlockTable
) -> Floats:
    """Time of a layer of one sequence, with its share of the sums of gradients. [s]

    Of every layer, ``rows`` is its place in ``known``, ``lines`` what a sum of gradients takes, of
    arrays of shape (layers, 1), and ``spread`` how many sequences one sum is spread over. [1]
    """
    graph = table.workload.graph
    shares = spread[:, None] * graph.sharers[graph.periodic_size > 0]
    times = lines.time(known.gradients[rows] / shares, together=shares)
    data, place = np.zeros(times.shape), known.place[rows]
    for kernel in range(times.shape[1]):
        data[np.arange(len(rows)), place[:, kernel]] += times[:, kernel]
    join = np.maximum if table.rules.traffic.network_takes_maximum else np.add
    both = join(known.network[rows], data)
    summing = combine_arrays(known.device[rows], NOUGHT, both, table.system.chip.overlap)
    return np.asarray(known.others[rows] + summing.sum(axis=1))


# ---------------------------------------------------------------- blocks of strategies


def _rows(strategies: Strategies, table: BlockTable, *, spilled: bool) -> Ints:
    """Return the row of every strategy among the block terms of a table."""
    groups = np.array([table.group(plan) for plan in strategies.plans])
    spatial = table.system.chip.execution is Execution.SPATIAL
    columns = (
        groups[strategies.use],
        strategies.microbatch_size,
        strategies.recompute,
        strategies.of_use("data"),
        (strategies.of_use("layers_per_stage") == 1) & spatial,  # weights that may stay on the chip
    )
    shape = [int(column.max(initial=0)) + 1 for column in columns]
    code = np.ravel_multi_index(columns, shape)
    _, first, back = np.unique(code, return_index=True, return_inverse=True)
    keys = zip(*(column[first].tolist() for column in columns), strict=True)
    rows = []
    for i, key in zip(first.tolist(), keys, strict=True):
        row = table.rows.get((*key, spilled))
        if row is None:
            block = table.solve(key[:3], _block_plan(strategies, i, groups, table))
            plan = replace(plan_at(strategies, i, table.workload), spilled=spilled)
            row = table.add((*key, spilled), plan, block)
        rows.append(row)
    return np.array(rows, dtype=np.int64)[back]


def plan_at(
    strategies: Strategies, number: int, workload: Workload, plan: MeshPlan | None = None
) -> MeshPlan:
    """Return the plan of one strategy but for its schedule.

    Parameters
    ----------
    number : int
        Its place.
    plan : MeshPlan, optional
        Of the use of the network; its own if left out.
    """
    plan = strategies.plans[strategies.use[number]] if plan is None else plan
    size = int(strategies.microbatch_size[number])
    count = microbatch_count(workload, plan.data, size)
    plan = replace(plan, microbatch_size=size, n_microbatches=count)
    return with_recompute(plan, workload.graph, RECOMPUTED[strategies.recompute[number]])


def _block_plan(strategies: Strategies, number: int, groups: Ints, table: BlockTable) -> MeshPlan:
    """Return the plan that a strategy's block is solved with: of the least data parallelism."""
    data, use = _column(strategies.plans, "data"), strategies.use[number]
    whole = data * strategies.microbatch_size[number]
    same = (groups == groups[use]) & (table.workload.global_batch_size % whole == 0)
    fewest = int(np.argmin(np.where(same, data, data.max() + 1)))
    return plan_at(strategies, number, table.workload, strategies.plans[fewest])


def mapping_of(strategies: Strategies, number: int, table: BlockTable) -> Mapping | None:
    """Return the mapping of one strategy whose block is known; None where it has none."""
    plan = strategies.plans[strategies.use[number]]
    size = int(strategies.microbatch_size[number])
    block = table.solved[table.group(plan), size, int(strategies.recompute[number])]
    return None if block is None else with_strategy(block.mapping, strategies, number)


def with_strategy(mapping: Mapping, strategies: Strategies, number: int) -> Mapping:
    """Return the kernels of a mapping under one of some strategies."""
    plan = strategies.plans[strategies.use[number]]
    return replace(
        mapping,
        microbatch_size=int(strategies.microbatch_size[number]),
        sizes=plan.sizes,
        parallelism=plan.parallelism,
        dimensions=plan.dimensions,
        zero=ZEROS[plan.zero],
        recompute=RECOMPUTED[strategies.recompute[number]],
        schedule=ORDERS[strategies.schedule[number]],
        interleave=int(strategies.interleave[number]),
    )
