"""What a transformer holds and computes, told apart by kind."""

from __future__ import annotations

from dataclasses import astuple, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCount:
    """Parameters of a model by kind; each is held and updated in its own way.

    Parameters
    ----------
    embedding : int
        Of tokens and of learned positions, and what leads from their width to that of a layer. [1]
    attention : int
        Projections of attention, biases included. [1]
    feed_forward : int
        Feed-forward networks of layers without experts. [1]
    routed, shared : int
        Experts that tokens are sent to, and those that see every token. [1]
    router : int
        What chooses the experts. [1]
    norms : int
        All norms. [1]
    head : int
        The last projection; 0 where it is the embedding's table. [1]
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
    """Work of one token in a forward pass by kind, products alone; two FLOP a multiplication.

    Parameters
    ----------
    projections : float
        Into queries, keys and values, and out of attention. [FLOP]
    attention : float
        Scores and weighted values. [FLOP]
    feed_forward : float
        Feed-forward networks of layers without experts. [FLOP]
    routed, shared, router : float
        Experts that the token is sent to, those that see every token, and the choice. [FLOP]
    head : float
        The last projection, with what leads to the embedding's width. [FLOP]
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
    """Keys that a new token looks at, the mean over all new tokens of a sequence.

    Parameters
    ----------
    tokens : int
        New ones. [1]
    cached : int
        Those before them. [1]
    causal : bool
        Whether a token looks at itself and what is before it only; else at all of the sequence.
    window : int
        Keys that it looks at, at most; 0: all. [1]

    Notes
    -----
    Causal, all seen: ``cached + (tokens + 1) / 2``, which is about half of the sequence where
    nothing is cached.
    """
    if not causal:
        return float(min(cached + tokens, window or cached + tokens))
    if not window:
        return cached + (tokens + 1) / 2
    growing = min(max(window - cached, 0), tokens)  # tokens whose window is not full yet
    seen = growing * cached + growing * (growing + 1) / 2 + (tokens - growing) * window
    return seen / tokens
