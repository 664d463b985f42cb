"""Claims about a calibrated machine: what each factor changes, and what it leaves."""

from __future__ import annotations

from dataclasses import replace

import pytest

import crosstack
from crosstack.errors import InputError
from crosstack.io import library
from crosstack.machine.calibration import AS_SAID, FACTORS, Calibration
from crosstack.model.kernels.clock import product_time
from crosstack.model.kernels.roofline import Roofline
from crosstack.workload.dtype import Dtype

SYSTEM = crosstack.system("a100-dgx-80gb", chips=16, framework="megatron")
SIDES = 8192, 8192, 8192


def work_time(chip, clock=None):
    return float(product_time(clock or Roofline(), chip, *SIDES).work_time)


@pytest.mark.parametrize("chip", ["a100-sxm-80gb", "h100-sxm", "mi300x"])  # last: no known clocks
def test_products_take_as_much_longer_and_the_peak_stays(chip):
    as_it_is = library.chip(chip)
    slower = Calibration(products=0.8).chip(as_it_is)
    for clock in (Roofline(), Roofline(sustained=False)):
        found = product_time(clock, as_it_is, *SIDES)
        waiting = float(found.waiting_time)
        longer = waiting + (float(found.work_time) - waiting) / 0.8
        most = longer * (1 + 1e-12)  # other tiles may be better now
        assert 0.99 * longer < work_time(slower, clock) <= most
    assert slower.rate(Dtype.BF16) == as_it_is.rate(Dtype.BF16)


def test_a_chip_that_lays_kernels_out_has_another_clock():
    chip = library.chip("sn40l")
    assert Calibration(products=0.8).chip(chip) == chip.with_compute(
        frequency=0.8 * chip.compute.frequency
    )


def test_every_other_factor_is_of_one_field():
    made = Calibration(memory=0.5, links=0.6, ports=0.7, launch=2.0, dispatch=3.0).applied(SYSTEM)
    chip, of = made.chip, SYSTEM.chip
    assert chip.main_memory.bandwidth == 0.5 * of.main_memory.bandwidth
    assert chip.launch_overhead == 2.0 * of.launch_overhead
    assert chip.framework == replace(of.framework, dispatch=3.0 * of.framework.dispatch)
    assert chip.compute == of.compute
    inner, outer = made.network
    assert inner.bandwidth == 0.6 * SYSTEM.network[0].bandwidth
    assert outer.bandwidth == 0.7 * SYSTEM.network[1].bandwidth


def test_where_launches_are_replayed_no_host_is_slower():
    replayed = SYSTEM.driven_by(replace(SYSTEM.chip.framework, dispatch=None))
    assert Calibration(dispatch=3.0).applied(replayed) == replayed


def test_nothing_measured_changes_nothing():
    assert AS_SAID.applied(SYSTEM) == SYSTEM
    assert AS_SAID.said == {}


def test_a_machine_says_that_it_is_calibrated():
    made = Calibration(products=0.9, rows=1200, table="t").applied(SYSTEM)
    assert made.name == "2 x a100-dgx-80gb, calibrated on 1,200 rows"


@pytest.mark.parametrize("name", FACTORS)
def test_a_factor_out_of_its_range_is_refused(name):
    least, most, _ = FACTORS[name]
    for value in (least * 0.99, most * 1.01):
        with pytest.raises(InputError, match=f"{name}: got .*; allowed: {least:g} to {most:g}"):
            Calibration(**{name: value})
    for value in (least, most):
        assert getattr(Calibration(**{name: value}), name) == value
