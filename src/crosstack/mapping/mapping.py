"""What is asked and what is answered: constraints, a mapping, and a certificate."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, NamedTuple

from crosstack.errors import InputError, require, require_quantity, require_whole
from crosstack.machine.system import Parallelism, System, dimension_sizes
from crosstack.mapping.degrees import FREE, Degrees
from crosstack.model.objective import Objective
from crosstack.records import brief, require_types
from crosstack.workload.kernels import Axis
from crosstack.workload.transformer_training import Recompute, Schedule
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

    ``time_limit``: on the clock. ``work_limit``: in search nodes or evaluations. ``interrupt``: a
    person stopped it. ``method``: nothing was left that the method can improve or bound, such as
    a graph with more order ideals than can be listed; more time does not help.
    """

    TIME_LIMIT = "time_limit"
    WORK_LIMIT = "work_limit"
    INTERRUPT = "interrupt"
    METHOD = "method"


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """Decisions that are given; everything else is free.

    Dimension sizes and what each dimension is used for are given in the system's network.

    Parameters
    ----------
    degrees : Degrees
        Chips of tensor, pipeline and data parallelism.
    microbatch_size, n_tiles, tile_size : int or None
        Sequences a chip works on at a time; into how many tiles a sequence is cut, or how long
        a tile may be (``n_tiles`` tiles of ``tile_size`` must cover the sequence; they are the
        sequence by rules whose tiles divide it). [1]
    max_partitions : int or None
        Most partitions; empty ones are allowed. [1]
    kernel_by_kernel : bool
        Every kernel its own partition.
    separate_directions : bool
        Forward and backward kernels never share a partition, forward first.
    recompute : Recompute or None
        What the backward pass computes again instead of keeping it.
    schedule : Schedule
        In which order a stage takes its microbatches.
    interleave : int or None
        Pieces of every stage, spread over the model; above 1 with one forward, one backward. [1]
    partitions : tuple of (kernel name, int)
        Pinned kernels: the number of their partition, from 0.
    sharding : tuple of (kernel name, str)
        Given shardings: names of axes, or of places, see `crosstack.model.choice_index.named_axis`.
    """

    degrees: Degrees = FREE
    microbatch_size: int | None = None
    n_tiles: int | None = None
    tile_size: int | None = None
    max_partitions: int | None = None
    kernel_by_kernel: bool = False
    separate_directions: bool = False
    recompute: Recompute | None = None
    schedule: Schedule = Schedule.ONE_F_ONE_B
    interleave: int | None = None
    partitions: tuple[tuple[str, int], ...] = ()
    sharding: tuple[tuple[str, str], ...] = ()

    __repr__ = brief

    def __post_init__(self) -> None:
        """Check the numbers."""
        require_types(self)
        for name in ("microbatch_size", "n_tiles", "tile_size", "max_partitions", "interleave"):
            if getattr(self, name) is not None:
                require_whole(name, getattr(self, name))
        for kernel, partition in self.partitions:
            require_whole(f"partitions.{kernel}", partition, minimum=0)
            if self.max_partitions is not None:
                require(
                    partition < self.max_partitions,
                    f"partitions.{kernel}",
                    partition,
                    f"0 to {self.max_partitions - 1}, as max_partitions is {self.max_partitions}",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A workload, a system and what is given: what one file holds.

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

    def as_in_file(self, error: InputError) -> InputError:
        """Return the same error with the file's own paths."""
        return InputError(
            problem.at(self.paths.get(problem.path, problem.path)) for problem in error.problems
        )


class GeneralDecisions(NamedTuple):
    """Decisions of a `Mapping` that hold for the whole graph; its fields."""

    sizes: tuple[int, ...]
    parallelism: tuple[Parallelism, ...]
    microbatch_size: int
    n_tiles: int
    recompute: Recompute
    schedule: Schedule
    interleave: int
    dimensions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndMapping:
    """The decisions of what runs before or behind the layers; fields as those of `Mapping`."""

    n_tiles: int
    sharding: tuple[Axis, ...]
    partitions: tuple[int, ...]

    __repr__ = brief

    def __post_init__(self) -> None:
        """Check shapes and numbers."""
        require_types(self)
        count = len(self.sharding)
        require(
            count == len(self.partitions),
            "partitions",
            len(self.partitions),
            f"one per kernel ({count})",
        )
        require_whole("n_tiles", self.n_tiles)
        for i, partition in enumerate(self.partitions):
            require_whole(f"partitions[{i}]", partition, minimum=0)


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
    microbatch_size, n_tiles : int
        See `Constraints`. [1]
    sharding : tuple of Axis
        One per kernel, in the order of the graph.
    partitions : tuple of int
        Partition of each kernel, numbered from 0 in the order they run. [1]
    cores : tuple of (lanes, stages), optional
        Cores of each kernel: how many split M, how many split N. Left out, they are dealt so
        that the slowest kernel of each partition is as fast as possible; without meaning where
        the chip's utilization is given. [1]
    stages : tuple of int, or None
        The pipeline stage of every kernel within one copy of the graph, from 0; None where stages
        hold whole copies. [1]
    recompute : Recompute
        What the backward pass computes again instead of keeping it.
    schedule, interleave
        See `Constraints`.
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
    schedule: Schedule = Schedule.ONE_F_ONE_B
    interleave: int = 1
    dimensions: tuple[int, ...] = ()
    ends: tuple[EndMapping, ...] = ()

    __repr__ = brief

    def __post_init__(self) -> None:
        """Check shapes and numbers."""
        require_types(self)
        require(
            len(self.sizes) == len(self.parallelism),
            "parallelism",
            self.parallelism,
            f"one per dimension ({len(self.sizes)})",
        )
        require(
            len(self.sharding) == len(self.partitions),
            "partitions",
            len(self.partitions),
            f"one per kernel ({len(self.sharding)})",
        )
        for i, size in enumerate(self.sizes):
            require_whole(f"sizes[{i}]", size)
        if self.dimensions:
            self._check_dimensions(self.dimensions)
        for i, partition in enumerate(self.partitions):
            require_whole(f"partitions[{i}]", partition, minimum=0)
        for i, (lanes, stages) in enumerate(self.cores or ()):
            require_whole(f"cores[{i}].lanes", lanes)
            require_whole(f"cores[{i}].stages", stages)
        if self.cores is not None:
            require(
                len(self.cores) == len(self.partitions),
                "cores",
                len(self.cores),
                f"one per kernel ({len(self.partitions)})",
            )
        require_whole("microbatch_size", self.microbatch_size)
        require_whole("n_tiles", self.n_tiles)
        require_whole("interleave", self.interleave)
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
            require(
                held.setdefault(partition, stage) == stage,
                "stages",
                f"{held[partition]} and {stage} for partition {partition}",
                "one stage a partition",
            )
            require(
                stage >= before,
                "stages",
                f"{stage} for partition {partition}, after stage {before}",
                "stages in the order of their partitions",
            )
            before = stage

    @property
    def general(self) -> GeneralDecisions:
        """What is decided for the whole graph."""
        return GeneralDecisions(
            self.sizes,
            self.parallelism,
            self.microbatch_size,
            self.n_tiles,
            self.recompute,
            self.schedule,
            self.interleave,
            self.dimensions,
        )

    @property
    def dimension_sizes(self) -> tuple[int, ...]:
        """Chips of each network dimension. [1]"""
        return dimension_sizes(self.sizes, self.dimensions)

    def degree(self, parallelism: Parallelism) -> int:
        """Chips that ``parallelism`` uses: the product of its sizes. [1]"""
        product = 1
        for size, use in zip(self.sizes, self.parallelism, strict=True):
            product *= size if use is parallelism else 1
        return product


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """How sure an answer is, and what it covers.

    Parameters
    ----------
    status : Status
        See there.
    metric : Objective
        What was minimised.
    objective, bound : float
        Its value for one iteration under the mapping, and a lower bound no mapping within the
        given decisions beats. [s], [J], [USD] or [J s]
    method : str
        How the bound was reached.
    free, given : tuple of str
        Decisions that were searched, decisions that were given.
    runtime : float
        Wall-clock seconds of the search. [s]
    stopped : Stop, optional
        Why the search ended, where ``status`` is ``limit``; None where it proved its answer or
        came inside the gap that was asked for.
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
