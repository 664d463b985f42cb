"""What every ``config.json`` shares: names of fields, of nonlinearities, and of windows by layer.

Fields that are left out have the value that the library of ``hugging_face`` gives them then.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from pydantic import AliasChoices, ConfigDict, Field

from crosstack.errors import InputError, Problem, require, unknown_name
from crosstack.io.native.schema import Count, FileModel
from crosstack.workload.architectures import Activation, Transformer

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


def also(*names: str) -> Any:
    """Return a required field that older files call by other names."""
    return Field(validation_alias=AliasChoices(*names))


Hidden = Annotated[Count, also("hidden_size", "n_embd", "n_embed")]
Layers = Annotated[Count, also("num_hidden_layers", "n_layer")]
Heads = Annotated[Count, also("num_attention_heads", "n_head")]


class ConfigFile(FileModel):
    """Base of the files of all architectures; fields that say nothing of the shape are let be."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    # Our field -> the file's, where a shape that does not fit is to be told in the file's words.
    names: ClassVar[dict[str, str]] = {
        "hidden": "hidden_size",
        "layers": "num_hidden_layers",
        "heads": "num_attention_heads",
        "kv_heads": "num_key_value_heads",
        "head_size": "head_dim",
        "feed_forward": "intermediate_size",
        "vocabulary": "vocab_size",
        "context": "max_position_embeddings",
        "active": "num_experts_per_tok",
        "experts.first_dense": "first_k_dense_replace",
        "global_every": "layer_types",
    }

    @abstractmethod
    def shape(self) -> dict[str, Any]:
        """Return the fields of a `Transformer`."""

    def transformer(self, name: str) -> Transformer:
        """Return the model.

        Raises
        ------
        InputError
            If its numbers do not fit each other; by the names of the file.
        """
        try:
            return Transformer(name=name, **self.shape())
        except InputError as error:
            raise error.renamed(self.names) from None


def activation_of(field: str, name: str) -> Activation:
    """Return the nonlinearity that a file calls ``name``.

    Raises
    ------
    InputError
        If there is none; names the nearest.
    """
    if name not in _ACTIVATIONS:
        raise unknown_name(field, "activation is", name, _ACTIVATIONS)
    return _ACTIVATIONS[name]


def head_size(hidden: int, heads: int, given: int | None) -> int:
    """Return the width of a head: what is given, or that of equal parts.

    Raises
    ------
    InputError
        If none is given and heads do not divide the width.
    """
    if given is not None:
        return given
    allowed = f"a divisor of hidden_size = {hidden}, or head_dim"
    require(hidden % heads == 0, "num_attention_heads", heads, allowed)
    return hidden // heads


def windows(kinds: Sequence[str] | None, window: int | None, every: int) -> dict[str, int]:
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
