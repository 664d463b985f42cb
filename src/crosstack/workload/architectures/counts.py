"""What a transformer holds and computes, told apart by kind."""

from __future__ import annotations

from dataclasses import astuple, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCount:
    """Parameters of a model by kind; each is held and updated in its own way. [1]

    ``embedding`` is of tokens and of learned positions, and what leads from their width to that of
    a layer; ``attention`` has its biases; ``feed_forward`` is of layers without experts, ``routed``
    and ``shared`` of the experts that tokens are sent to and of those that see every token;
    ``head`` is 0 where it is the embedding's table.
    """

    embedding: int = 0
    attention: int = 0
    feed_forward: int = 0
    routed: int = 0
    shared: int = 0
    router: int = 0
    norms: int = 0
    head: int = 0

    @property
    def total(self) -> int:
        """All of them. [1]"""
        return sum(astuple(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class FlopCount:
    """Work of one token in a forward pass by kind, products alone, two FLOP each. [FLOP]

    ``projections`` are those into queries, keys and values, and out of attention, ``attention``
    scores and weighted values; ``head`` has what leads to the embedding's width; the others as of
    `ParameterCount`.
    """

    projections: float = 0.0
    attention: float = 0.0
    feed_forward: float = 0.0
    routed: float = 0.0
    shared: float = 0.0
    router: float = 0.0
    head: float = 0.0

    @property
    def total(self) -> float:
        """All of it. [FLOP]"""
        return float(sum(astuple(self)))


def mean_keys(tokens: int, *, cached: int = 0, causal: bool = True, window: int = 0) -> float:
    """Keys that a new token looks at, the mean over all new tokens of a sequence. [1]

    Parameters
    ----------
    tokens, cached : int
        New ones, and those before them. [1]
    causal : bool
        Whether a token looks at itself and what is before it only; else at all of the sequence.
    window : int
        Keys that it looks at, at most; 0: all. [1]
    """
    if not causal:
        return float(min(cached + tokens, window or cached + tokens))
    if not window:
        return cached + (tokens + 1) / 2
    growing = min(max(window - cached, 0), tokens)  # tokens whose window is not full yet
    seen = growing * cached + growing * (growing + 1) / 2 + (tokens - growing) * window
    return seen / tokens
