"""Choices of a search node: which another one beats, where to branch, and first whole shardings."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from crosstack.machine.chip import Chip
from crosstack.mapping.first_costs import Domains, FirstCosts
from crosstack.mapping.paid_layouts import least_with_layouts
from crosstack.mapping.sharding import dominated, eliminate
from crosstack.model.choices import Choices
from crosstack.workload.kernel_graph import Floats, Ints

__all__ = ["branches", "first_shardings", "tightened"]

# Of compute and memory beside the network, in sums that first shardings are the best for.
REST_WEIGHTS = (1e-6, 0.3, 1.0, 3.0, 10.0)


def tightened(domains: Domains, choices: Choices, chip: Chip, first: FirstCosts) -> Domains:
    """Drop choices that another of the same kernel beats in all respects.

    Parameters
    ----------
    domains : tuple of tuples of int
        Choices left to each kernel.
    chip : Chip
        Whether kernels take shares of its peak, or cycles by their extents.
    first : FirstCosts
        What comes before time.
    """
    size: tuple[Ints | Floats, ...] = (choices.m, choices.k, choices.columns)
    if chip.compute.utilization is not None:
        size = (choices.work,)
    terms = [
        *size, choices.output_tile, choices.output_total, choices.weight, choices.cache,
        choices.entering, choices.leaving, choices.kept, choices.again,
        choices.network_time, choices.data_time,
    ]  # fmt: skip
    if choices.clocked is not None:
        terms += choices.clocked.columns()
    edge_terms = choices.conversions.by_what_others_need()
    if first.decide:
        cost, edge_cost = first.decisions.first_costs(choices)
        terms.append(cost)
        edge_terms.append(edge_cost)
    columns, edges = [t.astype(float) for t in terms], np.stack(edge_terms, axis=1)
    return tuple(tuple(d) for d in dominated(domains, columns, choices.index, edges))


def branches(domains: Domains, choices: Choices, chip: Chip) -> Iterator[Domains]:
    """Yield the domains for every choice of the kernel whose choices differ most."""
    moved = choices.output_total + choices.entering + choices.leaving
    weight = choices.network_time + moved / chip.main_memory.speed
    edge = choices.index.most(choices.conversions.edge_time)
    spread = np.zeros(len(domains))
    np.add.at(spread, choices.index.source, edge)
    np.add.at(spread, choices.index.target, edge)
    scores = [
        float(np.ptp(weight[list(d)])) + 1e-3 * float(spread[i]) + 1e-15 if len(d) > 1 else -1.0
        for i, d in enumerate(domains)
    ]
    i = int(np.argmax(scores))
    for code in domains[i]:
        yield (*domains[:i], (code,), *domains[i + 1 :])


def first_shardings(
    domains: Domains, choices: Choices, chip: Chip, first: FirstCosts, rate: float
) -> list[Ints]:
    """Return whole shardings: the best for a few weighted sums of their terms.

    Parameters
    ----------
    domains : tuple of tuples of int
        Choices left to each kernel.
    first : FirstCosts
        What comes before time.
    rate : float
        At which a chip works. [FLOP/s]
    """
    moved = choices.output_total + choices.entering + choices.leaving
    rest = choices.work / rate + moved / chip.main_memory.speed
    rest = rest if choices.clocked is None else choices.clocked.least
    found: dict[bytes, Ints] = {}
    for weight in REST_WEIGHTS[:1] if first.decide else REST_WEIGHTS:
        nodes = choices.network_time + weight * rest
        if first.decide and first.least:
            scale = 1e6 * (float(choices.network_time.max()) + 1e-9) / first.least
            cost, edge_cost = first.decisions.first_costs(choices)
            edges = choices.conversions.edge_time + scale * edge_cost
            least = eliminate(domains, nodes + scale * cost, choices.index, edges)
        else:
            least = least_with_layouts(choices, domains, nodes)
        codes = least.best()
        found.setdefault(codes.tobytes(), codes)
    return list(found.values())
