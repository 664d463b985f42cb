"""A ``config.json`` read into the record of a transformer, without the network or their library."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from crosstack.errors import InputError, Problem, unknown_name
from crosstack.io.files import under
from crosstack.io.huggingface.architectures import FIELDS, transformer_in
from crosstack.io.native.problems import checked
from crosstack.io.native.schema import shown
from crosstack.workload.architectures import Transformer

# model_type -> the class named under `architectures`. Falcon's files were first called by its data.
ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3": "Gemma3ForConditionalGeneration",
    "gemma3_text": "Gemma3ForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "kimi_k2": "KimiK2ForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "nemotron": "NemotronForCausalLM",
    "falcon": "FalconForCausalLM",
    "RefinedWeb": "RWForCausalLM",
    "RefinedWebModel": "RWForCausalLM",
    "opt": "OPTForCausalLM",
    "bloom": "BloomForCausalLM",
    "gpt2": "GPT2LMHeadModel",
}


def is_config(tree: object) -> bool:
    """Return whether JSON is a file of a model rather than a result."""
    return isinstance(tree, dict) and ("model_type" in tree or "architectures" in tree)


def read_config(text: str, name: str = "") -> Transformer:
    """Return the model that the text of a ``config.json`` describes; ``name`` is for people.

    `InputError` says every problem by the path of its field: no JSON, an architecture that is not
    known, a field that is missing or out of range.
    """
    try:
        tree = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InputError(Problem(where, f"not JSON: {error.msg}.")) from None
    except RecursionError:
        raise InputError(Problem("", "not a configuration: nested too deep.")) from None
    except ValueError:  # a whole number of more digits than Python converts
        raise InputError(Problem("", "not a configuration: a number is too long.")) from None
    return transformer_of(tree, name)


def transformer_of(tree: object, name: str = "") -> Transformer:
    """Return the model that a ``config.json`` describes, already read as JSON.

    Raises `InputError` for what is no such description, naming every problem.
    """
    if not isinstance(tree, dict):
        raise InputError(Problem("", f"got {shown(tree)}; allowed: a mapping with model_type."))
    kind = _kind(tree)
    file = checked(FIELDS[kind], tree)
    if kind != "gemma3":
        return transformer_in(file, kind, name or kind)
    with under("text_config"):
        return transformer_in(file.text_config, "gemma3_text", name or kind)


def _kind(tree: Mapping[str, Any]) -> str:
    """Return the key of `ARCHITECTURES`, by ``model_type``, else by ``architectures``."""
    given = tree.get("model_type")
    if given is not None:
        if not isinstance(given, str) or given not in ARCHITECTURES:
            raise unknown_name("model_type", "architecture is", given, ARCHITECTURES)
        return given
    listed = tree.get("architectures")
    if not isinstance(listed, list) or not listed:
        raise InputError(Problem("model_type", "required, but missing."))
    by_class = {name: kind for kind, name in reversed(ARCHITECTURES.items())}
    if not isinstance(listed[0], str) or listed[0] not in by_class:
        raise unknown_name("architectures[0]", "architecture is", listed[0], by_class)
    return by_class[listed[0]]
