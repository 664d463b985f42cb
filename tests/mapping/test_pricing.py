"""The line below the objective of a plan, against the schedule played pass by pass."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders.uneven_pipelines import pipelines
from hypothesis import given, settings
from hypothesis import strategies as st

from crosstack.machine.chip import Overlap
from crosstack.mapping.pricing import STEP, Bend
from crosstack.model.iteration import exact_time
from crosstack.model.rules import rules_named
from crosstack.model.stages import Pipeline
from crosstack.workload.transformer_training import Schedule

RULES = rules_named("crosstack")
MORE = (1.0, 1 + STEP, 1.1, 1.7, 3.0, 20.0)  # times the work that the line begins at
WORK = st.sampled_from([0.02, 0.3, 1.0, 5.0])
FEWER = st.sampled_from([0.0, 0.25, 0.5])


def line_below(pipeline: Pipeline, work: float) -> Bend:
    """Return the line that `Pricing.bend` draws, of what a stage works on a microbatch. [s]"""
    whole, less = (exact_time(pipeline, x, RULES) for x in (work, work * (1 - STEP)))
    return Bend(work, whole, max(whole - less, 0.0) / (work * STEP))


def played(pipeline: Pipeline, work: float) -> float:
    """Time of 1F1B with one piece a stage, one pass after the other, from first principles. [s]

    A stage starts as many forward passes as there are stages behind it, and one, and then works on
    a backward and a forward pass in turn. A pass waits for the stage, and for what it is sent
    beside the work of stages.
    """
    count, stages, hop = pipeline.microbatches, pipeline.stages, pipeline.transfer / 2
    there = [work * pipeline.forward] * stages
    back = [work * (1 - pipeline.forward)] * stages
    for stage, (forward, both), fewer in (
        (0, pipeline.first, pipeline.fewer[0]),
        (stages - 1, pipeline.last, pipeline.fewer[1]),
    ):
        there[stage] += forward - fewer * work * pipeline.forward
        back[stage] += both - forward - fewer * work * (1 - pipeline.forward)
    orders = []
    for stage in range(stages):
        ahead = min(count, stages - stage)
        order = [("there", i) for i in range(ahead)]
        for i in range(count):
            order.append(("back", i))
            order += [("there", i + ahead)] if i + ahead < count else []
        orders.append(order)
    come: dict[tuple[str, int, int], float] = {}  # when what a pass reads is there
    free, link, done = [0.0] * stages, {}, [0] * stages
    while any(done[stage] < len(orders[stage]) for stage in range(stages)):
        for stage in range(stages):
            while done[stage] < len(orders[stage]):
                way, number = orders[stage][done[stage]]
                first = way == "there" and stage == 0
                if not first and (way, stage, number) not in come:
                    break
                ready = max(free[stage], come.get((way, stage, number), 0.0))
                free[stage] = end = ready + (there if way == "there" else back)[stage]
                done[stage] += 1
                target = stage + 1 if way == "there" else stage - 1
                if 0 <= target < stages:  # a link takes one message at a time
                    link[way, stage] = end = max(end, link.get((way, stage), 0.0)) + hop
                    come[way, target, number] = end
                elif target == stages:
                    come["back", stage, number] = end
    return max(free)


@st.composite
def plain(draw):
    """Return a pipeline by 1F1B in one piece a stage, with stages that hold unequal layers."""
    found = draw(pipelines())
    fewer = (draw(FEWER), draw(FEWER)) if found.stages > 1 else (0.0, 0.0)
    count = min(found.microbatches, 14)
    return replace(found, interleave=1, microbatches=count, fewer=fewer, overlap=Overlap.ALL)


@settings(max_examples=300, deadline=None)
@given(plain(), WORK)
def test_an_iteration_of_uneven_stages_is_its_schedule_played(pipeline, work):
    assert exact_time(pipeline, work, RULES) == pytest.approx(played(pipeline, work), rel=1e-9)


@settings(max_examples=300, deadline=None)
@given(plain(), WORK)
def test_the_line_is_below_every_schedule_of_longer_layers(pipeline, work):
    line = line_below(pipeline, work)
    for times in MORE:
        assert line.at(work * times) <= played(pipeline, work * times) * (1 + 1e-9)


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(
        pipelines(),
        *(
            pipelines(order)
            for order in (Schedule.ZB_H1, Schedule.ZB_H2, Schedule.ZB_V, Schedule.GPIPE)
        ),
    ),
    WORK,
    st.tuples(FEWER, FEWER),
)
def test_the_line_is_below_what_longer_layers_take_by_any_schedule(pipeline, work, fewer):
    if pipeline.stages > 1:
        pieces = pipeline.interleave  # the last piece of a stage has layers that others do not
        pipeline = replace(pipeline, fewer=(fewer[0] / pieces, fewer[1] / pieces))
    line = line_below(pipeline, work)
    for times in MORE:
        assert line.at(work * times) <= exact_time(pipeline, work * times, RULES) * (1 + 1e-9)


def test_the_line_says_from_which_layer_on_a_plan_is_not_better():
    line = Bend(layer=2.0, least=10.0, slope=4.0)
    assert line.below(9.0) == 0.0
    assert line.at(line.below(18.0)) == 18.0
