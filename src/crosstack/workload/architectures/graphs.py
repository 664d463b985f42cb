"""Graphs of a transformer, all of one record: training, the reading of prompts, and writing.

Tokens become vectors in a block that runs once; layers follow, in a block of as many as come before
they repeat (`crosstack.workload.architectures.layer_runs`); then the last norm and the head, once.
A graph is of a whole batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from crosstack.errors import require, require_quantity, require_whole
from crosstack.records import require_type
from crosstack.workload.architectures.attention import attention
from crosstack.workload.architectures.feed_forward import feed_forward
from crosstack.workload.architectures.layer import LayerKind, NormPlace, Position
from crosstack.workload.architectures.layer_draft import HIDDEN, TOKENS, LayerDraft
from crosstack.workload.architectures.layer_runs import layer_runs
from crosstack.workload.architectures.transformer import Transformer
from crosstack.workload.axes import AxisUse
from crosstack.workload.dataflow import Graph
from crosstack.workload.draft import Draft
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import Function
from crosstack.workload.passes import backward

PREDICTOR_SHARE = 0.3  # of the loss: ``deepseek2024v3``, section 4.2


def forward(
    model: Transformer,
    *,
    sequence: int,
    batch: int = 1,
    loss: bool = False,
    dtype: Dtype = Dtype.BF16,
    capacity: float = 1.0,
    document: int = 0,
) -> Graph:
    """Return a forward pass that makes the next word of every token.

    Parameters
    ----------
    model : Transformer
        The shape.
    sequence, batch : int
        Tokens of a sequence, and sequences. [1]
    loss : bool
        Whether words are compared with those that follow; `Transformer.predictors` are layers of
        the graph then, and some elements are left out where the model has dropout.
    dtype : Dtype
        Of all that is no index.
    capacity : float
        Tokens that an expert takes at most, of an even share of them. [1]
    document : int
        Tokens of each of the documents that a sequence is packed of, which see their own document
        alone; 0: it is one. [1]

    Raises
    ------
    InputError
        If a number is out of range, or there are more tokens than learned places.
    """
    drops = loss and model.dropout
    about: dict[str, Any] = {"capacity": capacity, "drops": drops, "document": document}
    written = _Written(model=model, dtype=dtype, **about)
    written.begin(batch=batch, tokens=sequence)
    last = written.layers()
    logits = written.words(last, TOKENS)
    if loss:
        written.compare(logits, last)
    return written.graph()


def training(model: Transformer, *, sequence: int, batch: int = 1, **more: Any) -> Graph:
    """Return a training step: a forward pass with its loss, and the backward pass derived from it.

    Parameters and errors as `forward`. The step of the optimizer is not in the graph.
    """
    whole = forward(model, sequence=sequence, batch=batch, loss=True, **more)
    return backward.training(whole, "loss")


def prefill(
    model: Transformer,
    *,
    sequence: int,
    batch: int = 1,
    absorbed: bool = True,
    dtype: Dtype = Dtype.BF16,
    capacity: float = 1.0,
) -> Graph:
    """Return the reading of prompts: keys and values are kept, and the last token's word is made.

    Parameters and errors as `forward`; ``absorbed`` as `decode`.
    """
    absorbed = absorbed and model.latent is not None
    written = _Written(model=model, dtype=dtype, capacity=capacity, keeps=True, absorbed=absorbed)
    written.begin(batch=batch, tokens=sequence)
    ends = written.draft.index("last", "batch")
    x = written.layers()
    end = written.draft.make("end", Function.GATHER, x, ends, axes="batch hidden", over="sequence")
    written.words(end, "batch")
    return written.graph()


def decode(
    model: Transformer,
    *,
    context: int,
    tokens: int = 1,
    batch: int = 1,
    absorbed: bool = True,
    dtype: Dtype = Dtype.BF16,
    capacity: float = 1.0,
) -> Graph:
    """Return one step of writing: new tokens of every sequence after what was kept of others.

    Parameters
    ----------
    model : Transformer
        The shape.
    context : int
        Tokens whose keys and values are kept; layers with a window read what it reaches. [1]
    tokens : int
        New ones of a sequence: 1, or more where a draft is checked. [1]
    batch : int
        Sequences. [1]
    absorbed : bool
        Whether latent attention keeps the latent vector and nothing else
        (``deepseek2024v2``, section 2.1.2); otherwise it keeps the keys and values of all heads.
    dtype, capacity
        As `forward`.

    Raises
    ------
    InputError
        As `forward`.
    """
    require_whole("context", context)
    absorbed = absorbed and model.latent is not None
    written = _Written(model=model, dtype=dtype, capacity=capacity, absorbed=absorbed)
    written.begin(batch=batch, tokens=tokens, context=context)
    written.words(written.layers(), TOKENS)
    return written.graph()


@dataclass(slots=True, kw_only=True)
class _Written:
    """A graph of a model as far as it is written down; fields as those of `LayerDraft`."""

    model: Transformer
    dtype: Dtype
    capacity: float
    keeps: bool = False
    absorbed: bool = False
    drops: bool = False
    document: int = 0
    context: int = 0
    draft: Draft = field(default_factory=Draft)

    def begin(self, *, batch: int, tokens: int, context: int = 0) -> None:
        """Check what is asked for, and add the axes that all parts have."""
        model = self.model
        require_type("model", model, Transformer)
        require_whole("batch", batch)
        require_whole("sequence", tokens)
        require_quantity("capacity", self.capacity, "1")
        require(self.capacity >= 1, "capacity", self.capacity, "1 or more: an even share")
        if model.position is Position.LEARNED:
            most = f"at most {model.positions}, the places that are learned"
            end = context + tokens
            require(end <= model.positions, "sequence", end, most)
        self.draft.dtype, self.context = self.dtype, context
        self.draft.axis(AxisUse.TOKEN, batch=batch, sequence=tokens)
        self.draft.axis(hidden=model.hidden, vocabulary=model.vocabulary)
        if model.position is not Position.ALIBI:
            self.draft.index("places", "sequence")

    @property
    def once(self) -> LayerDraft:
        """What runs once."""
        return LayerDraft(draft=self.draft, model=self.model, drops=self.drops)

    def graph(self) -> Graph:
        """Return the graph; what is left is the head."""
        self.draft.close("head")
        return self.draft.graph()

    # ------------------------------------------------------------ tokens and words

    @property
    def narrow(self) -> str:
        """The axis of a row of the table of tokens."""
        if self.model.embedding in (0, self.model.hidden):
            return "hidden"
        self.once.axes(embedding_size=self.model.embedding)
        return "embedding_size"

    def _looked_up(self, name: str, table: str, places: str, axes: str, over: str) -> str:
        return self.draft.make(name, Function.GATHER, table, places, axes=axes, over=over)

    def _vectors(self, name: str, tokens: str) -> str:
        """Return the vectors of tokens, as wide as a layer."""
        once, width = self.once, self.narrow
        table = self.draft.weight("embedding", f"vocabulary {width}")
        x = self._looked_up(name, table, tokens, f"{TOKENS} {width}", "vocabulary")
        if width == "hidden":
            return x
        return once.product(f"{name}_wide", x, once.weight("w_in", f"{width} hidden"), HIDDEN)

    def _embedded(self) -> str:
        """Return the tokens as the first layer reads them."""
        model, once = self.model, self.once
        x = self._vectors("x", self.draft.index("tokens", TOKENS))
        if model.position is Position.LEARNED:
            once.axes(position=model.positions)
            table = once.weight("positions", "position hidden")
            placed = self._looked_up("x_places", table, "places", "sequence hidden", "position")
            x = once.add("x_placed", x, placed)
        if model.embedding_norm:
            x = once.norm("x_normed", x)
        x = once.dropped("x", x)
        self.draft.close("embedding")
        return x

    def words(self, x: str, tokens: str) -> str:
        """Return the scores of all words behind tokens: the last norm and the head."""
        if self.model.norms is not NormPlace.AFTER:
            x = self.once.norm("norm", x)
        return self._scores(self.once, x, tokens)

    def _scores(self, layer: LayerDraft, x: str, tokens: str) -> str:
        """Return the scores of all words for tokens that are normed."""
        width, table, cap = self.narrow, "embedding", self.model.logit_cap
        if width != "hidden":
            weight = self.once.weight("w_last", f"hidden {width}")
            x = layer.product("narrowed", x, weight, f"{tokens} {width}")
        if not self.model.tied:
            table = self.draft.weight("head", f"vocabulary {width}")
        scores = layer.product("logits", x, table, f"{tokens} vocabulary")
        if not cap:
            return scores
        axes = f"{tokens} vocabulary"
        return layer.make("logits_capped", Function.SOFT_CAP, scores, axes=axes, parameter=cap)

    # ------------------------------------------------------------ layers

    def layers(self) -> str:
        """Add the tokens and all layers; return what the last one makes."""
        x = self._embedded()
        for run in layer_runs(self.model):
            axis, pairs = f"{run.label}layer", zip(run.kinds, run.labels, strict=True)
            layers = [self._layer(kind, label, axis, run.count) for kind, label in pairs]
            carried = x, layers[-1].named("out")
            with self.draft.repeated(f"{axis}s", axis, carried, layers=len(layers)):
                for layer in layers:
                    x = _layer(layer, x)
        return x

    def _layer(self, kind: LayerKind, label: str, axis: str, count: int) -> LayerDraft:
        """Return layers of a kind, and add the axes that they need."""
        model = self.model
        cached = self.context
        if kind.window:  # the first new token sees itself and so many before it
            cached = min(cached, max(kind.window - 1, 1))
        layer = LayerDraft(
            draft=self.draft, model=model, kind=kind, label=label, axis=axis, cached=cached,
            keeps=self.keeps, absorbed=self.absorbed, drops=self.drops, capacity=self.capacity,
            document=self.document,
        )  # fmt: skip
        layer.axes(**{axis: count})
        if cached:
            layer.axes(**{layer.context: cached})
        layer.axes(**{layer.keys: cached + layer.size("sequence")})
        layer.axes(AxisUse.GROUP, heads=model.heads)
        if model.group > 1:
            layer.axes(AxisUse.GROUP, kv_heads=model.kv_heads)
            layer.axes(group=model.group)
        layer.axes(head_size=model.head_size)
        return layer

    # ------------------------------------------------------------ loss

    def compare(self, logits: str, last: str) -> None:
        """Add the loss of words, with that of words further ahead where layers predict them."""
        ahead = self.model.predictors
        labels = self.draft.index("labels", TOKENS)
        self._loss("loss_next" if ahead else "loss", self.once, logits, labels)
        if not ahead:
            return
        self.draft.close("head")
        losses = self._predicted(last)
        mean = self.draft.reduced("loss_ahead", Function.MEAN, losses, over="predictor")
        part = self.draft.make("loss_part", Function.SCALE, mean, parameter=PREDICTOR_SHARE)
        self.draft.make("loss", Function.ADD, "loss_next", part)
        self.draft.close("loss")

    def _loss(self, name: str, layer: LayerDraft, logits: str, labels: str) -> str:
        each = layer.reduced("losses", Function.CROSS_ENTROPY, logits, labels, over="vocabulary")
        return self.draft.make(name, Function.MEAN, each, axes="", over=TOKENS, stored=layer.axis)

    def _predicted(self, last: str) -> str:
        """Add layers that predict words further ahead; return their losses.

        Each joins what came from the one before with the tokens in between
        (``deepseek2024v3``, section 2.2).
        """
        model, draft = self.model, self.draft
        kind = model.layer(model.layers - 1)
        layer = self._layer(kind, "predictor_", "predictor", model.predictors)
        layer.axes(pair=2 * model.hidden)
        tokens = draft.index("tokens_ahead", f"predictor {TOKENS}")
        labels = draft.index("labels_ahead", f"predictor {TOKENS}")
        with draft.repeated("predictors", "predictor", (last, layer.named("out"))):
            state = layer.norm("state_norm", last)
            token = layer.norm("token_norm", self._vectors(layer.named("x"), tokens))
            axes = f"{TOKENS} pair"
            pair = layer.make("pair", Function.CONCATENATE, state, token, axes=axes, over="pair")
            x = layer.product("joined", pair, layer.weight("w_pair", "pair hidden"), HIDDEN)
            out = layer.norm("norm", _layer(layer, x))
            logits = self._scores(layer, out, TOKENS)
            return self._loss(layer.named("loss"), layer, logits, labels)


def _layer(layer: LayerDraft, x: str) -> str:
    """Add one layer; return what it makes, which is called ``out``."""
    model, places = layer.model, layer.model.norms
    before = places is not NormPlace.AFTER
    normed = layer.norm("attention_norm", x) if before else x
    attended = attention(layer, normed)
    if model.parallel:
        if before and places is not NormPlace.SHARED:
            normed = layer.norm("feed_forward_norm", x)
        both = [attended, feed_forward(layer, normed)]
        names = ("attention", "feed_forward")
        both = [layer.dropped(name, y) for name, y in zip(names, both, strict=True)]
        if places in (NormPlace.AFTER, NormPlace.BOTH):
            both = [layer.norm(f"{name}_after", y) for name, y in zip(names, both, strict=True)]
        return layer.add("out", layer.add("attention_added", x, both[0]), both[1])
    x = _added(layer, "attention", x, attended)
    normed = layer.norm("feed_forward_norm", x) if before else x
    return _added(layer, "feed_forward", x, feed_forward(layer, normed), "out")


def _added(layer: LayerDraft, name: str, x: str, part: str, called: str = "") -> str:
    """Add a part of a layer to the tokens, with the norm behind it where there is one."""
    places, added = layer.model.norms, called or f"{name}_added"
    part = layer.dropped(name, part)
    if places is NormPlace.AFTER:
        return layer.norm(called or f"{name}_after", layer.add(f"{name}_added", x, part))
    part = layer.norm(f"{name}_after", part) if places is NormPlace.BOTH else part
    return layer.add(added, x, part)
