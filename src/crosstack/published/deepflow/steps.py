"""One step under a release, in the place of `crosstack.evaluate.predict.predict`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from crosstack.errors import InputError, Problem, require
from crosstack.evaluate.predict import Prediction, Program, Step
from crosstack.evaluate.step_settings import StepSettings
from crosstack.io.deepflow.hardware import DeepflowHardware
from crosstack.machine.system import System
from crosstack.mapping.mapping import Mapping
from crosstack.mapping.strategy import NESTED, MappingOrder, Strategy
from crosstack.model.rules import Rules
from crosstack.published.deepflow.chips import Chips, links_of
from crosstack.published.deepflow.distributed import KernelTimes, prepare
from crosstack.published.deepflow.edges import Edges, StatedSteps, edges_of_file, stated_peers
from crosstack.published.deepflow.events import simulate
from crosstack.published.deepflow.lstm import check_split, lstm_graph, lstm_parts, lstm_work
from crosstack.published.deepflow.memory import lstm_account, transformer_account
from crosstack.published.deepflow.paper import busiest_of, busy_stages, made_of, product_step
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

__all__ = ["ReleaseSteps", "over_edges"]

# What a release knows of a step: no other way to run it.
USUAL = {"exchange": "gathered", "recompute": "none", "schedule": "gpipe", "interleave": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseSteps:
    """The program of a ``release``.

    ``edges`` state which links a strategy's rings have; None: those of the order of ranks.
    """

    release: Release
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
        _check_settings(settings or StepSettings())
        if self.edges is None:
            peers = peers_of(strategy, system, order or NESTED)
        else:
            peers = stated_peers(strategy, system, self.edges(strategy, system))
        links = links_of(strategy, peers, self.release)
        times: KernelTimes = rules.clock.kernels.times(system.chip, dtype)
        chips = Chips(strategy=strategy, times=times, links=links)
        if isinstance(workload, Product):
            shape = workload.m, workload.k, workload.n
            return product_step(
                workload,
                strategy,
                share=chips.share(*shape),
                own=lambda: chips.own_product(*shape),
                total=lambda: chips.forward(*shape),
            )
        if isinstance(workload, LstmModel):
            return _lstm(workload, chips)
        if not isinstance(workload, TransformerTraining):
            message = f"got {workload.name}; a release knows steps of training alone."
            raise InputError(Problem("job", message))
        return self._transformer(workload, chips)

    def _transformer(self, job: TransformerTraining, chips: Chips) -> Prediction:
        if self.release.transformers is Transformers.ABSENT:
            message = f"got {job.name}; this release knows products and LSTM language models."
            raise InputError(Problem("model", message))
        _check_model(job.model)
        for field, usual in USUAL.items():
            if getattr(job, field) not in (None, usual):
                message = f"got {getattr(job, field)}; this release knows {usual} alone."
                raise InputError(Problem(field, message))
        if self.release.transformers is Transformers.ESTIMATED:
            return _estimated(job, chips)
        return _run(job, chips)


def over_edges(step: Program, edges: Edges) -> Program:
    """Return a program, that of a release or another, over links as ``edges`` state them."""
    return (
        replace(step, edges=edges) if isinstance(step, ReleaseSteps) else StatedSteps(edges=edges)
    )


def _check_settings(settings: StepSettings) -> None:
    usual = StepSettings()
    none = settings.optimizer_bytes == usual.optimizer_bytes
    allowed = "nothing under the rules of a release, which leave the optimizer out"
    require(none, "optimizer_bytes", settings.optimizer_bytes, allowed)


def _check_model(model: Transformer) -> None:
    """Refuse what the releases have no word for."""
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


def _lstm(model: LstmModel, chips: Chips) -> Prediction:
    lp = chips.strategy.lp
    check_split(model, chips)
    prepare(chips.times, lambda asked: lstm_parts(model, replace(chips, times=asked)))
    parts = lstm_parts(model, chips)
    # The last link is that of the gradients of the last stage.
    forward, backward = (
        simulate(lstm_graph(model, parts, lp, forward=way), f"link {2 * lp - 2}")
        for way in (True, False)
    )
    busy = busy_stages(forward, backward)
    most = busiest_of([time for _, time in busy])
    time = forward.makespan + backward.makespan
    passed = forward.makespan + backward.end_without("reduction")
    return Prediction(
        workload=model,
        strategy=chips.strategy,
        time=time,
        parts=made_of(lstm_work(model, parts, most, lp), busy[most][1], passed, time),
        memory=lstm_account(model, chips.strategy, chips.times.element_size),
        busy=busy,
        timelines=lambda: (forward, backward),
        scheduled=True,
    )


def _run(job: TransformerTraining, chips: Chips) -> Prediction:
    prepare(chips.times, lambda asked: operations_of(job, replace(chips, times=asked)))
    operations = operations_of(job, chips)
    timeline = simulate(transformer_graph(job, operations), "ring 0")
    busy = busy_stages(timeline)
    layers = [1, *[job.model.layers] * (len(operations) - 2), 1]
    microbatches = job.microbatches or 1
    work = {
        f"{operation.name} {way}": microbatches * count * getattr(operation, way)
        for operation, count in zip(operations, layers, strict=True)
        for way in ("forward", "backward")
    }
    time = timeline.makespan
    return Prediction(
        workload=job,
        strategy=chips.strategy,
        time=time,
        parts=made_of(work, busy[0][1], timeline.end_without("reduction"), time),
        memory=transformer_account(job, chips.strategy, chips.times.element_size),
        busy=busy,
        timelines=lambda: (timeline,),
        run_time=time * job.steps if job.tokens else None,
        scheduled=True,
    )


def _estimated(job: TransformerTraining, chips: Chips) -> Prediction:
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
