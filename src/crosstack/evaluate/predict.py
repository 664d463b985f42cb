"""The time of a workload under a given strategy on a cluster, with everything it is made of."""

from __future__ import annotations

from dataclasses import dataclass

from crosstack.errors import InputError, Problem
from crosstack.evaluate.cluster import Cluster, ring_links
from crosstack.evaluate.distributed import Distributed, KernelTimes
from crosstack.evaluate.footprint import (
    Footprint,
    check_capacity,
    lstm_footprint,
    transformer_footprint,
)
from crosstack.evaluate.lstm_step import lstm_step
from crosstack.evaluate.step_rules import StepRules
from crosstack.evaluate.timeline import TaskGraphBuilder, Timeline, simulate
from crosstack.evaluate.transformer_step import transformer_step
from crosstack.mapping.strategy import KernelSplit, Strategy
from crosstack.workload.lstm import LstmModel
from crosstack.workload.product import Product
from crosstack.workload.transformer_training import TransformerTraining

__all__ = ["Prediction", "Step", "predict"]

Step = Product | LstmModel | TransformerTraining


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What one step takes.

    ``parts`` are times of pieces by name; several of them may run at once, so they need not add
    up to ``time``. ``timelines`` follow one another. [s]
    """

    workload: Step
    strategy: Strategy
    time: float
    parts: tuple[tuple[str, float], ...]
    footprint: Footprint | None
    timelines: tuple[Timeline, ...]


def predict(
    workload: Step,
    strategy: Strategy,
    cluster: Cluster,
    times: KernelTimes,
    rules: StepRules | None = None,
) -> Prediction:
    """Time one step of a workload.

    Raises
    ------
    InputError
        If the strategy cannot split the workload, or data is sent where there is no link.
    InfeasibleError
        If the step does not fit the main memory of a chip.
    """
    chosen = rules or StepRules()
    chips = Distributed(strategy=strategy, times=times, links=ring_links(strategy, cluster, chosen))
    if isinstance(workload, Product):
        return _product(workload, chips)
    where = f"one chip of {workload.name} under {strategy}"
    capacity = cluster.chip.main_memory.capacity
    if isinstance(workload, LstmModel):
        footprint = lstm_footprint(workload, strategy, times.word, chosen)
        check_capacity(footprint, capacity, chosen, where)
        step = lstm_step(workload, chips, chosen)
        names = [name.replace("_", " ") for name in step.parts.__dataclass_fields__]
        values = [getattr(step.parts, name) for name in step.parts.__dataclass_fields__]
        return Prediction(
            workload=workload,
            strategy=strategy,
            time=step.time,
            parts=tuple(zip(names, values, strict=True)),
            footprint=footprint,
            timelines=(step.forward, step.backward),
        )
    footprint = transformer_footprint(workload, strategy, times.word, chosen)
    check_capacity(footprint, capacity, chosen, where)
    trained = transformer_step(workload, chips, chosen)
    totals: dict[str, float] = {}
    for stage in trained.stages:
        for operation in stage.operations:
            name = operation.name.split(" ", 2)[2] if "layer " in operation.name else operation.name
            for tag, value in (
                ("forward", operation.forward * trained.microbatches),
                ("backward", operation.backward * trained.microbatches),
                ("gradient sum", operation.reduce),
            ):
                totals[f"{name} {tag}"] = totals.get(f"{name} {tag}", 0.0) + value
    return Prediction(
        workload=workload,
        strategy=strategy,
        time=trained.time,
        parts=tuple((name, value) for name, value in totals.items() if value),
        footprint=footprint,
        timelines=(trained.timeline(),),
    )


def _product(product: Product, chips: Distributed) -> Prediction:
    """One product and its collective; replicas and stages have nothing to do with it."""
    s = chips.strategy
    if s.dp > 1 or s.lp > 1:
        message = f"{s}: a single product has no replicas and no stages; use d1 and p1."
        raise InputError(Problem("strategy", message))
    uneven = (
        [("K", product.k, s.kp1)]
        if s.split is KernelSplit.CR
        else [("M", product.m, s.kp1), ("N", product.n, s.kp2)]
    )
    for axis, extent, degree in uneven:
        if extent < degree:
            message = f"{s} splits {axis}, {extent}, {degree} ways."
            raise InputError(Problem("strategy", message))
    total = chips.forward(product.m, product.k, product.n)
    if s.split is KernelSplit.CR:
        own = chips.times.product(product.m, product.k // s.kp1, product.n)
    else:
        own = chips.times.product(product.m // s.kp1, product.k, product.n // s.kp2)
    build = TaskGraphBuilder()
    first = build.add("product", own, resource="chip", kind="forward")
    if total > own:
        build.add("collective", total - own, resource="ring", after=[first], kind="transfer")
    return Prediction(
        workload=product,
        strategy=s,
        time=total,
        parts=(("product", own), ("collective", total - own)),
        footprint=None,
        timelines=(simulate(build.build()),),
    )
