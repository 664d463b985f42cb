"""What a stage takes beyond its work: weights and gradients of its layers, and its host's launches.

Both are paths, as those of an iteration are (`crosstack.model.iteration`): how often one passes the
work of a stage for a microbatch, and what it takes besides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from crosstack.model.optimizer_step import Path
from crosstack.workload.transformer_training import Hidden

if TYPE_CHECKING:
    from crosstack.model.mesh_plan import MeshPlan

ALONE: tuple[Path, ...] = ((1.0, 0.0),)  # a stage takes as long as its work


def exchange_paths(plan: MeshPlan) -> tuple[Path, ...]:
    """Return how long a stage takes for the work W of a microbatch, by what its layers exchange.

    Of L layers that take F forward, B backward, each is sent its weights before it runs, A in all,
    and leaves its gradients behind, R in all, while others run: as through two machines one after
    the other, ``(A + F) / L + (L - 1) / L max(A, F + x A)`` forward, and backward, with gradients
    and weights on the same links, ``(A + R + B) / L + (L - 1) / L max(A + R, B + x (A + R))``:
    while anything is sent, a share x of the chip works on nothing else. Every piece of a stage
    begins and ends a pass. Where the first layers alone compute something again, n of L, the last
    to run backward take the longest, B' together, and the links may be what is waited for until
    then: ``(L - n + 1) / L (A + R) + B' + x (n - 1) / L (A + R)``. What is not hidden (`Hidden`) is
    waited for by each layer, and is added to all of that. Activations that go to the host and come
    back, O each way, pass its link as a third machine: ``(A + F + O) / L + (L - 1) / L max(A,
    F + x A, O)`` forward, and backward the same with A + R and B.

    Source: zhao2023fsdp (sections 3.3 and 4); rajbhandari2020zero for gradients alone;
    deepseek2024v3 (section 3.5.1) for the units that communication takes;
    rajbhandari2021zeroinfinity (section 6.2) for activations.
    """
    if not (np.any(plan.exchanged) or plan.offloaded.activations):
        return ALONE
    layers, share = plan.layers_per_stage, plan.forward
    one = plan.interleave / np.asarray(layers)  # layers that nothing runs beside
    sizes = plan.summed, plan.expert_summed
    weights = plan.bringing_time(*sizes) * layers
    sums = plan.leaving_time(*sizes) * layers
    ahead, beside = plan.hides(Hidden.WEIGHTS), plan.hides(Hidden.GRADIENTS)
    slowed = one + plan.taken * (1 - one)
    left = plan.offloaded.moving_time(plan.left * plan.microbatch_size * layers)

    def through(work: Any, hidden: Any, waited: Any) -> tuple[Path, ...]:
        found = (
            (work, waited + slowed * hidden + one * left),
            (work * one, waited + hidden + one * left),
        )
        if not plan.offloaded.activations:
            return found
        return (*found, (work * one, waited + one * hidden + left))

    forward = through(share, ahead * weights, (not ahead) * weights)
    hidden = ahead * weights + beside * sums
    waited = weights + sums - hidden
    backward = through(1 - share, hidden, waited)
    if np.any(np.less(plan.again, 1)):
        plain, again = 1 - share - plan.rerun, plan.again
        slow = 1 - again + one + plan.taken * (again - one)
        each = plan.rerun / np.where(np.equal(again, 0), np.inf, again)  # none where none does
        longest = one * (plain + each), waited + hidden
        backward = backward[0], longest, (again * plain + plan.rerun, waited + slow * hidden)
    return tuple((a + c, b + d) for a, b in forward for c, d in backward)


def stage_paths(plan: MeshPlan) -> tuple[Path, ...]:
    """Return how long a stage takes for the work of a microbatch, by all that it waits for.

    What its layers exchange (`exchange_paths`), and the host that launches its kernels, which works
    ahead: no stage takes less than that.
    """
    paths = exchange_paths(plan)
    if plan.driven is None:
        return paths
    return (*paths, (0.0, plan.host * plan.layers_per_stage))
