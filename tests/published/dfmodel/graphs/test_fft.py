from __future__ import annotations

import pytest

from crosstack.errors import InputError
from crosstack.published.dfmodel.graphs.fft import fft
from crosstack.workload.kernels import Collective, Placement


@pytest.mark.parametrize(
    ("length", "radix", "word", "side", "depth", "work"),
    [
        # FFT/DSE/system/h100/3d_torus_hbm_nvlink, FFT/Compare_w_existing/FP32/1024
        (2**40, 32, 2, 1048576, 512, 2251799813685248.0),
        (1073740000000, 2, 4, 1036214, 159, 682898292614256.0),
    ],
)
def test_the_published_transforms(length, radix, word, side, depth, work):
    workload = fft(length=length, radix=radix, word=word)
    assert [(k.m, k.k, k.n) for k in workload.graph.kernels] == [(side, depth, side)] * 2
    assert workload.work == work
    assert workload.data_size == length * word


def test_the_second_step_transposes():
    first, second = fft(length=64, word=4).graph.kernels
    assert first.communications == ()
    (transpose,) = second.communications
    assert (transpose.collective, transpose.size) == (Collective.ALL_TO_ALL, 64 * 4)


def test_no_weight_is_held():
    workload = fft(length=64)
    assert workload.graph.total_weight_size == 0
    assert workload.placement is Placement.COLUMNS
    assert [len(t.consumers) for t in workload.graph.tensors] == [1]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"length": 100, "radix": 1}, "radix: got 1; allowed: a whole number, at least 2"),
        ({"length": 100, "radix": 11}, "radix: got 11; allowed: 2 to 10"),
        ({"length": 3}, "length: got 3"),
        ({"length": 100, "word": 0}, "word: got 0"),
    ],
)
def test_what_makes_no_sense_is_refused(values, says):
    with pytest.raises(InputError, match=says):
        fft(**values)
