"""A decoder-only transformer: one record for dense, grouped, latent, gated and expert models."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from crosstack.errors import require, require_whole
from crosstack.records import Count, Natural, Number, require_types
from crosstack.workload.architectures.counts import FlopCount, ParameterCount, mean_keys
from crosstack.workload.architectures.layer import (
    Activation,
    AttentionKind,
    Experts,
    LatentAttention,
    LayerKind,
    Norm,
    NormPlace,
    Position,
)

_NORMS = {NormPlace.BEFORE: 2, NormPlace.AFTER: 2, NormPlace.BOTH: 4, NormPlace.SHARED: 1}


MOST_LAYERS = 100_000  # each is looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """The shape of a decoder-only transformer.

    Parameters
    ----------
    hidden, layers : int
        Width of a token, and layers. [1]
    heads, kv_heads : int
        Of queries, and of keys and values; the second divides the first. [1]
    head_size : int
        Width of a head of queries and keys; heads need not fill ``hidden``. [1]
    feed_forward : int
        Width inside the feed-forward network of a layer without experts. [1]
    vocabulary : int
        Tokens known. [1]
    context : int
        Longest sequence it was made for. [1]
    gated : bool
        Whether a second projection is multiplied in (``shazeer2020glu``).
    activation, norm, norms, position
        See the enums.
    positions : int
        Rows of the table of learned positions. [1]
    embedding : int
        Width of the table of tokens where it is not ``hidden``; 0: it is. [1]
    tied : bool
        Whether the last projection is the table of tokens.
    qkv_bias, output_bias, feed_forward_bias : bool
        Whether these projections have biases.
    qk_norm, embedding_norm : bool
        Whether heads of queries and of keys are normed, and tokens before the first layer.
    dropout : bool
        Whether training leaves out a share of the tokens' vectors, of the weights of attention and
        of what both halves of a layer add (``radford2019gpt2``, ``korthikanti2023reducing``).
    parallel : bool
        Whether attention and feed-forward network stand side by side (``wang2021gptj``).
    window, global_every : int
        Keys that a token looks at, 0: all; and of the layers each so-manyth looks at all in spite
        of it, 0: none. [1]
    score_cap, logit_cap : float
        What a tanh holds scores, and the results of the head, below; 0: nothing. [1]
    latent : LatentAttention, optional
        In place of keys and values by head; ``kv_heads`` is then ``heads``.
    experts : Experts, optional
        In place of the feed-forward network.
    predictors : int
        Layers beside the model that predict tokens further ahead (``deepseek2024v3``). [1]
    name : str
        For people.

    Raises
    ------
    InputError
        If numbers are out of range or do not fit each other.
    """

    hidden: Count
    layers: Count
    heads: Count
    kv_heads: Count
    head_size: Count
    feed_forward: Count
    vocabulary: Count
    context: Count
    gated: bool = True
    activation: Activation = Activation.SILU
    norm: Norm = Norm.RMS
    norms: NormPlace = NormPlace.BEFORE
    position: Position = Position.ROTARY
    positions: Natural = 0
    embedding: Natural = 0
    tied: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    feed_forward_bias: bool = False
    qk_norm: bool = False
    embedding_norm: bool = False
    dropout: bool = False
    parallel: bool = False
    window: Natural = 0
    global_every: Natural = 0
    score_cap: Number = 0.0
    logit_cap: Number = 0.0
    latent: LatentAttention | None = None
    experts: Experts | None = None
    predictors: Natural = 0
    name: str = "transformer"

    def __post_init__(self) -> None:
        require_types(self)
        require(self.layers <= MOST_LAYERS, "layers", self.layers, f"up to {MOST_LAYERS:,}")
        divides = self.heads % self.kv_heads == 0
        require(divides, "kv_heads", self.kv_heads, f"a divisor of heads = {self.heads}")
        table = (self.position is Position.LEARNED) == (self.positions > 0)
        rows = "rows above 0 with learned positions, and 0 without"
        require(table, "positions", self.positions, rows)
        side_by_side = self.parallel or self.norms is not NormPlace.SHARED
        require(side_by_side, "parallel", self.parallel, "True, with one norm before both")
        some = self.window > 0 or self.global_every == 0
        require(some, "global_every", self.global_every, "0 without a window")
        self._check_parts()

    def _check_parts(self) -> None:
        if self.latent is not None:
            allowed = f"heads = {self.heads}, with latent attention"
            require(self.kv_heads == self.heads, "kv_heads", self.kv_heads, allowed)
            size = self.latent.content_size + self.latent.rotary_size
            allowed = f"content_size + rotary_size = {size}"
            require(self.head_size == size, "head_size", self.head_size, allowed)
            for field in ("qkv_bias", "output_bias", "qk_norm"):
                require(not getattr(self, field), field, True, "False, with latent attention")
        if self.experts is not None:
            first, allowed = self.experts.first_dense, f"below layers = {self.layers}"
            require(first < self.layers, "experts.first_dense", first, allowed)

    # ------------------------------------------------------------ layers

    @property
    def attention(self) -> AttentionKind:
        """How many heads share keys and values."""
        if self.latent is not None:
            return AttentionKind.LATENT
        if self.kv_heads == self.heads:
            return AttentionKind.MULTI_HEAD
        one = self.kv_heads == 1
        return AttentionKind.MULTI_QUERY if one else AttentionKind.GROUPED_QUERY

    @property
    def group(self) -> int:
        """Heads of queries that share keys and values. [1]"""
        return self.heads // self.kv_heads

    def layer(self, index: int) -> LayerKind:
        """Return what the layer of an index, from 0, is like.

        Raises `InputError` if there is no such layer.
        """
        require_whole("index", index, minimum=0)
        require(index < self.layers, "index", index, f"below layers = {self.layers}")
        e = self.experts
        after = -1 if e is None else index - e.first_dense
        far = self.global_every > 0 and (index + 1) % self.global_every == 0
        return LayerKind(
            experts=e is not None and after >= 0 and (after + 1) % e.every == 0,
            window=0 if far else self.window,
        )

    @property
    def layer_kinds(self) -> tuple[tuple[LayerKind, int], ...]:
        """The kinds of layers, in the order that they come first, and how many each. [1]"""
        return tuple(Counter(map(self.layer, range(self.layers))).items())

    @property
    def expert_layers(self) -> int:
        """Layers that have experts. [1]"""
        return sum(count for kind, count in self.layer_kinds if kind.experts)

    @property
    def cached(self) -> int:
        """Elements that one layer keeps of a token while it writes.

        Keys and values, or with latent attention the vector they are made of and the shared part of
        keys. [1]
        """
        if self.latent is not None:
            return self.latent.key_value_rank + self.latent.rotary_size
        return 2 * self.kv_heads * self.head_size

    # ------------------------------------------------------------ parameters

    @property
    def attention_weights(self) -> int:
        """Weights of the projections of one layer, biases left out. [1]"""
        h, a, t = self.hidden, self.heads, self.latent
        if t is None:
            return h * self.head_size * (2 * a + 2 * self.kv_heads)
        queries = a * (t.content_size + t.rotary_size)
        made = h * t.query_rank + t.query_rank * queries if t.query_rank else h * queries
        kept = h * (t.key_value_rank + t.rotary_size)
        heads = t.key_value_rank * a * (t.content_size + t.value_size)
        return made + kept + heads + a * t.value_size * h

    @property
    def _attention(self) -> int:
        """Parameters of attention in one layer, norms left out. [1]"""
        biases = self.head_size * (self.heads + 2 * self.kv_heads) * self.qkv_bias
        return self.attention_weights + biases + self.hidden * self.output_bias

    def feed_forward_weights(self, width: int) -> int:
        """Return the weights of one feed-forward network of a width, biases left out. [1]"""
        return (3 if self.gated else 2) * self.hidden * width

    @property
    def parameters(self) -> ParameterCount:
        """Parameters by kind, those of `predictors` left out."""
        moe, (routed, shared, router) = self.expert_layers, self._expert_parameters()
        width = self.embedding or self.hidden
        table = self.vocabulary * width
        other_norms = (self.norms is not NormPlace.AFTER) + self.embedding_norm
        return ParameterCount(
            embedding=table + self.positions * self.hidden + 2 * self._between,
            attention=self.layers * self._attention,
            feed_forward=(self.layers - moe) * self._network(self.feed_forward),
            routed=moe * routed,
            shared=moe * shared,
            router=moe * router,
            norms=self.layers * self._layer_norms() + self._norm * other_norms,
            head=0 if self.tied else table,
        )

    @property
    def active_parameters(self) -> int:
        """Parameters without the experts that a token is not sent to. [1]"""
        all_of_them = self.parameters
        if self.experts is None:
            return all_of_them.total
        idle = self.experts.count - self.experts.active
        return all_of_them.total - all_of_them.routed * idle // self.experts.count

    @property
    def predictor_parameters(self) -> int:
        """Parameters that `predictors` have for themselves; table and head are the model's.

        Each is a layer like the last, a projection of a token beside the state it came from, and
        three norms (``deepseek2024v3``, section 2.2). [1]
        """
        layer = self._attention + self._layer_norms() + 3 * self._norm
        layer += 2 * self.hidden * self.hidden
        layer += 0 if self.experts else self._network(self.feed_forward)
        return self.predictors * (layer + sum(self._expert_parameters()))

    def _expert_parameters(self) -> tuple[int, int, int]:
        """Return the parameters of one layer that are routed, shared, and of the router."""
        e = self.experts
        if e is None:
            return 0, 0, 0
        shared = self._network(e.shared * e.feed_forward) if e.shared else 0
        router = e.count * (self.hidden + e.router_bias)
        return e.count * self._network(e.feed_forward), shared, router

    def _network(self, width: int) -> int:
        biases = width * (2 if self.gated else 1) + self.hidden
        return self.feed_forward_weights(width) + biases * self.feed_forward_bias

    @property
    def _between(self) -> int:
        """Weights from the width of the table of tokens to that of a layer; as many lead back."""
        return self.embedding * self.hidden if self.embedding not in (0, self.hidden) else 0

    @property
    def _norm(self) -> int:
        return self.hidden * (2 if self.norm is Norm.LAYER else 1)

    def _layer_norms(self) -> int:
        inside = 2 * self.head_size * self.qk_norm
        if self.latent is not None:
            inside += self.latent.query_rank + self.latent.key_value_rank
        return _NORMS[self.norms] * self._norm + inside

    # ------------------------------------------------------------ work

    def forward_flop(
        self, tokens: int, *, cached: int = 0, causal: bool = True, absorbed: bool = False
    ) -> FlopCount:
        """Work of one token in a forward pass, the mean over the new tokens of a sequence.

        Parameters
        ----------
        tokens : int
            New ones of a sequence: all in training, one in decoding. [1]
        cached : int
            Those before them. [1]
        causal : bool
            Whether scores of later tokens are left out, as in a fused kernel.
        absorbed : bool
            With latent attention, whether scores are taken with the vectors that are kept, and
            keys and values never made.

        Raises
        ------
        InputError
            If ``tokens`` is below 1 or ``cached`` below 0.

        Notes
        -----
        Two FLOP a weight of every product; attention ``4 keys a d``, and the head ``2 h V``
        (``korthikanti2023reducing``, appendix A). Making keys and values of a latent vector, and
        taking that product to the other side of the scores, are the same work a new token.
        """
        require_whole("tokens", tokens)
        require_whole("cached", cached, minimum=0)
        e, moe = self.experts, self.expert_layers
        keys = sum(
            count * mean_keys(tokens, cached=cached, causal=causal, window=kind.window)
            for kind, count in self.layer_kinds
        )
        expert = 0 if e is None else 2.0 * moe * self.feed_forward_weights(e.feed_forward)
        dense = (self.layers - moe) * self.feed_forward_weights(self.feed_forward)
        width = self.embedding or self.hidden
        return FlopCount(
            projections=2.0 * self.layers * self.attention_weights,
            attention=2.0 * keys * self.heads * self._score_width(absorbed),
            feed_forward=2.0 * dense,
            routed=expert * (0 if e is None else e.active),
            shared=expert * (0 if e is None else e.shared),
            router=2.0 * moe * (0 if e is None else e.count * self.hidden),
            head=2.0 * (width * self.vocabulary + 2 * self._between),
        )

    def _score_width(self, absorbed: bool) -> int:
        """Return the width of a score and of a weighted value, added. [1]"""
        if self.latent is None:
            return 2 * self.head_size
        t = self.latent
        if absorbed:
            return 2 * t.key_value_rank + t.rotary_size
        return t.content_size + t.rotary_size + t.value_size
