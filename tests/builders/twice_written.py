"""The same workload written twice: as kernels with extents and bytes, and over named axes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from builders.named_models import gpt_attention, gpt_axes
from crosstack.published.dfmodel.graphs.builders import elementwise, join, product_of
from crosstack.workload.axes import AxisUse
from crosstack.workload.dataflow import Graph
from crosstack.workload.draft import Draft, Read
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import TABLE, Function
from crosstack.workload.functions import Function as Of
from crosstack.workload.kernel_graph import KernelGraph
from crosstack.workload.kernels import Direction, Kernel, Saved
from crosstack.workload.operations import Block, Role

GROUP, TOKEN = AxisUse.GROUP, AxisUse.TOKEN


def gpt_forward(*, sequence: int, heads: int, head: int) -> Graph:
    """A layer of the published `llm_graph`, kernel by kernel, over named axes."""
    return _forward(sequence, heads, head).graph()


def _forward(sequence: int, heads: int, head: int) -> Draft:
    draft = Draft()
    draft.axis(layer=3)
    gpt_axes(draft, batch=1, sequence=sequence, heads=heads, head=head, ff=4 * heads * head)
    with draft.repeated("forward", "layer", ("x", "Add_2")):
        _forward_layer(draft)
    for tensor in draft.tensors.values():  # every layer has its own
        if tensor.role in (Role.WEIGHT, Role.MASK):
            draft.tensors[tensor.name] = replace(tensor, axes=("layer", *tensor.axes))
    return draft


def _forward_layer(draft: Draft) -> None:
    wide = "hidden sequence"

    def norm(name: str, read: str) -> str:
        return draft.rows(name, Of.LAYER_NORM, read, over="hidden")

    def dropped(name: str, read: str) -> str:
        mask = draft.tensor(f"M_{name}", wide, Role.MASK, dtype=Dtype.INT8)
        return draft.make(name, Of.DROPOUT, read, mask, parameter=0.1)

    before = draft.make("Add_Prev_Layer", Of.COPY, draft.tensor("x", wide))
    first = norm("LayerNorm_1", before)
    plain = gpt_attention(draft, first, "sequence", causal=False, biases=False, scaled=False)
    projection = draft.weight("W_PROJ_GEMM", "heads head_size hidden")
    draft.product("PROJ_GEMM", plain, projection, wide)
    added = draft.make("Add_1", Of.ADD, dropped("DropOut_2", "PROJ_GEMM"), before)
    second = norm("LayerNorm_2", added)
    up = draft.weight("W_FFN0", "hidden feed_forward")
    draft.make("GeLU", Of.GELU, draft.product("FFN0", second, up, "feed_forward sequence"))
    down = draft.weight("W_FFN1", "feed_forward hidden")
    last = dropped("DropOut_3", draft.product("FFN1", "GeLU", down, wide))
    draft.make("Add_2", Of.ADD, last, added)


def gpt_by_hand(*, sequence: int, heads: int, head: int) -> Graph:
    """One layer of the published `llm_graph` with its backward pass as it is there.

    What that leaves out is left out: sums of gradients, the first norm, operands of derivatives.
    """
    draft = _forward(sequence, heads, head)
    with draft.repeated("backward", "layer", ("dy", "K_bwd"), reverse=True):
        _backward_layer(draft)
    draft.blocks[1] = replace(draft.blocks[1], twin="forward")
    return draft.graph()


def _backward_layer(draft: Draft) -> None:
    back: dict[str, Any] = {"role": Role.GRADIENT}
    wide, inner, weights = "hidden sequence", "feed_forward sequence", "W_{}"
    per_head, scores = "heads head_size sequence", "heads key_sequence sequence"
    # Columns are tokens: a sum over queries calls them keys, and the keys tokens.
    keys, turned = "heads head_size key_sequence", "heads sequence key_sequence"

    def point(name: str, read: str, axes: str) -> str:
        return draft.make(name, Of.COPY, read, axes=axes, **back)

    def through(name: str, read: Read, axes: str, **more: Any) -> str:
        return draft.product(f"{name}_bwd", read, weights.format(name), axes, **back, **more)

    def update(name: str, gradient: Read, read: Read, axes: str) -> None:
        made = draft.product(f"{name}_bwd_weight_update", gradient, read, axes, **back)
        own = draft.tensors[made]
        draft.tensors[made] = replace(own, axes=("layer", *own.axes), of=weights.format(name))

    point("Loss_bwd", draft.tensor("dy", wide, Role.GRADIENT), wide)
    third = point("DropOut_3_bwd", "Loss_bwd", wide)
    gelu = point("GeLU_bwd", through("FFN1", third, inner), inner)
    normed = draft.rows("LayerNorm_2_bwd", Of.LAYER_NORM, through("FFN0", gelu, wide),
                        over="hidden", **back)  # fmt: skip
    second = point("DropOut_2_bwd", normed, wide)
    draft.product("PROJ_GEMM_bwd", second, draft.seen("W_PROJ_GEMM", "hidden_in hidden"),
                  "hidden_in sequence", **back)  # fmt: skip
    heads_of = draft.seen("PROJ_GEMM_bwd", per_head)
    values = draft.seen("V", "key_sequence heads head_size")
    draft.product("MHA_GEMM_2_bwd1", heads_of, values, scores, **back)
    draft.product("MHA_GEMM_2_bwd2", draft.seen("PROJ_GEMM_bwd", keys),
                  draft.seen("DropOut_1", turned), per_head, **back)  # fmt: skip
    through("V", "MHA_GEMM_2_bwd2", wide)
    draft.rows("SOFTMAX_bwd", Of.SOFTMAX, point("DropOut_1_bwd", "MHA_GEMM_2_bwd1", scores),
               over="key_sequence", **back)  # fmt: skip
    draft.product("MHA_GEMM_1_bwd1", "SOFTMAX_bwd", draft.seen("K", "key_sequence heads head_size"),
                  per_head, **back)  # fmt: skip
    draft.product("MHA_GEMM_1_bwd2", draft.seen("SOFTMAX_bwd", turned),
                  draft.seen("Q", "key_sequence heads head_size"), per_head, **back)  # fmt: skip
    for name, read in (("Q", "MHA_GEMM_1_bwd1"), ("K", "MHA_GEMM_1_bwd2")):
        through(name, draft.seen(read, wide), per_head, stored=wide)
    update("FFN1", third, "GeLU", "feed_forward hidden")
    update("FFN0", gelu, "LayerNorm_2", "hidden feed_forward")
    update("PROJ_GEMM", second, draft.seen("MHA_GEMM_2", "sequence hidden_in"), "hidden_in hidden")
    for name, read in (
        ("V", "MHA_GEMM_2_bwd2"),
        ("K", "MHA_GEMM_1_bwd2"),
        ("Q", "MHA_GEMM_1_bwd1"),
    ):
        update(name, draft.seen(read, "hidden_in sequence"), "LayerNorm_1", "hidden hidden_in")


@dataclass(slots=True)
class Made:
    """What a kernel made: how it is laid out, its axes, and the number of the kernel from 1."""

    name: str
    shape: str  # plain, headed or scores
    axes: tuple[str, ...]
    number: int


@dataclass(slots=True)
class TwiceWritten:
    """A random description that is written down in both forms while it grows."""

    rng: Random
    word: int = 2
    draft: Draft = field(default_factory=Draft)
    sizes: dict[str, int] = field(default_factory=dict)
    kernels: list[Kernel] = field(default_factory=list)
    edges: list[tuple[int, int, int]] = field(default_factory=list)
    pool: list[Made] = field(default_factory=list)
    backward: bool = False
    masks: dict[str, int] = field(default_factory=dict)

    def begin(self) -> None:
        rng = self.rng
        self.word = rng.choice([2, 4])
        self.draft.dtype = {2: Dtype.BF16, 4: Dtype.FP32}[self.word]
        size = rng.choice([1, 8, 48, 100])
        self.sizes = {
            "sequence": size, "key_sequence": size, "heads": rng.choice([1, 4, 6]),
            "head_size": rng.choice([8, 20]),
        }  # fmt: skip
        self.sizes |= {f"wide_{i}": rng.choice([1, 16, 33, 80]) for i in range(3)}
        use = {"sequence": TOKEN, "heads": GROUP}
        for name, extent in self.sizes.items():
            self.draft.axis(use.get(name, AxisUse.FEATURE), **{name: extent})

    # ------------------------------------------------------------ both forms

    def bytes_of(self, axes: tuple[str, ...]) -> float:
        return float(self.count(axes) * self.word)

    def count(self, axes: tuple[str, ...]) -> int:
        found = 1
        for axis in axes:
            found *= self.sizes[axis]
        return found

    def some(self, *shapes: str) -> Made:
        """Something made before, or from outside."""
        fitting = [m for m in self.pool if m.shape in shapes]
        if fitting and self.rng.random() < 0.85:
            return self.rng.choice(fitting)
        shape = self.rng.choice(shapes)
        lead = {
            "plain": (f"wide_{self.rng.randrange(3)}",),
            "headed": ("heads", "head_size"),
            "scores": ("heads", "key_sequence"),
        }[shape]
        name = f"outside_{len(self.draft.tensors)}"
        axes = (*lead, "sequence")
        self.draft.tensor(name, " ".join(axes))
        return Made(name, shape, axes, 0)

    def done(self, kernel: Kernel, made: Made, *reads: Made) -> None:
        back = Direction.BACKWARD if self.backward else Direction.FORWARD
        self.kernels.append(replace(kernel, direction=back))
        made.number = len(self.kernels)
        self.edges += [(r.number, made.number, i) for i, r in enumerate(reads) if r.number]
        self.pool.append(made)

    def projection(self, name: str) -> None:
        """A product with a weight: from plain or heads to plain or heads."""
        x = self.some("plain", "headed")
        shape = self.rng.choice(["plain", "headed"])
        out = ("heads", "head_size") if shape == "headed" else (f"wide_{self.rng.randrange(3)}",)
        depth = tuple(a for a in x.axes if a != "sequence")
        if {*out} & {*depth}:
            if shape == "headed":
                return self.point(name)
            out = (next(a for a in ("wide_0", "wide_1") if a not in depth),)
        weight = self.draft.weight(f"weight_{name}", " ".join((*depth, *out)))
        self.draft.product(name, x.name, weight, " ".join((*out, "sequence")))
        outer, rows = (self.sizes["heads"], out[1:]) if shape == "headed" else (1, out)
        kernel = product_of(
            name,
            (outer, self.count(rows), self.count(depth), self.sizes["sequence"]),
            word=self.word,
            input_sizes=(self.bytes_of(x.axes),),
            weight_size=self.bytes_of((*depth, *out)),
        )
        return self.done(kernel, Made(name, shape, (*out, "sequence"), 0), x)

    def scores(self, name: str) -> None:
        q, k = self.some("headed"), self.some("headed")
        seen = self.draft.seen(k.name, "heads head_size key_sequence")
        self.draft.product(name, q.name, seen, "heads key_sequence sequence")
        s = self.sizes
        kernel = product_of(
            name,
            (s["heads"], s["sequence"], s["head_size"], s["sequence"]),
            word=self.word,
            input_sizes=(self.bytes_of(q.axes), self.bytes_of(k.axes)),
        )
        self.done(kernel, Made(name, "scores", ("heads", "key_sequence", "sequence"), 0), q, k)

    def values(self, name: str) -> None:
        v, p = self.some("headed"), self.some("scores")
        seen = self.draft.seen(v.name, "heads head_size key_sequence")
        self.draft.product(name, seen, p.name, "heads head_size sequence")
        s = self.sizes
        kernel = product_of(
            name,
            (s["heads"], s["head_size"], s["sequence"], s["sequence"]),
            word=self.word,
            input_sizes=(self.bytes_of(v.axes), self.bytes_of(p.axes)),
        )
        self.done(kernel, Made(name, "headed", ("heads", "head_size", "sequence"), 0), v, p)

    def update(self, name: str) -> None:
        """The gradient of a weight: a sum over tokens."""
        if not self.backward:
            return self.point(name)
        dy, x = self.some("plain"), self.some("plain")
        rows, columns = x.axes[0], dy.axes[0]
        if rows == columns:
            return self.point(name)
        weight = self.draft.weight(f"weight_{name}", f"{rows} {columns}")
        self.draft.product(name, dy.name, x.name, f"{rows} {columns}", role=Role.GRADIENT)
        self.draft.tensors[name] = replace(self.draft.tensors[name], of=weight)
        kernel = product_of(
            name,
            (1, self.sizes[rows], self.sizes["sequence"], self.sizes[columns]),
            word=self.word,
            input_sizes=(self.bytes_of(dy.axes), self.bytes_of(x.axes)),
            weight_update=True,
        )
        return self.done(kernel, Made(name, "weight", (rows, columns), 0), dy, x)

    def point(self, name: str) -> None:
        """A function of elements or of rows of one tensor, or of two of the same axes."""
        x = self.some("plain", "headed", "scores")
        function = self.rng.choice(
            [Of.COPY, Of.GELU, Of.SILU, Of.ADD, Of.MULTIPLY, Of.LAYER_NORM, Of.SOFTMAX, Of.DROPOUT]
        )
        reads = [x]
        others = [m for m in self.pool if m.axes == x.axes]
        if function in (Of.ADD, Of.MULTIPLY):
            reads.append(self.rng.choice(others or [x]))
        rows = function in (Of.LAYER_NORM, Of.SOFTMAX)
        names, more = [r.name for r in reads], {}
        if rows:
            more["over"] = x.axes[-2]
        if function is Of.DROPOUT:
            names.append(self.mask(x, name))
        self.draft.make(name, function, *names, axes=" ".join(x.axes), **more)
        outer = self.sizes["heads"] if x.axes[0] == "heads" else 1
        kernel = elementwise(
            name, self.sizes[x.axes[-2]], self.sizes["sequence"], outer=outer, word=self.word,
            inputs=len(reads), row_wise=rows,
        )  # fmt: skip
        each = max(int(TABLE[function].work), 1)
        self.done(replace(kernel, operations=each), Made(name, x.shape, x.axes, 0), *reads)

    def mask(self, x: Made, name: str) -> str:
        """A mask, in the backward pass one that a forward kernel used, where there is one."""
        axes = " ".join(x.axes)
        used = [m for m in self.masks if self.draft.tensors[m].axes == x.axes]
        if self.backward and used:
            mask = self.rng.choice(used)
            place = self.masks[mask]
            self.kernels[place] = replace(self.kernels[place], saved=Saved.MASK)
            return mask
        made = self.draft.tensor(f"mask_{name}", axes, Role.MASK, dtype=Dtype.INT8)
        if not self.backward:
            self.masks[made] = len(self.kernels)
        return made


def twice_written(rng: Random) -> tuple[KernelGraph, Graph, str]:
    """A random workload in both forms, and the block that has it."""
    both = TwiceWritten(rng)
    both.begin()
    kinds = (both.projection, both.scores, both.values, both.update, both.point, both.point)
    count, turn = rng.randint(1, 14), rng.randint(0, 14)
    for i in range(count):
        if i == max(turn, 1):
            both.draft.close("forward")
            both.backward = True
        rng.choice(kinds)(f"kernel_{i}")
    both.draft.close("backward" if both.backward else "forward")
    blocks = both.draft.blocks
    if both.backward:
        both.draft.blocks = [blocks[0], replace(blocks[1], twin=blocks[0].name)]
    new, kernels, edges = both.draft.graph(), both.kernels, both.edges
    shuffled = _shuffled(new, rng)
    return _listed(kernels, edges, shuffled, both.word), shuffled, "forward"


def _shuffled(graph: Graph, rng: Random) -> Graph:
    """The operations of every block in another order."""

    def mixed(block: Block) -> Block:
        return replace(block, operations=tuple(rng.sample(block.operations, len(block.operations))))

    return replace(graph, blocks=tuple(map(mixed, graph.blocks)))


def _listed(
    kernels: list[Kernel], edges: list[tuple[int, int, int]], graph: Graph, word: int
) -> KernelGraph:
    """The kernels in the order in which a graph lists its operations."""
    place = {o.name: i + 1 for i, o in enumerate(o for b in graph.blocks for o in b.operations)}
    number = {i + 1: place[kernel.name] for i, kernel in enumerate(kernels)}
    listed = sorted(kernels, key=lambda kernel: place[kernel.name])
    return join(listed, sorted((number[i], number[j], o) for i, j, o in edges), word)


def at_least_one(operation) -> float:
    """Work of an element as kernels without named axes count it: one at least."""
    return max(TABLE[Function(operation.function)].work, 1.0)
