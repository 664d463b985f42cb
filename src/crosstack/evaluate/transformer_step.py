"""One training step of a transformer: the pipeline of its layers, and what cannot be timed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from crosstack.errors import InputError, Problem
from crosstack.evaluate.distributed import Distributed, prepare
from crosstack.evaluate.step_settings import StepSettings
from crosstack.evaluate.transformer_layer import Ends, Layer
from crosstack.mapping.strategy import KernelSplit, Strategy
from crosstack.model.schedule.events import Timeline, simulate
from crosstack.model.schedule.pipeline import Stage, pipeline_ends, pipeline_graph
from crosstack.workload.architectures import require_said
from crosstack.workload.transformer_training import (
    Exchange,
    Schedule,
    TransformerTraining,
)

__all__ = ["TransformerStep", "require_timed", "transformer_stages", "transformer_step"]

MOST_LAYERS = 100_000
_UNSAID = {"latent": "keys and values by head", "experts": "one feed-forward network a layer"}


def require_timed(job: TransformerTraining) -> None:
    """Refuse what no operation of a step says, by its field of the model.

    Raises
    ------
    InputError
        For latent attention, experts, and windows shorter than a sequence.
    """
    require_said(job.model, _UNSAID, job.sequence, "a training step")


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
    job: TransformerTraining, chips: Distributed, settings: StepSettings | None = None
) -> TransformerStep:
    """Time one step of ``job``.

    Parameters
    ----------
    job : TransformerTraining
        The model and its batch.
    chips : Distributed
        How it is spread, and what a chip and its links take.
    settings : StepSettings, optional
        Kernels that a chip runs at a time.

    Raises
    ------
    InputError
        If the strategy cannot split the model, or something is sent where there is no link.
    """
    prepare(chips.times, lambda asked: transformer_stages(job, replace(chips, times=asked)))
    stages = transformer_stages(job, chips)
    ends = pipeline_ends(stages, job.microbatches, job.schedule, interleave=job.interleave)
    step = TransformerStep(
        stages=stages,
        microbatches=job.microbatches,
        schedule=job.schedule,
        interleave=job.interleave,
        time=ends.summed,
        pass_time=ends.through,
        busy=_busy(stages, job),
        kernels_at_once=(settings or StepSettings()).kernels_at_once,
    )
    if step.kernels_at_once == 1:
        return step
    ran = step.timeline()
    busy = tuple(time for name, time in ran.busy().items() if name.startswith("stage"))
    return replace(step, time=ran.makespan, pass_time=ran.end_without("reduction"), busy=busy)


def _busy(stages: tuple[Stage, ...], job: TransformerTraining) -> tuple[float, ...]:
    """Return how long each chip of the pipeline computes. [s]"""
    chips = len(stages) // job.interleave
    passes = [stage.forward + stage.backward for stage in stages]
    return tuple(job.microbatches * sum(passes[chip::chips]) for chip in range(chips))


def transformer_stages(job: TransformerTraining, chips: Distributed) -> tuple[Stage, ...]:
    """Return the stages of the pipeline, with the time of every operation of a microbatch."""
    s = chips.strategy
    rows = _check(job, s)
    parts = Layer(job=job, chips=chips, batch=rows)
    layer, ends = parts.again(), Ends(layer=parts)
    count = s.lp * job.interleave
    each, longer = divmod(job.model.layers, count)
    size = chips.times.element_size * rows * job.sequence * job.model.hidden / (s.kp1 * s.kp2)
    stages = []
    for stage in range(count):
        # As even as can be, the longer stages first: the head is on the last.
        layers = range(*(i * each + min(i, longer) for i in (stage, stage + 1)))
        before = (ends.embedding(),) if stage == 0 else ()
        after = (ends.head(),) if stage == count - 1 else ()
        names = [f"layer {i} {operation.name}" for i in layers for operation in layer]
        stages.append(
            Stage(
                operations=(*before, *layer * len(layers), *after),
                send=chips.hand_over(size, stage) if s.lp > 1 else 0.0,
                names=(*(o.name for o in before), *names, *(o.name for o in after)),
            )
        )
    return tuple(stages)


def _check(job: TransformerTraining, s: Strategy) -> int:
    """Return the sequences of a microbatch; refuse strategies that cannot split the model."""
    require_timed(job)
    model, problems = job.model, []
    if job.exchange is not Exchange.GATHERED and (s.split is KernelSplit.CR or s.kp1 > 1):
        message = f"got {job.exchange}; under {s} allowed: gathered, or a strategy RC-1-N."
        raise InputError(Problem("exchange", message))
    if model.layers > MOST_LAYERS:
        message = f"got {model.layers:,}; allowed: up to {MOST_LAYERS:,}, each timed on its own."
        raise InputError(Problem("layers", message))
    each = math.ceil(job.batch / s.dp)
    if each % job.microbatches:
        problems.append(f"{job.microbatches} microbatches do not divide {each} sequences")
    batch = max(1, each // job.microbatches)
    stages = s.lp * job.interleave
    if stages > model.layers:
        problems.append(f"{stages} stages are more than {model.layers} layers")
    columns = s.kp1 if s.split is KernelSplit.CR else s.kp2
    uneven = [
        ("heads", model.heads, columns),
        ("feed-forward width", model.feed_forward, columns),
    ]
    if s.split is KernelSplit.RC:
        uneven.insert(0, ("sequences of a microbatch", batch, s.kp1))
    problems += [
        f"{degree} chips do not divide the {name}, {number}"
        for name, number, degree in uneven
        if number % degree
    ]
    if max(model.kv_heads, columns) % min(model.kv_heads, columns):
        heads = f"{model.kv_heads} heads of keys and values"
        problems.append(f"{columns} chips neither divide {heads} nor are a multiple of them")
    if problems:
        raise InputError(Problem("strategy", f"{s}: {problem}.") for problem in problems)
    return batch
