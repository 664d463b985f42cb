"""Claims about the slowest of chips that wait for one another."""

from __future__ import annotations

from statistics import NormalDist

import pytest

import crosstack
from crosstack import Job
from crosstack.evaluate.predicted import predict_job
from crosstack.evaluate.step_account import Spent, step_account
from crosstack.evaluate.step_settings import StepSettings
from crosstack.machine.node import part_of
from crosstack.machine.slowest import SPREAD, slowest_share
from crosstack.model.kernels.throttle import reached_share


@pytest.mark.parametrize(("n", "mean"), [(8, 1.4236), (64, 2.3437), (512, 3.0439)])
def test_more_chips_wait_for_a_slower_one(n, mean):
    # Means of the largest of n numbers that are normally distributed, by numeric integration.
    assert 1 / slowest_share(n) == pytest.approx(1 + SPREAD * mean, abs=5e-4)


def test_one_chip_waits_for_none():
    assert slowest_share(1) == 1.0


def test_eight_percent_lie_from_whisker_to_whisker():
    quartile = NormalDist(0.0, SPREAD).inv_cdf(0.75)
    assert 2 * quartile + 2 * 1.5 * 2 * quartile == pytest.approx(0.08)


def test_chips_that_a_framework_drives_wait_for_the_slowest():
    free = crosstack.system("a100-dgx-80gb", chips=64)
    held = crosstack.system("a100-dgx-80gb", chips=64, framework="megatron")
    compute = held.chip.compute
    assert compute.slowest == slowest_share(64) < free.chip.compute.slowest == 1.0
    assert reached_share(compute) == pytest.approx(compute.sustained * slowest_share(64))
    assert reached_share(compute, sustained=False) == compute.starting  # what is not at the limit
    assert held.driven_by(None) == free
    assert part_of(held, 8).chip.compute.slowest == slowest_share(8)


def test_long_products_take_as_much_longer():
    def compute(chips):
        system = crosstack.system("a100-dgx-80gb", chips=chips, framework="megatron")
        job = Job(model=crosstack.model("gpt3-175b"), batch=chips // 8, sequence=2048)
        given = f"tp=8,pp=1,dp={chips // 8},microbatch=1,recompute=none,zero=0"
        settings = StepSettings(enforces_capacity=False)
        found = predict_job(job, system, given, settings=settings)
        return dict(step_account(found.plan).spent)[Spent.COMPUTE]

    ratio = slowest_share(8) / slowest_share(512)
    assert compute(512) / compute(8) == pytest.approx(ratio, rel=0.01)
