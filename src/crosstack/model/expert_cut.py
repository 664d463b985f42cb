"""Experts that some of the tensor-parallel chips cut: their groups, and what those send.

Of t tensor-parallel chips, the c that are nearest to each other cut each expert that they have, and
the g = t / c groups of so many have other experts each. So of e data-parallel chips that experts
are spread over besides there are g e such groups, each with 1 / (g e) of the experts (expert tensor
parallelism of a part of the chips that share the tensors of attention: ``liu2025folding``).

Every chip of a group has ``1 / c`` of each expert of the group, of which kernels are split as where
all t chips cut them. Tokens lie split over all t chips, T of them with k copies each:

* a chip sends the copies of its own tokens, ``k T / t``, to the chips of their experts: all to all
  among the g e chips that have the same place in their groups; ``(g e - 1) / (g e)`` leave it. Then
  a group gathers what its chips got, ``k T / g`` of each of e, and what its products leave as parts
  of sums is added up over the c chips of a group alone; it goes back the same way.
* where all t chips have all T tokens, each takes those of its own experts, and ``k T / g`` go only
  to the e chips that have the same place among tensor-parallel ones; what comes back as parts of
  sums, each of some of the experts, is added up over all t.
* what chips of a group all have is sent back to every chip that has those tokens: ``k T`` to each.

With c = t that is the one group there is, and with c = 1 what whole experts send where all tokens
are on all t chips; those need nothing from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from crosstack.errors import InputError, Problem
from crosstack.machine.chip import Chip
from crosstack.machine.system import Parallelism, System
from crosstack.model.choice_index import ChoiceIndex
from crosstack.model.collectives import Changes, ConcaveTime, NetworkUse, TokenRoute
from crosstack.model.rules import Rules
from crosstack.records import known_again
from crosstack.workload.functions import Function
from crosstack.workload.kernel_graph import Bools, Floats, Ints, KernelGraph
from crosstack.workload.kernels import Collective
from crosstack.workload.workload import Workload

if TYPE_CHECKING:
    from crosstack.model.mesh_plan import MeshPlan

# Of which tensor-parallel chips a group may be.
GROUPS_ALLOWED = "an etp of chips that fill levels of the network, the last one in part if switched"
WHOLE, PARTIAL = 0, 1  # places of what all chips have, and of parts of sums, among layouts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExpertCut:
    """Tensor-parallel chips in ``groups`` of ``chips`` that cut experts, some of all each. [1]

    ``network`` is its use where the groups are chips of experts; ``lines`` what collectives take
    of the chips of one group, ``changes`` what changes of a layout over them do; ``exchange`` is
    the time in which chips of all groups exchange tokens, over the bytes that one of them has. [s]
    """

    chips: int
    groups: int
    network: NetworkUse
    lines: tuple[tuple[Collective, ConcaveTime], ...]
    changes: Changes
    exchange: ConcaveTime

    @property
    def key(self) -> tuple[object, ...]:
        """What tells it from others that take other times."""
        return self.chips, self.groups, self.lines, self.exchange


def token_route(workload: Workload, chip: Chip) -> TokenRoute:
    """Return where the tokens of a workload with experts go, by what drives a chip."""
    once = chip.framework is None or chip.framework.tokens_once
    for graph in (workload.graph, *(end.graph for end in workload.ends)):
        for i in np.flatnonzero(graph.exchanged)[:1].tolist():
            sent, _, _, nodes, reached = graph.routing[i].tolist()
            copies = sent * int(graph.experts[i])
            return TokenRoute(copies=copies, nodes=nodes, reached=reached, once=once)
    return TokenRoute()


@known_again(256, by_value=4)
def expert_cut(
    workload: Workload,
    system: System,
    rules: Rules,
    sizes: tuple[int, ...],
    parallelism: tuple[Parallelism, ...],
    dimensions: tuple[int, ...],
    chips: int,
) -> ExpertCut:
    """Return what tensor-parallel chips take, of which ``chips`` cut each expert. [1]

    ``sizes``, ``parallelism`` and ``dimensions`` as of `crosstack.mapping.mapping.Mapping`. Raises
    `InputError` where the levels of the network have no such groups.
    """
    network = NetworkUse.of(system, sizes, parallelism, workload.graph.adds_in, dimensions)
    found = network.with_groups(chips)
    if found is None:
        message = f"got {chips}; allowed: {GROUPS_ALLOWED}."
        raise InputError(Problem("expert_tensor", message))
    return ExpertCut(
        chips=chips,
        groups=network.degree(Parallelism.TENSOR) // chips,
        network=found,
        lines=tuple(rules.collectives.kernels(found).items()),
        changes=rules.collectives.changes(found),
        exchange=rules.collectives.tokens(found, token_route(workload, system.chip)),
    )


@lru_cache(maxsize=64)
def inside_experts(graph: KernelGraph) -> Bools:
    """Which kernels of experts make what no other kernels read, shape (n,).

    That lies on the chips of a group; what others read is of tokens, which all chips have parts of.
    """
    inside = graph.experts > 0
    outside = ~inside[graph.target]
    found = inside.copy()
    found[graph.source[outside]] = False
    return found


def changes_of(plan: MeshPlan, graph: KernelGraph, kernel: int) -> Changes:
    """Return what changes of the layout take of what a kernel makes under a plan."""
    if plan.cut_over is not None and inside_experts(graph)[kernel]:
        return plan.cut_over.changes
    return plan.changes


def exchange_times(
    plan: MeshPlan, graph: KernelGraph, index: ChoiceIndex, size: Floats, *, together: Any
) -> Floats:
    """Time in which a chip exchanges tokens under every choice, (choices,). [s]

    Parameters
    ----------
    size : array, shape (choices,)
        What it has of what goes to experts, or comes back. [B]
    together : array or int
        Sequences a message. [1]
    """
    cut = plan.cut_over
    if cut is None:
        return plan.exchange.time(size, together=together)
    gathers, lies = _tokens_lie(graph, index)
    all_of = np.where(~gathers & (lies == WHOLE), cut.groups * size, size)
    among_groups = cut.exchange.time(all_of, together=together)
    among_data = plan.exchange.time(size, together=together)
    return np.where(lies == np.where(gathers, WHOLE, PARTIAL), among_data, among_groups)


@lru_cache(maxsize=64)
def _tokens_lie(graph: KernelGraph, index: ChoiceIndex) -> tuple[Bools, Ints]:
    """Return which choices send tokens to experts, and how those lie there, or what comes back.

    As places among layouts, (choices,) each.
    """
    row = index.kernel
    ends = np.concatenate([graph.splits, np.zeros((graph.n, 2, 3), dtype=np.int64)], axis=1)
    ends[:, -1] = PARTIAL
    gathers = np.array([name == Function.GATHER for name in graph.functions], dtype=np.bool_)[row]
    return gathers, np.where(gathers, ends[row, index.axis, 0], ends[row, index.axis, 2])
