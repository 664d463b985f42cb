"""The shape of a `Transformer` that the fields of every architecture's ``config.json`` mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Annotated, Any

from pydantic import PlainValidator

from crosstack.errors import InputError, Problem, require, unknown_name
from crosstack.io.native.schema import FileModel, names_in_file, number
from crosstack.io.native.tables import Table
from crosstack.workload.architectures import (
    Activation,
    Experts,
    LatentAttention,
    Norm,
    NormPlace,
    Position,
    Transformer,
)

_ACTIVATIONS = {
    "gelu": Activation.GELU,
    "gelu_new": Activation.GELU,
    "gelu_fast": Activation.GELU,
    "gelu_pytorch_tanh": Activation.GELU,
    "relu": Activation.RELU,
    "relu2": Activation.SQUARED_RELU,
    "silu": Activation.SILU,
    "swish": Activation.SILU,
}
_KINDS = ("full_attention", "sliding_attention")  # of one layer
_OPT_OFFSET = 2  # rows of its table of positions before the first
# What files call our fields where none of theirs has all they say.
_INSIDE = {
    "active": "num_experts_per_tok",
    "experts.first_dense": "first_k_dense_replace",
    "global_every": "layer_types",
    "kv_heads": "num_kv_heads",
}


def _activation(name: object) -> Activation:
    if not isinstance(name, str) or name not in _ACTIVATIONS:
        raise unknown_name("", "activation is", name, _ACTIVATIONS)
    return _ACTIVATIONS[name]


FIELDS = Table(
    __package__,
    "fields.yaml",
    {
        "activation": Annotated[Activation, PlainValidator(_activation)],
        "cap": Annotated[float, number("1", above_zero=True)],
        "share": Annotated[float, number("1")],
    },
)


def transformer_in(file: FileModel, kind: str, name: str) -> Transformer:
    """Return the model that a file of an architecture says.

    `InputError`, in the file's names, if its numbers do not fit.
    """
    try:
        return Transformer(name=name, **_shape(file, kind))
    except InputError as error:
        raise error.renamed(_INSIDE | names_in_file(type(file))) from None


def _shape(file: FileModel, kind: str) -> dict[str, Any]:
    """Return the fields of a `Transformer`: each architecture adds to those of the one before."""
    if kind == "config":
        found = {f.name: getattr(file, f.name, None) for f in fields(Transformer)}
        given = {name: value for name, value in found.items() if value is not None}
        if "head_size" not in given:
            allowed = f"a divisor of hidden_size = {file.hidden}, or head_dim"
            divides = file.hidden % file.heads == 0
            require(divides, "num_attention_heads", file.heads, allowed)
        return {"kv_heads": file.heads, "head_size": file.hidden // file.heads} | given
    shape = _shape(file, FIELDS.tree[kind]["like"])
    return shape | _OWN[kind](file) if kind in _OWN else shape


def _windows(kinds: Sequence[str] | None, window: int | None, every: int) -> dict[str, int]:
    """Return ``window`` and ``global_every``: each so-manyth layer looks at all keys, 0: none. [1]

    ``kinds`` of attention layer by layer are in place of ``every``. `InputError` if they follow no
    such rule, or one is not known; names the nearest.
    """
    if window is None:
        return {}
    if kinds is None:
        return {"window": window, "global_every": every}
    for index, kind in enumerate(kinds):
        if kind not in _KINDS:
            raise unknown_name(f"layer_types[{index}]", "kind of attention is", kind, _KINDS)
    full = [kind == "full_attention" for kind in kinds]
    if all(full):
        return {}
    period = full.index(True) + 1 if any(full) else 0
    regular = [period > 0 and (index + 1) % period == 0 for index in range(len(full))]
    if full != regular:
        allowed = "full_attention in each so-manyth layer, sliding_attention in the others"
        raise InputError(Problem("layer_types", f"got another order; allowed: {allowed}."))
    return {"window": window, "global_every": period}


def _biases(given: bool) -> dict[str, bool]:
    return dict.fromkeys(("qkv_bias", "output_bias", "feed_forward_bias"), given)


def _mixtral(file: FileModel) -> dict[str, Any]:
    """A router chooses among experts of the usual width."""
    count, active = file.num_local_experts, file.num_experts_per_tok
    return {"experts": Experts(count=count, active=active, feed_forward=file.feed_forward)}


def _gpt_oss(file: FileModel) -> dict[str, Any]:
    """Windows in every other layer, and biases everywhere."""
    return {"feed_forward_bias": True} | _windows(file.layer_types, file.sliding_window, 2)


def _qwen2(file: FileModel) -> dict[str, Any]:
    """Biases on queries, keys and values."""
    first = file.max_window_layers
    if not file.use_sliding_window or first >= file.layers:
        return {"qkv_bias": True}
    allowed = "0, or all layers, where use_sliding_window is true"
    require(first == 0, "max_window_layers", first, allowed)
    return {"qkv_bias": True} | _windows(file.layer_types, file.sliding_window, 0)


def _qwen3_moe(file: FileModel) -> dict[str, Any]:
    dense = sorted(file.mlp_only_layers)
    at_start = dense == list(range(len(dense)))
    if not at_start or (dense and file.decoder_sparse_step > 1):
        message = "allowed: none, or the first ones with decoder_sparse_step = 1."
        raise InputError(Problem("mlp_only_layers", f"got {dense}; {message}"))
    experts = Experts(
        count=file.num_experts,
        active=file.num_experts_per_tok,
        feed_forward=file.moe_intermediate_size,
        first_dense=len(dense),
        every=file.decoder_sparse_step,
    )
    return {"experts": experts}


def _deepseek_v2(file: FileModel) -> dict[str, Any]:
    """Keys and values of one latent vector, small experts and shared ones."""
    require(file.moe_layer_freq == 1, "moe_layer_freq", file.moe_layer_freq, "1")
    latent = LatentAttention(
        query_rank=file.q_lora_rank or 0,
        key_value_rank=file.kv_lora_rank,
        content_size=file.qk_nope_head_dim,
        rotary_size=file.qk_rope_head_dim,
        value_size=file.v_head_dim,
    )
    size = file.qk_nope_head_dim + file.qk_rope_head_dim
    shape = {"head_size": size, "kv_heads": file.heads, "latent": latent, "experts": None}
    if file.n_routed_experts is None:
        return shape
    asked = ("num_experts_per_tok", "moe_intermediate_size")
    missing = [name for name in asked if getattr(file, name) is None]
    if missing:
        raise InputError(Problem(name, "required with n_routed_experts.") for name in missing)
    # DeepSeek-V3: a bias keeps the load of experts even.
    biased = getattr(file, "topk_method", "") == "noaux_tc"
    return shape | {"experts": _small_experts(file, router_bias=biased)}


def _glm4_moe(file: FileModel) -> dict[str, Any]:
    """Experts as DeepSeek-V3's, attention with biases of queries, keys and values alone."""
    return {
        "qkv_bias": file.attention_bias,
        "output_bias": False,
        "qk_norm": file.use_qk_norm,
        "experts": _small_experts(file, router_bias=True),
    }


def _small_experts(file: FileModel, *, router_bias: bool) -> Experts:
    """Return many small experts and shared ones, behind the first layers."""
    return Experts(
        count=file.n_routed_experts,
        active=file.num_experts_per_tok,
        feed_forward=file.moe_intermediate_size,
        shared=file.n_shared_experts or 0,
        first_dense=file.first_k_dense_replace,
        router_bias=router_bias,
        **_node_limits(file),
    )


def _node_limits(file: FileModel) -> dict[str, int]:
    """Return in how many parts experts lie, and how many of those a token may be sent to."""
    nodes, reached = (getattr(file, name, None) or 0 for name in ("n_group", "topk_group"))
    return {"nodes": nodes, "reached": reached} if nodes > reached > 0 else {}


def _opt(file: FileModel) -> dict[str, Any]:
    """The one of 350 million has norms after, and narrower tokens."""
    width = file.word_embed_proj_dim or file.hidden
    return _biases(file.enable_bias) | {
        "position": Position.LEARNED,
        "positions": file.context + _OPT_OFFSET,
        "embedding": 0 if width == file.hidden else width,
        "norms": NormPlace.BEFORE if file.do_layer_norm_before else NormPlace.AFTER,
    }


def _falcon(file: FileModel) -> dict[str, Any]:
    """Attention and feed-forward network side by side."""
    parallel, norms = file.parallel_attn or file.new_decoder_architecture, 2
    if parallel:
        usual = 2 if file.new_decoder_architecture else 1
        given = file.num_ln_in_parallel_attn
        norms = usual if given is None else given
        require(norms in (1, 2), "num_ln_in_parallel_attn", norms, "1 or 2")
    # `multi_query` means one, but in the new form.
    one = file.multi_query and not file.new_decoder_architecture
    return _biases(file.bias) | {
        "kv_heads": 1 if one else file.num_kv_heads or file.heads,
        "position": Position.ALIBI if file.alibi else Position.ROTARY,
        "parallel": parallel,
        "norms": NormPlace.SHARED if norms == 1 else NormPlace.BEFORE,
    }


# What an architecture has besides its fields.
_OWN: dict[str, Callable[[FileModel], dict[str, Any]]] = {
    "llama": lambda f: {"qkv_bias": f.attention_bias, "output_bias": f.attention_bias},
    "mistral": lambda f: _windows(None, f.sliding_window, 0),
    "mixtral": _mixtral,
    "gpt_oss": _gpt_oss,
    "qwen2": _qwen2,
    "qwen3": lambda f: {"qk_norm": True, "qkv_bias": f.attention_bias},
    "qwen3_moe": _qwen3_moe,
    "gemma": lambda f: {"activation": f.hidden_activation or f.activation},
    "gemma2": lambda f: {
        "norms": NormPlace.BOTH,
        **_windows(f.layer_types, f.sliding_window, 2),
    },
    "gemma3_text": lambda f: {
        "qk_norm": True,
        **_windows(f.layer_types, f.sliding_window, f.sliding_window_pattern),
    },
    "deepseek_v2": _deepseek_v2,
    "glm4_moe": _glm4_moe,
    "nemotron": lambda f: {"gated": False, "norm": Norm.LAYER},
    "plain": lambda f: {
        "gated": False,
        "norm": Norm.LAYER,
        "feed_forward": getattr(f, "feed_forward", None) or 4 * f.hidden,
        "activation": getattr(f, "activation", Activation.GELU),
        **_biases(True),
    },
    "gpt2": lambda f: {
        "position": Position.LEARNED,
        "positions": f.context,
        "dropout": f.resid_pdrop > 0,
    },
    "opt": _opt,
    "bloom": lambda f: {"position": Position.ALIBI, "embedding_norm": True},
    "falcon": _falcon,
}
