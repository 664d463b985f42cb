"""What the exchange of tokens takes of a layer: from their chips to those of experts, and back."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from crosstack.model.memory import computed_again
from crosstack.workload.kernel_graph import KernelGraph
from crosstack.workload.transformer_training import Recompute

if TYPE_CHECKING:
    from crosstack.model.choices import Choices
    from crosstack.model.mesh_plan import MeshPlan
    from crosstack.workload.kernel_graph import Ints

RECOMPUTED = tuple(Recompute)


@lru_cache(maxsize=64)
def _exchanges(graph: KernelGraph) -> tuple[tuple[float, bool, tuple[int, ...]], ...]:
    """Return of each exchange its bytes, whether it is forward, and how often, by recomputation."""
    again = [computed_again(graph, kind) for kind in RECOMPUTED]
    return tuple(
        (
            float(graph.output_size[i] / graph.output_element[i] * graph.sent_element[i]),
            not graph.backward[i],
            tuple(1 + int(twice[i]) for twice in again),
        )
        for i in np.flatnonzero(graph.exchanged).tolist()
    )


def with_tokens(plan: MeshPlan, graph: KernelGraph, recompute: Any, /, **changes: Any) -> MeshPlan:
    """Return a plan with what the exchange of tokens takes, whatever the sharding.

    Parameters
    ----------
    plan : MeshPlan
        One, or arrays of many.
    recompute : int or array
        What each computes again, by its place among all kinds. [1]
    **changes
        Of other fields, which tokens do not depend on.
    """
    most: Any = 0.0
    least: Any = 0.0
    forward: Any = 0.0
    for size, there, often in _exchanges(graph):
        together = np.asarray(plan.microbatch_size)
        times = np.array(often)[recompute]
        whole = plan.exchange.time(size, together=together)
        part = plan.exchange.time(size / plan.tensor, together=together)
        if plan.cut_over is not None:  # among all groups that cut experts, or those of data alone
            exchange = plan.cut_over.exchange
            whole = np.maximum(whole, exchange.time(size, together=together))
            part = np.minimum(part, exchange.time(size / plan.tensor, together=together))
        most = most + times * whole
        least = least + times * part
        forward = forward + there * whole
    share = np.divide(forward, most, out=np.full(np.shape(most), 0.5), where=np.asarray(most) > 0)
    return replace(plan, tokens=(least, most), tokens_forward=share, **changes)


def without_hidden(choices: Choices, plan: MeshPlan) -> Choices:
    """Return choices whose network leaves out what passes that run together hide of tokens.

    Those take the share of the units alone that communicates (`crosstack.model.schedule.dual`).
    """
    hidden = (1 - plan.taken) * choices.exchange_time
    return replace(choices, network_time=choices.network_time - hidden)


def tokens_of(plan: MeshPlan, graph: KernelGraph, choices: Choices, codes: Ints) -> MeshPlan:
    """Return a plan with what the exchange of tokens takes under one sharding."""
    taken = choices.exchange_time[codes]
    whole = float(taken.sum())
    once = taken / (1 + computed_again(graph, plan.recompute))
    share = float(once[~graph.backward].sum()) / whole if whole else 0.5
    return replace(plan, tokens=(whole, whole), tokens_forward=share)
