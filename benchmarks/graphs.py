"""How far from its bound is the fusion of large generated graphs after a minute of search?

Two kinds of graph, from seeds. *Series-parallel*: a tensor is read by two or three branches that
are joined again, and parts follow one another, nested at random. *Layered*: four to sixteen
kernels a layer, each reads one or two tensors of the three layers before, first those that nobody
reads yet. A kernel is a product
with a weight or elementwise; results have 512 to 2,048 rows. They run on one chip like SN30
(1,280 cores, 300 GB/s, whole tensors as tiles), whose SRAM holds so many tensors of mean size.

Usage: python benchmarks/graphs.py [--kinds K ...] [--sizes N ...] [--ratios R ...] [--seconds S]
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field, replace
from random import Random

from timing import print_machine

from crosstack import Constraints, Workload, optimise
from crosstack.machine.chip import flat_chip
from crosstack.machine.memory import main_memory
from crosstack.machine.system import Dimension, DimensionKind, System
from crosstack.workload.kernel_graph import KernelGraph, kernel_graph
from crosstack.workload.kernels import ComputeUnit, Consumer, Kernel, KernelKind, Tensor

WORD = 2
COLUMNS = 2048  # of every tensor: the sequence
ROWS = (512, 1024, 2048)
SIZES = (500, 1000, 5000)
RATIOS = (16, 64, 256)  # SRAM over a tensor of mean size
SECONDS = 60.0
SEED = 1


@dataclass(slots=True)
class GraphDraft:
    """Kernels so far, and what each reads."""

    rng: Random
    kernels: list[Kernel] = field(default_factory=list)
    reads: list[tuple[int, ...]] = field(default_factory=list)

    def add(self, *reads: int) -> int:
        """Add a kernel that reads at most two results of others; return its number."""
        rng, inputs = self.rng, [self.kernels[i] for i in reads]
        product = len(inputs) < 2 and rng.random() < 0.6
        rows = rng.choice(ROWS)
        depth = inputs[0].m if inputs else rng.choice(ROWS)
        sizes = [kernel.output_size for kernel in inputs] or [float(depth * COLUMNS * WORD)]
        kinds = KernelKind.ELEMENTWISE, KernelKind.ELEMENTWISE_2
        self.kernels.append(
            Kernel(
                name=f"k{len(self.kernels)}",
                kind=KernelKind.GEMM_WEIGHT if product else kinds[len(sizes) - 1],
                m=rows,
                k=depth if product else 1,
                n=COLUMNS,
                output_size=float(rows * COLUMNS * WORD),
                input_sizes=tuple(sizes),
                weight_size=float(rows * depth * WORD) if product else 0.0,
                unit=ComputeUnit.SYSTOLIC if product else ComputeUnit.SIMD,
            )
        )
        self.reads.append(reads)
        return len(self.kernels) - 1

    def graph(self) -> KernelGraph:
        """Return the graph drawn."""
        readers: dict[int, list[Consumer]] = {}
        for i, reads in enumerate(self.reads):
            for operand, source in enumerate(reads):
                consumer = Consumer(kernel=f"k{i}", operand=operand)
                readers.setdefault(source, []).append(consumer)
        tensors = tuple(
            Tensor(producer=f"k{i}", consumers=tuple(those), size=self.kernels[i].output_size)
            for i, those in sorted(readers.items())
        )
        return kernel_graph(kernels=tuple(self.kernels), tensors=tensors, word=WORD)


def series_parallel(n: int, seed: int = SEED) -> KernelGraph:
    """Return a series-parallel graph of ``n`` kernels."""
    draft = GraphDraft(Random(seed))
    _part(draft, n - 1, draft.add())
    return draft.graph()


def _part(draft: GraphDraft, n: int, source: int) -> int:
    """Add ``n`` >= 1 kernels behind ``source``, in series or in branches; return the last."""
    rng = draft.rng
    if n == 1:
        return draft.add(source)
    branches = rng.choice((2, 2, 3))
    if n < 2 * branches or rng.random() < 0.5:
        first = rng.randint(1, n - 1)
        return _part(draft, n - first, _part(draft, first, source))
    rest = n - (branches - 1)  # joins
    cuts = sorted(rng.sample(range(1, rest), branches - 1))
    ends = [_part(draft, b - a, source) for a, b in zip((0, *cuts), (*cuts, rest), strict=True)]
    last = ends[0]
    for end in ends[1:]:
        last = draft.add(last, end)
    return last


def layered(n: int, seed: int = SEED) -> KernelGraph:
    """Return a layered graph of ``n`` kernels."""
    draft = GraphDraft(Random(seed))
    layers: list[list[int]] = []
    while len(draft.kernels) < n:
        width = min(draft.rng.randint(4, 16), n - len(draft.kernels))
        unread = draft.rng.sample(layers[-1], len(layers[-1])) if layers else []
        layers.append([_reader(draft, layers, unread) for _ in range(width)])
    return draft.graph()


def _reader(draft: GraphDraft, layers: list[list[int]], unread: list[int]) -> int:
    """Add a kernel that reads one or two results, first one of the last layer that nobody reads."""
    rng = draft.rng
    found = {unread.pop(): None} if unread else {}
    for _ in range(rng.choice((1, 2, 2)) - len(found) if layers else 0):
        back = min(rng.choice((1, 1, 1, 1, 2, 3)), len(layers))
        found[rng.choice(layers[-back])] = None
    return draft.add(*found)


KINDS = {"series-parallel": series_parallel, "layered": layered}


def one_chip(graph: KernelGraph, ratio: float) -> tuple[Workload, System, Constraints]:
    """Return a graph as a workload, and a chip whose SRAM holds ``ratio`` tensors of mean size."""
    mean = float(graph.output_size.sum()) / graph.n
    chip = flat_chip(
        n_cores=1280,
        lanes=32,
        stages=6,
        frequency=1.25e9,
        sram_capacity=ratio * mean,
        utilization=0.9,
        memories=main_memory(bandwidth=300e9),
    )
    network = (Dimension(kind=DimensionKind.RING, size=1, bandwidth=50e9),)
    return (
        Workload(graph=graph, sequence_length=COLUMNS),
        System(chip=chip, network=network, n_chips=1),
        replace(Constraints(), n_tiles=1),
    )


def main() -> None:
    """Print a line for each graph."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--ratios", nargs="+", type=float, default=RATIOS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--seed", type=int, default=SEED)
    asked = parser.parse_args()
    print_machine()
    for kind in asked.kinds:
        for size in asked.sizes:
            graph = KINDS[kind](size, asked.seed)
            for ratio in asked.ratios:
                workload, system, given = one_chip(graph, ratio)
                started = time.perf_counter()
                plan = optimise(
                    workload, system, constraints=given, time_limit=asked.seconds, rules="crosstack"
                )
                taken, answer = time.perf_counter() - started, plan.certificate
                print(
                    f"{kind:<16} {size:>5} kernels, SRAM {ratio:>4g} tensors: "
                    f"{answer.objective * 1e3:9.4f} ms, bound {answer.bound * 1e3:9.4f} ms, "
                    f"gap {answer.gap:6.2%}, {answer.status} in {taken:.1f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
