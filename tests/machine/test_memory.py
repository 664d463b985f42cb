"""Claims about levels of memory: what a kernel that streams from one waits for."""

from __future__ import annotations

import pytest

from crosstack.errors import InputError
from crosstack.io import library
from crosstack.machine.memory import MemoryLevel


@pytest.mark.parametrize(
    ("latency", "ramp", "delay"), [(3e-7, 0.0, 3e-7), (3e-7, 1.7e-6, 1.7e-6), (2e-6, 1e-6, 2e-6)]
)
def test_what_streams_takes_the_ramp_and_no_less_than_the_first_byte(latency, ramp, delay):
    assert MemoryLevel(name="HBM", latency=latency, ramp=ramp).delay == delay


def test_a_ramp_is_no_less_than_nothing():
    with pytest.raises(InputError, match="ramp"):
        MemoryLevel(name="HBM", ramp=-1e-6)


def beyond(points):
    """Time of a line through two points (bytes, time) where there are no bytes. [s]"""
    (few, short), (many, long) = points
    return short - few * (long - short) / (many - few)


# Bytes and times of kernels in a graph (gpu_benches, gpu-small-kernels): in the cache, and past it.
A100 = (4.176e6, 2.556e-6), (14.307e6, 5.047e-6), (66.68e6, 41.29e-6), (985.9e6, 565.97e-6)
H200 = (4.176e6, 2.689e-6), (14.307e6, 4.597e-6), (90.72e6, 29.80e-6), (4254.9e6, 1249.6e-6)


@pytest.mark.parametrize(("name", "points"), [("a100-sxm-80gb", A100), ("h200-sxm", H200)])
def test_a_ramp_is_what_kernels_take_more_past_the_cache(name, points):
    measured = beyond(points[2:]) - beyond(points[:2])
    assert library.chip(name).main_memory.ramp == pytest.approx(measured, abs=5e-8)


def test_a_slower_machine_has_a_longer_ramp():
    system = library.system_on("a100-dgx-80gb")
    slow = system.slowed(2.0).chip.main_memory
    assert slow.ramp == 2 * system.chip.main_memory.ramp > 0
