"""Kernels of elements and rows as they were measured, beside what is said of them.

See `crosstack.evaluate.scores` of errors. Such kernels are timed from the host, one call at a time:
the host's part, to launch one and to wait for it, is of the host, and no data sheet says it. Here
it is what the shortest kernel of a set takes beyond what is said of the kernel itself: calibrated
on that row, which is not scored.

Rows are those of PyTorch (``pytorch_row_kernels``): up to `SHORT` elements stay in registers. Of
longer ones a softmax keeps what fits in the memory that a block of threads may have, and passes
over others three times; a layer norm passes over them twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crosstack.evaluate.scores import plain_time
from crosstack.machine.chip import Chip
from crosstack.machine.compute import MathLibrary
from crosstack.machine.memory import Scope
from crosstack.model.kernels.lanes import ONCE, Passes, function_time
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import Function
from crosstack.workload.kernel_graph import Floats

SHORT = 1024  # elements of a row that stay in registers (``pytorch_row_kernels``) [1]
# Passes that read a longer row, and threads that share it (``pytorch_row_kernels``).
LONG = {Function.SOFTMAX: (3, 1024), Function.LAYER_NORM: (2, 256)}  # [1]
THREADS = 2048  # of a multiprocessor (``nvidia_cuda_guide``, ``amd_cdna2_isa``) [1]
# Memory of a multiprocessor that a block of threads has without asking for more
# (``nvidia_cuda_guide``), and all there is on AMD's (``amd_cdna2_whitepaper``); a softmax takes it
# whole, whatever its row needs. [B]
OF_BLOCK = {MathLibrary.CUDA: 48 * 1024, MathLibrary.OCML: 64 * 1024}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredElements:
    """A function of ``rows`` of ``columns`` elements, read and made once, as measured. [1], [s]"""

    function: Function
    rows: int
    columns: int
    dtype: Dtype
    time: float

    @property
    def elements(self) -> float:
        """All of them. [1]"""
        return float(self.rows) * self.columns

    @property
    def moved(self) -> float:
        """Bytes that are read and made. [B]"""
        return 2 * self.elements * self.dtype.size


def elements_said(rows: Sequence[MeasuredElements], chip: Chip) -> Floats:
    """Return what is said of kernels on a chip, without the host's part. [s]"""
    found = [
        function_time(chip, row.function, row.elements, row.moved, _passes(row, chip))
        for row in rows
    ]
    return np.array(found)


def _passes(row: MeasuredElements, chip: Chip) -> Passes:
    """Return how PyTorch's kernel goes over rows. [B]

    While one is passed over once, so are all that are on their way, and those that are passed over
    for the last time are made as well.
    """
    if row.function not in LONG or row.columns <= SHORT:
        return ONCE
    size = row.columns * row.dtype.size
    block = OF_BLOCK[chip.compute.functions]
    if row.function is Function.SOFTMAX and size < block:
        near = [level.room for level in chip.levels if level.scope is Scope.MULTIPROCESSOR]
        room = min(near, default=np.inf) / chip.compute.n_multiprocessors
        return Passes(alone=room < 2 * block)
    reads, threads = LONG[row.function]
    underway = min(row.rows, chip.compute.n_multiprocessors * THREADS // threads)
    return Passes(again=(reads - 1) * row.rows * size, between=underway * size * (1 + 1 / reads))


def elements_roofline(rows: Sequence[MeasuredElements], chip: Chip) -> Floats:
    """Return what a plain roofline says of kernels, which only move what they read and make. [s]"""
    return np.array([plain_time(chip, row.dtype, 0.0, row.moved) for row in rows])
