"""Files of the architectures with gated feed-forward networks: Llama and those after it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from crosstack.errors import InputError, Problem, require
from crosstack.io.huggingface.fields import (
    ConfigFile,
    Heads,
    Hidden,
    Layers,
    activation_of,
    head_size,
    windows,
)
from crosstack.io.native.schema import Count, Flag, Index, number
from crosstack.workload.architectures import Experts, LatentAttention, NormPlace

Cap = Annotated[float, number("1", above_zero=True)]


class LlamaFile(ConfigFile):
    """Llama 2 and 3, and what the others of this file have in common with them."""

    hidden_size: Hidden
    num_hidden_layers: Layers
    num_attention_heads: Heads
    num_key_value_heads: Count | None = None
    head_dim: Count | None = None
    intermediate_size: Count
    vocab_size: Count
    max_position_embeddings: Count
    hidden_act: str = "silu"
    tie_word_embeddings: Flag = False
    attention_bias: Flag = False
    mlp_bias: Flag = False

    def shape(self) -> dict[str, Any]:
        """Return the fields of a `Transformer`."""
        heads = self.num_attention_heads
        return {
            "hidden": self.hidden_size,
            "layers": self.num_hidden_layers,
            "heads": heads,
            "kv_heads": self.num_key_value_heads or heads,
            "head_size": head_size(self.hidden_size, heads, self.head_dim),
            "feed_forward": self.intermediate_size,
            "vocabulary": self.vocab_size,
            "context": self.max_position_embeddings,
            "activation": activation_of("hidden_act", self.hidden_act),
            "tied": self.tie_word_embeddings,
            "qkv_bias": self.attention_bias,
            "output_bias": self.attention_bias,
            "feed_forward_bias": self.mlp_bias,
        }


class MistralFile(LlamaFile):
    """Mistral: tokens look at those of a window."""

    sliding_window: Count | None = 4096

    def shape(self) -> dict[str, Any]:
        """Return the fields of a `Transformer`."""
        return super().shape() | windows(None, self.sliding_window, 0)


class MixtralFile(MistralFile):
    """Mixtral: a router chooses among experts of the usual width."""

    sliding_window: Count | None = None
    num_local_experts: Count
    num_experts_per_tok: Count

    def shape(self) -> dict[str, Any]:
        """Return the fields of a `Transformer`."""
        experts = Experts(
            count=self.num_local_experts,
            active=self.num_experts_per_tok,
            feed_forward=self.intermediate_size,
        )
        return super().shape() | {"experts": experts}


class Qwen2File(LlamaFile):
    """Qwen2 and Qwen2.5: biases on queries, keys and values."""

    use_sliding_window: Flag = False
    sliding_window: Count | None = 4096
    max_window_layers: Index = 28
    layer_types: list[str] | None = None

    def shape(self) -> dict[str, Any]:
        """Return the fields of a `Transformer`."""
        return super().shape() | {"qkv_bias": True} | self._windows()

    def _windows(self) -> dict[str, int]:
        first = self.max_window_layers
        if not self.use_sliding_window or first >= self.num_hidden_layers:
            return {}
        allowed = "0, or all layers, where use_sliding_window is true"
        require(first == 0, "max_window_layers", first, allowed)
        return windows(self.layer_types, self.sliding_window, 0)


class Qwen3File(Qwen2File):
    """Qwen3: normed heads in place of the biases."""

    head_dim: Count | None = 128

    def shape(self) -> dict[str, Any]:
        """Return the fields of a `Transformer`."""
        return super().shape() | {"qkv_bias": self.attention_bias, "qk_norm": True}


class Qwen3MoeFile(Qwen3File):
    """Qwen3 with experts in all layers, in each so-manyth, or after the first."""

    head_dim: Count | None = None
    num_experts: Count
    num_experts_per_tok: Count
    moe_intermediate_size: Count
    decoder_sparse_step: Count = 1
    mlp_only_layers: tuple[Index, ...] = ()

    def shape(self) -> dict[str, Any]:
        """Return the fields of a `Transformer`."""
        dense = sorted(self.mlp_only_layers)
        at_start = dense == list(range(len(dense)))
        simple = at_start and (not dense or self.decoder_sparse_step == 1)
        if not simple:
            message = "allowed: none, or the first ones with decoder_sparse_step = 1."
            raise InputError(Problem("mlp_only_layers", f"got {dense}; {message}"))
        experts = Experts(
            count=self.num_experts,
            active=self.num_experts_per_tok,
            feed_forward=self.moe_intermediate_size,
            first_dense=len(dense),
            every=self.decoder_sparse_step,
        )
        return super().shape() | {"experts": experts}


class GemmaFile(LlamaFile):
    """Gemma: wide heads, the table of tokens used twice."""

    head_dim: Count | None = 256
    hidden_act: str = "gelu_pytorch_tanh"
    hidden_activation: str | None = None
    tie_word_embeddings: Flag = True

    def shape(self) -> dict[str, Any]:
        """Return the fields of a `Transformer`."""
        shape = super().shape()
        if self.hidden_activation is not None:
            shape["activation"] = activation_of("hidden_activation", self.hidden_activation)
        return shape


class Gemma2File(GemmaFile):
    """Gemma 2: norms before and after, capped scores, a window in every other layer."""

    sliding_window: Count | None = 4096
    layer_types: list[str] | None = None
    attn_logit_softcapping: Cap | None = 50.0
    final_logit_softcapping: Cap | None = 30.0

    def shape(self) -> dict[str, Any]:
        """Return the fields of a `Transformer`."""
        return (
            super().shape()
            | windows(self.layer_types, self.sliding_window, 2)
            | {
                "norms": NormPlace.BOTH,
                "score_cap": self.attn_logit_softcapping or 0.0,
                "logit_cap": self.final_logit_softcapping or 0.0,
            }
        )


class Gemma3TextFile(Gemma2File):
    """The language model of Gemma 3: normed heads, a window in five layers of six."""

    num_attention_heads: Heads = 8
    num_key_value_heads: Count | None = 4
    vocab_size: Count = 262208
    max_position_embeddings: Count = 131072
    sliding_window_pattern: Count = 6
    attn_logit_softcapping: Cap | None = None
    final_logit_softcapping: Cap | None = None

    def shape(self) -> dict[str, Any]:
        """Return the fields of a `Transformer`."""
        every = windows(self.layer_types, self.sliding_window, self.sliding_window_pattern)
        return super().shape() | {"qk_norm": True} | every


class Gemma3File(ConfigFile):
    """Gemma 3 with its encoder of images, which is left out."""

    names: ClassVar[dict[str, str]] = {
        ours: f"text_config.{name}" for ours, name in ConfigFile.names.items()
    }
    text_config: Gemma3TextFile

    def shape(self) -> dict[str, Any]:
        """Return the fields of a `Transformer`."""
        try:
            return self.text_config.shape()
        except InputError as error:
            raise error.under("text_config") from None


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

    def shape(self) -> dict[str, Any]:
        """Return the fields of a `Transformer`."""
        require(self.moe_layer_freq == 1, "moe_layer_freq", self.moe_layer_freq, "1")
        latent = LatentAttention(
            query_rank=self.q_lora_rank or 0,
            key_value_rank=self.kv_lora_rank,
            content_size=self.qk_nope_head_dim,
            rotary_size=self.qk_rope_head_dim,
            value_size=self.v_head_dim,
        )
        size = self.qk_nope_head_dim + self.qk_rope_head_dim
        return super().shape() | {
            "head_size": size,
            "kv_heads": self.num_attention_heads,
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
    num_nextn_predict_layers: Index = 0

    def shape(self) -> dict[str, Any]:
        """Return the fields of a `Transformer`."""
        return super().shape() | {"predictors": self.num_nextn_predict_layers}

    @property
    def _router_bias(self) -> bool:
        return self.topk_method == "noaux_tc"
