"""Chips as they overlap what is said of a training.

Collectives of kernels are part of their kernels, of which a chip hides the network or does not:
said to be hidden, they are as on a chip that overlaps all, and what nothing hides is the longer of
a kernel and its messages. The units that they take are not counted where copy engines bring pieces.
"""

from __future__ import annotations

from dataclasses import replace

from crosstack.machine.chip import Execution, Overlap
from crosstack.machine.system import System
from crosstack.workload.transformer_training import Hidden


def as_overlapping(system: System, overlap: tuple[Hidden, ...] | None) -> System:
    """Return a system whose temporal chips hide collectives of kernels, if that is said."""
    chip = system.chip
    hides = overlap is not None and Hidden.COLLECTIVES in overlap
    if not hides or chip.execution is Execution.SPATIAL or chip.overlap is Overlap.ALL:
        return system
    return replace(system, chip=replace(chip, overlap=Overlap.ALL))
