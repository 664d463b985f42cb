from __future__ import annotations

import json

import pytest

from crosstack.errors import InputError
from crosstack.io import library
from crosstack.io.steps import step_named
from crosstack.workload.lstm import LstmModel
from crosstack.workload.published_steps import BATCHES, LSTMS
from crosstack.workload.transformer_training import Schedule, TransformerTraining


@pytest.mark.parametrize("name", BATCHES)
def test_a_published_batch_is_that_of_a_model_of_the_library(name):
    published = BATCHES[name]
    assert published.source in library.references()
    step = step_named(name)
    assert step.batch == published.batch
    if name in library.names("images"):
        assert step.model is library.image_model(name)
        assert (published.sequence, step.optimizer.name) == (None, published.optimizer)
        return
    assert step.model is library.model(name)
    assert step.sequence == published.sequence <= step.model.context


# korthikanti2023reducing, table 3: layers, hidden size, heads, batch; parameters in billions.
@pytest.mark.parametrize(
    ("name", "layers", "hidden", "heads", "batch", "billions"),
    [
        ("gpt-22b", 48, 6144, 64, 4, 22),
        ("gpt3-175b", 96, 12288, 96, 64, 175),
        ("gpt-530b", 105, 20480, 128, 280, 530),
        ("gpt-1t", 128, 25600, 160, 512, 1008),
    ],
)
def test_the_models_of_the_measured_steps_are_those_of_table_3(
    name, layers, hidden, heads, batch, billions
):
    step = step_named(name)
    model = step.model
    assert (model.layers, model.hidden, model.heads, step.batch) == (layers, hidden, heads, batch)
    assert (model.feed_forward, model.vocabulary, step.sequence) == (4 * hidden, 51200, 2048)
    assert model.parameters.total == pytest.approx(billions * 1e9, rel=4e-3)


def test_changes_are_taken_and_words_stand_for_choices():
    step = step_named("gpt-22b", {"batch": 8, "schedule": "1f1b", "interleave": None})
    assert isinstance(step, TransformerTraining)
    assert (step.batch, step.sequence, step.schedule) == (8, 2048, Schedule.ONE_F_ONE_B)


def test_an_lstm_is_known_by_name():
    step = step_named("lstm-lm", {"batch": 3})
    assert isinstance(step, LstmModel)
    assert (step.batch, step.width) == (3, LSTMS["lstm-lm"].width)


def test_what_is_not_published_is_required():
    with pytest.raises(InputError) as refused:
        step_named("gemma-7b", {"microbatches": 2})
    assert [problem.path for problem in refused.value.problems] == ["batch", "sequence"]
    assert "required" in str(refused.value)
    assert step_named("gemma-7b", {"batch": 4, "sequence": 8192}).name == "Gemma 7B"


def test_a_file_is_a_model_as_well(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({
        "model_type": "llama", "hidden_size": 768, "num_hidden_layers": 2,
        "num_attention_heads": 12, "intermediate_size": 3072, "vocab_size": 32000,
        "max_position_embeddings": 2048, "hidden_act": "silu", "tie_word_embeddings": False,
    }))  # fmt: skip
    step = step_named(str(path), {"batch": 4, "sequence": 128})
    assert step.model.parameters == library.model("llama-68m").parameters


@pytest.mark.parametrize(
    ("name", "nearest"), [("llama3-70", "llama3-70b"), ("lstm-lm-40", "lstm-lm-40k")]
)
def test_a_name_that_is_not_known_is_refused_with_the_nearest(name, nearest):
    with pytest.raises(InputError, match=f'^model: no model is called .*Did you mean "{nearest}"'):
        step_named(name)
