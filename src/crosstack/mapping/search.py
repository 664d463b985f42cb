"""The search over all decisions together, with a proof.

A *box* is a plan (parallelism and microbatch size), a number of tiles, and the axes each kernel
may still be sharded along. Its bound is the best fusion of a load that takes, term by term, the
least over the box (`crosstack.model.partition.relaxed_load`); a box with one axis a kernel is a
complete answer once fused. The search takes the box with the least bound, fuses it, and halves it
(``land1960branch``), so the least bound left is at any time a bound on every mapping.

Under rules that decide sharding first by bytes, a box none of whose shardings moves the fewest
bytes is dropped, and the fastest among the ties is found.
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from crosstack.chip.chip import Overlap
from crosstack.errors import InfeasibleError, InputError, Problem, nearest, require
from crosstack.mapping.fusion import Fusion, Slots, fuse, make_problem
from crosstack.mapping.ideals import IdealTables
from crosstack.mapping.mapping import Certificate, Constraints, Mapping, Status
from crosstack.mapping.parallelism import plans
from crosstack.mapping.sharding import dominated_axes, eliminate, given_axes, with_given
from crosstack.model.arrays import AXES, Floats, GraphArrays, Ints, graph_arrays
from crosstack.model.iteration import iteration, layer_time_below
from crosstack.model.options import Options, allowed_axes, make_options
from crosstack.model.partition import (
    ChipLoad,
    PartitionCost,
    live_size,
    make_load,
    partition_cost,
    relaxed_load,
)
from crosstack.model.plan import Plan, tile_counts
from crosstack.model.rules import ModelRules
from crosstack.system.system import System
from crosstack.workload.graph import Workload

__all__ = ["Progress", "search"]

PROOF = 1e-9  # relative gap that counts as none
Domains = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a search stands: best time and bound so far [s], boxes done and waiting."""

    objective: float
    bound: float
    boxes_done: int
    boxes_waiting: int


@dataclass(slots=True)
class _Box:
    plan: Plan
    n_tiles: int
    domains: Domains | None  # None: not opened yet
    fused: bool = False
    partitions: tuple[int, ...] = ()


@dataclass(slots=True)
class _Lack:
    """What was closest to fitting among what did not."""

    resource: str = ""
    demand: float = math.inf
    limit: float = 1.0
    where: str = ""
    levers: tuple[str, ...] = ()

    def offer(
        self, resource: str, demand: float, limit: float, where: str, levers: tuple[str, ...]
    ) -> None:
        if demand / limit < self.demand / self.limit:
            self.resource, self.demand, self.limit = resource, demand, limit
            self.where, self.levers = where, levers


@dataclass(slots=True)
class _Search:
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
    lack: _Lack = field(default_factory=_Lack)
    tables: dict[object, IdealTables | None] = field(default_factory=dict)
    options: dict[tuple[int, int], Options] = field(default_factory=dict)
    fewest_bytes: float | None = None
    left_bound: float = math.inf

    # ------------------------------------------------------------ loads

    def table(self, plan: Plan, n_tiles: int) -> Options:
        key = (id(plan), n_tiles)
        if key not in self.options:
            if len(self.options) > 512:
                self.options.clear()
            self.options[key] = make_options(
                self.workload, self.arrays, plan, n_tiles, self.rules
            )
        return self.options[key]

    def load(self, box: _Box, codes: Ints) -> ChipLoad:
        options = self.table(box.plan, box.n_tiles)
        return make_load(
            self.workload, self.system, self.arrays, box.plan, options, codes, self.rules
        )

    def total(self, plan: Plan, layer_time: float) -> float:
        return iteration(plan, layer_time, self.system.chip.overlap, self.rules).time

    def target(self) -> float:
        """Only times below this are of interest."""
        return self.best * (1 - max(self.gap, PROOF / 10)) if self.mapping else math.inf

    def layer_limit(self, plan: Plan, total: float) -> float:
        return layer_time_below(plan, total, self.system.chip.overlap, self.rules)

    # ------------------------------------------------------------ bounds

    def open(self, box: _Box) -> float:
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

    def quick_bound(self, box: _Box) -> float:
        """Bound on the iteration time of a box from totals alone; infinite if nothing fits."""
        assert box.domains is not None
        options = self.table(box.plan, box.n_tiles)
        if not self._moves_fewest_bytes(box.domains, options, box.plan):
            return math.inf
        load = self._relaxed(box)
        if not self._fits(load, box):
            return math.inf
        network = max(self._network(box.domains, options), sum(load.network))
        compute = sum(_least_compute(load))
        memory = sum(load.own_memory) + (0.0 if load.resident_alone else sum(load.weight_time))
        data = sum(load.data)
        network = max(network, data) if load.network_takes_maximum else network + data
        overlap = self.system.chip.overlap
        if overlap is Overlap.ALL:
            layer = max(compute, memory, network)
        elif overlap is Overlap.NONE:
            layer = compute + memory + network
        else:
            layer = max(compute, memory) + network
        return self.total(box.plan, layer)

    def _relaxed(self, box: _Box) -> ChipLoad:
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

    def _fits(self, load: ChipLoad, box: _Box) -> bool:
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
        if self.unfused:
            masks = tuple(1 << i for i in load.order)
            costs = [partition_cost(load, mask) for mask in masks]
            layer = sum(c.time for c in costs)
            if not all(c.fits for c in costs) or not layer < limit:
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

    def offer(self, box: _Box, codes: Ints, partitions: tuple[int, ...], layer: float) -> None:
        total = self.total(box.plan, layer)
        if not total < self.best:
            return
        numbers = [0] * self.arrays.n
        for number, mask in enumerate(partitions):
            for i in range(self.arrays.n):
                if mask >> i & 1:
                    numbers[i] = number
        self.best = total
        self.mapping = Mapping(
            sizes=box.plan.sizes,
            parallelism=box.plan.parallelism,
            microbatch_size=box.plan.microbatch_size,
            n_tiles=box.n_tiles,
            sharding=tuple(AXES[c] for c in codes.tolist()),
            partitions=tuple(numbers),
        )

    def complete(self, box: _Box) -> None:
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
            limit = self.layer_limit(box.plan, self.best)
            found = self.fused(load, limit)
            if found is not None and found.partitions:
                self.offer(box, codes, found.partitions, found.time)

    def fuse_box(self, box: _Box) -> float:
        """Fuse a box; return a bound on the iteration time of what is left in it. [s]"""
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
        found = self.fused(self._relaxed(box), limit, bound_only=True)
        if found is None:
            return math.inf
        box.partitions = found.partitions
        return self.total(box.plan, found.bound)

    def halve(self, box: _Box) -> Iterator[_Box]:
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
            child = _Box(box.plan, box.n_tiles, self._tightened(domains, options))
            yield child

    def _tightened(self, domains: Domains, options: Options) -> Domains:
        size = (
            [options.work]
            if self.system.chip.utilization is not None
            else [options.m, options.k, options.columns]
        )
        terms = [
            *size, options.output_tile, options.output_total, options.weight,
            options.network_time, options.data_time,
        ]  # fmt: skip
        edge_terms = [options.edge_time]
        if self.rules.bytes_first:
            terms.append(options.bytes_moved)
            edge_terms.append(options.edge_bytes)
        edges = (self.arrays.source, self.arrays.target, np.stack(edge_terms, axis=3))
        return tuple(
            tuple(d) for d in dominated_axes(domains, [t.astype(float) for t in terms], edges)
        )


def _least_compute(load: ChipLoad) -> list[float]:
    if load.staircases is None:
        return list(load.compute)
    return [
        float((s.cores * s.cycles).min()) * scale / load.n_cores
        for s, scale in zip(load.staircases, load.cycle_time, strict=True)
    ]


def _several_readers(arrays: GraphArrays) -> bool:
    return len(set(arrays.source.tolist())) < len(arrays.source)


def _readers(arrays: GraphArrays) -> Floats:
    return np.bincount(arrays.source, minlength=arrays.n)[arrays.source].astype(float)


def make_slots(
    arrays: GraphArrays, constraints: Constraints, rules: ModelRules
) -> tuple[Slots | None, bool]:
    """Return which partitions each kernel may have, and whether directions stay apart."""
    n, count = arrays.n, constraints.max_partitions
    number = {name: i for i, name in enumerate(arrays.names)}
    backward = arrays.backward.tolist()
    halves = rules.halves_of_slots and any(backward)
    separate = constraints.separate_directions or (halves and (count is None or count % 2 == 0))
    if count is None and constraints.partitions:
        count = n
    if count is None or (count >= n and not constraints.partitions and not halves):
        return None, separate
    first, last = [0] * n, [count - 1] * n
    if halves:
        for i in range(n):
            if backward[i]:
                first[i] = count // 2
            else:
                last[i] = (count - 1) // 2
    problems = []
    for name, partition in constraints.partitions:
        if name not in number:
            close = ", ".join(f'"{c}"' for c in nearest(name, number))
            problems.append(
                Problem(
                    f"constraints.partitions.{name}",
                    f'no kernel is called "{name}".' + (f" Nearest: {close}." if close else ""),
                )
            )
            continue
        i = number[name]
        require(
            first[i] <= partition <= last[i],
            f"constraints.partitions.{name}",
            partition,
            f"{first[i]} to {last[i]}",
        )
        first[i] = last[i] = partition
    if problems:
        raise InputError(problems)
    return Slots(count=count, first=tuple(first), last=tuple(last)), separate


def tile_choices(workload: Workload, constraints: Constraints, rules: ModelRules) -> list[int]:
    """Numbers of tiles to try, most tiles first: they need the least SRAM."""
    length = workload.sequence_length
    if constraints.n_tiles is not None:
        return [constraints.n_tiles]
    counts = tile_counts(length, divide=rules.tiles_divide)
    if constraints.tile_size is not None:
        fewest = -(-length // constraints.tile_size)
        counts = counts[counts >= fewest]
    return [int(c) for c in counts[::-1]]


def _roots(search: _Search) -> list[tuple[float, _Box]]:
    """Every plan with every number of tiles worth trying, with the compute bound of the plan."""
    chip = search.system.chip
    rate = search.system.n_chips * chip.peak_throughput * (chip.utilization or 1.0)
    floor = search.workload.work / rate
    tiles = tile_choices(search.workload, search.constraints, search.rules)
    constraints = search.constraints
    roots = []
    for plan in plans(search.workload, search.system, search.rules, constraints.microbatch_size):
        for n_tiles in _useful_tiles(search, plan, tiles):
            roots.append((floor, _Box(plan, n_tiles, None)))
    return roots


def _useful_tiles(search: _Search, plan: Plan, tiles: list[int]) -> list[int]:
    """Drop tile counts that a larger one beats in every respect."""
    if search.system.chip.utilization is None:
        return tiles
    allowed = allowed_axes(search.arrays)
    kept: list[tuple[int, list[Floats]]] = []
    for count in tiles:
        o = make_options(search.workload, search.arrays, plan, count, search.rules)
        terms = [o.work, o.output_tile, o.output_total, o.weight, o.network_time, o.data_time]
        beaten = any(
            all((a <= b)[allowed].all() for a, b in zip(better, terms, strict=True))
            for _, better in kept
        )
        if not beaten:
            kept.append((count, terms))
            search.options[id(plan), count] = o
        elif len(kept) == 1 and count < tiles[0] // 8:
            break  # the longest tiles only need more SRAM
    return [count for count, _ in kept]


def search(
    workload: Workload,
    system: System,
    constraints: Constraints,
    rules: ModelRules,
    *,
    time_limit: float = math.inf,
    gap: float = 0.0,
    jobs: int = 1,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[Mapping, Certificate]:
    """Find the fastest mapping within what is given, and prove it.

    Parameters
    ----------
    time_limit : float
        Seconds after which the best mapping so far is returned with its bound. [s]
    gap : float
        Relative gap at which to stop. [1]
    jobs : int
        Processes that search together. [1]
    progress : callable, optional
        Called now and then with a `Progress`.

    Raises
    ------
    InfeasibleError
        If nothing fits; names the resource, demand, limit and levers.
    InputError
        If constraints name unknown kernels or contradict the rules.
    """
    started = time.perf_counter()
    arrays = graph_arrays(workload.graph)
    slots, separate = make_slots(arrays, constraints, rules)
    full = constraints.max_partitions == arrays.n and not constraints.partitions
    state = _Search(
        workload=workload,
        system=system,
        constraints=constraints,
        rules=rules,
        deadline=started + time_limit,
        gap=gap,
        arrays=arrays,
        given=given_axes(arrays, constraints.sharding, allowed_axes(arrays)),
        slots=slots,
        separate=separate,
        unfused=constraints.kernel_by_kernel or (rules.full_count_unfused and full),
    )
    bound, stopped = _run(state, progress)
    if state.mapping is None:
        raise _infeasible(state, stopped)
    bound = min(bound, state.left_bound, state.best)
    proved = bound >= state.best * (1 - PROOF)
    if proved:
        status = Status.OPTIMAL
    elif stopped:
        status = Status.LIMIT
    else:
        status = Status.FEASIBLE
    free, given = _covered(system, constraints)
    certificate = Certificate(
        status=status,
        objective=state.best,
        bound=state.best if proved else bound,
        method=_method(state),
        free=free,
        given=given,
        runtime=time.perf_counter() - started,
    )
    return state.mapping, certificate


def _run(state: _Search, progress: Callable[[Progress], None] | None) -> tuple[float, bool]:
    """Best-first search; return the least bound left and whether the time limit stopped it."""
    ticket = itertools.count()
    heap = [(bound, -0, next(ticket), box) for bound, box in _roots(state)]
    heapq.heapify(heap)
    done = 0
    while heap:
        bound, depth, _, box = heapq.heappop(heap)
        if not bound < state.target():
            return bound, False
        if time.perf_counter() > state.deadline and state.mapping is not None:
            return bound, True
        if progress is not None:
            progress(
                Progress(
                    objective=state.best,
                    bound=min(bound, state.best),
                    boxes_done=done,
                    boxes_waiting=len(heap),
                )
            )
        if box.domains is None:
            better = max(bound, state.open(box))
        elif not box.fused:
            box.fused = True
            single = all(len(d) == 1 for d in box.domains)
            if not single and (state.mapping is None or depth == 0):
                state.complete(box)
            found = state.fuse_box(box)
            done += 1
            better = max(bound, found)
            if single and math.isfinite(found):  # fused by a heuristic: nothing left to split
                state.left_bound = min(state.left_bound, better)
                continue
        else:
            for child in state.halve(box):
                quick = max(bound, state.quick_bound(child))
                if quick < state.target():
                    heapq.heappush(heap, (quick, depth - 1, next(ticket), child))
            continue
        if better < state.target():
            heapq.heappush(heap, (better, depth, next(ticket), box))
    return state.best, False


def _covered(system: System, constraints: Constraints) -> tuple[tuple[str, ...], tuple[str, ...]]:
    decided = {
        "dimension sizes": all(d.size is not None for d in system.network),
        "parallelism": all(d.parallelism is not None for d in system.network),
        "microbatch size": constraints.microbatch_size is not None,
        "number of tiles": constraints.n_tiles is not None,
        "sharding": False,
        "partitions": constraints.kernel_by_kernel,
    }
    free = [name for name, is_given in decided.items() if not is_given]
    given = [name for name, is_given in decided.items() if is_given]
    if constraints.sharding:
        given.append(f"sharding of {len(constraints.sharding)} kernels")
    if constraints.partitions:
        given.append(f"partition of {len(constraints.partitions)} kernels")
    if constraints.max_partitions is not None:
        given.append(f"at most {constraints.max_partitions} partitions")
    if constraints.separate_directions:
        given.append("forward and backward in separate partitions")
    return tuple(free), tuple(given)


def _method(state: _Search) -> str:
    first = "sharding of fewest bytes first, ties by time; " if state.rules.bytes_first else ""
    return f"{first}branch and bound over shardings, shortest path over order ideals for fusion"


def _infeasible(state: _Search, stopped: bool) -> InfeasibleError:
    lack = state.lack
    if lack.resource:
        return InfeasibleError(
            resource=lack.resource,
            demand=lack.demand,
            limit=lack.limit,
            unit="B",
            where=lack.where,
            levers=lack.levers,
        )
    if not math.isfinite(lack.demand):
        count = state.slots.count if state.slots else state.arrays.n
        return InfeasibleError(
            resource="partitions",
            demand=float(count + 1),
            limit=float(count),
            unit="partitions",
            where="fusing the kernels under the SRAM, memory and pins",
            levers=("more partitions", "fewer pinned kernels", "more SRAM"),
        )
    raise AssertionError("no mapping and no reason")
