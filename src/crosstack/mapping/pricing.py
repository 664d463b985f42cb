"""What the search minimises: from what a layer costs to the objective of an iteration, and back."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from crosstack.machine.system import System
from crosstack.mapping.least_times import plan_together, times_of_layers
from crosstack.mapping.strategies import Strategies
from crosstack.model.choices import Choices
from crosstack.model.iteration import (
    exact_time,
    layer_time_below,
    least_time,
    pipeline_of,
)
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.objective import TIME, LayerPrices, Weights, layer_prices
from crosstack.model.partition import ChipLoad, partition_cost
from crosstack.model.rules import Rules
from crosstack.model.stages import Pipeline
from crosstack.workload.kernel_graph import Floats, Ints
from crosstack.workload.workload import Workload

Domains = tuple[tuple[int, ...], ...]  # choices left to each kernel
STEP = 1e-3  # relative, between two layers whose objectives give a slope
ROUNDING = 1e-11  # relative, of a slope; less than what counts as no gap


@dataclass(frozen=True, slots=True)
class Bend:
    """Where a line begins that the objective of a plan never falls below.

    ``least`` for layers that cost ``layer``, and ``slope`` more for each second beyond. As an
    iteration takes as long as the longest of paths, each of which takes a time and a number of
    layers, the objective is convex in what a layer costs: a line through two points of it is below
    all that is beyond both. [s]
    """

    layer: float
    least: float
    slope: float

    def at(self, layer: float) -> float:
        """Return what the objective is at least for a layer that costs so much. [s]"""
        return self.least + self.slope * max(layer - self.layer, 0.0)

    def below(self, total: float) -> float:
        """Return the layer's cost beyond which the objective is above ``total``. [s]"""
        if total < self.least:
            return 0.0
        return self.layer + (total - self.least) / self.slope if self.slope else math.inf


@dataclass(slots=True, kw_only=True)
class Pricing:
    """The objective of one problem; a layer's cost is its time and what the objective adds. [s]"""

    workload: Workload
    system: System
    rules: Rules
    weights: Weights = field(default_factory=lambda: Weights(time=1.0))
    known: dict[object, LayerPrices] = field(default_factory=dict)

    def of(self, plan: MeshPlan) -> LayerPrices:
        """Return the prices under a plan."""
        if self.weights.only_time:
            return TIME
        key = (
            plan.sizes, plan.parallelism, plan.dimensions, plan.microbatch_size,
            plan.n_microbatches, plan.stage_transfer, plan.spilled, plan.schedule, plan.interleave,
            plan.zero, plan.ends, plan.summed, plan.overlapped, plan.periodic, plan.recompute,
            plan.again,
        )  # fmt: skip
        if key not in self.known:
            peak = self.rules.clock.peak_rate(self.system.chip, self.workload.graph.dtype)
            self.known[key] = layer_prices(self.weights, self.system, plan, peak, self.rules)
        return self.known[key]

    def total(self, plan: MeshPlan, layer: float) -> float:
        """Return the objective for a layer's cost [s]; the least of stages that split it.

        A transfer that is hidden behind what is not time is counted as hidden, so it is a bound.
        """
        price = self.of(plan)
        whole = least_time(plan, layer, self.system.chip.overlap, self.rules)
        return price.second * whole + price.fixed

    def of_many(self, strategies: Strategies) -> LayerPrices:
        """Return the prices under strategies, arrays of shape (n,) where time is not all."""
        if self.weights.only_time or not len(strategies):
            return TIME
        peak = self.rules.clock.peak_rate(self.system.chip, self.workload.graph.dtype)
        names = [field.name for field in fields(LayerPrices)]
        table: dict[str, Any] = {name: np.zeros(len(strategies)) for name in names}
        for here, plan in strategies.by_use(self.workload):
            prices = layer_prices(self.weights, self.system, plan, peak, self.rules)
            for name in names:
                table[name][here] = getattr(prices, name)
        return LayerPrices(**table)

    def totals(
        self,
        strategies: Strategies,
        layer: Floats,
        prices: LayerPrices | None = None,
        *,
        sent: Floats | None = None,
        together: Floats | None = None,
    ) -> Floats:
        """Return the objective of strategies for layers that cost so much [s]; see `total`.

        ``prices`` are those of `of_many`, where they are known; ``sent`` and ``together`` as
        in `times_of_layers`. [s]
        """
        prices = self.of_many(strategies) if prices is None else prices
        given = self.workload, self.system, self.rules
        times = times_of_layers(strategies, layer, *given, sent=sent, together=together)
        return np.asarray(prices.second * times + prices.fixed)

    def offered(self, plan: MeshPlan, layer: float) -> float:
        """Return the objective of a mapping whose layer costs so much [s]; see `total`.

        Exact where the first and the last stage have more to do than others, and by schedules that
        events alone know, too.
        """
        if not self.exact_matters(plan):
            return self.total(plan, layer)
        return self._exactly(plan, pipeline_of(plan, self.system.chip.overlap, self.rules), layer)

    def _exactly(self, plan: MeshPlan, pipeline: Pipeline, layer: float) -> float:
        """Return `offered` of a plan whose ``pipeline`` it is, and exact time matters. [s]"""
        price, work = self.of(plan), layer * plan.microbatch_size * plan.layers_per_stage
        whole = exact_time(pipeline, work, self.rules) / plan.copies
        return price.second * whole + price.fixed

    def exact_matters(self, plan: MeshPlan) -> bool:
        """Whether the objective of a plan may be more than `total` says; see `offered`."""
        events = plan.has_ends or plan.schedule.by_events
        return plan.training and plan.pipeline > 1 and plan.graph_stages == 1 and events

    def bend(self, plan: MeshPlan, layer: float) -> Bend:
        """Return a line below the objective of a plan whose layers cost at least so much. [s]

        Of plans for which `exact_matters`; of passes that run together, ``layer`` leaves out what
        they hide.
        """
        own, alone = plan, 0.0
        if plan.schedule.pairs:
            own, longer = plan_together(plan, layer)
            alone = float(longer) - layer
        pipeline = pipeline_of(own, self.system.chip.overlap, self.rules)
        some = (layer, layer * (1 - STEP))
        whole, less = (self._exactly(plan, pipeline, x + alone) for x in some)
        slope = max(whole - less, 0.0) / (layer * STEP) if layer else 0.0
        if not self.weights.only_time:  # of a cost, some is what the objective adds besides time
            price = self.of(plan)
            slope = min(slope, price.second * price.per_layer)
        return Bend(layer, whole * (1 - ROUNDING), slope * (1 - ROUNDING))

    def least_of(self, plan: MeshPlan, bend: Bend | None, layer: float) -> float:
        """Return what the objective is at least for a layer's cost, by a line below it, too. [s]"""
        if bend is not None and plan.schedule.pairs:  # sums hide behind tokens left out of a layer
            return bend.at(layer - _hidden(plan))
        total = self.total(plan, layer)
        return total if bend is None else max(total, bend.at(layer))

    def below(self, plan: MeshPlan, bend: Bend | None, total: float) -> float:
        """Return a layer's cost from which on the objective is not below ``total``. [s]"""
        if bend is not None and plan.schedule.pairs:
            return bend.below(total) + _hidden(plan)
        layer = self.layer_below(plan, total)
        return layer if bend is None else min(layer, bend.below(total))

    def layer_below(self, plan: MeshPlan, total: float) -> float:
        """Return the layer's cost below which the objective is less than ``total``. [s]"""
        price = self.of(plan)
        left = (total - price.fixed) / price.second
        return layer_time_below(plan, left, self.system.chip.overlap, self.rules)

    def stages_below(self, plan: MeshPlan, load: ChipLoad, total: float) -> float:
        """Return what stages that split a graph are worth where the objective is ``total``. [s]

        That is the time of an iteration, and what the objective adds to the partitions.
        """
        price = self.of(plan)
        return (total - price.fixed) / price.second - price.per_layer * load.extra

    def of_stages(self, plan: MeshPlan, load: ChipLoad, worth: float) -> float:
        """Return the objective of stages that are worth so much, as `stages_below`. [s]"""
        price = self.of(plan)
        return price.second * (worth + price.per_layer * load.extra) + price.fixed

    def splits(self, plan: MeshPlan) -> bool:
        """Whether stages that split a graph are searched.

        Not for energy where an iteration waits for its slowest stage alone.
        """
        return not self.weights.energy or self.rules.iteration.split(plan, 1)[1] > 0

    def exact(self, plan: MeshPlan, load: ChipLoad, partitions: tuple[int, ...]) -> float:
        """Return the objective of partitions; infinite where one does not fit."""
        costs = [partition_cost(load, mask) for mask in partitions]
        if not all(cost.fits for cost in costs):
            return math.inf
        layer, price = sum(cost.time for cost in costs), self.of(plan)
        added = sum(cost.cost for cost in costs) - layer + load.extra
        return self.offered(plan, layer) + price.second * price.per_layer * added

    def priced(
        self, load: ChipLoad, plan: MeshPlan, choices: Choices, among: Ints | Domains
    ) -> ChipLoad:
        """Return a load with what the objective adds for one sharding, or least for many.

        Where the longer of two networks is what a partition waits for, both are paid: by kernel,
        as neither depends on the partitions.
        """
        if self.weights.only_time:
            return load
        price, index = self.of(plan), choices.index
        data = price.data if load.network_takes_maximum else price.data - price.network
        slower = self.rules.clock.slower(self.system.chip, self.workload.graph)
        tolls = price.work * choices.work * slower[index.kernel] + data * choices.data_time
        tolls = tolls + (price.exchange - price.network) * choices.exchange_time
        tolls = tolls + price.context * choices.context_busy - price.network * choices.context_time
        if choices.clocked is not None:
            tolls = tolls + price.on_chip * choices.clocked.joules
        if isinstance(among, np.ndarray):
            extra = float(tolls[among].sum())
        else:
            extra = float(index.least(tolls, index.inside(among)).sum())
        network = price.network
        if load.network_takes_maximum:
            extra, network = extra + network * sum(load.network), load.network_price
        return replace(load, memory_price=price.memory, network_price=network, extra=extra)


def _hidden(plan: MeshPlan) -> float:
    """Time of a layer that passes of a plan hide at most, which `Pricing.bend` leaves out. [s]"""
    return (1 - plan.taken) * float(plan.tokens[1]) if plan.schedule.pairs else 0.0
