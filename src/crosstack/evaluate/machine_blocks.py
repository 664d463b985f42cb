"""What a block of kernels takes on many machines: its partitions' terms as arrays.

The machines differ in numbers that leave what a chip has to do as it is, so that

- on a spatial chip compute scales with 1 / (clock x utilization), as cores are dealt by cycles, and
  memory is traffic over bandwidth;
- on a temporal chip tiles depend on clock and bandwidth: each chip of its own is timed once;
- the network takes the time of every message, whose bytes one evaluation tells, by whichever
  algorithm is fastest on a machine's links.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from crosstack.evaluate.time import Priced
from crosstack.model.choices import make_choices
from crosstack.model.collectives import NOTHING, AffineTime, ConcaveTime, ContextTimes, Layout
from crosstack.model.ends import PricedBlock, plan_of_end
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.partition import (
    ChipLoad,
    PartitionCost,
    beside_network,
    combine_arrays,
    network_times,
)
from crosstack.model.rules import Rules
from crosstack.workload.kernel_graph import Floats, Ints, KernelGraph, bits
from crosstack.workload.kernels import Collective
from crosstack.workload.workload import Workload

HOP = "hop"
CONTEXT = tuple(column.name for column in fields(ContextTimes))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block:
    """A graph of a mapping under the plan of one machine: the layers', or that of an end."""

    workload: Workload
    arrays: KernelGraph
    plan: MeshPlan
    n_tiles: int
    priced: PricedBlock


def blocks_of(priced: Priced) -> tuple[Block, ...]:
    """Return the blocks of a mapping that is priced, that of the layers first."""
    workload, plan, mapping = priced.workload, priced.plan, priced.mapping
    layers = PricedBlock(
        choices=priced.choices,
        codes=priced.codes,
        load=priced.load,
        masks=tuple(priced.masks),
        costs=tuple(priced.costs),
    )
    found = [
        Block(
            workload=workload,
            arrays=workload.graph,
            plan=plan,
            n_tiles=mapping.n_tiles,
            priced=layers,
        )
    ]
    for end, own, one in zip(workload.ends, mapping.ends, priced.ends, strict=True):
        found.append(
            Block(
                workload=workload.of_end(end),
                arrays=end.graph,
                plan=plan_of_end(plan, end),
                n_tiles=own.n_tiles,
                priced=one,
            )
        )
    return tuple(found)


# ---------------------------------------------------------------- chips


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OnChips:
    """What the chips take of a block, arrays of shape (partitions, machines). [s]

    ``device`` is that of a temporal chip, of a spatial one that of its units or its memory.
    ``behind``, shape (kernels, machines), is what of exchanges of sequences work hides at most [s];
    ``joules``, shape (machines,), what memories on the chip take. [J]
    """

    compute: Floats
    memory: Floats
    launch: Floats
    device: Floats
    behind: Floats
    joules: Floats

    def at(self, which: Ints) -> OnChips:
        """Return what machines take of which each has one of these chips."""
        return OnChips(
            **{column.name: getattr(self, column.name)[..., which] for column in fields(OnChips)}
        )


def spatial_chips(block: Block, speed: Floats, faster: Floats) -> OnChips:
    """Return what spatial chips take of a block.

    Parameters
    ----------
    speed, faster : array, shape (machines,)
        Clock and utilization, and bandwidth, over those that the block is priced with. [1]
    """
    costs = block.priced.costs
    compute = np.array([cost.compute for cost in costs])[:, None] / speed
    memory = np.array([cost.memory for cost in costs])[:, None] / faster
    device = combine_arrays(compute, memory, np.zeros(()), block.priced.load.overlap)
    nothing = np.zeros_like(device)
    return OnChips(
        compute=compute,
        memory=memory,
        launch=nothing,
        device=device,
        behind=np.zeros((len(block.priced.codes), device.shape[1])),
        joules=np.zeros(device.shape[1]),
    )


def temporal_chips(each: Sequence[Block]) -> OnChips:
    """Return what temporal chips take of a block, which is priced with ``each`` of them."""
    rows = []
    for block in each:
        temporal, choices, codes = (
            block.priced.load.temporal,
            block.priced.choices,
            block.priced.codes,
        )
        assert temporal is not None
        assert choices.clocked is not None
        terms = np.array([temporal.terms(mask) for mask in block.priced.masks]).T
        behind, joules = choices.context_behind[codes], choices.clocked.joules[codes].sum()
        rows.append((*terms, behind, joules))
    device, compute, memory, launch, behind, joules = map(np.stack, zip(*rows, strict=True))
    return OnChips(
        compute=compute.T,
        memory=memory.T,
        launch=launch.T,
        device=device.T,
        behind=behind.T,
        joules=joules,
    )


# ---------------------------------------------------------------- messages


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    """Bytes that a kernel sends for one sequence: in a collective, or to change a layout.

    ``context`` is what chips that share sequences do. In none of them: to sum gradients.
    ``together`` such messages share what is fixed, ``times`` it is sent. [1]
    """

    collective: Collective | None = None
    change: tuple[Layout, frozenset[Layout]] | None = None
    context: str = ""
    size: float
    together: float
    times: float = 1.0

    def time(self, plan: MeshPlan) -> Floats:
        """Return what it takes by the lines of a plan, arrays of many machines. [s]"""
        if self.change is not None:
            lines = plan.changes[self.change].lines
        elif self.collective is not None:
            lines = plan.collectives[self.collective]
        elif self.context:
            lines = getattr(plan.context_times, self.context)
        else:
            lines = plan.periodic
        return self.times * lines.time(self.size, together=self.together)


def _messages(block: Block, rules: Rules) -> list[list[_Message]]:
    """Return what each kernel sends, read off choices in which one kind of message takes time.

    Where a byte takes a second, the time is the bytes of all messages; where a message does, it is
    their number, over those that share it. What a kernel sends of its own is in the graph; what is
    left are equal messages. Changes of layout are known one by one.
    """
    workload, arrays, plan = block.workload, block.arrays, block.plan
    codes, given = block.priced.codes, (block.n_tiles, rules)
    silent = replace(
        plan,
        collectives=dict.fromkeys(Collective, NOTHING),
        periodic=NOTHING,
        changes={},
        context_times=ContextTimes(),
    )
    together = float(plan.microbatch_size if rules.collectives.once_a_microbatch else 1)

    def probed(kind: Collective | str | None, line: AffineTime) -> list[float]:
        lines = ConcaveTime((line,))
        if isinstance(kind, Collective):
            only = replace(silent, collectives={**silent.collectives, kind: lines})
        elif kind is None:
            only = replace(silent, periodic=lines)
        else:
            only = replace(silent, context_times=ContextTimes(**{kind: lines}))
        choices = make_choices(workload, arrays, only, *given)
        times = choices.data_time[codes] if kind is None else network_times(choices, codes)
        return [float(time) for time in times]

    sent: list[list[_Message]] = [[] for _ in range(arrays.n)]
    known = make_choices(workload, arrays, plan, *given).conversions
    for made in known.made(codes) if plan.changes else ():
        change, times = (made.start, made.ends), made.times
        message = _Message(change=change, size=made.size, together=made.together, times=times)
        sent[made.kernel].append(message)
    kinds: list[Collective | str | None] = [*Collective]
    kinds += [None] if rules.iteration.sums_in_layers else []
    kinds += CONTEXT if plan.context > 1 else ()
    for kind in kinds:
        sizes = probed(kind, AffineTime(per_byte=1.0))
        numbers = probed(kind, AffineTime(fixed=1.0))
        collective = kind if isinstance(kind, Collective) else None
        context = kind if isinstance(kind, str) and collective is None else ""
        for i, messages in enumerate(arrays.messages):
            own = [
                c.size
                for c in messages
                if c.collective is collective and not c.periodic and c.size > 0 and not context
            ]
            sent[i] += [
                _Message(collective=collective, size=size, together=together) for size in own
            ]
            left = numbers[i] - len(own) / together
            if left > (0.5 / together if collective else 0.0):  # but for rounding
                rest = sizes[i] - sum(own)
                sent[i].append(
                    _Message(collective=collective, context=context, size=rest, together=1 / left)
                )
    return sent


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sent:
    """What kernels of a block send, arrays of shape (kernels, machines). [s]

    ``network`` is what takes time, ``gradients`` sums of them by rules that count those in the
    layers, ``context`` how long links are busy for chips that share sequences, and ``waited`` what
    of that work does not hide.
    """

    network: Floats
    gradients: Floats
    context: Floats
    waited: Floats


def sent_by(block: Block, plan: MeshPlan, behind: Floats, rules: Rules) -> Sent:
    """Return what the kernels of a block send by the lines of a plan, arrays of many machines.

    ``behind`` is that of `OnChips`. [s]
    """
    known: dict[_Message, Floats] = {}  # kernels send the same again and again
    network, gradients, context, hops = np.zeros((4, *behind.shape))
    for i, messages in enumerate(_messages(block, rules)):
        for one in messages:
            if one not in known:
                known[one] = one.time(plan)
            summed = one.collective is None and one.change is None and not one.context
            into = gradients if summed else network
            if one.context:
                into = hops if one.context == HOP else context
            into[i] += known[one]
    waited = context + np.maximum(hops - behind, 0.0)
    return Sent(
        network=network + waited, gradients=gradients, context=context + hops, waited=waited
    )


def partition_costs(block: Block, chips: OnChips, sent: Sent) -> tuple[PartitionCost, ...]:
    """Return what the partitions of a block cost, their times arrays of many machines. [s]"""
    found = []
    rows = zip(block.priced.masks, block.priced.costs, strict=True)
    for number, (mask, cost) in enumerate(rows):
        network, time = _joined(block.priced.load, chips, sent, mask, number)
        times: dict[str, Any] = {
            "compute": chips.compute[number],
            "memory": chips.memory[number],
            "network": network,
            "time": time,
            "cost": time,
            "launch": chips.launch[number],
        }
        found.append(replace(cost, **times))
    return tuple(found)


def _joined(
    load: ChipLoad, chips: OnChips, sent: Sent, mask: int, number: int
) -> tuple[Floats, Floats]:
    """Return what the network takes of a partition, and how long that is in all. [s]"""
    members = bits(mask)
    network, data = sent.network[members].sum(axis=0), sent.gradients[members].sum(axis=0)
    network = np.maximum(network, data) if load.network_takes_maximum else network + data
    if load.temporal is not None:
        return network, np.asarray(
            beside_network(chips.device[number], network, load.overlap, np.maximum)
        )
    terms = chips.compute[number], chips.memory[number], network
    return network, combine_arrays(*terms, load.overlap)
