"""One training step of an LSTM language model: the time of every part, then of the whole.

Each part of the model (embedding, cell, softmax; forward and backward) is timed on one chip
with what it exchanges; cells, embeddings and softmaxes of all tokens then run as tasks on the chips
of the pipeline. Kernel and data parallelism are the same on all chips of a stage, so they enter the
times of the parts in closed form. Sources: ``ardalani2022deepflow``, section 5; ``deepflow_code``
for what each part reads, writes and computes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from crosstack.errors import InputError, Problem
from crosstack.mapping.strategy import KernelSplit
from crosstack.model.schedule.events import (
    TaskGraph,
    TaskGraphBuilder,
    Timeline,
    check_tasks,
    simulate,
)
from crosstack.published.deepflow.distributed import KP1, KP2, LP, Distributed, prepare
from crosstack.workload.lstm import LstmModel

__all__ = ["LstmParts", "LstmStep", "lstm_graph", "lstm_parts", "lstm_step"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LstmParts:
    """Time of every part for one token. [s]

    ``transfer_*`` sends activations to the next stage; ``reduce_*`` sums the gradient of a weight
    and updates it.
    """

    embedding_forward: float
    cell_forward: float
    softmax_forward: float
    transfer_forward: float
    embedding_backward: float
    cell_backward: float
    softmax_backward: float
    transfer_backward: float
    reduce_embedding: float
    reduce_cell: float
    reduce_softmax: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LstmStep:
    """A step: its parts, and when each of them ran."""

    parts: LstmParts
    forward: Timeline
    backward: Timeline
    model: LstmModel

    @property
    def time(self) -> float:
        """Forward pass, then backward pass. [s]"""
        return self.forward.makespan + self.backward.makespan

    @property
    def pass_time(self) -> float:
        """When the last token is through backward, without sums that end later. [s]"""
        return self.forward.makespan + self.backward.end_without("reduction")

    def work(self, stage: int, lp: int) -> dict[str, float]:
        """Return what every part takes one of ``lp`` stages in a step. [s]"""
        tokens = self.model.sequence
        counts = {
            "embedding": tokens * (stage == 0),
            "cell": tokens * _stages_of_layers(self.model.layers, lp).count(stage),
            "softmax": tokens * (stage == lp - 1),
        }
        return {
            f"{part} {way}": count * getattr(self.parts, f"{part}_{way}")
            for way in ("forward", "backward")
            for part, count in counts.items()
        }


def lstm_step(model: LstmModel, chips: Distributed) -> LstmStep:
    """Time one step of ``model``.

    Raises
    ------
    InputError
        If the strategy cannot split the model, or something is sent where there is no link.
    """
    _check(model, chips)
    prepare(chips.times, lambda asked: lstm_parts(model, replace(chips, times=asked)))
    parts = lstm_parts(model, chips)
    runs = [
        simulate(lstm_graph(model, parts, chips.strategy.lp, forward=forward))
        for forward in (True, False)
    ]
    return LstmStep(parts=parts, forward=runs[0], backward=runs[1], model=model)


def lstm_parts(model: LstmModel, chips: Distributed) -> LstmParts:
    """Return the time of every part.

    Notes
    -----
    A cell is a product of ``2 D`` by ``G D`` for the batch, then five elementwise kernels (gates,
    memory, output) that read and write 13 numbers for every gate. The softmax is a product of ``D``
    by ``V``, then four kernels of ``B (3 V - 1)`` operations. With a kernel split, the gates of a
    cell are exchanged, since they are multiplied with one another.
    """
    batch = math.ceil(model.batch / chips.strategy.dp)
    split = chips.strategy.kp1 * chips.strategy.kp2 > 1
    if not split:
        found = _whole_parts(model, chips, batch)
    elif chips.strategy.split is KernelSplit.CR:
        found = _cr_parts(model, chips, batch)
    else:
        found = _rc_parts(model, chips, batch)
    width, wide, known = model.width, model.gates * model.width, model.vocabulary
    size = chips.times.element_size * batch * width / (chips.strategy.kp1 * chips.strategy.kp2)
    transfer = chips.send(size, LP) if chips.strategy.lp > 1 else 0.0
    return LstmParts(
        **found,
        transfer_forward=transfer,
        transfer_backward=transfer,
        reduce_embedding=chips.reduce_gradient(known, width),
        reduce_cell=chips.reduce_gradient(2 * width, wide),
        reduce_softmax=chips.reduce_gradient(width, known),
    )


def _whole_parts(model: LstmModel, chips: Distributed, b: int) -> dict[str, float]:
    """Parts without a kernel split."""
    times, p, launch = chips.times, chips.times.element_size, chips.times.launch_overhead
    d, v, n, k = model.width, model.vocabulary, model.gates * model.width, 2 * model.width
    lookup = times.elementwise(0, 2 * b * d * p) + launch
    cell = times.elementwise(5 * b * n, 13 * b * n * p) + 5 * launch
    cell_back = times.elementwise(5 * b * d + k * n, 13 * b * d * p + 6 * d * n * p) + 5 * launch
    softmax = times.elementwise(b * (3 * v - 1), 7 * b * v * p) + 4 * launch
    softmax_back = times.elementwise(5 * b * v, 11 * b * v * p) + 4 * launch
    return {
        "embedding_forward": lookup,
        "cell_forward": times.product(b, k, n) + cell,
        "softmax_forward": times.product(b, d, v) + softmax,
        "embedding_backward": lookup,
        "cell_backward": chips.backward(b, k, n) + cell_back,
        "softmax_backward": chips.backward(b, d, v) + softmax_back,
    }


def _cr_parts(model: LstmModel, chips: Distributed, b: int) -> dict[str, float]:
    """Parts where each product is split along its sum."""
    times, p, launch, a = (
        chips.times,
        chips.times.element_size,
        chips.times.launch_overhead,
        chips.strategy.kp1,
    )
    d, v, n, k = model.width, model.vocabulary, model.gates * model.width, 2 * model.width
    gates = chips.send(4 * b * (n / a) * p, KP1)
    cell = times.elementwise(5 * b * n / a, 13 * b * n * p / a) + 5 * launch + gates
    cell_back = (
        times.elementwise(5 * b * n / a + k * n / a, 13 * b * n * p / a + 6 * d * n * p / a)
        + 5 * launch
        + gates
    )
    sums = chips.all_gather(b, 1, KP1)
    softmax = times.elementwise(3 * b * v / a, 7 * b * v * p / a) + launch + sums
    softmax_back = times.elementwise(5 * b * v / a, 11 * b * v * p / a) + launch
    lookup = times.elementwise(0, 2 * b * d * p) + launch + chips.all_gather(b, d, KP1)
    return {
        "embedding_forward": lookup,
        "cell_forward": chips.forward(b, k, n) + cell,
        "softmax_forward": chips.forward(b, d, v) + softmax,
        "embedding_backward": lookup,
        "cell_backward": chips.backward(b, k, n) + cell_back,
        "softmax_backward": chips.backward(b, d, v) + softmax_back,
    }


def _rc_parts(model: LstmModel, chips: Distributed, batch: int) -> dict[str, float]:
    """Parts where each product is split into rows and columns."""
    times, p, launch = chips.times, chips.times.element_size, chips.times.launch_overhead
    a, c = chips.strategy.kp1, chips.strategy.kp2
    d, v, n, k = model.width, model.vocabulary, model.gates * model.width, 2 * model.width
    b = batch / a
    own = b * (n / c)

    def exchanged(size: float) -> float:
        return chips.send(size, KP2) if c > 1 else 0.0

    cell = times.elementwise(5 * own, 13 * own * p) + 5 * launch + exchanged(own * 4 * p)
    cell_back = (
        times.elementwise(5 * own + k * n / c, 13 * own * p + 6 * d * n * p / c)
        + 5 * launch
        # The backward pass exchanges the gates of the whole batch.
        + exchanged(int(batch * (n / c) * 4 * p))
    )
    logits = b * (v / c)
    softmax = times.elementwise(3 * logits, 7 * logits * p) + launch + exchanged(p * b * c)
    softmax_back = times.elementwise(5 * logits, 11 * logits * p) + launch
    lookup = times.elementwise(0, 2 * b * (d / c) * p) + launch
    return {
        "embedding_forward": lookup,
        "cell_forward": chips.forward(batch, k, n) + cell,
        "softmax_forward": chips.forward(batch, d, v) + softmax,
        "embedding_backward": lookup + chips.all_gather(batch, d / c, KP1),
        "cell_backward": chips.backward(batch, k, n) + cell_back,
        "softmax_backward": chips.backward(batch, d, v) + softmax_back,
    }


# ---------------------------------------------------------------- the graph


def _chip(stage: int) -> str:
    return f"stage {stage}"


def _link(number: int) -> str:
    return f"link {number}"


def _stages_of_layers(layers: int, lp: int) -> list[int]:
    first = 0 if lp <= 2 else 1  # stage of the first layer
    each = math.ceil(layers / (lp if lp == 1 else lp - 1 - first))
    return [first + i // each for i in range(layers)]


def lstm_graph(
    model: LstmModel,
    parts: LstmParts,
    lp: int,
    *,
    forward: bool,
    layer_stages: Sequence[int] = (),
) -> TaskGraph:
    """Return the tasks of one pass.

    With ``lp`` stages the embedding has the first, the softmax the last and the layers share those
    between, unless ``layer_stages`` says where each is; two stages give the embedding the layers
    too. Link k carries activations from stage k,
    the links behind them gradients. A cell waits for the cell before it in its layer, for that of
    the same token in the layer below and, within a stage, for the token before in the layer above,
    so that tokens advance in waves; a pass backward is the mirror image.
    """
    tokens, layers = model.sequence, model.layers
    check_tasks(4 * tokens * (layers + 2))  # a node and the edges to its neighbours
    build = TaskGraphBuilder(map(_chip, range(lp)))
    build.resources(map(_link, range(2 * lp - 1)))
    way, ahead = ("forward", 1) if forward else ("backward", -1)
    sent = parts.transfer_forward if forward else parts.transfer_backward
    stages = [0, *(layer_stages or _stages_of_layers(layers, lp)), lp - 1]
    kinds = ["embedding", *["cell"] * layers, "softmax"]
    names = ["embedding", *(f"cell {i}" for i in range(layers)), "softmax"]
    rows = [
        [
            build.add(
                f"{name} token {t}",
                getattr(parts, f"{kind}_{way}"),
                resource=_chip(stage),
                kind=way,
            )
            for t in range(tokens)
        ]
        for name, kind, stage in zip(names, kinds, stages, strict=True)
    ]

    def edge(source: int, target: int, link: int | None = None) -> None:
        """Join two nodes by a transfer; one without a link is free and takes no time."""
        resource = None if link is None else _link(link)
        name = "transfer" if link is not None else "hand over"
        time = 0.0 if link is None else sent
        move = build.add(name, time, resource=resource, after=[source], kind="transfer")
        build.join(move, target)

    def up(low: int, t: int) -> None:
        """Join a token in two rows that follow one another."""
        pair = rows[low][t], rows[low + 1][t]
        one, other = stages[low], stages[low + 1]
        edge(*(pair if forward else pair[::-1]), None if one == other else max(one, other) - 1)

    inside = [t for t in range(tokens) if 0 <= t + ahead < tokens]
    for row in rows[1:-1]:
        for t in inside:
            edge(row[t], row[t + ahead])
    for t in range(tokens):
        up(0, t)
        up(layers, t)
    for i in range(1, layers):
        for t in range(tokens):
            up(i, t)
    for i in range(1, layers + 1):
        other = i - ahead
        if 1 <= other <= layers and stages[i] == stages[other]:
            for t in inside:
                edge(rows[i][t], rows[other][t + ahead])
    starting = rows[0] if forward else rows[-1]
    for t in inside:
        edge(starting[t], starting[t + ahead])
    if not forward:
        # Each as soon as its last token is done; a stage has one link for that.
        for i in (layers + 1, *range(1, layers + 1), 0):
            build.add(
                f"reduce {names[i]}",
                getattr(parts, f"reduce_{kinds[i]}"),
                resource=_link(lp - 1 + stages[i]),
                after=[rows[i][0]],
                kind="reduction",
            )
    return build.build()


def _check(model: LstmModel, chips: Distributed) -> None:
    """Refuse strategies that cannot split the model evenly."""
    s = chips.strategy
    if s.lp > model.layers + 2:
        allowed = f"at most {model.layers + 2} stages: layers, embedding and softmax"
        raise InputError(Problem("strategy", f"{s}: got {s.lp} stages; allowed: {allowed}."))
    batch = math.ceil(model.batch / s.dp)
    uneven = []
    if s.split is KernelSplit.CR:
        uneven += [("width", model.width, s.kp1)]
    else:
        uneven += [("batch of a replica", batch, s.kp1), ("width", model.width, s.kp2)]
    for name, number, degree in uneven:
        if number % degree:
            message = f"{s} splits the {name}, {number}, {degree} ways, which leaves a remainder."
            raise InputError(Problem("strategy", message))
