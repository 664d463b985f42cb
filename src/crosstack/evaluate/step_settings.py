"""What a training step is run with, beside its model, its strategy and its machine."""

from __future__ import annotations

from dataclasses import dataclass

from crosstack.records import Checked
from crosstack.workload.optimizer import Optimizer


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSettings(Checked):
    """Settings of the optimizer, and whether a step has to fit the memory of a chip.

    ``optimizer`` is what updates the weights, in place of what the step says; None: that, or what
    keeps as much as the rules count. Weights and gradients come on top of its state.

    Raises `InputError` where a number is out of range.
    """

    optimizer: Optimizer | None = None
    enforces_capacity: bool = True
