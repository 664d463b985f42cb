"""What the stages of a mapping do in an iteration, partition by partition and event by event."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from crosstack.evaluate.evaluation import EndTerms, PartitionTerms
from crosstack.evaluate.plan import Plan
from crosstack.evaluate.time import mapped_plan
from crosstack.machine.chip import Overlap
from crosstack.model.iteration import pipeline_of
from crosstack.model.optimizer_step import NO_STEP
from crosstack.model.pairs import token_times
from crosstack.model.schedule.combined import hidden_in_pairs
from crosstack.model.schedule.dual import hidden_time
from crosstack.model.schedule.events import Timeline, simulate
from crosstack.model.schedule.passes import Ending, Operation, Pass, Stage
from crosstack.model.schedule.pipeline_graph import pipeline_graph
from crosstack.model.schedule.zero_bubble import chip_pieces, piece_chip
from crosstack.model.stages import Pipeline
from crosstack.workload.kernel_graph import KernelGraph
from crosstack.workload.transformer_training import Offload, Schedule

__all__ = [
    "EXCHANGING",
    "OFFLOADING",
    "SENDING",
    "busy_of",
    "pieces_of",
    "stages_of",
    "timeline_of",
]

EXCHANGING = "weights and gradients of layers on their way"
OFFLOADING = "activations of layers on their way to the host and back"
SENDING = "sending on"
LAUNCHING = "the host's launches"
NAMED = 3  # kernels of a partition that its name lists
Pieces = list[tuple[str, float]]
Run = list[tuple[str, bool, float]]  # name, whether backward, and seconds of a microbatch


def stages_of(answer: Plan) -> tuple[Stage, ...]:
    """Return the stages of the pipeline, with what each does of one microbatch.

    Pieces of interleaved stages are stages of their own, the i-th on chip i modulo the number of
    chips, or as the schedule has it (`crosstack.model.schedule.zero_bubble.piece_chip`).

    Notes
    -----
    How much of a stage's time is forward is what its schedule counts
    (`crosstack.model.iteration.Pipeline`); partitions share that in proportion to their own time.
    Where a chip sends by itself, sending is work of its stage.
    """
    found, mapping = answer.evaluation, answer.mapping
    if found.stages:  # each holds a part of the graph
        return tuple(
            Stage(
                operations=(
                    Operation(name=f"stage {s.number}", forward=s.work_time, backward=0.0),
                ),
                send=s.transfer_time,
            )
            for s in found.stages
        )
    pipeline = _pipeline(answer)
    count = found.n_stages * mapping.interleave
    beside = pipeline.overlap is Overlap.ALL
    send = float(pipeline.transfer) / (2 if pipeline.training else 1) if count > 1 else 0.0
    layers, (first, last) = _layers(answer, pipeline), _own_of_ends(answer, pipeline)
    on = [piece_chip(stage, found.n_stages, mapping.schedule) for stage in range(count)]
    stages = []
    for stage in range(count):
        at = zip((0, count - 1), pipeline.fewer, strict=True)
        held = 1.0 - sum(float(share) for place, share in at if place == stage)
        own = [_shortened(one, held) for one in layers]
        if not beside and send:
            away = [0 <= to < count and on[to] != on[stage] for to in (stage + 1, stage - 1)]
            own.append(_sending(send, *away, training=pipeline.training))
        own = [*first, *own] if stage == 0 else own
        own = [*own, *last] if stage == count - 1 else own
        sent = send if beside else 0.0
        stages.append(Stage(operations=tuple(own), send=sent, taken=pipeline.taken))
    return tuple(stages)


def _layers(answer: Plan, pipeline: Pipeline) -> list[Operation]:
    """Return what a piece of a stage that holds as many layers as any does of a microbatch."""
    found, mapping = answer.evaluation, answer.mapping
    whole = found.layer_time * mapping.microbatch_size * found.layers_per_stage
    work = whole / mapping.interleave
    share = float(pipeline.forward) if pipeline.training else 1.0
    run = _run(answer.task.workload.graph, found.partitions)
    layers = _operations(run, work * share, work * (1 - share))
    if pipeline.schedule.defers_weights:
        apart = float(pipeline.weight_gradients) / (1 - share)
        layers = [replace(one, weights=one.backward * min(apart, 1.0)) for one in layers]
    if pipeline.together and layers:
        there, back = token_times(pipeline)[0]
        cut = mapping.interleave
        layers[0] = replace(layers[0], tokens=(there / cut, back / cut))
    for name, time in _waits(answer, pipeline, whole):
        there, back = time * share, time * (1 - share)
        layers = [*layers, Operation(name=name, forward=there, backward=back)]
    return layers


def _own_of_ends(answer: Plan, pipeline: Pipeline) -> tuple[list[Operation], list[Operation]]:
    """Return what the first stage does before its layers, and the last one behind them."""
    sides = pipeline.first, pipeline.last
    tokens = pipeline.first_tokens, pipeline.last_tokens
    found = list[list[Operation]]()
    for ends, (there, both), sent in zip(_ends(answer), sides, tokens, strict=True):
        run = _run_of_ends(answer, ends) if both else []
        found.append(_with_tokens(_operations(run, there, both - there), sent))
    return found[0], found[1]


def _waits(answer: Plan, pipeline: Pipeline, work: float) -> Pieces:
    """Return what a piece of a stage waits for beside its ``work`` of a microbatch, by name. [s]"""
    whole = float(pipeline.stage_work(work))
    if whole <= work:
        return []
    pieces = answer.mapping.interleave
    if pipeline.host >= whole:
        return [(LAUNCHING, (whole - work) / pieces)]
    if Offload.ACTIVATIONS not in answer.mapping.offload:
        return [(EXCHANGING, (whole - work) / pieces)]
    here = float(_pipeline(answer, here=True).stage_work(work))
    named = (EXCHANGING, here - work), (OFFLOADING, whole - here)
    return [(name, time / pieces) for name, time in named if time > 0]


def _with_tokens(ends: list[Operation], tokens: tuple[float, float]) -> list[Operation]:
    """Return operations of ends with what tokens take on their way, forward and in all. [s]"""
    there, both = tokens
    if not (ends and both):
        return ends
    return [replace(ends[0], tokens=(float(there), float(both - there))), *ends[1:]]


def layers_counted(answer: Plan) -> tuple[float, ...]:
    """Return the layers that time counts on each stage, or chip where stages are cut. [1]"""
    found, pipeline = answer.evaluation, _pipeline(answer)
    whole = float(found.layers_per_stage)
    layers = [whole] * found.n_stages
    for stage, share in zip((0, -1), pipeline.fewer, strict=True):
        layers[stage] -= whole * float(share)
    if pipeline.from_both_ends:  # of half of the microbatches each
        return tuple((one + other) / 2 for one, other in zip(layers, layers[::-1], strict=True))
    return tuple(layers)


def pieces_of(answer: Plan, stages: Sequence[Stage], busy: Sequence[tuple[str, float]]) -> Pieces:
    """Return what the stage that is ``busy`` longest does in an iteration, by name. [s]

    Parameters
    ----------
    answer, stages
        A plan, and its `stages_of`.
    busy : sequence of (str, float)
        As `busy_of` returns it. [s]
    """
    most = max(range(len(busy)), key=lambda chip: busy[chip][1])
    named: dict[str, float] = {}
    for stage, count in stages_on(answer, stages, most, len(busy)):
        for operation in stage.operations:
            took = (operation.forward + operation.backward) * count
            named[operation.name] = named.get(operation.name, 0.0) + took
    whole = sum(named.values())
    share = busy[most][1] / whole if whole else 1.0  # what is hidden, of each alike
    return [(name, took * share) for name, took in named.items()]


def stages_on(
    answer: Plan, stages: Sequence[Stage], chip: int, chips: int
) -> list[tuple[Stage, float]]:
    """Return the stages that a chip has, and how many microbatches it takes through each. [1]"""
    count = float(answer.evaluation.n_microbatches)
    if answer.mapping.schedule.both_ends and answer.task.workload.training:
        return [(stages[chip], count / 2), (stages[chips - 1 - chip], count / 2)]
    pieces = chip_pieces(chip, chips, len(stages), answer.mapping.schedule)
    return [(stages[piece], count) for piece in pieces]


def hidden_of(answer: Plan, stages: Sequence[Stage], chip: int) -> float:
    """How much less a chip takes for passes that run together than one by one. [s]"""
    schedule, count = answer.mapping.schedule, answer.evaluation.n_microbatches
    if not (schedule.pairs and answer.task.workload.training):
        return 0.0
    if schedule.both_ends:
        return hidden_time(stages, chip, count)
    return hidden_in_pairs(stages, chip, count, answer.mapping.interleave)


def busy_of(answer: Plan, stages: Sequence[Stage]) -> tuple[tuple[str, float], ...]:
    """Return how long the chips of every stage work in an iteration, by its name. [s]"""
    chips = max(len(stages) // answer.mapping.interleave, 1)
    passes = [
        sum(
            count * (stage.time(Pass.FORWARD) + stage.time(Pass.BACKWARD))
            for stage, count in stages_on(answer, stages, chip, chips)
        )
        - hidden_of(answer, stages, chip)
        for chip in range(chips)
    ]
    return tuple((f"stage {chip}", taken) for chip, taken in enumerate(passes))


def timeline_of(answer: Plan, stages: Sequence[Stage]) -> Timeline:
    """Run all stages with every microbatch, by the schedule of the mapping."""
    mapping, found = answer.mapping, answer.evaluation
    trained = answer.task.workload.training
    graph = pipeline_graph(
        stages,
        found.n_microbatches,
        mapping.schedule if trained else Schedule.GPIPE,  # one pass, in the order of microbatches
        interleave=mapping.interleave,
        training=trained,
        ending=_ending(answer),
    )
    return simulate(graph)


def _ending(answer: Plan) -> Ending | None:
    """Return what an iteration ends with; None where nothing does."""
    pipeline, found = _pipeline(answer), answer.evaluation
    if pipeline.step is NO_STEP:
        return None
    work = found.layer_time * answer.mapping.microbatch_size * found.layers_per_stage
    layers = float(pipeline.stage_work(work))
    share, pieces = float(pipeline.forward), answer.mapping.interleave
    there, both = pipeline.last
    return Ending(
        step=pipeline.step,
        layers=found.layers_per_stage,
        forward=layers * share / pieces,
        lead=layers * float(pipeline.lead),
        head=(there, 0.0 if pipeline.schedule.defers_weights else both - there),
        fewer=(float(pipeline.fewer[0]), float(pipeline.fewer[1])),
        taken=pipeline.taken,
    )


def _pipeline(answer: Plan, *, here: bool = False) -> Pipeline:
    """Return the pipeline of an answer; ``here``: as if its activations stayed on the chips."""
    task = answer.task
    plan = mapped_plan(task.workload, task.system, answer.mapping, answer.rules)
    plan = replace(plan, left=0.0) if here else plan
    return pipeline_of(plan, task.system.chip.overlap, answer.rules)


def _run(graph: KernelGraph, partitions: Iterable[PartitionTerms], times: float = 1.0) -> Run:
    """Return partitions in order, and whether most of each is of the backward pass."""
    backward = {name for name, back in zip(graph.names, graph.backward, strict=True) if back}
    return [
        (_name(p.kernels), 2 * len(backward & {*p.kernels}) > len(p.kernels), p.time * times)
        for p in partitions
    ]


def _run_of_ends(answer: Plan, ends: Iterable[EndTerms]) -> Run:
    graphs = {end.name: end.graph for end in answer.task.workload.ends}
    return [
        (f"{end.name}: {name}", back, time)
        for end in ends
        for name, back, time in _run(graphs[end.name], end.partitions, end.count)
    ]


def _ends(answer: Plan) -> tuple[tuple[EndTerms, ...], tuple[EndTerms, ...]]:
    ends, before = answer.evaluation.ends, len(answer.task.workload.before)
    return ends[:before], ends[before:]


def _name(kernels: Sequence[str]) -> str:
    more = f" and {len(kernels) - NAMED} more" if len(kernels) > NAMED else ""
    return ", ".join(kernels[:NAMED]) + more


def _operations(run: Run, forward: float, backward: float) -> list[Operation]:
    """Return partitions as operations that take so long together each way. [s]"""
    there = [(name, time) for name, back, time in run if not back]
    back = [(name, time) for name, back, time in run if back]
    found = [
        Operation(name=name, forward=time, backward=0.0) for name, time in _scaled(there, forward)
    ]
    # Stages are passed from last to first on the way back.
    returned = reversed(_scaled(back or there, backward))
    found += [Operation(name=name, forward=0.0, backward=time) for name, time in returned]
    return found


def _scaled(named: Pieces, total: float) -> Pieces:
    whole = sum(time for _, time in named)
    if not total:
        return []
    return [(name, time / whole * total) for name, time in named] if whole else [("else", total)]


def _shortened(one: Operation, share: float) -> Operation:
    """Return a share of an operation, of a stage that holds fewer layers."""
    if share == 1.0:
        return one
    times = {name: getattr(one, name) * share for name in ("forward", "backward", "weights")}
    return replace(one, **times)


def _sending(send: float, on: bool, back: bool, *, training: bool) -> Operation:
    return Operation(
        name=SENDING,
        forward=send if on else 0.0,
        backward=send if training and back else 0.0,
    )
