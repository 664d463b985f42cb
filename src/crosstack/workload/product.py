"""One matrix product."""

from __future__ import annotations

from dataclasses import dataclass

from crosstack.errors import require_whole

__all__ = ["Product", "product_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """An M x K by K x N product. [1]"""

    m: int
    k: int
    n: int

    def __post_init__(self) -> None:
        """Check every extent."""
        for axis in ("m", "k", "n"):
            require_whole(axis, getattr(self, axis))

    @property
    def name(self) -> str:
        """For people."""
        return f"GEMM {self.m} x {self.k} x {self.n}"


def product_of(step: object) -> Product | None:
    """Return a step that is a single product, None for everything else."""
    return step if isinstance(step, Product) else None
