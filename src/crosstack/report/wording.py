"""Words of every report: numbers with their units, tables, what machines and decisions are called.

Nothing is computed here beyond formatting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

from crosstack.machine.chip import Chip
from crosstack.machine.compute import Compute
from crosstack.machine.system import Dimension, System
from crosstack.mapping.mapping import Constraints, Mapping, Task
from crosstack.model.rules import Rules, rules_named
from crosstack.units import format_quantity
from crosstack.workload.kernel_graph import KernelGraph
from crosstack.workload.kernels import Axis
from crosstack.workload.transformer_training import (
    ContextExchange,
    Hidden,
    Offload,
    Recompute,
    Zero,
)
from crosstack.workload.workload import Workload

NOT_GIVEN = "not given"
HOUR, DAY, KWH, MILLION = 3600.0, 86400.0, 3.6e6, 1e6
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of text under a header; ``numeric`` says which columns line up on the right."""

    header: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]


def table_of(items: Iterable[Item], *columns: tuple[str, str, Callable[[Item], str]]) -> Table:
    """Return a row for each item.

    A column is its heading, ``<`` or ``>`` for the side on which its cells line up, and what an
    item says there.
    """
    return Table(
        header=tuple(heading for heading, _, _ in columns),
        numeric=tuple(side == ">" for _, side, _ in columns),
        rows=tuple(tuple(cell(item) for _, _, cell in columns) for item in items),
    )


def time_words(time: float, digits: int = 4) -> str:
    """Return a time as a person writes it; a bound of no size is ``unknown``. [s]"""
    return format_quantity(time, "s", digits) if math.isfinite(time) else "unknown"


def percent(share: float, digits: int = 3) -> str:
    """Return a share of 1 in percent."""
    return f"{100 * share:.{digits}g} %"


def usd(price: float | None) -> str:
    """Return a price, to the dollar where it is more than a few. [USD]"""
    if price is None:
        return NOT_GIVEN
    return f"{price:,.0f} USD" if price >= 100 or price == 0 else f"{price:.4g} USD"


def watts(power: float | None) -> str:
    """Return a power. [W]"""
    return NOT_GIVEN if power is None else format_quantity(power, "W")


def plural(count: int, noun: str) -> str:
    """Return ``1 kernel``, ``2 kernels``."""
    return f"{count:,} {noun if count == 1 else many(noun)}"


_IRREGULAR = {"matrix": "matrices"}


def many(noun: str) -> str:
    """Return the plural of a noun: matrices, ``batches of 64 samples``."""
    head, of, what = noun.partition(" of ")
    ending = "ies" if head.endswith("y") else "es" if head.endswith(("ch", "s", "x")) else "s"
    return _IRREGULAR.get(head, head.removesuffix("y" * (ending == "ies")) + ending) + of + what


def one(noun: str) -> str:
    """Return ``a sequence``, ``an image``."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def throughput_words(workload: Workload, rate: float) -> str:
    """Return so many items a second, and what they consist of: ``2 sequences/s``. [1/s]"""
    words = f"{grouped(rate)} {many(workload.item)}{' a second' if ' ' in workload.item else '/s'}"
    if workload.item_part:
        words += f", {grouped(rate * workload.item_length)} {many(workload.item_part)}/s"
    return words


def common_scale(times: Iterable[float]) -> tuple[str, float, int]:
    """Return the unit for a column of times, its worth and the decimals the longest needs. [s]"""
    longest = max((t for t in times if math.isfinite(t)), default=0.0)
    units = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
    unit, worth = next((u for u in units.items() if longest >= u[1]), ("ns", 1e-9))
    shown = longest / worth
    return unit, worth, 3 if shown < 10 else 2 if shown < 100 else 1


def scaled(time: float, worth: float, decimals: int) -> str:
    """Return a time in a common unit; what would round to nothing is ``<0.001``. [s]"""
    if time == 0:
        return "0"
    least = 10.0**-decimals
    if time / worth < least / 2:
        return f"<{least:.{decimals}f}"
    return f"{time / worth:,.{decimals}f}"


def units_words(compute: Compute) -> str:
    """Return how many units there are and what one multiplies in a cycle."""
    if compute.n_multiprocessors == compute.n_units:
        return f"{plural(compute.n_units, 'core')} of {compute.rows} x {compute.columns} cells"
    groups = plural(compute.n_multiprocessors, "multiprocessor")
    return f"{plural(compute.n_units, 'unit')} of {compute.rows} x {compute.columns} in {groups}"


def element_words(graph: KernelGraph) -> str:
    """Return how large the elements of what kernels make are, and what they compute with."""
    sizes = sorted({*graph.output_element.tolist()}, reverse=True)
    types = sorted({*graph.dtypes}, key=lambda dtype: (dtype is not graph.dtype, dtype))
    count = plural(int(sizes[0]), "byte") if sizes == [int(sizes[0])] else ""
    several = f"{', '.join(f'{size:g}' for size in sizes)} bytes"
    return f"{count or several}, computed in {', '.join(types)}"


def peak_words(task: Task, rules: Rules | None = None) -> str:
    """Return the peak of a chip in what the workload computes with, as the rules count it."""
    chip, dtype = task.system.chip, task.workload.graph.dtype
    known = dict(chip.compute.relative_rates)
    if not (known and (rules or rules_named(task.rules or "crosstack")).clock.knows_types):
        return f"{format_quantity(chip.peak_throughput, 'FLOP/s')} in any type"
    if dtype.multiplied_as not in known:
        return f"none in {dtype}; known: {', '.join(known)}"
    sums = chip.compute.accumulator
    added = "" if sums is None else f" added up in {sums}"
    return f"{format_quantity(chip.rate(dtype), 'FLOP/s')} in {dtype}{added}"


def grouped(value: float) -> str:
    """Return a number in four digits, or in groups of three of its own where it has more."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


ZERO = {
    Zero.NONE: "nothing",
    Zero.STATE: "the optimizer's state",
    Zero.GRADIENTS: "the optimizer's state and gradients",
    Zero.WEIGHTS: "the optimizer's state, gradients and weights",
    Zero.HYBRID: "the optimizer's state, gradients and weights, inside a server",
}


CONTEXT = {
    ContextExchange.RING: "go round in a ring",
    ContextExchange.ALL_GATHER: "are gathered before attention",
    ContextExchange.ULYSSES: "are exchanged for those of some heads",
}


def hidden_words(overlap: tuple[Hidden, ...]) -> str:
    """Return what is sent beside the work of chips."""
    return " and ".join(HIDDEN[what] for what in overlap) or "nothing"


HIDDEN = {
    Hidden.GRADIENTS: "sums of gradients",
    Hidden.WEIGHTS: "weights of shares",
    Hidden.SENDS: "activations between stages",
    Hidden.COLLECTIVES: "collectives of kernels",
}


def trained_by(workload: Workload) -> tuple[tuple[str, str], ...]:
    """Return what is said of gradients and the optimizer, as (label, value)."""
    optimizer, pairs = workload.optimizer, list[tuple[str, str]]()
    if workload.gradients is not None:
        pairs.append(("gradients of weights", workload.gradients.value))
    if optimizer is not None:
        state = format_quantity(optimizer.state, "B")
        named = "" if optimizer.source == "" else f"{optimizer.name}, "
        pairs.append(("optimizer", f"{named}{state} of state a weight"))
    return tuple(pairs)


def not_mapped(workload: Workload) -> tuple[tuple[str, str], ...]:
    """Return the blocks of a graph that nothing is said of, as (label, value); none where none."""
    blocks = () if workload.made_of is None else workload.made_of.left_out
    words = (name if times == 1 else f"{name} x {times:,}" for name, times in blocks)
    return (("not mapped, not counted", ", ".join(words)),) if blocks else ()


_RECOMPUTATION = {
    Recompute.NONE: "nothing",
    Recompute.ATTENTION: "attention",
    Recompute.FULL: "the whole forward pass of a layer",
}


def again_words(decided: Mapping | Constraints, workload: Workload) -> str:
    """Say what the backward pass computes again, and in how many layers; empty if not decided."""
    if decided.recompute is None:
        return ""
    what, some = _RECOMPUTATION[decided.recompute], decided.recompute_layers
    if some is None:
        return what
    where = "a stage" if decided.interleave in (None, 1) else "every piece of a stage"
    return f"{what}, of the first {some:,} {workload.graph_words[some > 1]} of {where}"


OFFLOADED = {
    Offload.OPTIMIZER: "the optimizer's state, updated there",
    Offload.STATE: "the optimizer's state, updated on the chips",
    Offload.ACTIVATIONS: "activations of layers",
}


def offload_words(kinds: tuple[Offload, ...]) -> str:
    """Say what lies in the memory of the hosts."""
    return ", and ".join(OFFLOADED[kind] for kind in kinds)


def reserved_words(chip: Chip) -> str:
    """Say in brackets what of the main memory is not for mappings; nothing where all is."""
    rest = {"are left free": chip.main_memory.spare, "are the framework's": chip.set_aside}
    words = [f"{format_quantity(size, 'B')} {what}" for what, size in rest.items() if size]
    return f" ({', '.join(words)})" if words else ""


def latency_words(dimension: Dimension) -> str:
    """Return the latency of a hop; a dimension without one counts none."""
    return NOT_GIVEN if dimension.latency is None else time_words(dimension.latency)


def kind_words(dimension: Dimension) -> str:
    """Return the kind with what it says of its own: ``fat tree 2:1``, ``torus 4x4``."""
    words = [dimension.kind.value.replace("_", " ")]
    if dimension.shape:
        words.append("x".join(map(str, dimension.shape)))
    if dimension.oversubscription != 1:
        words.append(f"{dimension.oversubscription:g}:1")
    if dimension.reduces:
        words.append("that adds")
    return " ".join(words)


def dimension_words(system: System, mapping: Mapping | None = None) -> tuple[str, ...]:
    """Return one phrase a dimension of the network: ``ring of 8, 300 GB/s, 150 ns, tensor``.

    Sizes and uses are those of the mapping, if there is one; a dimension may have several.
    """
    words = []
    for i, d in enumerate(system.network):
        size = d.size if mapping is None else mapping.dimension_sizes[i]
        parts = [f"{kind_words(d)} of {size or 'any size'}", format_quantity(d.bandwidth, "B/s")]
        if d.latency is None:
            parts.append("latency not given")
        elif d.latency:
            parts.append(time_words(d.latency))
        words.append(", ".join((*parts, _use_words(i, d, mapping))))
    return tuple(words)


def _use_words(i: int, dimension: Dimension, mapping: Mapping | None) -> str:
    """Return what a dimension is used for: ``tensor``, or ``8 pipeline x 8 data``."""
    if mapping is None:
        return dimension.parallelism.value if dimension.parallelism else "free to use"
    if not mapping.dimensions:
        return mapping.parallelism[i].value
    each = zip(mapping.dimensions, mapping.sizes, mapping.parallelism, strict=True)
    here = [(size, use.value) for place, size, use in each if place == i]
    return here[0][1] if len(here) == 1 else " x ".join(f"{size} {use}" for size, use in here)


def elided_names(names: Sequence[str], width: int) -> str:
    """Return ``13: Add, Norm, Q … +10``: the count, and as many names as ``width`` letters hold."""
    used = accumulate(len(name) + 2 for name in names)
    shown = max(1, sum(letters <= width for letters in used))
    more = len(names) - shown
    return f"{len(names)}: {', '.join(names[:shown])}" + (f" … +{more}" if more > 0 else "")


def sharding_words(axis: str) -> str:
    """Return what a sharding is called next to a kernel."""
    words: dict[str, str] = {Axis.NONE: "whole", Axis.M: "M", Axis.K: "K", Axis.N: "N"}
    return words.get(axis, str(axis).replace("_", " "))
