"""What of a training lies in the memory of the hosts, and what it takes to bring it and back.

A chip and its host exchange data over a link of their own, each way beside the other, by engines
that take no part of the chip's units.

*Optimizer's state.* With h bytes a second on the link each way, and per weight g bytes of a
gradient, w of the weight and o of the optimizer's state, a chip that updates P weights takes

| where, by ``m`` B/s of memory there | before | update | behind |
|---|---|---|---|
| on the host | out, ``g P / h`` | ``(g + 2 o + w) P / m`` | in, ``w P / h`` |
| on the chip | in, ``o P / h`` | ``(g + 2 o + w) P / m`` | out, ``o P / h`` |

All gradients are known before (their norm scales them); they follow one another in as many buckets
as a stage has layers L, through three machines one behind the other: ``(a + b + c) / L +
(L - 1) / L max(a, b, c)``. The host's processors are taken to update at the speed of its memory.

*Activations.* What a layer keeps leaves for the host while the next one runs forward, and comes
back before it runs backward (`crosstack.model.stage_paths`); a chip has that of the layer which
runs, and of the one on its way.

Sources: ren2021zerooffload (section 4: gradients to the host, weights back, beside the update),
rajbhandari2021zeroinfinity (sections 5 and 6), nvidia_optimizer_offload (gradients out, update and
weights in at the same time), nvidia_activation_offload.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from crosstack.machine.host import HostShare
from crosstack.machine.system import System
from crosstack.model.rules import Rules
from crosstack.workload.transformer_training import Offload
from crosstack.workload.workload import Workload

UNDER_WAY = 3  # buckets of the state on a chip that updates: one comes, one is updated, one goes
RUNNING = 2  # layers whose activations a chip has: of the one that runs, and of one on its way


@dataclass(frozen=True, slots=True, kw_only=True)
class Offloading:
    """What of a training is on the ``host``, and what its update takes.

    ``steps`` are what a byte of the gradients of a chip takes: out, in the update, and in, in the
    order in which buckets pass them. [s/B]
    """

    kinds: tuple[Offload, ...] = ()
    host: HostShare | None = None
    steps: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @property
    def state(self) -> bool:
        """Whether the optimizer's state is on the host."""
        return Offload.OPTIMIZER in self.kinds or Offload.STATE in self.kinds

    @property
    def gradients(self) -> bool:
        """Whether a copy of the gradients is, too: the host updates."""
        return Offload.OPTIMIZER in self.kinds

    @property
    def activations(self) -> bool:
        """Whether activations of layers are on the host."""
        return Offload.ACTIVATIONS in self.kinds

    @property
    def capacity(self) -> float:
        """A chip's share of the memory of its host. [B]"""
        return 0.0 if self.host is None else self.host.capacity

    def update(self, on_chip: Any, layers: Any) -> Any:
        """Time that the update takes for each byte of gradients, in buckets of ``layers``. [s/B]

        ``on_chip`` is that of the chip with all of the state. [s/B]
        """
        if not self.state:
            return on_chip
        return sum(self.steps) / layers + max(self.steps) * (1 - 1 / layers)

    def state_kept(self, layers: Any) -> Any:
        """Share of the optimizer's state that a chip has room for. [1]"""
        if not self.state:
            return 1.0
        return 0.0 if self.gradients else np.minimum(UNDER_WAY / np.asarray(layers), 1.0)

    @property
    def moved(self) -> float:
        """Bytes that the link moves, both ways, for each byte of gradients that is updated. [1]"""
        if not self.state or self.host is None:
            return 0.0
        return (self.steps[0] + self.steps[2]) * self.host.bandwidth

    @property
    def link_power(self) -> float:
        """What the link draws for each byte a second. [W/(B/s)]"""
        return 0.0 if self.host is None else self.host.link_power

    def moving_time(self, size: Any) -> Any:
        """Time that activations of so many bytes take, one way. [s]"""
        return 0.0 if not self.activations or self.host is None else size / self.host.bandwidth


NOT_OFFLOADED = Offloading()


def offloading(
    workload: Workload,
    system: System,
    rules: Rules,
    kinds: tuple[Offload, ...],
    *,
    element: float,
    word: float,
    update: float,
) -> Offloading:
    """Return what is on the host of every chip of a system.

    Parameters
    ----------
    kinds : tuple of Offload
        What is on the host, where the system says what chips have of it.
    element, word : float
        Bytes of an element of gradients that are summed, and of a weight. [B]
    update : float
        What the update of a byte of gradients takes on the chip. [s/B]
    """
    host = system.host
    if not kinds or host is None:
        return NOT_OFFLOADED
    trained, each = rules.memory.as_trained(workload), 1 / element / host.bandwidth
    steps = trained.optimizer_bytes * each, update, trained.optimizer_bytes * each
    if Offload.OPTIMIZER in kinds and host.memory_bandwidth is not None:
        there = trained.update_traffic(word) / element / host.memory_bandwidth
        steps = trained.gradient_bytes * each, there, word * each
    return Offloading(kinds=kinds, host=host, steps=steps)
