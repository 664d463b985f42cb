"""How fast are points answered as arrays, and a million of them swept into a store?

Usage: python3 benchmarks/sweep.py. The study is read and a mapping found outside the timed part;
nothing is cached between repetitions but graphs. A sweep's time is from points to the last part;
that of the command is from its start to its end, with what it prints.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from timing import measure

import crosstack
from crosstack.explore.batches import CHUNK
from crosstack.explore.evaluators import BaseProblem, evaluator_named
from crosstack.explore.pool import Processes, n_processors
from crosstack.explore.run import layout_of, run_study
from crosstack.explore.store import Store
from crosstack.explore.study import read_study

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
TIMES = 5
TASK = """\
workload: {dfmodel: {llm: {hidden: 25600, sequence_length: 2048, n_heads: 160, head_size: 160,
  n_layers: 128, global_batch_size: 3072, training: true}}}
system:
  chip: {library: sn30, utilization: 0.9}
  memory: ddr
  network:
    - {library: pcie4_setup, kind: ring, size: 8}
    - {library: pcie4_setup, kind: ring, size: 128}
constraints: {microbatch_size: 1, separate_directions: true}
"""


def command() -> None:
    """Run the whole command, as a user does."""
    with tempfile.TemporaryDirectory() as folder:
        study = str(EXAMPLES / "studies/million_chips.yaml")
        arguments = ["sweep", study, "--jobs", "2", "--store", f"{folder}/store"]
        subprocess.run(
            [sys.executable, "-m", "crosstack", *arguments], check=True, capture_output=True
        )


def main() -> None:
    """Measure and print."""
    machine = platform.processor() or platform.machine()
    print(machine, n_processors(), "processors,", sys.version.split()[0], np.__version__)
    draw = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "task.yaml"
        path.write_text(TASK)
        answer = crosstack.optimise(crosstack.load(path), gap=0.1)
        mapping = answer.to_dict()
    machines = {
        "system.memory.bandwidth": draw.uniform(1e11, 4e12, CHUNK),
        "system.chip.utilization": draw.uniform(0.3, 1.0, CHUNK),
        "system.network[0].bandwidth": draw.uniform(1e10, 1e12, CHUNK),
        "system.network[1].bandwidth": draw.uniform(1e10, 1e12, CHUNK),
    }
    priced = BaseProblem(content=TASK, source="task.yaml", options={"mapping": mapping})
    measure(
        f"a mapping on {CHUNK:,} machines, one process",
        lambda: evaluator_named("mapping").run_many(priced, (), machines),
        TIMES,
        count=CHUNK,
    )
    chip = EXAMPLES / "chips/n5_hbm3.yaml"
    budgets = {
        "chip_area": draw.uniform(2e-4, 8.5e-4, CHUNK),
        "power": draw.uniform(150, 1000, CHUNK),
        "shares.area.compute": draw.uniform(0.1, 0.5, CHUNK),
    }
    made = BaseProblem(content=chip.read_text(), source=chip.name)
    measure(
        f"{CHUNK:,} chips, one process",
        lambda: evaluator_named("chip").run_many(made, (), budgets),
        TIMES,
        count=CHUNK,
    )
    study = read_study(EXAMPLES / "studies/million_chips.yaml")
    for count in (1, 2):

        def swept(count: int = count) -> None:
            with tempfile.TemporaryDirectory() as folder:
                store = Store.create(folder, layout_of(study))
                run_study(study, store, Processes(count))

        measure(f"a million chips into a store, {count} processes", swept, 3, count=1_000_000)
    measure("crosstack sweep million_chips.yaml --jobs 2", command, 3, count=1_000_000)


if __name__ == "__main__":
    main()
