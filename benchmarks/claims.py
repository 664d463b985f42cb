"""Measure every speed the project claims: medians, on whatever machine this runs.

Usage: python benchmarks/claims.py [--quick]
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

import crosstack
from crosstack import Constraints, Task
from crosstack.evaluate.serving_sweep import serving_sweep
from crosstack.io import library
from crosstack.mapping.mapping import Status
from crosstack.model.kernels.clock import product_time
from crosstack.model.kernels.roofline import Roofline
from crosstack.published.dfmodel.graphs.llm import llm
from crosstack.published.dfmodel.machines import PIPELINE, RING, TENSOR, chip, system
from crosstack.published.dfmodel.runs import dfmodel_cases, published_task
from crosstack.published.runner import run_suite

EXAMPLE = "examples/gpt3_1t_sn30.yaml"


def median(run: Callable[[], object], times: int) -> float:
    """Median wall-clock seconds of ``run``."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def python(*arguments: str) -> None:
    """Run a fresh interpreter."""
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)


def four_layers(*, apart: bool) -> Task:
    """Four training layers of GPT-3 1T in one graph: 164 kernels, on 256 SN30.

    ``apart``: forward and backward in separate partitions, as in the README's example.
    """
    workload = llm(
        hidden=25600, sequence_length=2048, n_heads=160, head_size=160, n_layers=128,
        global_batch_size=3072, layers_in_graph=4,
    )  # fmt: skip
    machine = system(
        chip("SN30", utilization=0.9),
        (300.0, 1099511600000.0),
        ((RING, 8, 50.0, TENSOR), (RING, 32, 50.0, PIPELINE)),
    )
    given = Constraints(microbatch_size=1, separate_directions=apart)
    return Task(workload=workload, system=machine, constraints=given)


def llama_on_512() -> Task:
    """Train Llama-3 70B on 64 nodes of eight H100, every kernel a partition of its own."""
    task = crosstack.load("tests/golden/tasks/llama_70b_512_h100.yaml")
    return replace(task, constraints=Constraints(kernel_by_kernel=True))


def serve(phase: str) -> None:
    """Serve Llama-3 8B at 5 x 5 x 5 x 8 points on SN40L."""
    degrees = (1, 2, 4, 8, 16)
    grid = np.meshgrid(degrees, degrees, (1, 4, 16, 64, 256), 128 * 2 ** np.arange(8))
    tensor, pipeline, batch, context = (axis.ravel() for axis in grid)
    machine = system(
        chip("SN40L", utilization=0.9),
        (1638.4, 68719476736.0),
        ((RING, 16, 50.0, TENSOR),),
        latency=150e-9,
    )
    serving_sweep(
        library.model("llama3-8b"), machine, tensor=tensor, pipeline=pipeline, batch=batch,
        context=context, phase=phase,
    )  # fmt: skip


def report(claim: str, value: float, unit: str, limit: float) -> None:
    """Print one claim: the number, the limit, and the ratio of the two."""
    verdict = "holds" if value <= limit else "MISSES"
    print(f"{claim:<66} {value:10.4g} {unit:<3} limit {limit:g} {unit}, {verdict}")


def main() -> None:
    """Measure and print."""
    quick = "--quick" in sys.argv
    times = 3 if quick else 7
    task = published_task("sn30")
    answer = crosstack.optimise(task, rules="dfmodel-readme")
    status = answer.certificate.status.value
    solve = median(lambda: crosstack.optimise(task, rules="dfmodel-readme"), times)
    report(f"README case, solve ({status})", solve, "s", 0.5)
    ratio = "  ratio to the public tool: 180 s on 8 threads, 21 % gap left"
    print(f"{ratio:<66} {180 / solve:10.4g} x")
    one = median(lambda: crosstack.evaluate(task, answer.mapping, rules=answer.rules), 200)
    report("evaluation of a given mapping", one * 1e3, "ms", 1.0)
    report("import crosstack", import_time(times), "s", 0.3)
    whole = median(lambda: python("-m", "crosstack", "map", EXAMPLE), times)
    report("whole command of the README, default rules", whole, "s", 3.0)
    limit = 20.0 if quick else 60.0
    for rules, apart in (("dfmodel-readme", True), ("crosstack", True), ("crosstack", False)):
        four = four_layers(apart=apart)
        start = time.perf_counter()
        certificate = crosstack.optimise(four, rules=rules, time_limit=limit).certificate
        taken = time.perf_counter() - start
        label = f"164 kernels, {rules}, directions {'apart' if apart else 'mixed'}"
        report(f"{label} ({certificate.status.value})", taken, "s", 62.0)
        report("  gap", 100 * certificate.gap, "%", 1.0)
    fewer = replace(published_task("sn30"), constraints=Constraints(separate_directions=True))
    free = replace(
        fewer,
        system=replace(
            fewer.system,
            network=tuple(replace(d, size=None, parallelism=None) for d in fewer.system.network),
        ),
    )
    start = time.perf_counter()
    found = crosstack.optimise(free, time_limit=120.0)
    report(
        f"sizes, uses, microbatch, tiles, sharding, fusion free ({found.certificate.status.value})",
        time.perf_counter() - start, "s", 60.0,
    )  # fmt: skip
    start = time.perf_counter()
    status = crosstack.optimise(llama_on_512()).certificate.status.value
    taken = time.perf_counter() - start
    report(f"Llama-3 70B, 512 H100, kernel by kernel ({status})", taken, "s", 10.0)
    for name, run in (("HPL, 64 panels", "hpl_selene"), ("DLRM, 60 kernels", "dlrm_a")):
        task = published_task(run)
        one = median(lambda task=task: crosstack.optimise(task, rules="dfmodel-e2"), times)
        report(f"{name}, kernel by kernel", one * 1e3, "ms", 50.0)
    for phase in ("decode", "prefill"):
        one = median(lambda phase=phase: serve(phase), times)
        report(f"serving at 1,000 points of (TP, PP, batch, context), {phase}", one, "s", 2.0)
    gpu, sides = (
        library.chip("a100-pcie-80gb"),
        np.random.default_rng(1).integers(1, 16384, (3, 1000)),
    )
    product_time(Roofline(), gpu, 8, 8, 8)
    one = median(lambda: product_time(Roofline(), gpu, *sides), times)
    report("time of a product, all tiles searched, 1,000 at once, each", one, "ms", 0.2)
    one = median(lambda: product_time(Roofline(), gpu, *sides[:, 0]), times)
    report("  one alone", one * 1e3, "ms", 2.0)
    start = time.perf_counter()
    certificates = [crosstack.optimise(c.task, rules=c.rules).certificate for c in dfmodel_cases()]
    proved = sum(certificate.status is Status.OPTIMAL for certificate in certificates)
    label = f"all published runs, mapping searched, {proved} of {len(certificates)} proved"
    report(label, time.perf_counter() - start, "s", 60.0)
    start = time.perf_counter()
    rows = run_suite("dfmodel")
    held = sum(row.holds for row in rows)
    label = f"all published runs, {held} of {len(rows)} checks hold"
    report(label, time.perf_counter() - start, "s", 60.0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    report("memory of all of the above", peak, "MB", 500.0)


def import_time(times: int) -> float:
    """Median of what importing crosstack adds to starting Python. [s]"""
    bare = median(lambda: python("-c", "pass"), times)
    return median(lambda: python("-c", "import crosstack"), times) - bare


if __name__ == "__main__":
    main()
