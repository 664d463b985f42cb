from dataclasses import replace

import pytest
from builders.steps import plain, reshaped
from hypothesis import given
from hypothesis import strategies as st
from oracles.links import alike, ring

from crosstack.errors import InputError
from crosstack.evaluate.distributed import Distributed
from crosstack.evaluate.transformer_step import transformer_step
from crosstack.io.steps import step_named
from crosstack.mapping.strategy import ParallelDimension, parse_strategy, strategies
from crosstack.model.collectives import NONE, Arrival
from crosstack.workload.transformer_training import Recompute, Schedule, TransformerTraining

MODEL = TransformerTraining(
    model=plain(layers=4, hidden=32, heads=4, feed_forward=64, vocabulary=128), batch=16, sequence=8
)


class Plain:
    """One FLOP and one byte take a nanosecond."""

    element_size = 2.0
    launch_overhead = 1e-6
    arrival = Arrival(moving=1e-9, adding=0.5e-9, launch=1e-6)

    def product(self, m, k, n, batch=1):
        each = (m * k + k * n + m * n) * self.element_size if batch > 1 else 0
        return max(2e-9 * batch * m * k * n, self.elementwise(0, batch * each)) + (
            self.launch_overhead
        )

    def elementwise(self, work, traffic):
        return 1e-9 * (work + traffic)


class Free(Plain):
    """Products alone take time."""

    launch_overhead = 0.0
    arrival = NONE

    def elementwise(self, work, traffic):
        return 0.0


def step(text, model=MODEL, bandwidth=1e9, times=None):
    strategy = parse_strategy(text)
    links = alike(strategy, bandwidth, 1e-6)
    chips = Distributed(strategy=strategy, times=times or Plain(), links=links)
    return transformer_step(model, chips)


def test_products_of_one_chip_do_six_operations_a_weight_and_token():
    # Forward and backward: 6 FLOP for each weight and token, and 12 s d for attention
    # (korthikanti2023reducing, appendix A), all layers and the head.
    m = MODEL
    tokens = m.batch * m.sequence
    weights = m.model.parameters.total - m.model.parameters.embedding - m.model.parameters.norms
    work = 6 * tokens * weights + 12 * tokens * m.sequence * m.model.hidden * m.model.layers
    assert step("RC-1-1-d1-p1", times=Free()).time == pytest.approx(1e-9 * work)


fitting = [
    s for n in (1, 2, 4, 8, 16) for s in strategies(n, max_lp=4)
    if s.kp1 <= 4 and s.kp2 <= 4 and s.dp * s.kp1 <= 16
]  # fmt: skip


@given(st.sampled_from(fitting), st.sampled_from([1, 2]))
def test_the_closed_form_is_what_the_tasks_take(strategy, microbatches):
    if 16 // strategy.dp // microbatches % strategy.kp1 or 16 // strategy.dp % microbatches:
        return
    found = step(str(strategy), model=replace(MODEL, microbatches=microbatches))
    assert found.timeline().makespan == pytest.approx(found.time, rel=1e-12)


def test_a_stage_hands_over_by_its_own_link():
    strategy = parse_strategy("RC-1-1-d1-p4")
    own = tuple(ring(4, b * 1e9, 1.0) for b in (4, 1, 2, 8))
    chips = Distributed(
        strategy=strategy,
        times=Free(),
        links=alike(strategy, 1.0),
        stage_links=own,
    )
    found = transformer_step(MODEL, chips)
    size = 1e-9 * Free.element_size * MODEL.batch * MODEL.sequence * MODEL.model.hidden
    sends = [stage.send for stage in found.stages]
    assert sends == pytest.approx([1 + size / b for b in (4, 1, 2, 8)])
    assert found.time == pytest.approx(found.timeline().makespan)


@pytest.mark.parametrize(
    "text", ["RC-4-1-d1-p1", "RC-1-4-d1-p1", "RC-2-2-d1-p1", "CR-4-d1-p1", "RC-1-1-d4-p1"]
)
def test_four_chips_with_free_links_take_a_quarter_of_the_products(text):
    strategy = parse_strategy(text)
    chips = Distributed(strategy=strategy, times=Free(), links=alike(strategy, 1e300))
    alone = step("RC-1-1-d1-p1", times=Free()).time
    assert transformer_step(MODEL, chips).time == pytest.approx(alone / 4)


def test_microbatches_shrink_the_bubble():
    times = [
        step("RC-1-1-d1-p4", model=replace(MODEL, microbatches=m), times=Free()).time
        for m in (1, 2, 4)
    ]
    assert times == sorted(times, reverse=True)


def test_slower_links_never_make_a_step_faster():
    for text in ("RC-2-2-d2-p2", "CR-4-d4-p1"):
        times = [step(text, bandwidth=b).time for b in (1e6, 1e7, 1e8, 1e9)]
        assert times == sorted(times, reverse=True)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("RC-1-1-d1-p5", "layers"),
        ("RC-1-8-d1-p1", "heads"),
        ("CR-8-d1-p1", "heads"),
        ("RC-3-1-d1-p1", "sequences"),
    ],
)
def test_a_strategy_that_cannot_split_the_model_is_refused(text, what):
    with pytest.raises(InputError, match=what):
        step(text)


@pytest.mark.parametrize(("layers", "lp", "each"), [(10, 4, [3, 3, 2, 2]), (9, 8, [2] + [1] * 7)])
def test_stages_hold_layers_as_evenly_as_can_be(layers, lp, each):
    found = step(f"RC-1-1-d1-p{lp}", model=reshaped(MODEL, layers=layers)).stages
    names = [{name.split()[1] for name in s.names if name.startswith("layer")} for s in found]
    assert [len(numbers) for numbers in names] == each
    assert len(set.union(*names)) == layers


@pytest.mark.parametrize("name", ["gpt3-175b", "gpt-530b"])
def test_attention_computed_again_is_its_forward_work(name):
    # Scores and weighted values, two products of 2 s^2 d each, for every sequence and layer.
    model = replace(step_named(name), batch=1)
    again = replace(model, recompute=Recompute.ATTENTION)
    times = [step("RC-1-1-d1-p1", model=m, times=Free()).time for m in (model, again)]
    work = 4 * model.sequence**2 * model.model.hidden * model.model.layers
    assert times[1] - times[0] == pytest.approx(1e-9 * work)


@pytest.mark.parametrize("text", ["RC-1-1-d1-p1", "RC-2-2-d1-p1", "CR-2-d2-p1"])
def test_layers_computed_again_run_forward_once_more(text):
    kept = step(text)
    full = step(text, model=replace(MODEL, recompute=Recompute.FULL))
    (stage,) = kept.stages
    ends = stage.operations[0].forward + stage.operations[-1].forward
    assert full.stages[0].forward == stage.forward
    assert full.stages[0].backward == pytest.approx(stage.backward + stage.forward - ends)


def test_the_output_of_attention_is_not_gathered_again():
    gathers = {r: step("RC-1-4-d1-p1", model=replace(MODEL, recompute=r)) for r in Recompute}
    backward = {r: found.stages[0].backward for r, found in gathers.items()}
    strategy = parse_strategy("RC-1-4-d1-p1")
    links = alike(strategy, 1e9, 1e-6)
    chips = Distributed(strategy=strategy, times=Plain(), links=links)
    gather = chips.all_gather(
        MODEL.batch * MODEL.sequence, MODEL.model.hidden, ParallelDimension.KP2
    )
    core = [o for o in gathers[Recompute.NONE].stages[0].operations
            if o.name in ("scores", "softmax", "values")]  # fmt: skip
    expected = sum(o.forward for o in core) - MODEL.model.layers * gather
    more = backward[Recompute.ATTENTION] - backward[Recompute.NONE]
    assert more == pytest.approx(expected)


@pytest.mark.parametrize("text", ["RC-1-2-d2-p2", "CR-2-d1-p4", "RC-2-1-d1-p3"])
def test_taking_turns_has_its_timeline(text):
    model = replace(MODEL, batch=32, microbatches=8, schedule=Schedule.ONE_F_ONE_B)
    found = step(text, model=model)
    assert found.timeline().makespan == pytest.approx(found.time, rel=1e-12)


@pytest.mark.parametrize("field", ["recompute", "schedule"])
def test_a_word_that_is_no_choice_is_refused(field):
    with pytest.raises(InputError, match=field):
        replace(MODEL, **{field: "some"})


def test_the_activation_is_read_and_written_between_the_feed_forward_products():
    (stage,) = step("RC-1-4-d1-p1").stages
    names = [o.name for o in stage.operations]
    at = names.index("activation")
    assert names[at - 1 : at + 2] == ["feed-forward 1", "activation", "feed-forward 2"]
    own = MODEL.batch * MODEL.sequence * MODEL.model.feed_forward / 4
    found = stage.operations[at]
    assert found.forward == pytest.approx(1e-9 * own * (9 + 2 * 2) + 1e-6)
    assert found.backward == pytest.approx(1e-9 * own * (18 + 3 * 2) + 1e-6)
