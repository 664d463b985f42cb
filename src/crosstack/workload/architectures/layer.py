"""What a layer of a transformer is made of: norms, attention by a latent vector, experts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from crosstack.errors import require
from crosstack.records import Checked, Count, Natural, require_types


class Activation(StrEnum):
    """The nonlinearity of a feed-forward network; `SQUARED_RELU`: ``so2021primer``."""

    GELU = "gelu"
    RELU = "relu"
    SQUARED_RELU = "squared_relu"
    SILU = "silu"


class Norm(StrEnum):
    """`LAYER` has a weight and a bias an element, `RMS` a weight (``zhang2019rmsnorm``)."""

    LAYER = "layer"
    RMS = "rms"


class NormPlace(StrEnum):
    """Where the norms of a layer stand.

    ``BEFORE`` attention and before the feed-forward network, ``AFTER`` each (and none at the end of
    the model), ``BOTH``, or ``SHARED``: one before both, which then stand side by side.
    """

    BEFORE = "before"
    AFTER = "after"
    BOTH = "both"
    SHARED = "shared"


class Position(StrEnum):
    """How a token's place is told: turned pairs, a learned table, or slopes on the scores."""

    ROTARY = "rotary"
    LEARNED = "learned"
    ALIBI = "alibi"


class AttentionKind(StrEnum):
    """How many heads share keys and values: one's own, some, all, or a latent vector."""

    MULTI_HEAD = "multi-head"
    GROUPED_QUERY = "grouped-query"
    MULTI_QUERY = "multi-query"
    LATENT = "latent"


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention(Checked):
    """Attention whose keys and values are made of one short vector a token (``deepseek2024v2``).

    ``query_rank`` is the width that queries pass through, 0: they are made of the token at once;
    ``key_value_rank`` that of the vector that is kept. ``content_size`` and ``rotary_size`` are
    parts of a head of queries and keys, the rotary part of keys shared by all heads; ``value_size``
    is of a head. [1]
    """

    query_rank: Natural = 0
    key_value_rank: Count
    content_size: Count
    rotary_size: Count
    value_size: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Feed-forward networks of which a router chooses some for each token.

    Parameters
    ----------
    count, active : int
        Experts to choose from, and how many of them a token is sent to. [1]
    feed_forward : int
        Width inside one. [1]
    shared : int
        Experts of that width that see every token, besides. [1]
    first_dense : int
        Layers at the start that have one feed-forward network instead. [1]
    every : int
        Of the layers after those, each so-manyth has experts. [1]
    router_bias : bool
        Whether each expert has a bias that keeps their load even (``deepseek2024v3``).
    nodes, reached : int
        Parts that experts lie in, each on a node, and of those the most that a token is sent to;
        0: to any (``deepseek2024v2``, section 2.2.2; ``deepseek2024v3``, section 2.1.2). [1]

    References
    ----------
    shazeer2017moe, dai2024deepseekmoe
    """

    count: Count
    active: Count
    feed_forward: Count
    shared: Natural = 0
    first_dense: Natural = 0
    every: Count = 1
    router_bias: bool = False
    nodes: Natural = 0
    reached: Natural = 0

    def __post_init__(self) -> None:
        require_types(self)
        allowed = f"at most count = {self.count}"
        require(self.active <= self.count, "active", self.active, allowed)
        even = not self.nodes or self.count % self.nodes == 0
        require(even, "nodes", self.nodes, f"0, or a divisor of count = {self.count}")
        both, allowed = (self.reached > 0) == (self.nodes > 0), "above 0 where nodes is"
        inside = both and self.reached <= self.nodes
        require(inside, "reached", self.reached, f"{allowed}, at most {self.nodes}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKind:
    """What layers may differ in: whether they have experts, and how far they look back.

    ``window`` 0: at all tokens. [1]
    """

    experts: bool = False
    window: int = 0
