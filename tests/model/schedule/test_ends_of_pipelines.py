"""Pipelines whose first and last stage have more to do: closed forms beside events."""

from __future__ import annotations

from dataclasses import replace

from builders.uneven_pipelines import pipelines
from hypothesis import given, settings
from hypothesis import strategies as st

from crosstack.machine.chip import Overlap
from crosstack.model.iteration import exact_time, iteration_time
from crosstack.model.rules import rules_named
from crosstack.model.schedule.passes import Operation, Stage
from crosstack.model.schedule.pipeline import pipeline_time
from crosstack.model.stages import Pipeline
from crosstack.workload.transformer_training import Schedule

RULES = rules_named("crosstack")
ONE_BY_ONE = Schedule.ONE_F_ONE_B
ANY = st.one_of(
    pipelines(), *(pipelines(order) for order in (Schedule.ZB_H1, Schedule.ZB_H2, Schedule.ZB_V))
)


@settings(max_examples=300, deadline=None)
@given(ANY, st.sampled_from([0.3, 1.0, 5.0]))
def test_no_path_is_longer_than_the_iteration(pipeline, work):
    paths = float(iteration_time(pipeline, work, RULES))
    whole = exact_time(pipeline, work, RULES)
    assert paths <= whole * (1 + 1e-12)
    known = not (pipeline.has_ends or pipeline.schedule.by_events)
    if known or pipeline.stages == 1:
        assert paths == whole


@settings(max_examples=100, deadline=None)
@given(ANY, st.sampled_from([0.3, 1.0, 5.0]))
def test_more_work_is_never_faster(pipeline, work):
    more = exact_time(pipeline, work * 1.25, RULES)
    assert exact_time(pipeline, work, RULES) <= more * (1 + 1e-12)


FEWER = st.sampled_from([0.0, 0.1, 0.25, 0.5])


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(*(pipelines(order) for order in (ONE_BY_ONE, Schedule.ZB_H1, Schedule.ZB_H2))),
    st.sampled_from([0.02, 0.3, 1.0, 5.0]),
    st.tuples(FEWER, FEWER),
)
def test_no_path_is_longer_than_the_events_of_stages_with_fewer_layers(pipeline, work, fewer):
    if pipeline.stages == 1:
        return
    pipeline = replace(pipeline, interleave=1, overlap=Overlap.ALL, fewer=fewer)
    stages = []
    for number in range(pipeline.stages):
        held, there, back = 1.0, 0.0, 0.0
        for place, less, (ahead, both) in (
            (0, fewer[0], pipeline.first),
            (pipeline.stages - 1, fewer[1], pipeline.last),
        ):
            if number == place:
                held, there, back = held - less, there + ahead, back + both - ahead
        layers = Operation(
            name="layers",
            forward=there + held * work * pipeline.forward,
            backward=back + held * work * (1 - pipeline.forward),
            weights=held * work * pipeline.weight_gradients,
        )
        stages.append(Stage(operations=(layers,), send=pipeline.transfer / 2))
    events = pipeline_time(stages, pipeline.microbatches, pipeline.schedule)
    assert float(iteration_time(pipeline, work, RULES)) <= events * (1 + 1e-9)


@settings(max_examples=100, deadline=None)
@given(pipelines(Schedule.GPIPE), st.sampled_from([0.3, 1.0, 5.0]))
def test_gpipe_is_what_its_events_take(pipeline, work):
    share, count = pipeline.forward, pipeline.stages
    times = [[work * share, work * (1 - share)] for _ in range(count)]
    for stage, (there, both) in ((0, pipeline.first), (-1, pipeline.last)):
        times[stage][0] += there
        times[stage][1] += both - there
    stages = [
        Stage(
            operations=(Operation(name="all", forward=there, backward=back),),
            send=pipeline.transfer / 2,
        )
        for there, back in times
    ]
    events = pipeline_time(stages, pipeline.microbatches, Schedule.GPIPE)
    assert abs(events - exact_time(pipeline, work, RULES)) <= 1e-9 * events


def test_a_slow_head_sets_the_pace():
    pipeline = Pipeline(
        stages=4, microbatches=16, layers=1, transfer=0.0, overlap=Overlap.ALL, training=True,
        first=(0.0, 0.0), last=(1.0, 3.0),
    )  # fmt: skip
    # The last stage works 6 on each of 16 microbatches, and waits for three stages once.
    assert exact_time(pipeline, 3.0, RULES) == 16 * 6.0 + 3 * 3.0
