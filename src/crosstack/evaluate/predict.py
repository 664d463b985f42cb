"""The time of one iteration under a strategy: its degrees are given, what it leaves out is decided.

A strategy is a mapping of which people say the most: how many chips split tensors, layers and the
batch, perhaps microbatches and what is computed again. `predict` gives that to `optimise`, which
decides the rest, so that a mapping with the same decisions takes the same time. A release of a
published tool has a program of its own in its place (`Program`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from crosstack.errors import InputError, Problem
from crosstack.evaluate.plan import Plan, given_plan, optimise
from crosstack.evaluate.step_settings import StepSettings
from crosstack.evaluate.timeline import busy_of, pieces_of, stages_of, timeline_of
from crosstack.machine.node import part_of
from crosstack.machine.packages import require_links
from crosstack.machine.system import System
from crosstack.mapping.degrees import Degrees
from crosstack.mapping.mapping import Constraints, Mapping, Task
from crosstack.mapping.sharding import exchange_sharding, sum_sharding
from crosstack.mapping.strategy import KernelSplit, MappingOrder, Strategy, product_share
from crosstack.model.attention import iteration_work
from crosstack.model.fused_attention import as_run
from crosstack.model.memory_account import MemoryAccount
from crosstack.model.rules import Rules
from crosstack.model.schedule.events import Timeline
from crosstack.records import brief
from crosstack.units import format_quantity
from crosstack.workload.dtype import Dtype
from crosstack.workload.graph_workload import require_trained
from crosstack.workload.job import Work, as_workload
from crosstack.workload.transformer_training import (
    Schedule,
    Training,
    training_of,
)
from crosstack.workload.workload import Workload

__all__ = [
    "SUMMING",
    "WAITING",
    "WORK_LIMIT",
    "Prediction",
    "Program",
    "Step",
    "least_step",
    "predict",
    "predicted",
    "settled",
    "strategy_task",
]

Step = Work
WORK_LIMIT = 2e5  # units of work of what a strategy leaves out: about a second
MOST_PARTS = 5  # that are printed
WAITING = "waiting for other stages and transfers"
UPDATING = "updating weights"
GATHERING = "sending weights round"
SUMMING = "gradient sums after the last backward pass"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What one step takes.

    ``parts`` add up to ``time``: what the ``busiest`` stage does by name, and how long it waits.
    ``busy`` is how long each stage works, by its name. ``run_time`` is that of a whole training,
    None where the workload names none. ``timelines`` runs the step event by event and returns what
    follows one another; an estimate has nothing to run. [s] ``scheduled`` says that the events set
    the time, so that a shorter kernel may make a longer step. ``share``: M, K and N of a product on
    the fullest chip, None for other workloads. ``plan`` is the mapping with its certificate, None
    from the program of a release.
    """

    workload: Step
    strategy: Strategy
    time: float
    parts: tuple[tuple[str, float], ...]
    memory: MemoryAccount | None
    busy: tuple[tuple[str, float], ...]
    timelines: Callable[[], tuple[Timeline, ...]]
    run_time: float | None = None
    scheduled: bool = False
    share: tuple[int, int, int] | None = None
    plan: Plan | None = None

    __repr__ = brief

    def __str__(self) -> str:
        """Return the time of the step, and what most of it is."""
        longest = sorted(self.parts, key=lambda part: -part[1])[:MOST_PARTS]
        memory = () if self.memory is None else (("memory of a chip", self.memory.peak, "B"),)
        numbers = (("time of a step", self.time, "s"), *memory, *((n, t, "s") for n, t in longest))
        said = (f"  {name}: {format_quantity(value, unit)}" for name, value, unit in numbers)
        return "\n".join((f"{self.workload.name} under {self.strategy}", *said))

    @property
    def busiest(self) -> str | None:
        """The stage that works longest, of equal ones the first; None for an estimate."""
        busy = dict(self.busy)
        return max(busy, key=lambda stage: busy[stage]) if busy else None


class Program(Protocol):
    """What predicts a step: `predict`, or the program of a release."""

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
        work_limit: float = WORK_LIMIT,
    ) -> Prediction:
        """Time one step; see `predict`."""
        ...


def predict(
    workload: Step,
    strategy: Strategy,
    system: System,
    dtype: Dtype,
    settings: StepSettings | None = None,
    *,
    rules: Rules,
    order: MappingOrder | None = None,
    mapping: Mapping | None = None,
    work_limit: float = WORK_LIMIT,
) -> Prediction:
    """Time one step of a workload.

    Parameters
    ----------
    workload : Step
        What is computed; of a `Training` also decisions that are given.
    strategy : Strategy
        How it is spread, over all chips of the system or as many of them as it has.
    system : System
        The machine.
    dtype : Dtype
        What is computed in, where the workload does not say.
    settings : StepSettings or None
        Of the optimizer; None: the usual ones.
    rules : Rules
        What is counted.
    order : tuple of ParallelDimension or None
        Of ranks on the network; only programs of releases take one, as the best is found here.
    mapping : Mapping or None
        Everything that the strategy leaves out, as an answer had it; None: it is decided.
    work_limit : float
        Units of work for that, see `crosstack.optimise`. [1]

    Raises
    ------
    InputError
        If the strategy cannot split the workload, or is not one for so many chips.
    InfeasibleError
        If the step does not fit the main memory of a chip.
    """
    if order is not None:
        message = "allowed under the rules of a release; the best places of ranks are found here."
        raise InputError(Problem("order", message))
    task = settled(workload, strategy, system, dtype, settings)
    if mapping is None:
        answer = optimise(task, rules=rules, work_limit=work_limit)
    else:
        answer = given_plan(task, mapping, rules)
    return predicted(workload, strategy, answer)


def settled(
    workload: Step,
    strategy: Strategy,
    system: System,
    dtype: Dtype,
    settings: StepSettings | None,
) -> Task:
    """Return the task that a prediction under some settings is of.

    Parameters
    ----------
    workload, strategy, system, dtype, settings
        As of `predict`.

    Raises
    ------
    InputError
        As `strategy_task`; or an optimizer is said of what is not trained.
    """
    chosen = settings or StepSettings()
    if not chosen.enforces_capacity:
        system = replace(system, chip=system.chip.with_memory(capacity=None))
    task = strategy_task(workload, strategy, system, dtype)
    if chosen.optimizer is None:
        return task
    require_trained(task.workload.training, None, chosen.optimizer)
    return replace(task, workload=replace(task.workload, optimizer=chosen.optimizer))


def least_step(
    workload: Step, strategy: Strategy, system: System, dtype: Dtype, rules: Rules
) -> float:
    """Time that no mapping of a strategy beats: all work shared out evenly, at the full rate. [s]

    Parameters
    ----------
    workload, strategy, system, dtype, rules
        As of `predict`.

    Raises
    ------
    InputError
        As `predict`.
    """
    task = strategy_task(workload, strategy, system, dtype)
    work = iteration_work(task.workload, task.system.chip, rules.traffic)
    return rules.clock.least_time(task.system.chip, work) / task.system.n_chips


def strategy_task(
    workload: Step, strategy: Strategy, system: System, dtype: Dtype = Dtype.BF16
) -> Task:
    """Return the task of which a strategy gives the degrees, and a step what it says.

    Parameters
    ----------
    workload, strategy, system, dtype
        As of `predict`.

    Raises
    ------
    InputError
        If there are too few chips or no links between them, or the strategy does not split the
        workload.

    Notes
    -----
    The rows that RC splits over kp1 chips are those of different sequences: such chips hold the
    same weights, as data-parallel ones do. CR splits every product that can be along its sum.
    """
    if strategy.n_chips > system.n_chips:
        message = f"{strategy} needs {strategy.n_chips:,} chips; there are {system.n_chips:,}."
        raise InputError(Problem("strategy", message))
    try:
        system = part_of(system, strategy.n_chips)
        require_links(system)
    except InputError as error:
        raise error.renamed(dict.fromkeys(("n_chips", "intra", "inter"), "strategy")) from None
    summed = strategy.split is KernelSplit.CR
    rows = 1 if summed else strategy.kp1
    work = as_run(as_workload(workload, dtype, rows=rows * strategy.dp), system.chip)
    tensor = strategy.tensor
    degrees = Degrees(tensor=tensor, pipeline=strategy.lp, data=strategy.dp * rows)
    if work.experts > 1 or strategy.ep > 1:
        degrees = replace(degrees, expert=strategy.ep, expert_tensor=strategy.etp)
    if work.attends or strategy.cp > 1:
        degrees = replace(degrees, context=strategy.cp)
    given = Constraints(degrees=degrees)
    if summed and tensor > 1:
        given = replace(given, sharding=sum_sharding(work.graph))
    step = training_of(workload)
    if step is not None:
        given = _said(step, work, given, strategy)
    return Task(workload=work, system=system, constraints=given)


def _said(step: Training, work: Workload, given: Constraints, strategy: Strategy) -> Constraints:
    """Return constraints with what a step says of its schedule and of what chips exchange."""
    found = replace(
        given,
        recompute=step.recompute,
        recompute_layers=step.recompute_layers,
        schedule=step.schedule or Schedule.ONE_F_ONE_B,
        interleave=step.interleave,
        microbatch_size=step.microbatch_size,
        zero=step.zero,
        context_exchange=step.context_exchanged,
        overlap=step.overlap,
        offload=step.offload,
    )
    if step.microbatches is not None:
        replicas = given.degrees.data or 1
        each, left = divmod(step.batch, replicas * step.microbatches)
        if left or not each:
            message = (
                f"{strategy}: {step.microbatches} microbatches on each of {replicas} replicas do "
                f"not divide {step.batch} {work.item}s."
            )
            raise InputError(Problem("strategy", message))
        found = replace(found, microbatch_size=each)
    if step.exchanged is not None and (given.degrees.tensor or 1) > 1:
        found = replace(found, sharding=exchange_sharding(work.graph, step.exchanged))
    return found


def predicted(workload: Step, strategy: Strategy, answer: Plan) -> Prediction:
    """Return an answer as what its step is made of."""
    found = answer.evaluation
    stages = stages_of(answer)
    busy = busy_of(answer, stages)
    ended = (found.sums_time, found.update_time, found.gather_time)
    once = zip((SUMMING, UPDATING, GATHERING), ended, strict=True)
    pieces = [*pieces_of(answer, stages, busy), *((name, time) for name, time in once if time)]
    step = training_of(workload)
    return Prediction(
        workload=workload,
        strategy=strategy,
        time=found.time,
        parts=(*pieces, (WAITING, max(found.time - sum(time for _, time in pieces), 0.0))),
        memory=found.memory,
        busy=busy,
        timelines=lambda: (timeline_of(answer, stages),),
        run_time=found.time * step.steps if step is not None and step.steps else None,
        share=product_share(workload, strategy),
        plan=answer,
    )
