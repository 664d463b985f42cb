"""Claims about scores of training runs: predicted as they ran, refused with the reason."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from builders.small_models import GPT

import crosstack
from crosstack.evaluate.run_scores import (
    ONE_MFU,
    MeasuredRun,
    are_computed,
    said_of,
    score_runs,
    some_of,
    time_as_mapped,
)
from crosstack.machine.calibration import Calibration
from crosstack.workload.dtype import Dtype
from crosstack.workload.transformer_training import Hidden


@pytest.fixture(scope="module")
def a_run():
    system = crosstack.system("a100-dgx-80gb", chips=2)
    job = crosstack.Job(model=GPT, batch=2, sequence=16)

    def make(given="tp=1,dp=2,zero=0", **changes):
        kept = {"name": given, "source": "own", "job": job, "system": system, "time": 1.0}
        return MeasuredRun(given=given, **(kept | changes))

    return make


def test_a_run_is_predicted_as_it_ran(a_run):
    run = a_run()
    assert said_of(run).time == crosstack.predict(run.job, run.system, run.given).time
    waited = said_of(a_run(overlap=(Hidden.SENDS,))).time
    assert waited == crosstack.predict(run.job, run.system, run.given, overlap=("sends",)).time
    assert waited > said_of(run).time


def test_a_run_on_another_machine_takes_no_less_as_it_was_mapped_than_as_it_is_mapped_there(a_run):
    run = a_run()
    said = said_of(run)
    assert time_as_mapped(run, said) == pytest.approx(said.time, rel=1e-12)
    slow = run.under(Calibration(memory=0.5, links=0.7))
    assert time_as_mapped(slow, said) >= said_of(slow).time * (1 - 1e-12)
    assert time_as_mapped(slow, said) > said.time


def test_the_plainest_estimate_takes_the_work_at_one_share_of_the_peak(a_run):
    run = a_run()
    work = crosstack.predict(run.job, run.system, run.given).plan.evaluation.work
    assert said_of(run).plain == pytest.approx(
        work / (ONE_MFU * 2 * run.system.chip.rate(Dtype.BF16))
    )


def test_what_cannot_run_is_refused_and_the_others_are_scored(a_run):
    told = []
    exact = a_run(time=said_of(a_run()).time)
    found = score_runs([exact, a_run(), a_run("tp=3")], told.append)
    assert told == [exact.name, exact.name, "tp=3"]
    assert [said.run.name for said in found.said] == [exact.name] * 2
    assert found.ours.mean == pytest.approx(-math.log(exact.time) / 2)
    ((run, why),) = found.refused
    assert run.given == "tp=3"
    assert "tp=3" in why or "3" in why


def test_there_is_no_score_where_all_are_refused(a_run):
    found = score_runs([a_run("tp=3")])
    assert found.ours is found.plain is None


def test_some_are_spread_over_all():
    runs = list(range(10))
    assert some_of(runs, 20) == runs
    assert some_of(runs, 4) == [0, 3, 6, 9]


def of_batches(make, times):
    """Runs that are alike but for their batch, with a step for each. [s]"""
    jobs = {batch: crosstack.Job(model=GPT, batch=batch, sequence=16) for batch in times}
    return [make(job=jobs[batch], time=time) for batch, time in times.items()]


@pytest.mark.parametrize(
    ("times", "computed"),
    [
        ({2: 0.3, 4: 0.5, 8: 0.9}, True),
        ({2: 0.3, 4: 0.5, 8: 0.9001}, False),  # as clocks are
        ({2: 0.3, 4: 0.5}, False),  # two are always on a line
    ],
)
def test_steps_that_are_sums_of_equal_microbatches_were_computed(a_run, times, computed):
    assert are_computed(of_batches(a_run, times)) is computed


def test_one_group_that_was_measured_is_enough(a_run):
    sums = of_batches(a_run, {2: 0.3, 4: 0.5, 8: 0.9})
    measured = of_batches(a_run, {2: 0.2, 4: 0.36, 8: 0.71})
    other = [replace(run, given="tp=2,dp=1") for run in measured]
    assert not are_computed(sums + other)
