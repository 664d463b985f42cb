"""What a chip keeps in its main memory: of a graph, of its copies, on the fullest stage.

By what it is and by stage it is told by `crosstack.model.memory_account`.

*Activations* are what the backward pass reads of the forward pass, derived from the graph: results
of forward kernels that backward kernels read, operands from outside that backward kernels read
beside a gradient, and what a derivative needs besides (`crosstack.workload.kernels.Saved`), each
tensor once. Every copy of the graph that a stage holds keeps its own for every microbatch in
flight. Of what is computed again (`Recompute`), only what goes in and what comes out is kept; the
rest is there for one copy and one microbatch at a time. They lie as the chips that make them hold
them: split over the chips of a tensor-parallel group, or whole on each.

Sources: ``korthikanti2023reducing`` for what is kept and computed again (its equations 1, 2 and 4
are what a layer of GPT comes to), ``huang2019gpipe`` and ``narayanan2021megatron`` for microbatches
in flight, ``rajbhandari2020zero`` for gradients and optimizer state.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crosstack.model.attention import attention_core, in_attentions
from crosstack.model.boundary import Shares, operand_share
from crosstack.model.kept_by_two import kept_by_two, kept_of_end, kept_slope, microbatches_kept
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.offload import RUNNING
from crosstack.model.rules import Rules
from crosstack.model.several_kernels import kept_besides
from crosstack.model.stage_layers import chip_layers, layers_of
from crosstack.model.state import state_away, state_held
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernel_graph import Bools, Floats, Ints, KernelGraph
from crosstack.workload.transformer_training import Recompute
from crosstack.workload.workload import Workload

MASK = 1  # bytes of an element of a mask
STATE = ("weights", "gradients", "optimizer_state")
AT_ONCE = 2  # copies of the graph of which a chip that holds shares has whole weights
LIVE = "live"
ROUNDING = 1e-12  # relative, of sums of bytes against a capacity
# What `copy_memory` takes of the columns of choices.
COPY_COLUMNS = ("weight", "cache", "kept", "again", "waiting")
# Rows of `CopyMemory`.
COPY_ROWS = (*STATE, "caches", "buffers", "kept", "again", "waiting")


# ---------------------------------------------------------------- what a graph keeps


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeptTensors:
    """What one copy of a graph keeps of each kernel until its backward pass.

    ``output`` and ``mask``, shape (n,): its result, a byte for every element of it; ``operands``,
    shape (n, 2): its operands from outside.
    """

    output: Bools
    mask: Bools
    operands: Bools


@lru_cache(maxsize=256)
def computed_again(arrays: KernelGraph, recompute: Recompute) -> Bools:
    """Which forward kernels the backward pass runs again, shape (n,); none where there is none."""
    none = np.zeros(arrays.n, dtype=np.bool_)
    if recompute is Recompute.NONE or not arrays.backward.any():
        return none
    return ~arrays.backward if recompute is Recompute.FULL else attention_core(arrays)


def recomputations(arrays: KernelGraph, rules: Rules) -> tuple[Recompute, ...]:
    """Return the kinds of recomputation that differ for a graph, least first."""
    if not (rules.memory.keeps_activations and arrays.backward.any()):
        return (Recompute.NONE,)
    core = attention_core(arrays)
    some = (Recompute.ATTENTION,) if core.any() and (core != ~arrays.backward).any() else ()
    return (Recompute.NONE, *some, Recompute.FULL)


def searched_recomputations(arrays: KernelGraph, rules: Rules) -> tuple[Recompute, ...]:
    """Return the kinds of recomputation of which each keeps less than the one before.

    Attention that makes its scores once more in its backward pass keeps as little as if all of it
    ran again.
    """
    kinds = recomputations(arrays, rules)
    anew = bool((arrays.remade >= 0).any())
    return tuple(kind for kind in kinds if not (anew and kind is Recompute.ATTENTION))


@lru_cache(maxsize=256)
def kept_tensors(arrays: KernelGraph, recompute: Recompute = Recompute.NONE) -> KeptTensors:
    """Return what one copy of a graph keeps for its backward pass.

    An operand from outside is kept where a forward kernel's derivative needs it, and where a
    backward kernel reads it beside the gradient that another one makes; a backward kernel that no
    other feeds takes the gradient itself from outside. What is computed again keeps the operands
    that come from outside of it, and results that kernels not computed again have read. Where the
    graph says which operands are one tensor, that is kept once, as the first forward kernel reads
    it, if the backward pass reads it or computes a reader again; what the backward pass alone reads
    is a gradient. Nothing is kept of what the backward pass makes once more.
    """
    n, forward = arrays.n, ~arrays.backward
    output = np.zeros(n, dtype=np.bool_)
    if not arrays.backward.any():
        return KeptTensors(output=output, mask=output, operands=np.zeros((n, 2), dtype=np.bool_))
    again = computed_again(arrays, recompute)
    source, target = arrays.source, arrays.target
    anew = np.isin(np.arange(n), arrays.remade)
    came, read = forward[source], forward[target]
    made = came & ~anew[source]
    needed = made & (~read | arrays.saved_input[target])
    output[source[needed]] = True
    output |= arrays.saved_output & forward & ~anew
    passed_on = np.zeros(n, dtype=np.bool_)
    passed_on[source[made & read & ~again[target]]] = True
    output &= ~again | passed_on
    output[source[made & ~again[source] & again[target]]] = True
    fed = np.zeros(n, dtype=np.bool_)
    fed[target[~came]] = True
    kept = np.where(forward, arrays.saved_input & ~again | again, fed)
    operands = arrays.open_inputs & kept[:, None]
    # Both from outside: the gradient and what is beside it.
    operands[:, 1] |= arrays.backward & ~fed & arrays.open_inputs.all(axis=1)
    operands &= arrays.outside < 0
    for tensor in range(int(arrays.outside.max()) + 1):
        readers, places = np.nonzero(arrays.outside == tensor)
        before = np.flatnonzero(forward[readers])
        if before.size and (before.size < readers.size or again[readers].any()):
            operands[readers[before[0]], places[before[0]]] = True
    return KeptTensors(output=output, mask=arrays.saved_mask & ~again & ~anew, operands=operands)


@lru_cache(maxsize=256)
def masks_moved(arrays: KernelGraph) -> Bools:
    """Which kernels write a mask to main memory or read it there, shape (n,).

    Not those of attention that makes its scores once more, which draws them once more, too.
    """
    if not (arrays.remade >= 0).any():
        return arrays.masked
    return np.asarray(arrays.masked & ~in_attentions(arrays))


@lru_cache(maxsize=256)
def weight_gradients(arrays: KernelGraph) -> Bools:
    """Which kernels make gradients of weights, shape (n,)."""
    return arrays.backward & (arrays.periodic_size > 0)


@lru_cache(maxsize=256)
def waiting_tensors(arrays: KernelGraph) -> KeptTensors:
    """Return what one copy of a graph keeps for gradients of weights that are computed later.

    What their kernels read, each tensor once: results of the forward pass, as they are or computed
    again, and gradients of results. Source: qi2024zero, section 2.
    """
    reads = weight_gradients(arrays)
    output = np.zeros(arrays.n, dtype=np.bool_)
    output[arrays.source[reads[arrays.target]]] = True
    operands = arrays.open_inputs & reads[:, None] & (arrays.outside < 0)
    for tensor in range(int(arrays.outside.max()) + 1):
        readers, places = np.nonzero((arrays.outside == tensor) & reads[:, None])
        operands[readers[:1], places[:1]] = True
    return KeptTensors(output=output, mask=np.zeros_like(output), operands=operands)


def activation_sizes(
    workload: Workload,
    arrays: KernelGraph,
    plan: MeshPlan,
    elements: Ints,
    shares: Shares,
    rules: Rules,
) -> tuple[Floats, Floats, Floats]:
    """Bytes that one copy keeps of a kernel of one sequence, under every choice. [B]

    Returns what is kept until the backward pass; what there is besides while the copy is computed
    again, which may be negative for a kernel, not in sum; and what is kept from then on where
    gradients of weights wait.

    Parameters
    ----------
    elements : array, shape (choices,)
        Of the kernel's result, on one chip. [1]
    shares : Shares
        Of the choices.
    """
    if not (rules.memory.keeps_activations and workload.training):
        nothing = np.zeros(len(elements))
        return nothing, nothing, nothing

    besides = kept_besides(arrays, plan.driven)

    def size(kept: KeptTensors, more: Floats | float = 0.0) -> Floats:
        operands = operand_share(arrays, kept.operands, shares)
        each = (kept.output + more) * arrays.output_element + kept.mask * MASK
        return np.asarray(elements * each[shares.kernel] + operands)

    whole, waiting = size(kept_tensors(arrays), besides), size(waiting_tensors(arrays))
    if plan.recompute is Recompute.NONE:
        return whole, np.zeros_like(whole), waiting
    rest = besides * ~computed_again(arrays, plan.recompute)
    kept = size(kept_tensors(arrays, plan.recompute), rest)
    return kept, whole - kept, waiting


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CopyMemory:
    """What one copy of the graph takes of a chip, by kernel, shape (n,), or (plans, n). [B]

    ``weights``, ``gradients``, ``optimizer_state``, ``caches`` and ``buffers`` (what a kernel sets
    aside) all the time; ``kept``, ``again`` and ``waiting`` of one sequence, see
    `activation_sizes`. ``experts``, shape (n,): whose weights are those of routed experts that
    data-parallel chips have parts of.
    """

    weights: Floats
    gradients: Floats
    optimizer_state: Floats
    caches: Floats
    buffers: Floats
    kept: Floats
    again: Floats
    waiting: Floats
    experts: Bools

    @property
    def resident(self) -> Floats:
        """Bytes of each kernel that stay whatever runs, on a chip that shares none. [B]"""
        state = self.weights + self.gradients + self.optimizer_state
        return np.asarray(state + self.buffers + self.caches)

    def held(self, plan: MeshPlan) -> Floats:
        """Bytes of all kernels that stay whatever runs, on a chip of a plan. [B]"""
        rest = (self.buffers + self.caches).sum(axis=-1)
        return np.asarray(sum(self.state(plan)) + rest)

    def state(self, plan: MeshPlan) -> tuple[Any, ...]:
        """Bytes of `STATE` of all kernels, on a chip of a plan. [B]"""
        sizes = [getattr(self, row) for row in STATE]
        whole = (size.sum(axis=-1) for size in sizes)
        if not self.experts.any():
            return state_held(plan, *whole)
        return state_held(plan, *whole, *(size[..., self.experts].sum(axis=-1) for size in sizes))


def passing_size(plan: MeshPlan, weights: Any, copies: Any) -> Any:
    """Bytes of whole weights and gradients that a chip has while it runs what it holds shares of.

    Of two ``copies`` of the graph that have ``weights`` each, if there are two: the one that runs,
    and the one whose weights come or whose gradients go. [B] Source: zhao2023fsdp.
    """
    gradients = (plan.exchanged > 0) / plan.weight_share
    return weights * np.minimum(copies, AT_ONCE) * (gradients + (plan.exchanged > 1))


def gradient_size(workload: Workload, plan: MeshPlan, rules: Rules) -> Any:
    """Bytes of the gradient of a weight, with that as products make it where it lies besides. [B]

    Of a framework that has `Framework.buckets`, where data-parallel chips sum gradients.
    """
    kept = rules.memory.as_trained(workload).gradient_bytes
    framework = plan.framework
    if framework is None or not framework.buckets or workload.gradients is None:
        return kept
    return kept + max(workload.graph.dtype.size, Dtype.BF16.size) * np.greater(plan.data, 1)


def copy_memory(
    workload: Workload,
    arrays: KernelGraph,
    plan: MeshPlan,
    rules: Rules,
    *,
    weight: Floats,
    cache: Floats,
    kept: Floats,
    again: Floats,
    waiting: Floats,
) -> CopyMemory:
    """Return what one copy of the graph takes of a chip.

    A training graph names each weight twice, in its forward and its backward kernel; gradient and
    optimizer state exist once. What of those data-parallel chips share is said by `state_held`. Of
    a weight that copies have in common, each has its share: a chip has all of them.

    Parameters
    ----------
    weight, cache : array, shape (n,)
        Of each kernel on one chip; of one sequence. [B]
    kept, again, waiting : array, shape (n,)
        See `activation_sizes`. [B]
    """
    arrays = plan.graph(arrays)
    weight = weight / arrays.sharers
    forward = np.where(arrays.backward, 0.0, weight)
    parameters = forward / arrays.weight_element if workload.training else np.zeros(arrays.n)
    copies = arrays.weight_held / arrays.weight_element
    trained = rules.memory.as_trained(workload)
    return CopyMemory(
        weights=rules.memory.weights(weight * copies, forward * copies),
        gradients=gradient_size(workload, plan, rules) * parameters,
        optimizer_state=trained.optimizer_bytes * parameters,
        caches=cache * -(-workload.global_batch_size // plan.data),
        buffers=arrays.memory_extra,
        kept=kept,
        again=again,
        waiting=waiting,
        experts=(arrays.experts > 0) & (plan.expert > 1),
    )


def static_size(workload: Workload, plan: MeshPlan, memory: CopyMemory) -> Floats:
    """Bytes on the fullest chip whatever runs: all but the tensors between kernels. [B]"""
    return static_sizes(workload, plan, memory)[0]


def static_sizes(workload: Workload, plan: MeshPlan, memory: CopyMemory) -> tuple[Floats, Floats]:
    """Return `static_size`, and the same while an end runs, with what that has alive. [B]"""
    data = _kept_together(workload, plan, memory)
    if plan.offloaded.kinds:  # nothing of what the host has no room for fits
        away = np.maximum.reduce([host_held(plan, memory, s) for s in (0, plan.pipeline - 1)])
        data = data + np.where(away > plan.offloaded.capacity * (1 + ROUNDING), np.inf, 0.0)
    if _alike(plan):
        own = memory.held(plan) * plan.layers_per_stage
        size = np.asarray(own + data + activations_held(plan, memory))
        return size, size
    idle, running = [], []
    for _, _, layers, rows in _stages(plan, memory):
        of_ends = sum(size for row, size in rows.items() if row != LIVE)
        idle.append(layers + of_ends)
        running.append(layers + (of_ends + rows.get(LIVE, 0.0)))
    return (
        np.asarray(data + np.maximum.reduce(idle)),
        np.asarray(data + np.maximum.reduce(running)),
    )


def _kept_together(workload: Workload, plan: MeshPlan, memory: CopyMemory) -> Any:
    """Bytes of what all chips keep together, and of weights that are whole while they run. [B]"""
    weights = memory.weights.sum(axis=-1)
    return data_size(workload, plan) + passing_size(plan, weights, plan.layers_per_stage)


def _alike(plan: MeshPlan) -> bool:
    """Whether no stage has more in its memory than the first."""
    return not (plan.has_ends or plan.schedule.defers_weights or np.any(plan.spared))


def _stages(plan: MeshPlan, memory: CopyMemory) -> Iterator[tuple[Any, Any, Any, EndRows]]:
    """Yield stages of which one is the fullest: its layers, their bytes, and its ends'. [1], [B]"""
    held = memory.held(plan)
    for stage, rows in _fullest(plan, *end_sizes(plan)):
        copies = chip_layers(plan, stage)
        kept = activations_held(plan, memory, stage=stage, copies=copies)
        yield stage, copies, held * copies + kept, rows


@dataclass(frozen=True, slots=True)
class KeptSlopes:
    """What the fullest stage has at least where choices keep more than the least. [B]

    ``least`` for the least of each kernel; for each byte more that a kernel keeps of a sequence, or
    has besides while it is computed again, ``kept`` and ``again`` more. [1]
    """

    least: float
    kept: float
    again: float


def kept_slopes(workload: Workload, plan: MeshPlan, memory: CopyMemory) -> KeptSlopes | None:
    """Return how main memory grows with what choices keep at least; None where that is not known.

    Of the stage that is the fullest where all keep least. What waits for gradients of weights may
    be what is kept anyway: so much is left out.
    """
    both_ends = plan.schedule.both_ends
    if (plan.schedule.ends_meet and not both_ends) or plan.offloaded.activations:
        return None
    found = list[tuple[float, float, float]]()
    if _alike(plan):
        layers = memory.held(plan) * plan.layers_per_stage + activations_held(plan, memory)
        found.append((float(layers), 0.0, float(plan.layers_per_stage)))
    else:
        for stage, copies, layers, rows in _stages(plan, memory):
            of_ends = sum(size for row, size in rows.items() if row != LIVE)
            found.append((float(layers + of_ends), float(stage), float(copies)))
    size, stage, count = max(found)
    whole = max(count - float(plan.layers_again), 0.0)
    flying, waits = float(microbatches_kept(plan, stage)), plan.schedule.defers_weights
    each = plan.microbatch_size * float(count > 0)
    if both_ends:  # all layers compute again, or none
        own, waiting = (x.sum(axis=-1) for x in (memory.kept, memory.waiting))
        slope = float(kept_slope(plan, own, waiting, stage))
        return KeptSlopes(
            least=size + float(_kept_together(workload, plan, memory)),
            kept=plan.microbatch_size * slope,
            again=float(plan.microbatch_size),
        )
    return KeptSlopes(
        least=size + float(_kept_together(workload, plan, memory)),
        kept=each * count * (flying - waits),
        again=each * (whole * (flying - waits) + float(plan.again > 0)),
    )


def host_held(plan: MeshPlan, memory: CopyMemory, stage: ArrayLike) -> Floats:
    """Bytes that chips of stages have in the memory of their host. [B]"""
    return np.asarray(sum(host_rows(plan, memory, stage)))


def host_rows(plan: MeshPlan, memory: CopyMemory, stage: ArrayLike) -> tuple[Floats, Floats]:
    """Bytes of the optimizer's state, with gradients, and of activations on the host. [B]

    The first and the last stage have what their ends update besides.
    """
    at, copies = np.asarray(stage), chip_layers(plan, stage)
    sizes = [getattr(memory, row) for row in STATE]
    whole = [size.sum(axis=-1) for size in sizes]
    whole += [size[..., memory.experts].sum(axis=-1) for size in sizes]
    state = state_away(plan, *whole) * copies
    for place, end in zip((0, plan.pipeline - 1), plan.ends, strict=True):
        own = [getattr(end, row) for row in STATE]
        own += [end.expert_weights, end.expert_gradients, end.expert_state]
        there = np.equal(at, 0 if plan.schedule.ends_meet else place)
        if plan.schedule.both_ends:
            there = there | np.equal(at, plan.pipeline - 1)
        state = state + state_away(plan, *own) * there
    kept = np.zeros_like(state)
    if plan.offloaded.activations:
        each = memory.kept.sum(axis=-1) * plan.microbatch_size
        kept = each * copies * microbatches_kept(plan, stage)
    return np.asarray(state), np.asarray(kept)


EndRows = dict[str, Any]  # bytes of ends on a chip of a stage, by row of an account [B]


def _fullest(plan: MeshPlan, first: EndRows, last: EndRows) -> list[tuple[Any, EndRows]]:
    """Return the stages of which one is the fullest, or arrays of them, with what ends have there.

    Without ends and with gradients of weights that wait, what a stage keeps changes by as much from
    one to the next of as many copies.
    """
    p: Any = np.asarray(plan.pipeline)
    stages: list[Any] = []
    if plan.schedule.both_ends:  # a chip has two stages, and chips of both halves have the same
        most, inner = p // 2 - 1, plan.graph_repetitions - layers_of(plan, 0)
        inner = inner - layers_of(plan, p - 1)
        longer = [plan.graph_repetitions % p - 1, inner % np.maximum(p - 2, 1)]
        stages = [np.minimum(1, most), most]
        stages += [np.clip(stage, 0, most).astype(int) for stage in longer]
        return [(0, first), *((stage, {}) for stage in stages)]
    if plan.schedule.defers_weights:
        stages.append((plan.graph_repetitions % p - 1) % p)
    if np.any(plan.spared):  # those between the ends hold more, the first of them one more
        inner = plan.graph_repetitions - layers_of(plan, 0) - layers_of(plan, p - 1)
        longer = (inner % np.maximum(p - 2, 1)).astype(int)
        stages += [np.minimum(1, p - 1)]
        stages += [longer, np.maximum(p - 2, 0)] * plan.schedule.defers_weights
    return [(0, first), *((stage, {}) for stage in stages), (p - 1, last)]


def end_sizes(plan: MeshPlan) -> tuple[EndRows, EndRows]:
    """Return what ends have on a chip of the first and of the last stage, by row. [B]

    What a kernel at a time has alive is in a row of its own, `LIVE`; what two ends have on one chip
    adds up, but for that.
    """
    if not plan.has_ends:
        return {}, {}
    own = list[EndRows]()
    for is_last, end in zip((False, True), plan.ends, strict=True):
        sizes = [getattr(end, row) for row in STATE]
        sizes += [end.expert_weights, end.expert_gradients, end.expert_state]
        rows = dict(zip(STATE, state_held(plan, *sizes), strict=True))
        rows |= {"caches": end.caches}
        rows["buffers"] = end.buffers + passing_size(plan, end.weights, 1)
        rows["logits"] = end.kept * plan.microbatch_size * kept_of_end(plan, is_last=is_last)
        rows[LIVE] = end.live * plan.microbatch_size * plan.schedule.at_once
        own.append(rows)
    alone = np.equal(plan.pipeline, 1) | plan.schedule.ends_meet  # a chip has both ends
    first, last = own
    both = {row: size + last[row] for row, size in first.items()}
    both[LIVE] = np.maximum(first[LIVE], last[LIVE])
    one, other = ({row: np.where(alone, both[row], e[row]) for row in both} for e in own)
    if plan.schedule.ends_meet and not plan.schedule.both_ends:  # the last chip has none
        other = {row: np.where(np.equal(plan.pipeline, 1), size, 0.0) for row, size in both.items()}
    return one, other


def data_size(workload: Workload, plan: MeshPlan) -> float:
    """What a chip has of data that all chips keep together, in equal shares. [B]"""
    return workload.data_size / math.prod(plan.sizes)


def activations_held(
    plan: MeshPlan, memory: CopyMemory, *, stage: ArrayLike = 0, copies: ArrayLike | None = None
) -> Floats:
    """What stages with so many copies keep for their backward passes. [B]

    The first keeps most, but where gradients of weights wait: stage s of p has p - s microbatches
    whose backward pass is to come, and s whose gradients of weights are (ZB-H2: ``2 (p - s) - 1``
    and ``2 s``), and one of the former then becomes one of the latter. Copies beyond those that
    compute again keep all; of the others one at a time has the rest. Of chips with both ends of a
    model see `kept_by_two`.
    """
    kept, again = memory.kept.sum(axis=-1), memory.again.sum(axis=-1)
    count = np.asarray(plan.layers_per_stage if copies is None else copies)
    if plan.schedule.ends_meet:
        held = kept_by_two(plan, kept, memory.waiting.sum(axis=-1), stage) + again
        return np.asarray(plan.microbatch_size * held)
    whole = np.maximum(count - plan.layers_again, 0.0)
    if plan.offloaded.activations:
        held = kept * np.minimum(count, RUNNING) + again
    else:
        held = (kept * count + again * whole) * microbatches_kept(plan, stage)
        held = held + again * np.greater(plan.again, 0)
    if plan.schedule.defers_weights:
        waiting = memory.waiting.sum(axis=-1)
        held = held + count * waiting * plan.schedule.ahead * np.asarray(stage)
        held = held + (count - whole) * np.maximum(waiting - kept, 0.0)
        held = held + whole * np.maximum(waiting - kept - again, 0.0)
    return np.asarray(plan.microbatch_size * np.where(count > 0, held, 0.0))
