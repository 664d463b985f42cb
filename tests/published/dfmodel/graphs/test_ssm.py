from __future__ import annotations

import math

import pytest

from crosstack.errors import InputError
from crosstack.published.dfmodel.graphs.ssm import Scan, hyena, mamba
from crosstack.workload.ssm_graph import Convolution


def n_edges(workload) -> int:
    return sum(len(tensor.consumers) for tensor in workload.graph.tensors)


def kernels(workload):
    return {kernel.name: kernel for kernel in workload.graph.kernels}


def test_a_mamba_block():
    block = mamba(hidden=64, sequence_length=128)
    assert (len(block.graph), n_edges(block)) == (16, 18)
    # in (x and z), out: 3 x 64 x 128; to the rank of 4 and back; to 2 x 16 states
    assert block.graph.total_weight_size / 2 == 3 * 64 * 128 + 2 * 4 * 128 + 128 * 32


@pytest.mark.parametrize(("scan", "operations"), [(Scan.SERIAL, 2), (Scan.PARALLEL, 6)])
def test_a_scan_works_on_every_state_of_every_channel(scan, operations):
    block = mamba(hidden=64, sequence_length=128, state_size=8, scan=scan)
    assert kernels(block)["Scan"].work == operations * (2 * 64) * 8 * 128


def test_the_scan_grows_with_the_sequence_and_attention_would_with_its_square():
    short, long = (mamba(hidden=64, sequence_length=n).graph.total_work for n in (128, 256))
    assert long == 2 * short


@pytest.mark.parametrize(
    ("convolution", "n_kernels", "edges"),
    [
        (Convolution.FFT_GEMM, 23, 24),
        (Convolution.FFT_VECTOR, 19, 20),
        (Convolution.SCAN, 17, 18),
    ],
)
def test_a_hyena_operator(convolution, n_kernels, edges):
    operator = hyena(hidden=64, sequence_length=128, convolution=convolution)
    assert (len(operator.graph), n_edges(operator)) == (n_kernels, edges)
    assert operator.graph.total_weight_size / 2 == 4 * 64 * 64


def test_transforms_as_products_cost_eight_operations_a_complex_one():
    operator = hyena(hidden=64, sequence_length=128)
    # 256 points are 16 x 16: each step multiplies 16 x 16 by 16 x 16 complex numbers a channel
    assert kernels(operator)["FFT_1_rows"].work == 64 * 8 * 16**3
    assert kernels(operator)["FFT_1_rows"].output_size == 64 * 2 * 256 * 2


def test_transforms_in_the_lanes_cost_five_n_log_n():
    operator = hyena(hidden=64, sequence_length=128, convolution=Convolution.FFT_VECTOR)
    assert kernels(operator)["FFT_1"].work == 64 * 5 * 256 * math.log2(256)


@pytest.mark.parametrize("make", [mamba, hyena])
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"hidden": 0}, "hidden: got 0"),
        ({"state_size": 0}, "state_size: got 0"),
        ({"filter_size": 129}, "filter_size: got 129; allowed: at most the sequence of 128"),
        ({"n_layers": 0}, "n_layers: got 0"),
    ],
)
def test_what_makes_no_sense_is_refused(make, changes, says):
    with pytest.raises(InputError, match=says):
        make(**{"hidden": 64, "sequence_length": 128, **changes})
