"""What a search has found: the best mapping, what was given up, and what was closest to fitting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from crosstack.machine.system import Parallelism
from crosstack.mapping.mapping import EndMapping, Mapping
from crosstack.model.mesh_plan import MeshPlan
from crosstack.workload.kernel_graph import AXIS_CODE, bits
from crosstack.workload.transformer_training import ContextExchange, Recompute, Schedule

PROOF = 1e-9  # relative gap that counts as none


def masks_of(mapping: Mapping | EndMapping) -> tuple[int, ...]:
    """Return the partitions of a mapping as masks of kernels, in the order they run."""
    masks: dict[int, int] = {}
    for i, number in enumerate(mapping.partitions):
        masks[number] = masks.get(number, 0) | 1 << i
    return tuple(masks[number] for number in sorted(masks))


def numbers_of(masks: Sequence[int], n: int) -> tuple[int, ...]:
    """Return by kernel, of n, the number of the mask that holds it."""
    numbers = [0] * n
    for number, mask in enumerate(masks):
        for i in bits(mask):
            numbers[i] = number
    return tuple(numbers)


def mapping_order(mapping: Mapping) -> tuple[object, ...]:
    """Return what mappings that are as fast are told apart by: the least is the one kept."""
    return (
        mapping.dimensions,
        mapping.sizes,
        tuple(list(Parallelism).index(use) for use in mapping.parallelism),
        mapping.microbatch_size,
        list(Recompute).index(mapping.recompute),
        mapping.recompute_layers or 0,
        list(Schedule).index(mapping.schedule),
        mapping.interleave,
        mapping.zero.number,
        list(ContextExchange).index(mapping.context_exchange),
        mapping.expert_tensor,
        mapping.overlap or (),
        mapping.offload,
        mapping.n_tiles,
        mapping.partitions,
        tuple(AXIS_CODE[axis] for axis in mapping.sharding),
        mapping.stages or (),
    )


@dataclass(slots=True)
class Lack:
    """What was closest to fitting among what did not."""

    resource: str = ""
    demand: float = math.inf
    limit: float = 1.0
    where: str = ""
    levers: tuple[str, ...] = ()

    def offer(
        self, resource: str, demand: float, limit: float, where: str, levers: tuple[str, ...]
    ) -> None:
        """Keep what is closest to fitting."""
        if demand / limit < self.demand / self.limit:
            self.resource, self.demand, self.limit = resource, demand, limit
            self.where, self.levers = where, levers

    def alone(self, name: str, demand: float, limit: float) -> None:
        """Keep that a kernel does not fit the SRAM, if that is why it does not fit. [B]"""
        levers = ("more SRAM", "more tensor parallelism", "shorter tiles (more of them)")
        if demand > limit:
            self.offer("SRAM", demand, limit, f'kernel "{name}" alone in a partition', levers)

    def stage(self, plan: MeshPlan, demand: float, limit: float) -> None:
        """Keep that the fullest stage that holds a part of the graph does not fit. [B]"""
        where = (
            f"the fullest of {plan.graph_stages} stages that hold the graph at tensor "
            f"{plan.tensor} x pipeline {plan.pipeline} x data {plan.data},"
        )
        levers = ("more pipeline stages", "more tensor parallelism", "more memory a chip")
        self.offer("main memory", demand, limit, where, levers)

    def join(self, other: Lack) -> None:
        """Keep what is closest to fitting of two."""
        self.offer(other.resource, other.demand, other.limit, other.where, other.levers)


@dataclass(slots=True)
class Incumbent:
    """What a search has found so far, or a piece of it that started from ``best``.

    ``best`` is the least time, of ``mapping`` or, where that is None, of what was known before
    [s]; ``left_bound`` bounds what was given up [s]; ``plans_made`` counts plans.
    """

    best: float = math.inf
    mapping: Mapping | None = None
    lack: Lack = field(default_factory=Lack)
    left_bound: float = math.inf
    plans_made: int = 0

    def keep(self, time: float, mapping: Mapping) -> None:
        """Keep a mapping if it is faster, or as fast and first in `mapping_order`."""
        known = self.mapping if time == self.best else None
        first = known is not None and mapping_order(mapping) < mapping_order(known)
        if time < self.best or first:
            self.best, self.mapping = time, mapping

    def join(self, piece: Incumbent) -> None:
        """Take over what a piece of the search has found."""
        if piece.mapping is not None:
            self.keep(piece.best, piece.mapping)
        self.lack.join(piece.lack)
        self.left_bound = min(self.left_bound, piece.left_bound)
        self.plans_made += piece.plans_made
