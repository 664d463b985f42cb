"""Small whole models as graphs of operations over named axes: a layer is a list, a line each."""

from __future__ import annotations

import numpy as np

from crosstack.workload.axes import AxisUse, Causal, Window
from crosstack.workload.dataflow import Graph
from crosstack.workload.draft import Draft
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import Function as Of
from crosstack.workload.operations import Role

GROUP, TOKEN = AxisUse.GROUP, AxisUse.TOKEN
TOKENS = "batch sequence"
EPSILON = 1e-5


def values_of(graph: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    """Random values of everything that comes from outside."""
    rng = np.random.default_rng(seed)
    found = {}
    for tensor in graph.tensors:
        if tensor.name in graph.makers:
            continue
        shape = [graph.sizes[axis] for axis in tensor.axes]
        if tensor.role is Role.INDEX:
            found[tensor.name] = rng.integers(0, 3, shape)
        elif tensor.role is Role.MASK:
            found[tensor.name] = rng.integers(0, 2, shape)
        else:
            found[tensor.name] = rng.normal(0, 0.7, shape)
    return found


def probed(draft: Draft, result: str, axes: str) -> str:
    """Add a loss: the sum of a result times numbers from outside."""
    probe = draft.tensor("probe", axes, Role.KV_CACHE)
    product = draft.make("probed", Of.MULTIPLY, result, probe)
    return draft.reduced("loss", Of.SUM, product, over=axes)


# ---------------------------------------------------------------- GPT


def gpt_axes(draft: Draft, *, batch: int, sequence: int, heads: int, head: int, ff: int) -> None:
    draft.axis(TOKEN, batch=batch, sequence=sequence)
    draft.axis(GROUP, heads=heads)
    draft.axis(key_sequence=sequence, head_size=head, feed_forward=ff)
    draft.axis(hidden=heads * head, hidden_in=heads * head)


def gpt_attention(
    draft: Draft, x: str, tokens: str, *, causal: bool, biases: bool, scaled: bool = True
) -> str:
    """Queries, keys and values to weighted values, with dropout of the weights."""
    lead = tokens.replace("sequence", "").strip()
    for name in "QKV":
        weight = draft.weight(f"W_{name}", "hidden heads head_size")
        plain = draft.product(name, x, weight, f"{tokens} heads head_size")
        if biases:
            bias = draft.weight(f"B_{name}", "heads head_size")
            draft.make(f"{name}_biased", Of.ADD, plain, bias)
    q, k, v = (f"{name}_biased" if biases else name for name in "QKV")
    keys = f"{lead} key_sequence heads head_size"
    seen = Causal(query="sequence", key="key_sequence") if causal else None
    axes = f"{lead} heads sequence key_sequence"
    draft.product("MHA_GEMM_1", q, draft.seen(k, keys), axes, mask=seen)
    scores = "MHA_GEMM_1"
    if scaled:
        scores = draft.make("SCALE", Of.SCALE, scores, mask=seen, parameter=0.5)
    draft.rows("SOFTMAX", Of.SOFTMAX, scores, over="key_sequence", mask=seen)
    drop = draft.tensor("M_1", axes, Role.MASK, dtype=Dtype.INT8)
    draft.make("DropOut_1", Of.DROPOUT, "SOFTMAX", drop, parameter=0.1, mask=seen)
    weighted = draft.seen(v, keys)
    return draft.product("MHA_GEMM_2", weighted, "DropOut_1", f"{tokens} heads head_size")


def gpt_layer(
    *, batch: int = 2, sequence: int = 3, heads: int = 2, head: int = 2, ff: int = 8,
    causal: bool = True, biases: bool = True, dtype: Dtype = Dtype.BF16,
) -> Graph:  # fmt: skip
    """A layer of a GPT with dropout, and a loss of what it makes."""
    draft = Draft(dtype=dtype)
    gpt_axes(draft, batch=batch, sequence=sequence, heads=heads, head=head, ff=ff)
    wide = f"{TOKENS} hidden"

    def norm(name: str, read: str) -> str:
        reads = [draft.weight(f"{name}_{w}", "hidden") for w in ("scale", "shift")]
        return draft.rows(name, Of.LAYER_NORM, read, *reads, over="hidden", parameter=EPSILON)

    def biased(name: str, read: str, axis: str) -> str:
        if not biases:
            return read
        return draft.make(f"{name}_biased", Of.ADD, read, draft.weight(f"B_{name}", axis))

    def dropped(name: str, read: str) -> str:
        mask = draft.tensor(f"M_{name}", wide, Role.MASK, dtype=Dtype.INT8)
        return draft.make(name, Of.DROPOUT, read, mask, parameter=0.1)

    x = draft.tensor("x", wide)
    first = norm("LayerNorm_1", x)
    attention = gpt_attention(draft, first, TOKENS, causal=causal, biases=biases)
    weight = draft.weight("W_PROJ", "heads head_size hidden")
    projected = biased("PROJ", draft.product("PROJ_GEMM", attention, weight, wide), "hidden")
    added = draft.make("Add_1", Of.ADD, dropped("DropOut_2", projected), x)
    second = norm("LayerNorm_2", added)
    up = draft.product(
        "FFN0", second, draft.weight("W_FFN0", "hidden feed_forward"), f"{TOKENS} feed_forward"
    )
    gelu = draft.make("GeLU", Of.GELU, biased("FFN0", up, "feed_forward"))
    down = draft.product("FFN1", gelu, draft.weight("W_FFN1", "feed_forward hidden"), wide)
    last = draft.make("Add_2", Of.ADD, dropped("DropOut_3", biased("FFN1", down, "hidden")), added)
    probed(draft, last, wide)
    return draft.graph()


# ---------------------------------------------------------------- Llama


def llama(
    *, layers: int = 2, sequence: int = 3, kv_heads: int = 2, group: int = 2, head: int = 4,
    ff: int = 5,
) -> Graph:  # fmt: skip
    """Llama: grouped queries, RMSNorm, SwiGLU, rotary positions; layers repeat; a tied head."""
    draft = Draft()
    draft.axis(TOKEN, batch=2, sequence=sequence)
    draft.axis(GROUP, kv_heads=kv_heads)
    draft.axis(
        layer=layers, key_sequence=sequence, group=group, head_size=head, feed_forward=ff,
        hidden=6, vocabulary=7,
    )  # fmt: skip
    wide, seen = f"{TOKENS} hidden", Causal(query="sequence", key="key_sequence", window=2)
    queries, keys = f"{TOKENS} kv_heads group head_size", f"{TOKENS} kv_heads head_size"
    tokens, places = draft.index("tokens", TOKENS), draft.index("places", "sequence")
    labels, table = draft.index("labels", TOKENS), draft.weight("embedding", "vocabulary hidden")
    x = draft.make("x", Of.GATHER, table, tokens, axes=wide, over="vocabulary")
    with draft.repeated("layers", "layer", ("x", "x_out")):

        def norm(name: str, read: str) -> str:
            scale = draft.weight(f"{name}_scale", "layer hidden")
            return draft.rows(name, Of.RMS_NORM, read, scale, over="hidden", parameter=EPSILON)

        def turned(name: str) -> str:
            more = {"axes": " ".join(draft.names(name)), "over": "head_size", "parameter": 100.0}
            return draft.make(f"{name}_turned", Of.ROTARY, name, places, **more)

        first = norm("norm_1", x)
        for name, axes in (("q", queries), ("k", keys), ("v", keys)):
            own = axes.removeprefix(TOKENS)
            draft.product(name, first, draft.weight(f"w_{name}", f"layer hidden {own}"), axes)
        renamed = keys.replace("sequence", "key_sequence")
        draft.product(
            "scores", turned("q"), draft.seen(turned("k"), renamed),
            "batch kv_heads group sequence key_sequence", mask=seen,
        )  # fmt: skip
        scaled = draft.make("scaled", Of.SCALE, "scores", mask=seen, parameter=head**-0.5)
        draft.rows("weights", Of.SOFTMAX, scaled, over="key_sequence", mask=seen)
        draft.product("values", "weights", draft.seen("v", renamed), queries)
        out = draft.weight("w_out", "layer kv_heads group head_size hidden")
        middle = draft.make("middle", Of.ADD, draft.product("out", "values", out, wide), x)
        second = norm("norm_2", middle)
        inner = f"{TOKENS} feed_forward"
        for name in ("gate", "up"):
            draft.product(
                name, second, draft.weight(f"w_{name}", "layer hidden feed_forward"), inner
            )
        gated = draft.make("gated", Of.MULTIPLY, draft.make("silu", Of.SILU, "gate"), "up")
        down = draft.product(
            "down", gated, draft.weight("w_down", "layer feed_forward hidden"), wide
        )
        draft.make("x_out", Of.ADD, down, middle)
    scale = draft.weight("norm_scale", "hidden")
    last = draft.rows("norm", Of.RMS_NORM, "x_out", scale, over="hidden", parameter=EPSILON)
    logits = draft.product("logits", last, table, f"{TOKENS} vocabulary")
    losses = draft.reduced("losses", Of.CROSS_ENTROPY, logits, labels, over="vocabulary")
    draft.reduced("loss", Of.MEAN, losses, over=TOKENS)
    return draft.graph()


# ---------------------------------------------------------------- mixture of experts


def mixture(*, experts: int = 4, active: int = 2, capacity: int = 3) -> Graph:
    """Experts that each take their best tokens among those that chose them, up to a capacity."""
    draft = Draft()
    draft.axis(TOKEN, batch=2, sequence=3)
    draft.axis(GROUP, expert=experts)
    draft.axis(hidden=4, feed_forward=5, capacity=capacity)
    wide, slots = f"{TOKENS} hidden", "expert capacity"
    x, router = draft.tensor("x", wide), draft.weight("router", "hidden expert")
    scores = draft.product("scores", x, router, f"{TOKENS} expert")
    chances = draft.rows("chances", Of.SOFTMAX, scores, over="expert")
    chosen = draft.rows("chosen", Of.TOP_K, chances, over="expert", parameter=float(active))
    total = draft.reduced("total", Of.SUM, chosen, over="expert")
    gates = draft.make("gates", Of.DIVIDE, chosen, total)
    place = draft.make(
        "place", Of.SELECT, gates, axes=slots, over=TOKENS, role=Role.INDEX, dtype=Dtype.INT32
    )
    taken = draft.make("taken", Of.GATHER, x, place, axes=f"{slots} hidden", over=TOKENS)
    up = draft.product(
        "up", taken, draft.weight("w_up", "expert hidden feed_forward"), f"{slots} feed_forward"
    )
    inner = draft.make("silu", Of.SILU, up)
    w_down = draft.weight("w_down", "expert feed_forward hidden")
    down = draft.product("down", inner, w_down, f"{slots} hidden")
    share = draft.make("share", Of.GATHER, gates, place, axes=slots, over=TOKENS)
    weighted = draft.make("weighted", Of.MULTIPLY, down, share)
    y = draft.make("y", Of.SCATTER, weighted, place, axes=wide, over=TOKENS)
    probed(draft, draft.make("added", Of.ADD, y, x), wide)
    return draft.graph()


# ---------------------------------------------------------------- recurrent


def lstm(*, steps: int = 4, layers: int = 2, width: int = 3) -> Graph:
    """Layers of an LSTM, each a block that repeats along the sequence, and a projection."""
    draft = Draft()
    draft.axis(TOKEN, sequence=steps, batch=2)
    draft.axis(width=width, width_in=width, word=4)
    wide, read = "batch width", "batch width_in"
    below = draft.tensor("x", f"sequence {wide}")
    for layer in range(layers):

        def name(what: str, layer: int = layer) -> str:
            return f"{what}_{layer}"

        inside = {}
        for gate in ("input", "forget", "output", "candidate"):
            weight = draft.weight(name(f"w_{gate}"), "width_in width")
            inside[gate] = draft.product(
                name(gate), draft.seen(below, f"sequence {read}"), weight, f"sequence {wide}"
            )
        start = [draft.tensor(name(what), wide) for what in ("h_0", "c_0")]
        ends = name("h"), name("c")
        with draft.repeated(name("steps"), "sequence", *zip(start, ends, strict=True)):
            gates = {}
            for gate, x in inside.items():
                own = draft.weight(name(f"u_{gate}"), "width_in width")
                again = draft.product(name(f"{gate}_h"), draft.seen(start[0], read), own, wide)
                both = draft.make(name(f"{gate}_sum"), Of.ADD, x, again)
                function = Of.TANH if gate == "candidate" else Of.SIGMOID
                gates[gate] = draft.make(name(f"{gate}_gate"), function, both)
            forgets = draft.make(name("forgets"), Of.MULTIPLY, gates["forget"], start[1])
            adds = draft.make(name("adds"), Of.MULTIPLY, gates["input"], gates["candidate"])
            cell = draft.make(ends[1], Of.ADD, forgets, adds)
            shown = draft.make(name("shown"), Of.TANH, cell)
            below = draft.make(
                ends[0], Of.MULTIPLY, gates["output"], shown, axes=wide, stored=f"sequence {wide}"
            )
    words = draft.product("words", below, draft.weight("out", "width word"), "sequence batch word")
    labels = draft.index("labels", "sequence batch")
    losses = draft.reduced("losses", Of.CROSS_ENTROPY, words, labels, over="word")
    draft.reduced("loss", Of.MEAN, losses, over="sequence batch")
    return draft.graph()


# ---------------------------------------------------------------- convolutions


def convolutional() -> Graph:
    """A residual block: 3 x 3 convolutions with batch norm, then a mean over places and classes."""
    draft = Draft()
    draft.axis(TOKEN, batch=2)
    draft.axis(
        row=5, column=4, row_out=3, column_out=2, tap_row=3, tap_column=3, channel=2, filter=3,
        group_tap=2, label=3, row_last=2,
    )  # fmt: skip
    image = draft.tensor("x", "batch row column channel")

    def slides(stride: int, at: tuple[str, str]) -> tuple[Window, Window]:
        return tuple(
            Window(axis=axis, at=to, tap=f"tap_{axis}", stride=stride, padding=1)
            for axis, to in zip(("row", "column"), at, strict=True)
        )

    kernel = draft.weight("kernel", "tap_row tap_column channel filter")
    made = draft.convolve(
        "convolved", image, kernel, "batch row_out column_out filter",
        *slides(2, ("row_out", "column_out")),
    )  # fmt: skip
    scale, shift = draft.weight("scale", "filter"), draft.weight("shift", "filter")
    normed = draft.rows(
        "normed", Of.LAYER_NORM, made, scale, shift, over="batch row_out column_out",
        parameter=EPSILON,
    )  # fmt: skip
    active = draft.make("active", Of.RELU, normed)
    deep = draft.weight("deep", "group_tap filter")  # a filter of its own for each channel
    window = Window(axis="row_out", at="row_last", tap="group_tap", dilation=2)
    again = draft.convolve("again", active, deep, "batch row_last column_out filter", window)
    pooled = draft.reduced("pooled", Of.MEAN, again, over="row_last column_out")
    logits = draft.product("logits", pooled, draft.weight("head", "filter label"), "batch label")
    losses = draft.reduced("losses", Of.CROSS_ENTROPY, logits, draft.index("labels", "batch"),
                           over="label")  # fmt: skip
    draft.reduced("loss", Of.MEAN, losses, over="batch")
    return draft.graph()
