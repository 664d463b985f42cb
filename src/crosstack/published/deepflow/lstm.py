"""A training step of an LSTM language model in the releases (``deepflow_code``).

Embedding vectors are copied from the host in the forward pass, unless a kernel is split. Two stages
fail, as the index of the embedding's stage runs out.
"""

from __future__ import annotations

import math

from crosstack.errors import InputError, Problem
from crosstack.mapping.strategy import KernelSplit
from crosstack.model.schedule.events import TaskGraph
from crosstack.published.deepflow import paper_lstm
from crosstack.published.deepflow.chips import KP1, KP2, LP, Chips
from crosstack.published.deepflow.paper_lstm import LstmParts
from crosstack.workload.lstm import LstmModel

__all__ = ["HOST_BANDWIDTH", "check_split", "lstm_graph", "lstm_parts", "lstm_work"]

HOST_BANDWIDTH = 12.4 * 2.0**30  # B/s


def lstm_parts(model: LstmModel, chips: Chips) -> LstmParts:
    """Return the time of every part.

    Notes
    -----
    A cell is a product of ``2 D`` by ``G D`` for the batch, then five elementwise kernels; the
    softmax one of ``D`` by ``V``, then four. With a kernel split the gates of a cell are exchanged;
    backward those of the whole batch.

    References
    ----------
    deepflow_code
    """
    s, times = chips.strategy, chips.times
    batch = math.ceil(model.batch / s.dp)
    d, v, n = model.width, model.vocabulary, model.gates * model.width
    if s.kp1 * s.kp2 == 1:
        found = _whole(model, chips, batch)
    elif s.split is KernelSplit.CR:
        found = _cr(model, chips, batch)
    else:
        found = _rc(model, chips, batch)
    transfer = 0.0
    if s.lp > 1:
        transfer = (
            chips.send(times.element_size * batch * d / (s.kp1 * s.kp2), LP)
            + chips.links[LP].latency
        )
    return LstmParts(
        **found,
        transfer_forward=transfer,
        transfer_backward=transfer,
        reduce_embedding=chips.reduce_gradient(v, d),
        reduce_cell=chips.reduce_gradient(2 * d, n),
        reduce_softmax=chips.reduce_gradient(d, v),
    )


def _products(
    model: LstmModel, chips: Chips, b: int, cells: tuple[float, float], words: tuple[float, float]
) -> dict[str, float]:
    """Products of a cell and of the softmax with what stands behind them, forward and backward."""
    d, v, n = model.width, model.vocabulary, model.gates * model.width
    return {
        "cell_forward": chips.forward(b, 2 * d, n) + cells[0],
        "softmax_forward": chips.forward(b, d, v) + words[0],
        "cell_backward": chips.backward(b, 2 * d, n) + cells[1],
        "softmax_backward": chips.backward(b, d, v) + words[1],
    }


def _whole(model: LstmModel, chips: Chips, b: int) -> dict[str, float]:
    """Parts without a kernel split."""
    pointwise, p = chips.times.elementwise, chips.times.element_size
    launch = chips.times.launch_overhead
    d, v, n = model.width, model.vocabulary, model.gates * model.width
    look = pointwise(0, 2 * b * d * p) + launch
    back = pointwise(5 * b * d + 2 * d * n, 13 * b * d * p + 6 * d * n * p)
    cells = pointwise(5 * b * n, 13 * b * n * p) + 5 * launch, back + 5 * launch
    words = (
        pointwise(b * (3 * v - 1), 7 * b * v * p) + 4 * launch,
        pointwise(5 * b * v, 11 * b * v * p) + 4 * launch,
    )
    return {
        "embedding_forward": look + 2 * b * d * p / HOST_BANDWIDTH,
        "embedding_backward": look,
        **_products(model, chips, b, cells, words),
    }


def _cr(model: LstmModel, chips: Chips, b: int) -> dict[str, float]:
    """Parts where each product is split along its sum."""
    pointwise, p, a = chips.times.elementwise, chips.times.element_size, chips.strategy.kp1
    launch = chips.times.launch_overhead
    d, v, n = model.width, model.vocabulary, model.gates * model.width
    look = pointwise(0, 2 * b * d * p) + launch + chips.all_gather(b, d, KP1)
    gates = 5 * launch + chips.send(4 * b * (n / a) * p, KP1)
    work, moved = 5 * b * n / a, 13 * b * n * p / a
    back = pointwise(work + 2 * d * n / a, moved + 6 * d * n * p / a)
    cells = pointwise(work, moved) + gates, back + gates
    words = (
        pointwise(3 * b * v / a, 7 * b * v * p / a) + launch + chips.all_gather(b, 1, KP1),
        pointwise(5 * b * v / a, 11 * b * v * p / a) + launch,
    )
    return {
        "embedding_forward": look,
        "embedding_backward": look,
        **_products(model, chips, b, cells, words),
    }


def _rc(model: LstmModel, chips: Chips, batch: int) -> dict[str, float]:
    """Parts where each product is split into rows and columns."""
    pointwise, p = chips.times.elementwise, chips.times.element_size
    launch, a, c = chips.times.launch_overhead, chips.strategy.kp1, chips.strategy.kp2
    d, v, n = model.width, model.vocabulary, model.gates * model.width
    b = batch / a
    own, words = b * (n / c), b * (v / c)

    def exchanged(size: float) -> float:
        return chips.send(size, KP2) if c > 1 else 0.0

    look = pointwise(0, 2 * b * (d / c) * p) + launch
    back = pointwise(5 * own + 2 * d * n / c, 13 * own * p + 6 * d * n * p / c)
    cells = (
        pointwise(5 * own, 13 * own * p) + 5 * launch + exchanged(own * 4 * p),
        back + 5 * launch + exchanged(int(batch * (n / c) * 4 * p)),
    )
    loss = (
        pointwise(3 * words, 7 * words * p) + launch + exchanged(p * b * c),
        pointwise(5 * words, 11 * words * p) + launch,
    )
    return {
        "embedding_forward": look,
        "embedding_backward": look + chips.all_gather(batch, d / c, KP1),
        **_products(model, chips, batch, cells, loss),
    }


def check_split(model: LstmModel, chips: Chips) -> None:
    """Raise `InputError` for a strategy that cannot split the model."""
    s = chips.strategy
    if s.lp == 2 and model.layers > 1:
        raise InputError(Problem("strategy", f"{s}: two stages fail in this release; use 1 or 4."))
    if s.lp > model.layers + 2:
        allowed = f"at most {model.layers + 2} stages: layers, embedding and softmax"
        raise InputError(Problem("strategy", f"{s}: got {s.lp} stages; allowed: {allowed}."))
    uneven = [("width", model.width, s.kp1 if s.split is KernelSplit.CR else s.kp2)]
    if s.split is KernelSplit.RC:
        uneven.insert(0, ("batch of a replica", math.ceil(model.batch / s.dp), s.kp1))
    for name, number, degree in uneven:
        if number % degree:
            message = f"{s} splits the {name}, {number}, {degree} ways, which leaves a remainder."
            raise InputError(Problem("strategy", message))


def _stages_of_layers(layers: int, lp: int) -> list[int]:
    """Return the stage of every layer; embedding and softmax have stages of their own."""
    first = 0 if lp <= 2 else 1
    each = math.ceil(layers / (lp if lp == 1 else lp - 1 - first))
    return [first + i // each for i in range(layers)]


def lstm_work(model: LstmModel, parts: LstmParts, stage: int, lp: int) -> dict[str, float]:
    """Return what every part takes one of ``lp`` stages in a step. [s]"""
    counts = {
        "embedding": int(stage == 0),
        "cell": _stages_of_layers(model.layers, lp).count(stage),
        "softmax": int(stage == lp - 1),
    }
    return {
        f"{part} {way}": model.sequence * count * getattr(parts, f"{part}_{way}")
        for way in ("forward", "backward")
        for part, count in counts.items()
    }


def lstm_graph(model: LstmModel, parts: LstmParts, lp: int, *, forward: bool) -> TaskGraph:
    """Return the tasks of one pass, over ``lp`` stages."""
    stages = _stages_of_layers(model.layers, lp)
    return paper_lstm.lstm_graph(model, parts, lp, forward=forward, layer_stages=stages)
