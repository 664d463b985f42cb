"""The chip record."""

from __future__ import annotations

from crosstack.chip.chip import Chip, Overlap

__all__ = ["Chip", "Overlap"]
