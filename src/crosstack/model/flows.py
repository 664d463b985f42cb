"""Tensors between the kernels of a graph on one chip: who makes them and who reads them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from crosstack.model.traffic import Traffic
from crosstack.workload.kernel_graph import KernelGraph


@dataclass(frozen=True, slots=True)
class Flow:
    """A tensor on one chip: who makes it, who reads it (kernel, depth), its bytes.

    ``kept``: whether it is in main memory for the backward pass in any case; ``least``: what it
    moves of main memory at least to leave a partition or to enter one, if not all of it. [B]
    """

    producer: int
    readers: tuple[tuple[int, int], ...]
    tile: float
    total: float
    mask: int
    kept: bool = False
    least: float | None = None

    @property
    def moved(self) -> float:
        """Bytes that it moves of main memory at least to leave a partition or enter one. [B]"""
        return self.total if self.least is None else self.least

    @property
    def held(self) -> float:
        """Bytes of main memory that it takes from its first partition to its last. [B]"""
        return 0.0 if self.kept else self.total


_Shapes = tuple[tuple[int, tuple[tuple[int, int], ...], int], ...]


@lru_cache(maxsize=64)
def flow_shapes(
    graph: KernelGraph, traffic: Traffic
) -> tuple[_Shapes, tuple[tuple[int, ...], ...]]:
    """Producer, readers and reader mask of every flow, and the flows that touch each kernel."""
    groups: dict[int, list[tuple[int, int, int]]] = {}
    edges = zip(
        graph.source.tolist(),
        graph.target.tolist(),
        graph.depth.tolist(),
        traffic.flows(graph).tolist(),
        graph.elided.tolist(),
        strict=True,
    )
    for source, target, depth, flow, elided in edges:
        if not elided:
            groups.setdefault(flow, []).append((source, target, depth))
    shapes = []
    for members in groups.values():
        depths: dict[int, int] = {}
        for _, target, depth in members:  # both operands of one kernel share the buffer
            depths[target] = max(depth, depths.get(target, 0))
        mask = sum(1 << target for target in depths)
        shapes.append((members[0][0], tuple(depths.items()), mask))
    return tuple(shapes), touching_flows(graph.n, shapes)


def touching_flows(n: int, shapes: Iterable[Any]) -> tuple[tuple[int, ...], ...]:
    """Return the flows, as producer, readers and mask, that touch each of ``n`` kernels."""
    touching: list[list[int]] = [[] for _ in range(n)]
    for f, (source, readers, _) in enumerate(shapes):
        for kernel in {source, *dict(readers)}:
            touching[kernel].append(f)
    return tuple(tuple(f) for f in touching)


@lru_cache(maxsize=256)
def flow_ends(
    graph: KernelGraph, traffic: Traffic, again: int
) -> tuple[
    tuple[tuple[int, tuple[tuple[int, int], ...], int, bool], ...], tuple[tuple[int, ...], ...]
]:
    """Return both ends of every tensor, and those that touch each kernel.

    The ends are producer, readers (kernel, depth), their mask, and whether it is computed anew.
    What is computed again, by the kernels of mask ``again``, moves again where its readers are,
    too: as a tensor of its own that is in the same buffer. A partition that reads it runs twice
    then, and one that makes it writes it twice where such a reader is elsewhere.
    """
    shapes, touching = flow_shapes(graph, traffic)
    ends = [(*shape, False) for shape in shapes]
    for source, readers, _ in shapes:
        second = tuple((reader, depth) for reader, depth in readers if again >> reader & 1)
        if again >> source & 1 and second:
            ends.append((source, second, sum(1 << reader for reader, _ in second), True))
    if len(ends) == len(shapes):
        return tuple(ends), touching
    return tuple(ends), touching_flows(graph.n, [end[:3] for end in ends])


@lru_cache(maxsize=64)
def fed_operands(
    graph: KernelGraph, traffic: Traffic
) -> tuple[tuple[int, tuple[tuple[int, tuple[int, ...]], ...], int], ...]:
    """Producer of every flow, its readers with the operands that it is of theirs, their mask."""
    edges = zip(
        graph.source.tolist(),
        graph.target.tolist(),
        graph.operand.tolist(),
        traffic.flows(graph).tolist(),
        graph.elided.tolist(),
        strict=True,
    )
    found: dict[int, tuple[int, dict[int, tuple[int, ...]]]] = {}
    for source, target, operand, flow, elided in edges:
        if not elided:
            readers = found.setdefault(flow, (source, {}))[1]
            readers[target] = (*readers.get(target, ()), operand)
    return tuple(
        (source, tuple(readers.items()), sum(1 << target for target in readers))
        for source, readers in found.values()
    )
