"""What of a plan runs, but nobody would run so, or would look at twice: a sentence each.

A warning changes no number. Thresholds are the fields' customs and no physics: a pipeline that
idles a quarter of its work, products thinner than a tile of a library, a memory that leaves less
than a twentieth for what an allocator loses.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from crosstack.evaluate.evaluation import Evaluation
from crosstack.evaluate.time import mapped_plan
from crosstack.machine.system import Parallelism
from crosstack.mapping.mapping import Mapping, Task
from crosstack.model.rules import Rules
from crosstack.model.runnable import uneven
from crosstack.model.stage_layers import layers_of
from crosstack.model.stage_paths import exchange_paths
from crosstack.units import format_quantity
from crosstack.workload.kernels import Axis, Placement
from crosstack.workload.passes.context_parallel import crosses
from crosstack.workload.transformer_training import ContextExchange, Zero

MOST_IDLE = 0.25  # of the work of a stage, while it waits for others
MOST_EMPTY = 0.1  # of the places for layers, that no layer and no end of the model stands in
MOST_EXPOSED = 0.05  # of the time of a stage, that weights on their way take
FULL = 0.95  # of main memory
TILE = 128  # rows or columns that a product is cut into at a time [1]
ULYSSES = ContextExchange.ULYSSES
SLOWER = 0.5  # links outside a server over those inside, at most


def warnings_of(task: Task, rules: Rules, mapping: Mapping, found: Evaluation) -> tuple[str, ...]:
    """Return what stands out in a mapping and what it costs, one sentence each.

    Parameters
    ----------
    task, rules, mapping, found
        What is mapped, under which rules, how, and its price.
    """
    if task.workload.placement is not Placement.SEARCHED:
        return ()  # its distribution is published
    about = _Warned(task, rules, mapping, found)
    parts = (
        about.divided(), about.left_over(), about.unequal_stages(), about.across_servers(),
        about.thin(), about.idle(), about.exposed(), about.keys_on_their_way(), about.launches(),
        about.full(),
    )  # fmt: skip
    return tuple(words for part in parts for words in part)


@dataclass(frozen=True, slots=True)
class _Warned:
    """A mapping with its price; each method yields what stands out of one kind."""

    task: Task
    rules: Rules
    mapping: Mapping
    found: Evaluation

    def degree(self, use: Parallelism) -> int:
        return self.mapping.degree(use)

    def divided(self) -> Iterator[str]:
        """Degrees that frameworks refuse: the fullest chip has more than its share."""
        tensor, cut = self.degree(Parallelism.TENSOR), self.mapping.expert_tensor
        for words in uneven(self.task.workload, tensor=tensor, expert_tensor=cut):
            yield f"{words}: chips have unequal parts, and most frameworks refuse it."

    def left_over(self) -> Iterator[str]:
        """Chips that a batch to serve has sequences for, but not as many for each.

        All chips are used: those that are left over split tensors or layers unevenly, which can be
        slower than fewer chips are.
        """
        workload, chips = self.task.workload, self.task.system.n_chips
        batch = workload.global_batch_size
        if workload.training or batch < chips or not self._odd(chips):
            return
        fewer = next(n for n in range(chips - 1, 0, -1) if not self._odd(n))
        below = batch // chips * chips
        yield (
            f"a batch of {batch:,} does not divide by {chips:,} chips, of which "
            f"{chips // math.gcd(batch, chips):,} then split tensors or layers, and all are used: "
            f"{fewer:,} chips, or a batch of {below:,} or {below + chips:,}, may be faster."
        )

    def _odd(self, chips: int) -> bool:
        """Whether so many chips have sequences left over that their tensors do not divide by."""
        left = chips // math.gcd(self.task.workload.global_batch_size, chips)
        return any(uneven(self.task.workload, tensor=left, expert_tensor=1))

    def unequal_stages(self) -> Iterator[str]:
        """Stages that hold fewer layers than others, beyond what ends of the model stand for.

        Frameworks run those: what they cost is the wait for the fullest.
        """
        stages, layers = self.degree(Parallelism.PIPELINE), self.task.workload.graph_repetitions
        if stages == 1 or self.found.stages:
            return
        if stages > layers:
            yield f"{stages - layers:,} of {stages:,} stages hold no layer."
            return
        plan = mapped_plan(self.task.workload, self.task.system, self.mapping, self.rules)
        places = plan.layers_per_stage * stages
        empty = places - layers - sum(plan.spared)
        if empty > MOST_EMPTY * places:
            held = layers_of(plan, np.arange(stages))
            yield (
                f"stages hold {held.min():,.0f} to {held.max():,.0f} of {layers:,} layers: "
                f"{empty / places:.0%} of the places are empty while the fullest works."
            )

    def across_servers(self) -> Iterator[str]:
        """Tensor parallelism over links that are slower than the innermost."""
        network, mapping = self.task.system.network, self.mapping
        places = mapping.dimensions or range(len(mapping.sizes))
        for place, size, use in zip(places, mapping.sizes, mapping.parallelism, strict=True):
            inner, outer = network[0].bandwidth, network[place].bandwidth
            slow = mapping.dimension_sizes[0] > 1 and outer < SLOWER * inner
            if use is Parallelism.TENSOR and size > 1 and slow:
                words = (
                    f"{format_quantity(outer, 'B/s')} a chip, not {format_quantity(inner, 'B/s')}"
                )
                yield f"tensor parallelism crosses servers, at {words}."

    def thin(self) -> Iterator[str]:
        """Products of weights that a chip has less than a tile of."""
        tensor, graph = self.degree(Parallelism.TENSOR), self.task.workload.graph
        if tensor == 1:
            return
        shared = np.array([axis in (Axis.OUTER, Axis.M) for axis in self.mapping.sharding])
        weights = graph.gemm & graph.has_weight & (graph.rows >= TILE)
        thin = np.flatnonzero(weights & shared & (graph.rows < TILE * tensor))
        if thin.size:
            i = min(thin.tolist(), key=lambda i: int(graph.rows[i]))
            rows = -(-int(graph.rows[i]) // tensor)
            yield (
                f"tp={tensor} leaves {rows:,} of {int(graph.rows[i]):,} rows of the product "
                f"{graph.names[i]} to a chip, less than a tile of {TILE}."
            )

    def idle(self) -> Iterator[str]:
        """Stages that wait."""
        stages, found = self.degree(Parallelism.PIPELINE), self.found
        if stages == 1:
            return
        count = found.n_microbatches
        if count < stages:
            word = "microbatch" if count == 1 else "microbatches"
            yield f"{count:,} {word} for {stages:,} stages: some idle at any time."
        elif found.bubble_factor > 1 + MOST_IDLE:
            share = f"{found.bubble_factor - 1:.0%}"
            yield f"stages idle for {share} of their work; more microbatches or pieces idle less."

    def exposed(self) -> Iterator[str]:
        """Weights that come for every microbatch, and are waited for."""
        count = self.found.n_microbatches
        if self.mapping.zero.number < Zero.WEIGHTS.number or count == 1 or self.found.stages:
            return
        task = self.task
        plan = mapped_plan(task.workload, task.system, self.mapping, self.rules)
        work = self.found.layer_time * self.mapping.microbatch_size * plan.layers_per_stage
        longest = max(float(a * work + b) for a, b in exchange_paths(plan))
        waited = 1 - work / longest if longest else 0.0
        if waited > MOST_EXPOSED:
            yield (
                f"weights come for each of {count:,} microbatches and are waited for, "
                f"{waited:.0%} of a stage's time; larger microbatches wait less."
            )

    def keys_on_their_way(self) -> Iterator[str]:
        """Keys and values of other chips of a sequence that are waited for."""
        context, graph = self.degree(Parallelism.CONTEXT), self.task.workload.graph
        if context == 1 or self.found.stages:
            return
        sent = graph.attends | (crosses(graph) & (self.mapping.context_exchange is ULYSSES))
        times = np.array([kernel.network_time for kernel in self.found.kernels])
        waited = float(times[sent].sum()) / self.found.layer_time
        if waited > MOST_EXPOSED:
            tokens = self.task.workload.item_length // context
            yield (
                f"keys and values of cp={context} chips are waited for, {waited:.0%} of a layer's "
                f"time, with {tokens:,} tokens a chip; fewer such chips, or nearer ones, wait less."
            )

    def launches(self) -> Iterator[str]:
        """Chips that wait for their host."""
        host = self.found.host_time
        layer = self.found.layer_time * self.mapping.microbatch_size
        if host > layer:
            times = f"{format_quantity(host, 's')} a layer, not {format_quantity(layer, 's')}"
            yield f"chips wait for their host's launches, {times}."

    def full(self) -> Iterator[str]:
        """Memory that leaves no room."""
        chip, used = self.task.system.chip, self.found.memory_used + self.task.system.chip.set_aside
        capacity = self.found.memory_capacity + chip.set_aside
        if used > FULL * capacity and not chip.main_memory.spare:
            share = f"{used / capacity:.1%}"
            yield (
                f"main memory is {share} full; an allocator loses some of what is left, so leave "
                "some spare."
            )
