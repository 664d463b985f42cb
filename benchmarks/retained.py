"""How many machines a second get a plan of a training with a bound, and how many are searched?

Numbers of the machine change together, each between its usual value over and times ``--spread``,
and the room of main memory from 0.8 to 1.5 times: all combinations, until there are as many points
as are asked for. Everything of the plan is free. Nothing is known before.

Usage: python benchmarks/retained.py [--gap X] [--spread X] [--points N] [JOB ...]
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

import numpy as np
from timing import print_machine
from training_jobs import JOBS

from crosstack import Task
from crosstack.evaluate.again import Limits
from crosstack.evaluate.plan import WORK_LIMIT
from crosstack.explore.retained import answer_many
from crosstack.io import library
from crosstack.io.steps import job_named
from crosstack.model.rules import rules_named
from crosstack.workload.kernel_graph import Floats

CLOCKS, BANDWIDTHS, ROOMS, LINKS = 4, 8, 5, 5  # values of each number [1]
ROOM = 0.8, 1.5  # of main memory, over the usual


def machines(task: Task, spread: float, points: int) -> dict[str, Floats]:
    """Return machines as arrays by path; where all combinations are fewer, at several prices."""
    chip, network = task.system.chip, task.system.network
    usual = {
        "system.chip.frequency": (chip.compute.frequency, CLOCKS),
        "system.memory.bandwidth": (chip.main_memory.speed, BANDWIDTHS),
        **{
            f"system.network[{i}].bandwidth": (level.bandwidth, LINKS)
            for i, level in enumerate(network[:2])
        },
    }
    values = {p: x * np.geomspace(1 / spread, spread, count) for p, (x, count) in usual.items()}
    values["system.memory.capacity"] = chip.main_memory.room * np.linspace(*ROOM, ROOMS)
    grid = np.meshgrid(*values.values(), indexing="ij")
    prices = max(points // grid[0].size, 1)
    found = {p: np.tile(x.ravel(), prices) for p, x in zip(values, grid, strict=True)}
    found["system.chip.price"] = np.repeat(np.linspace(2e4, 4e4, prices), grid[0].size)
    return found


def main() -> None:
    """Print a line for each job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=f"some of {', '.join(JOBS)}")
    parser.add_argument("--gap", type=float, default=0.05)
    parser.add_argument("--spread", type=float, default=1.2)
    parser.add_argument("--points", type=int, default=20_000)
    asked = parser.parse_args()
    print_machine()
    for name in asked.jobs or ["70b"]:
        given = JOBS[name]
        system = library.system_on(given.node, chips=given.chips)
        job = job_named(given.model, batch=given.batch, sequence=given.sequence, dtype=given.dtype)
        task = Task(workload=job.workload, system=system)
        arrays = machines(task, asked.spread, asked.points)
        count, limits = len(arrays["system.chip.price"]), Limits(work_limit=WORK_LIMIT)
        began, worked = time.perf_counter(), time.process_time()
        rules = rules_named("crosstack")
        found = answer_many(task, rules, arrays, gap=asked.gap, limits=limits)
        took, worked = time.perf_counter() - began, time.process_time() - worked
        said = ", ".join(f"{n:,} {status}" for status, n in Counter(found.status.tolist()).items())
        print(
            f"{name:10} {count:,} machines in {took:.1f} s ({worked:.1f} s of CPU): "
            f"{count / took:.0f} a second; {found.searches} searched, "
            f"{100 * found.searches / count:.2f} %, {found.plans} plans kept; {said}, "
            f"gaps up to {100 * np.nanmax(found.terms['gap']):.2f} %",
            flush=True,
        )


if __name__ == "__main__":
    main()
