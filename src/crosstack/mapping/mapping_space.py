"""How many mappings a task has, decision by decision.

A mapping is one choice for each decision of `crosstack.mapping.mapping.Mapping`. The size of the
space is the product of the numbers of choices, whether or not they fit the machine. Partitions are
counted twice: as numbers written on kernels, and as sequences of partitions that respect the
graph, which are chains of order ideals.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from crosstack.mapping.ideals import enumerate_ideals, make_order, memberships, topological_chains
from crosstack.mapping.mapping import Task
from crosstack.mapping.parallelism import expert_ways, workload_uses
from crosstack.mapping.sharding import given_choices
from crosstack.mapping.slots import Slots, make_slots
from crosstack.model.choice_index import choice_index
from crosstack.model.memory import searched_recomputations
from crosstack.model.rules import MAPPED, Rules, chosen_rules
from crosstack.model.schedule.allowed import some_layers_again
from crosstack.model.tiles import divisors
from crosstack.workload.kernel_graph import Floats, Ints, KernelGraph
from crosstack.workload.passes.expert_parallel import cut_experts
from crosstack.workload.transformer_training import Schedule

MOST_IDEALS = 200_000  # that are listed to count sequences of partitions


@dataclass(frozen=True, slots=True)
class Factor:
    """A decision: the decimal logarithm of its number of choices [1], and what they are."""

    decision: str
    digits: float
    choices: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingSpace:
    """The choices of every decision of a task.

    ``ordered`` is the partitions' factor without the assignments that break the order of the
    graph; None where the graph has too many order ideals to count them.
    """

    factors: tuple[Factor, ...]
    ordered: Factor | None

    @property
    def digits(self) -> float:
        """Decimal logarithm of the number of mappings, in whatever order partitions are. [1]"""
        return math.fsum(factor.digits for factor in self.factors)

    @property
    def ordered_digits(self) -> float | None:
        """The same of mappings whose partitions respect the graph. [1]"""
        if self.ordered is None:
            return None
        rest = (f.digits for f in self.factors if f.decision != self.ordered.decision)
        return math.fsum((*rest, self.ordered.digits))


def mapping_space(task: Task, rules: Rules | str | None = None) -> MappingSpace:
    """Count the choices of every decision that a task leaves free.

    Parameters
    ----------
    rules : Rules or str, optional
        What numbers of tiles there are depends on them; the task's own, or the default.

    Notes
    -----
    - network: every (sizes, uses, microbatch size) that divides chips and batch;
    - tiles: numbers of tiles that cut a sequence differently;
    - sharding: ``prod_i |A_i|`` over the axes ``A_i`` a kernel may be split along;
    - partitions: the numbers a kernel may have, ``C^n`` for n kernels and at most C partitions (n
      where C is not given) without pins; in order: chains of C order ideals up to the whole graph;
    - cores: pairs (lanes, stages) of each kernel with a product of at most the chip's cores;
      elementwise kernels have one stage. No decision where the chip's utilization is given;
    - recomputation, and pieces of a stage (at most the divisors of the layers), of training.

    Rules that have the fewest bytes decide the sharding first choose among the same number.
    """
    chosen = chosen_rules(rules, MAPPED, otherwise=task.rules)
    arrays = task.workload.graph
    slots, apart = make_slots(arrays, task.constraints, chosen)
    if slots is None:
        n = arrays.n
        slots = Slots(count=n, first=(0,) * n, last=(n - 1,) * n)
    factors = (
        _network(task, chosen),
        _tiles(task, chosen),
        _sharding(task, arrays, chosen),
        _partitions(task, slots),
        _cores(task, arrays),
        *_of_training(task, arrays, chosen),
    )
    return MappingSpace(factors=factors, ordered=_ordered(task, arrays, slots, apart=apart))


def _of_training(task: Task, arrays: KernelGraph, rules: Rules) -> Iterator[Factor]:
    """Yield what is computed again, and pieces of a stage, where there is a backward pass."""
    given, kinds = task.constraints, searched_recomputations(arrays, rules)
    if len(kinds) > 1:
        count, words = len(kinds), ", ".join(kinds)
        if some_layers_again(task.system.chip, rules):
            most = task.workload.graph_repetitions
            count = 1 + (count - 1) * most
            words += f"; in up to {most} layers of a stage"
        if given.recompute is not None:
            count, words = 1, "given"
        yield Factor("recomputation", math.log10(count), words)
    if task.workload.training and rules.iteration.has_schedules:
        most = len(divisors(task.workload.graph_repetitions))
        words = f"at most {most}: divisors of layers"
        if given.schedule is None:
            ran = task.system.chip.framework
            orders = ran.schedules if ran and ran.schedules else tuple(Schedule)
            others = sum(order.searched for order in orders) - 1
            words = f"at most {most}: divisors of layers; or one, by {others} other schedules"
            most += others
        elif given.interleave is not None or given.schedule is not Schedule.ONE_F_ONE_B:
            most, words = 1, "given"
        yield Factor("pieces of a stage", math.log10(most), words)


def _network(task: Task, rules: Rules) -> Factor:
    uses = workload_uses(task.workload, task.system, task.constraints, rules)
    counts = [len(use.microbatches) for use in uses if use is not None]
    total = sum(counts)
    return Factor(
        "network",
        math.log10(max(total, 1)),
        f"uses of the dimensions: {len(counts):,}; with a microbatch size: {total:,}",
    )


def _tiles(task: Task, rules: Rules) -> Factor:
    length, given = task.workload.sequence_length, task.constraints
    if given.n_tiles is not None:
        return Factor("tiles", 0.0, "given")
    counts = rules.decisions.tile_counts(length)
    if given.tile_size is not None:
        counts = counts[counts >= -(-length // given.tile_size)]
    return Factor("tiles", math.log10(len(counts)), "numbers of tiles")


def _sharding(task: Task, arrays: KernelGraph, rules: Rules) -> Factor:
    named = rules.traffic.traces_layouts
    whole, _ = expert_ways(task.workload, task.constraints, rules)
    arrays = arrays if whole else cut_experts(arrays)
    index = choice_index(arrays, task.workload.placement, named=named)
    axes = np.diff(index.start)
    axes[list(given_choices(arrays, task.constraints.sharding, index))] = 1
    free = int((axes > 1).sum())
    words = f"axes of each kernel; kernels with a choice: {free}" if free else "given"
    return Factor("sharding", float(np.log10(axes).sum()), words)


def _partitions(task: Task, slots: Slots) -> Factor:
    if task.constraints.kernel_by_kernel:
        return Factor("partitions", 0.0, "given: every kernel its own")
    choices = [last - first + 1 for first, last in zip(slots.first, slots.last, strict=True)]
    free = [count for count in choices if count > 1]
    words = f"{max(free)} for each kernel; kernels with a choice: {len(free)}" if free else "given"
    return Factor("partitions", float(np.log10(choices).sum()), words)


def _ordered(task: Task, arrays: KernelGraph, slots: Slots, *, apart: bool) -> Factor | None:
    """Count chains of ideals, by sums over all ideals inside an ideal, one step a partition.

    Adding the kernels in a topological order, each where it is the last one of an ideal, sums
    over every smaller ideal exactly once.
    """
    if task.constraints.kernel_by_kernel:
        return _partitions(task, slots)
    forward = sum(1 << i for i in range(arrays.n) if not arrays.backward[i])
    preds = tuple(
        mask | (forward if apart and arrays.backward[i] else 0)
        for i, mask in enumerate(arrays.preds)
    )
    order = make_order(preds)
    ideals = enumerate_ideals(order, most=MOST_IDEALS)
    if ideals is None:
        return None
    place = {ideal: i for i, ideal in enumerate(ideals)}
    steps: list[Ints] = []
    for kernel in topological_chains(order)[0]:
        bit = 1 << kernel
        some = (ideal for ideal in ideals if ideal & bit and ideal & ~bit in place)
        pairs = [(place[ideal], place[ideal & ~bit]) for ideal in some]
        steps.append(np.array(pairs, dtype=np.int64).T)
    member = memberships(ideals, arrays.n)
    first, last = np.array(slots.first), np.array(slots.last)
    chains: Floats = np.zeros(len(ideals))
    chains[0] = 1.0
    for number in range(slots.count):
        for larger, smaller in steps:
            chains[larger] += chains[smaller]
        early = (member & (first > number)).any(axis=1)
        late = (~member & (last <= number)).any(axis=1)
        chains[early | late] = 0.0
    found = float(chains[-1])  # ideals come by size: the last is the whole graph
    if found <= 0 or not math.isfinite(found):
        return None
    return Factor("partitions", math.log10(found), f"in order, at most {slots.count}")


def _cores(task: Task, arrays: KernelGraph) -> Factor:
    chip = task.system.chip
    if chip.compute.utilization is not None:
        return Factor("cores", 0.0, "no decision: the utilization is given")
    units = chip.compute.n_units
    lanes = np.arange(1, units + 1)
    pairs = int((units // lanes).sum())
    systolic = int(arrays.systolic.sum())
    digits = systolic * math.log10(pairs) + (arrays.n - systolic) * math.log10(units)
    return Factor(
        "cores",
        digits,
        f"lanes and stages: {pairs:,} for each systolic kernel, {units:,} for each other",
    )
