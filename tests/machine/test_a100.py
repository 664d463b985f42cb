"""Claims about the A100 that is described by hand: the totals of its data sheet."""

import pytest

from crosstack.errors import InputError
from crosstack.machine.a100 import a100_pcie_80gb, a100_sxm_80gb
from crosstack.machine.named_chips import NAMED_CHIPS
from crosstack.workload.dtype import Dtype


@pytest.mark.parametrize(
    ("dtype", "rate"), [(Dtype.INT8, 624e12), (Dtype.BF16, 312e12), (Dtype.TF32, 156e12)]
)
def test_the_peak_is_that_of_the_data_sheet(dtype, rate):
    chip = a100_pcie_80gb()
    compute = chip.compute
    assert chip.rate(dtype) == chip.throughput(dtype) == pytest.approx(rate, rel=1e-3)
    of_arrays = 2 * compute.rows * compute.columns * compute.elements_deep(dtype)
    assert chip.rate(dtype) == of_arrays * compute.n_units * compute.frequency


def test_capacities_are_those_of_the_data_sheet():
    registers, shared, l2, memory = a100_pcie_80gb().storage
    assert registers.capacity == 27648 * 1024
    assert shared.capacity == 108 * 164 * 1024
    assert (l2.capacity, l2.partitions) == (40 * 2**20, 2)
    assert (memory.capacity, memory.bandwidth) == (80e9, pytest.approx(0.9 * 1.935e12))


def test_a_slower_clock_slows_all_but_main_memory():
    fast, slow = a100_pcie_80gb(), a100_pcie_80gb(frequency=0.705e9)
    for before, after in zip(fast.levels, slow.levels, strict=True):
        assert after.bandwidth == pytest.approx(before.bandwidth / 2)
        assert after.latency == pytest.approx(2 * before.latency)
    assert slow.main_memory.bandwidth == fast.main_memory.bandwidth
    assert fast.main_memory.latency < slow.main_memory.latency < 2 * fast.main_memory.latency


@pytest.mark.parametrize(
    "bad", [{"frequency": 0.0}, {"frequency": -1e9}, {"launch_overhead": -1.0}]
)
def test_what_no_a100_is_is_refused(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        a100_pcie_80gb(**bad)


@pytest.mark.parametrize("name", NAMED_CHIPS)
def test_a_chip_by_name_takes_clock_and_launch(name):
    chip = NAMED_CHIPS[name](frequency=1e9, launch_overhead=0.0)
    assert (chip.compute.frequency, chip.launch_overhead) == (1e9, 0.0)


def test_the_module_has_the_memory_and_links_of_its_data_sheet():
    chip = a100_sxm_80gb()
    assert chip.main_memory.bandwidth == pytest.approx(0.9 * 2.039e12)
    assert chip.intra.bandwidth == 300e9  # 600 GB/s both ways
    assert chip.inter.bandwidth == 200e9 / 8
    assert chip.compute == a100_pcie_80gb().compute
