"""Where nothing fits: changes that make it fit, each held to a search or a formula of its own."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from builders.once import once_a_run

import crosstack
from crosstack.explore.fitting import STEP, WayKind, Ways, ways_to_fit
from crosstack.io.library import system_on
from crosstack.io.steps import job_named
from crosstack.mapping.degrees import Degrees, parse_degrees
from crosstack.mapping.mapping import Constraints, Task
from crosstack.workload.transformer_training import Recompute, Schedule

FEW = 1e4  # units of work of a try


def task_of(model: str, node: str, n_chips: int, **given: object) -> Task:
    workload = job_named(model, kind="train", batch=64, sequence=2048).workload
    system = system_on(node, chips=n_chips)
    return Task(workload=workload, system=system, constraints=Constraints(**given))


def ways_of(task: Task) -> Ways:
    with pytest.raises(crosstack.InfeasibleError) as raised:
        crosstack.optimise(task, work_limit=FEW)
    return ways_to_fit(task, raised.value, work_limit=FEW)


@once_a_run
def ways_found(name: str) -> Ways:
    """Of 70 billion parameters on one server, whose weights and state alone are 16 B each.

    Of 8 billion, by a strategy whose activations do not fit.
    """
    if name == "large":
        usual = {"degrees": Degrees(context=1), "schedule": Schedule.ONE_F_ONE_B}
        return ways_of(task_of("llama3-70b", "a100-dgx-40gb", 8, **usual))
    degrees = parse_degrees("tp=8,pp=1,dp=1,cp=1")
    return ways_of(
        task_of(
            "llama3-8b", "a100-dgx-40gb", 8,
            degrees=degrees, recompute=Recompute.NONE, microbatch_size=32,
            schedule=Schedule.ONE_F_ONE_B,
        )
    )  # fmt: skip


@pytest.fixture
def large() -> Ways:
    return ways_found("large")


@pytest.fixture
def given() -> Ways:
    return ways_found("given")


@pytest.fixture(params=[pytest.param("large", marks=pytest.mark.slow), "given"])
def ways(request) -> Ways:
    return ways_found(request.param)


def test_every_way_fits(ways):
    assert ways.found
    for way in ways.found:
        assert way.plan.evaluation.memory_used <= way.plan.evaluation.memory_capacity * (1 + 1e-9)


def test_a_way_is_the_answer_of_the_task_that_it_says(ways):
    way = ways.found[0]
    again = crosstack.optimise(way.change.task, work_limit=FEW)
    assert again.evaluation.time == way.plan.evaluation.time


def test_ways_on_the_same_machine_go_first_by_time_and_then_those_of_least_chip_time(ways):
    own = [way for way in ways.found if way.change.kind.same_machine]
    others = [way for way in ways.found if not way.change.kind.same_machine]
    assert [*own, *others] == list(ways.found)
    assert own == sorted(own, key=lambda way: way.plan.evaluation.time)
    assert others == sorted(others, key=lambda way: way.chip_time)


@pytest.mark.slow
def test_weights_and_state_bound_what_a_larger_memory_must_hold(large):
    state = 16 * 70.5e9 / 8  # 2 B of weights, 2 of gradients, 12 of optimizer state; of 8 chips
    (least,) = [way for way in large.found if way.change.kind is WayKind.MEMORY]
    assert state < least.plan.evaluation.memory_capacity < 1.3 * state


@pytest.mark.slow
def test_with_a_step_less_memory_nothing_fits(large):
    (least,) = [way for way in large.found if way.change.kind is WayKind.MEMORY]
    capacity = least.plan.evaluation.memory_capacity / STEP**2
    chip = large.task.system.chip.with_memory(capacity=capacity)
    less = replace(large.task, system=replace(large.task.system, chip=chip))
    with pytest.raises(crosstack.CrosstackError):
        crosstack.optimise(less, work_limit=FEW)


@pytest.mark.slow
def test_nodes_of_the_library_hold_what_is_needed_and_are_as_many_chips(large):
    nodes = [way for way in large.found if way.change.kind is WayKind.NODE]
    assert [way.option for way in nodes if way.option == "--on h200-dgx"]
    assert {way.plan.task.system.n_chips for way in nodes} == {8}


@pytest.mark.slow
def test_fewer_chips_have_no_mapping_within_the_same_work(large):
    (more,) = [way for way in large.found if way.change.kind is WayKind.CHIPS]
    assert more.plan.task.system.n_chips % 8 == 0
    fewer = replace(large.task, system=system_on("a100-dgx-40gb", chips=16))
    with pytest.raises(crosstack.CrosstackError):
        crosstack.optimise(fewer, work_limit=FEW)


def test_recomputation_and_smaller_microbatches_are_offered_where_less_was_given(given):
    kinds = {way.change.kind for way in given.found}
    assert kinds & {WayKind.RECOMPUTE, WayKind.MICROBATCH, WayKind.SEVERAL}


def test_time_is_held_against_that_with_endless_memory(given):
    assert given.endless is not None
    for way in given.found:
        assert way.slowdown == way.plan.evaluation.time / given.endless.evaluation.time


def test_ways_are_saved_as_finite_numbers(ways):
    data = ways.to_dict()
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert [way["option"] for way in data["ways"] if "--chips" in (way["option"] or "")]


@pytest.mark.slow
def test_the_memory_of_the_hosts_is_a_way_with_its_option(large):
    (way,) = [
        way for way in large.found if way.change.option == "--offload optimizer"
    ]  # state and gradients are 14 B of each of 70.5 / 8 billion weights there
    assert way.change.kind is WayKind.OFFLOAD
    assert way.change.kind.same_machine
    away = way.plan.evaluation.host_memory.peak
    assert pytest.approx(away, rel=0.02) == 14 * 70.5e9 / 8
    assert way.to_dict()["option"].startswith("--offload optimizer")
