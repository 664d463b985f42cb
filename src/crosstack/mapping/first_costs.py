"""What shardings are chosen by before time, where rules say so (`Decisions.first_costs`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from crosstack.mapping.incumbent import PROOF
from crosstack.mapping.sharding import eliminate
from crosstack.model.choices import Choices
from crosstack.model.decisions import Decisions

__all__ = ["Domains", "FirstCosts"]

Domains = tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class FirstCosts:
    """Which shardings have the least of the costs that come before time.

    ``domains`` are the choices that are given; ``least`` is known once it was asked for.
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
