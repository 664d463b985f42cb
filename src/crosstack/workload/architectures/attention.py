"""Attention as operations: heads with keys and values of their own, shared, or of a latent vector.

Scores are taken as one product, with a window and later tokens left out (`Causal`); their factor is
the softmax's. Where tokens were read before, their keys and values come from outside, and the new
ones are put behind them.

Latent attention (``deepseek2024v2``, section 2.1) has two forms. In the one, keys and values of all
heads are made of the latent vector; it is what training and the reading of prompts do. In the
other, *absorbed*, the projection to keys is taken to the queries and that to values behind the
weighted sum (section 2.1.2), so that one latent vector with the shared rotary part is the key of
all heads, and the vector alone the value: nothing else is kept, and writing reads no more.
"""

from __future__ import annotations

from crosstack.workload.architectures.layer import LatentAttention, Norm, Position
from crosstack.workload.architectures.layer_draft import TOKENS, LayerDraft
from crosstack.workload.draft import Read
from crosstack.workload.functions import Function
from crosstack.workload.operations import Role

ROTARY_BASE = 10_000.0  # ``su2021roformer``


def attention(layer: LayerDraft, x: str) -> str:
    """Add attention of tokens, normed where they are; return what it adds to them."""
    model = layer.model
    if model.latent is not None:
        absorbed = layer.absorbed and layer.cached
        return (_absorbed if absorbed else _latent)(layer, model.latent, x)
    heads = "heads" if model.group == 1 else "kv_heads"
    queries = _turned(layer, _projected(layer, "queries", x, "heads"))
    keys = _turned(layer, _projected(layer, "keys", x, heads))
    values = _projected(layer, "values", x, heads)
    rest = f"{heads} head_size"
    read = queries, layer.with_past("keys", keys, rest), layer.with_past("values", values, rest)
    return _out(layer, _attended(layer, *read, "head_size"), "head_size")


def _projected(layer: LayerDraft, name: str, x: str, heads: str) -> str:
    """Return queries, keys or values, with their bias and norm."""
    axes = f"{heads} head_size"
    bias = axes if layer.model.qkv_bias else ""
    made = layer.projected(name, x, "hidden", axes, bias=bias)
    if layer.model.qk_norm and name != "values":
        made = layer.norm(f"{name}_norm", made, "head_size", Norm.RMS)
    return made


def _turned(layer: LayerDraft, read: str, over: str = "head_size") -> str:
    """Turn pairs of an axis by the places of the tokens, where the model tells places that way."""
    if layer.model.position is not Position.ROTARY:
        return read
    axes = " ".join(layer.draft.names(read))
    return layer.draft.make(
        f"{read}_turned", Function.ROTARY, read, "places", axes=axes, over=over,
        parameter=ROTARY_BASE,
    )  # fmt: skip


def _out(layer: LayerDraft, attended: str, size: str) -> str:
    bias = "hidden" if layer.model.output_bias else ""
    return layer.projected("attention_out", attended, f"heads {size}", "hidden", bias=bias)


def _attended(layer: LayerDraft, queries: str, keys: Read, values: Read, size: str) -> str:
    """Return the weighted values of every head."""
    heads = "heads" if layer.model.group == 1 else "kv_heads group"
    return _weighted(layer, queries, keys, values, heads, size)


def _weighted(
    layer: LayerDraft, queries: str, keys: Read, values: Read, heads: str, size: str
) -> str:
    """Return the weighted values, of queries whose width is last; scores call axes ``heads``."""
    model, draft = layer.model, layer.draft
    factor, width = model.head_size**-0.5, draft.names(queries)[-1]
    if model.score_cap:
        axes = " ".join(draft.names(queries))
        queries = layer.make("queries_scaled", Function.SCALE, queries, axes=axes, parameter=factor)
        factor = 0.0
    axes = f"batch {heads} sequence {layer.keys}"
    seen = _seen(layer, queries, f"{TOKENS} {heads} {width}")
    mask = {"mask": layer.seen}
    scores = draft.product(layer.named("scores"), seen, keys, axes, **mask)
    if model.score_cap:
        cap = model.score_cap
        scores = layer.make("scores_capped", Function.SOFT_CAP, scores, parameter=cap, **mask)
    if model.position is Position.ALIBI:
        slopes = _slopes(layer, heads)
        scores = layer.make("scores_sloped", Function.ADD, scores, slopes, axes=axes, **mask)
    weights = layer.rows(
        "weights", Function.SOFTMAX, scores, over=layer.keys, parameter=factor, **mask
    )
    weights = layer.dropped("weights", weights, **mask)
    stored = f"{TOKENS} heads {size}"
    axes = f"{TOKENS} {heads} {size}"
    return draft.product(layer.named("attended"), values, weights, axes, stored=stored)


def _seen(layer: LayerDraft, tensor: str, axes: str) -> Read:
    return tensor if " ".join(layer.draft.names(tensor)) == axes else layer.draft.seen(tensor, axes)


def _slopes(layer: LayerDraft, heads: str) -> Read:
    """Return what each head adds to the scores of a key, over the factor of the softmax.

    A softmax does not change with what is added to a whole row, so that the place of the key says
    as much as its distance (``press2022alibi``).
    """
    if "slopes" not in layer.draft.tensors:
        layer.draft.tensor("slopes", f"heads {layer.keys}", Role.CONSTANT)
    return _seen(layer, "slopes", f"{heads} {layer.keys}")


# ---------------------------------------------------------------- latent


def _queries(layer: LayerDraft, latent: LatentAttention, x: str) -> tuple[str, str]:
    """Return the two parts of the queries: that of the content, and that which is turned."""
    read, width = x, "hidden"
    if latent.query_rank:
        layer.axes(query_rank=latent.query_rank)
        read = layer.projected("query_latent", x, "hidden", "query_rank")
        read, width = layer.norm("query_norm", read, "query_rank", Norm.RMS), "query_rank"
    content, turned = (
        layer.projected(f"queries_{part}", read, width, f"heads {part}_size")
        for part in ("content", "rotary")
    )
    return content, _turned(layer, turned, "rotary_size")


def _kept(layer: LayerDraft, latent: LatentAttention, x: str) -> tuple[str, str]:
    """Return the latent vector of the new tokens, and the part of keys that all heads share."""
    layer.axes(
        key_value_rank=latent.key_value_rank, content_size=latent.content_size,
        rotary_size=latent.rotary_size, value_size=latent.value_size,
    )  # fmt: skip
    vector = layer.projected("latent", x, "hidden", "key_value_rank")
    shared = layer.projected("rotary", x, "hidden", "rotary_size")
    vector = layer.norm("latent_norm", vector, "key_value_rank", Norm.RMS)
    return vector, _turned(layer, shared, "rotary_size")


def _latent(layer: LayerDraft, latent: LatentAttention, x: str) -> str:
    """Return what attention adds, keys and values being made of the latent vector."""
    vector, shared = _kept(layer, latent, x)
    if layer.keeps and layer.absorbed:
        layer.keep(vector)
        layer.keep(shared)
    content, turned = _queries(layer, latent, x)
    queries = _joined(layer, "queries", content, turned, "heads head_size")
    made, values = (
        layer.projected(name, vector, "key_value_rank", f"heads {size}")
        for name, size in (("keys_content", "content_size"), ("values", "value_size"))
    )
    keys = layer.with_past(
        "keys", _joined(layer, "keys", made, shared, "heads head_size"), "heads head_size"
    )
    past = layer.with_past("values", values, "heads value_size")
    return _out(layer, _attended(layer, queries, keys, past, "value_size"), "value_size")


def _joined(layer: LayerDraft, name: str, one: str, other: str, rest: str) -> str:
    """Put an axis of two parts together, the last of those besides tokens."""
    axes, over = f"{TOKENS} {rest}", rest.rsplit(maxsplit=1)[-1]
    return layer.make(name, Function.CONCATENATE, one, other, axes=axes, over=over)


def _absorbed(layer: LayerDraft, latent: LatentAttention, x: str) -> str:
    """Return what attention adds, the latent vector being the key and the value of all heads.

    Heads are rows of one product then, as queries that share a key are.
    """
    vector, shared = _kept(layer, latent, x)
    content, turned = _queries(layer, latent, x)
    layer.axes(latent_size=latent.key_value_rank + latent.rotary_size, head_row=layer.model.heads)
    to_keys = layer.weight("w_keys_content", "key_value_rank heads content_size")
    taken = layer.product("queries_latent", content, to_keys, f"{TOKENS} heads key_value_rank")
    queries = _joined(layer, "queries", taken, turned, "heads latent_size")
    kept = _joined(layer, "kept", vector, shared, "latent_size")
    keys = layer.with_past("latent", kept, "latent_size")
    axes = f"batch {layer.keys} key_value_rank"
    values = layer.make("values", Function.SLICE, keys, axes=axes, over="latent_size")
    rows = _weighted(layer, queries, keys, values, "head_row", "key_value_rank")
    weight = layer.weight("w_values", "key_value_rank heads value_size")
    made = layer.product("head_values", rows, weight, f"{TOKENS} heads value_size")
    return _out(layer, made, "value_size")
