"""Shardings of a graph by what the chips that split it send one another."""

from __future__ import annotations

from crosstack.errors import InputError, Problem
from crosstack.model.choice_index import axis_names, choice_index
from crosstack.workload.kernel_graph import KernelGraph
from crosstack.workload.kernels import Axis
from crosstack.workload.transformer_training import Exchange

Sharding = tuple[tuple[str, str], ...]
SPLIT = ("heads", "kv_heads", "feed_forward")  # that no chip has all of
TOKENS = "sequence"


def exchange_sharding(graph: KernelGraph, exchange: Exchange) -> Sharding:
    """Return the sharding of every kernel of a layer over named axes, as constraints take it.

    Kernels that have heads or the width of the feed-forward network are split along those, so that
    the second product of each pair leaves sums to be added up; all others are done by every chip
    (``paired``), or along tokens (``sequence``). Parts of sums are added up once.

    Raises
    ------
    InputError
        For another exchange, which is one of releases, and for a graph without such axes.

    References
    ----------
    shoeybi2019megatron, korthikanti2023reducing
    """
    if exchange is Exchange.GATHERED:
        message = f"got {exchange}; allowed: paired or sequence; gathered is one of releases."
        raise InputError(Problem("exchange", message))
    index = choice_index(graph, named=True)
    beside = (TOKENS, Axis.NONE) if exchange is Exchange.SEQUENCE else (Axis.NONE,)
    found, split = [], False
    for i, name in enumerate(graph.names):
        names = axis_names(graph, i)
        known = [names[axis] for axis in index.axes(i)]
        along = next((axis for axis in (*SPLIT, Axis.PARTIAL, *beside) if axis in known), None)
        split |= along in SPLIT
        found += [] if along is None else [(name, str(along))]
    if not split:
        message = f"got {exchange}; allowed with heads or a feed-forward network, which is split."
        raise InputError(Problem("exchange", message))
    return tuple(found)


def sum_sharding(graph: KernelGraph) -> Sharding:
    """Return products split along their sums, where they may be; other kernels are left free."""
    index = choice_index(graph, named=bool(graph.layouts))
    return tuple(
        (name, Axis.K.value)
        for i, name in enumerate(graph.names)
        if not graph.backward[i] and Axis.K in index.axes(i)
    )
