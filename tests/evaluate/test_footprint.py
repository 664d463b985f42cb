import json
from dataclasses import replace
from pathlib import Path

import pytest

from crosstack.errors import InfeasibleError
from crosstack.evaluate.footprint import (
    check_capacity,
    lstm_footprint,
    scores_do_not_fit,
    transformer_footprint,
)
from crosstack.evaluate.step_rules import StepRules
from crosstack.mapping.strategy import KernelSplit, Strategy, parse_strategy
from crosstack.workload.lstm import LstmModel
from crosstack.workload.named_steps import STEPS
from crosstack.workload.transformer_training import Recompute, Schedule, TransformerTraining

GOLDEN = Path(__file__).resolve().parents[3] / "shared/data/deepflow/golden.jsonl"
RELEASE = StepRules.deepflow_2025()
# The model of the configuration file that the recorded runs change.
SHAPE = {"batch_size": 2000, "vocab_size": 800_000, "num_layers": 2, "layer_size": 19968,
         "seq_len": 20}  # fmt: skip


def recorded():
    if not GOLDEN.exists():
        return [pytest.param(None, marks=pytest.mark.skip("the recorded runs are absent"))]
    rows = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
    return [
        pytest.param(r, id=r["id"])
        for r in rows
        if r["kind"] == "LSTM" and "mem_per_core_bytes" in r["output"]
    ]


@pytest.mark.parametrize("row", recorded())
def test_recorded_memory_is_reproduced(row):
    shape = SHAPE | row["model_overrides"]
    degrees = {d: row["hardware_overrides"].get(f"scheduling_param.{d}", 1)
               for d in ("kp1", "kp2", "dp", "lp")}  # fmt: skip
    split = row["hardware_overrides"].get("scheduling_param.t", "RC")
    model = LstmModel(
        batch=shape["batch_size"],
        sequence=shape["seq_len"],
        vocabulary=shape["vocab_size"],
        layers=shape["num_layers"],
        width=shape["layer_size"],
    )
    found = lstm_footprint(model, Strategy(split=KernelSplit(split), **degrees), 2, RELEASE)
    parts = [found.parts[name] for name in ("embedding", "cells", "softmax")]
    kinds = [found.weights, found.activations, found.scratch]
    assert [found.total, *parts, 0.0, *kinds] == row["output"]["mem_per_core_bytes"]


GPT3 = TransformerTraining(
    batch=64, sequence=2048, layers=96, hidden=12288, heads=96, feed_forward=49152,
    vocabulary=51200, microbatches=64,
)  # fmt: skip


def test_weights_and_adam_take_sixteen_bytes_each():
    # rajbhandari2020zero, section 3.1: 2 + 2 + 12 bytes a weight.
    found = transformer_footprint(GPT3, Strategy(), 2, StepRules())
    assert found.weights == pytest.approx(16 * GPT3.parameters)


def test_activations_are_those_of_the_source():
    # korthikanti2023reducing, equation 1: s b h (34 + 5 a s / h) bytes a layer.
    m = GPT3
    found = transformer_footprint(m, Strategy(), 2, StepRules())
    layer = m.sequence * m.batch * m.hidden * (34 + 5 * m.heads * m.sequence / m.hidden)
    assert found.activations == pytest.approx(96 * layer)


@pytest.mark.parametrize("more", ["RC-1-8-d1-p1", "CR-8-d1-p1", "RC-1-1-d8-p1", "RC-1-1-d1-p8"])
def test_more_chips_never_keep_more(more):
    alone = transformer_footprint(GPT3, Strategy(), 2, StepRules()).total
    assert transformer_footprint(GPT3, parse_strategy(more), 2, StepRules()).total < alone


def test_a_model_that_does_not_fit_is_infeasible_and_says_what_would_help():
    found = transformer_footprint(GPT3, Strategy(), 2, StepRules())
    with pytest.raises(InfeasibleError, match="main memory") as caught:
        check_capacity(found, 80e9, StepRules(), "GPT-3 on one chip")
    assert caught.value.demand == found.total
    assert len(caught.value.levers) == 3


def test_the_releases_go_on_with_a_model_that_does_not_fit():
    found = transformer_footprint(GPT3, Strategy(), 2, RELEASE)
    check_capacity(found, 80e9, RELEASE, "GPT-3 on one chip")
    assert found.total > 80e9


def test_the_last_stage_has_the_head_and_no_more_than_its_own_layers():
    model = replace(GPT3, layers=3, vocabulary=10**6)  # the head is larger than a layer
    found = transformer_footprint(model, Strategy(lp=2), 2.0, StepRules())
    one_layer = transformer_footprint(replace(model, layers=1), Strategy(), 2.0, StepRules())
    table = 16 * model.vocabulary * model.hidden
    assert found.total == pytest.approx(one_layer.total - table)


# korthikanti2023reducing, section 5: attention is 70 % and 65 % of a layer's activations.
@pytest.mark.parametrize(("name", "saved"), [("gpt3-175b", 0.70), ("gpt-530b", 0.65)])
def test_attention_computed_again_saves_what_the_source_says(name, saved):
    model = replace(STEPS[name], microbatches=STEPS[name].batch)
    strategy = Strategy(lp=model.layers)  # every stage has one layer
    kept, selective = (
        transformer_footprint(replace(model, recompute=r), strategy, 2, StepRules()).activations
        for r in (Recompute.NONE, Recompute.ATTENTION)
    )
    # What is computed again is alive for one microbatch: that comes on top.
    again = 2048 * model.heads * 2048 * 5
    assert 1 - (selective - again) / kept == pytest.approx(saved, abs=0.006)


def test_a_layer_computed_again_keeps_its_input():
    # korthikanti2023reducing, section 5: 2 s b h bytes a layer; and one layer's all, to compute it.
    m = replace(GPT3, recompute=Recompute.FULL)
    found = transformer_footprint(m, Strategy(), 2, StepRules()).activations
    one = m.sequence * m.hidden * (34 + 5 * m.heads * m.sequence / m.hidden)
    assert found == pytest.approx(96 * 2 * m.sequence * m.batch * m.hidden + one)


def test_taking_turns_keeps_as_many_microbatches_as_there_are_stages():
    # narayanan2021megatron, section 2.2: at most p in place of m.
    gpipe, turns = (
        transformer_footprint(
            replace(GPT3, schedule=schedule), Strategy(lp=8), 2, StepRules()
        ).activations
        for schedule in Schedule
    )
    assert turns == pytest.approx(gpipe * 8 / 64)


def test_what_does_not_fit_says_which_ways_to_run_it_keep_less():
    found = transformer_footprint(GPT3, Strategy(), 2, StepRules())
    instead = {
        "less": transformer_footprint(
            replace(GPT3, recompute=Recompute.FULL), Strategy(), 2, StepRules()
        ),
        "the same": found,
    }
    with pytest.raises(InfeasibleError) as caught:
        check_capacity(found, 80e9, StepRules(), "GPT-3 on one chip", lambda: instead)
    assert caught.value.levers[0].startswith("less, ")
    assert len(caught.value.levers) == 4


# mosaicml/llm-foundry@8c8dd48, scripts/train/benchmarking/README.md line 179: MPT-7B, 65,536
# tokens a sequence, 8 A100.
MPT = TransformerTraining(
    batch=16, sequence=65536, layers=32, hidden=4096, heads=32, feed_forward=16384,
    vocabulary=50368, microbatches=2, recompute=Recompute.FULL, name="MPT-7B",
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
    two = StepRules(kernels_at_once=2)
    error = scores_do_not_fit(MPT, parse_strategy("RC-1-1-d8-p1"), 2.0, 80e9, two)
    assert error.demand == 2 * 32 * 65536**2 * 2
    model = replace(MPT, batch=64, sequence=2048, microbatches=4, schedule=Schedule.ONE_F_ONE_B)
    one_kept, two_kept = (
        transformer_footprint(model, parse_strategy("RC-1-1-d8-p1"), 2.0, rules).activations
        for rules in (StepRules(), two)
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
