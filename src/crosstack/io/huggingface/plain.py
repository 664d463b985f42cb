"""Files of the architectures with two plain projections: GPT-2, OPT, BLOOM, Falcon, Nemotron."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from crosstack.errors import require
from crosstack.io.huggingface.fields import (
    ConfigFile,
    Heads,
    Hidden,
    Layers,
    activation_of,
    also,
    head_size,
)
from crosstack.io.huggingface.gated import LlamaFile
from crosstack.io.native.schema import Count, Flag
from crosstack.workload.architectures import Activation, Norm, NormPlace, Position

_BIASES = {"qkv_bias": True, "output_bias": True, "feed_forward_bias": True}
_OPT_OFFSET = 2  # rows of its table of positions before the first


class _PlainFile(ConfigFile):
    hidden_size: Hidden
    num_hidden_layers: Layers
    num_attention_heads: Heads
    vocab_size: Count
    tie_word_embeddings: Flag = True

    def shape(self) -> dict[str, Any]:
        """Return the fields of a `Transformer`."""
        heads = self.num_attention_heads
        return {
            "hidden": self.hidden_size,
            "layers": self.num_hidden_layers,
            "heads": heads,
            "kv_heads": heads,
            "head_size": head_size(self.hidden_size, heads, None),
            "feed_forward": 4 * self.hidden_size,
            "vocabulary": self.vocab_size,
            "gated": False,
            "activation": Activation.GELU,
            "norm": Norm.LAYER,
            "tied": self.tie_word_embeddings,
        }


class Gpt2File(_PlainFile):
    """GPT-2."""

    n_positions: Annotated[Count, also("n_positions", "n_ctx", "max_position_embeddings")]
    n_inner: Count | None = None
    activation_function: str = "gelu_new"

    def shape(self) -> dict[str, Any]:
        """Return the fields of a `Transformer`."""
        shape = super().shape() | _BIASES
        return shape | {
            "feed_forward": self.n_inner or shape["feed_forward"],
            "activation": activation_of("activation_function", self.activation_function),
            "context": self.n_positions,
            "position": Position.LEARNED,
            "positions": self.n_positions,
        }


class OptFile(_PlainFile):
    """OPT; the one of 350 million has norms after, and narrower tokens."""

    ffn_dim: Count
    max_position_embeddings: Count
    word_embed_proj_dim: Count | None = None
    do_layer_norm_before: Flag = True
    enable_bias: Flag = True
    activation_function: str = "relu"

    def shape(self) -> dict[str, Any]:
        """Return the fields of a `Transformer`."""
        width = self.word_embed_proj_dim or self.hidden_size
        return (
            super().shape()
            | dict.fromkeys(_BIASES, self.enable_bias)
            | {
                "feed_forward": self.ffn_dim,
                "activation": activation_of("activation_function", self.activation_function),
                "context": self.max_position_embeddings,
                "position": Position.LEARNED,
                "positions": self.max_position_embeddings + _OPT_OFFSET,
                "embedding": 0 if width == self.hidden_size else width,
                "norms": NormPlace.BEFORE if self.do_layer_norm_before else NormPlace.AFTER,
            }
        )


class BloomFile(_PlainFile):
    """BLOOM."""

    seq_length: Count = 2048

    def shape(self) -> dict[str, Any]:
        """Return the fields of a `Transformer`."""
        alibi = {"context": self.seq_length, "position": Position.ALIBI, "embedding_norm": True}
        return super().shape() | _BIASES | alibi


class FalconFile(_PlainFile):
    """Falcon: attention and feed-forward network side by side."""

    names: ClassVar[dict[str, str]] = ConfigFile.names | {"kv_heads": "num_kv_heads"}
    num_kv_heads: Annotated[Count | None, also("num_kv_heads", "n_head_kv")] = None
    ffn_hidden_size: Count | None = None
    max_position_embeddings: Count = 2048
    multi_query: Flag = True
    new_decoder_architecture: Flag = False
    parallel_attn: Flag = True
    num_ln_in_parallel_attn: Count | None = None
    bias: Flag = False
    alibi: Flag = False
    activation: str = "gelu"

    def shape(self) -> dict[str, Any]:
        """Return the fields of a `Transformer`."""
        shape = super().shape() | dict.fromkeys(_BIASES, self.bias)
        parallel = self.parallel_attn or self.new_decoder_architecture
        return shape | {
            "kv_heads": self._kv_heads(),
            "feed_forward": self.ffn_hidden_size or shape["feed_forward"],
            "activation": activation_of("activation", self.activation),
            "context": self.max_position_embeddings,
            "position": Position.ALIBI if self.alibi else Position.ROTARY,
            "parallel": parallel,
            "norms": NormPlace.SHARED if self._norms(parallel) == 1 else NormPlace.BEFORE,
        }

    def _kv_heads(self) -> int:
        """Return heads of keys and values; ``multi_query`` means one, but in the new form."""
        if self.multi_query and not self.new_decoder_architecture:
            return 1
        return self.num_kv_heads or self.num_attention_heads

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


class NemotronFile(LlamaFile):
    """Nemotron-4: layer norms, squared ReLU, no gate."""

    hidden_act: str = "relu2"

    def shape(self) -> dict[str, Any]:
        """Return the fields of a `Transformer`."""
        return super().shape() | {"gated": False, "norm": Norm.LAYER}
