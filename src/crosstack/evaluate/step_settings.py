"""What a training step is run with, beside its model, its strategy and its machine."""

from __future__ import annotations

from dataclasses import dataclass

from crosstack.errors import require_quantity

__all__ = ["StepSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSettings:
    """Settings of the optimizer, and whether a step has to fit.

    Parameters
    ----------
    optimizer_bytes : float
        State of the optimizer for each weight; 12 B: a weight and two moments in single precision
        (``rajbhandari2020zero``, section 3.1). Weights and gradients come on top. [B]
    enforces_capacity : bool
        Whether a model that does not fit the memory of a chip is an error.

    Raises
    ------
    InputError
        Where a number is out of range.

    References
    ----------
    rajbhandari2020zero
    """

    optimizer_bytes: float = 12.0
    enforces_capacity: bool = True

    def __post_init__(self) -> None:
        """Check the numbers."""
        require_quantity("optimizer_bytes", self.optimizer_bytes, "B")
