"""Attention and collectives as they were measured, beside what is said of them.

See `crosstack.evaluate.scores` of errors and of products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crosstack.evaluate.scores import (
    DURATIONS,
    GRAPH_LAUNCH,
    ONE_EFFICIENCY,
    ProductScore,
    Score,
)
from crosstack.machine.chip import Chip
from crosstack.machine.system import System
from crosstack.model.collectives.compose import collective_lines
from crosstack.model.collectives.group import Extent, Group
from crosstack.model.collectives.times import Arrival
from crosstack.model.kernels.attention import Heads, begun, pair_time, waiting
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernel_graph import Floats
from crosstack.workload.kernels import Collective


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredAttention:
    """An attention of many queries as it was measured. [s]

    Sequences, queries of each and keys that they look at, heads of queries and of keys [1]; a
    ``window`` of keys, 0: all before a query. [1]
    """

    batch: int
    queries: int
    keys: int
    heads: int
    kv_heads: int
    sizes: Heads
    time: float
    window: int = 0

    @property
    def seen(self) -> Floats:
        """Keys that each query looks at, under a causal mask. [1]"""
        all_before = self.keys - self.queries + np.arange(1.0, self.queries + 1)
        return np.minimum(all_before, self.window) if self.window else all_before

    @property
    def moved(self) -> float:
        """Bytes that main memory moves at least: what is read, and the results. [B]"""
        each, again = self.sizes.key_size + self.sizes.value_size, 1 + self.sizes.backward
        read = self.heads * self.queries + self.kv_heads * self.keys
        return self.batch * read * each * again * Dtype.BF16.size


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCollective:
    """A collective among ``ranks`` chips over so many bytes, as all of them hold them. [1], [B]"""

    kind: Collective
    ranks: int
    size: float
    time: float


def attention_said(row: MeasuredAttention, chip: Chip) -> float:
    """Return what is said of one kernel on a chip that is known well enough. [s]"""
    pairs, heads = float(row.seen.sum()), float(row.heads * row.batch)
    share = pairs / (row.queries * row.keys)
    tiles = np.array([float(row.queries)]), np.array([heads])
    longer = float(waiting(chip, *tiles, np.array([share]))[0])
    busy = pairs * heads * pair_time(chip, row.sizes) * longer / chip.compute.n_multiprocessors
    memory = row.moved / chip.main_memory.speed + chip.main_memory.latency
    return GRAPH_LAUNCH + max(busy + float(begun(chip, *tiles)[0]), memory)


def plain_attention(row: MeasuredAttention, chip: Chip) -> float:
    """Return what a roofline with one efficiency says. [s]"""
    pairs = float(row.seen.sum()) * row.heads * row.batch
    computing = 2 * row.sizes.products * pairs / chip.rate(row.sizes.dtype)
    moving = row.moved / (chip.main_memory.bandwidth or 1.0)
    return GRAPH_LAUNCH + max(computing, moving) / ONE_EFFICIENCY


def collective_said(row: MeasuredCollective, system: System) -> float:
    """Return what is said of a collective among chips of one level. [s]"""
    (level,) = system.network
    group = Group(extents=(Extent(dimension=level, size=row.ranks, members=row.ranks),))
    arrival = Arrival.of(system.chip, Dtype.BF16)
    return float(collective_lines(row.kind, group, arrival=arrival).time(row.size))


def plain_collective(row: MeasuredCollective, system: System) -> float:
    """Return what passes a chip's links over them, with one efficiency. [s]"""
    (level,) = system.network
    others = (row.ranks - 1) / row.ranks
    passes = {Collective.ALL_REDUCE: 2.0, Collective.ALL_TO_ALL: 1 / row.ranks}
    moved = others * row.size * passes.get(row.kind, 1.0)
    return system.chip.launch_overhead + moved / (ONE_EFFICIENCY * level.bandwidth)


def scored(said: Sequence[float], plain: Sequence[float], times: Sequence[float]) -> ProductScore:
    """Return the score of a set, by duration, beside the plain estimate. [s]"""
    ours, other, measured = (np.asarray(x, dtype=np.float64) for x in (said, plain, times))
    classes = np.searchsorted(DURATIONS, measured, side="right")
    parts = [np.flatnonzero(classes == number) for number in range(len(DURATIONS) + 1)]
    return ProductScore(
        ours=Score.of(ours, measured),
        by_duration=tuple(Score.of(ours[i], measured[i]) if i.size else None for i in parts),
        roofline=Score.of(other, measured),
    )
