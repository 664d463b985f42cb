"""A transformer's training step in the release of 2025 (``deepflow_code``), both of its programs.

The estimate is three times the forward time of six products. The graph leaves out the kernel
parallelism that was asked for and has no pipeline; embedding and the backward pass of the loss
handle one token of each sequence; embedding and head sum their gradients but are not updated; a
launch counts twice for each product of a layer, whose gradients are summed when all of it is
through; nothing stands between the two feed-forward products; and the heads of attention are one
product with the heads among the rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product

from crosstack.errors import InputError, Problem
from crosstack.model.schedule.events import TaskGraph, TaskGraphBuilder, check_tasks
from crosstack.published.deepflow.chips import HOST_BANDWIDTH
from crosstack.published.deepflow.distributed import DP, Distributed
from crosstack.workload.transformer_training import TransformerTraining

MOST_LAYERS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A kernel: its time forward and backward for one microbatch, and to sum its gradient. [s]"""

    name: str
    forward: float
    backward: float
    reduce: float = 0.0


def products_time(job: TransformerTraining, chips: Distributed) -> tuple[tuple[str, float], ...]:
    """Return the forward time of the six products of a layer, of which the estimate is made. [s]"""
    tokens, d, f = job.batch * job.sequence, job.model.hidden, job.model.feed_forward
    rows, head = tokens * job.model.heads, d // job.model.heads
    shapes = {
        "queries, keys, values": (tokens, d, 3 * d),
        "scores": (rows, head, job.sequence),
        "values": (rows, job.sequence, head),
        "output": (tokens, d, d),
        "feed-forward 1": (tokens, d, f),
        "feed-forward 2": (tokens, f, d),
    }
    return tuple((name, chips.forward(*shape)) for name, shape in shapes.items())


def operations_of(job: TransformerTraining, chips: Distributed) -> tuple[Operation, ...]:
    """Return embedding, the operations of one layer, and head, of one microbatch.

    Raises
    ------
    InputError
        If the strategy has stages, or the microbatches do not divide the sequences.
    """
    batch = _sequences(job, chips)
    alone = replace(chips, strategy=replace(chips.strategy, kp1=1, kp2=1))
    return (
        _embedding(job, alone, batch),
        *_layer(job, alone, batch),
        _head(job, alone, batch),
    )


def _sequences(job: TransformerTraining, chips: Distributed) -> int:
    """Return the sequences of a microbatch."""
    s = chips.strategy
    if s.lp > 1:
        message = f"{s}: this release has no pipeline for transformers; use p1."
        raise InputError(Problem("strategy", message))
    layers = job.model.layers
    if layers > MOST_LAYERS:
        message = f"got {layers:,}; allowed: up to {MOST_LAYERS:,}, each timed on its own."
        raise InputError(Problem("layers", message))
    each, microbatches = math.ceil(job.batch / s.dp), job.microbatches or 1
    if each % microbatches:
        message = f"{s}: {microbatches} microbatches do not divide {each} sequences."
        raise InputError(Problem("strategy", message))
    return max(1, each // microbatches)


def _pointwise(
    chips: Distributed, elements: float, work: float, words: float, launches: int
) -> float:
    """``work`` operations and ``words`` words moved for each of the elements. [s]"""
    times = chips.times
    moved = words * elements * times.element_size
    return times.elementwise(work * elements, moved) + launches * times.launch_overhead


def _product(
    chips: Distributed, name: str, m: int, k: int, n: int, reduce: float = 0.0
) -> Operation:
    """A product of a layer, launched twice."""
    of, launch = chips.times.product, chips.times.launch_overhead
    forward, backward = of(m, k, n) + launch, of(m, n, k) + of(k, m, n) + launch
    return Operation(name=name, forward=forward, backward=backward, reduce=reduce)


def _layer(job: TransformerTraining, chips: Distributed, batch: int) -> tuple[Operation, ...]:
    d, f, length = job.model.hidden, job.model.feed_forward, job.sequence
    tokens, heads, head = batch * length, batch * job.model.heads, d // job.model.heads
    scores, wide = heads * length * length, tokens * d
    scaled = _pointwise(chips, scores, 1, 2, 1)
    softmax = Operation(
        name="softmax",
        forward=scaled + _pointwise(chips, scores, 3, 7, 4),
        backward=scaled + _pointwise(chips, scores, 5, 11, 4),
    )
    residual = _pointwise(chips, wide, 1, 3, 1)
    norm = _pointwise(chips, wide, 5, 9, 3), _pointwise(chips, wide, 7, 11, 4)

    def sums(i: int) -> tuple[Operation, Operation]:
        return (
            Operation(name=f"residual {i}", forward=residual, backward=residual),
            Operation(name=f"norm {i}", forward=norm[0], backward=norm[1]),
        )

    weights = ((d, 3 * d), (d, d), (f, d), (f, d))
    gradient = sum(chips.reduce_gradient(*shape) for shape in weights)
    return (
        _product(chips, "queries, keys, values", tokens, d, 3 * d, gradient),
        _product(chips, "scores", heads * length, head, length),
        softmax,
        _product(chips, "values", heads * length, length, head),
        _product(chips, "output", tokens, d, d),
        *sums(1),
        _product(chips, "feed-forward 1", tokens, d, f),
        _product(chips, "feed-forward 2", tokens, f, d),
        *sums(2),
    )


def _embedding(job: TransformerTraining, chips: Distributed, batch: int) -> Operation:
    """Copy vectors from the host and look them up, forward; backward look them up."""
    look = _pointwise(chips, batch * job.model.hidden, 0, 2, 1)
    copied = 2 * batch * job.model.hidden * chips.times.element_size / HOST_BANDWIDTH
    words = chips.all_reduce(job.model.vocabulary, job.model.hidden, DP)
    positions = chips.all_reduce(job.sequence, job.model.hidden, DP)
    return Operation(
        name="embedding", forward=look + copied, backward=look, reduce=words + positions
    )


def _head(job: TransformerTraining, chips: Distributed, batch: int) -> Operation:
    """Project to words and take the loss."""
    tokens, d, v = batch * job.sequence, job.model.hidden, job.model.vocabulary
    times, launches = chips.times, 4 * chips.times.launch_overhead
    loss = times.elementwise(tokens * (3 * v - 1), 7 * tokens * v * times.element_size)
    back = times.elementwise(5 * tokens * v, 11 * batch * v * times.element_size)
    return Operation(
        name="head and loss",
        forward=times.product(tokens, d, v) + loss + launches,
        backward=times.product(tokens, v, d) + times.product(d, tokens, v) + back + launches,
        reduce=chips.all_reduce(d, v, DP),
    )


def transformer_graph(job: TransformerTraining, operations: tuple[Operation, ...]) -> TaskGraph:
    """Return the tasks of a step: all microbatches forward, then backward, then what is summed.

    A free task stands between two operations of a microbatch.
    """
    first, *layer, last = operations
    whole = [(first, first.name)]
    for i in range(job.model.layers):
        whole += [(operation, f"layer {i} {operation.name}") for operation in layer]
    whole.append((last, last.name))
    microbatches = job.microbatches or 1
    check_tasks(4 * microbatches * len(whole))
    build = TaskGraphBuilder(("stage 0",))
    task: int | None = None
    sums: list[tuple[int, str, float]] = []
    for way, i in product(("forward", "backward"), range(microbatches)):
        ordered = whole if way == "forward" else whole[::-1]
        for position, (operation, name) in enumerate(ordered):
            if position and task is not None:
                task = build.add("hand over", after=[task], kind="hand over")
            task = build.add(
                f"{name}, microbatch {i}",
                getattr(operation, way),
                resource="stage 0",
                after=[] if task is None else [task],
                kind=way,
            )
            if operation.reduce and way == "backward" and i == microbatches - 1:
                sums.append((task, name, operation.reduce))
    for task, name, reduce in sums:  # last, so that what follows on the chip comes first
        build.add(
            f"sum gradient of {name}", reduce, resource="ring 0", after=[task], kind="reduction"
        )
    return build.build()
