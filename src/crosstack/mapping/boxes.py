"""Boxes of the search: how one is bounded, fused and halved.

A *box* is a plan (parallelism and microbatch size), a number of tiles, and the axes each kernel
may still be sharded along; see `crosstack.mapping.search`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crosstack.mapping.fusion import Fusion, Slots, fuse, make_problem, simple_bound
from crosstack.mapping.ideals import IdealTables
from crosstack.mapping.joint import UNKNOWN, Joint, joint_bound, make_choices
from crosstack.mapping.mapping import Constraints, Mapping
from crosstack.mapping.sharding import dominated_axes, eliminate, with_given
from crosstack.model.arrays import AXES, Floats, GraphArrays, Ints, bits
from crosstack.model.iteration import iteration, layer_time_below
from crosstack.model.options import Options, make_options
from crosstack.model.partition import (
    ChipLoad,
    PartitionCost,
    live_size,
    make_load,
    partition_cost,
    relaxed_load,
)
from crosstack.model.plan import Plan
from crosstack.model.rules import ModelRules
from crosstack.system.system import System
from crosstack.workload.graph import Workload

__all__ = ["PROOF", "Box", "Boxes", "Lack"]

SMALL_GRAPH = 80  # kernels up to which every box is bounded with its layouts
PROOF = 1e-9  # relative gap that counts as none
Domains = tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class Box:
    """A plan, a number of tiles, and the axes left to each kernel (None: not opened yet)."""

    plan: Plan
    n_tiles: int
    domains: Domains | None
    tiled: bool = False
    fused: bool = False


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


@dataclass(slots=True)
class Boxes:
    """The problem, the best mapping so far, and what is done with a box."""

    workload: Workload
    system: System
    constraints: Constraints
    rules: ModelRules
    deadline: float
    gap: float
    arrays: GraphArrays
    given: dict[int, int]
    slots: Slots | None
    separate: bool
    unfused: bool
    best: float = math.inf
    mapping: Mapping | None = None
    lack: Lack = field(default_factory=Lack)
    tables: dict[object, IdealTables | None] = field(default_factory=dict)
    options: dict[tuple[int, int], Options] = field(default_factory=dict)
    useful_tiles: dict[int, list[int]] = field(default_factory=dict)
    fewest_bytes: float | None = None
    left_bound: float = math.inf
    shared: Any = None

    # ------------------------------------------------------------ loads

    def table(self, plan: Plan, n_tiles: int) -> Options:
        """Return the option tables of a plan and a number of tiles, kept for a while."""
        key = (id(plan), n_tiles)
        if key not in self.options:
            if len(self.options) > 512:
                self.options.clear()
            self.options[key] = make_options(self.workload, self.arrays, plan, n_tiles, self.rules)
        return self.options[key]

    def load(self, box: Box, codes: Ints) -> ChipLoad:
        """Return the load of a box under one sharding."""
        options = self.table(box.plan, box.n_tiles)
        return make_load(
            self.workload, self.system, self.arrays, box.plan, options, codes, self.rules
        )

    def total(self, plan: Plan, layer_time: float) -> float:
        """Return the iteration time for a layer time. [s]"""
        return iteration(plan, layer_time, self.system.chip.overlap, self.rules).time

    def target(self) -> float:
        """Only times below this are of interest. [s]"""
        best = self.incumbent()
        return best * (1 - max(self.gap, PROOF / 10)) if math.isfinite(best) else math.inf

    def incumbent(self) -> float:
        """Return the best time that this process or one it works with has found. [s]"""
        return self.best if self.shared is None else min(self.best, self.shared.value)

    def prune(self, bound: float) -> None:
        """Drop a box; where a gap is allowed, its bound stays part of the answer's."""
        if self.gap > 0:
            known = bound if math.isfinite(bound) else 0.0
            self.left_bound = min(self.left_bound, max(known, self.target()))

    def layer_limit(self, plan: Plan, total: float) -> float:
        """Return the layer time below which an iteration takes less than ``total``. [s]"""
        return layer_time_below(plan, total, self.system.chip.overlap, self.rules)

    # ------------------------------------------------------------ bounds

    def open(self, box: Box) -> float:
        """Set the domains of a box, without axes that another beats; return a bound. [s]"""
        options = self.table(box.plan, box.n_tiles)
        domains = tuple(tuple(d) for d in with_given(options.allowed, self.given))
        if box.plan.tensor == 1:  # nothing is split, whatever the axis
            domains = tuple(d[:1] for d in domains)
        domains = self._tightened(domains, options)
        if self.rules.bytes_first and box.plan.tensor > 1:
            domains = self._tightened(self._of_fewest_bytes(domains, options), options)
        box.domains = domains
        return self.quick_bound(box)

    def _of_fewest_bytes(self, domains: Domains, options: Options) -> Domains:
        """Keep the axes that some sharding of fewest bytes uses."""
        edges = (self.arrays.source, self.arrays.target, options.edge_bytes)
        found = eliminate(domains, options.bytes_moved, edges)
        limit = found.bound * (1 + PROOF)
        _, best = next(found.solutions())
        kept = list(domains)
        for i, domain in enumerate(domains):
            if len(domain) > 1:
                kept[i] = tuple(
                    axis
                    for axis in domain
                    if axis == best[i]
                    or eliminate(
                        (*domains[:i], (axis,), *domains[i + 1 :]), options.bytes_moved, edges
                    ).bound
                    <= limit
                )
        return tuple(kept)

    def quick_bound(self, box: Box) -> float:
        """Bound on the iteration time of a box from totals alone; infinite if nothing fits."""
        assert box.domains is not None
        options = self.table(box.plan, box.n_tiles)
        if not self._moves_fewest_bytes(box.domains, options, box.plan):
            return math.inf
        load = self._relaxed(box)
        if not self._fits(load, box):
            return math.inf
        network = max(self._network(box.domains, options), sum(load.network))
        return self.total(box.plan, simple_bound(load, network))

    def _relaxed(self, box: Box) -> ChipLoad:
        assert box.domains is not None
        return relaxed_load(
            self.workload,
            self.system,
            self.arrays,
            box.plan,
            self.table(box.plan, box.n_tiles),
            box.domains,
            self.rules,
        )

    def _network(self, domains: Domains, options: Options) -> float:
        if not self.rules.fan_out_copies and _several_readers(self.arrays):
            # Shared conversions are not pairwise; an edge's part of its producer's is.
            cost = options.edge_time / _readers(self.arrays)[:, None, None]
        else:
            cost = options.edge_time
        edges = (self.arrays.source, self.arrays.target, cost)
        return eliminate(domains, options.network_time, edges).bound

    def _moves_fewest_bytes(self, domains: Domains, options: Options, plan: Plan) -> bool:
        if not self.rules.bytes_first or plan.tensor == 1:
            return True
        edges = (self.arrays.source, self.arrays.target, options.edge_bytes)
        if self.fewest_bytes is None:
            every = with_given(options.allowed, self.given)
            self.fewest_bytes = eliminate(every, options.bytes_moved, edges).bound
        found = eliminate(domains, options.bytes_moved, edges).bound
        return found <= self.fewest_bytes * (1 + PROOF)

    def _fits(self, load: ChipLoad, box: Box) -> bool:
        capacity = self.system.memory.capacity
        if capacity is not None and load.memory_static > capacity:
            plan = box.plan
            self.lack.offer(
                "main memory",
                load.memory_static,
                capacity,
                f"a chip at tensor {plan.tensor} x pipeline {plan.pipeline} x data {plan.data}, "
                f"{plan.layers_per_stage} layers a stage,",
                (
                    "more tensor or pipeline parallelism (fewer layers a stage)",
                    "more memory a chip",
                    "more chips",
                ),
            )
            return False
        good = True
        for i in range(load.n):
            cost = partition_cost(load, 1 << i)
            if not cost.fits:
                self._offer_alone(load, i, cost)
                good = False
        return good

    def _offer_alone(self, load: ChipLoad, i: int, cost: PartitionCost) -> None:
        if cost.sram > load.sram_capacity:
            self.lack.offer(
                "SRAM",
                cost.sram,
                load.sram_capacity,
                f'kernel "{load.names[i]}" alone in a partition',
                ("more SRAM", "more tensor parallelism", "shorter tiles (more of them)"),
            )

    # ------------------------------------------------------------ fusing

    def fused(self, load: ChipLoad, limit: float, *, bound_only: bool = False) -> Fusion | None:
        """Return the best partitions of a load below ``limit``. [s]"""
        if self.unfused:
            masks = tuple(1 << i for i in load.order)
            costs = [partition_cost(load, mask) for mask in masks]
            layer = sum(c.time for c in costs)
            if not all(c.fits for c in costs) or not layer < limit or not self._rooms(load, masks):
                return None
            return Fusion(partitions=masks, time=layer, bound=layer)
        problem = make_problem(load, slots=self.slots, separate_directions=self.separate)
        return fuse(
            problem,
            incumbent=limit,
            cache=self.tables,
            deadline=self.deadline,
            bound_only=bound_only,
        )

    def _rooms(self, load: ChipLoad, masks: tuple[int, ...]) -> bool:
        """Whether the tensors alive in each partition fit the main memory."""
        if sum(flow.total for flow in load.flows) <= load.memory_limit:
            return True
        before = 0
        for mask in masks:
            if live_size(load, before, mask) > load.memory_limit * (1 + 1e-12):
                return False
            before |= mask
        return True

    def offer(self, box: Box, codes: Ints, partitions: tuple[int, ...], layer: float) -> None:
        """Keep a mapping if it is the best so far."""
        total = self.total(box.plan, layer)
        if not total < self.incumbent():
            return
        numbers = [0] * self.arrays.n
        for number, mask in enumerate(partitions):
            for i in bits(mask):
                numbers[i] = number
        self.best = total
        if self.shared is not None:
            with self.shared.get_lock():
                self.shared.value = min(self.shared.value, total)
        self.mapping = Mapping(
            sizes=box.plan.sizes,
            parallelism=box.plan.parallelism,
            microbatch_size=box.plan.microbatch_size,
            n_tiles=box.n_tiles,
            sharding=tuple(AXES[c] for c in codes.tolist()),
            partitions=tuple(numbers),
        )

    def complete(self, box: Box) -> None:
        """Try whole shardings of a box: the best for weighted sums of its terms."""
        assert box.domains is not None
        options = self.table(box.plan, box.n_tiles)
        peak = self.system.chip.peak_throughput * (self.system.chip.utilization or 1.0)
        rest = options.work / peak + options.output_total / self.system.memory.bandwidth
        tried: set[bytes] = set()
        for weight in (1e-6, 1.0) if not self.rules.bytes_first else (1e-6,):
            nodes = options.network_time + weight * rest
            cost = options.edge_time
            if self.rules.bytes_first and self.fewest_bytes:
                scale = 1e6 * (float(options.network_time.max()) + 1e-9) / self.fewest_bytes
                nodes = nodes + scale * options.bytes_moved
                cost = cost + scale * options.edge_bytes
            edges = (self.arrays.source, self.arrays.target, cost)
            _, codes = next(eliminate(box.domains, nodes, edges).solutions())
            if codes.tobytes() in tried:
                continue
            tried.add(codes.tobytes())
            load = self.load(box, codes)
            limit = self.layer_limit(box.plan, self.incumbent())
            found = self.fused(load, limit)
            if found is not None and found.partitions:
                self.offer(box, codes, found.partitions, found.time)

    def fuse_box(self, box: Box, *, root: bool = True) -> float:
        """Fuse a box; return a bound on the iteration time of what is left in it. [s]

        ``root``: whether the box is a whole plan, worth the dearest bound.
        """
        assert box.domains is not None
        limit = self.layer_limit(box.plan, self.target())
        if all(len(d) == 1 for d in box.domains):
            codes = np.array([d[0] for d in box.domains], dtype=np.int64)
            found = self.fused(self.load(box, codes), limit)
            if found is None:
                return math.inf
            if found.partitions:
                self.offer(box, codes, found.partitions, found.time)
            if found.proved:
                return math.inf
            return self.total(box.plan, found.bound)
        load = self._relaxed(box)
        found = self.fused(load, limit, bound_only=True)
        if found is None:
            return math.inf
        bound = found.bound
        if root or self.arrays.n <= SMALL_GRAPH:
            joint = self._joint(box, load, limit)
            bound = max(bound, joint.bound)
            if root and joint.axes and math.isfinite(bound):
                self._try(box, joint.axes)
        return self.total(box.plan, bound) if math.isfinite(bound) else math.inf

    def _joint(self, box: Box, load: ChipLoad, limit: float) -> Joint:
        """Bound the layer time of a box by a path that knows which layouts agree."""
        assert box.domains is not None
        if self.unfused or self.rules.fan_out_copies or not math.isfinite(limit):
            return UNKNOWN
        choices = make_choices(self.arrays, self.table(box.plan, box.n_tiles), box.domains, load)
        if choices is None:
            return UNKNOWN
        problem = make_problem(load, slots=self.slots, separate_directions=self.separate)
        return joint_bound(problem, choices, limit=limit, deadline=self.deadline)

    def _try(self, box: Box, axes: dict[int, int]) -> None:
        """Fuse a box with the sharding a bound was reached with."""
        assert box.domains is not None
        options = self.table(box.plan, box.n_tiles)
        domains = [(axes[i],) if i in axes else d for i, d in enumerate(box.domains)]
        edges = (self.arrays.source, self.arrays.target, options.edge_time)
        _, codes = next(eliminate(domains, options.network_time, edges).solutions())
        found = self.fused(self.load(box, codes), self.layer_limit(box.plan, self.incumbent()))
        if found is not None and found.partitions:
            self.offer(box, codes, found.partitions, found.time)

    def halve(self, box: Box) -> Iterator[Box]:
        """Split a box on the kernel whose axes differ most."""
        assert box.domains is not None
        options = self.table(box.plan, box.n_tiles)
        bandwidth = self.system.memory.bandwidth
        weight = options.network_time + options.output_total / bandwidth
        edge = options.edge_time.max(axis=(1, 2)) if len(self.arrays.source) else np.zeros(0)
        spread = np.zeros(self.arrays.n)
        np.add.at(spread, self.arrays.source, edge)
        np.add.at(spread, self.arrays.target, edge)
        scores = [
            float(np.ptp(weight[i, list(d)])) + 1e-3 * float(spread[i]) + 1e-15
            if len(d) > 1
            else -1.0
            for i, d in enumerate(box.domains)
        ]
        i = int(np.argmax(scores))
        for axis in box.domains[i]:
            domains = (*box.domains[:i], (axis,), *box.domains[i + 1 :])
            child = Box(box.plan, box.n_tiles, self._tightened(domains, options), tiled=True)
            yield child

    def _tightened(self, domains: Domains, options: Options) -> Domains:
        """Drop axes that another axis of the same kernel beats in all respects."""
        size = (
            [options.work]
            if self.system.chip.utilization is not None
            else [options.m, options.k, options.columns]
        )
        terms = [
            *size, options.output_tile, options.output_total, options.weight,
            options.network_time, options.data_time,
        ]  # fmt: skip
        # Readers of one tensor may share a conversion, so each kind counts on its own.
        edge_terms = [options.edge_time * (options.edge_kind == kind) for kind in (1, 2)]
        if self.rules.bytes_first:
            terms.append(options.bytes_moved)
            edge_terms.append(options.edge_bytes)
        edges = (self.arrays.source, self.arrays.target, np.stack(edge_terms, axis=3))
        return tuple(
            tuple(d) for d in dominated_axes(domains, [t.astype(float) for t in terms], edges)
        )


def _several_readers(arrays: GraphArrays) -> bool:
    return len(set(arrays.source.tolist())) < len(arrays.source)


def _readers(arrays: GraphArrays) -> Floats:
    return np.bincount(arrays.source, minlength=arrays.n)[arrays.source].astype(float)
