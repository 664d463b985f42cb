"""The least time of an iteration of every strategy, from what a layer takes at least."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from crosstack.machine.chip import Overlap
from crosstack.machine.system import System
from crosstack.mapping.strategies import Strategies
from crosstack.model.iteration import least_times
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.rules import Rules
from crosstack.workload.kernel_graph import Floats
from crosstack.workload.workload import Workload

__all__ = ["plan_together", "times_of_layers"]


def plan_together(plan: MeshPlan, layer: Any) -> tuple[MeshPlan, Any]:
    """Return a plan, and the time of a layer by itself, under which an iteration takes the least.

    Of a schedule that pairs passes. Those that run by themselves wait for their tokens: for what
    tokens take at least, and no longer than ``layer``, so that a pair takes ``layer``, wherever in
    it the tokens are (`crosstack.model.schedule.dual.together`).

    Parameters
    ----------
    layer : float or array
        What a layer takes at least without what a pair hides of it. [s]
    """
    alone = np.minimum(plan.tokens[0], layer)
    plan = replace(plan, tokens=(plan.tokens[0], alone), tokens_forward=plan.forward)
    return plan, layer + (1 - plan.taken) * alone


def times_of_layers(
    strategies: Strategies,
    layer: Floats,
    workload: Workload,
    system: System,
    rules: Rules,
    summed: Floats | None = None,
    *,
    sent: Floats | None = None,
    together: Floats | None = None,
) -> Floats:
    """Least time of an iteration of every strategy, whose stages are alike. [s]

    Parameters
    ----------
    layer : array, shape (n,)
        Time of a layer of one sequence. [s]
    summed : array, shape (n, 3), optional
        Gradients of a layer that are summed once an iteration, those of routed experts that fewer
        chips sum, and what a sequence leaves on the host; the least if left out. [B]
    sent : array, shape (n,), optional
        What the network takes of a layer at least, the exchange of tokens left out or not, where
        ``layer`` is what computing takes alone: then it comes to that, if nothing hides it. [s]
    together : array, shape (n,), optional
        What a layer takes where passes run together and hide tokens on their way: then ``layer`` is
        of others. [s]
    """
    hides = system.chip.overlap is Overlap.ALL
    time = np.zeros(len(strategies))
    for here, known in strategies.by_schedule(workload):
        plan = known
        if summed is not None:
            names = ("summed", "expert_summed", "left")
            plan = replace(known, **dict(zip(names, summed[here].T, strict=True)))
        own = layer[here]
        if together is not None and plan.schedule.pairs:
            plan, own = plan_together(plan, together[here])
        if sent is not None:
            network = np.maximum(sent[here], plan.tokens[0])
            own = np.maximum(own, sent[here]) if hides else own + network
        time[here] = least_times(plan, own, system.chip.overlap, rules)
    return time
