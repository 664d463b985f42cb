"""What lies in the memory of hosts: time by hand, memory, and that all ways to a number agree."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from crosstack.errors import InfeasibleError, InputError
from crosstack.evaluate.blocks import BlockTable
from crosstack.evaluate.plan import Plan, given_plan, optimise
from crosstack.evaluate.saved_plan import saved_plan
from crosstack.evaluate.step_account import Spent
from crosstack.evaluate.strategy_times import mapping_of, strategy_times
from crosstack.evaluate.time import evaluate
from crosstack.evaluate.timeline import stages_of, timeline_of
from crosstack.io.library import system_on
from crosstack.io.native import read_task, write_task
from crosstack.io.transformers import transformer
from crosstack.machine.host import HostShare
from crosstack.machine.system import System
from crosstack.mapping.degrees import parse_degrees
from crosstack.mapping.mapping import Constraints, Task
from crosstack.mapping.strategies import all_strategies
from crosstack.model.offload import Offloading
from crosstack.model.rules import rules_named
from crosstack.workload.architectures import graphs
from crosstack.workload.graph_workload import workload_of
from crosstack.workload.transformer_training import (
    Offload,
    Recompute,
    Schedule,
    Zero,
    offload_named,
)
from crosstack.workload.workload import Workload

RULES = rules_named("crosstack")
OPTIMIZER, STATE, ACTIVATIONS = Offload
LAYERS = 4
WORK = 1e3  # units of a search here


def trained() -> Workload:
    few = replace(transformer("opt-125m"), layers=LAYERS)
    graph = graphs.training(few, sequence=512, batch=8)
    return workload_of(graph, block="layers", items="batch", name="opt")


def servers(host: HostShare | None = None, chips: int = 4) -> System:
    system = system_on("h100-dgx", chips=chips)
    return system if host is None else replace(system, host=host)


def answer(system: System, degrees: str = "tp=1,pp=2,dp=2", **given: object) -> Plan:
    usual = {
        "microbatch_size": 1, "zero": Zero.NONE, "recompute": Recompute.NONE,
        "schedule": Schedule.ONE_F_ONE_B,
    }  # fmt: skip
    constraints = Constraints(degrees=parse_degrees(degrees), **(usual | given))
    return optimise(
        Task(workload=trained(), system=system, constraints=constraints), work_limit=WORK
    )


def again(plan: Plan, **changes: object) -> Plan:
    """The same mapping with something else decided."""
    return given_plan(plan.task, replace(plan.mapping, **changes), plan.rules)


@pytest.fixture(scope="module")
def plain() -> Plan:
    return answer(servers())


# ---------------------------------------------------------------- by hand


def test_the_library_says_what_a_chip_has_of_its_host():
    host = servers().host
    pcie = {"bandwidth": 64e9, "link_power": 8 * 6.5e-12}  # five times 1.3 pJ/bit
    assert host == HostShare(capacity=2e12 / 8, memory_bandwidth=614.4e9 / 8, **pcie)
    same = system_on("b200-dgx", chips=8).host
    assert same == HostShare(capacity=2e12 / 8, memory_bandwidth=16 * 5600e6, **pcie)
    assert system_on("h100-dgx", chips=64).host == host
    grace = system_on("gb200-nvl72", chips=8).host
    assert grace == HostShare(
        bandwidth=225e9, capacity=240e9, memory_bandwidth=256e9, link_power=8 * 1.3e-12
    )
    assert system_on("tpu-v5e-pod", chips=256).host == HostShare(bandwidth=15e9, capacity=2**36)
    assert system_on("v100-dgx-2", chips=4).host is None


@pytest.mark.parametrize("zero", [Zero.NONE, Zero.STATE])
def test_the_update_passes_the_link_the_memory_and_the_link(plain, zero):
    base = again(plain, zero=zero)
    layers, host = LAYERS / 2, plain.task.system.host
    chip = base.task.system.chip.memory_speed(spilled=False)
    weights = base.evaluation.update_time * chip / 54  # 54 B of each pass the memory of a chip
    for kind, steps in {
        # gradients out, 54 B in the host's memory, weights in
        OPTIMIZER: (2 / host.bandwidth, 54 / host.memory_bandwidth, 2 / host.bandwidth),
        # state in, 54 B in the chip's memory, state out
        STATE: (12 / host.bandwidth, 54 / chip, 12 / host.bandwidth),
    }.items():
        one = sum(steps) / layers + (1 - 1 / layers) * max(steps)
        found = again(base, offload=(kind,)).evaluation
        assert found.update_time == pytest.approx(weights * one, rel=1e-9)
        more = found.update_time - base.evaluation.update_time
        assert found.time == pytest.approx(base.evaluation.time + more, rel=1e-9)


@pytest.mark.parametrize(
    ("kind", "each"),
    [(OPTIMIZER, 2 + 2), (STATE, 12 + 12)],  # gradients and weights; state there and back
)
def test_the_link_to_a_host_draws_for_each_byte_that_it_moves(plain, kind, each):
    found = again(plain, offload=(kind,))
    assert found.evaluation.energy is not None
    assert plain.evaluation.energy is not None
    weights = 2 * LAYERS * 12 * 768**2  # of two copies, but for norms and biases
    more = found.evaluation.energy.network - plain.evaluation.energy.network
    assert more == pytest.approx(each * weights * 8 * 6.5e-12, rel=5e-3)
    free = replace(plain.task.system.host, link_power=0.0)
    bare = evaluate(trained(), servers(free), found.mapping, plain.rules)
    assert bare.energy.network == pytest.approx(plain.evaluation.energy.network, rel=1e-12)
    assert bare.time == found.evaluation.time


def test_activations_draw_there_and_back(plain):
    found = again(plain, offload=(ACTIVATIONS,), recompute=Recompute.FULL)
    base = again(plain, recompute=Recompute.FULL)
    more = found.evaluation.energy.network - base.evaluation.energy.network
    # The input of each layer: 8 sequences of 512 tokens of 768 numbers of 2 bytes.
    assert more == pytest.approx(2 * LAYERS * 8 * 512 * 768 * 2 * 8 * 6.5e-12, rel=1e-9)


def test_memory_leaves_the_chip_for_the_host(plain):
    here = plain.evaluation.memory.stage(0)
    there = again(plain, offload=(OPTIMIZER,)).evaluation
    assert there.memory.stage(0).optimizer_state == 0
    assert there.host_memory.stage(0).optimizer_state == here.optimizer_state + here.gradients
    kept = again(plain, offload=(STATE,)).evaluation
    assert kept.memory.stage(0).optimizer_state == here.optimizer_state  # two layers: all under way
    assert kept.host_memory.stage(0).optimizer_state == here.optimizer_state
    alone = answer(servers(chips=1), "tp=1,pp=1,dp=1")
    state = again(alone, offload=(STATE,)).evaluation.memory.stage(0).optimizer_state
    assert state == pytest.approx(alone.evaluation.memory.stage(0).optimizer_state * 3 / 4)
    gone = again(alone, offload=(ACTIVATIONS,)).evaluation
    whole = alone.evaluation.memory.stage(0).activations
    assert gone.memory.stage(0).activations == pytest.approx(whole / 2)  # two layers of four
    assert gone.host_memory.stage(0).activations == pytest.approx(whole)


def moved(layers: int, first: float, then: float) -> float:
    """When layers are through two machines, one behind the other. [s]"""
    one = two = 0.0
    for _ in range(layers):
        one += first
        two = max(one, two) + then
    return two


@pytest.mark.parametrize("speed", [1e9, 5e9, 64e9, 1e12])
def test_activations_hide_behind_layers(speed):
    system = servers(HostShare(bandwidth=speed, capacity=1e12), chips=1)
    plain = answer(system, "tp=1,pp=1,dp=1")
    found = again(plain, offload=(ACTIVATIONS,))
    # Weights, gradients and the optimizer's state are not waited for otherwise on one chip.
    size = found.evaluation.host_memory.stage(0).activations / LAYERS  # of a microbatch
    run = stages_of(plain)[0].operations
    forward, back = (sum(getattr(one, way) for one in run) for way in ("forward", "backward"))
    there = moved(LAYERS, forward / LAYERS, size / speed)
    returned = moved(LAYERS, size / speed, back / LAYERS)
    more = there + returned - forward - back
    count = plain.evaluation.n_microbatches
    assert found.evaluation.time - plain.evaluation.time == pytest.approx(more * count, rel=1e-6)
    spent = dict(found.step_account().spent)
    assert spent[Spent.OFFLOAD] == pytest.approx(more * count, rel=1e-9)


@pytest.mark.parametrize("offload", ["optimizer", "state", "activations", "state+activations"])
@pytest.mark.parametrize("zero", [Zero.NONE, Zero.STATE, Zero.WEIGHTS])
@pytest.mark.parametrize("pieces", [1, 2])
def test_events_end_when_the_closed_form_says(plain, offload, zero, pieces):
    found = again(plain, offload=offload_named(offload), zero=zero, interleave=pieces)
    ran = timeline_of(found, stages_of(found)).makespan
    assert ran == pytest.approx(found.evaluation.time, rel=1e-9)
    spent = sum(time for _, time in found.step_account().spent)
    assert spent == pytest.approx(found.evaluation.time, rel=1e-9)


def test_weights_that_are_brought_and_activations_pass_three_machines():
    """Layer by layer: weights come, the layer runs, what it keeps leaves."""
    one = Offloading(kinds=(ACTIVATIONS,), host=HostShare(bandwidth=1.0, capacity=1.0))
    from types import SimpleNamespace

    from crosstack.model.stage_paths import exchange_paths

    layers = 4
    for weights, left in ((0.1, 0.3), (0.5, 0.2), (0.2, 0.2), (0.05, 0.01)):
        plan = SimpleNamespace(
            exchanged=2, layers_per_stage=layers, forward=0.5, interleave=1, again=1.0, taken=0.0,
            summed=1.0, expert_summed=0.0, offloaded=one, left=left, microbatch_size=1, rerun=0.0,
            bringing_time=lambda *_, w=weights: w, leaving_time=lambda *_: 0.0,
            hides=lambda _: True,
        )  # fmt: skip
        link = chip = host = 0.0
        for _ in range(layers):
            link += weights
            chip = max(chip, link) + 0.5 / layers
            host = max(host, chip) + left
        longest = max(a + b for a, b in exchange_paths(plan))
        assert longest == pytest.approx(2 * host, rel=1e-12)  # forward, and the same backward


# ---------------------------------------------------------------- all ways agree


@pytest.mark.slow
@pytest.mark.parametrize("offload", ["optimizer", "activations", "state+activations"])
def test_many_strategies_at_once_cost_what_each_does(offload):
    degrees = parse_degrees("tp=2")
    given = Constraints(offload=offload_named(offload), degrees=degrees, microbatch_size=2)
    system = servers(chips=8)
    strategies = all_strategies(trained(), system, RULES, given)
    table = BlockTable(
        workload=trained(), system=system, rules=RULES, constraints=given, work_limit=WORK
    )
    rng = np.random.default_rng(0)
    some = strategies.at(rng.choice(len(strategies), 12, replace=False))
    found = strategy_times(some, table)
    for i in range(len(some)):
        alone = evaluate(trained(), system, mapping_of(some, i, table), RULES)
        assert found.time[i] == pytest.approx(alone.time, rel=1e-12)
        assert found.memory_used[i] == pytest.approx(alone.memory_used, rel=1e-12)


def test_what_is_free_is_no_worse_than_any_that_is_given_and_none_beats_the_bound():
    given = {"offload": (ACTIVATIONS,), "zero": None, "recompute": None, "microbatch_size": None}
    free = answer(servers(), "pp=2", **given)
    assert free.mapping.offload == (ACTIVATIONS,)
    assert f"on the hosts: {ACTIVATIONS}" in free.certificate.given
    for kind in Recompute:
        one = answer(servers(), "pp=2", **(given | {"recompute": kind}))
        assert free.evaluation.time <= one.evaluation.time * (1 + 1e-9)
        assert free.certificate.bound <= one.evaluation.time * (1 + 1e-9)


def test_a_saved_answer_and_a_file_say_the_same(plain):
    found = again(plain, offload=(OPTIMIZER, ACTIVATIONS))
    data = json.loads(found.to_json())
    assert data["offload"] == ["optimizer", "activations"]
    assert data["host_memory"][0]["total_b"] == found.evaluation.host_memory.totals[0]
    assert saved_plan(data, plain.task).mapping == found.mapping
    task = replace(plain.task, constraints=Constraints(offload=(STATE,)))
    read = read_task(write_task(task), "task")
    assert (read.constraints, read.system.host) == (task.constraints, task.system.host)


# ---------------------------------------------------------------- what is refused


def test_a_host_that_is_too_small_is_named():
    small = HostShare(bandwidth=64e9, capacity=1e6, memory_bandwidth=1e11)
    with pytest.raises(InfeasibleError) as caught:
        answer(servers(small), offload=(OPTIMIZER,))
    assert (caught.value.resource, caught.value.limit) == ("host memory", 1e6)
    plan = answer(servers(small))
    with pytest.raises(InfeasibleError) as caught:
        again(plan, offload=(ACTIVATIONS,))
    assert caught.value.resource == "host memory"
    assert "most of it activations" in caught.value.where


@pytest.mark.parametrize(
    ("host", "given", "message"),
    [
        (
            False,
            {"offload": (STATE,)},
            "offload: got 'state'; allowed: none on .* system.host says",
        ),
        (True, {"offload": (OPTIMIZER,)}, "allowed: state, or system.host.memory_bandwidth"),
        (
            True,
            {"offload": (ACTIVATIONS,), "recompute": Recompute.FULL, "recompute_layers": 1},
            "recompute_layers: got 1; allowed: none with activations on the host",
        ),
        (
            True,
            {"offload": (ACTIVATIONS,), "schedule": Schedule.ZB_H1},
            "got 'zb-h1'; allowed: gpipe, 1f1b, combined-1f1b with activations on the host",
        ),
    ],
)
def test_what_cannot_be_on_a_host_is_refused(host, given, message):
    system = replace(servers(), host=HostShare(bandwidth=1e9, capacity=1e12) if host else None)
    with pytest.raises(InputError, match=message):
        answer(system, **given)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("optimiser", "no what is offloaded is called|what is offloaded is"),
        ("optimizer+state", "optimizer, which the host updates, or state, which the chip does"),
    ],
)
def test_words_are_named(said, message):
    with pytest.raises(InputError, match=message):
        offload_named(said)
    assert offload_named("activations,optimizer") == (OPTIMIZER, ACTIVATIONS)
    assert offload_named("none") == ()
