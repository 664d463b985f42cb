"""What the blocks before the first layer, and behind the last one, take of a chip."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EndCost:
    """What the blocks before the first layer, or behind the last one, take of a chip.

    For one sequence: ``time``, of which ``forward`` is the forward pass, and ``compute``,
    ``memory`` and ``tensor``, for which units, main memory and links are busy, these for tokens on
    their way to experts and back ``expert``, of which ``expert_forward`` forward, for keys and
    values ``context`` of which ``waited`` is waited for [s];
    ``on_chip`` [J] of its memories. ``summed`` are gradients that are summed over the data-parallel
    chips once an iteration [B]. ``weights``, ``gradients``, ``optimizer_state`` (of which
    data-parallel chips may each hold a share, see `MeshPlan.sharers`), ``caches`` and
    ``buffers`` are there whatever runs; ``kept`` of each sequence in flight; ``live`` of each that
    runs, at most. ``expert_summed``, ``expert_weights``, ``expert_gradients`` and
    ``expert_state`` are what of these are of routed experts that fewer chips share. [B]
    """

    time: float = 0.0
    forward: float = 0.0
    compute: float = 0.0
    memory: float = 0.0
    tensor: float = 0.0
    expert: float = 0.0
    context: float = 0.0
    waited: float = 0.0
    expert_forward: float = 0.0
    on_chip: float = 0.0
    summed: float = 0.0
    weights: float = 0.0
    gradients: float = 0.0
    optimizer_state: float = 0.0
    expert_summed: float = 0.0
    expert_weights: float = 0.0
    expert_gradients: float = 0.0
    expert_state: float = 0.0
    caches: float = 0.0
    buffers: float = 0.0
    kept: float = 0.0
    live: float = 0.0

    @property
    def resident(self) -> float:
        """Bytes that are there whatever runs. [B]"""
        state = self.weights + self.gradients + self.optimizer_state
        return state + self.caches + self.buffers


NO_END = EndCost()
