"""The time of a workload under a given strategy on a cluster, with everything it is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from crosstack.errors import InfeasibleError, InputError, Problem
from crosstack.evaluate.cluster import Cluster, ring_links, stage_links
from crosstack.evaluate.distributed import Distributed, KernelTimes, own_shape, prepare
from crosstack.evaluate.footprint import (
    Footprint,
    check_capacity,
    lstm_footprint,
    scores_do_not_fit,
    transformer_footprint,
)
from crosstack.evaluate.lstm_step import lstm_step
from crosstack.evaluate.step_rules import StepRules
from crosstack.evaluate.transformer_step import products_time, transformer_step
from crosstack.mapping.strategy import KernelSplit, Strategy
from crosstack.model.schedule.events import TaskGraphBuilder, Timeline, simulate
from crosstack.workload.lstm import LstmModel
from crosstack.workload.product import Product
from crosstack.workload.transformer_training import (
    CHOICES,
    Recompute,
    Schedule,
    TransformerTraining,
)

__all__ = ["SUMMING", "WAITING", "Prediction", "Step", "predict", "share_of"]

Step = Product | LstmModel | TransformerTraining


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What one step takes.

    ``parts`` add up to ``time``: what the ``busiest`` stage does by name, how long it waits, and
    sums of gradients that end after the last backward pass. ``busy`` is how long each stage
    computes, by its name. ``run_time`` is that of a whole training, None where the workload names
    none. ``timelines`` runs the step event by event and returns what follows one another; an
    estimate has nothing to run. [s]
    """

    workload: Step
    strategy: Strategy
    time: float
    parts: tuple[tuple[str, float], ...]
    footprint: Footprint | None
    busy: tuple[tuple[str, float], ...]
    timelines: Callable[[], tuple[Timeline, ...]]
    run_time: float | None = None

    @property
    def busiest(self) -> str | None:
        """The stage that computes longest, of equal ones the first; None for an estimate."""
        busy = dict(self.busy)
        return max(busy, key=lambda stage: busy[stage]) if busy else None


WAITING = "waiting for other stages and transfers"
SUMMING = "gradient sums after the last backward pass"


def _made_of(
    work: dict[str, float], busy: float, pass_time: float, time: float
) -> tuple[tuple[str, float], ...]:
    """Return the ``work`` of a stage and what is left of its step. [s]

    Kernels that run at once share the time in which the stage is ``busy`` in proportion.
    """
    alone = sum(work.values())
    share = busy / alone if alone else 0.0
    waiting = max(0.0, pass_time - busy)
    pieces = ((name, own * share) for name, own in work.items())
    return (*pieces, (WAITING, waiting), (SUMMING, max(0.0, time - pass_time)))


def _busiest(busy: Sequence[float]) -> int:
    return max(range(len(busy)), key=lambda stage: busy[stage])


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
    chips = Distributed(
        strategy=strategy,
        times=times,
        links=ring_links(strategy, cluster, chosen),
        floors=chosen.floors_shares,
        stage_links=stage_links(strategy, cluster, chosen),
    )
    if isinstance(workload, Product):
        return _product(workload, chips)
    memory = cluster.chip.main_memory.capacity
    if isinstance(workload, LstmModel):
        return _lstm(workload, chips, chosen, memory)
    return _transformer(workload, chips, chosen, memory)


def _where(model: LstmModel | TransformerTraining, chips: Distributed) -> str:
    return f"one chip of {model.name} under {chips.strategy}"


def _lstm(model: LstmModel, chips: Distributed, rules: StepRules, memory: float) -> Prediction:
    footprint = lstm_footprint(model, chips.strategy, chips.times.word, rules)
    check_capacity(footprint, memory, rules, _where(model, chips))
    step = lstm_step(model, chips, rules)
    busy = _busy(step.forward, step.backward)
    most = _busiest([time for _, time in busy])
    work = step.work(most, chips.strategy.lp)
    return Prediction(
        workload=model,
        strategy=chips.strategy,
        time=step.time,
        parts=_made_of(work, busy[most][1], step.pass_time, step.time),
        footprint=footprint,
        busy=busy,
        timelines=lambda: (step.forward, step.backward),
    )


def _transformer(
    model: TransformerTraining, chips: Distributed, rules: StepRules, memory: float
) -> Prediction:
    _check_release(model, rules)

    def footprint_of(other: TransformerTraining) -> Footprint:
        return transformer_footprint(other, chips.strategy, chips.times.word, rules)

    def instead() -> dict[str, Footprint]:
        ways = (
            replace(model, recompute=Recompute.ATTENTION),
            replace(model, recompute=Recompute.FULL),
            replace(model, schedule=Schedule.ONE_F_ONE_B),
        )
        names = ("recompute attention", "recompute full", "schedule 1f1b")
        return {name: footprint_of(way) for name, way in zip(names, ways, strict=True)}

    scores = scores_do_not_fit(model, chips.strategy, chips.times.word, memory, rules)
    if scores is not None and rules.enforces_capacity:
        raise scores
    footprint = footprint_of(model)
    check_capacity(footprint, memory, rules, _where(model, chips), instead)
    if rules.estimates_transformers:
        return _estimate(model, chips, footprint)
    try:
        trained = transformer_step(model, chips, rules)
    except InfeasibleError as error:  # some kernel rules refuse a product that does not fit
        raise scores or error from None
    most = _busiest(trained.busy)
    return Prediction(
        workload=model,
        strategy=chips.strategy,
        time=trained.time,
        parts=_made_of(trained.work(most), trained.busy[most], trained.pass_time, trained.time),
        footprint=footprint,
        busy=tuple((f"stage {i}", time) for i, time in enumerate(trained.busy)),
        timelines=lambda: (trained.timeline(),),
        run_time=trained.time * model.steps if model.tokens else None,
    )


def _check_release(workload: TransformerTraining, rules: StepRules) -> None:
    """Refuse what the release behind ``rules`` has no word for."""
    if not (rules.estimates_transformers or rules.frees_last_link):
        return
    usually = TransformerTraining.__dataclass_fields__
    for field in (*CHOICES, "interleave"):
        usual = usually[field].default
        if getattr(workload, field) != usual:
            message = f"got {getattr(workload, field)}; this release knows {usual} alone."
            raise InputError(Problem(field, message))


def _busy(*timelines: Timeline) -> tuple[tuple[str, float], ...]:
    """Return how long every chip or stage works. [s]"""
    found: dict[str, float] = {}
    for timeline in timelines:
        for name, time in timeline.busy().items():
            if name.startswith(("stage", "chip")):
                found[name] = found.get(name, 0.0) + time
    return tuple(found.items())


def _estimate(model: TransformerTraining, chips: Distributed, footprint: Footprint) -> Prediction:
    """Products alone, the backward pass twice the forward pass, stages that divide evenly."""
    prepare(chips, lambda asked: products_time(model, asked))
    products = products_time(model, chips)
    layers = model.layers / model.ideal_stages
    step = layers * 3 * sum(time for _, time in products)
    parts = [
        (f"{name} {way}", factor * layers * time)
        for name, time in products
        for way, factor in (("forward", 1), ("backward", 2))
    ]
    return Prediction(
        workload=model,
        strategy=chips.strategy,
        time=step,
        parts=tuple(parts),
        footprint=footprint,
        busy=(),
        timelines=tuple,
        run_time=step * model.steps + model.communication if model.tokens else None,
    )


def share_of(
    product: Product, strategy: Strategy, rules: StepRules | None = None
) -> tuple[int, int, int]:
    """Return M, K and N of the product that the fullest chip works on. [1]"""
    floors = (rules or StepRules()).floors_shares
    return own_shape(product.m, product.k, product.n, strategy, floors=floors)


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
    own = chips.own_product(product.m, product.k, product.n)
    build = TaskGraphBuilder()
    first = build.add("product", own, resource="chip", kind="forward")
    if total > own:
        build.add("collective", total - own, resource="ring", after=[first], kind="transfer")
    timeline = simulate(build.build())
    return Prediction(
        workload=product,
        strategy=s,
        time=total,
        parts=(("product", own), ("collective", total - own)),
        footprint=None,
        busy=_busy(timeline),
        timelines=lambda: (timeline,),
    )
