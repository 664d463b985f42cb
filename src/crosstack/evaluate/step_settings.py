"""What a training step is run with, beside its model, its strategy and its machine."""

from __future__ import annotations

from dataclasses import dataclass

from crosstack.errors import require, require_quantity, require_whole

__all__ = ["StepSettings"]

MOST_KERNELS = 1024  # at a time; a GPU runs up to 128 (nvidia_cuda_guide)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSettings:
    """Settings of the optimizer and of the chip that runs a step.

    Parameters
    ----------
    optimizer_bytes : float
        State of the optimizer for each weight; 12 B: a weight and two moments in single precision
        (``rajbhandari2020zero``, section 3.1). Weights and gradients come on top. [B]
    kernels_at_once : int
        Kernels that a chip runs at a time, each as fast as alone (``ardalani2022deepflow``,
        section 5.3, where it is k). [1]
    enforces_capacity : bool
        Whether a model that does not fit the memory of a chip is an error.

    Raises
    ------
    InputError
        Where a number is out of range.

    References
    ----------
    rajbhandari2020zero, ardalani2022deepflow
    """

    optimizer_bytes: float = 12.0
    kernels_at_once: int = 1
    enforces_capacity: bool = True

    def __post_init__(self) -> None:
        """Check the numbers."""
        require_quantity("optimizer_bytes", self.optimizer_bytes, "B")
        require_whole("kernels_at_once", self.kernels_at_once)
        few = self.kernels_at_once <= MOST_KERNELS
        require(few, "kernels_at_once", self.kernels_at_once, f"at most {MOST_KERNELS:,}")
