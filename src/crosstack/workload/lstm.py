"""An LSTM language model: its shape, its graph over named axes, and its training as a workload.

An embedding, layers of gates whose cells are a block that repeats along the words, a projection to
the vocabulary. Source: ``ardalani2022deepflow``, section 6 (its language model).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from crosstack.errors import require
from crosstack.records import Checked, Count, Natural
from crosstack.workload.axes import AxisUse
from crosstack.workload.dataflow import Graph
from crosstack.workload.draft import Draft
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import Function
from crosstack.workload.graph_workload import workload_of
from crosstack.workload.passes.backward import training
from crosstack.workload.workload import Workload

WORDS = "sequence batch"
GATES = {
    "input": Function.SIGMOID,
    "forget": Function.SIGMOID,
    "output": Function.SIGMOID,
    "candidate": Function.TANH,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LstmModel(Checked):
    """The shape of the model and of one batch: ``batch`` sequences of ``sequence`` tokens.

    ``gates`` are products of each cell, side by side; ``projection`` is the width of one that
    enters the parameters alone. [1]
    """

    batch: Count
    sequence: Count
    vocabulary: Count
    layers: Count
    width: Count
    gates: Count = 4
    projection: Natural = 0
    name: str = "LSTM"

    @property
    def parameters(self) -> int:
        """Weights and biases: ``V D + (2 D + 1) G D L + D P + (D + 1) V``. [1]"""
        d, v = self.width, self.vocabulary
        cells = (2 * d + 1) * self.gates * d * self.layers
        return v * d + cells + d * self.projection + (d + 1) * v


def language_model_graph(model: LstmModel, *, dtype: Dtype = Dtype.BF16) -> Graph:
    """Return a model and its loss, forward: `crosstack.workload.passes.backward` derives the rest.

    Raises
    ------
    InputError
        If a cell has another number of gates than four, or a projection.

    Notes
    -----
    What a cell adds up of the layer below does not wait for the word before: it is a product for
    all words at once, before the block that repeats.
    """
    require(model.gates == len(GATES), "gates", model.gates, f"{len(GATES)} of an LSTM")
    require(model.projection == 0, "projection", model.projection, "0: it is no operation")
    draft = Draft(dtype=dtype)
    draft.axis(AxisUse.TOKEN, sequence=model.sequence, batch=model.batch)
    draft.axis(width=model.width, width_in=model.width, vocabulary=model.vocabulary)
    embedding = draft.weight("embedding", "vocabulary width")
    words = draft.index("words", WORDS)
    below = draft.make(
        "embedded", Function.GATHER, embedding, words, axes=f"{WORDS} width", over="vocabulary"
    )
    for layer in range(1, model.layers + 1):
        below = _layer(draft, below, f"{layer}")
    head = draft.weight("head", "width vocabulary")
    logits = draft.product("logits", below, head, f"{WORDS} vocabulary")
    biased = draft.make("logits_biased", Function.ADD, logits, draft.weight("bias", "vocabulary"))
    labels = draft.index("labels", WORDS)
    losses = draft.reduced("losses", Function.CROSS_ENTROPY, biased, labels, over="vocabulary")
    draft.reduced("loss", Function.MEAN, losses, over=WORDS)
    return draft.graph()


def _layer(draft: Draft, below: str, layer: str) -> str:
    """Add a layer of cells; return what it hands to the next: the output of every cell."""
    cell = "batch width"
    seen = draft.seen(below, f"{WORDS} width_in")
    taken = {}
    for gate in GATES:
        weight = draft.weight(f"W_{gate}_{layer}", "width_in width")
        bias = draft.weight(f"B_{gate}_{layer}", "width")
        plain = draft.product(f"{gate}_of_words_{layer}", seen, weight, f"{WORDS} width")
        taken[gate] = draft.make(f"{gate}_biased_{layer}", Function.ADD, plain, bias)
    start = [draft.tensor(f"{what}_start_{layer}", cell) for what in ("shown", "kept")]
    last = f"shown_{layer}", f"kept_{layer}"
    with draft.repeated(f"cells_{layer}", "sequence", *zip(start, last, strict=True)):
        gates = {}
        for gate, function in GATES.items():
            weight = draft.weight(f"U_{gate}_{layer}", "width_in width")
            before = draft.seen(start[0], "batch width_in")
            again = draft.product(f"{gate}_of_state_{layer}", before, weight, cell)
            both = draft.make(f"{gate}_sum_{layer}", Function.ADD, taken[gate], again)
            gates[gate] = draft.make(f"{gate}_{layer}", function, both)
        stays = draft.make(f"stays_{layer}", Function.MULTIPLY, gates["forget"], start[1])
        comes = draft.make(f"comes_{layer}", Function.MULTIPLY, gates["input"], gates["candidate"])
        kept = draft.make(last[1], Function.ADD, stays, comes)
        shown = draft.make(f"tanh_{layer}", Function.TANH, kept)
        return draft.make(
            last[0], Function.MULTIPLY, gates["output"], shown, axes=cell,
            stored=f"{WORDS} width",
        )  # fmt: skip


@lru_cache(maxsize=16)
def language_model(model: LstmModel, *, dtype: Dtype = Dtype.BF16) -> Workload:
    """Return one step of training a model; a projection, which is no operation, is left out."""
    graph = training(language_model_graph(replace(model, projection=0), dtype=dtype), "loss")
    return workload_of(graph, items="batch", name=model.name)
