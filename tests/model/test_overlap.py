"""What is sent beside the work of chips, and what is waited for: closed forms and events."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from builders.exchanging import exchanging

import crosstack
from crosstack.errors import InputError
from crosstack.evaluate.saved import mapping_from_dict
from crosstack.io import library
from crosstack.machine.chip import Overlap
from crosstack.mapping.degrees import Degrees
from crosstack.mapping.mapping import Constraints
from crosstack.model.iteration import exact_time, iteration_time
from crosstack.model.optimizer_step import OptimizerStep
from crosstack.model.rules import rules_named
from crosstack.model.schedule.events import TaskGraphBuilder, simulate
from crosstack.model.schedule.passes import Ending, Operation, Stage
from crosstack.model.schedule.pipeline_graph import pipeline_graph
from crosstack.model.stage_paths import exchange_paths
from crosstack.model.stages import Pipeline, longest_of
from crosstack.model.step_paths import step_times
from crosstack.report.plan_rows import splits
from crosstack.workload.job import Job
from crosstack.workload.transformer_training import Hidden, Schedule, Zero, overlap_named

RULES = rules_named("crosstack")
GRADIENTS, WEIGHTS, SENDS, _ = Hidden
EVERY = [c for n in range(4) for c in itertools.combinations(Hidden, n)]
MODEL = library.model("llama3.2-1b")
SYSTEM = library.system_on("h100-dgx", chips=8)


def ran(one: Pipeline, work: float) -> float:
    """When events end. [s]"""
    beside, count = one.overlap is Overlap.ALL, one.stages * one.interleave
    share, send = work / one.interleave, one.transfer / 2 * (one.stages > 1)
    forward, backward = share * one.forward, share * (1 - one.forward)
    weights = share * one.weight_gradients
    layers = Operation(name="layers", forward=forward, backward=backward, weights=weights)
    stages = [[layers] for _ in range(count)]
    for stage, own in enumerate(stages):
        if not beside:
            turn = one.stages if one.schedule is Schedule.ZB_V else None  # on one chip
            there = send * (stage < count - 1 and stage + 1 != turn)
            back = send * (stage > 0 and stage != turn)
            own.append(Operation(name="sending", forward=there, backward=back))
    for own, (there, both) in zip((stages[0], stages[-1]), (one.first, one.last), strict=True):
        own.append(Operation(name="end", forward=there, backward=both - there))
    graph = pipeline_graph(
        [Stage(operations=tuple(own), send=send * beside) for own in stages],
        one.microbatches,
        one.schedule,
        interleave=one.interleave,
        ending=Ending(
            step=one.step,
            layers=one.layers,
            forward=forward,
            lead=work * one.last_pass / one.layers,
            head=(one.last[0], 0.0),
        ),
    )
    return simulate(graph).makespan


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("schedule", [order for order in Schedule if not order.both_ends])
@pytest.mark.parametrize("seed", range(16))
def test_sums_that_nothing_hides_end_when_events_do(seed, schedule, ends):
    rng = Random(seed)
    stages = rng.choice([2, 3, 4])
    pieces = schedule.pieces or 1 + (schedule is Schedule.COMBINED)
    step = OptimizerStep(
        sums=10 ** rng.uniform(-1, 1),
        first=rng.uniform(0, 3) * ends,
        last=rng.uniform(0, 3),
        update=0.25,
        overlapped=False,
    )
    one = Pipeline(
        stages=stages,
        microbatches=stages * max(rng.choice([1, 2, 3]), schedule.ahead),
        layers=rng.choice([1, 2, 5]) * pieces,
        transfer=rng.choice([0.0, 0.1, 0.3]),
        overlap=rng.choice(list(Overlap)),
        training=True,
        schedule=schedule,
        interleave=pieces,
        weight_gradients=0.3,
        step=replace(step, last=0.0) if schedule.ends_meet else step,
    )
    if ends:
        one = replace(one, first=(0.1, 0.3), last=(0.2, 0.9))
    elif schedule.defers_weights:
        one = replace(one, step=replace(one.step, last=0.0))
    assert exact_time(one, 1.0, RULES) == pytest.approx(ran(one, 1.0), rel=1e-9)
    if schedule is Schedule.ONE_F_ONE_B:
        cut = replace(one, interleave=2, layers=2 * one.layers, transfer=0.0)
        assert exact_time(cut, 1.0, RULES) == pytest.approx(ran(cut, 1.0), rel=1e-9)
    assert float(iteration_time(one, 1.0, RULES)) <= ran(one, 1.0) * (1 + 1e-12)
    waits = replace(one, exchanged=((1.0, 0.2), (0.5, 0.9)))  # of layers that exchange weights
    work = np.array([0.1, 1.0, 3.0])
    longest = longest_of(RULES.iteration.paths(waits), work)
    assert iteration_time(waits, work, RULES) == pytest.approx(longest, rel=1e-12)


def test_sums_behind_the_last_stage_by_hand():
    # Two stages, a microbatch is 1 s forward and 2 s back: the last is through 2 s before the first
    # and has 5 s to sum, 1 s more than the first.
    step = OptimizerStep(sums=4.0, last=1.0, overlapped=False)
    one = Pipeline(
        stages=2, microbatches=3, layers=1, transfer=0.0, overlap=Overlap.ALL, training=True,
        step=step,
    )  # fmt: skip
    assert [float(time) for time in step_times(one, 3.0)] == [4.0, 0.0, 0.0]
    longer = replace(one, step=replace(step, last=8.0))  # 12 s, of which 2 s are beside
    assert float(step_times(longer, 3.0)[0]) == 10.0
    sent = replace(longer, transfer=2.0)  # and 1 s that its gradients are on the way
    assert float(step_times(sent, 3.0)[0]) == 9.0
    alone = replace(sent, overlap=Overlap.NONE)  # which it sends itself, before it is through
    assert float(step_times(alone, 3.0)[0]) == 10.0


def passed(layers: int, brings: float, takes: float, leaves: float, *, ahead, beside) -> float:
    """When layers are through that bring weights and leave gradients behind, on one link. [s]

    A layer ahead brings its weights while the one before runs; not beside, a layer begins when the
    gradients of the one before are sent.
    """
    build = TaskGraphBuilder()
    done, sent = list[int](), list[int]()
    for layer in range(layers):
        through = done if beside else sent  # what a layer waits for, of the layers before
        before = layer - 1 - ahead
        waits = through[before : before + 1] if before >= 0 else []
        weights = build.add("weights", brings, resource="link", after=waits)
        after = [weights] if beside else [weights, *sent[-1:]]
        done.append(build.add("layer", takes, resource="chip", after=after))
        if not beside:
            sent.append(build.add("gradients", leaves, resource="link", after=done[-1:]))
    if beside:  # behind weights that a layer waits for, each when its layer is through
        for layer in done:
            build.add("gradients", leaves, resource="link", after=[layer])
    return simulate(build.build()).makespan


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("hidden", EVERY)
def test_layers_wait_for_what_is_not_hidden_as_events_say(hidden, seed):
    rng = Random(seed)
    layers, weights, gradients = rng.choice([1, 2, 6]), rng.uniform(0, 2), rng.uniform(0, 2)
    ahead, beside = WEIGHTS in hidden, GRADIENTS in hidden
    work = 3.0 * layers
    paths = exchange_paths(exchanging(layers, weights, gradients, hidden=hidden))
    took = max(a * work + b for a, b in paths)
    most = weights * layers, gradients * layers
    assert work <= took <= work + 2 * most[0] + most[1] + 1e-12
    if not (ahead or beside):
        assert took == pytest.approx(work + 2 * most[0] + most[1])
    forward = passed(layers, weights, 1.0, 0.0, ahead=ahead, beside=True)
    back = passed(layers, weights, 2.0, gradients, ahead=ahead, beside=beside)
    if not (ahead and beside):
        assert took == pytest.approx(forward + back, rel=1e-9)
    # Which goes first on a link, of weights that come and of gradients that leave, is not said.
    assert abs(took - forward - back) <= weights + gradients


def test_all_that_can_be_hidden_is_what_is_counted_where_nothing_is_said():
    usual = exchanging(4, 0.5, 0.25)
    assert exchange_paths(usual) == exchange_paths(replace(usual, hidden=(GRADIENTS, WEIGHTS)))
    for chip in Overlap:
        assert usual.sending(chip) is chip
        assert replace(usual, hidden=(SENDS,)).sending(chip) is Overlap.ALL
        assert replace(usual, hidden=()).sending(chip) is Overlap.NONE


def test_layers_that_share_weights_hide_no_sums():
    shared = exchanging(4, 0.5, 0.25, overlapped=False, hidden=(GRADIENTS, WEIGHTS))
    assert not shared.hides(GRADIENTS)
    assert not shared.hides(WEIGHTS)


JOB = Job(model=MODEL, batch=16, sequence=2048)
STAGES = "tp=1,pp=2,dp=4"
SAID = [("0", "dp=8"), ("1", STAGES), ("3", "dp=8"), ("3", STAGES)]


@pytest.mark.parametrize(("zero", "given"), SAID)
def test_a_step_takes_as_long_as_its_events_whatever_is_hidden(zero, given):
    times = {}
    for hidden in ("none", "gradients", "weights", "sends", "gradients,weights,sends"):
        found = crosstack.predict(
            JOB, SYSTEM, given, zero=zero, microbatches=2, recompute="none", interleave=1,
            overlap=hidden,
        )  # fmt: skip
        (timeline,) = found.timelines()
        assert timeline.makespan == pytest.approx(found.time, rel=1e-9)
        assert sum(time for _, time in found.parts) == pytest.approx(found.time, rel=1e-9)
        times[hidden] = found.time
    usual = crosstack.predict(
        JOB, SYSTEM, given, zero=zero, microbatches=2, recompute="none", interleave=1
    )
    assert times["none"] == max(times.values())
    assert times["gradients,weights,sends"] == min(times.values()) <= usual.time
    assert times["gradients"] < times["none"]
    assert (times["weights"] < times["none"]) == (zero != "0")
    assert (times["sends"] < times["none"]) == ("pp" in given)


def constraints(**given) -> Constraints:
    degrees = Degrees(tensor=1, pipeline=2, data=4)
    return Constraints(microbatch_size=1, degrees=degrees, zero=Zero.STATE, **given)


def test_the_search_the_evaluation_and_a_saved_result_keep_what_is_hidden(tmp_path):
    given = constraints(overlap=(SENDS, WEIGHTS))
    assert given.overlap == (WEIGHTS, SENDS)
    answer = crosstack.optimise(JOB, SYSTEM, constraints=given, work_limit=1e5)
    assert answer.mapping.overlap == (WEIGHTS, SENDS)
    assert answer.certificate.objective == answer.evaluation.time
    assert "what is sent beside the work" in answer.certificate.given
    words = "weights of shares and activations between stages"
    assert ("sent beside the work", words) in splits(answer)
    data = json.loads(answer.to_json())
    assert data["overlap"] == ["weights", "sends"]
    again = mapping_from_dict(data, answer.task)
    assert again == answer.mapping
    assert crosstack.evaluate(answer.task, again).time == answer.evaluation.time
    del data["overlap"]
    assert mapping_from_dict(data, answer.task).overlap is None
    with pytest.raises(InputError, match=r"overlap\[0\]: got 'sums'"):
        mapping_from_dict({**data, "overlap": ["sums"]}, answer.task)


def test_a_file_says_what_is_hidden(tmp_path):
    file, words = tmp_path / "task.yaml", "workload: {llm: {model: llama3.2-1b, sequence: 64}}\n"
    words += "system: {on: h100-dgx}\nconstraints: {overlap: [sends, gradients]}\n"
    file.write_text(words)
    task = crosstack.load(file)
    assert task.constraints.overlap == (GRADIENTS, SENDS)
    file.write_text(words.replace("[sends, gradients]", "[]"))
    assert crosstack.load(file).constraints.overlap == ()
    file.write_text(words.replace("sends, gradients", "sums"))
    with pytest.raises(InputError, match=r"constraints\.overlap\[0\]: got 'sums'"):
        crosstack.load(file)


def test_what_is_hidden_is_said_of_training_alone():
    assert overlap_named("none") == overlap_named(()) == ()
    with pytest.raises(InputError, match='overlap: no traffic is called "sums"'):
        overlap_named("sums")
    served = Job(model=MODEL, kind="prefill", batch=1, sequence=64)
    with pytest.raises(InputError, match="overlap"):
        crosstack.optimise(served, SYSTEM, constraints=Constraints(overlap=()))
