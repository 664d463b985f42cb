"""One training step of an LSTM language model: the time of every part, then of the whole.

Each part of the model (embedding, cell, softmax; forward and backward) is timed on one chip
with what it exchanges; cells, embeddings and softmaxes of all tokens then run as tasks on the chips
of the pipeline. Kernel and data parallelism are the same on all chips of a stage, so they enter the
times of the parts in closed form. Sources: ``ardalani2022deepflow``, section 5; ``deepflow_code``
for what each part reads, writes and computes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product

from crosstack.errors import InputError, Problem
from crosstack.mapping.strategy import KernelSplit
from crosstack.model.schedule.events import TaskGraph, TaskGraphBuilder, Timeline, check_tasks
from crosstack.published.deepflow.distributed import KP1, KP2, Distributed, prepare
from crosstack.workload.lstm import LstmModel

Both = tuple[float, float]  # forward and backward [s]


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
    forward, backward = (
        chips.run(lstm_graph(model, parts, chips.strategy.lp, forward=way)) for way in (True, False)
    )
    return LstmStep(parts=parts, forward=forward, backward=backward, model=model)


def lstm_parts(model: LstmModel, chips: Distributed) -> LstmParts:
    """Return the time of every part.

    Notes
    -----
    A cell is a product of ``2 D`` by ``G D`` for the batch, then five elementwise kernels (gates,
    memory, output) that read and write 13 numbers for every gate. The softmax is a product of ``D``
    by ``V``, then four kernels of ``B (3 V - 1)`` operations. With a kernel split, the gates of a
    cell are exchanged, since they are multiplied with one another, backward those of the whole
    batch.
    """
    s = chips.strategy
    b = math.ceil(model.batch / s.dp)
    d, v, n = model.width, model.vocabulary, model.gates * model.width
    if s.kp1 * s.kp2 == 1:
        look, cell, words = _whole(model, chips, b)
    else:
        look, cell, words = (_cr if s.split is KernelSplit.CR else _rc)(model, chips, b)
    size = chips.times.element_size * b * d / (s.kp1 * s.kp2)
    transfer = chips.hand_on(size) if s.lp > 1 else 0.0
    return LstmParts(
        embedding_forward=look[0],
        embedding_backward=look[1],
        cell_forward=chips.forward(b, 2 * d, n) + cell[0],
        cell_backward=chips.backward(b, 2 * d, n) + cell[1],
        softmax_forward=chips.forward(b, d, v) + words[0],
        softmax_backward=chips.backward(b, d, v) + words[1],
        transfer_forward=transfer,
        transfer_backward=transfer,
        reduce_embedding=chips.reduce_gradient(v, d),
        reduce_cell=chips.reduce_gradient(2 * d, n),
        reduce_softmax=chips.reduce_gradient(d, v),
    )


def _whole(model: LstmModel, chips: Distributed, b: int) -> tuple[Both, Both, Both]:
    """Embedding, and what stands behind the products of cell and softmax, without a kernel split.

    The releases copy embedding vectors from the host.
    """
    pointwise, p = chips.times.elementwise, chips.times.element_size
    launch = chips.times.launch_overhead
    d, v, n = model.width, model.vocabulary, model.gates * model.width
    look = pointwise(0, 2 * b * d * p) + launch
    back = pointwise(5 * b * d + 2 * d * n, 13 * b * d * p + 6 * d * n * p)
    return (
        (look + chips.from_host(2 * b * d * p), look),
        (pointwise(5 * b * n, 13 * b * n * p) + 5 * launch, back + 5 * launch),
        (
            pointwise(b * (3 * v - 1), 7 * b * v * p) + 4 * launch,
            pointwise(5 * b * v, 11 * b * v * p) + 4 * launch,
        ),
    )


def _cr(model: LstmModel, chips: Distributed, b: int) -> tuple[Both, Both, Both]:
    """As `_whole`, where each product is split along its sum."""
    pointwise, p, a = chips.times.elementwise, chips.times.element_size, chips.strategy.kp1
    launch = chips.times.launch_overhead
    d, v, n = model.width, model.vocabulary, model.gates * model.width
    look = pointwise(0, 2 * b * d * p) + launch + chips.all_gather(b, d, KP1)
    gates = chips.send(4 * b * (n / a) * p, KP1)
    work, moved = 5 * b * n / a, 13 * b * n * p / a
    back = pointwise(work + 2 * d * n / a, moved + 6 * d * n * p / a)
    return (
        (look, look),
        (pointwise(work, moved) + 5 * launch + gates, back + 5 * launch + gates),
        (
            pointwise(3 * b * v / a, 7 * b * v * p / a) + launch + chips.all_gather(b, 1, KP1),
            pointwise(5 * b * v / a, 11 * b * v * p / a) + launch,
        ),
    )


def _rc(model: LstmModel, chips: Distributed, batch: int) -> tuple[Both, Both, Both]:
    """As `_whole`, where each product is split into rows and columns."""
    pointwise, p = chips.times.elementwise, chips.times.element_size
    launch, a, c = chips.times.launch_overhead, chips.strategy.kp1, chips.strategy.kp2
    d, v, n = model.width, model.vocabulary, model.gates * model.width
    b = batch / a
    own, words = b * (n / c), b * (v / c)

    def exchanged(size: float) -> float:
        return chips.send(size, KP2) if c > 1 else 0.0

    look = pointwise(0, 2 * b * (d / c) * p) + launch
    back = pointwise(5 * own + 2 * d * n / c, 13 * own * p + 6 * d * n * p / c)
    return (
        (look, look + chips.all_gather(batch, d / c, KP1)),
        (
            pointwise(5 * own, 13 * own * p) + 5 * launch + exchanged(own * 4 * p),
            back + 5 * launch + exchanged(int(batch * (n / c) * 4 * p)),
        ),
        (
            pointwise(3 * words, 7 * words * p) + launch + exchanged(p * b * c),
            pointwise(5 * words, 11 * words * p) + launch,
        ),
    )


def _check(model: LstmModel, chips: Distributed) -> None:
    """Refuse strategies that cannot split the model evenly."""
    s = chips.strategy
    if s.lp > model.layers + 2:
        allowed = f"at most {model.layers + 2} stages: layers, embedding and softmax"
        raise InputError(Problem("strategy", f"{s}: got {s.lp} stages; allowed: {allowed}."))
    uneven = [("width", model.width, s.kp1)]
    if s.split is KernelSplit.RC:
        batch = math.ceil(model.batch / s.dp)
        uneven = [("batch of a replica", batch, s.kp1), ("width", model.width, s.kp2)]
    for name, number, degree in uneven:
        if number % degree:
            message = f"{s} splits the {name}, {number}, {degree} ways, which leaves a remainder."
            raise InputError(Problem("strategy", message))


def _stages_of_layers(layers: int, lp: int) -> list[int]:
    """Return the stage of every layer; embedding and softmax have stages of their own."""
    first = 0 if lp <= 2 else 1
    each = math.ceil(layers / (lp if lp == 1 else lp - 1 - first))
    return [first + i // each for i in range(layers)]


def lstm_graph(model: LstmModel, parts: LstmParts, lp: int, *, forward: bool) -> TaskGraph:
    """Return the tasks of one pass.

    With ``lp`` stages the embedding has the first, the softmax the last and the layers share those
    between; two stages give the embedding the layers too. Link k carries activations from stage k,
    the links behind them gradients. A cell waits for the cell before it in its layer, for that of
    the same token in the layer below and, within a stage, for the token before in the layer above,
    so that tokens advance in waves; a pass backward is the mirror image.
    """
    tokens, layers = model.sequence, model.layers
    check_tasks(4 * tokens * (layers + 2))  # a node and the edges to its neighbours
    build = TaskGraphBuilder(f"stage {stage}" for stage in range(lp))
    build.resources(f"link {number}" for number in range(2 * lp - 1))
    way, ahead = ("forward", 1) if forward else ("backward", -1)
    sent = parts.transfer_forward if forward else parts.transfer_backward
    stages = [0, *_stages_of_layers(layers, lp), lp - 1]
    kinds = ["embedding", *["cell"] * layers, "softmax"]
    names = ["embedding", *(f"cell {i}" for i in range(layers)), "softmax"]
    rows = [
        [
            build.add(
                f"{name} token {t}",
                getattr(parts, f"{kind}_{way}"),
                resource=f"stage {stage}",
                kind=way,
            )
            for t in range(tokens)
        ]
        for name, kind, stage in zip(names, kinds, stages, strict=True)
    ]

    def edge(source: int, target: int, link: int | None = None) -> None:
        """Join two nodes by a transfer; one without a link is free and takes no time."""
        told = ("hand over", 0.0, None) if link is None else ("transfer", sent, f"link {link}")
        move = build.add(told[0], told[1], resource=told[2], after=[source], kind="transfer")
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
    for i, t in product(range(1, layers), range(tokens)):
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
                resource=f"link {lp - 1 + stages[i]}",
                after=[rows[i][0]],
                kind="reduction",
            )
    return build.build()
