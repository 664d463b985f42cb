"""Draw the mappings of mappings.json: ``python tests/golden/draw_mappings.py``.

They are stored, so that a change of what is feasible does not change which mappings are priced.
Each is feasible under ``dfmodel-e3b``; under ``crosstack`` too where a hundred draws find one.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import crosstack
from crosstack.evaluate.plan import mapping_from_dict

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples"
EACH = 8
DRAWS = 100
AXES = ("outer", "m", "k", "n", "none")
USES = ("tensor", "pipeline", "data")
# Most of its mappings have stages that split a copy of the graph.
SPLIT = "stages_in_a_graph"

Drawn = dict[str, Any]


def sizes_of(rng: random.Random, task: crosstack.Task) -> list[int]:
    """Return the sizes of all dimensions; what is free takes what is left, in powers of two."""
    left = task.system.n_chips
    for dimension in task.system.network:
        left //= dimension.size or 1
    sizes = []
    for dimension in task.system.network:
        size = dimension.size or rng.choice([s for s in (1, 2, 4, 8, left) if left % s == 0])
        left //= 1 if dimension.size else size
        sizes.append(size)
    return sizes


def partitions_of(rng: random.Random, task: crosstack.Task) -> list[int]:
    """Return partitions in an order that the graph allows."""
    graph = task.workload.graph
    names = [kernel.name for kernel in graph.kernels]
    if rng.random() < 0.3 or task.constraints.kernel_by_kernel:
        return list(range(len(names)))
    before: dict[str, list[str]] = {name: [] for name in names}
    for tensor in graph.tensors:
        for consumer in tensor.consumers:
            before[consumer.kernel].append(tensor.producer)
    step = rng.uniform(0.05, 0.9)
    found: dict[str, int] = {}
    while len(found) < len(names):
        for name in names:
            if name not in found and all(source in found for source in before[name]):
                first = max((found[source] for source in before[name]), default=0)
                found[name] = first + (rng.random() < step)
    numbers = {p: i for i, p in enumerate(sorted(set(found.values())))}
    return [numbers[found[name]] for name in names]


def draw(rng: random.Random, task: crosstack.Task) -> Drawn:
    """Return any mapping, feasible or not."""
    count = len(task.workload.graph.kernels)
    partitions = partitions_of(rng, task)
    uses = [d.parallelism.value if d.parallelism else rng.choice(USES) for d in task.system.network]
    drawn: Drawn = {
        "network": [list(both) for both in zip(sizes_of(rng, task), uses, strict=True)],
        "microbatch_size": rng.choice((1, 1, 2, 4)),
        "n_tiles": rng.choice((1, 2, 16, 64, 512, task.workload.sequence_length)),
        "sharding": [rng.choice(AXES) for _ in range(count)],
        "partitions": partitions,
    }
    if rng.random() < 0.5:
        drawn["n_tiles"] = task.workload.sequence_length
    return drawn


def record(drawn: Drawn, task: crosstack.Task) -> crosstack.Mapping:
    """Return a drawn mapping as a record."""
    kernels = [
        {"name": kernel.name, "sharding": axis, "partition": partition}
        for kernel, axis, partition in zip(
            task.workload.graph.kernels, drawn["sharding"], drawn["partitions"], strict=True
        )
    ]
    for name in ("lanes", "stages", "pipeline_stage"):
        for kernel, value in zip(kernels, drawn.get(name, ()), strict=False):
            kernel[name] = value
    data = {
        **drawn,
        "network": [{"size": size, "parallelism": use} for size, use in drawn["network"]],
        "kernels": kernels,
    }
    return mapping_from_dict(data, task)


def allowed_sharding(rng: random.Random, drawn: Drawn, task: crosstack.Task) -> None:
    """Put right the axes that an evaluation refuses."""
    try:
        crosstack.evaluate(task, record(drawn, task), rules="dfmodel-e3b")
    except crosstack.InputError as error:
        for problem in error.problems:
            if problem.path.endswith(".sharding"):
                number = int(problem.path.split("[")[1].split("]")[0])
                choices = problem.message.rpartition("allowed: ")[2].rstrip(".").split(", ")
                drawn["sharding"][number] = rng.choice(choices)
    except crosstack.InfeasibleError:
        pass


def feasible(drawn: Drawn, task: crosstack.Task, rules: str) -> bool:
    try:
        crosstack.evaluate(task, record(drawn, task), rules=rules)
    except (crosstack.InputError, crosstack.InfeasibleError):
        return False
    return True


def split(rng: random.Random, drawn: Drawn) -> None:
    """Give every partition a pipeline stage, in order."""
    last = max(drawn["partitions"])
    cuts = sorted(rng.sample(range(1, last + 1), min(rng.randint(1, 3), last)))
    drawn["pipeline_stage"] = [sum(p >= cut for cut in cuts) for p in drawn["partitions"]]


def with_cores(rng: random.Random, drawn: Drawn) -> None:
    """Give every kernel a few cores of its own."""
    drawn["lanes"] = [rng.choice((1, 2, 4, 8)) for _ in drawn["partitions"]]
    drawn["stages"] = [rng.choice((1, 2, 3)) for _ in drawn["partitions"]]


def mappings_of(name: str, task: crosstack.Task) -> list[Drawn]:
    found = []
    for seed in range(EACH):
        best = None
        for attempt in range(DRAWS):
            rng = random.Random(f"{name} {seed} {attempt}")
            drawn = draw(rng, task)
            allowed_sharding(rng, drawn, task)
            if name == SPLIT and seed % 3 and max(drawn["partitions"]) > 0:
                split(rng, drawn)
            if task.system.chip.compute.utilization is None and seed % 3 == 1:
                with_cores(rng, drawn)
            if not feasible(drawn, task, "dfmodel-e3b"):
                continue
            best = best or drawn
            if feasible(drawn, task, "crosstack"):
                best = drawn
                break
        if best is not None and best not in found:
            found.append(best)
    print(f"{name}: {len(found)}, {sum(feasible(d, task, 'crosstack') for d in found)} by default")
    return [{"task": name, "number": number, **drawn} for number, drawn in enumerate(found)]


def main() -> None:
    files = [*sorted((HERE / "tasks").glob("*.yaml")), *sorted(EXAMPLES.glob("*.yaml"))]
    rows = [row for path in files for row in mappings_of(path.stem, crosstack.load(path))]
    lines = ",\n".join(json.dumps(row) for row in rows)
    (HERE / "mappings.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
