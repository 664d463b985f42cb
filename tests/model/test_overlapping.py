"""Collectives of kernels beside the kernels: by hand, and never slower."""

from __future__ import annotations

from functools import cache

import pytest

import crosstack
from crosstack import Constraints
from crosstack.io import library
from crosstack.machine.chip import Overlap
from crosstack.mapping.mapping import Task
from crosstack.model.overlapping import as_overlapping
from crosstack.workload.transformer_training import Hidden

JOB = crosstack.Job(model=library.model("llama3.2-1b"), batch=8, sequence=512)
NODE = crosstack.system("h100-dgx", framework="megatron")
BESIDES = (Hidden.GRADIENTS, Hidden.WEIGHTS, Hidden.SENDS)


@cache
def step(overlap):
    found = crosstack.predict(JOB, NODE, "tp=8", overlap=overlap)
    return found.plan


def test_chips_that_run_kernels_one_by_one_hide_collectives_where_that_is_said():
    hidden = as_overlapping(NODE, tuple(Hidden))
    assert NODE.chip.overlap is Overlap.COMPUTE_MEMORY
    assert hidden.chip.overlap is Overlap.ALL
    assert as_overlapping(NODE, BESIDES) is NODE
    assert as_overlapping(NODE, None) is NODE
    spatial = crosstack.system("sn40l-node")
    assert as_overlapping(spatial, tuple(Hidden)) is spatial


def test_a_partition_takes_the_longer_of_its_kernels_and_their_messages():
    plan = step(tuple(Hidden))
    named = [each for each in plan.evaluation.partitions if each.network_time > 0]
    assert named
    for each in named:
        device = max(each.compute_time, each.memory_time)
        assert each.time >= max(device, each.network_time) * (1 - 1e-12)
        assert each.time < device + each.network_time + each.launch_time
    for each in step(BESIDES).evaluation.partitions:
        assert each.time >= each.network_time + max(each.compute_time, each.memory_time) * (
            1 - 1e-9
        )


def test_what_is_hidden_is_never_slower_and_saves_no_more_than_all_messages():
    waits, hides = step(BESIDES).evaluation, step(tuple(Hidden)).evaluation
    assert hides.time < waits.time
    network = sum(each.network_time for each in waits.partitions)
    assert waits.layer_time - hides.layer_time <= network


def test_a_mapping_that_is_evaluated_again_hides_what_it_says():
    plan = step(tuple(Hidden))
    task = Task(workload=plan.task.workload, system=NODE, constraints=Constraints())
    again = crosstack.evaluate(task, plan.mapping)
    assert again.time == pytest.approx(plan.evaluation.time, rel=1e-12)
