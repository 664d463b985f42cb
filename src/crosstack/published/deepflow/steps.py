"""Steps as the paper and the releases count them, in the place of `crosstack.evaluate.predict`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import singledispatch

from crosstack.errors import InputError, Problem, require
from crosstack.evaluate.predict import SUMMING, WAITING, Prediction, Program, Step
from crosstack.evaluate.step_settings import StepSettings
from crosstack.io.deepflow.hardware import DeepflowHardware
from crosstack.machine.system import System
from crosstack.mapping.mapping import Mapping
from crosstack.mapping.strategy import NESTED, KernelSplit, MappingOrder, Strategy
from crosstack.model.rules import Rules
from crosstack.model.schedule.events import TaskGraphBuilder, Timeline, simulate
from crosstack.published.deepflow.chips import Chips, links_of
from crosstack.published.deepflow.distributed import Distributed, prepare
from crosstack.published.deepflow.edges import Edges, edges_of_file, stated_peers
from crosstack.published.deepflow.events import simulate as simulate_release
from crosstack.published.deepflow.lstm import lstm_step
from crosstack.published.deepflow.memory import lstm_account, trained_account, transformer_account
from crosstack.published.deepflow.ranks import peers_of
from crosstack.published.deepflow.release import Release, Transformers
from crosstack.published.deepflow.transformer import (
    operations_of,
    products_time,
    transformer_graph,
)
from crosstack.workload.architectures import Transformer
from crosstack.workload.dtype import Dtype
from crosstack.workload.lstm import LstmModel
from crosstack.workload.product import Product
from crosstack.workload.transformer_training import TransformerTraining

# What a release knows of a step: no other way to run it.
USUAL = {
    "exchange": "gathered", "recompute": "none", "schedule": "gpipe", "interleave": 1,
    "gradients": "bf16", "optimizer": "none", "overlap": (), "microbatch_size": 0,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseSteps:
    """The program of a ``release``, None: what the paper says.

    ``edges`` state which links a strategy's rings have; None: those of the order of ranks.
    """

    release: Release | None = None
    edges: Edges | None = None

    def on(self, hardware: DeepflowHardware) -> ReleaseSteps:
        """Return the program for the links that a hardware file states."""
        return replace(self, edges=edges_of_file(hardware))

    def __call__(
        self,
        workload: Step,
        strategy: Strategy,
        system: System,
        dtype: Dtype,
        settings: StepSettings | None = None,
        *,
        rules: Rules,
        order: MappingOrder | None = None,
        mapping: Mapping | None = None,
        work_limit: float = 0.0,
    ) -> Prediction:
        """Time one step.

        Raises
        ------
        InputError
            If the strategy cannot split the workload, data is sent where there is no link, or
            something is asked for that the release has no word for.
        """
        settings = settings or StepSettings()
        if self.release is not None:
            allowed = "nothing under the rules of a release, which leave the optimizer out"
            require(settings.optimizer is None, "optimizer", str(settings.optimizer), allowed)
        if self.edges is None:
            peers = peers_of(strategy, system, order or NESTED)
        else:
            peers = stated_peers(strategy, system, self.edges(strategy, system))
        times = rules.clock.kernels.times(system.chip, dtype)
        if self.release is None:
            chips = Distributed(strategy=strategy, times=times, links=peers)
            return step_of(workload, chips, settings)
        links = links_of(strategy, peers, self.release)
        return step_of(
            workload, Chips(strategy=strategy, times=times, links=links), settings, self.release
        )


def over_edges(step: Program, edges: Edges) -> Program:
    """Return a program, that of a release or of the paper, over links as ``edges`` state them."""
    return replace(step if isinstance(step, ReleaseSteps) else ReleaseSteps(), edges=edges)


def step_of(
    workload: Step,
    chips: Distributed,
    settings: StepSettings | None = None,
    release: Release | None = None,
) -> Prediction:
    """Time one step on chips that know whom they communicate with.

    Parameters
    ----------
    workload : Step
        What is computed.
    chips : Distributed
        How it is spread, what a kernel takes, and over which links data goes; those of a release
        are `Chips`.
    settings : StepSettings, optional
        Of the optimizer, in the paper.
    release : Release, optional
        What counts the step; the paper, which trains language models of LSTM cells, if left out.

    Raises
    ------
    InputError
        If the strategy cannot split the workload, or data is sent where there is no link.
    """
    return _counted(workload, chips, settings or StepSettings(), release)


@singledispatch
def _counted(
    workload: Step, _: Distributed, __: StepSettings, release: Release | None
) -> Prediction:
    """Refuse what neither the paper nor a release counts; what they do is registered below."""
    raise _not_counted(workload.name, release)


def _not_counted(name: str, release: Release | None) -> InputError:
    if release is None:
        message = f"got {name}; the paper trains language models of LSTM cells."
        return InputError(Problem("model", message))
    return InputError(Problem("job", f"got {name}; a release knows steps of training alone."))


@_counted.register
def _transformer(
    workload: TransformerTraining, chips: Distributed, _: StepSettings, release: Release | None
) -> Prediction:
    if release is None:
        raise _not_counted(workload.name, release)
    _check_transformer(workload, release)
    return (_estimated if release.transformers is Transformers.ESTIMATED else _run)(workload, chips)


# ---------------------------------------------------------------- products and language models


@_counted.register
def _product(
    product: Product, chips: Distributed, _: StepSettings, __: Release | None
) -> Prediction:
    """One product and its collective; replicas and stages have nothing to do with it."""
    s, shape = chips.strategy, (product.m, product.k, product.n)
    if s.dp > 1 or s.lp > 1:
        message = f"{s}: a single product has no replicas and no stages; use d1 and p1."
        raise InputError(Problem("strategy", message))
    uneven = [("M", product.m, s.kp1), ("N", product.n, s.kp2)]
    for axis, extent, degree in [("K", product.k, s.kp1)] if s.split is KernelSplit.CR else uneven:
        if extent < degree:
            message = f"{s} splits {axis}, {extent}, {degree} ways."
            raise InputError(Problem("strategy", message))
    whole, computed = chips.forward(*shape), chips.own_product(*shape)
    build = TaskGraphBuilder()
    first = build.add("product", computed, resource="chip", kind="forward")
    if whole > computed:
        build.add("collective", whole - computed, resource="ring", after=[first], kind="transfer")
    timeline = simulate(build.build())
    return Prediction(
        workload=product,
        strategy=s,
        time=whole,
        parts=(("product", computed), ("collective", whole - computed)),
        memory=None,
        busy=_busy(timeline),
        timelines=lambda: (timeline,),
        share=chips.share(*shape),
    )


@_counted.register
def _lstm(
    model: LstmModel, chips: Distributed, settings: StepSettings, release: Release | None
) -> Prediction:
    strategy, size = chips.strategy, chips.times.element_size
    if release is None:
        memory = trained_account(model, strategy, size, settings)
    else:
        if strategy.lp == 2 and model.layers > 1:
            # The index of the embedding's stage runs out.
            message = f"{strategy}: two stages fail in this release; use 1 or 4."
            raise InputError(Problem("strategy", message))
        memory = lstm_account(model, strategy, size)
    step = lstm_step(model, chips)
    busy = _busy(step.forward, step.backward)
    most = max(range(len(busy)), key=lambda stage: busy[stage][1])
    work = step.work(most, chips.strategy.lp)
    return Prediction(
        workload=model,
        strategy=chips.strategy,
        time=step.time,
        parts=_parts(work, busy[most][1], step.pass_time, step.time),
        memory=memory,
        busy=busy,
        timelines=lambda: (step.forward, step.backward),
        scheduled=True,
    )


def _busy(*timelines: Timeline) -> tuple[tuple[str, float], ...]:
    """Return how long every chip or stage works. [s]"""
    found: dict[str, float] = {}
    for timeline in timelines:
        for name, time in timeline.busy().items():
            if name.startswith(("stage", "chip")):
                found[name] = found.get(name, 0.0) + time
    return tuple(found.items())


def _parts(
    work: dict[str, float], busy: float, pass_time: float, time: float
) -> tuple[tuple[str, float], ...]:
    """Return the ``work`` of a stage and what is left of its step. [s]

    Kernels that run at once share the time in which the stage is ``busy`` in proportion.
    """
    alone = sum(work.values())
    share = busy / alone if alone else 0.0
    pieces = ((name, own * share) for name, own in work.items())
    left = (WAITING, max(0.0, pass_time - busy)), (SUMMING, max(0.0, time - pass_time))
    return (*pieces, *left)


# ---------------------------------------------------------------- transformers


def _check_transformer(job: TransformerTraining, release: Release) -> None:
    """Refuse what a release has no word for."""
    if release.transformers is Transformers.ABSENT:
        message = f"got {job.name}; this release knows products and LSTM language models."
        raise InputError(Problem("model", message))
    model: Transformer = job.model
    plain = {
        "gated": False,
        "kv_heads": model.heads,
        "latent": None,
        "experts": None,
        "parallel": False,
        "qk_norm": False,
    }
    for field, allowed in plain.items():
        value = getattr(model, field)
        if value != allowed:
            message = f"{model.name} has {value}; this release knows {allowed} alone."
            raise InputError(Problem(f"model.{field}", message))
    if model.heads * model.head_size != model.hidden:
        message = f"{model.name} has {model.head_size}; in this release heads fill the width."
        raise InputError(Problem("model.head_size", message))
    for field, usual in USUAL.items():
        if getattr(job, field) not in (None, usual):
            message = f"got {getattr(job, field)}; this release knows {usual} alone."
            raise InputError(Problem(field, message))


def _run(job: TransformerTraining, chips: Distributed) -> Prediction:
    prepare(chips.times, lambda asked: operations_of(job, replace(chips, times=asked)))
    operations = operations_of(job, chips)
    timeline = simulate_release(transformer_graph(job, operations), "ring 0")
    busy = _busy(timeline)
    layers = [1, *[job.model.layers] * (len(operations) - 2), 1]
    work = {
        f"{operation.name} {way}": (job.microbatches or 1) * count * getattr(operation, way)
        for operation, count in zip(operations, layers, strict=True)
        for way in ("forward", "backward")
    }
    time = timeline.makespan
    return Prediction(
        workload=job,
        strategy=chips.strategy,
        time=time,
        parts=_parts(work, busy[0][1], timeline.end_without("reduction"), time),
        memory=transformer_account(job, chips.strategy, chips.times.element_size),
        busy=busy,
        timelines=lambda: (timeline,),
        run_time=time * job.steps if job.tokens else None,
        scheduled=True,
    )


def _estimated(job: TransformerTraining, chips: Distributed) -> Prediction:
    """Products alone, the backward pass twice the forward pass, stages that divide evenly."""
    prepare(chips.times, lambda asked: products_time(job, replace(chips, times=asked)))
    products = products_time(job, chips)
    layers = job.model.layers / job.ideal_stages
    time = layers * 3 * sum(own for _, own in products)
    return Prediction(
        workload=job,
        strategy=chips.strategy,
        time=time,
        parts=tuple(
            (f"{name} {way}", factor * layers * own)
            for name, own in products
            for way, factor in (("forward", 1), ("backward", 2))
        ),
        memory=transformer_account(job, chips.strategy, chips.times.element_size),
        busy=(),
        timelines=tuple,
        run_time=time * job.steps + job.communication if job.tokens else None,
    )
