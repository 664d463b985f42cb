"""Kernels that are timed from the host: the smallest one tells its part, and is not scored."""

from __future__ import annotations

import numpy as np
import pytest

from crosstack.errors import InputError
from crosstack.evaluate.kernel_scores import score_kernels
from crosstack.evaluate.lane_scores import MeasuredElements, elements_said
from crosstack.io import library
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import Function

A100 = library.chip("a100-sxm-80gb")
HOST = 40e-6


def rows(*elements, times=None):
    made = [
        MeasuredElements(function=Function.GELU, rows=1, columns=n, dtype=Dtype.FP16, time=1.0)
        for n in elements
    ]
    said = elements_said(made, A100)
    times = HOST + said if times is None else np.array(times)
    return [
        MeasuredElements(
            function=row.function, rows=1, columns=row.columns, dtype=row.dtype, time=float(time)
        )
        for row, time in zip(made, times, strict=True)
    ]


def test_kernels_with_one_host_are_met_but_for_the_one_that_tells_it():
    score = score_kernels(rows(10**3, 10**6, 10**8), A100)
    assert score.ours.rows == 2
    assert score.ours.mean == pytest.approx(0.0, abs=1e-12)
    assert score.roofline.mean > 0.01


def test_a_slower_long_kernel_is_off_by_as_much():
    good = rows(10**3, 10**8)
    late = [good[0], *rows(10**8, times=[2 * good[1].time])]
    assert score_kernels(late, A100).ours.bias == pytest.approx(-np.log(2))


def test_one_kernel_alone_is_refused():
    with pytest.raises(InputError, match="two or more"):
        score_kernels(rows(10**3), A100)
