from __future__ import annotations

import json

import pytest

from crosstack.errors import InputError
from crosstack.io import library
from crosstack.io.transformers import transformer
from crosstack.published.dfmodel.graphs.serving import decode

# That of JackFram/llama-68m.
CONFIG = {
    "model_type": "llama", "hidden_size": 768, "num_hidden_layers": 2, "num_attention_heads": 12,
    "intermediate_size": 3072, "vocab_size": 32000, "max_position_embeddings": 2048,
    "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    return path


def test_a_name_and_a_file_say_the_same_model(config):
    named, read = transformer("llama-68m"), transformer(str(config))
    assert named is library.model("llama-68m")
    assert named.parameters == read.parameters
    assert decode(named, context=64).graph == decode(read, context=64).graph


def test_a_name_that_is_not_known_is_refused_with_the_nearest():
    with pytest.raises(InputError, match='^model: no model is called .*Did you mean "llama3-70b"'):
        transformer("llama3-70")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "config.json: line 1, column 2: not JSON"),
        ('{"model_type": "mamba"}', "config.json: model_type: no architecture is called"),
        (json.dumps(CONFIG | {"hidden_size": 0}), "config.json: hidden_size: got 0"),
    ],
)
def test_a_file_that_is_no_model_is_refused_by_its_place(config, text, says):
    config.write_text(text)
    with pytest.raises(InputError) as refused:
        transformer(str(config))
    assert says in str(refused.value)


def test_a_file_that_is_not_there_is_refused_by_its_path(tmp_path):
    with pytest.raises(InputError) as refused:
        transformer(str(tmp_path / "none.json"))
    assert str(refused.value) == f"model {tmp_path / 'none.json'}: no such file."
