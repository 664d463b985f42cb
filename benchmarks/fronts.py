"""How long until the front of time and memory of a training is known, and how much of it is proved?

Usage: python benchmarks/fronts.py [JOB ...]
"""

from __future__ import annotations

import argparse
import time

from timing import print_machine
from training_jobs import JOBS, Training

from crosstack import Task, optimise
from crosstack.evaluate.next_plans import PROVED
from crosstack.io import library
from crosstack.io.steps import job_named

SMALL = Training(
    model="llama3-8b", node="h100-dgx", chips=8, batch=128, sequence=8192, dtype="bf16"
)
ASKED = {"8b-h100": SMALL, "70b": JOBS["70b"]}


def main() -> None:
    """Print a line for each job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=f"some of {', '.join(ASKED)}")
    asked = parser.parse_args()
    print_machine()
    for name in asked.jobs or ASKED:
        given = ASKED[name]
        system = library.system_on(given.node, chips=given.chips)
        job = job_named(given.model, batch=given.batch, sequence=given.sequence, dtype=given.dtype)
        began = time.process_time()
        plan = optimise(Task(workload=job.workload, system=system), front=("time", "memory"))
        took, front = time.process_time() - began, plan.front
        assert front is not None  # it was asked for
        closed = sum(point.gap <= PROVED for point in front.points)
        proved = sum(point.proved for point in front.points)
        print(
            f"{name:10} {len(front.points)} points, {proved} of them proved, {closed} with nothing "
            f"up to the next, gaps up to "
            f"{100 * max(point.gap for point in front.points):.1f} %, the least memory "
            f"{'proved' if front.ends else 'open'}; {front.searches} searches, {took:.0f} s of CPU",
            flush=True,
        )


if __name__ == "__main__":
    main()
