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
MI210 = library.chip("mi210")
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


def an_element(function, columns, chip, elements=2**26):
    """Time of an element of rows of so many. [s]"""
    row = MeasuredElements(
        function=function, rows=elements // columns, columns=columns, dtype=Dtype.FP16, time=1.0
    )
    return float(elements_said([row], chip)[0]) / elements


def test_long_rows_of_layer_norm_are_read_twice_where_the_cache_keeps_them_not():
    norm, memory = Function.LAYER_NORM, A100.main_memory
    short, kept, long = (an_element(norm, n, A100) for n in (1024, 4096, 16384))
    assert short == kept == pytest.approx(4 / memory.speed, rel=1e-2)
    assert long == pytest.approx(6 / memory.speed, rel=1e-2)
    assert an_element(norm, 4096, MI210) == pytest.approx(6 / MI210.main_memory.speed, rel=1e-2)


def test_a_softmax_that_takes_all_memory_of_a_multiprocessor_computes_or_moves():
    softmax, moved = Function.SOFTMAX, 4 / MI210.main_memory.speed
    short, kept, long = (an_element(softmax, n, MI210) for n in (1024, 4096, 32768))
    assert kept == pytest.approx(short + moved, rel=1e-2)
    assert long == pytest.approx(2 * moved, rel=1e-2)  # three passes that read, one that writes
    alike = [an_element(softmax, n, A100) for n in (1024, 4096, 16384, 32768)]
    assert alike == pytest.approx([alike[0]] * 4, rel=1e-2)  # bound by its lanes
