"""The fields of every architecture's ``config.json``, called as a `Transformer` calls them.

Fields that are left out have the value that the library of ``hugging_face`` gives them then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Annotated, Any, ClassVar

from pydantic import AliasChoices, ConfigDict, Field, PlainValidator

from crosstack.errors import InputError, Problem, require, unknown_name
from crosstack.io.files import under
from crosstack.io.native.schema import Count, FileModel, Flag, Index, names_in_file, number
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


def _activation(name: object) -> Activation:
    if not isinstance(name, str) or name not in _ACTIVATIONS:
        raise unknown_name("", "activation is", name, _ACTIVATIONS)
    return _ACTIVATIONS[name]


def also(*names: str) -> Any:
    """Return a field that files call by these names."""
    return Field(validation_alias=AliasChoices(*names))


ActivationName = Annotated[Activation, PlainValidator(_activation)]
HiddenAct = Annotated[ActivationName, also("hidden_act")]
ActivationFunction = Annotated[ActivationName, also("activation_function")]
Heads = Annotated[Count, also("num_attention_heads", "n_head")]
KeyValueHeads = Annotated[Count | None, also("num_key_value_heads")]
HeadSize = Annotated[Count | None, also("head_dim")]
Vocabulary = Annotated[Count, also("vocab_size")]
Context = Annotated[Count, also("max_position_embeddings")]
Tied = Annotated[Flag, also("tie_word_embeddings")]
Cap = Annotated[float, number("1", above_zero=True)]
ScoreCap = Annotated[Cap | None, also("attn_logit_softcapping")]
LogitCap = Annotated[Cap | None, also("final_logit_softcapping")]


class ConfigFile(FileModel):
    """Base of the files of all architectures; fields that say nothing of the shape are let be."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    always: ClassVar[dict[str, Any]] = {}
    """What is so in all models of an architecture."""
    inside: ClassVar[dict[str, str]] = {
        "active": "num_experts_per_tok",
        "experts.first_dense": "first_k_dense_replace",
        "global_every": "layer_types",
    }
    """What the file calls our fields where none of it has all they say."""

    hidden: Annotated[Count, also("hidden_size", "n_embd", "n_embed")]
    layers: Annotated[Count, also("num_hidden_layers", "n_layer")]
    heads: Heads
    vocabulary: Vocabulary

    def _shape(self) -> dict[str, Any]:
        """Return the fields of a `Transformer`."""
        found = {f.name: getattr(self, f.name, None) for f in fields(Transformer)}
        given = {name: value for name, value in found.items() if value is not None} | self.always
        if "head_size" not in given:
            allowed = f"a divisor of hidden_size = {self.hidden}, or head_dim"
            divides = self.hidden % self.heads == 0
            require(divides, "num_attention_heads", self.heads, allowed)
        return {"kv_heads": self.heads, "head_size": self.hidden // self.heads} | given

    def transformer(self, name: str) -> Transformer:
        """Return the model; `InputError`, in the file's names, if its numbers do not fit."""
        try:
            return Transformer(name=name, **self._shape())
        except InputError as error:
            raise error.renamed(names_in_file(type(self)) | self.inside) from None


def _windows(kinds: Sequence[str] | None, window: int | None, every: int) -> dict[str, int]:
    """Return ``window`` and ``global_every`` of a model.

    Parameters
    ----------
    kinds : sequence of str, optional
        Kinds of attention layer by layer, in place of ``every``.
    window : int, optional
        Keys that a token looks at. [1]
    every : int
        Each so-manyth layer looks at all, 0: none. [1]

    Raises
    ------
    InputError
        If the kinds follow no such rule, or one is not known; names the nearest.
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


# ---------------------------------------------------------------- gated: Llama and those after it


class LlamaFile(ConfigFile):
    """Llama 2 and 3, and what those after it have in common with them."""

    kv_heads: KeyValueHeads = None
    head_size: HeadSize = None
    feed_forward: Annotated[Count, also("intermediate_size")]
    context: Context
    activation: HiddenAct = Activation.SILU
    tied: Tied = False
    attention_bias: Flag = False
    feed_forward_bias: Annotated[Flag, also("mlp_bias")] = False

    def _shape(self) -> dict[str, Any]:
        given = self.attention_bias
        return super()._shape() | {"qkv_bias": given, "output_bias": given}


class MistralFile(LlamaFile):
    """Mistral: tokens look at those of a window."""

    sliding_window: Count | None = 4096

    def _shape(self) -> dict[str, Any]:
        return super()._shape() | _windows(None, self.sliding_window, 0)


class MixtralFile(MistralFile):
    """Mixtral: a router chooses among experts of the usual width."""

    sliding_window: Count | None = None
    num_local_experts: Count
    num_experts_per_tok: Count

    def _shape(self) -> dict[str, Any]:
        experts = Experts(
            count=self.num_local_experts,
            active=self.num_experts_per_tok,
            feed_forward=self.feed_forward,
        )
        return super()._shape() | {"experts": experts}


class Qwen2File(LlamaFile):
    """Qwen2 and Qwen2.5: biases on queries, keys and values."""

    use_sliding_window: Flag = False
    sliding_window: Count | None = 4096
    max_window_layers: Index = 28
    layer_types: list[str] | None = None

    def _shape(self) -> dict[str, Any]:
        shape, first = super()._shape() | {"qkv_bias": True}, self.max_window_layers
        if not self.use_sliding_window or first >= self.layers:
            return shape
        allowed = "0, or all layers, where use_sliding_window is true"
        require(first == 0, "max_window_layers", first, allowed)
        return shape | _windows(self.layer_types, self.sliding_window, 0)


class Qwen3File(Qwen2File):
    """Qwen3: normed heads in place of the biases."""

    always: ClassVar[dict[str, Any]] = {"qk_norm": True}
    head_size: HeadSize = 128

    def _shape(self) -> dict[str, Any]:
        return super()._shape() | {"qkv_bias": self.attention_bias}


class Qwen3MoeFile(Qwen3File):
    """Qwen3 with experts in all layers, in each so-manyth, or after the first."""

    head_size: HeadSize = None
    num_experts: Count
    num_experts_per_tok: Count
    moe_intermediate_size: Count
    decoder_sparse_step: Count = 1
    mlp_only_layers: tuple[Index, ...] = ()

    def _shape(self) -> dict[str, Any]:
        dense = sorted(self.mlp_only_layers)
        at_start = dense == list(range(len(dense)))
        if not at_start or (dense and self.decoder_sparse_step > 1):
            message = "allowed: none, or the first ones with decoder_sparse_step = 1."
            raise InputError(Problem("mlp_only_layers", f"got {dense}; {message}"))
        experts = Experts(
            count=self.num_experts,
            active=self.num_experts_per_tok,
            feed_forward=self.moe_intermediate_size,
            first_dense=len(dense),
            every=self.decoder_sparse_step,
        )
        return super()._shape() | {"experts": experts}


class GemmaFile(LlamaFile):
    """Gemma: wide heads, the table of tokens used twice."""

    head_size: HeadSize = 256
    activation: HiddenAct = Activation.GELU
    hidden_activation: ActivationName | None = None
    tied: Tied = True

    def _shape(self) -> dict[str, Any]:
        return super()._shape() | {"activation": self.hidden_activation or self.activation}


class Gemma2File(GemmaFile):
    """Gemma 2: norms before and after, capped scores, a window in every other layer."""

    always: ClassVar[dict[str, Any]] = {"norms": NormPlace.BOTH}
    sliding_window: Count | None = 4096
    layer_types: list[str] | None = None
    score_cap: ScoreCap = 50.0
    logit_cap: LogitCap = 30.0

    def _shape(self) -> dict[str, Any]:
        return super()._shape() | _windows(self.layer_types, self.sliding_window, 2)


class Gemma3TextFile(Gemma2File):
    """The language model of Gemma 3: normed heads, a window in five layers of six."""

    always: ClassVar[dict[str, Any]] = Gemma2File.always | {"qk_norm": True}
    heads: Heads = 8
    kv_heads: KeyValueHeads = 4
    vocabulary: Vocabulary = 262208
    context: Context = 131072
    sliding_window_pattern: Count = 6
    score_cap: ScoreCap = None
    logit_cap: LogitCap = None

    def _shape(self) -> dict[str, Any]:
        every = _windows(self.layer_types, self.sliding_window, self.sliding_window_pattern)
        return super()._shape() | every


class Gemma3File(FileModel):
    """Gemma 3 with its encoder of images, which is left out."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    text_config: Gemma3TextFile

    def transformer(self, name: str) -> Transformer:
        """Return the model; as of `ConfigFile`."""
        with under("text_config"):
            return self.text_config.transformer(name)


class DeepseekV2File(LlamaFile):
    """DeepSeek-V2: keys and values of one latent vector, small experts and shared ones."""

    kv_lora_rank: Count
    q_lora_rank: Count | None = None
    qk_nope_head_dim: Count
    qk_rope_head_dim: Count
    v_head_dim: Count
    n_routed_experts: Count | None = None
    n_shared_experts: Count | None = None
    num_experts_per_tok: Count | None = None
    moe_intermediate_size: Count | None = None
    moe_layer_freq: Count = 1
    first_k_dense_replace: Index = 0

    def _shape(self) -> dict[str, Any]:
        require(self.moe_layer_freq == 1, "moe_layer_freq", self.moe_layer_freq, "1")
        latent = LatentAttention(
            query_rank=self.q_lora_rank or 0,
            key_value_rank=self.kv_lora_rank,
            content_size=self.qk_nope_head_dim,
            rotary_size=self.qk_rope_head_dim,
            value_size=self.v_head_dim,
        )
        return super()._shape() | {
            "head_size": self.qk_nope_head_dim + self.qk_rope_head_dim,
            "kv_heads": self.heads,
            "latent": latent,
            "experts": self._experts(),
        }

    def _experts(self) -> Experts | None:
        if self.n_routed_experts is None:
            return None
        asked = ("num_experts_per_tok", "moe_intermediate_size")
        missing = [name for name in asked if getattr(self, name) is None]
        if missing:
            raise InputError(Problem(name, "required with n_routed_experts.") for name in missing)
        return Experts(
            count=self.n_routed_experts,
            active=self.num_experts_per_tok or 0,
            feed_forward=self.moe_intermediate_size or 0,
            shared=self.n_shared_experts or 0,
            first_dense=self.first_k_dense_replace,
            router_bias=self._router_bias,
        )

    @property
    def _router_bias(self) -> bool:
        return False


class DeepseekV3File(DeepseekV2File):
    """DeepSeek-V3: a bias keeps the load of experts even, and tokens further ahead are foretold."""

    topk_method: str = "noaux_tc"
    predictors: Annotated[Index, also("num_nextn_predict_layers")] = 0

    @property
    def _router_bias(self) -> bool:
        return self.topk_method == "noaux_tc"


class NemotronFile(LlamaFile):
    """Nemotron-4: layer norms, squared ReLU, no gate."""

    always: ClassVar[dict[str, Any]] = {"gated": False, "norm": Norm.LAYER}
    activation: HiddenAct = Activation.SQUARED_RELU


# ---------------------------------------------------------------- two plain projections


class _PlainFile(ConfigFile):
    always: ClassVar[dict[str, Any]] = {"gated": False, "norm": Norm.LAYER}
    tied: Tied = True

    def _shape(self) -> dict[str, Any]:
        usual = {"feed_forward": 4 * self.hidden, "activation": Activation.GELU}
        return usual | _biases(True) | super()._shape()


class Gpt2File(_PlainFile):
    """GPT-2."""

    context: Annotated[Count, also("n_positions", "n_ctx", "max_position_embeddings")]
    feed_forward: Annotated[Count | None, also("n_inner")] = None
    activation: ActivationFunction = Activation.GELU

    def _shape(self) -> dict[str, Any]:
        return super()._shape() | {"position": Position.LEARNED, "positions": self.context}


class OptFile(_PlainFile):
    """OPT; the one of 350 million has norms after, and narrower tokens."""

    feed_forward: Annotated[Count, also("ffn_dim")]
    context: Context
    word_embed_proj_dim: Count | None = None
    do_layer_norm_before: Flag = True
    enable_bias: Flag = True
    activation: ActivationFunction = Activation.RELU

    def _shape(self) -> dict[str, Any]:
        width = self.word_embed_proj_dim or self.hidden
        return (
            super()._shape()
            | _biases(self.enable_bias)
            | {
                "position": Position.LEARNED,
                "positions": self.context + _OPT_OFFSET,
                "embedding": 0 if width == self.hidden else width,
                "norms": NormPlace.BEFORE if self.do_layer_norm_before else NormPlace.AFTER,
            }
        )


class BloomFile(_PlainFile):
    """BLOOM."""

    always: ClassVar[dict[str, Any]] = _PlainFile.always | {
        "position": Position.ALIBI,
        "embedding_norm": True,
    }
    context: Annotated[Count, also("seq_length")] = 2048


class FalconFile(_PlainFile):
    """Falcon: attention and feed-forward network side by side."""

    inside: ClassVar[dict[str, str]] = {"kv_heads": "num_kv_heads"}
    num_kv_heads: Annotated[Count | None, also("num_kv_heads", "n_head_kv")] = None
    feed_forward: Annotated[Count | None, also("ffn_hidden_size")] = None
    context: Context = 2048
    multi_query: Flag = True
    new_decoder_architecture: Flag = False
    parallel_attn: Flag = True
    num_ln_in_parallel_attn: Count | None = None
    bias: Flag = False
    alibi: Flag = False
    activation: ActivationName = Activation.GELU

    def _shape(self) -> dict[str, Any]:
        parallel = self.parallel_attn or self.new_decoder_architecture
        # `multi_query` means one, but in the new form.
        one = self.multi_query and not self.new_decoder_architecture
        return (
            super()._shape()
            | _biases(self.bias)
            | {
                "kv_heads": 1 if one else self.num_kv_heads or self.heads,
                "position": Position.ALIBI if self.alibi else Position.ROTARY,
                "parallel": parallel,
                "norms": NormPlace.SHARED if self._norms(parallel) == 1 else NormPlace.BEFORE,
            }
        )

    def _norms(self, parallel: bool) -> int:
        if not parallel:
            return 2
        given = self.num_ln_in_parallel_attn
        if given is None:
            return 2 if self.new_decoder_architecture else 1
        require(given in (1, 2), "num_ln_in_parallel_attn", given, "1 or 2")
        return given


class RefinedWebFile(FalconFile):
    """Falcon 40B in a file from before it was called so: all in the new form."""

    new_decoder_architecture: Flag = True
