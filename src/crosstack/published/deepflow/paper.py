"""Steps of products and of LSTM language models as the paper of DeepFlow counts them.

Kernels of one chip, collectives and a schedule by events, over links that an order of ranks or the
paper states; used by what re-creates the paper alone (``ardalani2022deepflow``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from crosstack.errors import InputError, Problem
from crosstack.evaluate.predict import SUMMING, WAITING, Prediction, Step
from crosstack.evaluate.step_settings import StepSettings
from crosstack.mapping.strategy import KernelSplit, Strategy, own_shape
from crosstack.model.schedule.events import TaskGraphBuilder, Timeline, simulate
from crosstack.published.deepflow.distributed import Distributed
from crosstack.published.deepflow.paper_lstm import lstm_step
from crosstack.published.deepflow.paper_memory import check_capacity, lstm_memory
from crosstack.workload.lstm import LstmModel
from crosstack.workload.product import Product

__all__ = ["busiest_of", "busy_stages", "made_of", "product_step", "step_of"]


def made_of(
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


def busiest_of(busy: Sequence[float]) -> int:
    """Return the stage that works longest, of equal ones the first."""
    return max(range(len(busy)), key=lambda stage: busy[stage])


def step_of(
    workload: Step, chips: Distributed, settings: StepSettings, capacity: float
) -> Prediction:
    """Time one step on chips that know whom they communicate with.

    Parameters
    ----------
    workload : Step
        What is computed.
    chips : Distributed
        How it is spread, what a kernel takes, and over which links data goes.
    settings : StepSettings
        Of optimizer and chip.
    capacity : float
        Of a chip's main memory. [B]

    Raises
    ------
    InputError, InfeasibleError
        If the strategy cannot split the workload, or data is sent where there is no link; if the
        step does not fit the main memory of a chip.
    """
    strategy = chips.strategy
    if isinstance(workload, Product):
        shape = workload.m, workload.k, workload.n
        return product_step(
            workload,
            strategy,
            share=own_shape(*shape, strategy),
            own=lambda: chips.own_product(*shape),
            total=lambda: chips.forward(*shape),
        )
    if isinstance(workload, LstmModel):
        return _lstm(workload, chips, settings, capacity)
    message = f"got {workload.name}; the paper trains language models of LSTM cells."
    raise InputError(Problem("model", message))


def _where(model: LstmModel, chips: Distributed) -> str:
    return f"one chip of {model.name} under {chips.strategy}"


def _lstm(
    model: LstmModel, chips: Distributed, settings: StepSettings, capacity: float
) -> Prediction:
    account = lstm_memory(model, chips.strategy, chips.times.element_size, settings)
    if settings.enforces_capacity:
        check_capacity(account, capacity, _where(model, chips))
    step = lstm_step(model, chips)
    busy = busy_stages(step.forward, step.backward)
    most = busiest_of([time for _, time in busy])
    work = step.work(most, chips.strategy.lp)
    return Prediction(
        workload=model,
        strategy=chips.strategy,
        time=step.time,
        parts=made_of(work, busy[most][1], step.pass_time, step.time),
        memory=account,
        busy=busy,
        timelines=lambda: (step.forward, step.backward),
        scheduled=True,
    )


def busy_stages(*timelines: Timeline) -> tuple[tuple[str, float], ...]:
    """Return how long every chip or stage works. [s]"""
    found: dict[str, float] = {}
    for timeline in timelines:
        for name, time in timeline.busy().items():
            if name.startswith(("stage", "chip")):
                found[name] = found.get(name, 0.0) + time
    return tuple(found.items())


def product_step(
    product: Product,
    strategy: Strategy,
    *,
    share: tuple[int, int, int],
    own: Callable[[], float],
    total: Callable[[], float],
) -> Prediction:
    """One product and its collective; replicas and stages have nothing to do with it.

    Parameters
    ----------
    product : Product
        All of it.
    strategy : Strategy
        What splits it.
    share : tuple of int
        M, K and N on the fullest chip. [1]
    own, total : callable
        What that chip computes, and that with what it exchanges; asked for once the strategy is
        known to split the product. [s]

    Raises
    ------
    InputError
        If the strategy cannot split the product.
    """
    _check_product(product, strategy)
    whole, computed = total(), own()
    build = TaskGraphBuilder()
    first = build.add("product", computed, resource="chip", kind="forward")
    if whole > computed:
        build.add("collective", whole - computed, resource="ring", after=[first], kind="transfer")
    timeline = simulate(build.build())
    return Prediction(
        workload=product,
        strategy=strategy,
        time=whole,
        parts=(("product", computed), ("collective", whole - computed)),
        memory=None,
        busy=busy_stages(timeline),
        timelines=lambda: (timeline,),
        share=share,
    )


def _check_product(product: Product, s: Strategy) -> None:
    """Refuse a strategy that cannot split a product."""
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
