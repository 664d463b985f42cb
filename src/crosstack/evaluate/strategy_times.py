"""What many strategies take at once: time, memory and what fits, as arithmetic on arrays.

The kernels of a layer are a block (`crosstack.evaluate.blocks`) that many strategies
(`crosstack.mapping.strategies`) share; where the blocks are known, the rest are the closed forms of
`crosstack.model`, which take arrays. The numbers are those of `crosstack.evaluate.time.evaluate` of
every mapping, to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from crosstack.evaluate.blocks import NOUGHT, BlockTable, BlockTerms
from crosstack.machine.chip import Execution
from crosstack.mapping.decided import decided
from crosstack.mapping.least_times import times_of_layers
from crosstack.mapping.mapping import Mapping
from crosstack.mapping.strategies import ORDERS, Strategies, column, exchanges
from crosstack.model.collectives import AffineTime, ConcaveTime
from crosstack.model.memory import STATE, CopyMemory, static_size
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.partition import ROUNDING, combine_arrays
from crosstack.workload.kernel_graph import Bools, Floats, Ints
from crosstack.workload.workload import Workload


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
    longer and keeps more, see `crosstack.evaluate.ranking`. Of schedules whose time is that of
    events alone (`Schedule.by_events`), ``time`` is what they take at least.
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


def _priced(
    strategies: Strategies, table: BlockTable, *, spilled: bool
) -> tuple[Floats, Floats, Floats, Floats, Bools]:
    """Return memory used and there is [B], what a layer takes [s] and sums [B], and what fits."""
    rows = _rows(strategies, table, spilled=spilled)
    known, used = table.terms, memory_used(strategies, table, spilled=spilled)
    exchange, sums = exchanges(strategies.plans, "periodic")
    code = rows * sums.shape[2] + exchange[strategies.use]
    both, first, back = np.unique(code, return_index=True, return_inverse=True)
    plan = strategies.at(first).plan(table.workload, ORDERS[0])
    spread = np.asarray(table.rules.iteration.shares_of_gradients(plan))
    row, number = np.divmod(both, sums.shape[2])
    pairs = zip(*sums[:, :, number, None], strict=True)
    lines = ConcaveTime(tuple(AffineTime(fixed=a, per_byte=b) for a, b in pairs))
    layer = _layer_times(known, row, lines, spread, table)
    layer = layer[back] - (1 - strategies.again) * known.more[rows]
    capacity = table.system.chip.memory_room(spilled=spilled)
    summed = np.column_stack((known.summed[rows], known.kept[rows]))
    return used, np.full(len(used), capacity), layer, summed, known.fits[rows]


def memory_used(strategies: Strategies, table: BlockTable, *, spilled: bool = False) -> Floats:
    """Bytes of main memory that the fullest chip needs under each strategy. [B]"""
    rows, used = _rows(strategies, table, spilled=spilled), np.zeros(len(strategies))
    known = table.terms
    for here, plan in strategies.by_schedule(table.workload):
        used[here] = _memory(plan, known, rows[here], table.workload)
    return used


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
    often = plan.schedule.at_once
    return static_size(workload, plan, memory) + known.working[rows] * plan.microbatch_size * often


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
    groups = table.groups_of(strategies.plans)
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
            plan = replace(strategies.one(i, table.workload), spilled=spilled)
            row = table.add((*key, spilled), plan, block)
        rows.append(row)
    return np.array(rows, dtype=np.int64)[back]


def _block_plan(strategies: Strategies, number: int, groups: Ints, table: BlockTable) -> MeshPlan:
    """Return the plan that a strategy's block is solved with: of the least data parallelism.

    Whose stages all hold a layer, if there is one: passes through others are many.
    """
    data, use = column(strategies.plans, "data"), strategies.use[number]
    whole = data * strategies.microbatch_size[number]
    same = (groups == groups[use]) & (table.workload.global_batch_size % whole == 0)
    empty = column(strategies.plans, "pipeline") > table.workload.graph_repetitions
    most = data.max() + 1
    fewest = int(np.argmin(np.where(same, data + most * empty, 2 * most)))
    return strategies.one(number, table.workload, strategies.plans[fewest])


def mapping_of(strategies: Strategies, number: int, table: BlockTable) -> Mapping | None:
    """Return the mapping of one strategy whose block is known; None where it has none."""
    plan = strategies.plans[strategies.use[number]]
    size = int(strategies.microbatch_size[number])
    block = table.solved[table.group(plan), size, int(strategies.recompute[number])]
    return None if block is None else with_strategy(block.mapping, strategies, number, table)


def with_strategy(
    mapping: Mapping, strategies: Strategies, number: int, table: BlockTable
) -> Mapping:
    """Return the kernels of a mapping under one of some strategies."""
    return replace(mapping, **decided(strategies.one(number, table.workload, whole=True)))
