"""How long until large trainings are planned, how sure is the plan, and does any sample beat it?

Every job is planned with everything free. Then strategies are drawn at random, each gets the
kernels that the search of its block finds, and the best of them that fits is held against the plan.

Usage: python benchmarks/training_jobs.py [--samples N] [JOB ...]
"""

from __future__ import annotations

import argparse
import resource
import time
from dataclasses import dataclass

import numpy as np
from timing import print_machine

from crosstack import Task, optimise
from crosstack.evaluate.ranking import fastest_strategies
from crosstack.io import library
from crosstack.io.steps import job_named
from crosstack.mapping.strategies import all_strategies
from crosstack.model.rules import rules_named


@dataclass(frozen=True, kw_only=True)
class Training:
    """A model, its machine, and sequences or images of a step and tokens of a sequence. [1]"""

    model: str
    node: str
    chips: int
    batch: int
    sequence: int | None
    dtype: str


JOBS = {
    name: Training(model=model, node=node, chips=chips, batch=batch, sequence=sequence, dtype=dtype)
    for name, model, node, chips, batch, sequence, dtype in (
        ("70b", "llama3-70b", "h100-dgx", 512, 1024, 8192, "bf16"),
        ("405b", "llama3-405b", "h100-dgx", 16384, 2048, 8192, "bf16"),
        ("175b", "gpt3-175b", "a100-dgx-80gb", 1024, 1536, 2048, "bf16"),
        ("175b-tpu", "gpt3-175b", "tpu-v4-pod", 128, 1536, 2048, "bf16"),
        ("mixtral", "mixtral-8x22b", "h100-dgx", 128, 1024, 4096, "bf16"),
        ("qwen3", "qwen3-235b-a22b", "h200-dgx", 256, 1024, 4096, "bf16"),
        ("deepseek", "deepseek-v3", "h800-hgx", 2048, 15360, 4096, "fp8-blocks"),
        ("8b", "llama3-8b", "a100-dgx-40gb", 8, 128, 8192, "bf16"),
        ("resnet50", "resnet50", "h100-dgx", 64, 8192, None, "bf16"),
    )
}
SAMPLES = 1000
BLOCK_WORK = 3e3  # units of work of the search of a sample's block


def best_of_samples(task: Task, count: int, seed: int = 0) -> float:
    """Return the least time of strategies that are drawn at random; infinite if none fits. [s]

    Blocks are searched in the order of their bounds, as long as one may hold a faster strategy.
    """
    strategies = all_strategies(task.workload, task.system, rules_named("crosstack"))
    chosen = np.random.default_rng(seed).choice(
        len(strategies), min(count, len(strategies)), replace=False
    )
    drawn = strategies.at(np.sort(chosen))
    found = fastest_strategies(task, 1, among=drawn, work_limit=BLOCK_WORK).found
    return found[0][1].time if found else np.inf


def main() -> None:
    """Print a line for each job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=f"some of {', '.join(JOBS)}")
    parser.add_argument("--samples", type=int, default=SAMPLES)
    asked = parser.parse_args()
    print_machine()
    for name in asked.jobs or JOBS:
        given = JOBS[name]
        system = library.system_on(given.node, chips=given.chips)
        job = job_named(given.model, batch=given.batch, sequence=given.sequence, dtype=given.dtype)
        task = Task(workload=job.workload, system=system)
        began = time.process_time()
        plan = optimise(task)
        took, sure = time.process_time() - began, plan.certificate
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # of all jobs so far
        used = plan.mapping.parallelism, plan.mapping.sizes
        degrees = " x ".join(f"{use} {size}" for use, size in zip(*used, strict=True))
        print(
            f"{name:10} {plan.evaluation.time:8.4g} s, gap {100 * sure.gap:.2f} % ({sure.status}) "
            f"after {took:.1f} s of CPU, {peak / 1e6:.0f} MB at most; "
            f"{100 * plan.evaluation.utilization:.1f} % of peak; "
            f"{degrees}, zero {plan.mapping.zero.value}, {plan.mapping.recompute} again",
            flush=True,
        )
        if asked.samples:
            best = best_of_samples(task, asked.samples)
            print(f"{'':10} {best:8.4g} s is the best of {asked.samples:,} samples", flush=True)


if __name__ == "__main__":
    main()
