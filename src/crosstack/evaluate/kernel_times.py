"""Kernel times of a chip for whole steps: what compute and main memory at least take."""

from __future__ import annotations

from dataclasses import dataclass

from crosstack.chip.hierarchy import ChipHierarchy
from crosstack.errors import InputError, Problem

__all__ = ["CompulsoryTimes"]


@dataclass(frozen=True, slots=True)
class CompulsoryTimes:
    """Times of a chip that reads every operand and writes every output once.

    A roofline of two roofs (``williams2009roofline``): the larger of operations over throughput
    and bytes over the bandwidth of main memory, and a launch. No kernel is faster; tiles that do
    not fit on the chip make one slower.

    Raises
    ------
    InputError
        If the chip computes nothing or its main memory has no bandwidth.
    """

    chip: ChipHierarchy

    def __post_init__(self) -> None:
        """Check that anything runs at all."""
        if self.chip.compute.throughput <= 0:
            raise InputError(Problem("chip", f"{self.chip.name} computes nothing."))
        if self.chip.main_memory.bandwidth <= 0:
            message = f"{self.chip.main_memory.name} of {self.chip.name} has no bandwidth."
            raise InputError(Problem("chip", message))

    @property
    def word(self) -> float:
        """Bytes of an element. [B]"""
        return self.chip.word

    @property
    def launch_overhead(self) -> float:
        """Of one kernel. [s]"""
        return self.chip.launch_overhead

    def product(self, m: float, k: float, n: float) -> float:
        """``2 M K N`` operations on ``M K + K N + M N`` words, and a launch. [s]"""
        traffic = (m * k + k * n + m * n) * self.word
        return self.elementwise(2.0 * m * k * n, traffic) + self.launch_overhead

    def elementwise(self, work: float, traffic: float) -> float:
        """``work`` [FLOP] on ``traffic`` bytes of main memory. [s]"""
        memory = self.chip.main_memory
        moved = traffic / memory.bandwidth + memory.latency if traffic else 0.0
        return max(work / self.chip.compute.throughput, moved)
