"""Claims about the A100 of the library: the totals of its data sheet."""

from dataclasses import replace

import pytest

from crosstack.errors import InputError
from crosstack.io import library
from crosstack.workload.dtype import Dtype


@pytest.mark.parametrize(
    ("dtype", "rate"), [(Dtype.INT8, 624e12), (Dtype.BF16, 312e12), (Dtype.TF32, 156e12)]
)
def test_the_peak_is_that_of_the_data_sheet(dtype, rate):
    chip = library.chip("a100-pcie-80gb")
    compute = chip.compute
    assert chip.rate(dtype) == chip.throughput(dtype) == pytest.approx(rate, rel=1e-3)
    of_arrays = 2 * compute.rows * compute.columns * compute.elements_deep(dtype)
    assert chip.rate(dtype) == of_arrays * compute.n_units * compute.frequency


def test_capacities_are_those_of_the_data_sheet():
    registers, shared, l2, memory = library.chip("a100-pcie-80gb").storage
    assert registers.capacity == 27648 * 1024
    assert shared.capacity == 108 * 164 * 1024
    assert (l2.capacity, l2.partitions) == (40 * 2**20, 2)
    assert (memory.capacity, memory.bandwidth) == (80 * 2**30, pytest.approx(0.863 * 1.935e12))


def test_a_slower_clock_slows_all_but_main_memory():
    fast, slow = library.chip("a100-pcie-80gb"), library.chip("a100-pcie-80gb", frequency=0.705e9)
    for before, after in zip(fast.levels, slow.levels, strict=True):
        assert after.bandwidth == pytest.approx(before.bandwidth / 2)
        assert after.latency == pytest.approx(2 * before.latency)
    assert slow.main_memory.bandwidth == fast.main_memory.bandwidth
    assert fast.main_memory.latency < slow.main_memory.latency < 2 * fast.main_memory.latency


@pytest.mark.parametrize("clock", [0.0, -1e9])
def test_a_clock_of_nothing_is_refused(clock):
    with pytest.raises(InputError, match="frequency"):
        library.chip("a100-pcie-80gb", frequency=clock)


def test_the_module_has_the_memory_and_links_of_its_data_sheet():
    chip = library.node("a100-dgx-80gb").chip
    assert chip.main_memory.bandwidth == pytest.approx(0.863 * 2.039e12)
    assert chip.intra.bandwidth == 300e9  # 600 GB/s both ways
    assert chip.inter.bandwidth == 200e9 / 8
    other = library.chip("a100-pcie-80gb").compute
    assert chip.compute == replace(other, sustained=chip.compute.sustained)
    assert other.sustained < chip.compute.sustained < chip.compute.boost  # of less power
