"""Plans of workloads that bring their own distribution over the chips.

See `crosstack.workload.graph.Placement`. All chips of the network work together; what is left of
the plan is what a byte of the kernels' own communication costs. High-bandwidth domains are not
looked at: the dimensions of the network say what is near.
"""

from __future__ import annotations

import math
from typing import assert_never

from crosstack.errors import require
from crosstack.machine.system import Dimension, Parallelism, System
from crosstack.model.collectives import broadcast_time, slowest_cut
from crosstack.model.lines import (
    Group,
    Line,
    latency_charged,
    line_over,
    tensor_collectives,
)
from crosstack.model.parts import ExchangeRule
from crosstack.model.plan import Plan, make_plan
from crosstack.model.rules import Rules
from crosstack.workload.graph import Collective, Placement, Workload

__all__ = ["placed_use", "plan_of"]


def placed_use(placement: Placement) -> Parallelism | None:
    """What all dimensions of the network split; None where that is searched."""
    match placement:
        case Placement.SEARCHED:
            return None
        case Placement.BATCH:
            return Parallelism.DATA
        case Placement.GRID | Placement.COLUMNS:
            return Parallelism.TENSOR
        case _:
            assert_never(placement)


def plan_of(
    workload: Workload,
    system: System,
    sizes: tuple[int, ...],
    parallelism: tuple[Parallelism, ...],
    microbatch_size: int,
    rules: Rules,
) -> Plan | None:
    """Return the plan of any workload, or None if the batch does not divide into microbatches.

    Parameters
    ----------
    sizes, parallelism : tuple
        Of every network dimension, innermost first.
    microbatch_size : int
        Sequences a chip works on at a time. [1]
    """
    if workload.placement is Placement.SEARCHED:
        require(system.copies == 1, "system.copies", system.copies, "1; use data parallelism")
        return make_plan(workload, system, sizes, parallelism, microbatch_size, rules)
    n_chips = math.prod(sizes)
    data = n_chips if placed_use(workload.placement) is Parallelism.DATA else 1
    if workload.global_batch_size % (data * microbatch_size):
        return None
    rows, columns = n_chips // sizes[-1], sizes[-1]
    if len(sizes) == 1:
        rows, columns = 1, n_chips
    group = list(zip(system.network, sizes, strict=True))
    collectives = tensor_collectives(group, rules)
    exchange = _exchange(group, workload.placement, collectives[Collective.ALL_TO_ALL], rules)
    collectives[Collective.ALL_TO_ALL] = exchange
    gradients = Line()
    match workload.placement:
        case Placement.BATCH:
            split = 1, 1, 1
            gradients = collectives[Collective.ALL_REDUCE]
            if rules.collectives.gradient_bandwidth:
                rate = (
                    rules.collectives.ring_all_reduce_halves / rules.collectives.gradient_bandwidth
                )
                gradients = Line(per_byte=rate if n_chips > 1 else 0.0)
        case Placement.GRID:
            split = rows, columns, 1
            collectives |= _grid(group, rows, columns, rules)
        case Placement.COLUMNS:
            split = 1, 1, n_chips
        case _:
            assert_never(workload.placement)
    return Plan(
        sizes=sizes,
        parallelism=parallelism,
        microbatch_size=microbatch_size,
        tensor=1,
        pipeline=1,
        data=data,
        n_microbatches=workload.global_batch_size // (data * microbatch_size),
        layers_per_stage=workload.graph_repetitions,
        collectives=collectives,
        periodic=gradients,
        stage_transfer=Line(),
        transfers_per_iteration=0.0,
        split=split,
        copies=system.copies,
    )


def _exchange(group: Group, placement: Placement, counted: Line, rules: Rules) -> Line:
    """All-to-all of all chips, as a line over `Communication.size`.

    A pair of n chips exchanges 1/n^2 of a whole tensor, 1/n of what one chip takes part with.
    """
    n_chips = math.prod(size for _, size in group)
    each = placement is Placement.BATCH
    match rules.collectives.exchange:
        case ExchangeRule.DIMENSIONS:
            share = n_chips if each else 1
            return Line(fixed=counted.fixed, per_byte=counted.per_byte * share)
        case ExchangeRule.ONE_WAY:
            ring_links, all_pairs = 1, False
        case ExchangeRule.ALL_PAIRS:
            ring_links, all_pairs = 2, True
        case ExchangeRule.TWO_WAY:
            ring_links, all_pairs = 2, False
        case _:
            assert_never(rules.collectives.exchange)
    pair = slowest_cut(
        [d.kind for d, _ in group],
        [size for _, size in group],
        [d.bandwidth for d, _ in group],
        ring_links=ring_links,
        all_pairs=all_pairs,
    )
    return Line(per_byte=pair / (n_chips if each else n_chips**2))


def _grid(group: Group, rows: int, columns: int, rules: Rules) -> dict[Collective, Line]:
    """Panel broadcast and row exchange of a grid of chips, as lines over the whole panel.

    Each of ``rows`` rows broadcasts its share of the panel among the chips of its row; each of
    ``columns`` columns sends its share of the rows to a neighbour in its column. Sources:
    ``dongarra2003linpack``, ``dfmodel_code``.
    """
    if rules.collectives.grid_by_place:
        second = group[min(1, len(group) - 1)][0].bandwidth
        spread = 1 / rows / second if rows > 1 else 0.0
        send = 1 / columns / group[0][0].bandwidth if columns > 1 else 0.0
        return {
            Collective.BROADCAST: Line(per_byte=spread),
            Collective.POINT_TO_POINT: Line(per_byte=send),
        }
    latency = latency_charged(rules, kernel=False)
    panel = line_over(group[-1:], _spread, latency, shrinks=False)
    send_line = Line()
    others = [d for d, size in group[:-1] if size > 1]
    if others:
        send_line = Line(
            fixed=max(latency(d) for d in others),
            per_byte=1 / columns / min(d.bandwidth for d in others),
        )
    return {
        Collective.BROADCAST: Line(fixed=panel.fixed, per_byte=panel.per_byte / rows),
        Collective.POINT_TO_POINT: send_line,
    }


def _spread(dimension: Dimension, size: int, held: float, latency: float) -> float:
    return float(
        broadcast_time(
            dimension.kind, held, n_chips=size, bandwidth=dimension.bandwidth, latency=latency
        )
    )
