from dataclasses import replace

import pytest
from builders.steps import plain, reshaped

from crosstack.errors import InfeasibleError
from crosstack.evaluate.step_memory import (
    check_capacity,
    scores_do_not_fit,
    transformer_memory,
)
from crosstack.evaluate.step_settings import StepSettings
from crosstack.io.steps import step_named
from crosstack.mapping.strategy import Strategy, parse_strategy
from crosstack.workload.transformer_training import Recompute, Schedule, TransformerTraining

GPT3 = TransformerTraining(
    model=plain(layers=96, hidden=12288, heads=96, vocabulary=51200), batch=64, sequence=2048,
    microbatches=64,
)  # fmt: skip


def test_weights_and_adam_take_sixteen_bytes_each():
    # rajbhandari2020zero, section 3.1: 2 + 2 + 12 bytes a weight.
    found = transformer_memory(GPT3, Strategy(), 2, StepSettings())
    (stage,) = found.stages
    state = stage.weights + stage.gradients + stage.optimizer_state
    assert state == pytest.approx(16 * GPT3.model.parameters.total)


def test_activations_are_those_of_the_source():
    # korthikanti2023reducing, equation 1: s b h (34 + 5 a s / h) bytes a layer.
    m = GPT3
    found = transformer_memory(m, Strategy(), 2, StepSettings())
    layer = (
        m.sequence
        * m.batch
        * m.model.hidden
        * (34 + 5 * m.model.heads * m.sequence / m.model.hidden)
    )
    assert found.stages[0].activations == pytest.approx(96 * layer)


@pytest.mark.parametrize("more", ["RC-1-8-d1-p1", "CR-8-d1-p1", "RC-1-1-d8-p1", "RC-1-1-d1-p8"])
def test_more_chips_never_keep_more(more):
    alone = transformer_memory(GPT3, Strategy(), 2, StepSettings()).peak
    assert transformer_memory(GPT3, parse_strategy(more), 2, StepSettings()).peak < alone


def test_a_model_that_does_not_fit_is_infeasible_and_says_what_would_help():
    found = transformer_memory(GPT3, Strategy(), 2, StepSettings())
    with pytest.raises(InfeasibleError, match="main memory") as caught:
        check_capacity(found, 80e9, "GPT-3 on one chip")
    assert caught.value.demand == found.peak
    assert len(caught.value.levers) == 3


def test_the_last_stage_has_the_head_and_no_more_than_its_own_layers():
    model = reshaped(GPT3, layers=3, vocabulary=10**6)  # the head is larger than a layer
    found = transformer_memory(model, Strategy(lp=2), 2.0, StepSettings())
    one_layer = transformer_memory(reshaped(model, layers=1), Strategy(), 2.0, StepSettings())
    table = 16 * model.model.vocabulary * model.model.hidden
    assert found.peak == pytest.approx(one_layer.peak - table)


# korthikanti2023reducing, section 5: attention is 70 % and 65 % of a layer's activations.
@pytest.mark.parametrize(("name", "saved"), [("gpt3-175b", 0.70), ("gpt-530b", 0.65)])
def test_attention_computed_again_saves_what_the_source_says(name, saved):
    model = step_named(name, {"microbatches": step_named(name).batch})
    strategy = Strategy(lp=model.model.layers)  # every stage has one layer
    kept, selective = (
        transformer_memory(replace(model, recompute=r), strategy, 2, StepSettings())
        .stages[0]
        .activations
        for r in (Recompute.NONE, Recompute.ATTENTION)
    )
    # What is computed again is alive for one microbatch: that comes on top.
    again = 2048 * model.model.heads * 2048 * 5
    assert 1 - (selective - again) / kept == pytest.approx(saved, abs=0.006)


def test_a_layer_computed_again_keeps_its_input():
    # korthikanti2023reducing, section 5: 2 s b h bytes a layer; and one layer's all, to compute it.
    m = replace(GPT3, recompute=Recompute.FULL)
    found = transformer_memory(m, Strategy(), 2, StepSettings()).stages[0].activations
    one = m.sequence * m.model.hidden * (34 + 5 * m.model.heads * m.sequence / m.model.hidden)
    assert found == pytest.approx(96 * 2 * m.sequence * m.batch * m.model.hidden + one)


def test_taking_turns_keeps_as_many_microbatches_as_there_are_stages():
    # narayanan2021megatron, section 2.2: at most p in place of m.
    gpipe, turns = (
        transformer_memory(replace(GPT3, schedule=schedule), Strategy(lp=8), 2, StepSettings())
        .stages[0]
        .activations
        for schedule in Schedule
    )
    assert turns == pytest.approx(gpipe * 8 / 64)


def test_what_does_not_fit_says_which_ways_to_run_it_keep_less():
    found = transformer_memory(GPT3, Strategy(), 2, StepSettings())
    instead = {
        "less": transformer_memory(
            replace(GPT3, recompute=Recompute.FULL), Strategy(), 2, StepSettings()
        ),
        "the same": found,
    }
    with pytest.raises(InfeasibleError) as caught:
        check_capacity(found, 80e9, "GPT-3 on one chip", lambda: instead)
    assert caught.value.levers[0].startswith("less, ")
    assert len(caught.value.levers) == 4


# mosaicml/llm-foundry@8c8dd48, scripts/train/benchmarking/README.md line 179: MPT-7B, 65,536
# tokens a sequence, 8 A100.
MPT = TransformerTraining(
    model=plain(layers=32, hidden=4096, heads=32, vocabulary=50368, name="MPT-7B"), batch=16,
    sequence=65536, microbatches=2, recompute=Recompute.FULL,
)  # fmt: skip


def test_scores_that_exceed_the_memory_are_named_with_their_size_and_what_would_help():
    error = scores_do_not_fit(MPT, parse_strategy("RC-1-1-d8-p1"), 2.0, 80e9)
    assert error.demand == 1 * 32 * 65536**2 * 2  # one sequence at a time
    assert error.limit == 80e9
    assert "attention scores of MPT-7B" in error.where
    assert "32 heads x 65,536 x 65,536 tokens" in error.where
    assert error.levers == (
        "heads over 4 chips, such as RC-1-4-d1-p1",
        "sequences of at most 35,355 tokens",
        "memory of 274.9 GB a chip",
    )


def test_kernels_that_run_at_once_keep_a_microbatch_each():
    two = StepSettings(kernels_at_once=2)
    error = scores_do_not_fit(MPT, parse_strategy("RC-1-1-d8-p1"), 2.0, 80e9, two)
    assert error.demand == 2 * 32 * 65536**2 * 2
    model = replace(MPT, batch=64, sequence=2048, microbatches=4, schedule=Schedule.ONE_F_ONE_B)
    one_kept, two_kept = (
        transformer_memory(model, parse_strategy("RC-1-1-d8-p1"), 2.0, rules).stages[0].activations
        for rules in (StepSettings(), two)
    )
    assert two_kept == pytest.approx(2 * one_kept)


@pytest.mark.parametrize(
    ("changes", "strategy"),
    [
        ({"sequence": 35_355}, "RC-1-1-d8-p1"),
        ({}, "RC-1-4-d8-p1"),
        ({"batch": 16, "microbatches": 8, "sequence": 25_000}, "RC-1-1-d1-p1"),
    ],
)
def test_scores_fit_once_a_lever_is_pulled(changes, strategy):
    assert scores_do_not_fit(replace(MPT, **changes), parse_strategy(strategy), 2.0, 80e9) is None


def test_smaller_microbatches_are_a_lever_where_one_sequence_fits():
    model = replace(MPT, sequence=16384, batch=64, microbatches=2)
    error = scores_do_not_fit(model, parse_strategy("RC-1-1-d1-p1"), 2.0, 80e9)
    assert error.levers[0] == "more microbatches: at most 4 of 32 sequences at a time"
    fitting = replace(model, microbatches=16)
    assert scores_do_not_fit(fitting, parse_strategy("RC-1-1-d1-p1"), 2.0, 80e9) is None
