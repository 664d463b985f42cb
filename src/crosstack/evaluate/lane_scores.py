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

from crosstack.evaluate.scores import ONE_EFFICIENCY, KernelScore, beyond_shortest, kernel_score
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


def elements_said(rows: Sequence[MeasuredElements], chip: Chip) -> Floats:
    """Return what is said of kernels on a chip, without the host's part. [s]"""
    found = [
        function_time(chip, row.function, row.elements, 2 * row.elements * row.dtype.size)
        for row in rows
    ]
    return np.array(found)


def score_elements(rows: Sequence[MeasuredElements], chip: Chip) -> KernelScore:
    """Score kernels of one function that were measured on one chip, the roofline with a host too.

    Raises `InputError` if there are fewer than two.
    """
    moved = np.array([2 * row.elements * row.dtype.size for row in rows])
    plain = moved / (chip.main_memory.bandwidth or 1.0) / ONE_EFFICIENCY
    measured = np.array([row.time for row in rows])
    return kernel_score(*beyond_shortest(measured, elements_said(rows, chip), plain))
