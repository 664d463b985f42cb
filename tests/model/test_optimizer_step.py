"""What an iteration of training ends with: sums of gradients, and the update."""

from __future__ import annotations

import itertools
from dataclasses import replace
from random import Random

import pytest
from builders.exchanging import exchanging

import crosstack
from crosstack.io import library
from crosstack.machine.chip import Overlap
from crosstack.machine.system import Dimension, DimensionKind, Parallelism
from crosstack.mapping.degrees import Degrees
from crosstack.mapping.mapping import Constraints
from crosstack.model.collectives import (
    LeastTime,
    NetworkUse,
)
from crosstack.model.iteration import exact_time, iteration_time
from crosstack.model.memory_account import ROWS
from crosstack.model.optimizer_step import OptimizerStep
from crosstack.model.parts import MainMemory
from crosstack.model.rules import rules_named
from crosstack.model.schedule.events import TaskGraphBuilder, simulate
from crosstack.model.schedule.passes import Ending, Operation, Stage
from crosstack.model.schedule.pipeline_graph import pipeline_graph
from crosstack.model.stage_paths import exchange_paths
from crosstack.model.stages import Pipeline
from crosstack.model.step_paths import step_times
from crosstack.workload.job import Job
from crosstack.workload.transformer_training import ZEROS, Recompute, Schedule, Zero

RULES = rules_named("crosstack")


ONE, WAITS = Schedule.ONE_F_ONE_B, Schedule.ZB_H1


def pipeline(
    rng: Random, step: OptimizerStep, *, pieces: int = 1, schedule: Schedule = ONE
) -> Pipeline:
    stages = rng.choice([1, 2, 4])
    pieces = pieces if stages > 1 else 1
    return Pipeline(
        stages=stages,
        microbatches=stages * rng.choice([1, 2, 3]),
        layers=pieces * rng.choice([1, 2, 5]),
        transfer=0.0,
        overlap=Overlap.ALL,
        training=True,
        schedule=schedule,
        interleave=pieces,
        weight_gradients=rng.choice([0.1, 1 / 3, 0.5]) if schedule is WAITS else 1 / 3,
        taken=rng.choice([0.0, 0.15, 0.4]),
        step=step,
    )


def ran(one: Pipeline, work: float) -> float:
    """When events end. [s]"""
    share = work / one.interleave
    forward, backward = share * one.forward, share * (1 - one.forward)
    weights = share * one.weight_gradients
    layers = Operation(name="layers", forward=forward, backward=backward, weights=weights)
    stages = [[layers] for _ in range(one.stages * one.interleave)]
    stages[0].insert(0, operation("tokens", one.first))
    stages[-1].append(operation("head", one.last))
    send = one.transfer / 2 if len(stages) > 1 else 0.0
    graph = pipeline_graph(
        [Stage(operations=tuple(own), send=send) for own in stages],
        one.microbatches,
        one.schedule,
        interleave=one.interleave,
        ending=Ending(
            step=one.step,
            layers=one.layers,
            forward=forward,
            lead=work * one.last_pass / one.layers,
            head=(one.last[0], 0.0 if one.schedule is WAITS else one.last[1] - one.last[0]),
            taken=one.taken,
        ),
    )
    return simulate(graph).makespan


def operation(name: str, took: tuple[float, float]) -> Operation:
    """One that takes so long forward, and in all. [s]"""
    return Operation(name=name, forward=took[0], backward=took[1] - took[0])


@pytest.mark.parametrize("seed", range(40))
def test_sums_behind_gradients_of_weights_that_waited_end_when_events_do(seed):
    rng = Random(seed)
    sent = {"gather": 10 ** rng.uniform(-2, 1), "before": 0.1} if seed % 2 else {}
    step = OptimizerStep(sums=10 ** rng.uniform(-1, 1), update=0.25, **sent)
    one = pipeline(rng, step, schedule=WAITS)
    one = replace(one, transfer=0.0 if one.stages == 1 else rng.choice([0.0, 0.2]))
    assert exact_time(one, 1.0, RULES) == pytest.approx(ran(one, 1.0), rel=1e-9)
    if one.stages == 1:
        return
    ends = replace(step, first=rng.uniform(0, 1), last=rng.uniform(0, 4), gather=0.0, before=0.0)
    one = replace(one, step=ends, first=(0.1, 0.3), last=(0.2, 0.9))
    assert exact_time(one, 1.0, RULES) == pytest.approx(ran(one, 1.0), rel=1e-9)
    assert float(iteration_time(one, 1.0, RULES)) <= ran(one, 1.0) * (1 + 1e-12)


@pytest.mark.parametrize("overlapped", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_the_closed_form_is_when_events_end(seed, overlapped):
    rng = Random(seed)
    first = rng.choice([0.0, 0.1])
    step = OptimizerStep(
        sums=10 ** rng.uniform(-1, 1), first=first, last=0.0, update=0.25, overlapped=overlapped
    )
    one = pipeline(rng, step)
    if one.stages == 1:
        one = replace(one, step=replace(step, last=first))
    assert float(iteration_time(one, 1.0, RULES)) == pytest.approx(ran(one, 1.0), rel=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_pieces_of_stages_end_no_later_than_the_closed_form_says(seed):
    rng = Random(seed)
    step = OptimizerStep(sums=10 ** rng.uniform(-2, 1), update=0.25)
    one = pipeline(rng, step, pieces=2)
    said = float(iteration_time(one, 1.0, RULES))
    assert ran(one, 1.0) <= said * (1 + 1e-12)
    if step.sums < 0.5:  # all but the last bucket hides
        assert said == pytest.approx(ran(one, 1.0), rel=1e-9)


@pytest.mark.parametrize("overlapped", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_weights_sent_round_delay_the_first_microbatch_as_events_say(seed, overlapped):
    rng = Random(seed)
    step = OptimizerStep(
        sums=10 ** rng.uniform(-1, 1),
        gather=10 ** rng.uniform(-2, 1),
        before=rng.choice([0.0, 0.1, 1.0]),
        behind=rng.choice([0.0, 0.1, 1.0]),
        update=0.25,
        overlapped=overlapped,
        ahead=overlapped,
    )
    one = pipeline(rng, step)
    one = replace(one, transfer=0.0 if one.stages == 1 else rng.choice([0.0, 0.2]))
    said = float(iteration_time(one, 1.0, RULES))
    assert said == pytest.approx(ran(one, 1.0), rel=1e-9)
    assert said >= float(iteration_time(replace(one, step=replace(step, gather=0.0)), 1.0, RULES))


@pytest.mark.parametrize("seed", range(12))
def test_weights_sent_round_to_pieces_and_ends_delay_no_more_than_is_said(seed):
    rng = Random(seed)
    step = OptimizerStep(gather=10 ** rng.uniform(-2, 0.5), before=0.1, behind=0.2, update=0.25)
    one = pipeline(rng, step, pieces=2 if seed % 2 else 1)
    if one.interleave == 1:
        one = replace(one, first=(0.02, 0.06), last=(0.1, 0.3))
    said, there = float(iteration_time(one, 1.0, RULES)), ran(one, 1.0)
    none = replace(one, step=replace(step, gather=0.0, before=0.0, behind=0.0))
    delay = there - ran(none, 1.0)
    assert delay <= (said - float(iteration_time(none, 1.0, RULES))) * (1 + 1e-9) + 1e-12


def test_what_of_weights_sent_round_is_waited_for_by_hand():
    # One stage of 4 layers, each 1 s forward: the first is waited for, or the last, due at 3 s.
    one = replace(
        pipeline(Random(0), OptimizerStep(gather=2.0)), stages=1, microbatches=3, layers=4, taken=0
    )
    assert [float(t) for t in step_times(one, 12.0)] == [0.0, 0.0, 0.5]
    # The other three come beside the first three layers, of whose units a fifth sends for 1.5 s.
    units = replace(one, taken=0.2)
    assert [float(t) for t in step_times(units, 12.0)] == [0.0, 0.0, 0.8]
    slow = replace(one, step=OptimizerStep(gather=20.0, before=1.0))
    assert [float(t) for t in step_times(slow, 12.0)] == [0.0, 0.0, 18.0]
    head = replace(one, step=OptimizerStep(gather=2.0, behind=5.0))  # needed at 4 s
    assert [float(t) for t in step_times(head, 12.0)] == [0.0, 0.0, 3.0]
    behind = replace(one, step=OptimizerStep(gather=2.0, behind=1.0, ahead=False))
    assert [float(t) for t in step_times(behind, 12.0)] == [0.0, 0.0, 3.0]


def test_what_hides_behind_the_last_backward_pass_by_hand():
    # One stage of 4 layers: a layer takes 1 s forward, 2 s backward.
    one = pipeline(Random(0), OptimizerStep(sums=4.0, update=0.5))
    one = replace(one, stages=1, microbatches=3, layers=4, taken=0)
    assert [float(t) for t in step_times(one, 12.0)] == [1.0, 0.5, 0.0]  # the last bucket
    # Of units a fifth sends while the last three layers run, for 3 s.
    units = replace(one, taken=0.2)
    assert [float(t) for t in step_times(units, 12.0)] == [1.6, 0.5, 0.0]
    slow = replace(one, step=OptimizerStep(sums=40.0, update=0.5))
    # The first bucket is sent 6 s before the end, all take 40 s.
    assert [float(t) for t in step_times(slow, 12.0)] == [34.0, 0.5, 0.0]
    behind = replace(one, step=OptimizerStep(sums=4.0, update=0.5, overlapped=False))
    assert [float(t) for t in step_times(behind, 12.0)] == [4.0, 0.5, 0.0]


def test_an_update_reads_and_writes_54_bytes_of_a_weight_of_16_bits():
    # rajbhandari2020zero: a gradient, a master copy and two moments; all but the gradient written.
    # It is turned into single precision, read for its norm, read and written to clip it, read, and
    # set to zero in 16 bits; the weight is made of its copy.
    assert MainMemory().update_traffic(2) == (2 + 4) + 4 * 4 + 2 + (12 + 12) + (4 + 2)
    # In single precision it needs no copy.
    wide = MainMemory(gradient_bytes=4.0)
    assert wide.update_traffic(2) == 5 * 4 + (12 + 12) + (4 + 2)
    # Without a copy in single precision, or where one kernel does all, nothing moves besides.
    assert MainMemory(optimizer_bytes=0.0).update_traffic(2) == 5 * 2 + 2
    assert MainMemory(gradient_passes=1.0).update_traffic(2) == 2 + 24 + 2


def test_a_replica_more_costs_its_sums_and_no_more():
    job = Job(model=library.model("llama3.2-1b"), batch=8, sequence=2048)
    alone = library.system_on("h100-dgx", chips=1)
    eight = library.system_on("h100-dgx", chips=8)
    given = Constraints(microbatch_size=1, degrees=Degrees(tensor=1, pipeline=1, data=1))
    one = crosstack.optimise(replace(job, batch=1), alone, constraints=given).evaluation
    given = replace(given, degrees=Degrees(tensor=1, pipeline=1, data=8), zero=Zero.NONE)
    found = crosstack.optimise(job, eight, constraints=given).evaluation
    assert one.sums_time == 0
    assert found.sums_time > 0
    assert found.update_time == pytest.approx(one.update_time, rel=1e-12)
    assert found.time == pytest.approx(one.time + found.sums_time, rel=1e-9)
    parameters = library.model("llama3.2-1b").parameters.total
    bandwidth = eight.chip.memory_speed(spilled=False)
    assert found.update_time == pytest.approx(54 * parameters / bandwidth, rel=1e-3)
    # Each of 8 that share the optimizer's state updates an eighth, and needs an eighth of 12 bytes.
    shared = crosstack.optimise(job, eight, constraints=replace(given, zero=Zero.STATE)).evaluation
    assert shared.update_time == pytest.approx(found.update_time / 8, rel=1e-9)
    state, whole = (dict(zip(ROWS, one.memory.sizes, strict=True)) for one in (shared, found))
    assert state["optimizer_state"][0] == pytest.approx(12 * parameters / 8, rel=1e-3)
    assert state["gradients"] == whole["gradients"]
    # A reduce-scatter and an all-gather take a ring as long as an all-reduce; some of it hides.
    assert 0 < shared.gather_time <= found.sums_time
    assert shared.time <= found.time


# ---------------------------------------------------------------- shares of gradients and weights


def passes(layers: int, weights: float, takes: float, gradients: float) -> float:
    """When layers are through that each wait for weights, and send gradients, on one link. [s]"""
    build, ran = TaskGraphBuilder(), list[int]()
    for layer in range(layers):
        two_before = ran[layer - 2 : layer - 1] if layer > 1 else []
        sent = build.add("weights", weights, resource="link", after=two_before)
        ran.append(build.add("layer", takes, resource="chip", after=[sent]))
        build.add("gradients", gradients, resource="link", after=[ran[-1]])
    return simulate(build.build()).makespan


@pytest.mark.parametrize("seed", range(20))
def test_layers_wait_for_their_weights_as_events_say(seed):
    rng = Random(seed)
    layers, weights, gradients = rng.choice([1, 2, 8]), rng.uniform(0, 2), rng.uniform(0, 2)
    plan = exchanging(layers, weights, gradients)
    work = 3.0 * layers
    both = {z: replace(plan, zero=z) for z in (1, 2, 3)}
    took = {z: max(a * work + b for a, b in exchange_paths(one)) for z, one in both.items()}
    assert took[1] == work
    forward = passes(layers, weights, 1.0, 0.0)
    assert took[2] == pytest.approx(layers * 1.0 + passes(layers, 0.0, 2.0, gradients))
    # Backward, weights and gradients take turns on a link: what comes first is not said.
    one = weights + gradients
    backward = passes(layers, weights, 2.0, gradients)
    assert abs(took[3] - forward - backward) <= one + 1e-12
    if layers * one <= 2.0:  # all but the first weights and the last gradients hides
        assert took[3] == pytest.approx(forward + backward)


def beside(layers: int, alone: float, takes: float, taken: float) -> float:
    """When layers are through that wait for weights, and go slower while others come. [s]"""
    now, left, sent = alone, takes, layers - 1  # the first weights are there; the next are coming
    coming = alone if sent else 0.0
    for _ in range(layers):
        left = takes
        slow = min(left / (1 - taken), coming)  # both at a time
        now, left, coming = now + slow, left - slow * (1 - taken), coming - slow
        now += left + coming  # whichever is left, alone
        sent -= 1
        coming = alone if sent > 0 else 0.0
    return now


@pytest.mark.parametrize("seed", range(20))
def test_layers_go_slower_while_weights_take_units_of_the_chip(seed):
    rng = Random(seed)
    layers, weights, taken = rng.choice([1, 2, 8]), rng.uniform(0, 2), rng.uniform(0, 0.5)
    plan = exchanging(layers, weights, 0.0)
    took = max(a * 3.0 * layers + b for a, b in exchange_paths(replace(plan, taken=taken)))
    there, back = (beside(layers, weights, takes, taken) for takes in (1.0, 2.0))
    assert took == pytest.approx(there + back)


def test_chips_that_share_all_hold_an_eighth_of_it_and_two_layers():
    model = library.model("llama3.2-1b")
    job, eight = Job(model=model, batch=16, sequence=2048), library.system_on("h100-dgx", chips=8)
    given = Constraints(microbatch_size=1, degrees=Degrees(tensor=1, pipeline=1, data=8))
    found = [
        crosstack.optimise(job, eight, constraints=replace(given, zero=z)).evaluation
        for z in ZEROS[: Zero.HYBRID.number]
    ]
    rows = [dict(zip(ROWS, one.memory.sizes, strict=True)) for one in found]
    held = [[row[name][0] for name in ("weights", "gradients", "optimizer_state")] for row in rows]
    whole = held[0]
    assert held[1] == pytest.approx([whole[0], whole[1], whole[2] / 8])
    assert held[2] == pytest.approx([whole[0], whole[1] / 8, whole[2] / 8])
    assert held[3] == pytest.approx([size / 8 for size in whole])
    # Two layers' and the table's gradients on their way, and then their weights as well.
    table = 2 * model.vocabulary * model.hidden
    layers = 2 * (whole[0] - table) / model.layers + table
    more = [row["buffers"][0] - rows[0]["buffers"][0] for row in rows]
    assert more[1:] == pytest.approx([0.0, layers, 2 * layers], rel=1e-3)
    # Two microbatches: gradients leave twice, weights come four times in place of once.
    assert found[1].time < found[2].time < found[3].time
    assert found[2].sums_time == found[3].sums_time == found[3].gather_time == 0
    assert found[2].energy.network > found[1].energy.network


def test_near_chips_have_shares_that_are_summed_over_the_far_ones():
    # Chips in twos, 4 GB/s inside and 1 GB/s outside: of 8 bytes a chip sends its partner half,
    # by 4 GB/s, and of the half that it keeps, over 1 GB/s, half to be added and half to be known.
    dimensions = tuple(
        Dimension(kind=DimensionKind.SWITCH, bandwidth=bandwidth) for bandwidth in (4e9, 1e9)
    )
    network = NetworkUse(
        dimensions=dimensions, sizes=(2, 2), parallelism=(Parallelism.DATA, Parallelism.DATA)
    )
    near = LeastTime().near_shards(network)
    assert near.chips == 2
    assert float(near.scatter.time(8e9)) == pytest.approx(1.0)
    assert float(near.gather.time(8e9)) == pytest.approx(1.0)
    assert float(near.across.time(8e9)) == pytest.approx(2 + 2)
    assert LeastTime().near_shards(replace(network, sizes=(4, 1))).chips == 1
    assert LeastTime().near_shards(replace(network, sizes=(1, 4))).chips == 1


def test_shares_inside_a_server_are_eighths_on_every_server():
    model = library.model("llama3.2-1b")
    job = Job(model=model, batch=256, sequence=2048)
    system = library.system_on("h100-dgx", chips=16)
    given = Constraints(
        microbatch_size=1, recompute=Recompute.FULL,
        degrees=Degrees(tensor=1, pipeline=1, data=16, context=1, expert=1),
    )  # fmt: skip
    whole, among_all, near = (
        crosstack.optimise(job, system, constraints=replace(given, zero=z)).evaluation
        for z in (Zero.NONE, Zero.WEIGHTS, Zero.HYBRID)
    )
    rows = [dict(zip(ROWS, one.memory.sizes, strict=True)) for one in (whole, among_all, near)]
    for name in ("weights", "gradients", "optimizer_state"):
        full, sixteenth, eighth = (row[name][0] for row in rows)
        assert (sixteenth, eighth) == pytest.approx((full / 16, full / 8))
    assert rows[1]["buffers"] == rows[2]["buffers"]
    # What is left of sums is an eighth, once; weights come by the links of the server.
    assert among_all.sums_time == 0 < near.sums_time < whole.sums_time
    assert near.gather_time == 0
    assert near.update_time == pytest.approx(2 * among_all.update_time)
    assert near.time < among_all.time
    free = crosstack.optimise(job, system, constraints=replace(given, zero=None)).evaluation
    assert free.time <= min(one.time for one in (whole, among_all, near))


@pytest.mark.parametrize(
    ("zero", "given"),
    [
        *itertools.product("23", ["tp=1,pp=1,dp=16", "tp=1,pp=4,dp=4"]),
        pytest.param("2", "tp=2,pp=2,dp=4", marks=pytest.mark.slow),
        ("3", "tp=2,pp=2,dp=4"),
        ("hsdp", "tp=1,pp=1,dp=16"),
        ("hsdp", "tp=2,pp=1,dp=8"),
    ],
)
def test_a_step_with_shares_takes_as_long_as_its_events(zero, given):
    job = Job(model=library.model("llama3.2-1b"), batch=32, sequence=2048)
    system = library.system_on("h100-dgx", chips=16)
    found = crosstack.predict(
        job, system, given, zero=zero, microbatches=2, recompute="none", interleave=1
    )
    assert sum(time for _, time in found.parts) == pytest.approx(found.time, rel=1e-9)
    (timeline,) = found.timelines()
    assert timeline.makespan == pytest.approx(found.time, rel=1e-9)
    ran = {name: time for name, time in timeline.busy().items() if name.startswith("stage")}
    assert dict(found.busy) == pytest.approx(ran)
