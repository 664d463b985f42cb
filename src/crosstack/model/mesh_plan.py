"""How the chips of a network are used: degrees, microbatches and what a byte on the network costs.

A plan fixes the size and the parallelism of every network dimension and the microbatch size. It
prices every collective once, as a fixed time and a time per byte. Of a workload that brings its own
distribution over the chips (`Placement`), all chips of the network work together; what is left of
its plan is what a byte of the kernels' own communication costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from typing import Any, assert_never

import numpy as np

from crosstack.errors import require
from crosstack.machine.chip import Chip, Overlap
from crosstack.machine.framework import Framework
from crosstack.machine.system import Parallelism, System, SystemArrays, dimension_sizes
from crosstack.model.collectives import (
    NO_CONTEXT_TIMES,
    NO_REPLICAS,
    NO_SHARES,
    NOTHING,
    AffineTime,
    Changes,
    ConcaveTime,
    ContextTimes,
    NearShards,
    NetworkUse,
    Replicas,
)
from crosstack.model.end_cost import NO_END, EndCost
from crosstack.model.expert_cut import ExpertCut, expert_cut, token_route
from crosstack.model.offload import NOT_OFFLOADED, Offloading, offloading
from crosstack.model.rules import Rules
from crosstack.model.stage_layers import spared_layers
from crosstack.model.weight_update import (
    casting_of_a_byte,
    gradient_element,
    update_of_a_byte,
    weight_share,
)
from crosstack.records import known_again
from crosstack.workload.kernel_graph import Floats, KernelGraph
from crosstack.workload.kernels import Collective, Placement
from crosstack.workload.passes.context_parallel import spread_context
from crosstack.workload.passes.expert_parallel import cut_experts, spread_experts
from crosstack.workload.transformer_training import (
    ContextExchange,
    Hidden,
    Offload,
    Recompute,
    Schedule,
    Zero,
)
from crosstack.workload.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshPlan:
    """Degrees and collective prices of one use of the network, or of many: numbers, or arrays.

    ``sizes``, ``parallelism`` and ``dimensions`` as in `crosstack.mapping.mapping.Mapping`.
    ``tensor``, ``pipeline`` and ``data`` are chips per parallelism; ``layers_per_stage`` counts
    repetitions of the graph on the fullest stage, of which ``first_fewer`` are not on the first and
    ``last_fewer`` not on the last, see `spared`. ``graph_stages`` is how many stages one copy of
    the graph may be split over, 1 where stages hold whole copies (`crosstack.mapping.pipeline`),
    and ``graph_repetitions`` how many copies there are, ``n_layers`` what they are together. [1]
    ``changes`` are those of a tensor's layout over the tensor-parallel chips.
    ``border`` is what it takes to send a chip's bytes over the border between two of them.
    ``stage_transfer`` is the time that passing one sequence's activations to the next stage
    takes, before sharding. [s] ``hop`` is that time for one direction with the activations split
    over the tensor-parallel chips. [s] ``split`` is how many chips M, K and N are split over
    whatever the sharding. [1] ``spilled``: whether data lies in the
    second memory, too. ``training``: whether gradients come back through the stages, microbatches
    by ``schedule`` with ``interleave`` pieces a stage [1]; ``forward``, ``weight_gradients``:
    shares of the forward pass, and of gradients of weights, in the work of a copy, ``rerun`` of
    what is computed again [1].
    ``recompute``: what the backward pass computes again, in a share ``again`` of the layers of
    every piece of a stage, the first ones [1]. ``copies`` of the system run iterations
    at the same time. [1] ``ends``: what runs before the first layer and behind the last one, where
    that is decided. ``summed`` are gradients of one copy of the graph that a chip sums once an
    iteration, at least where its sharding is not decided [B], ``update`` what it takes to update
    the weights of each byte of those, ``casting`` to cast them [s/B], and ``weight_share`` bytes of
    weights for each byte of their gradients [1];
    ``zero``: what data-parallel chips hold shares of, by its number (`Zero.number`); ``scatter``
    is then the time of a sum that leaves each its share, ``gather`` of sending round; ``near`` are
    both where shares are among the chips that the fastest links join;
    ``overlapped``: whether sums of gradients can run beside the backward pass, and weights be
    brought layer by layer; ``hidden``: what is sent beside the work, None: as much as can be, but
    between stages what the chip does; ``taken`` is the share of a chip's units that work on nothing
    else while layers exchange weights or gradients [1]. ``driven``: the chip, where a framework
    drives it; ``host`` is what its host takes to launch a copy of the graph, once a microbatch
    (`crosstack.model.dispatch`). [s]
    ``expert`` of the ``data`` chips each have a part of the routed experts, each of which is cut
    over ``expert_tensor`` of the ``tensor`` ones, by ``cut_over`` if that is neither one nor all
    [1]; those exchange tokens (``exchange``, over the bytes that one of them has); ``replicas``
    have the same part, and ``expert_summed`` is what of ``summed`` they alone sum [B].
    ``offloaded`` is what lies in the memory of the host, ``left`` what a copy of the graph leaves
    there for the backward pass of a sequence, at least where its sharding is not decided [B].
    ``context`` chips share each sequence besides [1], and keys and values by ``context_exchange``,
    which takes ``context_times``. ``tokens`` is what the exchange of tokens takes of a copy of the
    graph for one sequence, at least and at most [s], and ``tokens_forward`` the share of that in
    the forward pass [1].
    """

    sizes: tuple[int, ...]
    parallelism: tuple[Parallelism, ...]
    microbatch_size: int = 1
    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: int = 1
    expert_tensor: int = 1
    cut_over: ExpertCut | None = None
    context: int = 1
    n_microbatches: int
    layers_per_stage: int
    collectives: dict[Collective, ConcaveTime]
    changes: Changes
    periodic: ConcaveTime
    stage_transfer: AffineTime
    n_layers: int
    first_fewer: Any = 0
    last_fewer: Any = 0
    hop: float = 0.0
    graph_stages: int = 1
    graph_repetitions: int = 1
    border: AffineTime = field(default_factory=AffineTime)
    split: tuple[int, int, int] = (1, 1, 1)
    spilled: bool = False
    copies: int = 1
    dimensions: tuple[int, ...] = ()
    training: bool = False
    recompute: Recompute = Recompute.NONE
    again: Any = 1.0
    schedule: Schedule = Schedule.ONE_F_ONE_B
    interleave: int = 1
    forward: float = 1 / 3
    weight_gradients: float = 1 / 3
    rerun: Any = 0.0
    ends: tuple[EndCost, EndCost] = (NO_END, NO_END)
    zero: Any = Zero.NONE.number
    scatter: ConcaveTime = NOTHING
    gather: ConcaveTime = NOTHING
    near: NearShards = NO_SHARES
    exchange: ConcaveTime = NOTHING
    replicas: Replicas = NO_REPLICAS
    context_exchange: ContextExchange = ContextExchange.RING
    context_times: ContextTimes = NO_CONTEXT_TIMES
    summed: Any = 0.0
    expert_summed: Any = 0.0
    update: Any = 0.0
    casting: Any = 0.0
    weight_share: float = 1.0
    overlapped: bool = True
    taken: float = 0.0
    driven: Chip | None = None
    host: Any = 0.0
    hidden: tuple[Hidden, ...] | None = None
    offloaded: Offloading = NOT_OFFLOADED
    left: Any = 0.0
    tokens: tuple[Any, Any] = (0.0, 0.0)
    tokens_forward: Any = 0.5

    @property
    def framework(self) -> Framework | None:
        """What drives the chips, if a framework does."""
        return None if self.driven is None else self.driven.framework

    @property
    def dimension_sizes(self) -> tuple[int, ...]:
        """Chips of each network dimension. [1]"""
        return dimension_sizes(self.sizes, self.dimensions)

    @property
    def has_ends(self) -> bool:
        """Whether anything runs before the first layer or behind the last one."""
        return any(
            np.any(getattr(end, column.name))
            for end in self.ends
            if end is not NO_END
            for column in fields(EndCost)
        )

    def graph(self, graph: KernelGraph) -> KernelGraph:
        """Return what a chip has of a graph whose sequences and experts the plan may spread."""
        graph = spread_context(self.cut(graph), self.context, self.context_exchange)
        return spread_experts(graph, self.expert)

    def cut(self, graph: KernelGraph) -> KernelGraph:
        """Return a graph whose kernels may be split as this plan has its experts: cut, or whole."""
        return cut_experts(graph) if self.expert_tensor > 1 else graph

    @property
    def expert_parts(self) -> int:
        """Among how many groups of chips experts are dealt out, which cut each of theirs. [1]"""
        return self.expert * self.tensor // self.expert_tensor

    @property
    def exchange_of_groups(self) -> ConcaveTime:
        """Time of the exchange of tokens that lie split over tensor-parallel chips. [s]"""
        return self.exchange if self.cut_over is None else self.cut_over.exchange

    @property
    def alike(self) -> Any:
        """Chips with the same weights, but for experts, whose gradients are summed. [1]"""
        return self.data * self.context

    def sharers(self, stage: int) -> Any:
        """Chips among which is shared what ZeRO shares from ``stage`` on. [1]"""
        if isinstance(self.zero, int) and isinstance(self.alike, int) and not self.hybrid:
            return self.alike if self.zero >= stage else 1
        among = np.where(self.hybrid, self.near.chips, self.alike)
        return np.where(np.asarray(self.zero) >= stage, among, 1)

    def expert_sharers(self, stage: int) -> Any:
        """The same of what routed experts have, among chips with the same ones. [1]"""
        among = np.where(self.hybrid, self.replicas.near.chips, self.replicas.chips)
        return np.where(np.asarray(self.zero) >= stage, among, 1)

    def shared(self, stage: int, size: Any, experts: Any = 0.0) -> Any:
        """What a chip has of so much that is shared from ``stage`` on, ``experts`` of routed ones.

        Parameters
        ----------
        size, experts : float or array
            On a chip that shares nothing, all of it and what of it is of routed experts. [B]
        """
        if _none(experts):
            return size / self.sharers(stage)
        return (size - experts) / self.sharers(stage) + experts / self.expert_sharers(stage)

    def updated(self, size: Any, experts: Any = 0.0) -> Any:
        """What a chip updates of so much, times the chips that share what is not of experts. [B]

        Parameters as `shared`.
        """
        return size if _none(experts) else self.shared(1, size, experts) * self.sharers(1)

    @property
    def hybrid(self) -> Any:
        """Whether shares are among the chips alone that the fastest links join."""
        return self.zero == Zero.HYBRID.number

    @property
    def layers_again(self) -> Any:
        """Layers of a stage that compute something again. [1]"""
        return np.rint(np.asarray(self.again) * self.layers_per_stage)

    @property
    def exchanged(self) -> Any:
        """Of weights and of gradients, what layers exchange whenever they run: 0, 1 or both. [1]"""
        if isinstance(self.zero, int):
            return min(max(self.zero - 1, 0), 2)
        return np.clip(np.asarray(self.zero) - 1, 0, 2)

    # Of ``size``, ``experts`` are of routed ones, exchanged among their replicas, behind the rest.

    def summing_time(self, size: Any, experts: Any = 0.0) -> Floats:
        """Time of the sum of gradients that is made once an iteration. [s]

        For all data-parallel chips, or their shares; of sums that layers leave behind whenever they
        run, shares are summed over the groups of chips that have shares.
        """

        def taken(among: MeshPlan | Replicas, size: Any) -> Floats:
            once = np.where(
                np.asarray(self.zero) > 0, among.scatter.time(size), among.periodic.time(size)
            )
            across = np.where(self.hybrid, among.near.across.time(size), 0.0)
            return np.where(self.exchanged > 0, across, once)

        return self._both(taken, size, experts)

    def leaving_time(self, size: Any, experts: Any = 0.0) -> Floats:
        """Time of a sum of gradients that leaves shares whenever layers have run. [s]"""

        def taken(among: MeshPlan | Replicas, size: Any) -> Floats:
            near, all_ = among.near.scatter.time(size), among.scatter.time(size)
            return np.where(self.exchanged > 0, np.where(self.hybrid, near, all_), 0.0)

        return self._both(taken, size, experts)

    def bringing_time(self, size: Any, experts: Any = 0.0) -> Floats:
        """Time of bringing whole weights, of gradients of a size, whenever layers run. [s]"""

        def taken(among: MeshPlan | Replicas, size: Any) -> Floats:
            size = size * self.weight_share
            near, all_ = among.near.gather.time(size), among.gather.time(size)
            return np.where(self.exchanged > 1, np.where(self.hybrid, near, all_), 0.0)

        return self._both(taken, size, experts)

    def mirrored_time(self, size: Any, experts: Any = 0.0) -> Any:
        """Time in which two chips that have the same stage add up their gradients of a size. [s]

        Each has its share of what data-parallel chips summed, and sends that to the other one.
        """
        own = (size - experts) / self.data + experts / self.replicas.chips
        return self.border.fixed + self.border.per_byte * own

    def gathering_time(self, size: Any, experts: Any = 0.0) -> Floats:
        """Time of sending round weights that shares of the data-parallel chips updated. [s]

        ``size`` is that of their gradients. [B]
        """
        updated = (np.asarray(self.zero) > 0) & (self.exchanged < 2)  # else whenever layers run

        def taken(among: MeshPlan | Replicas, size: Any) -> Floats:
            return np.where(updated, among.gather.time(size * self.weight_share), 0.0)

        return self._both(taken, size, experts)

    def _both(
        self, taken: Callable[[MeshPlan | Replicas, Any], Floats], size: Any, experts: Any
    ) -> Floats:
        """Return what the exchange of weights or gradients takes of all, experts apart. [s]"""
        if _none(experts):
            return taken(self, size)
        return np.asarray(taken(self, size - experts) + taken(self.replicas, experts))

    def hides(self, what: Hidden) -> bool:
        """Whether sums of gradients run, or weights are brought, beside the work of layers."""
        if self.schedule.ends_meet:  # two stages of a chip are through at the same time
            return False
        return self.overlapped and (self.hidden is None or what in self.hidden)

    def sending(self, overlap: Overlap) -> Overlap:
        """How a stage sends, on chips that overlap so: beside its work where that is all."""
        if self.hidden is None:
            return Overlap.ALL if self.schedule.both_ends else overlap
        return Overlap.ALL if Hidden.SENDS in self.hidden else Overlap.NONE

    @property
    def spared(self) -> tuple[Any, Any]:
        """Layers less than the fullest stage that the first and the last one hold. [1]

        None where stages are cut into pieces: those are counted as if all held as many.
        """
        whole = np.asarray(self.interleave) == 1
        return self.first_fewer * whole, self.last_fewer * whole

    @property
    def borders(self) -> int:
        """Borders that a microbatch crosses one way, between pieces of stages. [1]"""
        turns = self.schedule is Schedule.ZB_V  # between two pieces of one chip
        return self.pipeline * self.interleave - 1 - turns * (self.interleave > 1)


def with_offloaded(
    plan: MeshPlan, workload: Workload, system: System, rules: Rules, kinds: tuple[Offload, ...]
) -> MeshPlan:
    """Return a plan that has some of what it keeps in the memory of its hosts."""
    if not kinds:
        return plan
    element = gradient_element(workload.graph)
    sizes = {"element": element, "word": element * weight_share(workload), "update": plan.update}
    return replace(plan, offloaded=offloading(workload, system, rules, kinds, **sizes))


def _none(size: Any) -> bool:
    """Whether nothing is of routed experts that fewer chips share: the number, not an array."""
    return isinstance(size, float) and not size


def microbatch_count(workload: Workload, data: Any, microbatch_size: Any) -> Any:
    """Microbatches of an iteration, of one plan or arrays of many. [1]"""
    return workload.global_batch_size // (data * microbatch_size)


def make_plan(
    workload: Workload,
    system: System,
    sizes: tuple[int, ...],
    parallelism: tuple[Parallelism, ...],
    microbatch_size: int,
    rules: Rules,
    dimensions: tuple[int, ...] = (),
    context_exchange: ContextExchange = ContextExchange.RING,
    expert_tensor: int = 1,
) -> MeshPlan | None:
    """Return the plan of any workload, or None if the batch does not divide into microbatches.

    ``sizes``, ``parallelism``, ``dimensions``, ``context_exchange`` and ``expert_tensor`` are those
    of `crosstack.mapping.mapping.Mapping`; ``microbatch_size`` sequences a chip works on at a
    time. [1]

    Raises `InputError` for copies or dimensions that a workload with its placement does not allow.
    """
    if workload.placement is Placement.SEARCHED:
        require(system.copies == 1, "system.copies", system.copies, "1; use data parallelism")
        # What many machines take is large, and asked for once.
        planned = _any_network_plan if isinstance(system, SystemArrays) else _network_plan
        plan = planned(workload, system, rules, sizes, parallelism, dimensions, context_exchange)
    else:
        allowed = f"none with placement {workload.placement}"
        require(not dimensions, "dimensions", dimensions, allowed)
        plan = _placed_plan(workload, system, rules, sizes, parallelism)
    if workload.global_batch_size % (plan.data * microbatch_size):
        return None
    count = microbatch_count(workload, plan.data, microbatch_size)
    some: dict[str, Any] = {"microbatch_size": microbatch_size, "n_microbatches": count}
    if 1 < expert_tensor < plan.tensor:
        use = sizes, parallelism, dimensions
        some["cut_over"] = expert_cut(workload, system, rules, *use, expert_tensor)
    return replace(plan, **some, expert_tensor=expert_tensor)


def placed_use(placement: Placement) -> Parallelism | None:
    """What all dimensions of the network split; None where that is searched."""
    match placement:
        case Placement.SEARCHED:
            return None
        case Placement.BATCH:
            return Parallelism.DATA
        case Placement.GRID | Placement.COLUMNS:
            return Parallelism.TENSOR
        case _:
            assert_never(placement)


def _placed_plan(
    workload: Workload,
    system: System,
    rules: Rules,
    sizes: tuple[int, ...],
    parallelism: tuple[Parallelism, ...],
) -> MeshPlan:
    """Return the plan of a workload that brings its distribution; see `make_plan`."""
    n_chips, placement = math.prod(sizes), workload.placement
    network = NetworkUse.of(system, sizes, parallelism, workload.graph.adds_in)
    collectives, gradients = rules.collectives.placed(network, placement)
    data, split = 1, (1, 1, n_chips)
    if placement is Placement.BATCH:
        data, split = n_chips, (1, 1, 1)
    elif placement is Placement.GRID:
        split = n_chips // sizes[-1], sizes[-1], 1
    return MeshPlan(
        sizes=sizes,
        parallelism=parallelism,
        data=data,
        n_microbatches=microbatch_count(workload, data, 1),
        layers_per_stage=workload.graph_repetitions,
        collectives=collectives,
        changes={},
        periodic=gradients,
        stage_transfer=AffineTime(),
        n_layers=workload.n_layers,
        split=split,
        copies=system.copies,
        update=update_of_a_byte(workload, system, rules),
    )


def _any_network_plan(
    workload: Workload,
    system: System,
    rules: Rules,
    sizes: tuple[int, ...],
    parallelism: tuple[Parallelism, ...],
    dimensions: tuple[int, ...],
    context_exchange: ContextExchange,
) -> MeshPlan:
    """Return the plan of microbatches of one sequence; see `make_plan`."""
    network = NetworkUse.of(system, sizes, parallelism, workload.graph.adds_in, dimensions)
    degree = {use: network.degree(use) for use in Parallelism}
    tensor, pipeline = degree[Parallelism.TENSOR], degree[Parallelism.PIPELINE]
    expert, context = degree[Parallelism.EXPERT], degree[Parallelism.CONTEXT]
    data, whole = degree[Parallelism.DATA] * expert, network.data_parallel
    prices, training = rules.collectives, workload.training
    stage_transfer, border, hop = _between_stages(workload, network, rules)
    copies = workload.graph_repetitions
    first_fewer, last_fewer = spared_layers(workload, system, rules, pipeline)
    scatter, gather = prices.shards(whole) if training else (NOTHING, NOTHING)
    exchange, replicas = NOTHING, NO_REPLICAS
    if expert > 1:
        exchange = prices.tokens(network, token_route(workload, system.chip))
        replicas = prices.replicas(network) if training else NO_REPLICAS
    return MeshPlan(
        sizes=sizes,
        parallelism=parallelism,
        scatter=scatter,
        gather=gather,
        near=prices.near_shards(whole) if training else NO_SHARES,
        expert=expert,
        exchange=exchange,
        replicas=replicas,
        context=context,
        context_exchange=context_exchange,
        context_times=prices.context(network) if context > 1 else NO_CONTEXT_TIMES,
        tensor=tensor,
        pipeline=pipeline,
        data=data,
        n_microbatches=microbatch_count(workload, data, 1),
        layers_per_stage=-(-copies // pipeline),
        first_fewer=first_fewer,
        last_fewer=last_fewer,
        collectives=prices.kernels(network),
        changes=prices.changes(network) if tensor > 1 else {},
        periodic=prices.gradients(whole),
        stage_transfer=stage_transfer,
        n_layers=workload.n_layers,
        hop=hop,
        graph_stages=_graph_stages(workload, pipeline),
        graph_repetitions=copies,
        border=border,
        dimensions=dimensions,
        training=training,
        update=update_of_a_byte(workload, system, rules),
        casting=casting_of_a_byte(workload, system, spread_experts(workload.graph, expert)),
        weight_share=weight_share(workload),
        overlapped=not workload.graph.shares_weights,  # whose gradients are known last of all
        taken=system.chip.communicating_share,
        driven=None if system.chip.framework is None else system.chip,
    )


_network_plan = known_again(1024, by_value=4)(_any_network_plan)


def _between_stages(
    workload: Workload, network: NetworkUse, rules: Rules
) -> tuple[AffineTime, AffineTime, float]:
    """Return `MeshPlan.stage_transfer`, `MeshPlan.border` and `MeshPlan.hop`.

    Over the slowest of the links between stages, and the longest latency.
    """
    pipeline, tensor = network.degree(Parallelism.PIPELINE), network.degree(Parallelism.TENSOR)
    boundary = workload.boundary_size / network.degree(Parallelism.CONTEXT)
    links = rules.collectives.neighbours(network)
    transfer = border = AffineTime()
    directions = rules.iteration.directions(workload.training)
    if rules.iteration.crosses(pipeline, len(links)) and directions:
        slowest = reduce(np.minimum, (bandwidth for bandwidth, _ in links))
        latency = reduce(np.maximum, (latency for _, latency in links))
        sent = boundary * directions
        transfer = AffineTime(fixed=directions * latency, per_byte=sent / slowest)
        border = AffineTime(fixed=latency, per_byte=1.0 / slowest)
    hop = 0.0
    if pipeline > 1:
        shard = boundary / tensor
        hop = reduce(np.maximum, (shard / bandwidth + latency for bandwidth, latency in links))
    return transfer, border, hop


def _graph_stages(workload: Workload, pipeline: int) -> int:
    """Return over how many stages one copy of a graph may be split. [1]

    A backward kernel needs the weights of its forward kernel's stage, an end its own layer.
    """
    if workload.training or workload.ends:
        return 1
    return min(max(pipeline // workload.graph_repetitions, 1), len(workload.graph))
