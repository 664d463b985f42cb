"""Claims about the reader of ``config.json``: facts of published files, entered by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from crosstack.errors import InputError
from crosstack.io import library
from crosstack.io.huggingface import ARCHITECTURES, is_config, read_config
from crosstack.workload.architectures import Activation, NormPlace, Position, Transformer

SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
         "intermediate_size", "vocab_size", "max_position_embeddings")  # fmt: skip


def sized(kind: str, *sizes: int, **others: Any) -> dict[str, Any]:
    return {"model_type": kind} | dict(zip(SIZES, sizes, strict=True)) | others


LATENT = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
QWEN3 = {"head_dim": 128, "sliding_window": None, "use_sliding_window": False}
FIVE_OF_SIX = ["sliding_attention"] * 5 + ["full_attention"]
# Model of the library -> what its publisher's file says (source: hugging_face, the repository that
# the library names), fields left out that the file leaves out.
PUBLISHED: dict[str, dict[str, Any]] = {
    "llama2-7b": sized("llama", 4096, 32, 32, 32, 11008, 32000, 4096, hidden_act="silu"),
    "llama3-70b": sized(
        "llama", 8192, 80, 64, 8, 28672, 128256, 8192, attention_bias=False,
        tie_word_embeddings=False, rope_theta=500000.0,
    ),
    "llama3.2-1b": sized(
        "llama", 2048, 16, 32, 8, 8192, 128256, 131072, head_dim=64, tie_word_embeddings=True
    ),
    "mistral-7b": sized("mistral", 4096, 32, 32, 8, 14336, 32000, 32768, sliding_window=4096),
    "mixtral-8x7b": sized(
        "mixtral", 4096, 32, 32, 8, 14336, 32000, 32768, sliding_window=None,
        num_local_experts=8, num_experts_per_tok=2,
    ),
    "mistral-nemo": sized(
        "mistral", 5120, 40, 32, 8, 14336, 131072, 131072, head_dim=128, sliding_window=None
    ),
    "phi-4": sized("phi3", 5120, 40, 40, 10, 17920, 100352, 16384, sliding_window=None),
    "gpt-oss-120b": sized(
        "gpt_oss", 2880, 36, 64, 8, 2880, 201088, 131072, head_dim=64, attention_bias=True,
        sliding_window=128, layer_types=["sliding_attention", "full_attention"] * 18,
        num_local_experts=128, num_experts_per_tok=4, tie_word_embeddings=False,
    ),
    "gpt-oss-20b": sized(
        "gpt_oss", 2880, 24, 64, 8, 2880, 201088, 131072, head_dim=64, num_local_experts=32,
        num_experts_per_tok=4,
    ),
    "qwen2.5-0.5b": sized(
        "qwen2", 896, 24, 14, 2, 4864, 151936, 32768, sliding_window=32768, max_window_layers=24,
        use_sliding_window=False, tie_word_embeddings=True,
    ),
    "qwen2.5-72b": sized(
        "qwen2", 8192, 80, 64, 8, 29568, 152064, 131072, sliding_window=131072,
        max_window_layers=80, use_sliding_window=False, tie_word_embeddings=False,
    ),
    "qwen3-32b": sized("qwen3", 5120, 64, 64, 8, 25600, 151936, 40960, **QWEN3),
    "qwen3-30b-a3b": sized(
        "qwen3_moe", 2048, 48, 32, 4, 6144, 151936, 40960, **QWEN3, num_experts=128,
        num_experts_per_tok=8, moe_intermediate_size=768, decoder_sparse_step=1,
        mlp_only_layers=[],
    ),
    "gemma-2b": sized(
        "gemma", 2048, 18, 8, 1, 16384, 256000, 8192, hidden_act="gelu", head_dim=256
    ),
    "gemma2-27b": sized(
        "gemma2", 4608, 46, 32, 16, 36864, 256000, 8192, head_dim=128, sliding_window=4096,
        hidden_activation="gelu_pytorch_tanh", attn_logit_softcapping=50.0,
        final_logit_softcapping=30.0,
    ),
    "gemma3-1b": sized(
        "gemma3_text", 1152, 26, 4, 1, 6912, 262144, 32768, head_dim=256, sliding_window=512,
        sliding_window_pattern=6, hidden_activation="gelu_pytorch_tanh",
    ),
    "gemma3-4b": {
        "model_type": "gemma3",
        "text_config": {
            "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
            "model_type": "gemma3_text", "sliding_window": 1024,
        },
        "vision_config": {"hidden_size": 1152},
    },
    "deepseek-v2-lite": sized(
        "deepseek_v2", 2048, 27, 16, 16, 10944, 102400, 163840, **LATENT, q_lora_rank=None,
        n_routed_experts=64, n_shared_experts=2, num_experts_per_tok=6,
        moe_intermediate_size=1408, moe_layer_freq=1, first_k_dense_replace=1,
    ),
    "deepseek-v3": sized(
        "deepseek_v3", 7168, 61, 128, 128, 18432, 129280, 163840, **LATENT, q_lora_rank=1536,
        n_routed_experts=256, n_shared_experts=1, num_experts_per_tok=8,
        moe_intermediate_size=2048, moe_layer_freq=1, first_k_dense_replace=3,
        topk_method="noaux_tc", num_nextn_predict_layers=1, n_group=8, topk_group=4,
    ),
    "kimi-k2": sized(
        "kimi_k2", 7168, 61, 64, 64, 18432, 163840, 131072, **LATENT, q_lora_rank=1536,
        n_routed_experts=384, n_shared_experts=1, num_experts_per_tok=8,
        moe_intermediate_size=2048, moe_layer_freq=1, first_k_dense_replace=1,
        topk_method="noaux_tc", num_nextn_predict_layers=0, n_group=1, topk_group=1,
    ),
    "glm-4.5": sized(
        "glm4_moe", 5120, 92, 96, 8, 12288, 151552, 131072, head_dim=128, attention_bias=True,
        use_qk_norm=True, n_routed_experts=160, n_shared_experts=1, num_experts_per_tok=8,
        moe_intermediate_size=1536, first_k_dense_replace=3, n_group=1, topk_group=1,
        num_nextn_predict_layers=1, tie_word_embeddings=False,
    ),
    "glm-4.5-air": sized(
        "glm4_moe", 4096, 46, 96, 8, 10944, 151552, 131072, head_dim=128, attention_bias=True,
        use_qk_norm=False, n_routed_experts=128, n_shared_experts=1, num_experts_per_tok=8,
        moe_intermediate_size=1408, first_k_dense_replace=1, n_group=1, topk_group=1,
        num_nextn_predict_layers=1, tie_word_embeddings=False,
    ),
    "nemotron-4-340b": sized(
        "nemotron", 18432, 96, 96, 8, 73728, 256000, 4096, head_dim=192, hidden_act="relu2",
        attention_bias=False, mlp_bias=False, tie_word_embeddings=False,
    ),
    "falcon-7b": {
        "model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32, "vocab_size": 65024,
        "num_attention_heads": 71, "multi_query": True, "parallel_attn": True, "bias": False,
        "new_decoder_architecture": False, "alibi": False,
    },
    "falcon-40b": {
        "model_type": "RefinedWeb", "hidden_size": 8192, "n_layer": 60, "n_head": 128,
        "n_head_kv": 8, "vocab_size": 65024, "parallel_attn": True, "bias": False, "alibi": False,
    },
    "falcon-180b": {
        "model_type": "falcon", "hidden_size": 14848, "num_hidden_layers": 80, "num_kv_heads": 8,
        "num_attention_heads": 232, "vocab_size": 65024, "multi_query": True,
        "new_decoder_architecture": True, "parallel_attn": True, "bias": False, "alibi": False,
    },
    "opt-125m": {
        "model_type": "opt", "hidden_size": 768, "num_hidden_layers": 12, "ffn_dim": 3072,
        "num_attention_heads": 12, "vocab_size": 50272, "max_position_embeddings": 2048,
        "word_embed_proj_dim": 768, "do_layer_norm_before": True, "activation_function": "relu",
    },
    "opt-350m": {
        "model_type": "opt", "hidden_size": 1024, "num_hidden_layers": 24, "ffn_dim": 4096,
        "num_attention_heads": 16, "vocab_size": 50272, "max_position_embeddings": 2048,
        "word_embed_proj_dim": 512, "do_layer_norm_before": False, "activation_function": "relu",
    },
    "bloom-176b": {
        "model_type": "bloom", "n_embed": 14336, "n_layer": 70, "num_attention_heads": 112,
        "vocab_size": 250880, "seq_length": 2048,
    },
    "bloom-560m": {
        "model_type": "bloom", "hidden_size": 1024, "n_layer": 24, "n_head": 16,
        "vocab_size": 250880, "seq_length": 2048,
    },
    "gpt2-xl": {
        "model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25, "vocab_size": 50257,
        "n_positions": 1024, "n_ctx": 1024, "activation_function": "gelu_new",
    },
}  # fmt: skip


def read(tree: object) -> Transformer:
    return read_config(json.dumps(tree))


def problems_of(tree: object) -> list[str]:
    with pytest.raises(InputError) as caught:
        read(tree)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_file_is_the_model_of_the_library(name):
    own = library.model(name)
    assert replace(read(PUBLISHED[name]), name=own.name) == own


def test_every_architecture_of_the_library_is_read():
    read_here = {tree["model_type"] for tree in PUBLISHED.values()}
    assert read_here >= set(ARCHITECTURES) - {"RefinedWebModel"}


def test_the_first_file_of_falcon_7b_is_that_of_today():
    today = PUBLISHED["falcon-7b"]
    first = {"model_type": "RefinedWebModel", "n_layer": 32, "n_head": 71} | {
        key: today[key] for key in ("hidden_size", "vocab_size", "multi_query", "parallel_attn")
    }
    assert replace(read(first), name="") == replace(read(today), name="")


def test_kinds_of_attention_layer_by_layer_stand_for_a_pattern():
    tree = PUBLISHED["gemma3-1b"]
    kinds = (FIVE_OF_SIX * 5)[:26]
    assert read(tree | {"layer_types": kinds, "sliding_window_pattern": 1}) == read(tree)
    assert read(tree | {"layer_types": ["full_attention"] * 26}).window == 0
    (problem,) = problems_of(tree | {"layer_types": kinds[::-1]})
    assert problem.startswith("layer_types: got another order; allowed: full_attention")


def test_the_class_stands_for_a_missing_model_type():
    tree = dict(PUBLISHED["llama3-70b"])
    del tree["model_type"]
    named = read(tree | {"architectures": ["LlamaForCausalLM"]})
    assert named == read(PUBLISHED["llama3-70b"])
    (problem,) = problems_of(tree | {"architectures": ["LlamaForCausalLLM"]})
    assert problem.startswith("architectures[0]: no architecture is called")
    assert problems_of(tree) == ["model_type: required, but missing."]


def test_an_unknown_architecture_is_one_line_with_the_nearest():
    (problem,) = problems_of(PUBLISHED["qwen3-32b"] | {"model_type": "qwen4"})
    assert problem.startswith('model_type: no architecture is called "qwen4". Did you mean "qwen')


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("llama2-7b", {"hidden_size": None}, "hidden_size: got nothing; allowed: a whole number"),
        ("llama2-7b", {"vocab_size": "many"}, "vocab_size: got 'many'; allowed: a whole number"),
        ("llama2-7b", {"hidden_act": "sillu"}, 'hidden_act: no activation is called "sillu". Did'),
        ("llama2-7b", {"num_key_value_heads": 5}, "num_key_value_heads: got 5; allowed: a divisor"),
        ("llama2-7b", {"num_attention_heads": 31}, "num_attention_heads: got 31; allowed: a divis"),
        ("mixtral-8x7b", {"num_experts_per_tok": 9}, "num_experts_per_tok: got 9; allowed: at mos"),
        ("qwen3-30b-a3b", {"mlp_only_layers": [3]}, "mlp_only_layers: got [3]; allowed: none, or"),
        ("deepseek-v2-lite", {"moe_layer_freq": 2}, "moe_layer_freq: got 2; allowed: 1."),
        ("deepseek-v2-lite", {"num_experts_per_tok": None}, "num_experts_per_tok: required with n"),
        ("deepseek-v2-lite", {"first_k_dense_replace": 27}, "first_k_dense_replace: got 27; allow"),
        ("falcon-180b", {"num_kv_heads": 9}, "num_kv_heads: got 9; allowed: a divisor of heads"),
        ("gemma3-4b", {"text_config": 3}, "text_config: got 3; allowed: a mapping"),
        ("gemma2-27b", {"layer_types": ["full_atention"]}, "layer_types[0]: no kind of attention"),
    ],
)
def test_a_bad_field_is_told_by_its_path(name, change, said):
    (problem,) = problems_of(PUBLISHED[name] | change)
    assert problem.startswith(said)


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("llama2-7b", "intermediate_size"),
        ("bloom-560m", "hidden_size"),
        ("gpt2-xl", "n_positions"),
        ("deepseek-v3", "kv_lora_rank"),
        ("mixtral-8x7b", "num_local_experts"),
    ],
)
def test_a_missing_field_is_told_by_its_path(name, field):
    tree = {key: value for key, value in PUBLISHED[name].items() if key not in (field, "n_ctx")}
    assert problems_of(tree) == [f"{field}: required, but missing."]


def test_a_field_missing_inside_is_told_by_its_whole_path():
    tree = {"model_type": "gemma3", "text_config": {"hidden_size": 64, "num_hidden_layers": 2}}
    assert problems_of(tree) == ["text_config.intermediate_size: required, but missing."]
    bad = PUBLISHED["gemma3-4b"]["text_config"] | {"num_key_value_heads": 3}
    (problem,) = problems_of(tree | {"text_config": bad})
    assert problem.startswith("text_config.num_key_value_heads: got 3; allowed: a divisor")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "line 1, column 2: not JSON: "),
        ("[1]", "got a list; allowed: a mapping with model_type."),
        ("[" * 100_000, "not a configuration: nested too deep."),
        ('{"model_type": ' + "9" * 5000 + "}", "not a configuration: a number is too long."),
    ],
)
def test_what_is_no_configuration_is_one_line(text, said):
    with pytest.raises(InputError) as caught:
        read_config(text)
    (problem,) = map(str, caught.value.problems)
    assert problem.startswith(said)


def test_windows_of_qwen_hold_for_all_layers_or_none():
    tree = PUBLISHED["qwen2.5-0.5b"] | {"use_sliding_window": True}
    assert read(tree).window == 0
    assert read(tree | {"max_window_layers": 0}).window == 32768
    (problem,) = problems_of(tree | {"max_window_layers": 12})
    assert problem.startswith("max_window_layers: got 12; allowed: 0, or all layers")


def test_the_first_layers_of_qwen_may_be_dense():
    found = read(PUBLISHED["qwen3-30b-a3b"] | {"mlp_only_layers": [1, 0]})
    assert found.expert_layers == 46
    assert read(PUBLISHED["qwen3-30b-a3b"] | {"decoder_sparse_step": 2}).expert_layers == 24


def test_falcon_of_the_old_form_has_as_many_heads_for_keys_with_biases_and_slopes():
    found = read(
        PUBLISHED["falcon-7b"]
        | {"multi_query": False, "hidden_size": 2048, "num_attention_heads": 32}
        | {"parallel_attn": False, "bias": True, "alibi": True}
    )
    assert (found.kv_heads, found.norms, found.qkv_bias) == (32, NormPlace.BEFORE, True)
    assert (found.position, found.parallel) == (Position.ALIBI, False)


def test_falcon_2_has_one_norm_before_both():
    tree = PUBLISHED["falcon-180b"] | {"num_ln_in_parallel_attn": 1}
    assert read(tree).norms is NormPlace.SHARED


def test_gpt2_takes_its_own_width_and_activation():
    found = read(PUBLISHED["gpt2-xl"] | {"n_inner": 4800, "activation_function": "relu"})
    assert (found.feed_forward, found.activation) == (4800, Activation.RELU)


def test_a_file_of_a_model_is_told_from_a_result():
    assert is_config(PUBLISHED["llama2-7b"])
    assert not is_config({"time": 1.0})
    assert not is_config([])


def test_a_model_has_the_name_that_it_is_given():
    text = json.dumps(PUBLISHED["llama2-7b"])
    assert (read_config(text).name, read_config(text, "mine").name) == ("llama", "mine")
