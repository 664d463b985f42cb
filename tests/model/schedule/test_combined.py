"""Combined 1F1B: what runs together, what an iteration takes by hand, and events."""

from __future__ import annotations

from collections import Counter

import pytest
from builders.bounded_pipelines import RULES, check_paths
from hypothesis import given, settings
from hypothesis import strategies as st

from crosstack.errors import InputError
from crosstack.machine.chip import Overlap
from crosstack.model.iteration import exact_time
from crosstack.model.schedule.combined import combined_ends, combined_order, hidden_in_pairs
from crosstack.model.schedule.events import simulate
from crosstack.model.schedule.in_flight import in_flight
from crosstack.model.schedule.passes import Operation, Pass, Stage
from crosstack.model.schedule.pipeline import pipeline_time
from crosstack.model.schedule.pipeline_graph import pipeline_graph
from crosstack.model.stages import Pipeline
from crosstack.workload.transformer_training import Schedule


def stage(forward, backward, tokens=(0.0, 0.0), send=0.0, taken=0.0):
    one = Operation(name="layers", forward=forward, backward=backward, tokens=tokens)
    return Stage(operations=(one,), send=send, taken=taken)


def test_one_stage_takes_its_first_and_its_last_pass_by_themselves():
    # nvidia_combined_1f1b: four microbatches in five phases. 1 s forward, 2 s backward, of which
    # tokens 0.4 and 0.8 s, a tenth of the chip: 1 + 3 (3 - 0.9 x 1.2) + 2 s.
    one = stage(1.0, 2.0, tokens=(0.4, 0.8), taken=0.1)
    order = combined_order(0, 1, 4, 1)
    assert [len(items) for items in order] == [1, 2, 2, 2, 1]
    assert combined_ends([one], 4, 1) == pytest.approx([1 + 3 * 1.92 + 2], rel=1e-12)


@pytest.mark.parametrize(
    ("chips", "microbatches", "pieces"),
    [(1, 1, 1), (1, 5, 1), (2, 4, 2), (4, 8, 3), (3, 3, 2)],
)
def test_every_pass_of_every_microbatch_is_run_once(chips, microbatches, pieces):
    for chip in range(chips):
        order = combined_order(chip, chips, microbatches, pieces)
        items = [item for some in order for item in some]
        counts = Counter(kind for _, _, kind in items)
        assert counts == dict.fromkeys((Pass.FORWARD, Pass.BACKWARD), microbatches * pieces)
        assert len({*items}) == len(items)
        for some in order:
            assert len({i for _, i, _ in some} | {s for s, _, _ in some}) > 1 or len(some) == 1


@pytest.mark.parametrize(("chips", "pieces"), [(1, 1), (2, 2), (4, 2), (4, 3)])
def test_a_chip_keeps_as_many_pieces_as_are_forward_and_not_yet_backward(chips, pieces):
    microbatches = 6 * chips
    for chip in range(chips):
        held = most = 0
        for items in combined_order(chip, chips, microbatches, pieces):
            kinds = [kind for _, _, kind in items]
            held += kinds.count(Pass.FORWARD)
            most = max(most, held)
            held -= kinds.count(Pass.BACKWARD)
        counts = {"stages": chips, "microbatches": microbatches, "interleave": pieces}
        said = in_flight(chip, **counts, schedule=Schedule.COMBINED)
        assert float(said) * pieces == pytest.approx(most, rel=1e-12)


@pytest.mark.parametrize(("chips", "microbatches", "pieces"), [(2, 4, 2), (4, 8, 2), (4, 16, 3)])
def test_passes_that_send_no_tokens_take_as_long_as_one_by_one_but_for_the_way(
    chips, microbatches, pieces
):
    # All alike: the last chip is passed by all work, and by the way down and up once.
    stages = [stage(1.0, 2.0)] * (chips * pieces)
    took = pipeline_time(stages, microbatches, Schedule.COMBINED, interleave=pieces)
    usual = pipeline_time(stages, microbatches, interleave=pieces, schedule=Schedule.ONE_F_ONE_B)
    assert took >= usual
    assert took == pytest.approx(3.0 * (microbatches * pieces + chips - 1), rel=1e-12)


times = st.sampled_from([0.0, 0.2, 0.5, 1.0, 1.7])
uneven = st.tuples(times, times, times, times, times).map(
    lambda t: stage(
        t[0], t[1], tokens=(min(t[0], t[2]), min(t[1], t[3])), send=t[4] / 4, taken=0.15
    )
)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([(1, 1), (2, 2), (2, 3), (3, 2), (4, 2)]).flatmap(
        lambda n: st.tuples(
            st.just(n), st.lists(uneven, min_size=n[0] * n[1], max_size=n[0] * n[1])
        )
    ),
    st.integers(1, 3),
)
def test_levels_are_what_the_tasks_take(drawn, rounds):
    (chips, pieces), stages = drawn
    microbatches = chips * rounds
    graph = pipeline_graph(stages, microbatches, Schedule.COMBINED, interleave=pieces)
    took = max(combined_ends(stages, microbatches, pieces))
    assert took == pytest.approx(simulate(graph).makespan, rel=1e-12, abs=1e-12)


@st.composite
def pipelines(draw):
    chips = draw(st.sampled_from([1, 2, 3, 4]))
    pieces = 1 if chips == 1 else draw(st.sampled_from([2, 3]))
    both, first, last = draw(st.sampled_from([0.0, 0.2, 0.5, 0.9])), draw(times), draw(times)
    forward = draw(st.sampled_from([0.25, 1 / 3]))
    return Pipeline(
        stages=chips,
        microbatches=chips * draw(st.integers(1, 5)),
        layers=pieces * draw(st.integers(1, 3)),
        transfer=draw(times) / 10,
        overlap=draw(st.sampled_from([Overlap.ALL, Overlap.NONE])),
        training=True,
        schedule=Schedule.COMBINED,
        interleave=pieces,
        forward=forward,
        first=(first / 3, first),
        last=(last / 3, last),
        tokens=(both, both),
        tokens_forward=forward,
        first_tokens=(first / 6, first / 2),
        last_tokens=(last / 8, last / 4),
        taken=0.15,
    )


@settings(max_examples=300, deadline=None)
@given(pipelines(), st.sampled_from([1.0, 3.0]), st.sampled_from([0.0, 0.4, 1.0]))
def test_no_path_is_longer_than_the_iteration(pipeline, work, least):
    check_paths(pipeline, work, least)


@settings(max_examples=100, deadline=None)
@given(pipelines(), st.sampled_from([1.0, 3.0]))
def test_an_iteration_takes_as_long_as_its_tasks(pipeline, work):
    count = pipeline.stages * pipeline.interleave
    pieces, sent = pipeline.interleave, pipeline.transfer / 2 if pipeline.stages > 1 else 0.0
    beside = pipeline.overlap is Overlap.ALL
    stages = []
    for s in range(count):
        there, back = work * pipeline.forward / pieces, work * (1 - pipeline.forward) / pieces
        share = pipeline.tokens_forward
        tokens = [pipeline.tokens[1] / pieces * x for x in (share, 1 - share)]
        there += sent * (not beside) * (s < count - 1)
        back += sent * (not beside) * (s > 0)
        for at, end, some in (
            (0, pipeline.first, pipeline.first_tokens),
            (count - 1, pipeline.last, pipeline.last_tokens),
        ):
            if s == at:
                there, back = there + end[0], back + end[1] - end[0]
                tokens = [tokens[0] + some[0], tokens[1] + some[1] - some[0]]
        send = sent if beside else 0.0
        stages.append(stage(there, back, tokens=tuple(tokens), send=send, taken=0.15))
    graph = pipeline_graph(
        stages, pipeline.microbatches, Schedule.COMBINED, interleave=pipeline.interleave
    )
    took = simulate(graph).makespan
    assert exact_time(pipeline, work, RULES) == pytest.approx(took, rel=1e-12)


def test_what_is_hidden_is_what_pairs_take_less():
    stages = [stage(1.0, 2.0, tokens=(0.4, 0.8), taken=0.15)] * 4
    pairs = sum(len(items) == 2 for items in combined_order(0, 2, 4, 2))
    assert hidden_in_pairs(stages, 0, 4, 2) == pytest.approx(pairs * 0.85 * 1.2, rel=1e-12)


def test_several_stages_of_one_piece_each_are_refused():
    with pytest.raises(InputError, match="at least 2 with 2 stages"):
        combined_ends([stage(1.0, 2.0)] * 2, 4, 1)
