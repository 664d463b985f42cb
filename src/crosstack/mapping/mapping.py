"""What is asked and what is answered: constraints, a mapping, and a certificate."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, NamedTuple

from crosstack.errors import InputError, require, require_quantity, require_whole
from crosstack.machine.system import Parallelism, System, dimension_sizes
from crosstack.mapping.degrees import FREE, Degrees, cuts_allowed, degree_of
from crosstack.model.fused_attention import as_mapped, as_run
from crosstack.model.objective import Objective
from crosstack.model.overlapping import as_overlapping
from crosstack.records import brief, require_types
from crosstack.workload.kernels import Axis
from crosstack.workload.transformer_training import (
    ContextExchange,
    Hidden,
    Offload,
    Recompute,
    Schedule,
    Zero,
    offload_named,
    overlap_named,
)
from crosstack.workload.workload import Workload


class Status(StrEnum):
    """How sure an answer is.

    ``optimal``: proved. ``feasible``: an answer inside the gap that was asked for. ``limit``: the
    search stopped first, see `Stop`. ``infeasible``: nothing fits.
    """

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    LIMIT = "limit"


class Stop(StrEnum):
    """Why a search ended before its proof.

    ``interrupt``: a person stopped it. ``method``: nothing was left that it can improve or bound,
    such as a graph with more order ideals than can be listed; more time does not help.
    """

    TIME_LIMIT = "time_limit"
    WORK_LIMIT = "work_limit"
    INTERRUPT = "interrupt"
    METHOD = "method"


# Numbers of constraints.
_COUNTS = (
    "microbatch_size", "n_tiles", "tile_size", "max_partitions", "interleave", "recompute_layers",
)  # fmt: skip


def _check_layers_again(recompute: Recompute | None, layers: int | None) -> None:
    """Check that layers which compute something again say what."""
    said = layers is None or recompute not in (None, Recompute.NONE)
    some = ", ".join(kind for kind in Recompute if kind is not Recompute.NONE)
    require(said, "recompute_layers", layers, f"none, unless recompute is one of {some}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """Decisions that are given; everything else is free, but for the system's network.

    Parameters
    ----------
    degrees : Degrees
        Chips of every parallelism.
    microbatch_size, n_tiles, tile_size : int or None
        Sequences a chip works on at a time; tiles of a sequence, and how long one may be (tiles of
        that length must cover the sequence, or be it by rules whose tiles divide it). [1]
    max_partitions : int or None
        Most partitions; empty ones are allowed. [1]
    kernel_by_kernel, separate_directions : bool
        Every kernel its own partition; forward and backward never share one, forward first.
    recompute : Recompute or None
        What the backward pass computes again instead of keeping it.
    recompute_layers : int or None
        First layers of every stage, or of every piece of one, that compute it again; None: all,
        where ``recompute`` is given. [1]
    schedule : Schedule or None
        In which order a stage takes its microbatches.
    interleave : int or None
        Pieces of every stage, spread over the model; above 1 with one forward, one backward. [1]
    zero : Zero or None
        What data-parallel chips have shares of, instead of all of it each.
    context_exchange : ContextExchange or None
        How chips that share sequences come to keys and values.
    overlap : tuple of Hidden or None
        What training sends beside the work of its chips; None: gradients and weights, and between
        stages what the chip does (`crosstack.machine.chip.Overlap`).
    offload : tuple of Offload
        What lies in the memory of the chips' hosts; nothing, if it is not given.
    partitions : tuple of (kernel name, int)
        Pinned kernels: the number of their partition, from 0.
    sharding : tuple of (kernel name, str)
        Axes, or places (`crosstack.model.choice_index.named_axis`), that kernels are split along.
    """

    degrees: Degrees = FREE
    microbatch_size: int | None = None
    n_tiles: int | None = None
    tile_size: int | None = None
    max_partitions: int | None = None
    kernel_by_kernel: bool = False
    separate_directions: bool = False
    recompute: Recompute | None = None
    recompute_layers: int | None = None
    schedule: Schedule | None = None
    interleave: int | None = None
    zero: Zero | None = None
    context_exchange: ContextExchange | None = None
    overlap: tuple[Hidden, ...] | None = None
    offload: tuple[Offload, ...] = ()
    partitions: tuple[tuple[str, int], ...] = ()
    sharding: tuple[tuple[str, str], ...] = ()

    __repr__ = brief

    def __post_init__(self) -> None:
        """Check the numbers."""
        require_types(self)
        if self.overlap is not None:
            object.__setattr__(self, "overlap", overlap_named(self.overlap))
        object.__setattr__(self, "offload", offload_named(self.offload))
        for name in _COUNTS:
            if getattr(self, name) is not None:
                require_whole(name, getattr(self, name))
        _check_layers_again(self.recompute, self.recompute_layers)
        most = self.max_partitions
        for kernel, partition in self.partitions:
            path = f"partitions.{kernel}"
            require_whole(path, partition, minimum=0)
            if most is not None:
                allowed = f"0 to {most - 1}, as max_partitions is {most}"
                require(partition < most, path, partition, allowed)

    def as_run(self, workload: Workload, system: System) -> tuple[Workload, System]:
        """Return a workload as the chips run it, and chips that overlap what is given.

        See `crosstack.model.fused_attention.as_run`, `crosstack.model.overlapping.as_overlapping`.
        """
        made = as_overlapping(system, self.overlap)
        return as_run(workload, made.chip, fuses=not self.kernel_by_kernel), made


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A workload, a system and what is given: what one file holds.

    The workload is as the chips run it, and the chips overlap what is given (`Constraints.as_run`).

    ``paths`` says what the file calls fields, by their path here, where it has other names.
    """

    workload: Workload
    system: System
    constraints: Constraints = Constraints()
    rules: str | None = None
    paths: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

    __repr__ = brief

    def __post_init__(self) -> None:
        """Check what it is made of."""
        require_types(self)
        workload, system = self.constraints.as_run(self.workload, self.system)
        object.__setattr__(self, "workload", workload)
        object.__setattr__(self, "system", system)

    def as_in_file(self, error: InputError) -> InputError:
        """Return the same error with the file's own paths."""
        return InputError(
            problem.at(self.paths.get(problem.path, problem.path)) for problem in error.problems
        )


def _check_kernels(decided: Mapping | EndMapping) -> None:
    """Check what is decided for every kernel."""
    require_types(decided)
    count, placed = len(decided.sharding), len(decided.partitions)
    require(count == placed, "partitions", placed, f"one per kernel ({count})")
    require_whole("n_tiles", decided.n_tiles)
    for i, partition in enumerate(decided.partitions):
        require_whole(f"partitions[{i}]", partition, minimum=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndMapping:
    """The decisions of what runs before or behind the layers; fields as those of `Mapping`."""

    n_tiles: int
    sharding: tuple[Axis, ...]
    partitions: tuple[int, ...]

    __repr__ = brief

    def __post_init__(self) -> None:
        """Check shapes and numbers."""
        _check_kernels(self)


class GeneralDecisions(NamedTuple):
    """Decisions of a `Mapping` that hold for the whole graph; its fields."""

    sizes: tuple[int, ...]
    parallelism: tuple[Parallelism, ...]
    microbatch_size: int
    n_tiles: int
    recompute: Recompute
    recompute_layers: int | None
    schedule: Schedule
    interleave: int
    zero: Zero
    context_exchange: ContextExchange
    expert_tensor: int
    overlap: tuple[Hidden, ...] | None
    offload: tuple[Offload, ...]
    dimensions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """Every decision.

    Parameters
    ----------
    sizes : tuple of int
        Chips of each network dimension, or of the factors of dimensions that several parallelisms
        share, innermost first. [1]
    parallelism : tuple of Parallelism
        What each of those is used for.
    dimensions : tuple of int
        The network dimension of each of those, ascending; empty: one for every dimension.
    microbatch_size, n_tiles, recompute, recompute_layers, schedule, interleave, zero
        See `Constraints`.
    context_exchange, overlap, offload
        The same.
    expert_tensor : int
        Tensor-parallel chips that each routed expert is cut over: one, so that those have some of
        them each, all of those, or so many that are next to each other, which divide all. [1]
    sharding : tuple of Axis
        One per kernel, in the order of the graph.
    partitions : tuple of int
        Partition of each kernel, numbered from 0 in the order they run. [1]
    cores : tuple of (lanes, stages), optional
        Cores of each kernel: how many split M, how many split N. Left out, they are dealt so that
        the slowest kernel of each partition is as fast as possible; without meaning where the
        chip's utilization is given. [1]
    stages : tuple of int, or None
        The pipeline stage of every kernel within one copy of the graph, from 0; None where stages
        hold whole copies. [1]
    ends : tuple of EndMapping
        One for each of `Workload.ends`.
    """

    sizes: tuple[int, ...]
    parallelism: tuple[Parallelism, ...]
    microbatch_size: int
    n_tiles: int
    sharding: tuple[Axis, ...]
    partitions: tuple[int, ...]
    cores: tuple[tuple[int, int], ...] | None = None
    stages: tuple[int, ...] | None = None
    recompute: Recompute = Recompute.NONE
    recompute_layers: int | None = None
    schedule: Schedule = Schedule.ONE_F_ONE_B
    interleave: int = 1
    zero: Zero = Zero.NONE
    context_exchange: ContextExchange = ContextExchange.RING
    expert_tensor: int = 1
    overlap: tuple[Hidden, ...] | None = None
    offload: tuple[Offload, ...] = ()
    dimensions: tuple[int, ...] = ()
    ends: tuple[EndMapping, ...] = ()

    __repr__ = brief

    def __post_init__(self) -> None:
        """Check shapes and numbers."""
        _check_kernels(self)
        uses, count = len(self.sizes), len(self.partitions)
        fits = uses == len(self.parallelism)
        require(fits, "parallelism", self.parallelism, f"one per dimension ({uses})")
        for i, size in enumerate(self.sizes):
            require_whole(f"sizes[{i}]", size)
        if self.dimensions:
            self._check_dimensions(self.dimensions)
        if self.cores is not None:
            for i, (lanes, stages) in enumerate(self.cores):
                require_whole(f"cores[{i}].lanes", lanes)
                require_whole(f"cores[{i}].stages", stages)
            dealt = len(self.cores)
            require(dealt == count, "cores", dealt, f"one per kernel ({count})")
        require_whole("microbatch_size", self.microbatch_size)
        require_whole("interleave", self.interleave)
        require_whole("expert_tensor", self.expert_tensor)
        tensor, cut = self.degree(Parallelism.TENSOR), self.expert_tensor
        require(tensor % cut == 0, "expert_tensor", cut, cuts_allowed(tensor, cut))
        if self.recompute_layers is not None:
            require_whole("recompute_layers", self.recompute_layers)
        _check_layers_again(self.recompute, self.recompute_layers)
        if self.stages is not None:
            self._check_stages(self.stages)

    def _check_dimensions(self, dimensions: tuple[int, ...]) -> None:
        count = f"one for each of {len(self.sizes)} sizes"
        require(len(dimensions) == len(self.sizes), "dimensions", len(dimensions), count)
        steps = {b - a for a, b in itertools.pairwise((0, *dimensions))}
        good = dimensions[0] == 0 and steps <= {0, 1}
        require(good, "dimensions", dimensions, "ascending from 0, none left out")
        shared = len({*dimensions}) < len(dimensions)
        require(shared, "dimensions", dimensions, "none, where no dimension is shared")

    def _check_stages(self, stages: tuple[int, ...]) -> None:
        count = len(self.partitions)
        require(len(stages) == count, "stages", len(stages), f"one per kernel ({count})")
        for i, stage in enumerate(stages):
            require_whole(f"stages[{i}]", stage, minimum=0)
        empty = set(range(max(stages, default=0))) - set(stages)
        require(not empty, "stages", sorted(set(stages)), "numbers from 0, none left out")
        held: dict[int, int] = {}
        before = 0
        for partition, stage in sorted(zip(self.partitions, stages, strict=True)):
            first = held.setdefault(partition, stage)
            said = f"{first} and {stage} for partition {partition}"
            require(first == stage, "stages", said, "one stage a partition")
            said = f"{stage} for partition {partition}, after stage {before}"
            require(stage >= before, "stages", said, "stages in the order of their partitions")
            before = stage

    @property
    def general(self) -> GeneralDecisions:
        """What is decided for the whole graph."""
        return GeneralDecisions(*(getattr(self, name) for name in GeneralDecisions._fields))

    @property
    def dimension_sizes(self) -> tuple[int, ...]:
        """Chips of each network dimension. [1]"""
        return dimension_sizes(self.sizes, self.dimensions)

    def degree(self, parallelism: Parallelism) -> int:
        """Chips that ``parallelism`` uses: the product of its sizes. [1]"""
        return degree_of(parallelism, self.sizes, self.parallelism)

    def as_run(self, workload: Workload, system: System) -> tuple[Workload, System]:
        """Return a workload with the kernels that this maps, and chips that overlap what it says.

        See `crosstack.model.fused_attention.as_mapped` and `Constraints.as_run`.
        """
        made = as_overlapping(system, self.overlap)
        return as_mapped(workload, made.chip, len(self.sharding)), made


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """How sure an answer is, and what it covers.

    ``objective`` is the value of ``metric`` for one iteration under the mapping, ``bound`` one that
    no mapping within the ``given`` decisions beats. [s], [J], [USD] or [J s] ``method`` tells how
    that was reached, ``free`` what was searched, ``runtime`` how long [s], and ``stopped`` why it
    ended with status ``limit``.
    """

    status: Status
    metric: Objective = Objective.TIME
    objective: float
    bound: float
    method: str
    free: tuple[str, ...]
    given: tuple[str, ...]
    runtime: float = field(metadata={"unit": "s"})
    stopped: Stop | None = None
    DERIVED: ClassVar[tuple[str, ...]] = ("gap", "unit")

    def __post_init__(self) -> None:
        """Check the numbers, that a proof is one, and that it was not stopped."""
        require_types(self)
        require_quantity("objective", self.objective, self.metric.unit)
        require_quantity("bound", self.bound, self.metric.unit)
        if self.status is Status.OPTIMAL:
            require(self.gap <= 1e-9, "status", self.status.value, "a bound that meets it")
        if self.stopped is not None:
            stopped = self.stopped.value
            require(self.status is Status.LIMIT, "stopped", stopped, "none but with status limit")

    @property
    def searched(self) -> bool:
        """Whether there was a search; a given mapping is priced only, and nothing is proved."""
        return bool(self.free) or self.bound > 0

    @property
    def unit(self) -> str:
        """Of objective and bound."""
        return self.metric.unit

    @property
    def gap(self) -> float:
        """Relative distance of objective and bound: (objective - bound) / objective. [1]"""
        if self.objective <= 0:
            return 0.0
        return max(0.0, (self.objective - self.bound) / self.objective)
