"""Feed-forward networks as operations: one for all tokens, or experts that a router chooses among.

Experts take an even share of the tokens, each those that chose it, up to a capacity
(``shazeer2017moe``); so the work is that of the experts which a token is sent to. One token alone
has its experts to itself, and the others are not read; which of them some tokens leave unread
follows from the chance that they do (`crosstack.workload.passes.routing.touched_share`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from crosstack.workload.architectures.layer import Activation, Experts
from crosstack.workload.architectures.layer_draft import HIDDEN, TOKENS, LayerDraft
from crosstack.workload.axes import AxisUse
from crosstack.workload.draft import Read
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import Function
from crosstack.workload.operations import Role

Weights = Callable[[str, str], Read]  # of a name and axes

_PLAIN = {
    Activation.GELU: Function.GELU,
    Activation.RELU: Function.RELU,
    Activation.SQUARED_RELU: Function.SQUARED_RELU,
    Activation.SILU: Function.SILU,
}
_GATED = {Activation.GELU: Function.GATED_GELU, Activation.SILU: Function.GATED_SILU}
CHOICES = f"{TOKENS} choice"
CHOSEN = f"{TOKENS} active"
_INDEX = {"role": Role.INDEX, "dtype": Dtype.INT32}


def feed_forward(layer: LayerDraft, x: str) -> str:
    """Add the feed-forward network of a layer to tokens ``x``; return what it adds to them."""
    experts = layer.model.experts
    if not layer.kind.experts or experts is None:
        layer.axes(feed_forward=layer.model.feed_forward)
        return _network(layer, x, TOKENS, "feed_forward", layer.weight)
    layer.axes(choice=experts.count, active=experts.active, expert_width=experts.feed_forward)
    layer.axes(AxisUse.GROUP, expert=experts.count)
    chosen, gates = _routed(layer, experts, x)
    alone = layer.n_tokens == 1
    made = _each(layer, x, chosen, gates) if alone else _even(layer, experts, x, chosen, gates)
    if experts.shared:
        layer.axes(shared_width=experts.shared * experts.feed_forward)
        shared = _network(layer, x, TOKENS, "shared_width", layer.weight, "shared_")
        made = layer.add("with_shared", made, shared)
    return made


def _network(
    layer: LayerDraft, x: str, lead: str, width: str, weights: Weights, label: str = ""
) -> str:
    """Add a network of rows ``lead``: up, the nonlinearity with a gate if there is one, and down.

    ``width`` is the axis inside; names begin with ``label``.
    """
    model, inner = layer.model, f"{lead} {width}"

    def product(name: str, read: str, into: str, out: str) -> str:
        name = f"{label}{name}"
        made = layer.draft.product(
            layer.named(name), read, weights(f"w_{name}", f"{into} {out}"), f"{lead} {out}"
        )
        if model.feed_forward_bias:
            made = layer.add(f"{name}_biased", made, weights(f"b_{name}", out))
        return made

    up, plain = product("up", x, "hidden", width), _PLAIN[model.activation]
    if not model.gated:
        made = layer.make(f"{label}active", plain, up, axes=inner)
    else:
        gate = product("gate", x, "hidden", width)
        if model.activation in _GATED:
            made = layer.make(f"{label}gated", _GATED[model.activation], gate, up, axes=inner)
        else:
            gate = layer.make(f"{label}active", plain, gate, axes=inner)
            made = layer.make(f"{label}gated", Function.MULTIPLY, gate, up, axes=inner)
    return product("down", made, width, "hidden")


# ---------------------------------------------------------------- experts


def _routed(layer: LayerDraft, experts: Experts, x: str) -> tuple[str, str]:
    """Return which experts a token is sent to, and the share that each has in the sum.

    Shares are chances, or where a bias keeps the load even a sigmoid of scores
    (``deepseek2024v3``, section 2.1.2), of those chosen, which add up to one.
    """
    scores = layer.product("routes", x, layer.weight("w_router", "hidden choice"), CHOICES)
    if experts.router_bias:
        chances = layer.make("chances", Function.SIGMOID, scores, axes=CHOICES)
        ranked = layer.add("ranked", chances, layer.weight("b_router", "choice"))
    else:
        ranked = chances = layer.rows("chances", Function.SOFTMAX, scores, over="choice")
    most = {"over": "choice", "parameter": float(experts.reached)}
    chosen = layer.make("chosen", Function.SELECT, ranked, axes=CHOSEN, **most, **_INDEX)
    shares = layer.make("shares", Function.GATHER, chances, chosen, axes=CHOSEN, over="choice")
    total = layer.reduced("shares_total", Function.SUM, shares, over="active")
    return chosen, layer.make("gates", Function.DIVIDE, shares, total, axes=CHOSEN)


def _even(layer: LayerDraft, experts: Experts, x: str, chosen: str, gates: str) -> str:
    """Send tokens to experts that each take an even share."""
    slots, share = "expert capacity", layer.n_tokens * experts.active / experts.count
    size = min(math.ceil(layer.capacity * share), layer.n_tokens)
    layer.axes(AxisUse.TOKEN, capacity=size)
    spread = layer.make(
        "gates_spread", Function.SCATTER, gates, chosen, axes=CHOICES, over="choice"
    )
    sent = layer.draft.seen(spread, f"{TOKENS} expert")
    nodes = {"over": TOKENS, "parameter": float(experts.nodes)}
    place = layer.make("place", Function.SELECT, sent, axes=slots, **nodes, **_INDEX)

    def weights(name: str, axes: str) -> str:
        return layer.weight(name, f"expert {axes}")

    wide = f"{slots} hidden"
    taken = layer.make("taken", Function.GATHER, x, place, axes=wide, over=TOKENS)
    down = _network(layer, taken, slots, "expert_width", weights, "expert_")
    part = layer.make("part", Function.GATHER, sent, place, axes=slots, over=TOKENS)
    weighted = layer.make("weighted", Function.MULTIPLY, down, part, axes=wide)
    return layer.make("routed", Function.SCATTER, weighted, place, axes=HIDDEN, over=TOKENS)


def _each(layer: LayerDraft, x: str, chosen: str, gates: str) -> str:
    """Give each choice an expert to itself."""

    def weights(name: str, axes: str) -> str:
        table = layer.weight(name, f"expert {axes}")
        wide = f"{CHOSEN} {axes}"
        return layer.draft.make(
            f"{table}_chosen", Function.GATHER, table, chosen, axes=wide, over="expert"
        )

    down = _network(layer, x, CHOSEN, "expert_width", weights, "expert_")
    weighted = layer.make("weighted", Function.MULTIPLY, down, gates, axes=f"{CHOSEN} hidden")
    return layer.reduced("routed", Function.SUM, weighted, over="active")
