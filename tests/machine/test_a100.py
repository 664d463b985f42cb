"""Claims about the A100 of the library: the totals of its data sheet."""

from dataclasses import replace

import pytest

from crosstack.errors import InputError
from crosstack.io import library
from crosstack.model.kernels.clock import product_time
from crosstack.model.kernels.roofline import Roofline
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
    own = chip.compute
    assert own == replace(other, sustained=own.sustained, starting=own.starting)
    assert other.sustained < own.sustained < own.boost  # of less power


def test_work_of_modules_starts_at_their_default_applications_clocks():
    for name, clock in (("a100-sxm-80gb", 1.275e9), ("a100-sxm-40gb", 1.095e9)):
        compute = library.chip(name).compute
        assert compute.starting * compute.frequency == pytest.approx(clock)
    assert library.chip("a100-pcie-80gb").compute.starting is None  # not known


def test_products_take_as_much_longer_before_the_clock_rises():
    # simllm_a100: 1.10 to 1.11 times as long at 1.275 as at 1.41 GHz where compute bounds them
    chip = library.chip("a100-sxm-80gb")
    risen = chip.with_compute(starting=None)
    short = Roofline(sustained=False)
    for m, k, n in ((1024, 8192, 8192), (256, 8192, 8192), (512, 1024, 2048)):
        first, then = (product_time(short, each, m, k, n).work_time for each in (chip, risen))
        assert first / then == pytest.approx(1.106, abs=0.02)
