import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstack.errors import InputError
from crosstack.model.schedule.events import simulate
from crosstack.model.schedule.passes import Operation, Pass, Stage
from crosstack.model.schedule.pipeline import pass_order, pipeline_time
from crosstack.model.schedule.pipeline_graph import pipeline_graph
from crosstack.model.schedule.zero_bubble import least_microbatches
from crosstack.workload.transformer_training import Schedule

times = st.floats(0, 10).map(lambda t: round(t, 3))
operations = st.tuples(times, times, times).map(
    lambda took: Operation(
        name="op", forward=took[0], backward=max(took[1:]), weights=min(took[1:])
    )
)
stages = st.lists(
    st.builds(Stage, operations=st.lists(operations, min_size=1, max_size=3).map(tuple),
              send=times),
    min_size=1,
    max_size=4,
)  # fmt: skip


@pytest.mark.parametrize("schedule", [one for one in Schedule if one is not Schedule.COMBINED])
@given(stages, st.integers(1, 7))
def test_the_closed_form_is_what_the_tasks_take(schedule, pipeline, microbatches):
    pieces = schedule.pieces or 1
    if schedule.both_ends:
        pipeline, microbatches = [*pipeline, *pipeline[::-1]], 4 * len(pipeline) + 2 * microbatches
    elif schedule.defers_weights:
        microbatches = max(microbatches, least_microbatches(len(pipeline), schedule))
        pipeline = [*pipeline, *pipeline[: (pieces - 1) * len(pipeline)]]
    ran = simulate(pipeline_graph(pipeline, microbatches, schedule, interleave=pieces)).makespan
    found = pipeline_time(pipeline, microbatches, schedule, interleave=pieces)
    assert found == pytest.approx(ran, rel=1e-12, abs=1e-12)


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.data())
def test_interleaved_stages_take_what_the_tasks_take(chips, each, rounds, data):
    stage = st.builds(
        Stage, operations=st.lists(operations, min_size=1, max_size=2).map(tuple), send=times
    )
    count = chips * each
    pipeline = data.draw(st.lists(stage, min_size=count, max_size=count))
    asked = rounds * chips, Schedule.ONE_F_ONE_B
    ran = simulate(pipeline_graph(pipeline, *asked, interleave=each)).makespan
    found = pipeline_time(pipeline, *asked, interleave=each)
    assert found == pytest.approx(ran, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("each", [1, 2, 3, 4])
def test_the_bubble_shrinks_with_the_stages_of_a_chip(each):
    # narayanan2021megatron, section 2.2.2: (p - 1) / (v m) of the time of the microbatches.
    p, m = 4, 8
    pipeline = [one(12 / each, 24 / each)] * (p * each)
    found = pipeline_time(pipeline, m, Schedule.ONE_F_ONE_B, interleave=each)
    assert found == pytest.approx(36 * m * (1 + (p - 1) / (each * m)))


@pytest.mark.parametrize(
    ("stages", "microbatches", "schedule", "field"),
    [(4, 4, Schedule.GPIPE, "interleave"), (3, 3, Schedule.ONE_F_ONE_B, "interleave"),
     (4, 3, Schedule.ONE_F_ONE_B, "microbatches")],
)  # fmt: skip
def test_what_cannot_be_interleaved_is_refused(stages, microbatches, schedule, field):
    with pytest.raises(InputError, match=field):
        pipeline_time([one(1, 2)] * stages, microbatches, schedule, interleave=2)


@given(st.integers(1, 6), st.integers(1, 9))
def test_a_stage_never_holds_more_than_the_stages_from_it_on(stages, microbatches):
    held, seen = [0] * stages, []
    for s, i, kind in pass_order(stages, microbatches):
        forward = kind is Pass.FORWARD
        held[s] += 1 if forward else -1
        assert 0 <= held[s] <= min(stages - s, microbatches)
        if forward:
            assert s == 0 or (s - 1, i, True) in seen
        else:
            assert ((s + 1, i, False) if s + 1 < stages else (s, i, True)) in seen
        seen.append((s, i, forward))
    assert len(set(seen)) == len(seen) == 2 * stages * microbatches


@given(st.integers(1, 6), st.integers(0, 6))
def test_as_many_microbatches_wait_for_gradients_of_weights_as_stages_are_before(stages, more):
    # qi2024zero, section 2.3: p in all on every stage, as with one forward, one backward.
    microbatches = stages + more
    held, most = [[0, 0] for _ in range(stages)], [[0, 0, 0] for _ in range(stages)]
    for s, _, kind in pass_order(stages, microbatches, Schedule.ZB_H1):
        own = held[s]
        own[0] += {Pass.FORWARD: 1, Pass.INPUTS: -1}.get(kind, 0)
        own[1] += {Pass.INPUTS: 1, Pass.WEIGHTS: -1}.get(kind, 0)
        assert min(own) >= 0
        most[s] = [max(a, b) for a, b in zip(most[s], (*own, sum(own)), strict=True)]
    assert most == [[stages - s, s + 1, stages] for s in range(stages)]
    assert held == [[0, 0]] * stages


def test_gradients_of_weights_wait_by_hand():
    # Two stages, two microbatches, F 1, B 2, W 1 s: F0 F1 on the first until 2; F0 B0 F1 B1 W0 W1
    # on the last until 4, 5, 7, 8, 9 (B0 from 2 to 4); B0 on the first until 6, W0 7, B1 9, W1 10.
    operation = Operation(name="op", forward=1.0, backward=3.0, weights=1.0)
    pipeline = [Stage(operations=(operation,))] * 2
    assert pipeline_time(pipeline, 2, Schedule.ZB_H1) == 10
    assert pipeline_time(pipeline, 2, Schedule.ONE_F_ONE_B) == 12


def test_taking_turns_has_the_bubble_of_gpipe():
    # narayanan2021megatron, section 2.2: the same idle time, fewer microbatches kept.
    assert pipeline_time([one(1, 2)] * 4, 8, Schedule.ONE_F_ONE_B) == (8 + 3) * 3


def test_taking_turns_pays_for_sends_on_the_way():
    # Two stages, two microbatches, by hand: F0 F1 wait B0 B1 on the first stage, with a send of 1
    # each way: F0 ends at 1, arrives at 2, F0 B0 on stage 1 until 5, back at 6, B0 until 8; F1
    # arrives at 3, F1 B1 on stage 1 until 8, back at 9, B1 until 11.
    pipeline = [one(1, 2, send=1), one(1, 2)]
    assert pipeline_time(pipeline, 2, Schedule.ONE_F_ONE_B) == 11


def one(forward, backward, send=0.0):
    operation = Operation(name="op", forward=forward, backward=backward)
    return Stage(operations=(operation,), send=send)


def test_one_stage_has_no_bubble():
    assert pipeline_time([one(1, 2)], 4) == 12


def test_the_bubble_is_that_of_gpipe():
    # m microbatches on s equal stages: (m + s - 1) (f + b), huang2019gpipe.
    assert pipeline_time([one(1, 2)] * 4, 8) == (8 + 3) * 3
