"""What a training step is run with, beside its model, its strategy and its machine."""

from __future__ import annotations

from dataclasses import dataclass

from crosstack.records import Bytes, Checked


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSettings(Checked):
    """Settings of the optimizer, and whether a step has to fit the memory of a chip.

    ``optimizer_bytes`` are its state for each weight [B]; 12: a weight and two moments in single
    precision (``rajbhandari2020zero``, section 3.1). Weights and gradients come on top.

    Raises `InputError` where a number is out of range.
    """

    optimizer_bytes: Bytes = 12.0
    enforces_capacity: bool = True
