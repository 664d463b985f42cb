"""What chips that share sequences send one another for attention, and which may.

Of c chips, by kernel that reads or makes all keys or values, S bytes of them on a chip:

* ``all-gather``: all S come before a kernel reads them, and sums of S that a kernel made go back
  (``grattafiori2024llama3``, section 3.3.2);
* ``ring``: blocks of ``S / c`` go on to the next chip c - 1 times. While a chip works on one the
  next comes, so that of each is waited for what is longer than the work on a block, the c-th of the
  kernel's: ``(c - 1) max(0, hop(S / c) - work / c)`` (``liu2024ringattention``, section 3);
* ``ulysses``: queries, keys, values and what attention makes, and their gradients, are exchanged
  all to all, each the bytes that a chip has (``jacobs2023ulysses``, section 3.1).

Keys and values are sent once forward and once backward, there with their gradients; once more
forward where the whole layer is computed again. Where attention alone is, the backward pass reads
what came for it anyway.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from crosstack.machine.chip import Chip, Execution, Overlap
from crosstack.machine.framework import Framework
from crosstack.machine.system import System
from crosstack.model.boundary import Shares, operand_share
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.rules import Rules
from crosstack.workload.kernel_graph import Bools, Floats, Ints, KernelGraph
from crosstack.workload.kernels import Placement
from crosstack.workload.passes.context_parallel import PIECES, crosses, heads_of
from crosstack.workload.transformer_training import ContextExchange, Hidden, Recompute
from crosstack.workload.workload import Workload

ROUNDING = 1e-9  # relative, of times that are added and taken off again
RING_BLOCKS = 2  # of keys or values that a chip has besides its own: one at work, one on its way


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sent:
    """What every choice sends of keys and values, shape (choices,), all times that it runs.

    ``waited`` is what attention waits for, ``busy`` how long links are, ``behind`` what of that
    its work hides at most [s]; ``held`` is what a chip has of other chips' keys and values while it
    works on them. [B]
    """

    waited: Floats
    busy: Floats
    behind: Floats
    held: Floats


def context_sent(
    arrays: KernelGraph,
    plan: MeshPlan,
    shares: Shares,
    *,
    made: Floats,
    together: Ints,
    twice: Bools,
    work: Floats | None,
) -> Sent:
    """Return what chips of a plan that share sequences send for attention, for one sequence.

    Parameters
    ----------
    arrays : KernelGraph
        Of one such chip.
    made : array, shape (choices,)
        What each makes on it. [B]
    together : array
        Sequences a message. [1]
    twice : array, shape (choices,)
        Whether it runs again.
    work : array or None
        Time of each without main memory, behind which blocks of a ring hide; None where nothing
        hides by itself. [s]
    """
    row, degree, times = shares.kernel, plan.context, plan.context_times
    nothing = np.zeros(len(row))
    if degree == 1:
        return Sent(waited=nothing, busy=nothing, behind=nothing, held=nothing)
    again = 1 + twice * (plan.recompute is Recompute.FULL)
    if plan.context_exchange is ContextExchange.ULYSSES:
        size = np.where(crosses(arrays)[row], made, 0.0)
        busy = times.exchange.time(size, together=together) * again
        return Sent(waited=busy, busy=busy, behind=nothing, held=nothing)
    read = operand_share(arrays, arrays.across[:, :2], shares)
    summed = np.where(arrays.across[row, 2], made, 0.0)
    if plan.context_exchange is ContextExchange.ALL_GATHER:
        busy = times.gather.time(read, together=together)
        busy = (busy + times.scatter.time(summed, together=together)) * again
        held = read * ~arrays.backward[row]
        return Sent(waited=busy, busy=busy, behind=nothing, held=held)
    hop = times.hop.time((read + summed) / degree, together=together)
    behind = nothing if work is None else work / degree
    return Sent(
        waited=(degree - 1) * np.maximum(hop - behind, 0.0) * again,
        busy=(degree - 1) * hop * again,
        behind=(degree - 1) * behind * again,
        held=RING_BLOCKS * read * ~arrays.backward[row] / degree,
    )


def results_sent(arrays: KernelGraph, plan: MeshPlan, network: Floats, waited: Floats) -> Floats:
    """Return what exchanging the result of each kernel takes, shape (n,). [s]

    Keys and values that come to a kernel are none; gradients of them that go leave the chip even
    where nothing waits for them.

    Parameters
    ----------
    network, waited : array, shape (n,)
        What each sends, and of that what is for attention. [s]
    """
    if plan.context == 1:
        return network
    heads = plan.context_exchange is ContextExchange.ULYSSES
    leaves = crosses(arrays) if heads else arrays.across[:, 2]
    others = np.where(network > waited * (1 + ROUNDING), network, 0.0)
    return np.where(leaves, np.maximum(network, np.finfo(float).tiny), others)


def hides_blocks(plan: MeshPlan, chip: Chip | None) -> bool:
    """Whether blocks of a ring come while a chip works on others, kernel by kernel.

    Not where sends are said to run by themselves. Where a chip overlaps all that it sends, its
    partitions do.
    """
    if chip is None or chip.execution is Execution.SPATIAL or chip.overlap is Overlap.ALL:
        return False
    return plan.hidden is None or Hidden.SENDS in plan.hidden


def shared_tokens(workload: Workload, rules: Rules) -> int:
    """Return what the number of chips that share a sequence divides: 1 where none may. [1]

    Each has two pieces of as many tokens, one from the front and one from the back.
    """
    if not rules.collectives.shares_sequences or rules.iteration.sums_in_layers:
        return 1
    if workload.placement is not Placement.SEARCHED or not workload.attends:
        return 1
    tokens = workload.item_length
    return tokens // PIECES if tokens % PIECES == 0 else 1


def exchanges_for(
    workload: Workload, framework: Framework | None, tensor: int, context: int
) -> tuple[ContextExchange, ...]:
    """Return how so many chips that share a sequence may exchange, tensor-parallel ones beside."""
    if context == 1:
        return (ContextExchange.RING,)  # which none makes use of
    whole = _heads(workload) % (tensor * context) == 0
    return tuple(
        one for one in _run_by(workload, framework) if whole or one is not ContextExchange.ULYSSES
    )


def _run_by(workload: Workload, framework: Framework | None) -> tuple[ContextExchange, ...]:
    """Return how a framework exchanges keys and values, with windows where there are some."""
    found: tuple[ContextExchange, ...] = ()
    if framework is not None:
        found = framework.window_contexts if _windowed(workload) else ()
        found = found or framework.contexts
    return found or tuple(ContextExchange)


def _windowed(workload: Workload) -> bool:
    tensors = () if workload.made_of is None else workload.made_of.graph.tensors
    return any(one.mask is not None and one.mask.window for one in tensors)


def _heads(workload: Workload) -> int:
    """Heads of keys and values that divide among chips: of all layers. [1]"""
    graphs = (workload.graph, *(end.graph for end in workload.ends))
    return math.gcd(*(heads_of(graph) for graph in graphs if graph.attends.any()))


def context_refused(
    workload: Workload,
    system: System,
    rules: Rules,
    *,
    tensor: int,
    context: int,
    exchange: ContextExchange | None,
) -> str:
    """Say what is allowed in place of chips that cannot share sequences so; nothing if they can."""
    if context == 1:
        return ""
    tokens = shared_tokens(workload, rules)
    if tokens == 1:
        why = "attends over an even number of tokens of its own by these rules"
        return f"cp=1, as no part of {workload.name} {why}"
    if tokens % context:
        good = [n for n in range(1, 2 * context) if tokens % n == 0]
        near = [*[n for n in good if n < context][-1:], *[n for n in good if n > context][:1]]
        close = " or ".join(f"cp={n}" for n in near)
        whole = tokens * PIECES
        return f"cp so that 2 cp divides the sequence of {whole:,} tokens. Nearest: {close}"
    framework = system.chip.framework
    run = _run_by(workload, framework)
    if exchange is not None and exchange not in run and framework is not None:
        windows = ", of a model with windows" if _windowed(workload) else ""
        return f"context-exchange={' or '.join(run)} with {framework.name}{windows}"
    allowed = exchanges_for(workload, framework, tensor, context)
    if exchange is not None and exchange not in allowed:
        return (
            f"tp x cp that divides {_heads(workload):,} heads of keys and values with {exchange}, "
            f"not {tensor} x {context}; or context-exchange={' or '.join(allowed)}"
        )
    return ""
