"""Transformers that answer requests, as DFModel's runs write them down, kernel by kernel.

The decoding graph is that of published serving runs (``ko2025dfmodel``, section VIII;
``dfmodel_code``), with what those leave out as options: keys and values shared by several heads
(``ainslie2023gqa``), a gated feed-forward network (``shazeer2020glu``), heads that do not fill the
width, and norms of heads and after each half of a layer. Embeddings and the last projection to
words are left out, as there. What else a `Transformer` may be is refused by its field.
"""

from __future__ import annotations

from dataclasses import replace

from crosstack.errors import InputError, Problem, require_whole
from crosstack.published.dfmodel.graphs.builders import Chain, elementwise
from crosstack.records import require_type
from crosstack.workload.architectures import NormPlace, Transformer
from crosstack.workload.kernel_graph import KernelGraph
from crosstack.workload.kernels import ComputeUnit, Kernel
from crosstack.workload.workload import Workload

# Features that the graphs below have no kernels for, and how a model without one is written.
_UNSAID = {
    "latent": "keys and values by head",
    "experts": "one feed-forward network a layer",
    "parallel": "attention before the feed-forward network",
}


def _check(model: Transformer, reach: int) -> None:
    """Refuse what the kernels of a layer do not say: for one token that looks at ``reach`` [1]."""
    require_type("model", model, Transformer)
    problems = [
        Problem(f"model.{field}", f"{model.name} has it; allowed in serving: {allowed}.")
        for field, allowed in _UNSAID.items()
        if getattr(model, field)
    ]
    if 0 < model.window < reach:
        message = (
            f"tokens of {model.name} look at {model.window:,} at most, and {reach:,} are there; "
            "allowed in serving: no more than the window."
        )
        problems.append(Problem("model.window", message))
    if problems:
        raise InputError(problems)
    if model.norms is NormPlace.AFTER:
        allowed = f"{NormPlace.BEFORE} or {NormPlace.BOTH}"
        message = f"got {model.norms} ({model.name}); allowed in serving: {allowed}."
        raise InputError(Problem("model.norms", message))


class Layer(Chain):
    """Kernels and edges of one layer of a transformer."""

    def __init__(self, model: Transformer, tokens: int, word: int) -> None:
        super().__init__(tokens, word)
        self.model = model

    def start(self) -> tuple[str, str]:
        """Add what comes before attention; return who makes what scores are taken of."""
        m = self.model
        self.point("Add_Prev_Layer", m.hidden)
        self.point("LayerNorm_1", m.hidden, "Add_Prev_Layer")
        for name, heads in (("Q", m.heads), ("K", m.kv_heads), ("V", m.kv_heads)):
            self.project(name, (heads, m.head_size, m.hidden), "LayerNorm_1")
        if not m.qk_norm:
            return "Q", "K"
        for name, heads in (("Q", m.heads), ("K", m.kv_heads)):
            self.point(f"LayerNorm_{name}", m.head_size, name, outer=heads)
        return "LayerNorm_Q", "LayerNorm_K"

    def attend(self, queries: str, keys: str, values: str, reach: int) -> None:
        """Add attention of all tokens to ``reach`` ones."""
        m, heads = self.model, self.model.kv_heads
        rows = m.group * self.length
        self.multiply("MHA_GEMM_1", (heads, rows, m.head_size, reach), queries, keys)
        self.point("SOFTMAX", rows, "MHA_GEMM_1", length=reach, outer=heads)
        self.point("DropOut_1", rows, "SOFTMAX", length=reach, outer=heads)
        self.multiply("MHA_GEMM_2", (heads, m.head_size, reach, rows), values, "DropOut_1")

    def finish(self) -> None:
        """Add what comes after attention."""
        m, h = self.model, self.model.hidden
        self.project("PROJ_GEMM", (1, h, m.heads * m.head_size), "MHA_GEMM_2")
        self.point("DropOut_2", h, "PROJ_GEMM")
        self.point("Add_1", h, self.after("LayerNorm_3", "DropOut_2"), "Add_Prev_Layer")
        self.point("LayerNorm_2", h, "Add_1")
        self.project("FFN0", (1, m.feed_forward, h), "LayerNorm_2")
        if m.gated:
            self.project("FFN_Gate", (1, m.feed_forward, h), "LayerNorm_2")
            self.point("SiLU", m.feed_forward, "FFN_Gate")
            self.point("Gate", m.feed_forward, "SiLU", "FFN0")
        else:
            self.point("GeLU", m.feed_forward, "FFN0")
        self.project("FFN1", (1, h, m.feed_forward), "Gate" if m.gated else "GeLU")
        self.point("DropOut_3", h, "FFN1")
        self.point("Add_2", h, self.after("LayerNorm_4", "DropOut_3"), "Add_1")

    def after(self, norm: str, read: str) -> str:
        """Add a norm of what half a layer makes, if the model has one; return who makes it."""
        if self.model.norms is NormPlace.BEFORE:
            return read
        self.point(norm, self.model.hidden, read)
        return norm

    def forward(self) -> None:
        """Add one forward pass of all tokens."""
        queries, keys = self.start()
        self.attend(queries, keys, "V", self.length)
        self.finish()


def prefill(
    model: Transformer, *, tokens: int, global_batch_size: int = 1, word: int = 2
) -> Workload:
    """Return the reading of prompts of ``tokens`` tokens: one forward pass.

    18 kernels and 21 edges a layer, 20 and 24 with a gated network; 2 more with norms of heads, and
    2 with norms after each half.

    Parameters
    ----------
    model : Transformer
        A layer has one feed-forward network after attention, and looks at all tokens.
    tokens, global_batch_size : int
        Tokens of a prompt, prompts of one iteration. [1]
    word : int
        Bytes of one element. [B]

    Raises
    ------
    InputError
        If the graph cannot say what the model has, or a number is no whole number above 0.

    References
    ----------
    ko2025dfmodel, dfmodel_code, ainslie2023gqa, shazeer2020glu
    """
    require_whole("tokens", tokens)
    require_whole("word", word)
    _check(model, tokens)
    layer = Layer(model, tokens, word)
    layer.forward()
    return layer.workload(
        model.hidden,
        n_layers=model.layers,
        global_batch_size=global_batch_size,
        name=f"{model.name} prefill",
        item="prompt",
        item_part="token",
    )


def decode(
    model: Transformer,
    *,
    context: int,
    tokens: int = 1,
    global_batch_size: int = 1,
    word: int = 2,
    chips: int | None = None,
) -> Workload:
    """Return one step of writing: ``tokens`` new tokens after ``context`` old ones.

    20 kernels and 23 edges a layer, 22 and 26 with a gated network, and norms as in `prefill`.

    Parameters
    ----------
    model : Transformer
        As in `prefill`.
    context, tokens : int
        Tokens whose keys and values are kept; new tokens of a step: 1, or more where a draft is
        checked. [1]
    global_batch_size : int
        Sequences that are written at once. [1]
    word : int
        Bytes of one element. [B]
    chips : int, optional
        Tensor-parallel chips: the weights, keys and values that each of them reads become
        `Kernel.memory_traffic`, and its part of the cache lies on the chip and in main memory. For
        rules that do not count reading weights. Keys and values are worked on in the systolic
        array, old ones too. Left out, the cache is `Kernel.cache_size`. [1]

    Raises
    ------
    InputError
        If the graph cannot say what the model has, or a number is no whole number above 0.

    Notes
    -----
    Each step reads ``2 kv_heads head_size context`` words of keys and values a layer and
    sequence; what it adds to them is ``tokens`` long.

    References
    ----------
    ko2025dfmodel (section VIII), dfmodel_code, ainslie2023gqa, shazeer2020glu
    """
    for field, value in {"context": context, "tokens": tokens, "word": word}.items():
        require_whole(field, value)
    _check(model, context + tokens)
    layer, reach, width = Layer(model, tokens, word), context + tokens, model.head_size
    queries, keys = layer.start()
    for name, read in (("K_cache", keys), ("V_cache", "V")):
        kernel = elementwise(name, width, tokens, outer=model.kv_heads, word=word)
        size = float(model.kv_heads * width * word)
        kept = replace(kernel, output_size=size * reach, cache_size=size * context)
        layer.add(kept, read)
    layer.attend(queries, "K_cache", "V_cache", reach)
    layer.finish()
    graph = _elided(layer.graph())
    if chips is not None:
        require_whole("chips", chips)
        graph = graph.listing(kernels=tuple(_spread(k, reach, chips) for k in graph.kernels))
    return layer.workload(
        model.hidden,
        graph,
        n_layers=model.layers,
        global_batch_size=global_batch_size,
        name=f"{model.name} decode",
        item="token" if tokens == 1 else f"window of {tokens:,} tokens",
    )


def _elided(graph: KernelGraph) -> KernelGraph:
    """Return the graph with the cache itself on no edge: reading it is counted once."""
    tensors = tuple(
        replace(tensor, consumers=tuple(replace(c, elided=True) for c in tensor.consumers))
        if tensor.producer.endswith("_cache")
        else tensor
        for tensor in graph.tensors
    )
    return graph.listing(tensors=tensors)


def _spread(kernel: Kernel, reach: int, chips: int) -> Kernel:
    """Write down what each of ``chips`` chips reads and keeps of a kernel."""
    if kernel.cache_size:
        kernel = replace(kernel, n=reach, unit=ComputeUnit.SYSTOLIC)
    kept = kernel.cache_size / chips
    return replace(
        kernel,
        cache_size=0.0,
        memory_traffic=(kernel.weight_size + kernel.cache_size) / chips,
        sram_extra=kept,
        memory_extra=kept,
    )
