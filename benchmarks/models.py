"""How long do all models of the library take on all its nodes: trained, and served in both phases?

A step is mapped kernel by kernel, tensor parallelism inside the node, all layers computed again;
prompts and single tokens are served at batch 1. What a data sheet leaves out, and what does not
divide or fit, is refused with a reason.

Usage: python benchmarks/models.py [PROCESSES]
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache, partial

from timing import print_machine

from crosstack import CrosstackError, InfeasibleError, System, optimise
from crosstack.evaluate.predict import strategy_task
from crosstack.evaluate.serving_sweep import Phase, serving_sweep
from crosstack.io import library
from crosstack.machine.system import DimensionKind
from crosstack.mapping.strategy import Strategy
from crosstack.workload.architectures import Transformer
from crosstack.workload.transformer_training import Recompute, TransformerTraining

TOKENS = 2048
WORK = 1e4


def degree(model: Transformer, system: System) -> int:
    """The most chips of the first dimension, up to 8, that split heads and feed-forward width."""
    inside = system.network[0].size or system.n_chips
    # A ring serves one parallelism, all of it.
    some = (inside, 1) if system.network[0].kind is DimensionKind.RING else (8, 4, 2, 1)
    fitting = (d for d in some if inside % d == 0 and system.n_chips % d == 0)
    return next(d for d in fitting if model.heads % d == 0 and model.feed_forward % d == 0)


def train(model: Transformer, system: System, tokens: int) -> float:
    """Return the time of a step, all layers computed again, kernel by kernel. [s]"""
    tensor = degree(model, system)
    replicas = system.n_chips // tensor
    step = TransformerTraining(
        model=model, batch=replicas, sequence=tokens, recompute=Recompute.FULL, microbatches=1
    )
    task = strategy_task(step, Strategy(kp2=tensor, dp=replicas), system)
    given = replace(task.constraints, kernel_by_kernel=True)
    return optimise(replace(task, constraints=given), work_limit=WORK).evaluation.time


def serve(phase: Phase, model: Transformer, system: System, tokens: int) -> float:
    """Return the time of serving one request. [s]"""
    tensor = degree(model, system)
    points = serving_sweep(
        model, system, tensor=tensor, pipeline=1, batch=1, context=tokens - 1, phase=phase
    )
    return float(points.time[0])


system_on = cache(library.system_on)  # the same record, of which more is known the second time


def every_node(name: str) -> Counter[tuple[str, str]]:
    """Do all this to one model on every node, and count what came of it."""
    model = library.model(name)
    tokens = min(TOKENS, model.window or TOKENS)
    found: Counter[tuple[str, str]] = Counter()
    jobs = {"train": train} | {str(phase): partial(serve, phase) for phase in Phase}
    for node in library.names("nodes"):
        for job, run in jobs.items():
            try:
                run(model, system_on(node), tokens)
                outcome = "ran"
            except InfeasibleError:
                outcome = "does not fit"
            except CrosstackError:
                outcome = "refused"
            found[job, outcome] += 1
    return found


def main() -> None:
    processes = int(sys.argv[1]) if len(sys.argv) > 1 else os.cpu_count() or 1
    print_machine()
    models, nodes = library.names("models"), library.names("nodes")
    found: Counter[tuple[str, str]] = Counter()
    start = time.perf_counter()
    with ProcessPoolExecutor(processes) as pool:
        for each in pool.map(every_node, models):
            found += each
    taken = time.perf_counter() - start
    for (job, outcome), count in sorted(found.items()):
        print(f"{job:<8} {outcome:<13} {count:5,}")
    said = f"{len(models)} models on {len(nodes)} nodes, {found.total():,} questions"
    limit = "holds" if taken < 60 else "MISSES"
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{said}, {processes} processes: {taken:.1f} s; limit 60 s, {limit}")
    print(f"processor time of all: {used.ru_utime + used.ru_stime:.1f} s")


if __name__ == "__main__":
    main()
