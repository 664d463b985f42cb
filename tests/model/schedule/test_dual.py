"""DualPipe: its order, what it takes beside what is published of it, and events."""

from __future__ import annotations

from collections import Counter

import pytest
from builders.bounded_pipelines import check_paths
from hypothesis import given, settings
from hypothesis import strategies as st

from crosstack.errors import InputError
from crosstack.machine.chip import Overlap
from crosstack.model.schedule.dual import dual_ends, dual_order, hidden_time, pair_time
from crosstack.model.schedule.dual_graph import dual_graph
from crosstack.model.schedule.events import simulate
from crosstack.model.schedule.passes import Operation, Pass, Stage
from crosstack.model.stages import Pipeline
from crosstack.workload.transformer_training import Schedule


def stage(forward, backward, weights, tokens=(0.0, 0.0), send=0.0, taken=0.0):
    one = Operation(
        name="layers", forward=forward, backward=backward, weights=weights, tokens=tokens
    )
    return Stage(operations=(one,), send=send, taken=taken)


@pytest.mark.parametrize(("stages", "microbatches"), [(2, 4), (4, 8), (8, 20), (16, 60)])
def test_the_bubble_of_equal_passes_is_the_published_one(stages, microbatches):
    # deepseek2024v3, table 2: (PP/2 - 1)(F&B + B - 3W), F = 1, B = 2, W = 1, F&B = F + B.
    bubble = (stages / 2 - 1) * (3 + 2 - 3 * 1)
    ends = dual_ends([stage(1.0, 2.0, 1.0)] * stages, microbatches)
    assert max(ends) == pytest.approx(microbatches * 3 + bubble, rel=1e-12)


def test_a_pair_takes_its_longer_half_and_what_communication_takes_of_the_chip():
    # 1 + 2 s, of which tokens 0.4 + 0.8 s; a tenth of the chip sends: 1.8 + 0.1 x 1.2 s.
    one = stage(1.0, 2.0, 1.0, tokens=(0.4, 0.8), taken=0.1)
    assert pair_time(one, one) == pytest.approx(1.92, rel=1e-12)
    # Tokens that take longer than all else are waited for: 0.9 + 1.7 s.
    sends = stage(1.0, 2.0, 1.0, tokens=(0.9, 1.7), taken=0.1)
    assert pair_time(sends, sends) == pytest.approx(2.6, rel=1e-12)


@pytest.mark.parametrize(("chips", "microbatches"), [(2, 4), (4, 8), (6, 18), (8, 16)])
def test_every_pass_of_every_microbatch_is_run_once(chips, microbatches):
    for chip in range(chips // 2):
        parts = [part for some in dual_order(chip, chips, microbatches) for part in some]
        counts = Counter(part.kind for part in parts)
        assert counts[Pass.FORWARD] == microbatches
        assert counts[Pass.BACKWARD] + counts[Pass.INPUTS] == microbatches
        assert counts[Pass.INPUTS] == counts[Pass.WEIGHTS]
        assert len({*parts}) == len(parts)


@pytest.mark.parametrize("more", [0, 2, 14])
@pytest.mark.parametrize("chips", [2, 4, 6, 12])
def test_a_chip_in_the_middle_runs_what_the_bound_says(chips, more):
    # what `crosstack.model.end_paths.dual_paths` is made of
    order = list(dual_order(chips // 2 - 1, chips, 2 * chips + more))
    alone = Counter(kind.step for (_, _, kind), *others in order if not others)
    assert (alone[1], alone[-1]) == (chips + 1, chips + 1)
    backward = [any(part.kind.step < 0 for part in parts) for parts in order]
    last = len(order) - 1 - backward[::-1].index(True)
    assert [part.phase for part in order[last]] == [0]  # from there it goes up to the first chip
    assert [parts[0].kind for parts in order[last + 1 :]] == [Pass.WEIGHTS] * (chips // 2)


@pytest.mark.parametrize("chips", [2, 4, 8])
def test_a_chip_keeps_one_microbatch_more_than_there_are_stages(chips):
    # deepseek2024v3, table 2: activations PP + 1.
    for chip in range(chips // 2):
        held = most = 0
        for parts in dual_order(chip, chips, 4 * chips):
            kinds = [part.kind for part in parts]
            held += kinds.count(Pass.FORWARD)
            most = max(most, held)
            held -= kinds.count(Pass.BACKWARD) + kinds.count(Pass.INPUTS)
        assert most == chips + 1
        assert held == 0


times = st.sampled_from([0.0, 0.2, 0.5, 1.0, 1.7])
uneven = st.tuples(times, times, times, times, times).map(
    lambda t: stage(
        t[0], max(t[1], t[2]), min(t[1], t[2]),
        tokens=(min(t[0], t[3]), min(t[4], t[1], t[2])), send=t[3] / 4, taken=0.15,
    )
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3).flatmap(lambda n: st.lists(uneven, min_size=2 * n, max_size=2 * n)),
       st.integers(0, 3))  # fmt: skip
def test_the_closed_form_is_what_the_tasks_take(stages, more):
    microbatches = 2 * len(stages) + 2 * more
    ran = simulate(dual_graph(stages, microbatches)).makespan
    assert max(dual_ends(stages, microbatches)) == pytest.approx(ran, rel=1e-12, abs=1e-12)


@st.composite
def pipelines(draw):
    half, layers = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    forward, weights = draw(st.sampled_from([0.25, 1 / 3])), draw(st.sampled_from([0.1, 0.3]))
    both = draw(st.sampled_from([0.0, 0.2, 0.5]))
    first, last = draw(times), draw(times)
    fewer = [draw(st.integers(0, layers - 1)) / layers for _ in range(2)]
    return Pipeline(
        stages=2 * half,
        microbatches=4 * half + 2 * draw(st.integers(0, 4)),
        layers=layers,
        transfer=draw(times) / 5,
        overlap=Overlap.ALL,
        training=True,
        schedule=Schedule.DUALPIPE,
        forward=forward,
        weight_gradients=weights,
        first=(first / 3, first),
        last=(last / 3, last),
        fewer=(fewer[0], fewer[1]),
        tokens=(both, both),
        tokens_forward=forward,
        first_tokens=(first / 6, first / 2),
        taken=0.15,
    )


@settings(max_examples=150, deadline=None)
@given(pipelines(), st.sampled_from([1.0, 3.0]), st.sampled_from([0.0, 0.4, 1.0]))
def test_no_path_is_longer_than_the_iteration(pipeline, work, least):
    check_paths(pipeline, work, least)


def test_what_is_hidden_is_what_pairs_take_less():
    # Two stages, four microbatches: 4 passes each way; the chip's first pair waits, three are left
    # of which one is not overlapped: pairs take 3 - 1.2 x 0.85 s.
    stages = [stage(1.0, 2.0, 1.0, tokens=(0.4, 0.8), taken=0.15)] * 2
    pairs = sum(len(parts) == 2 for parts in dual_order(0, 2, 4))
    assert hidden_time(stages, 0, 4) == pytest.approx(pairs * 0.85 * 1.2, rel=1e-12)


@pytest.mark.parametrize(("stages", "microbatches"), [(3, 8), (4, 6), (4, 9)])
def test_odd_stages_or_few_microbatches_are_refused(stages, microbatches):
    with pytest.raises(InputError, match="for DualPipe"):
        dual_ends([stage(1.0, 2.0, 1.0)] * stages, microbatches)
