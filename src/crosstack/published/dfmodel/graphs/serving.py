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
from crosstack.published.dfmodel.graphs.builders import elementwise, join, product_of
from crosstack.records import require_type
from crosstack.workload.architectures import NormPlace, Transformer
from crosstack.workload.kernel_graph import KernelGraph
from crosstack.workload.kernels import ComputeUnit, Consumer, Kernel
from crosstack.workload.workload import Workload

__all__ = ["decode", "prefill"]

# Features that the graphs below have no kernels for, and how a model without one is written.
_UNSAID = {
    "latent": "keys and values by head",
    "experts": "one feed-forward network a layer",
    "parallel": "attention before the feed-forward network",
}


def _is_row_wise(name: str) -> bool:
    """Return whether a kernel needs whole rows."""
    return name.startswith(("LayerNorm", "SOFTMAX"))


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


class _Layer:
    """Kernels and edges of one layer, by name, as they are written down."""

    def __init__(self, model: Transformer, tokens: int, word: int) -> None:
        self.model, self.tokens, self.word = model, tokens, word
        self.kernels: list[Kernel] = []
        self.place: dict[str, int] = {}
        self.edges: list[tuple[int, int, int]] = []
        self.normed = {"Q": "Q", "K": "K"}  # who makes what scores are taken of

    def add(self, kernel: Kernel, *reads: str) -> None:
        """Append a kernel that reads what the named kernels make, in order of its operands."""
        self.kernels.append(kernel)
        number = self.place[kernel.name] = len(self.kernels)
        self.edges += [(self.place[name], number, i) for i, name in enumerate(reads)]

    def size_of(self, name: str) -> float:
        return self.kernels[self.place[name] - 1].output_size

    def pointwise(self, name: str, width: int, *reads: str) -> None:
        """Add an elementwise kernel on ``width`` numbers a token."""
        inputs, rows = max(len(reads), 1), _is_row_wise(name)
        kernel = elementwise(name, width, self.tokens, word=self.word, inputs=inputs, row_wise=rows)
        self.add(kernel, *reads)

    def project(self, name: str, shape: tuple[int, int, int], read: str) -> None:
        """Add a projection of ``shape`` (outer, M, K) with a weight."""
        outer, m, k = shape
        kernel = product_of(
            name,
            (outer, m, k, self.tokens),
            word=self.word,
            input_sizes=(self.size_of(read),),
            weight_size=float(outer * m * k * self.word),
        )
        self.add(kernel, read)

    def multiply(self, name: str, shape: tuple[int, int, int, int], *reads: str) -> None:
        """Add a product of two tensors."""
        sizes = tuple(self.size_of(read) for read in reads)
        self.add(product_of(name, shape, word=self.word, input_sizes=sizes), *reads)

    def scores(self, name: str, rows: int, columns: int, read: str) -> None:
        """Add an elementwise kernel on the attention of each head."""
        heads, whole = self.model.kv_heads, _is_row_wise(name)
        kernel = elementwise(name, rows, columns, outer=heads, word=self.word, row_wise=whole)
        self.add(kernel, read)

    def start(self) -> None:
        """Add what comes before attention, and the projections to queries, keys and values."""
        m = self.model
        self.pointwise("Add_Prev_Layer", m.hidden)
        self.pointwise("LayerNorm_1", m.hidden, "Add_Prev_Layer")
        for name, heads in (("Q", m.heads), ("K", m.kv_heads), ("V", m.kv_heads)):
            self.project(name, (heads, m.head_size, m.hidden), "LayerNorm_1")
        if m.qk_norm:
            for name, heads in (("Q", m.heads), ("K", m.kv_heads)):
                norm = self.normed[name] = f"LayerNorm_{name}"
                shape = m.head_size, self.tokens
                kernel = elementwise(norm, *shape, outer=heads, word=self.word, row_wise=True)
                self.add(kernel, name)

    def finish(self) -> None:
        """Add what comes after attention."""
        m, h = self.model, self.model.hidden
        self.project("PROJ_GEMM", (1, h, m.heads * m.head_size), "MHA_GEMM_2")
        self.pointwise("DropOut_2", h, "PROJ_GEMM")
        self.pointwise("Add_1", h, self.after("LayerNorm_3", "DropOut_2"), "Add_Prev_Layer")
        self.pointwise("LayerNorm_2", h, "Add_1")
        self.project("FFN0", (1, m.feed_forward, h), "LayerNorm_2")
        if m.gated:
            self.project("FFN_Gate", (1, m.feed_forward, h), "LayerNorm_2")
            self.pointwise("SiLU", m.feed_forward, "FFN_Gate")
            self.pointwise("Gate", m.feed_forward, "SiLU", "FFN0")
        else:
            self.pointwise("GeLU", m.feed_forward, "FFN0")
        last = "Gate" if m.gated else "GeLU"
        self.project("FFN1", (1, h, m.feed_forward), last)
        self.pointwise("DropOut_3", h, "FFN1")
        self.pointwise("Add_2", h, self.after("LayerNorm_4", "DropOut_3"), "Add_1")

    def after(self, norm: str, read: str) -> str:
        """Add a norm of what half a layer makes, if the model has one; return who makes it."""
        if self.model.norms is NormPlace.BEFORE:
            return read
        self.pointwise(norm, self.model.hidden, read)
        return norm

    def graph(self) -> KernelGraph:
        return join(self.kernels, self.edges, self.word)


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
    layer = _Layer(model, tokens, word)
    heads, rows = model.kv_heads, model.group * tokens
    layer.start()
    layer.multiply("MHA_GEMM_1", (heads, rows, model.head_size, tokens), *layer.normed.values())
    layer.scores("SOFTMAX", rows, tokens, "MHA_GEMM_1")
    layer.scores("DropOut_1", rows, tokens, "SOFTMAX")
    layer.multiply("MHA_GEMM_2", (heads, model.head_size, tokens, rows), "V", "DropOut_1")
    layer.finish()
    return Workload(
        graph=layer.graph(),
        n_layers=model.layers,
        global_batch_size=global_batch_size,
        sequence_length=tokens,
        boundary_size=float(model.hidden * tokens * word),
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
    layer = _Layer(model, tokens, word)
    heads, reach = model.kv_heads, context + tokens
    kept = float(heads * model.head_size * context * word)
    layer.start()
    for letter, made in (("K", layer.normed["K"]), ("V", "V")):
        layer.add(_cache(f"{letter}_cache", model, reach, tokens, word, kept), made)
    rows = model.group * tokens
    queries = layer.normed["Q"]
    layer.multiply("MHA_GEMM_1", (heads, rows, model.head_size, reach), queries, "K_cache")
    layer.scores("SOFTMAX", rows, reach, "MHA_GEMM_1")
    layer.scores("DropOut_1", rows, reach, "SOFTMAX")
    layer.multiply("MHA_GEMM_2", (heads, model.head_size, reach, rows), "V_cache", "DropOut_1")
    layer.finish()
    graph = _elided(layer.graph())
    if chips is not None:
        require_whole("chips", chips)
        graph = graph.listing(kernels=tuple(_spread(k, reach, chips) for k in graph.kernels))
    return Workload(
        graph=graph,
        n_layers=model.layers,
        global_batch_size=global_batch_size,
        sequence_length=tokens,
        boundary_size=float(model.hidden * tokens * word),
        name=f"{model.name} decode",
        item="token" if tokens == 1 else f"window of {tokens:,} tokens",
    )


def _cache(
    name: str,
    model: Transformer,
    reach: int,
    tokens: int,
    word: int,
    kept: float,
) -> Kernel:
    """Return the kernel that adds new keys or values to those that are ``kept``. [B]"""
    heads, width = model.kv_heads, model.head_size
    size = float(heads * width * word)
    kernel = elementwise(name, width, tokens, outer=heads, word=word)
    return replace(
        kernel,
        input_sizes=(size * tokens,),
        output_size=size * reach,
        cache_size=kept,
    )


def _elided(graph: KernelGraph) -> KernelGraph:
    """Return the graph with the cache itself on no edge: reading it is counted once."""
    tensors = tuple(
        replace(
            tensor,
            consumers=tuple(
                Consumer(kernel=c.kernel, operand=c.operand, elided=True) for c in tensor.consumers
            ),
        )
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
