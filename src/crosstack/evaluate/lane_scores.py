"""Kernels of elements and rows as they were measured, beside what is said of them.

See `crosstack.evaluate.scores` of errors. Such kernels are timed from the host, one call at a time:
the host's part, to launch one and to wait for it, is of the host, and no data sheet says it. Here
it is what the shortest kernel of a set takes beyond what is said of the kernel itself: calibrated
on that row, which is not scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crosstack.evaluate.scores import plain_time
from crosstack.machine.chip import Chip
from crosstack.model.kernels.lanes import function_time
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import Function
from crosstack.workload.kernel_graph import Floats


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
    found = [function_time(chip, row.function, row.elements, row.moved) for row in rows]
    return np.array(found)


def elements_roofline(rows: Sequence[MeasuredElements], chip: Chip) -> Floats:
    """Return what a plain roofline says of kernels, which only move what they read and make. [s]"""
    return np.array([plain_time(chip, row.dtype, 0.0, row.moved) for row in rows])
