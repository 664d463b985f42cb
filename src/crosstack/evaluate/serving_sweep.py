"""Sweep the serving of a transformer over degrees, batches and contexts, kernel by kernel.

With one kernel a partition and the usual sharding there is nothing to search, so every point has a
closed form; thousands are priced at once as arrays. A point is the same mapping, priced the same
way, as that of `ServingSweep.point` by `crosstack.evaluate`.

With L layer time, s = ceil(layers / stages) layers a stage, q microbatches of b sequences and p
stages: a stage takes ``w = b s L``, an iteration ``(p + q - 1) w + (p - 1) x`` where x, what it
sends to the next one, takes no longer, the latency is ``b (p s L + (p - 1) hop)``
(`crosstack.model.iteration`; by `Rules`). Tiles are tried over the divisors of the sequence, the
fastest that fit are taken. Points that do not fit are marked and priced all the same, also those
of more chips than the one dimension of a network has, where each degree by itself would fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crosstack.errors import InputError, Problem, nearest, require, require_whole
from crosstack.evaluate.evaluation import TERMS
from crosstack.evaluate.serving_layer import Family, LayerCosts, family, layer_costs, serving_axes
from crosstack.machine.chip import Execution
from crosstack.machine.system import Parallelism, System
from crosstack.mapping.mapping import Mapping
from crosstack.model.collectives import NetworkUse
from crosstack.model.iteration import Pipeline, iteration_time
from crosstack.model.partition import ROUNDING
from crosstack.model.plan import make_plan
from crosstack.model.rules import MAPPED, Rules, chosen_rules
from crosstack.model.tiles import divisors
from crosstack.workload.architectures import Transformer
from crosstack.workload.kernel_graph import Bools, Floats, Ints
from crosstack.workload.serving import decode, prefill
from crosstack.workload.workload import Workload

__all__ = ["MOST_POINTS", "Phase", "ServingSweep", "check_serving", "machine_of", "serving_sweep"]

MOST_POINTS = 1_000_000
LAID_OUT = 32  # graphs that are priced together on a temporal chip


class Phase(StrEnum):
    """``decode`` writes tokens after a context, ``prefill`` reads a prompt of that length."""

    DECODE = "decode"
    PREFILL = "prefill"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingSweep:
    """Points of a sweep; every array has one entry a point.

    ``tensor`` and ``pipeline`` chips, ``batch`` sequences, ``context`` tokens, ``microbatch``
    sequences and ``n_tiles`` are what is priced. [1] ``time``: one iteration of the batch;
    ``latency``: one microbatch through all stages, the time to the first token of a prompt and
    between two tokens. [s] ``throughput``: tokens of all sequences. [1/s] ``memory_used`` and
    ``memory_capacity`` of a chip. [B] ``bound_by`` is the largest of compute, memory and network
    over all kernels; ``limit`` what a point that does not fit exceeds, empty where it fits.
    """

    model: Transformer
    phase: Phase
    system: System
    rules: Rules
    tokens: int
    word: int
    tensor: Ints
    pipeline: Ints
    batch: Ints
    context: Ints
    microbatch: Ints
    n_tiles: Ints
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

    def point(self, i: int) -> tuple[Workload, System, Mapping]:
        """Return point ``i`` as the workload, the system and the mapping that were priced."""
        workload = _workload(
            self.model, self.phase, int(self.context[i]), int(self.batch[i]), self.tokens, self.word
        )
        sizes = int(self.tensor[i]), int(self.pipeline[i])
        n = len(workload.graph)
        mapping = Mapping(
            sizes=sizes,
            parallelism=(Parallelism.TENSOR, Parallelism.PIPELINE),
            microbatch_size=int(self.microbatch[i]),
            n_tiles=int(self.n_tiles[i]),
            sharding=serving_axes(workload.graph),
            partitions=tuple(range(n)),
        )
        return workload, machine_of(self.system, *sizes), mapping


def machine_of(system: System, tensor: int, pipeline: int) -> System:
    """Return ``tensor`` x ``pipeline`` chips of ``system``.

    Dimension 0 joins the tensor-parallel chips; the next one, or one like dimension 0 where there
    is no other, joins the pipeline stages.
    """
    inner, outer = system.network[0], system.network[min(1, len(system.network) - 1)]
    return replace(
        system,
        network=(
            replace(inner, size=tensor, parallelism=Parallelism.TENSOR),
            replace(outer, size=pipeline, parallelism=Parallelism.PIPELINE),
        ),
        n_chips=tensor * pipeline,
    )


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
    word: int = 2,
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
    word : int
        Bytes of one element. [B]

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
    return _swept(
        *_checked(
            model,
            system,
            phase=phase,
            tokens=tokens,
            word=word,
            rules=rules,
            tensor=tensor,
            pipeline=pipeline,
            batch=batch,
            context=context,
            microbatch=microbatch,
        )
    )


def check_serving(model: Transformer, system: System, **asked: Any) -> None:
    """Raise what `serving_sweep` would, without pricing anything; ``asked`` as there."""
    _checked(model, system, **asked)


def _checked(
    model: Transformer,
    system: System,
    *,
    phase: Phase | str,
    tokens: int,
    word: int,
    rules: Rules | str | None,
    **numbers: ArrayLike | None,
) -> tuple[_Job, _Points]:
    """Return what all points have in common, and the points."""
    chosen = chosen_rules(rules, MAPPED)
    if system.chip.levels[0].bank_capacity is not None:
        raise InputError(Problem("system.chip", "got memory units; allowed here: one SRAM."))
    points = _points(**{name: given for name, given in numbers.items() if given is not None})
    _check_degrees(model, system, points)
    job = _Job(
        model=model,
        phase=_phase(phase),
        system=system,
        rules=chosen,
        tokens=tokens,
        word=word,
    )
    _check_longest(job, int(points.context.max()))
    return job, points


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """What all points have in common."""

    model: Transformer
    phase: Phase
    system: System
    rules: Rules
    tokens: int
    word: int

    def workload(self, context: int, batch: int = 1) -> Workload:
        """Return the graph of a point."""
        return _workload(self.model, self.phase, context, batch, self.tokens, self.word)


def _swept(job: _Job, points: _Points) -> ServingSweep:
    """Price every point."""
    new = points.context
    if job.phase is Phase.DECODE:
        new = np.full_like(points.context, job.tokens)
    cost, used, capacity = _fitted(job, points, new)
    boundary = np.asarray(job.model.hidden * job.word * new, dtype=np.float64)
    time, latency = _iteration(job, points, cost["time"], boundary)
    limit = np.where(used > capacity * (1 + ROUNDING), "main memory", "")
    limit = np.where(cost["fits"] > 0, limit, "SRAM")
    limit = np.where(_too_many_chips(job.system, points), "network", limit)
    largest = np.stack([cost[name] for name in TERMS]).argmax(axis=0)
    return ServingSweep(
        **{f.name: getattr(job, f.name) for f in fields(job)},
        **{f.name: getattr(points, f.name) for f in fields(points)},
        n_tiles=cost["n_tiles"].astype(np.int64),
        layer_time=cost["time"],
        time=time,
        latency=latency,
        throughput=points.batch * new / time,
        memory_used=used,
        memory_capacity=capacity,
        bound_by=tuple(TERMS[i] for i in largest.tolist()),
        limit=tuple(limit.tolist()),
    )


def _fitted(job: _Job, points: _Points, new: Ints) -> tuple[dict[str, Floats], Floats, Floats]:
    """Return the costs of a layer, memory used and capacity; what spills is priced so. [B]"""
    chip, repeated = job.system.chip, _repeated(job, points)
    graphs = family(job.workload, job.rules)
    cost = _layers(graphs, new, points, job.system, job.rules, spilled=False)
    used = _memory_used(cost, points, repeated)
    capacity = np.full(len(used), chip.memory_room(spilled=False))
    over = np.nonzero(used > capacity * (1 + ROUNDING))[0]
    if chip.has_second_memory and len(over):
        rest = _layers(graphs, new[over], points.at(over), job.system, job.rules, spilled=True)
        for name, values in rest.items():
            cost[name][over] = values
        used = _memory_used(cost, points, repeated)
        capacity[over] = chip.memory_room(spilled=True)
    return cost, used, capacity


def _repeated(job: _Job, points: _Points) -> Ints:
    """Return the layers of the longest stage. [1]"""
    return np.asarray(-(-job.model.layers // points.pipeline))


# ---------------------------------------------------------------- points


@dataclass(frozen=True, slots=True, kw_only=True)
class _Points:
    tensor: Ints
    pipeline: Ints
    batch: Ints
    context: Ints
    microbatch: Ints

    def at(self, rows: Ints) -> _Points:
        """Return the points of these rows alone."""
        return _Points(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})


def _phase(phase: Phase | str) -> Phase:
    try:
        return Phase(phase)
    except ValueError:
        close = nearest(str(phase), list(Phase), 1)
        hint = f' Did you mean "{close[0]}"?' if close else ""
        raise InputError(
            Problem("phase", f'got "{phase}".{hint} Allowed: {", ".join(Phase)}.')
        ) from None


def _points(**given: ArrayLike) -> _Points:
    """Check what is swept and return it as arrays of one length."""
    whole = {name: _whole(name, values) for name, values in given.items()}
    try:
        arrays = dict(zip(whole, np.broadcast_arrays(*whole.values()), strict=True))
    except ValueError:
        shapes = ", ".join(f"{name} {values.shape}" for name, values in whole.items())
        raise InputError(
            Problem("points", f"got {shapes}; allowed: lengths that are equal or 1.")
        ) from None
    size = next(iter(arrays.values())).size
    require(size <= MOST_POINTS, "points", size, f"at most {MOST_POINTS:,} points")
    arrays = {name: values.ravel().astype(np.int64) for name, values in arrays.items()}
    stages, sequences = arrays["pipeline"], arrays["batch"]
    if "microbatch" not in arrays:
        arrays["microbatch"] = _microbatches(sequences, stages)
    wrong = sequences % arrays["microbatch"] != 0
    if wrong.any():
        i = int(wrong.argmax())
        allowed = f"a divisor of the batch, {sequences[i]}"
        require(False, "microbatch", int(arrays["microbatch"][i]), allowed)
    return _Points(**arrays)


def _chips_of(system: System, i: int) -> int:
    """Return the chips that dimension ``i`` joins, or may join where its size is free. [1]"""
    size = system.network[i].size
    return size or system.n_chips // math.prod(d.size or 1 for d in system.network)


def _check_degrees(model: Transformer, system: System, points: _Points) -> None:
    """Refuse degrees that cannot split the model, or that no dimension of the network joins."""
    outer = min(1, len(system.network) - 1)
    inside, between = _chips_of(system, 0), _chips_of(system, outer)
    allowed = [d for d in divisors(math.gcd(model.heads, model.feed_forward)) if d <= inside]
    most = min(model.layers, between)
    problems = []
    if wrong := sorted(set(points.tensor.tolist()) - set(allowed)):
        message = (
            f"got {_listed(wrong)}; allowed: {_listed(allowed)}: divisors of {model.heads} heads "
            f"and of a feed-forward width of {model.feed_forward:,}, at most the {inside:,} chips "
            "of system.network[0]."
        )
        problems.append(Problem("tensor", message))
    if wrong := sorted({p for p in points.pipeline.tolist() if p > most}):
        message = (
            f"got {_listed(wrong)}; allowed: 1 to {most}: at most a stage a layer, "
            f"{model.layers}, and the {between:,} chips of system.network[{outer}]."
        )
        problems.append(Problem("pipeline", message))
    if problems:
        raise InputError(problems)


def _listed(numbers: Sequence[int], most: int = 20) -> str:
    shown = ", ".join(map(str, numbers[:most]))
    return shown + ", ..." * (len(numbers) > most)


def _too_many_chips(system: System, points: _Points) -> Bools:
    """Return where one dimension cannot join both the tensor-parallel chips and the stages."""
    if len(system.network) > 1:
        return np.zeros(len(points.tensor), dtype=np.bool_)
    return np.asarray(points.tensor * points.pipeline > _chips_of(system, 0))


def _whole(name: str, values: ArrayLike) -> Ints:
    """Return whole numbers of at least 1 as an array."""
    array = np.atleast_1d(np.asarray(values))
    if array.size == 0:
        raise InputError(Problem(name, "got nothing; allowed: one number or more."))
    if array.dtype.kind in "iu":
        require_whole(name, int(array.min()))
        require_whole(name, int(array.max()))
    else:
        for value in array.ravel().tolist():
            require_whole(name, value)
    return array.astype(np.int64)


def _microbatches(batch: Ints, pipeline: Ints) -> Ints:
    """Return the largest divisor of each batch that leaves every stage one, or 1. [1]"""
    pairs, which = np.unique(np.stack([batch, pipeline], axis=1), axis=0, return_inverse=True)
    sizes = [
        max(d for d in divisors(sequences) if d <= max(sequences // stages, 1))
        for sequences, stages in pairs.tolist()
    ]
    return np.array(sizes, dtype=np.int64)[which.ravel()]


def _workload(
    model: Transformer, phase: Phase, context: int, batch: int, tokens: int, word: int
) -> Workload:
    if phase is Phase.PREFILL:
        return prefill(model, tokens=context, global_batch_size=batch, word=word)
    return decode(model, context=context, tokens=tokens, global_batch_size=batch, word=word)


def _check_longest(job: _Job, context: int) -> None:
    """Refuse what makes no graph; extents grow with the context, so the longest says it."""
    try:
        job.workload(context)
    except InputError as error:
        if any(problem.path.startswith(("tokens", "word", "model")) for problem in error.problems):
            raise
        said = "; ".join(problem.message for problem in error.problems)
        raise InputError(Problem("context", f"got {context:,}; too long: {said}")) from None


# ---------------------------------------------------------------- pricing


def _layers(
    graphs: Family,
    lengths: Ints,
    points: _Points,
    system: System,
    rules: Rules,
    *,
    spilled: bool,
) -> dict[str, Floats]:
    """Price one layer of every point; ``lengths`` are the tokens that run through it.

    Points that share tensor-parallel chips are priced together.
    """
    names = (*(f.name for f in fields(LayerCosts)), "n_tiles")
    cost = {name: np.empty(len(lengths)) for name in names}
    for chips in np.unique(points.tensor).tolist():
        rows = np.nonzero(points.tensor == chips)[0]
        pairs = np.stack([points.context[rows], points.microbatch[rows]], axis=1)
        pairs, first, place = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
        price = _pricer(graphs, pairs, system, chips, rules, spilled=spilled)
        for name, values in _fastest_tiles(price, lengths[rows][first]).items():
            cost[name][rows] = values[place.ravel()]
    return cost


def _pricer(
    graphs: Family, pairs: Ints, system: System, chips: int, rules: Rules, *, spilled: bool
) -> Callable[[Ints, Ints], LayerCosts]:
    """Return what prices one layer for rows of (context, microbatch), in so many tiles each."""
    machine = machine_of(system, chips, 1)
    uses = Parallelism.TENSOR, Parallelism.PIPELINE
    plan = make_plan(graphs.workload, machine, (chips, 1), uses, 1, rules)
    assert plan is not None  # one sequence is a microbatch

    # What a temporal chip may fuse is asked of all pairs of kernels that are laid end to end.
    most = LAID_OUT if machine.chip.execution is Execution.TEMPORAL else len(pairs)

    def price(rows: Ints, n_tiles: Ints) -> LayerCosts:
        found = []
        for first in range(0, len(rows), most):
            contexts, microbatch = pairs[rows[first : first + most]].T
            tiles = n_tiles[first : first + most]
            found.append(
                layer_costs(
                    graphs, contexts, microbatch, tiles, machine, plan, rules, spilled=spilled
                )
            )
        names = (f.name for f in fields(LayerCosts))
        joined = {name: np.concatenate([getattr(one, name) for one in found]) for name in names}
        return LayerCosts(**joined)

    return price


def _fastest_tiles(price: Callable[[Ints, Ints], LayerCosts], lengths: Ints) -> dict[str, Floats]:
    """Price one layer at every length with the number of tiles that is fastest.

    Tiles of equal length add no work, but may add cycles, so more of them pay only where a kernel
    does not fit or a weight has to be cut: a length is done when neither is so.
    """
    left, n_tiles = np.arange(len(lengths)), np.ones_like(lengths)
    best: dict[str, Floats] = {}
    while len(left):
        found = price(left, n_tiles)
        values = {f.name: getattr(found, f.name).astype(float) for f in fields(found)}
        values["n_tiles"] = n_tiles.astype(float)
        if not best:
            best = values
        else:
            more = values["fits"] - best["fits"][left]
            better = (more > 0) | ((more == 0) & (values["time"] < best["time"][left]))
            for name, column in values.items():
                best[name][left[better]] = column[better]
        open_ = (values["whole"] == 0) & (n_tiles < lengths[left])
        left, n_tiles = left[open_], n_tiles[open_]
        n_tiles = np.array(
            [
                next(d for d in divisors(length) if d > tried)
                for length, tried in zip(lengths[left].tolist(), n_tiles.tolist(), strict=True)
            ],
            dtype=np.int64,
        )
    return best


def _memory_used(cost: dict[str, Floats], points: _Points, repeated: Ints) -> Floats:
    """Main memory of a chip: weights and past of its layers, tensors of a microbatch. [B]"""
    kept = cost["kept"] * repeated + cost["cached"] * points.batch * repeated
    return kept + cost["alive"] * points.microbatch


def _iteration(
    job: _Job, points: _Points, layer_time: Floats, boundary: Floats
) -> tuple[Floats, Floats]:
    """Return the time of an iteration and the latency of a microbatch; ``boundary`` in [B]. [s]"""
    size, stages, repeated = points.microbatch, points.pipeline, _repeated(job, points)
    joined, kinds = np.unique(stages, return_inverse=True)
    links = np.array([_neighbour(job, count) for count in joined.tolist()])
    bandwidth, delay = links[kinds.ravel()].T
    sent = (delay + boundary * size / bandwidth) * job.rules.iteration.directions(training=False)
    pipeline = Pipeline(
        stages=stages,
        microbatches=points.batch // size,
        layers=repeated,
        transfer=np.where(stages > 1, sent, 0.0),
        overlap=job.system.chip.overlap,
        training=False,
    )
    time = iteration_time(pipeline, layer_time * size * repeated, job.rules)
    hop = boundary / points.tensor / bandwidth + delay
    return time, size * (stages * repeated * layer_time + (stages - 1) * hop)


def _neighbour(job: _Job, stages: int) -> tuple[float, float]:
    """Return bandwidth [B/s] and latency [s] from one of so many stages to the next."""
    machine, uses = machine_of(job.system, 1, stages), (Parallelism.TENSOR, Parallelism.PIPELINE)
    dtype = job.workload(1).graph.dtype
    network = NetworkUse.of(machine, (1, stages), uses, dtype)
    return job.rules.collectives.neighbours(network)[0]
