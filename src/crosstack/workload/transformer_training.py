"""A decoder-only transformer in training: its shape and that of one batch."""

from __future__ import annotations

from dataclasses import dataclass

from crosstack.errors import require, require_quantity, require_whole

__all__ = ["TransformerTraining"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerTraining:
    """The shape of the model and of one batch.

    Parameters
    ----------
    batch : int
        Sequences of one step. [1]
    sequence : int
        Tokens of a sequence. [1]
    layers, hidden, heads : int
        Layers, their width, attention heads; heads divide the width. [1]
    feed_forward : int
        Width inside the feed-forward network. [1]
    vocabulary : int
        Tokens known. [1]
    microbatches : int
        Parts of a replica's batch that follow one another through the pipeline. [1]
    tokens : float
        Of a whole training run, of which a step is a part; 0 where only a step is asked for. [1]
    ideal_stages, communication : int, float
        What the estimate of the 2025 release divides by, and adds to a run
        (`StepRules.estimates_transformers`); nothing else reads them. [1], [s]
    """

    batch: int
    sequence: int
    layers: int
    hidden: int
    heads: int
    feed_forward: int
    vocabulary: int
    microbatches: int = 1
    tokens: float = 0.0
    ideal_stages: int = 1
    communication: float = 0.0
    name: str = "transformer"

    def __post_init__(self) -> None:
        """Check every field."""
        whole = ("batch", "sequence", "layers", "hidden", "heads", "feed_forward", "vocabulary")
        for field in (*whole, "microbatches", "ideal_stages"):
            require_whole(field, getattr(self, field))
        require_quantity("tokens", self.tokens, "1")
        require_quantity("communication", self.communication, "s")
        divides = self.hidden % self.heads == 0
        require(divides, "heads", self.heads, f"a divisor of hidden, {self.hidden}")

    @property
    def steps(self) -> float:
        """Steps of a training run: tokens over those of a step. [1]"""
        return self.tokens / (self.batch * self.sequence)

    @property
    def layer_parameters(self) -> int:
        """Weights of one layer: ``4 d^2 + 2 d f``. [1]"""
        return 4 * self.hidden**2 + 2 * self.hidden * self.feed_forward

    @property
    def parameters(self) -> int:
        """Weights of all layers, of the embedding and of the head: ``+ 2 V d``. [1]"""
        return self.layers * self.layer_parameters + 2 * self.vocabulary * self.hidden
