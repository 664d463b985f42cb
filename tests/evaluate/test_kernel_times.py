from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstack.chip.hierarchy import ChipHierarchy, Compute, MemoryLevel, Scope
from crosstack.errors import InputError
from crosstack.evaluate.kernel_times import CompulsoryTimes

CHIP = ChipHierarchy(
    compute=Compute(n_units=4, n_bundles=2, work_per_cycle=256, frequency=1e9, utilization=0.5),
    levels=(MemoryLevel(name="DRAM", scope=Scope.CHIP, capacity=1e9, bandwidth=1e11),),
    launch_overhead=1e-6,
)
TIMES = CompulsoryTimes(CHIP)
extents = st.integers(1, 4096)


def test_a_large_product_is_bound_by_compute():
    assert TIMES.product(4096, 4096, 4096) == pytest.approx(2 * 4096**3 / 512e9 + 1e-6)


def test_a_product_by_a_vector_is_bound_by_memory():
    size = (4096**2 + 2 * 4096) * 2
    assert TIMES.product(4096, 4096, 1) == pytest.approx(size / 1e11 + 1e-6)


def test_nothing_takes_nothing_but_a_launch():
    assert TIMES.elementwise(0, 0) == 0.0


@given(extents, extents, extents)
def test_a_larger_product_is_never_faster(m, k, n):
    assert TIMES.product(m, k, n) <= TIMES.product(m + 1, k, n)
    assert TIMES.product(m, k, n) <= TIMES.product(m, k + 1, n)


@pytest.mark.parametrize(
    "dead",
    [
        {"compute": replace(CHIP.compute, n_units=0)},
        {"levels": (replace(CHIP.levels[0], bandwidth=0.0),)},
    ],
)
def test_a_chip_that_cannot_run_is_refused(dead):
    with pytest.raises(InputError, match="chip"):
        CompulsoryTimes(replace(CHIP, **dead))
