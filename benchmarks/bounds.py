"""What does a proof cost as layers, kernels, chips and dimensions of the network grow?

Each line is one search with everything free within the default limit on work, in a process of its
own, with the memory at its peak. ``--picture FILE`` draws docs/images/bounds.svg instead.

Usage: python benchmarks/bounds.py [layers|kernels|chips|dimensions ...] [--picture FILE]
"""

from __future__ import annotations

import argparse
import itertools
import math
import multiprocessing
import resource
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import graphs
import numpy as np
from timing import print_machine

from crosstack import Constraints, Task, optimise
from crosstack.io import library
from crosstack.io.steps import job_named

LAYERS = (20, 40, 80, 160)
KERNELS = (25, 50, 100, 200, 400)
CHIPS = (8, 64, 512, 4096)
DIMENSIONS = ((64,), (8, 8), (4, 4, 4), (2, 2, 4, 4))


def llama(*, chips: int, layers: int | None = None) -> Task:
    """Return Llama-3 8B trained on H100s, with as many layers as said."""
    job = job_named("llama3-8b", batch=1024, sequence=8192, dtype="bf16")
    workload = job.workload if layers is None else replace(job.workload, n_layers=layers)
    return Task(workload=workload, system=library.system_on("h100-dgx", chips=chips))


def on_dimensions(sizes: tuple[int, ...]) -> Task:
    """Return the same on 64 H100s in rings."""
    task = llama(chips=64)
    first = task.system.network[0]
    kind = graphs.DimensionKind.RING
    rings = tuple(
        graphs.Dimension(kind=kind, size=size, bandwidth=first.bandwidth, latency=first.latency)
        for size in sizes
    )
    return replace(task, system=replace(task.system, network=rings))


def tasks(question: str) -> Iterator[tuple[str, Task]]:
    """Yield what is asked, by name."""
    if question == "layers":
        for layers in LAYERS:
            yield f"{layers} layers on 64 chips", llama(chips=64, layers=layers)
    elif question == "chips":
        for chips in CHIPS:
            yield f"{chips} chips", llama(chips=chips)
    elif question == "dimensions":
        for sizes in DIMENSIONS:
            yield f"{len(sizes)} dimensions of 64 chips", on_dimensions(sizes)
    else:
        for kernels in KERNELS:
            graph = graphs.series_parallel(kernels)
            workload, system, given = graphs.one_chip(graph, 64.0)
            yield (
                f"{kernels} kernels, series-parallel",
                Task(workload=workload, system=system, constraints=given),
            )


def answer(question: str, number: int) -> None:
    """Print a line for one of the tasks."""
    name, task = list(tasks(question))[number]
    began = time.process_time()
    found = optimise(task).certificate
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        f"{name:<32} {found.objective:10.4g} s, gap {found.gap:7.2%} ({found.status}) after "
        f"{time.process_time() - began:6.1f} s of CPU, {peak / 1e6:6.0f} MB at most",
        flush=True,
    )


# ---------------------------------------------------------------- the picture


def draw(path: Path) -> None:
    """Draw three bounds: of strategies, of order ideals, and around a kernel of a large graph."""
    from matplotlib import pyplot

    from crosstack.report.plot import STYLE

    pyplot.style.use(str(STYLE))
    figure, axes = pyplot.subplots(1, 3, figsize=(7.5, 2.6))
    _strategies(axes[0])
    _ideals(axes[1])
    _ball(axes[2])
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def _strategies(axes) -> None:
    from crosstack.mapping.bounded_strategies import all_plans
    from crosstack.mapping.search import search_state
    from crosstack.model.rules import rules_named

    task = llama(chips=8)
    state = search_state(task.workload, task.system, Constraints(), rules_named("crosstack"))
    floors = np.sort(all_plans(state).first.floors)
    best = optimise(task).evaluation.time
    axes.plot(np.arange(1, len(floors) + 1), floors / best, lw=1)
    axes.axhline(1.0, color="0.3", lw=0.8, ls="--")
    fits = int(np.isfinite(floors).sum())
    axes.annotate("answer", (fits, 1.0), ha="right", va="top", fontsize=7)
    open_ = int((floors < best).sum())
    axes.axvspan(0.5, open_, color="0.9", lw=0)
    axes.set(
        title="Strategies",
        xlabel=f"least first; {open_:,} of {len(floors):,} may be best",
        ylabel="bound / answer",
        xlim=(0.5, fits),
        ylim=(0, 2),
    )


def _ideals(axes) -> None:
    """A graph of five kernels: all its order ideals, and a sequence of three partitions."""
    preds = (0, 0b1, 0b1, 0b10, 0b1100)  # 0 feeds 1 and 2, 1 feeds 3, both end in 4
    ideals = [m for m in range(32) if all(preds[i] & ~m == 0 for i in range(5) if m >> i & 1)]
    place: dict[int, tuple[float, int]] = {}
    for size in range(6):
        level = [m for m in ideals if m.bit_count() == size]
        place |= {m: (k - (len(level) - 1) / 2, size) for k, m in enumerate(level)}
    for a in ideals:
        for b in ideals:
            if a & b == a and (a ^ b).bit_count() == 1:
                axes.plot(*zip(place[a], place[b], strict=True), color="0.8", lw=0.8, zorder=1)
    path = (0, 0b11, 0b1111, 0b11111)
    for a, b in itertools.pairwise(path):
        axes.annotate("", place[b], place[a], arrowprops={"arrowstyle": "->", "color": "C1"})
    for m, (x, y) in place.items():
        label = "".join(str(i) for i in range(5) if m >> i & 1) or "none"
        box = {"boxstyle": "round,pad=0.2", "fc": "white", "ec": "C1" if m in path else "0.7"}
        axes.text(x, y, label, ha="center", va="center", fontsize=6, bbox=box)
    axes.set(title="Order ideals", xlim=(-1.2, 1.2), ylim=(-0.5, 5.5))
    axes.axis("off")


def _ball(axes) -> None:
    """Kernels of a layered graph by how far they are from one of them."""
    graph = graphs.layered(90, 2)
    level = graph.levels if hasattr(graph, "levels") else np.zeros(graph.n)
    level = np.asarray(level)
    row = np.zeros(graph.n)
    for each in np.unique(level):
        inside = np.nonzero(level == each)[0]
        row[inside] = np.arange(len(inside)) - (len(inside) - 1) / 2
    links = [*zip(graph.source.tolist(), graph.target.tolist(), strict=True)]
    middle = int(np.argmin(abs(level - level.max() / 2) + abs(row)))
    distance = np.full(graph.n, math.inf)
    distance[middle] = 0
    for _ in range(graph.n):
        for a, b in links:
            distance[a] = min(distance[a], distance[b] + 1)
            distance[b] = min(distance[b], distance[a] + 1)
    for a, b in links:
        axes.plot(level[[a, b]], row[[a, b]], color="0.85", lw=0.5, zorder=1)
    near = distance <= 4
    axes.scatter(level[~near], row[~near], s=8, color="0.75", zorder=2)
    dots = axes.scatter(level[near], row[near], s=14, c=distance[near], cmap="viridis", zorder=3)
    axes.figure.colorbar(dots, ax=axes, label="tensors away", shrink=0.7)
    axes.set(title="Around a kernel")
    axes.axis("off")


def main() -> None:
    """Print a line for each size, or draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    known = ("layers", "kernels", "chips", "dimensions")
    parser.add_argument("questions", nargs="*", metavar="QUESTION", help=f"some of {known}")
    parser.add_argument("--picture", type=Path)
    asked = parser.parse_args()
    if asked.picture is not None:
        draw(asked.picture)
        return
    print_machine()
    for question in asked.questions or known:
        for number in range(len(list(tasks(question)))):
            alone = multiprocessing.get_context("spawn").Process(
                target=answer, args=(question, number)
            )
            alone.start()
            alone.join()


if __name__ == "__main__":
    main()
