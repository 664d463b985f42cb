"""Order ideals at which stages may begin and end, of graphs with too many to try all.

Those of a few topological orders, and those in which kernels that nobody reads run as soon as they
can; of a long graph, the borders between good partitions for one chip.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from crosstack.mapping.budget import Budget
from crosstack.mapping.fusion import LONG_GRAPH
from crosstack.mapping.ideals import (
    IdealTables,
    Order,
    TableCache,
    chain,
    enumerate_ideals,
    graph_shape,
    make_order,
    make_tables,
    topological_chains,
)
from crosstack.mapping.segments import segment
from crosstack.mapping.stage_times import on_one_chip
from crosstack.workload.kernel_graph import bits

if TYPE_CHECKING:
    from crosstack.mapping.pipeline import StageProblem

__all__ = ["few_ideals"]

MOST_CELLS = 12_000_000  # of one table over pairs of ideals: about 100 MB
SPARE = 6  # tables of reals over ideals and tensors held at once, for each of two sequences


def few_ideals(problem: StageProblem, cache: TableCache, budget: Budget) -> IdealTables:
    """Ideals of a few topological orders, and those in which kernels nobody reads run at once.

    Of a long graph, the borders between the partitions of good sequences for one chip.
    """
    load, order = problem.load, problem.fusion.order
    if load.n > LONG_GRAPH:
        return make_tables(_cut_ideals(problem, budget), load.n, load.flows)
    key = ("stages", graph_shape(load, order))
    if key not in cache:
        most = math.isqrt(MOST_CELLS)
        ideals = set(_eager_ideals(order, most // 2) or ())
        for sequence in topological_chains(order):
            if not ideals or len(ideals) + load.n + 1 <= most:
                ideals.update(chain(sequence))
        cache[key] = make_tables(list(ideals), load.n, load.flows)
    tables: IdealTables = cache[key]
    return tables


def _cut_ideals(problem: StageProblem, budget: Budget) -> list[int]:
    load, order = problem.load, problem.fusion.order
    most = max(MOST_CELLS // (SPARE * max(load.n, len(load.flows))), 2)
    ideals = {0, load.everything}
    for sequence in dict.fromkeys(map(tuple, topological_chains(order)[-2:])):
        borders = chain(sequence)
        if not problem.one_by_one and problem.fusion.slots is None:
            found, _ = segment(on_one_chip(load), sequence, budget=budget)
            borders = borders if found is None else list(itertools.accumulate(found[1]))
        ideals.update(borders[:: -(-len(borders) // most)])
    return list(ideals)


def _eager_ideals(order: Order, most: int) -> list[int] | None:
    """Ideals in which kernels that nobody reads run as soon as they can, or None if too many."""
    kept = [i for i in range(order.n) if order.succs[i]]
    number = {kernel: k for k, kernel in enumerate(kept)}
    preds = tuple(sum(1 << number[j] for j in bits(order.preds[i])) for i in kept)
    small = enumerate_ideals(make_order(preds), most=most)
    if small is None:
        return None
    grown = {0}
    for ideal in small:
        mask = sum(1 << kept[k] for k in bits(ideal))
        ready = [i for i in range(order.n) if i not in number and not order.preds[i] & ~mask]
        grown.add(mask | sum(1 << i for i in ready))
    return list(grown)
