"""Sweep the serving of a transformer over degrees, batches and contexts, kernel by kernel.

With one kernel a partition and the usual sharding there is nothing to search, so every point has a
closed form; thousands are priced at once as arrays. A point is the same job under the same mapping
as that of `ServingSweep.point`, and takes what `crosstack.evaluate` says of it: kernels by
`crosstack.evaluate.serving_blocks`, iterations, latency and memory by the formulas of
`crosstack.model`, with plans whose numbers are arrays. Tiles are tried over the divisors of the
sequence, the fastest that fit are taken. Points that do not fit are marked and priced all the same,
also those of more chips than the one dimension of a network has, where each degree by itself would
fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crosstack.errors import InputError, Problem, did_you_mean, require_whole
from crosstack.evaluate.evaluation import TERMS
from crosstack.evaluate.serving_blocks import fastest_costs
from crosstack.evaluate.serving_graphs import JobSeries, job_series
from crosstack.evaluate.serving_points import (
    USES,
    ServingPoints,
    check_degrees,
    machine_of,
    serving_points,
    too_many_chips,
)
from crosstack.machine.system import System
from crosstack.mapping.mapping import EndMapping, Mapping
from crosstack.model.collectives import AffineTime
from crosstack.model.end_cost import EndCost
from crosstack.model.ends import counted, end_runs, own_table, with_ends
from crosstack.model.iteration import iteration_time, latency, pipeline_of
from crosstack.model.memory import CopyMemory, static_sizes
from crosstack.model.mesh_plan import MeshPlan, make_plan
from crosstack.model.partition import ROUNDING
from crosstack.model.rules import MAPPED, Rules, chosen_rules
from crosstack.workload.architectures import Transformer
from crosstack.workload.dtype import Dtype
from crosstack.workload.job import Job, JobKind
from crosstack.workload.kernel_graph import Bools, Floats, Ints
from crosstack.workload.workload import Workload

WorkloadOf = Callable[..., Workload]  # of a context and a batch
UNIT = 1e9  # bytes that a layer hands on, of plans that say what one byte takes


class Phase(StrEnum):
    """``decode`` writes tokens after a context, ``prefill`` reads a prompt of that length."""

    DECODE = "decode"
    PREFILL = "prefill"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """What all points of a sweep have in common."""

    model: Transformer
    phase: Phase
    system: System
    rules: Rules
    tokens: int
    dtype: Dtype

    def job(self, context: int, batch: int) -> Job:
        """Return the job of a point."""
        kind, length, kept = JobKind.DECODE, self.tokens, context
        if self.phase is Phase.PREFILL:
            kind, length, kept = JobKind.PREFILL, context, 0
        return Job(
            model=self.model, kind=kind, batch=batch, sequence=length, context=kept or None,
            dtype=self.dtype,
        )  # fmt: skip

    def workload(self, context: int, batch: int) -> Workload:
        """Return the graphs of a point that count."""
        return counted(self.job(context, batch).workload, self.rules)

    def lengths(self, contexts: Ints) -> Ints:
        """Return the tokens that run through a layer. [1]"""
        return contexts if self.phase is Phase.PREFILL else np.full_like(contexts, self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingSweep(ServedModel):
    """Points of a sweep; every array has one entry a point.

    ``tensor`` and ``pipeline`` chips, ``batch`` sequences, ``context`` tokens, ``microbatch``
    sequences and ``n_tiles`` are what is priced, ``end_tiles`` the tiles of what runs before and
    behind the layers, one after the other. [1] ``layer_time``: a layer of one sequence;
    ``time``: one iteration of the batch;
    ``latency``: one microbatch through all stages, the time to the first token of a prompt and
    between two tokens. [s] ``throughput``: tokens of all sequences. [1/s] ``memory_used`` and
    ``memory_capacity`` of a chip. [B] ``bound_by`` is the largest of compute, memory and network
    over all kernels; ``limit`` what a point that does not fit exceeds, empty where it fits.
    """

    tensor: Ints
    pipeline: Ints
    batch: Ints
    context: Ints
    microbatch: Ints
    n_tiles: Ints
    end_tiles: tuple[tuple[int, ...], ...]
    layer_time: Floats
    time: Floats
    latency: Floats
    throughput: Floats
    memory_used: Floats
    memory_capacity: Floats
    bound_by: tuple[str, ...]
    limit: tuple[str, ...]

    @property
    def fits(self) -> Bools:
        """Whether a point fits SRAM and main memory."""
        return np.array([not limit for limit in self.limit], dtype=np.bool_)

    def point(self, i: int) -> tuple[Job, System, Mapping]:
        """Return point ``i`` as the job, the system and the mapping that were priced."""
        job = self.job(int(self.context[i]), int(self.batch[i]))
        workload = counted(job.workload, self.rules)
        (series,) = job_series(lambda _: workload, self.context[i : i + 1], self.rules)
        tiles = int(self.n_tiles[i]), *self.end_tiles[i]
        layer, *ends = (
            EndMapping(
                n_tiles=n_tiles, sharding=block.sharding, partitions=tuple(range(block.graph.n))
            )
            for block, n_tiles in zip(series.blocks, tiles, strict=True)
        )
        sizes = int(self.tensor[i]), int(self.pipeline[i])
        mapping = Mapping(
            sizes=sizes,
            parallelism=USES,
            microbatch_size=int(self.microbatch[i]),
            n_tiles=layer.n_tiles,
            sharding=layer.sharding,
            partitions=layer.partitions,
            ends=tuple(ends),
        )
        return job, machine_of(self.system, *sizes, self.rules), mapping


def serving_sweep(
    model: Transformer,
    system: System,
    *,
    tensor: ArrayLike,
    pipeline: ArrayLike,
    batch: ArrayLike,
    context: ArrayLike,
    phase: Phase | str = Phase.DECODE,
    tokens: int = 1,
    microbatch: ArrayLike | None = None,
    dtype: Dtype | str = Dtype.BF16,
    rules: Rules | str | None = None,
) -> ServingSweep:
    """Price a transformer at every point, kernel by kernel.

    Parameters
    ----------
    tensor, pipeline, batch, context : array_like of int
        Chips that split the tensors, pipeline stages, sequences served at once, tokens that are
        kept (``decode``) or read (``prefill``); broadcast against each other. [1]
    phase : Phase
        Whether tokens are written or a prompt is read.
    tokens : int
        New tokens of a decoding step. [1]
    microbatch : array_like of int, optional
        Sequences a stage works on at a time, a divisor of the batch. Left out, the largest divisor
        that still gives every stage one: at most batch / pipeline, at least 1. [1]
    dtype : Dtype or str
        Of weights and activations.

    Raises
    ------
    InputError
        If a number is not a whole number of at least 1; a tensor-parallel degree does not divide
        the heads and the feed-forward width, or is above the chips of the first dimension; there
        are more stages than layers, or than chips in the next dimension; a microbatch does not
        divide its batch; or the chip has memory units.

    References
    ----------
    ko2025dfmodel (section VIII.A, Fig. 20), dfmodel_code
    """
    numbers = {"tensor": tensor, "pipeline": pipeline, "batch": batch, "context": context}
    common = {"phase": phase, "tokens": tokens, "dtype": dtype, "rules": rules}
    return _swept(*check_serving(model, system, **common, **numbers, microbatch=microbatch))  # type: ignore[arg-type]


def check_serving(
    model: Transformer,
    system: System,
    *,
    phase: Phase | str,
    tokens: int,
    dtype: Dtype | str,
    rules: Rules | str | None,
    **numbers: ArrayLike | None,
) -> tuple[ServedModel, ServingPoints, WorkloadOf]:
    """Return what all points have in common, the points, and what makes graphs of them.

    Raises what `serving_sweep` would, without pricing anything; parameters as there.
    """
    chosen = chosen_rules(rules, MAPPED)
    if system.chip.levels[0].bank_capacity is not None:
        raise InputError(Problem("system.chip", "got memory units; allowed here: one SRAM."))
    if system.chip.framework is not None:
        message = f"got {system.chip.framework.name}; allowed here: none, as kernels run alone."
        raise InputError(Problem("system.framework", message))
    require_whole("tokens", tokens)
    points = serving_points(**{name: given for name, given in numbers.items() if given is not None})
    if phase not in list(Phase):
        message = f'got "{phase}".{did_you_mean(phase, Phase)} Allowed: {", ".join(Phase)}.'
        raise InputError(Problem("phase", message))
    served = ServedModel(
        model=model,
        phase=Phase(phase),
        system=system,
        rules=chosen,
        tokens=tokens,
        dtype=Job(model=model, kind=JobKind.PREFILL, sequence=1, dtype=dtype).dtype,  # type: ignore[arg-type]
    )
    made = cache(served.workload)
    check_degrees(model, system, points, _longest(made, model, points).graph_repetitions)
    return served, points, made


def _swept(served: ServedModel, points: ServingPoints, made: WorkloadOf) -> ServingSweep:
    """Price every point."""
    found: dict[str, Any] = {}
    end_tiles: list[tuple[int, ...]] = [()] * len(points.context)
    for rows, series in _parts(served, points, made):
        part = _priced(served, series, points.at(rows))
        for number, tiles in zip(rows.tolist(), part.pop("end_tiles").tolist(), strict=True):
            end_tiles[number] = tuple(tiles)
        for name, values in part.items():
            whole = found.setdefault(name, np.empty(len(points.context), values.dtype))
            whole[rows] = values
    fits, used, capacity = found["fits"], found["memory_used"], found["memory_capacity"]
    limit = np.where(used > capacity * (1 + ROUNDING), "main memory", "")
    limit = np.where(fits, limit, "SRAM")
    limit = np.where(too_many_chips(served.system, points), "network", limit)
    largest = np.stack([found[name] for name in TERMS]).argmax(axis=0)
    own = {f.name for f in fields(ServingSweep)}
    return ServingSweep(
        **{f.name: getattr(some, f.name) for some in (served, points) for f in fields(some)},
        **{name: values for name, values in found.items() if name in own},
        end_tiles=tuple(end_tiles),
        throughput=points.batch * served.lengths(points.context) / found["time"],
        bound_by=tuple(TERMS[i] for i in largest.tolist()),
        limit=tuple(limit.tolist()),
    )


def _parts(
    served: ServedModel, points: ServingPoints, made: WorkloadOf
) -> Iterator[tuple[Ints, JobSeries]]:
    """Yield rows of points whose graphs are alike, and their graphs.

    Graphs of one sequence depend on the batch where experts take a share of all tokens.
    """
    batches = _batches(served.model, points)
    for batch in np.unique(batches).tolist():
        rows = np.flatnonzero(batches == batch)
        contexts, place = np.unique(points.context[rows], return_inverse=True)
        at = partial(made, batch=batch)
        for series in job_series(at, contexts, served.rules):
            yield rows[np.isin(contexts, series.contexts)[place.ravel()]], series


def _priced(
    served: ServedModel, series: JobSeries, points: ServingPoints
) -> dict[str, NDArray[Any]]:
    """Return what points take whose graphs are alike; what spills is priced so."""
    chip = served.system.chip
    found = _taken(served, series, points, spilled=False)
    over = np.flatnonzero(found["memory_used"] > found["memory_capacity"] * (1 + ROUNDING))
    if chip.has_second_memory and len(over):
        rest = _taken(served, series, points.at(over), spilled=True)
        for name, values in rest.items():
            found[name][over] = values
    return found


def _taken(
    served: ServedModel, series: JobSeries, points: ServingPoints, *, spilled: bool
) -> dict[str, NDArray[Any]]:
    """Return what points take with one memory or with both, an array a term."""
    given = points, served.lengths(points.context), served.system, served.rules
    costs = [fastest_costs(block, *given, spilled=spilled) for block in series.blocks]
    names = ("layer_time", "time", "latency", "memory_used")
    found: dict[str, Any] = {name: np.empty(len(points.context)) for name in names}
    boundary = series.boundary(points.context)
    for stages in np.unique(points.pipeline).tolist():
        rows = np.flatnonzero(points.pipeline == stages)
        some = [{name: values[rows] for name, values in cost.items()} for cost in costs]
        plan = _plan(served, series.workload, stages, points.at(rows), boundary[rows])
        times = _times(served, series, plan, some, points.batch[rows])
        for name, values in zip(names, times, strict=True):
            found[name][rows] = values
    counts = [series.workload.graph_repetitions, *(end.count for end in series.workload.ends)]
    for name in TERMS:
        found[name] = sum(n * cost[name] for n, cost in zip(counts, costs, strict=True))
    capacity = served.system.chip.memory_room(spilled=spilled)
    tiles = [cost["n_tiles"].astype(np.int64) for cost in costs]
    return found | {
        "memory_capacity": np.full(len(points.context), capacity),
        "fits": np.all([cost["fits"] > 0 for cost in costs], axis=0),
        "n_tiles": tiles[0],
        "end_tiles": np.stack(tiles, axis=1)[:, 1:],
    }


def _plan(
    served: ServedModel, workload: Workload, stages: int, points: ServingPoints, boundary: Floats
) -> MeshPlan:
    """Return the plan of points with so many stages, its numbers arrays.

    What it takes to hand on ``boundary`` bytes is a line: that of none, and that of many. [B]
    """
    machine, plans = machine_of(served.system, 1, stages, served.rules), list[MeshPlan]()
    for size in (0.0, UNIT):
        sent = replace(workload, boundary_size=size)
        plan = make_plan(sent, machine, (1, stages), USES, 1, served.rules)
        assert plan is not None  # one sequence is a microbatch
        plans.append(plan)
    none, many = plans
    per_byte: Any = many.stage_transfer.per_byte * (boundary / UNIT)
    numbers: dict[str, Any] = {
        "sizes": (points.tensor, stages),
        "tensor": points.tensor,
        "microbatch_size": points.microbatch,
        "n_microbatches": points.batch // points.microbatch,
        "stage_transfer": AffineTime(fixed=none.stage_transfer.fixed, per_byte=per_byte),
        "hop": none.hop + (many.hop - none.hop) * (boundary / UNIT / points.tensor),
    }
    return replace(none, **numbers)


def _times(
    served: ServedModel,
    series: JobSeries,
    plan: MeshPlan,
    costs: list[dict[str, Floats]],
    batch: Ints,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the time of a layer, of an iteration, and the latency [s]; memory used [B]."""
    layer, *rest = costs
    workload, overlap = series.workload, served.system.chip.overlap
    ends = []
    for end, cost in zip(workload.ends, rest, strict=True):
        one: dict[str, Any] = {
            "time": cost["time"],
            "forward": cost["time"],
            "weights": cost["kept"] + own_table(workload, end, plan),
            "caches": cost["cached"] * batch,
            "live": cost["alive"],
        }
        ends.append(end_runs(EndCost(**one), end.count))
    plan = with_ends(workload, plan, ends) if ends else plan
    work = layer["time"] * plan.microbatch_size * plan.layers_per_stage
    time = (
        iteration_time(pipeline_of(plan, overlap, served.rules), work, served.rules) / plan.copies
    )
    none = np.zeros((len(batch), 1))
    memory = CopyMemory(
        weights=layer["kept"][:, None],
        gradients=none,
        optimizer_state=none,
        caches=(layer["cached"] * batch)[:, None],
        buffers=none,
        kept=none,
        again=none,
        waiting=none,
        experts=np.zeros(1, dtype=np.bool_),
    )
    idle, running = static_sizes(workload, plan, memory)
    used = np.maximum(idle + layer["alive"] * plan.microbatch_size, running)
    through: Any = latency(plan, layer["time"])
    return layer["time"], time, through, used


# ---------------------------------------------------------------- points


def _batches(model: Transformer, points: ServingPoints) -> Ints:
    """Return the batches that graphs of one sequence depend on: of experts, which share tokens."""
    return points.batch if model.experts else np.ones_like(points.batch)


def _longest(made: WorkloadOf, model: Transformer, points: ServingPoints) -> Workload:
    """Return the graphs of the longest context, refused where that makes none.

    Extents grow with the context, so the longest says it of all.
    """
    i = int(points.context.argmax())
    context, batch = int(points.context[i]), int(_batches(model, points)[i])
    try:
        return made(context, batch=batch)
    except InputError as error:
        lengths = ("sequence", "workload.sequence_length", "context")
        if not all(problem.path.endswith(lengths) for problem in error.problems):
            raise
        said = "; ".join(problem.message for problem in error.problems)
        raise InputError(Problem("context", f"got {context:,}; too long: {said}")) from None
