"""A ``config.json`` read into the record of a transformer, without the network or their library."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from crosstack.errors import InputError, Problem, unknown_name
from crosstack.io.huggingface import architectures as files
from crosstack.io.native.problems import checked
from crosstack.io.native.schema import shown
from crosstack.workload.architectures import Transformer

# model_type -> the class named under `architectures`, and the fields of its file. Falcon's files
# were first called by its data.
ARCHITECTURES: dict[str, tuple[str, type[files.ConfigFile | files.Gemma3File]]] = {
    "llama": ("LlamaForCausalLM", files.LlamaFile),
    "mistral": ("MistralForCausalLM", files.MistralFile),
    "mixtral": ("MixtralForCausalLM", files.MixtralFile),
    "qwen2": ("Qwen2ForCausalLM", files.Qwen2File),
    "qwen3": ("Qwen3ForCausalLM", files.Qwen3File),
    "qwen3_moe": ("Qwen3MoeForCausalLM", files.Qwen3MoeFile),
    "gemma": ("GemmaForCausalLM", files.GemmaFile),
    "gemma2": ("Gemma2ForCausalLM", files.Gemma2File),
    "gemma3": ("Gemma3ForConditionalGeneration", files.Gemma3File),
    "gemma3_text": ("Gemma3ForCausalLM", files.Gemma3TextFile),
    "deepseek_v2": ("DeepseekV2ForCausalLM", files.DeepseekV2File),
    "deepseek_v3": ("DeepseekV3ForCausalLM", files.DeepseekV3File),
    "nemotron": ("NemotronForCausalLM", files.NemotronFile),
    "falcon": ("FalconForCausalLM", files.FalconFile),
    "RefinedWeb": ("RWForCausalLM", files.RefinedWebFile),
    "RefinedWebModel": ("RWForCausalLM", files.FalconFile),
    "opt": ("OPTForCausalLM", files.OptFile),
    "bloom": ("BloomForCausalLM", files.BloomFile),
    "gpt2": ("GPT2LMHeadModel", files.Gpt2File),
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
    """Return the model that a ``config.json`` describes, already read as JSON."""
    if not isinstance(tree, dict):
        raise InputError(Problem("", f"got {shown(tree)}; allowed: a mapping with model_type."))
    kind = _kind(tree)
    return checked(ARCHITECTURES[kind][1], tree).transformer(name or kind)


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
    by_class = {name: kind for kind, (name, _) in reversed(ARCHITECTURES.items())}
    if not isinstance(listed[0], str) or listed[0] not in by_class:
        raise unknown_name("architectures[0]", "architecture is", listed[0], by_class)
    return by_class[listed[0]]
