"""What a step is made of: where the time of the busiest stage goes, and what to change first.

The stage that works longest sets the pace, so its time from the first microbatch to the updated
weights is the critical path, by what it goes to (`Spent`). What hides behind something else takes
no time of its own: main memory counts where a kernel waits for it beyond its work, a collective
where nothing runs beside it, a sum of gradients behind the last backward pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from crosstack.evaluate.evaluation import KernelTerms, PartitionTerms
from crosstack.evaluate.timeline import (
    EXCHANGING,
    OFFLOADING,
    SENDING,
    busy_of,
    hidden_of,
    layers_counted,
    stages_of,
    stages_on,
)
from crosstack.machine.chip import Overlap
from crosstack.model.ends import computed_again_of
from crosstack.model.memory import computed_again
from crosstack.model.schedule.layer import KernelRun
from crosstack.workload.kernel_graph import KernelGraph
from crosstack.workload.transformer_training import Recompute

if TYPE_CHECKING:
    from crosstack.evaluate.plan import Plan

__all__ = ["Spent", "StepAccount", "exposed_times", "step_account"]


class Spent(StrEnum):
    """What the time of a stage goes to.

    ``compute``: kernels, as long as their units work; ``recomputation``: kernels of the forward
    pass that the backward pass runs again, with all that they wait for; ``memory``: kernels that
    wait for main memory; ``network``: collectives in layers; ``launch``: the host launches kernels;
    ``exchange``: layers wait for weights or gradients that data-parallel chips share; ``offload``:
    they wait for activations on their way to the host, or back; ``sends``:
    the stage itself sends activations on; ``waiting``: for other stages, and for what they send;
    ``sums``, ``update``, ``gather``: what an iteration ends with.
    """

    COMPUTE = "compute"
    RECOMPUTATION = "recomputation"
    MEMORY = "memory"
    NETWORK = "network"
    LAUNCH = "launch"
    EXCHANGE = "exchange"
    OFFLOAD = "offload"
    SENDS = "sends"
    WAITING = "waiting"
    SUMS = "sums"
    UPDATE = "update"
    GATHER = "gather"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAccount:
    """Where the ``time`` [s] of a step goes in the busiest ``stage``, numbered from 0.

    ``spent`` adds up to the time, and so does ``bound``, in which a kernel counts as a whole for
    the longer of its work and its memory, again or not; ``at_peak`` is what ``compute`` of the
    former would take at the peak rate of a chip, and ``saved_at_peak`` what the time would be less
    then, where memory that the work hides would be waited for. [s]
    """

    stage: int
    time: float
    spent: tuple[tuple[Spent, float], ...]
    bound: tuple[tuple[Spent, float], ...]
    at_peak: float
    saved_at_peak: float

    @property
    def bound_by(self) -> Spent:
        """What bounds most of the time."""
        return max(self.bound, key=lambda one: one[1])[0]

    @property
    def savings(self) -> tuple[tuple[Spent, float], ...]:
        """What each would save at most, the largest first: all of it; compute, at the peak."""
        saved = [
            (name, self.saved_at_peak if name is Spent.COMPUTE else time)
            for name, time in self.spent
        ]
        return tuple(sorted(saved, key=lambda one: -one[1]))

    @property
    def first(self) -> tuple[Spent, float]:
        """What should change first, and what that saves at most. [s]"""
        return self.savings[0]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data; see ``docs/result.md``."""
        name, saved = self.first
        return {
            "busiest_stage": self.stage,
            "spent_s": {name.value: time for name, time in self.spent},
            "bound_s": {name.value: time for name, time in self.bound if time},
            "compute_at_peak_s": self.at_peak,
            "bound_by": self.bound_by.value,
            "change_first": {"what": name.value, "saves_at_most_s": saved},
        }


def bound_times(partition: PartitionTerms, overlap: Overlap) -> Iterator[tuple[Spent, float]]:
    """Yield the time of a partition by what bounds each of its kernels. [s]"""
    exposed = dict(exposed_times(partition, overlap))
    if overlap is Overlap.ALL and exposed[Spent.NETWORK] > 0:  # all else hides behind it
        yield Spent.NETWORK, partition.time
        return
    yield Spent.NETWORK, exposed[Spent.NETWORK]
    yield Spent.LAUNCH, partition.launch_time
    for run in _runs(partition):
        both = sum(_device_times([run], overlap))
        yield (Spent.MEMORY if run.bound_by == "memory" else Spent.COMPUTE), both


def saved_at_peak(
    partition: PartitionTerms, at_peak: Mapping[str, float], overlap: Overlap
) -> float:
    """Time that a partition takes less where its kernels compute at the peak rate. [s]

    Parameters
    ----------
    at_peak : mapping
        What each kernel would compute, each time that it runs. [s]
    """
    if not partition.kernel_runs:  # they run together
        at_peak = {"": sum(at_peak[name] for name in partition.kernels)}
    saved = 0.0
    for run in _runs(partition):
        if not run.again:
            least = replace(run, compute=min(at_peak[run.name], run.compute), reduction=0.0)
            saved += sum(_device_times([run], overlap)) - sum(_device_times([least], overlap))
    if overlap is Overlap.ALL:  # what it hides beside is waited for
        saved = min(saved, max(partition.time - partition.network_time, 0.0))
    return saved


def _runs(partition: PartitionTerms) -> tuple[KernelRun, ...]:
    """Return the kernels of a partition; one that is all of them where they run together."""
    alike = KernelRun(name="", compute=partition.compute_time, memory=partition.memory_time)
    return partition.kernel_runs or (alike,)


def exposed_times(partition: PartitionTerms, overlap: Overlap) -> Iterator[tuple[Spent, float]]:
    """Yield what the time of a partition goes to, which it adds up to. [s]"""
    device = dict.fromkeys((Spent.COMPUTE, Spent.MEMORY, Spent.LAUNCH, Spent.RECOMPUTATION), 0.0)
    runs = _runs(partition)
    kinds = {run.again for run in runs}
    for again in kinds:
        compute, memory = _device_times([run for run in runs if run.again is again], overlap)
        launch = partition.launch_time / len(kinds)
        if again:
            device[Spent.RECOMPUTATION] += compute + memory + launch
        else:
            device[Spent.COMPUTE] += compute
            device[Spent.MEMORY] += memory
            device[Spent.LAUNCH] += launch
    yield from device.items()
    left = partition.time - sum(device.values())
    yield Spent.NETWORK, min(max(left, 0.0), partition.network_time)


def _device_times(runs: Iterable[KernelRun], overlap: Overlap) -> tuple[float, float]:
    """Time that kernels compute, and that they wait for main memory besides. [s]"""
    compute = memory = 0.0
    for run in runs:
        compute += run.compute + run.reduction
        hidden = 0.0 if overlap is Overlap.NONE else run.compute
        memory += max(run.memory - hidden, 0.0)
    return compute, memory


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """A part of the busiest stage, and how often it runs in an iteration, for one sequence. [1]"""

    graph: KernelGraph
    partitions: Sequence[PartitionTerms]
    kernels: Sequence[KernelTerms]
    recompute: Recompute
    runs: float


def step_account(answer: Plan) -> StepAccount:
    """Return where the time of a step of an answer goes in its busiest stage.

    Notes
    -----
    What is left beside its work, and beside what an iteration ends with, is waiting: the bubble of
    the pipeline, and sends that nothing hides.
    """
    found, system = answer.evaluation, answer.task.system
    stages = stages_of(answer)
    busy = busy_of(answer, stages)
    most = max(range(len(busy)), key=lambda stage: busy[stage][1])
    spent, bound = dict.fromkeys(Spent, 0.0), dict.fromkeys(Spent, 0.0)
    beside = {
        EXCHANGING: Spent.EXCHANGE, OFFLOADING: Spent.OFFLOAD, SENDING: Spent.SENDS,
    }  # fmt: skip
    for stage, count in stages_on(answer, stages, most, len(busy)):
        for one in stage.operations:
            if one.name in beside:
                both = one.forward + one.backward
                spent[beside[one.name]] += both * count
    blocks = list(_blocks(answer, most, len(busy)))
    for block in blocks:
        for partition in block.partitions:
            for name, time in exposed_times(partition, system.chip.overlap):
                spent[name] += time * block.runs
            for name, time in bound_times(partition, system.chip.overlap):
                bound[name] += time * block.runs
    hidden = hidden_of(answer, stages, most)  # tokens on their way while others are computed
    spent[Spent.NETWORK] -= hidden
    bound[Spent.NETWORK] -= hidden
    peaks = [_at_peak(answer, block) for block in blocks]
    at_peak = sum(sum(each.values()) * b.runs for b, each in zip(blocks, peaks, strict=True))
    saved = sum(
        saved_at_peak(partition, each, system.chip.overlap) * block.runs
        for block, each in zip(blocks, peaks, strict=True)
        for partition in block.partitions
    )
    spent = {name: time / system.copies for name, time in spent.items()}
    ended = {
        Spent.SUMS: found.sums_time,
        Spent.UPDATE: found.update_time,
        Spent.GATHER: found.gather_time,
    }
    spent |= ended
    spent[Spent.WAITING] = max(found.time - sum(spent.values()), 0.0)
    kernels = (Spent.COMPUTE, Spent.MEMORY, Spent.NETWORK, Spent.LAUNCH)
    bound = {name: bound[name] / system.copies for name in kernels}
    others = (Spent.RECOMPUTATION, *kernels)
    bound |= {name: time for name, time in spent.items() if name not in others}
    return StepAccount(
        stage=most,
        time=found.time,
        spent=tuple(spent.items()),
        bound=tuple(bound.items()),
        at_peak=min(at_peak / system.copies, spent[Spent.COMPUTE]),
        saved_at_peak=saved / system.copies,
    )


def _blocks(answer: Plan, stage: int, stages: int) -> Iterator[_Block]:
    """Yield what a stage of so many runs: its layers, or its part of one; its ends."""
    found, mapping, workload = answer.evaluation, answer.mapping, answer.task.workload
    sequences = mapping.microbatch_size * found.n_microbatches
    layers = _Block(
        graph=workload.graph,
        partitions=found.partitions,
        kernels=found.kernels,
        recompute=mapping.recompute,
        runs=sequences * layers_counted(answer)[stage],
    )
    if found.stages:
        own = {p.number for p in found.partitions if p.stage == stage}
        yield _Block(
            graph=layers.graph,
            partitions=[p for p in layers.partitions if p.number in own],
            kernels=[k for k in layers.kernels if k.partition in own],
            recompute=mapping.recompute,
            runs=float(sequences),
        )
        return
    yield layers
    ends = {end.name: end for end in workload.ends}
    before = len(workload.before)
    dual = mapping.schedule.both_ends and workload.training
    meet = mapping.schedule.ends_meet and workload.training
    each = sequences / (2 if dual else 1)
    for number, end in enumerate(found.ends):
        place = 0 if number < before or meet else stages - 1
        if stage == place or (dual and stage == stages - 1 - place):
            yield _Block(
                graph=ends[end.name].graph,
                partitions=end.partitions,
                kernels=end.kernels,
                recompute=computed_again_of(ends[end.name], mapping.recompute),
                runs=each * end.count,
            )


def _at_peak(answer: Plan, block: _Block) -> dict[str, float]:
    """Time of a block's kernels at the peak rate of what each computes with, each once. [s]"""
    clock, chip, graph = answer.rules.clock, answer.task.system.chip, block.graph
    peak, slower = clock.peak_rate(chip, graph.dtype), clock.slower(chip, graph)
    again = computed_again(graph, block.recompute)
    found = {}
    for kernel in block.kernels:
        i = graph.index[kernel.name]
        found[kernel.name] = kernel.work * float(slower[i]) / (2 if again[i] else 1) / peak
    return found
