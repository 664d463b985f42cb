"""An LSTM language model: embedding, layers of gates, a projection to the vocabulary.

Source: ``ardalani2022deepflow``, section 6 (its language model).
"""

from __future__ import annotations

from dataclasses import dataclass

from crosstack.errors import require_whole

__all__ = ["LstmModel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LstmModel:
    """The shape of the model and of one batch.

    Parameters
    ----------
    batch : int
        Sequences of one step. [1]
    sequence : int
        Tokens of a sequence; cells follow one another. [1]
    vocabulary : int
        Tokens known. [1]
    layers, width : int
        Layers, and the width of each. [1]
    gates : int
        Products of each cell, side by side. [1]
    projection : int
        Width of a projection, which enters the parameters alone. [1]
    """

    batch: int
    sequence: int
    vocabulary: int
    layers: int
    width: int
    gates: int = 4
    projection: int = 0
    name: str = "LSTM"

    def __post_init__(self) -> None:
        """Check every field."""
        for field in ("batch", "sequence", "vocabulary", "layers", "width", "gates"):
            require_whole(field, getattr(self, field))
        require_whole("projection", self.projection, minimum=0)

    @property
    def parameters(self) -> int:
        """Weights and biases: ``V D + (2 D + 1) G D L + D P + (D + 1) V``. [1]"""
        d, v = self.width, self.vocabulary
        cells = (2 * d + 1) * self.gates * d * self.layers
        return v * d + cells + d * self.projection + (d + 1) * v
