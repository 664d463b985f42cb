"""Tensors between the kernels of a graph on one chip: who makes them and who reads them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

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


@dataclass(frozen=True, slots=True)
class Ends:
    """Who makes a tensor, and who reads it: (kernel, depth), and their mask.

    ``places`` are the operands that it is of each reader.
    """

    producer: int
    readers: tuple[tuple[int, int], ...]
    places: tuple[tuple[int, ...], ...]
    mask: int

    def among(self, kernels: int) -> Ends:
        """Return the same with those readers that a mask has."""
        kept = [i for i, (reader, _) in enumerate(self.readers) if kernels >> reader & 1]
        readers, places = (self.readers[i] for i in kept), (self.places[i] for i in kept)
        return Ends(self.producer, tuple(readers), tuple(places), self.mask & kernels)


@lru_cache(maxsize=64)
def tensor_ends(graph: KernelGraph, traffic: Traffic) -> tuple[Ends, ...]:
    """Return both ends of every tensor of a graph that is not elided."""
    columns = graph.source, graph.target, graph.depth, graph.operand, traffic.flows(graph)
    edges = zip(*(column.tolist() for column in (*columns, graph.elided)), strict=True)
    found: dict[int, tuple[int, dict[int, tuple[int, tuple[int, ...]]]]] = {}
    for source, target, depth, operand, flow, elided in edges:
        if not elided:
            readers = found.setdefault(flow, (source, {}))[1]
            other, places = readers.get(target, (0, ()))  # both operands share the buffer
            readers[target] = max(depth, other), (*places, operand)
    return tuple(
        Ends(
            source,
            tuple((reader, depth) for reader, (depth, _) in readers.items()),
            tuple(places for _, places in readers.values()),
            sum(1 << reader for reader in readers),
        )
        for source, readers in found.values()
    )


@lru_cache(maxsize=64)
def read_beside(graph: KernelGraph) -> tuple[tuple[int, int, int], ...]:
    """Return later readers of what is kept: kernel, operand, and the first kernel that reads it.

    Keys and values that are one, as a latent vector of attention is, are read once by a kernel that
    does both (``deepseek2024v2``, section 2.1.2).
    """
    readers: dict[int, list[tuple[int, int]]] = {}
    columns = graph.source, graph.target, graph.operand, graph.elided
    for source, target, operand, elided in zip(*(c.tolist() for c in columns), strict=True):
        if elided:
            readers.setdefault(source, []).append((target, operand))
    found = []
    for several in readers.values():
        (first, _), *others = sorted(several)
        found += [(reader, operand, first) for reader, operand in others if reader != first]
    return tuple(found)


def read_again(
    graph: KernelGraph, traffic: Traffic, again: int
) -> tuple[tuple[Ends, ...], tuple[Ends, ...]]:
    """Return tensors between kernels that run again, and those that they read of others."""
    found = [ends.among(again) for ends in tensor_ends(graph, traffic) if ends.mask & again]
    between = tuple(ends for ends in found if again >> ends.producer & 1)
    return between, tuple(ends for ends in found if not again >> ends.producer & 1)


@lru_cache(maxsize=256)
def flow_ends(
    graph: KernelGraph, traffic: Traffic, again: int
) -> tuple[tuple[tuple[Ends, bool], ...], tuple[tuple[int, ...], ...]]:
    """Return both ends of every tensor and whether it is computed anew; those of each kernel.

    What is computed again, by the kernels of mask ``again``, moves again where its readers are,
    too: as a tensor of its own that is in the same buffer. A partition that reads it runs twice
    then, and one that makes it writes it twice where such a reader is elsewhere.
    """
    ends = [(one, False) for one in tensor_ends(graph, traffic)]
    ends += [(one, True) for one in read_again(graph, traffic, again)[0]]
    touching: list[list[int]] = [[] for _ in range(graph.n)]
    for f, (one, _) in enumerate(ends):
        for kernel in {one.producer, *dict(one.readers)}:
            touching[kernel].append(f)
    return tuple(ends), tuple(map(tuple, touching))
