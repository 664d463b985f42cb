"""Where the time of a step goes adds up to it; MFU and HFU are FLOP that are counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crosstack import Job, model, optimise, system
from crosstack.evaluate.evaluation import PartitionTerms
from crosstack.evaluate.step_account import (
    Spent,
    bound_times,
    exposed_times,
    saved_at_peak,
)
from crosstack.io.native import read_task, write_task
from crosstack.machine.chip import Overlap
from crosstack.mapping.degrees import Degrees
from crosstack.mapping.mapping import Constraints
from crosstack.model.schedule.layer import KernelRun
from crosstack.published.dfmodel.graphs.hpl import hpl
from crosstack.workload.transformer_training import Recompute, Schedule

BATCH, SEQUENCE = 16, 512


def mapped(chips=8, **given):
    job = Job(model=model("llama-68m"), batch=BATCH, sequence=SEQUENCE)
    constraints = Constraints(**given)
    return optimise(job, system("h100-dgx", chips=chips), constraints=constraints, work_limit=1e3)


@pytest.fixture(scope="module")
def data_parallel():
    degrees = Degrees(tensor=1, pipeline=1, data=8)
    return mapped(degrees=degrees, recompute=Recompute.NONE)


def a_partition(network=0.0, **terms):
    """A partition of one kernel that computes 3 s and moves memory for 5 s, and what is given."""
    return PartitionTerms(
        number=0, kernels=("k",), bound_by="memory", memory_traffic=0.0, sram_used=0.0,
        sram_capacity=0.0, memory_used=0.0, cores_used=None, compute_time=3.0, memory_time=5.0,
        network_time=network, **terms,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("overlap", "time", "memory", "network"),
    [
        (Overlap.NONE, 12.0, 5.0, 4.0),  # one after the other
        (Overlap.COMPUTE_MEMORY, 9.0, 2.0, 4.0),  # memory is waited for beyond the 3 s of work
        (Overlap.ALL, 5.0, 2.0, 0.0),  # the collective hides behind memory
    ],
)
def test_what_hides_takes_no_time(overlap, time, memory, network):
    found = dict(exposed_times(a_partition(time=time, network=4.0), overlap))
    assert (found[Spent.COMPUTE], found[Spent.MEMORY]) == (3.0, memory)
    assert found[Spent.NETWORK] == network
    assert sum(found.values()) == time


def test_what_runs_again_is_recomputation_with_its_launch_and_its_memory():
    run = KernelRun(name="k", compute=3.0, memory=5.0, reduction=1.0)
    partition = a_partition(time=13.0, launch_time=1.0, kernel_runs=(run, replace(run, again=True)))
    found = dict(exposed_times(partition, Overlap.COMPUTE_MEMORY))
    assert found[Spent.COMPUTE] == 4.0
    assert found[Spent.MEMORY] == 2.0  # 5 s beside 3 s of work; the sum comes after
    assert found[Spent.LAUNCH] == 0.5
    assert found[Spent.RECOMPUTATION] == 4.0 + 2.0 + 0.5
    assert sum(found.values()) == pytest.approx(13.0)


@pytest.mark.parametrize(
    ("overlap", "time", "bound"),
    [
        (Overlap.NONE, 12.0, {Spent.MEMORY: 8.0, Spent.NETWORK: 4.0}),
        (Overlap.COMPUTE_MEMORY, 9.0, {Spent.MEMORY: 5.0, Spent.NETWORK: 4.0}),
        (Overlap.ALL, 5.0, {Spent.MEMORY: 5.0}),
    ],
)
def test_a_kernel_is_bound_by_the_longer_of_its_work_and_its_memory(overlap, time, bound):
    found = dict(bound_times(a_partition(time=time, network=4.0), overlap))
    assert {name: took for name, took in found.items() if took} == bound


def test_a_collective_that_outlasts_all_else_bounds_what_hides_behind_it():
    found = dict(bound_times(a_partition(time=7.0, network=7.0), Overlap.ALL))
    assert found == {Spent.NETWORK: 7.0}


@pytest.mark.parametrize(
    "given",
    [
        {"degrees": Degrees(tensor=2, pipeline=2, data=2)},
        {"degrees": Degrees(tensor=8, pipeline=1, data=1), "recompute": Recompute.FULL},
        {"degrees": Degrees(tensor=1, pipeline=2, data=4), "schedule": Schedule.GPIPE},
        {"degrees": Degrees(tensor=2, pipeline=2, data=2), "schedule": Schedule.ZB_H1},
    ],
    ids=str,
)
def test_where_the_time_goes_adds_up_to_the_step(given):
    answer = mapped(**given)
    account = answer.step_account()
    spent = dict(account.spent)
    assert sum(spent.values()) == pytest.approx(answer.evaluation.time, rel=1e-9)
    assert sum(time for _, time in account.bound) == pytest.approx(answer.evaluation.time)
    assert min(spent.values()) >= 0
    assert 0 < account.at_peak <= spent[Spent.COMPUTE]
    assert (spent[Spent.RECOMPUTATION] > 0) == (answer.mapping.recompute is not Recompute.NONE)


@pytest.mark.parametrize(
    ("overlap", "saved"),
    [
        (Overlap.NONE, 4.0 + 1.0 - 0.5),
        (Overlap.COMPUTE_MEMORY, 5.0 - 3.0),  # 3 s of memory are left
        (Overlap.ALL, 1.0),  # so are 4 s of a collective
    ],
)
def test_work_at_the_peak_waits_for_what_it_hid(overlap, saved):
    run = KernelRun(name="k", compute=4.0, memory=3.0, reduction=1.0)
    partition = a_partition(time=5.0, network=4.0, kernel_runs=(run, replace(run, again=True)))
    assert saved_at_peak(partition, {"k": 0.5}, overlap) == pytest.approx(saved)


def test_kernels_that_run_together_wait_for_memory_together():
    partition = a_partition(time=9.0, network=4.0)
    assert saved_at_peak(partition, {"k": 0.5}, Overlap.NONE) == 2.5
    assert saved_at_peak(partition, {"k": 0.5}, Overlap.COMPUTE_MEMORY) == 0.0


def test_a_workload_that_brings_its_distribution_has_an_account():
    answer = optimise(hpl(size=4096, block=128), system("h100-dgx"), work_limit=1e3)
    spent = dict(answer.step_account().spent)
    assert sum(spent.values()) == pytest.approx(answer.evaluation.time)


def test_what_saves_most_changes_first(data_parallel):
    account = data_parallel.step_account()
    above_peak = dict(account.spent)[Spent.COMPUTE] - account.at_peak
    name, saved = account.first
    assert saved == max(saved for _, saved in account.savings)
    assert 0 < dict(account.savings)[Spent.COMPUTE] < above_peak  # memory is waited for instead
    assert saved < account.time
    assert name in Spent


def test_model_flop_utilization_is_that_of_palm(data_parallel):
    """6 N + 12 L H Q T operations a token of ``chowdhery2022palm``, appendix B, in products."""
    found = data_parallel.evaluation
    peak = data_parallel.task.system.chip.rate("bf16") * 8
    assert found.utilization == pytest.approx(found.work / found.time / peak)
    layers, hidden, inner, vocabulary = 2, 768, 3072, 32000  # Llama 68M
    weights = layers * (4 * hidden * hidden + 3 * hidden * inner) + hidden * vocabulary
    tokens = BATCH * SEQUENCE
    by_hand = tokens * (6 * weights + 12 * layers * hidden * SEQUENCE)
    assert found.work == pytest.approx(by_hand, rel=0.01)  # elementwise operations count one


def test_hardware_utilization_leaves_out_what_a_mask_does(data_parallel):
    """Of 12 L H Q T operations of scores about half are executed: those before their row.

    As many as a sixth of those are executed once more in the backward pass of a fused attention.
    """
    found, layers, hidden = data_parallel.evaluation, 2, 768
    tokens = BATCH * SEQUENCE
    skipped = tokens * 12 * layers * hidden * (SEQUENCE - 1) / 2
    again = tokens * 2 * layers * hidden * (SEQUENCE + 1) / 2
    assert found.work - found.executed_work == pytest.approx(skipped - again, rel=0.02)
    ratio = found.hardware_utilization / found.utilization
    assert ratio == pytest.approx(found.executed_work / found.work)


def test_hardware_utilization_counts_what_runs_again(data_parallel):
    """Full recomputation runs the forward pass of the layers once more: a third on top of them."""
    once = data_parallel.evaluation
    again = mapped(degrees=Degrees(tensor=1, pipeline=1, data=8), recompute=Recompute.FULL)
    layers, hidden, inner = 2, 768, 3072
    tokens = BATCH * SEQUENCE
    forward = tokens * layers * (
        2 * (4 * hidden * hidden + 3 * hidden * inner) + 4 * hidden * (SEQUENCE + 1) / 2
    )  # fmt: skip
    more = again.evaluation.executed_work - once.executed_work
    assert more == pytest.approx(forward, rel=0.01)
    assert again.evaluation.work == once.work


def test_chips_that_split_a_sequence_execute_it_together(data_parallel):
    shared = mapped(degrees=Degrees(tensor=4, pipeline=2, data=1), recompute=Recompute.NONE)
    executed = shared.evaluation.executed_work
    assert executed == pytest.approx(data_parallel.evaluation.executed_work, rel=0.01)


def test_a_price_of_electricity_is_kept_and_bills_the_energy(data_parallel):
    task = data_parallel.task
    prices = replace(task.system.prices, electricity=0.08 / 3.6e6)
    billed = replace(task, system=replace(task.system, prices=prices))
    assert read_task(write_task(billed), "task").system.prices == prices
    run = replace(data_parallel, task=billed).whole_run(1e9)
    assert run.electricity == pytest.approx(run.energy / 3.6e6 * 0.08)
    assert run.price == pytest.approx(data_parallel.whole_run(1e9).price)
    assert data_parallel.whole_run(1e9).electricity is None
