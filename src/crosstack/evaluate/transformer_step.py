"""One training step of a transformer: every operation timed, then the pipeline of layers.

Operations of a layer, in order: the query, key and value projection, scores, scaling and softmax,
weighted values, output projection, residual sum, norm, two feed-forward products with the
activation between them, residual sum, norm. Before the layers an embedding, behind them the head
with its loss. Products are split RC or CR with their exchange (`Distributed`), or in pairs
(`crosstack.evaluate.column_row`); heads are spread over all chips of the split, elementwise kernels
take their share. Sources: ``vaswani2017`` for the layer; ``deepflow_code`` for operations and bytes
of elementwise kernels; ``hendrycks2016gelu`` for the activation, which is none there: read and
written once, its backward pass as many operations again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from crosstack.errors import InputError, Problem
from crosstack.evaluate.column_row import ColumnRowPairs
from crosstack.evaluate.distributed import KP2, Distributed, prepare
from crosstack.evaluate.step_settings import StepSettings
from crosstack.mapping.strategy import KernelSplit, Strategy
from crosstack.model.schedule.events import Timeline, simulate
from crosstack.model.schedule.pipeline import Operation, Stage, pipeline_ends, pipeline_graph
from crosstack.workload.transformer_training import (
    Exchange,
    Recompute,
    Schedule,
    TransformerTraining,
)

__all__ = ["TransformerStep", "transformer_stages", "transformer_step"]

MOST_LAYERS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerStep:
    """A step: its stages, in closed form and as a timeline.

    ``pass_time`` is when the last backward pass is through, without sums that end later; ``busy``
    how long each chip of the pipeline computes. [s] With more than one of ``kernels_at_once`` the
    times are those of the timeline.
    """

    stages: tuple[Stage, ...]
    microbatches: int
    schedule: Schedule
    interleave: int
    time: float
    pass_time: float
    busy: tuple[float, ...]
    kernels_at_once: int = 1

    def work(self, chip: int) -> dict[str, float]:
        """Return what every operation takes a chip in one step, 0 where it has none of it. [s]"""
        chips = len(self.stages) // self.interleave
        found: dict[str, float] = {}
        for number, stage in enumerate(self.stages):
            times = self.microbatches if number % chips == chip else 0
            for operation in stage.operations:
                for way in ("forward", "backward"):
                    name = f"{operation.name} {way}"
                    found[name] = found.get(name, 0.0) + times * getattr(operation, way)
        return found

    def timeline(self) -> Timeline:
        """Run every operation of every microbatch."""
        graph = pipeline_graph(
            self.stages,
            self.microbatches,
            self.schedule,
            interleave=self.interleave,
            kernels_at_once=self.kernels_at_once,
        )
        return simulate(graph)


def transformer_step(
    model: TransformerTraining, chips: Distributed, settings: StepSettings | None = None
) -> TransformerStep:
    """Time one step of ``model``.

    Raises
    ------
    InputError
        If the strategy cannot split the model, or something is sent where there is no link.
    """
    prepare(chips.times, lambda asked: transformer_stages(model, replace(chips, times=asked)))
    stages = transformer_stages(model, chips)
    ends = pipeline_ends(stages, model.microbatches, model.schedule, interleave=model.interleave)
    step = TransformerStep(
        stages=stages,
        microbatches=model.microbatches,
        schedule=model.schedule,
        interleave=model.interleave,
        time=ends.summed,
        pass_time=ends.through,
        busy=_busy(stages, model),
        kernels_at_once=(settings or StepSettings()).kernels_at_once,
    )
    if step.kernels_at_once == 1:
        return step
    ran = step.timeline()
    busy = tuple(time for name, time in ran.busy().items() if name.startswith("stage"))
    return replace(step, time=ran.makespan, pass_time=ran.end_without("reduction"), busy=busy)


def _busy(stages: tuple[Stage, ...], model: TransformerTraining) -> tuple[float, ...]:
    """Return how long each chip of the pipeline computes. [s]"""
    chips = len(stages) // model.interleave
    passes = [stage.forward + stage.backward for stage in stages]
    return tuple(model.microbatches * sum(passes[chip::chips]) for chip in range(chips))


def transformer_stages(model: TransformerTraining, chips: Distributed) -> tuple[Stage, ...]:
    """Return the stages of the pipeline, with the time of every operation of a microbatch."""
    s = chips.strategy
    rows = _check(model, s)
    parts = _Parts(model=model, chips=chips, batch=rows)
    layer = parts.layer()
    count = s.lp * model.interleave
    each, longer = divmod(model.layers, count)
    size = chips.times.element_size * rows * model.sequence * model.hidden / (s.kp1 * s.kp2)
    stages = []
    for stage in range(count):
        # As even as can be, the longer stages first: the head is on the last.
        layers = range(*(i * each + min(i, longer) for i in (stage, stage + 1)))
        before = (parts.embedding(),) if stage == 0 else ()
        after = (parts.head(),) if stage == count - 1 else ()
        names = [f"layer {i} {operation.name}" for i in layers for operation in layer]
        stages.append(
            Stage(
                operations=(*before, *layer * len(layers), *after),
                send=chips.hand_over(size, stage) if s.lp > 1 else 0.0,
                names=(*(o.name for o in before), *names, *(o.name for o in after)),
            )
        )
    return tuple(stages)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """Times of the operations of one microbatch of ``batch`` sequences on one chip."""

    model: TransformerTraining
    chips: Distributed
    batch: int

    @property
    def _pairs(self) -> ColumnRowPairs | None:
        """What replaces RC's own exchange, if anything."""
        if self.model.exchange is Exchange.GATHERED or self.chips.strategy.kp2 == 1:
            return None
        return ColumnRowPairs(chips=self.chips, spread=self.model.exchange is Exchange.SEQUENCE)

    def _of_tokens(self, elements: float, work: float, numbers: float, launches: int) -> float:
        """`_pointwise` of what every chip has, or a share, as the exchange leaves it. [s]"""
        pairs, s = self._pairs, self.chips.strategy
        whole = pairs is not None and not pairs.spread
        return self._pointwise(elements * (s.kp2 if whole else 1), work, numbers, launches)

    def _pointwise(self, elements: float, work: float, numbers: float, launches: int) -> float:
        """``work`` operations and ``numbers`` moved for each of the elements of all chips."""
        times, s = self.chips.times, self.chips.strategy
        own = elements / (s.kp1 * s.kp2)
        return times.elementwise(work * own, numbers * own * times.element_size) + launches * (
            times.launch_overhead
        )

    def _product(self, name: str, m: int, k: int, n: int, *, second: bool = False) -> Operation:
        """A product of a layer; ``second`` of a pair."""
        chips = self.chips
        if (pairs := self._pairs) is not None:
            forward, backward = pairs.product(m, k, n, second=second)
        else:
            forward, backward = chips.forward(m, k, n), chips.backward(m, k, n)
        reduce = chips.reduce_gradient(k, n)
        return Operation(name=name, forward=forward, backward=backward, reduce=reduce)

    def _per_head(self, name: str, m: int, k: int, n: int) -> Operation:
        """Products of every head; one beside the other on the chip, each with its own factors."""
        times, s = self.chips.times, self.chips.strategy
        own = self.batch * self.model.heads // (s.kp1 * s.kp2)
        return Operation(
            name=name,
            forward=times.product(m, k, n, own),
            backward=times.product(m, n, k, own) + times.product(k, m, n, own),
        )

    def _gathered_heads(self) -> float:
        """Put the heads of all columns together before the output projection of RC. [s]"""
        s, m = self.chips.strategy, self.model
        if s.split is KernelSplit.CR or s.kp2 == 1 or self._pairs is not None:
            return 0.0
        return self.chips.all_gather(self.batch * m.sequence / s.kp1, m.hidden, KP2)

    def layer(self) -> tuple[Operation, ...]:
        """Operations of one layer, with what its backward pass computes again."""
        again = self.model.recompute
        if again is Recompute.NONE:
            return self._layer()
        joined = self._gathered_heads() if again is Recompute.ATTENTION else 0.0
        core = {"scores": 0.0, "softmax": 0.0, "values": joined}  # the output is not gathered again
        return tuple(
            replace(o, backward=o.backward + o.forward - core.get(o.name, 0.0))
            if again is Recompute.FULL or o.name in core
            else o
            for o in self._layer()
        )

    def _layer(self) -> tuple[Operation, ...]:
        m = self.model
        tokens, d, f = self.batch * m.sequence, m.hidden, m.feed_forward
        scores = tokens * m.heads * m.sequence
        wide = tokens * d
        softmax = Operation(
            name="softmax",
            forward=self._pointwise(scores, 1, 2, 1) + self._pointwise(scores, 3, 7, 4),
            backward=self._pointwise(scores, 1, 2, 1) + self._pointwise(scores, 5, 11, 4),
        )
        residual = self._of_tokens(wide, 1, 3, 1)
        norm = self._of_tokens(wide, 5, 9, 3), self._of_tokens(wide, 7, 11, 4)
        joined = self._gathered_heads()

        def sums(i: int) -> tuple[Operation, Operation]:
            return (
                Operation(name=f"residual {i}", forward=residual, backward=residual),
                Operation(name=f"norm {i}", forward=norm[0], backward=norm[1]),
            )

        values = self._per_head("values", m.sequence, m.sequence, d // m.heads)
        values = replace(values, forward=values.forward + joined, backward=values.backward + joined)
        activation = Operation(
            name="activation",
            forward=self._pointwise(tokens * f, 9, 2, 1),
            backward=self._pointwise(tokens * f, 18, 3, 1),
        )
        return (
            self._projection(tokens, d),
            self._per_head("scores", m.sequence, d // m.heads, m.sequence),
            softmax,
            values,
            self._product("output", tokens, d, d, second=True),
            *sums(1),
            self._product("feed-forward 1", tokens, d, f),
            activation,
            self._product("feed-forward 2", tokens, f, d, second=True),
            *sums(2),
        )

    def _projection(self, tokens: int, d: int) -> Operation:
        """Queries, keys and values; under RC their columns, whole heads, stay where they are."""
        whole = self._product("queries, keys, values", tokens, d, 3 * d)
        s = self.chips.strategy
        if s.split is KernelSplit.CR or s.kp2 == 1 or self._pairs is not None:
            return whole
        stays = self.chips.all_gather(tokens // s.kp1, 3 * d, KP2)
        return replace(whole, forward=whole.forward - stays)

    def embedding(self) -> Operation:
        """Look every token up, forward; add up its gradient, backward."""
        m = self.model
        tokens = self.batch * m.sequence
        look = self._of_tokens(tokens * m.hidden, 0, 2, 1)
        # Each chip knows some of the vocabulary.
        summed, gathered = (0.0, 0.0) if self._pairs is None else self._pairs.out(tokens, m.hidden)
        return Operation(
            name="embedding",
            forward=look + summed,
            backward=look + gathered,
            reduce=self.chips.reduce_gradient(m.vocabulary, m.hidden),
        )

    def head(self) -> Operation:
        """Project to the vocabulary and take the loss; only sums over it are exchanged."""
        m, chips = self.model, self.chips
        tokens, known = self.batch * m.sequence, m.vocabulary
        s, launch = chips.strategy, chips.times.launch_overhead
        if (pairs := self._pairs) is not None:
            forward, backward = pairs.product(tokens, m.hidden, known, second=False)
            forward += chips.all_gather(tokens, 1, KP2)
        else:
            forward = chips.forward(tokens, m.hidden, known)
            if s.split is KernelSplit.RC and s.kp2 > 1:
                forward += chips.all_gather(tokens // s.kp1, 1, KP2)
                forward -= chips.all_gather(tokens // s.kp1, known, KP2)
            backward = chips.backward(tokens, m.hidden, known)
        times = chips.times
        own = s.kp1 * s.kp2
        loss = times.elementwise(
            tokens * (3 * known - 1) / own, 7 * tokens * known * times.element_size / own
        )
        back = times.elementwise(
            5 * tokens * known / own, 11 * tokens * known * times.element_size / own
        )
        return Operation(
            name="head and loss",
            forward=forward + loss + 4 * launch,
            backward=backward + back + 4 * launch,
            reduce=chips.reduce_gradient(m.hidden, known),
        )


def _check(model: TransformerTraining, s: Strategy) -> int:
    """Return the sequences of a microbatch; refuse strategies that cannot split the model."""
    problems = []
    if model.exchange is not Exchange.GATHERED and (s.split is KernelSplit.CR or s.kp1 > 1):
        message = f"got {model.exchange}; under {s} allowed: gathered, or a strategy RC-1-N."
        raise InputError(Problem("exchange", message))
    if model.layers > MOST_LAYERS:
        message = f"got {model.layers:,}; allowed: up to {MOST_LAYERS:,}, each timed on its own."
        raise InputError(Problem("layers", message))
    each = math.ceil(model.batch / s.dp)
    if each % model.microbatches:
        problems.append(f"{model.microbatches} microbatches do not divide {each} sequences")
    batch = max(1, each // model.microbatches)
    stages = s.lp * model.interleave
    if stages > model.layers:
        problems.append(f"{stages} stages are more than {model.layers} layers")
    if s.split is KernelSplit.CR:
        uneven = [("heads", model.heads, s.kp1), ("feed-forward width", model.feed_forward, s.kp1)]
    else:
        uneven = [
            ("sequences of a microbatch", batch, s.kp1),
            ("heads", model.heads, s.kp2),
            ("feed-forward width", model.feed_forward, s.kp2),
        ]
    problems += [
        f"{degree} chips do not divide the {name}, {number}"
        for name, number, degree in uneven
        if number % degree
    ]
    if problems:
        raise InputError(Problem("strategy", f"{s}: {problem}.") for problem in problems)
    return batch
