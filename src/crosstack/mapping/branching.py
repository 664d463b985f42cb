"""Choices of a search node: which another one beats, where to branch, and first whole shardings.

Rules may choose shardings by something else before time (`Decisions.first_costs`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from crosstack.machine.chip import Chip
from crosstack.mapping.incumbent import PROOF
from crosstack.mapping.paid_layouts import least_with_layouts
from crosstack.mapping.pricing import Domains
from crosstack.mapping.sharding import dominated, eliminate
from crosstack.model.choices import Choices
from crosstack.model.decisions import Decisions
from crosstack.workload.kernel_graph import Floats, Ints

# Of compute and memory beside the network, in sums that first shardings are the best for.
REST_WEIGHTS = (1e-6, 0.3, 1.0, 3.0, 10.0)


@dataclass(slots=True)
class FirstCosts:
    """Which shardings within ``domains`` have the least of the costs that come before time.

    ``least`` is known once it was asked for.
    """

    decisions: Decisions
    domains: Domains
    least: float | None = None
    known: dict[object, Domains] = field(default_factory=dict)

    @property
    def decide(self) -> bool:
        """Whether anything comes before time."""
        return bool(self.decisions.before_time)

    def allows(self, domains: Domains, choices: Choices) -> bool:
        """Whether some sharding within ``domains`` has the least."""
        if not self.decide:
            return True
        node, edge = self.decisions.first_costs(choices)
        if self.least is None:
            self.least = eliminate(self.domains, node, choices.index, edge).bound
        return eliminate(domains, node, choices.index, edge).bound <= self.least * (1 + PROOF)

    def kept(self, domains: Domains, choices: Choices) -> Domains:
        """Keep the choices that some sharding of the least within ``domains`` makes."""
        # Most numbers of tiles have the same costs.
        node, edge = self.decisions.first_costs(choices)
        key = domains, node.tobytes(), edge.tobytes()
        if key not in self.known:
            found = eliminate(domains, node, choices.index, edge)
            limit, best = found.bound * (1 + PROOF), found.best()

            def reached(i: int, code: int) -> bool:
                within = (*domains[:i], (code,), *domains[i + 1 :])
                return eliminate(within, node, choices.index, edge).bound <= limit

            self.known[key] = tuple(
                tuple(code for code in domain if code == best[i] or reached(i, code))
                if len(domain) > 1
                else domain
                for i, domain in enumerate(domains)
            )
        return self.known[key]


def tightened(
    domains: Domains, choices: Choices, chip: Chip, first: FirstCosts, *, waits: bool, hidden: float
) -> Domains:
    """Drop choices that another of the same kernel beats in all respects.

    ``waits``: whether it counts what gradients of weights that are computed later wait with;
    ``hidden``: what of tokens on their way other passes may hide. [1]
    """
    size: tuple[Ints | Floats, ...] = (choices.m, choices.k, choices.columns)
    if chip.compute.utilization is not None:
        size = (choices.work,)
    terms = [
        *size, choices.output_tile, choices.output_total, choices.weight, choices.cache,
        choices.entering, choices.leaving, choices.kept, choices.again,
        choices.network_time, choices.data_time,
    ]  # fmt: skip
    if waits:
        terms.append(choices.waiting)
    if hidden:
        sent = choices.exchange_time
        terms += [sent, choices.network_time - hidden * sent]
    if choices.clocked is not None:
        terms += choices.clocked.columns()
    edge_terms = choices.conversions.by_what_others_need()
    if first.decide:
        cost, edge_cost = first.decisions.first_costs(choices)
        terms.append(cost)
        edge_terms.append(edge_cost)
    columns, edges = [t.astype(float) for t in terms], np.stack(edge_terms, axis=1)
    return tuple(tuple(d) for d in dominated(domains, columns, choices.index, edges))


def branches(domains: Domains, choices: Choices, chip: Chip, kernel: int = -1) -> Iterator[Domains]:
    """Yield the domains for every choice of a kernel: -1: of the one whose choices differ most."""
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
    open_ = kernel >= 0 and len(domains[kernel]) > 1
    i = kernel if open_ else int(np.argmax(scores))
    for code in domains[i]:
        yield (*domains[:i], (code,), *domains[i + 1 :])


def keeps_most(choices: Choices, domains: Domains | None, codes: Ints, *, waits: bool) -> int:
    """Return the kernel whose choice keeps most beyond the least it may; -1: all keep that.

    ``waits``: with what gradients of weights that are computed later wait with.
    """
    sizes = choices.kept + choices.waiting * waits
    more = sizes[codes] - choices.index.least(sizes, choices.index.inside(domains or ()))
    return int(more.argmax()) if (more > 0).any() else -1


def first_shardings(
    domains: Domains, choices: Choices, chip: Chip, first: FirstCosts, rate: float
) -> list[Ints]:
    """Return whole shardings: the best for a few weighted sums of their terms.

    ``rate`` is that at which a chip works. [FLOP/s]
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
