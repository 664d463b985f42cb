"""Read the mapping out of a saved answer, with every problem found."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, TypeVar

from crosstack.errors import InputError, Problem, nearest
from crosstack.machine.system import Parallelism
from crosstack.mapping.mapping import EndMapping, Mapping, Task
from crosstack.model.choice_index import named_axis
from crosstack.workload.kernel_graph import KernelGraph
from crosstack.workload.kernels import Axis
from crosstack.workload.transformer_training import Recompute, Schedule

__all__ = ["mapping_from_dict"]

MOST_PROBLEMS = 20  # names looked up; a foreign result would list every kernel
Choice = TypeVar("Choice", bound=StrEnum)


def mapping_from_dict(data: dict[str, Any], task: Task) -> Mapping:
    """Return the mapping of a saved answer (`crosstack.evaluate.plan.Plan.to_dict`).

    Raises
    ------
    InputError
        If fields are missing, of another kind, or do not fit the task.
    """
    problems: list[Problem] = []
    rows = _rows(data, task.workload.graph, "", problems)
    ends = _ends(data, task, problems)
    uses = _network(data, task, problems)
    for name in ("microbatch_size", "n_tiles"):
        if name not in data:
            problems.append(Problem(name, "missing from the result."))
    sharding = _sharding(rows, task.workload.graph, "", problems)
    stages = _given_stages(rows, problems)
    again = _choice(data.get("recompute", Recompute.NONE), Recompute, "recompute", problems)
    one = Schedule.ONE_F_ONE_B
    order = _choice(data.get("schedule", one), Schedule, "schedule", problems)
    if problems:
        raise InputError(problems)
    places = tuple(place for place, *_ in uses)
    return Mapping(
        sizes=tuple(size for _, size, _ in uses),
        parallelism=tuple(use for *_, use in uses if use is not None),
        dimensions=places if len({*places}) < len(places) else (),
        microbatch_size=data["microbatch_size"],
        n_tiles=data["n_tiles"],
        sharding=sharding,
        partitions=tuple(row["partition"] for row in rows),
        ends=ends,
        cores=_given_cores(rows, task),
        stages=stages,
        recompute=again or Recompute.NONE,
        schedule=order or one,
        interleave=data.get("interleave", 1),
    )


def _ends(data: dict[str, Any], task: Task, problems: list[Problem]) -> tuple[EndMapping, ...]:
    """Return the mappings of what runs before and behind the layers."""
    saved = data.get("ends", [])
    if not isinstance(saved, list) or len(saved) > len(task.workload.ends):
        count = f"one for each of {len(task.workload.ends)}"
        problems.append(Problem("ends", f"got {saved!r:.60}; allowed: a list, {count}."))
        return ()
    found = []
    for number, (row, end) in enumerate(zip(saved, task.workload.ends, strict=False)):
        path = f"ends[{number}]."
        own = row if isinstance(row, dict) else {}
        if "n_tiles" not in own:
            problems.append(Problem(f"{path}n_tiles", "missing from the result."))
        rows = _rows(own, end.graph, path, problems)
        sharding = _sharding(rows, end.graph, path, problems)
        if not problems:
            partitions = tuple(row["partition"] for row in rows)
            found.append(
                EndMapping(n_tiles=own["n_tiles"], sharding=sharding, partitions=partitions)
            )
    return tuple(found)


def _sharding(
    rows: list[dict[str, Any]], graph: KernelGraph, path: str, problems: list[Problem]
) -> tuple[Axis, ...]:
    """Return what every kernel is split along, by the name of an axis or by its place.

    All have a partition, or it is a problem.
    """
    axes = []
    for i, row in enumerate(rows):
        value = row.get("sharding")
        axis = named_axis(graph, i, value) if isinstance(value, str) else None
        axes.append(axis or _choice(value, Axis, f"{path}kernels[{i}].sharding", problems))
    for i, row in enumerate(rows):
        if "partition" not in row:
            problems.append(Problem(f"{path}kernels[{i}].partition", "missing from the result."))
    return tuple(axis for axis in axes if axis is not None)


def _rows(
    data: dict[str, Any], graph: KernelGraph, path: str, problems: list[Problem]
) -> list[dict[str, Any]]:
    """Return one row per kernel of a graph, in its order; none if something is wrong."""
    rows = data.get("kernels")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        message = "missing: a list of {name, partition, sharding}."
        raise InputError(Problem(f"{path}kernels", message))
    index = graph.index
    found: dict[str, dict[str, Any]] = {}
    for i, row in enumerate(rows):
        name = row.get("name")
        if isinstance(name, str) and name in index:
            if name in found:
                problems.append(
                    Problem(f"{path}kernels[{i}].name", f'kernel "{name}" stands twice.')
                )
            found[name] = row
            continue
        if len(problems) < MOST_PROBLEMS:
            close = ", ".join(f'"{c}"' for c in nearest(name, index))
            hint = f" Nearest: {close}." if close else ""
            problems.append(
                Problem(f"{path}kernels[{i}].name", f'no kernel is called "{name}".{hint}')
            )
    absent = [name for name in index if name not in found]
    problems += [
        Problem(f"{path}kernels", f'kernel "{name}" is missing.') for name in absent[:MOST_PROBLEMS]
    ]
    return [found[name] for name in index] if not absent else []


def _network(
    data: dict[str, Any], task: Task, problems: list[Problem]
) -> list[tuple[int, int, Parallelism | None]]:
    """Return the dimension, the size and the parallelism of all that the network is used for."""
    network = data.get("network")
    if network is None:
        problems.append(Problem("network", "missing from the result."))
        return []
    if not isinstance(network, list) or not all(isinstance(d, dict) for d in network):
        problems.append(
            Problem(
                "network", f"got {network!r}; allowed: a list of {{dimension, size, parallelism}}."
            )
        )
        return []
    uses = []
    given = task.system.network
    for i, dimension in enumerate(network):
        place, size = dimension.get("dimension", i), dimension.get("size")
        if not isinstance(place, int) or isinstance(place, bool) or not 0 <= place < len(given):
            allowed = f"a whole number, 0 to {len(given) - 1}"
            problems.append(
                Problem(f"network[{i}].dimension", f"got {place!r}; allowed: {allowed}.")
            )
            place = 0
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            problems.append(
                Problem(f"network[{i}].size", f"got {size!r}; allowed: a whole number, at least 1.")
            )
            size = 1
        path = f"network[{i}].parallelism"
        use = _choice(dimension.get("parallelism"), Parallelism, path, problems)
        wanted = given[place].parallelism
        if use is not None and wanted is not None and use is not wanted:
            problems.append(
                Problem(path, f"got {use.value}; the system's network gives {wanted.value}.")
            )
        uses.append((place, size, use))
    return uses


def _choice(value: object, kind: type[Choice], path: str, problems: list[Problem]) -> Choice | None:
    names = [item.value for item in kind]
    if isinstance(value, str) and value in names:
        return kind(value)
    close = nearest(value, names, 1)
    hint = f' Did you mean "{close[0]}"?' if close else ""
    if len(problems) < MOST_PROBLEMS:
        problems.append(Problem(path, f"got {value!r}.{hint} allowed: {', '.join(names)}."))
    return None


def _given_cores(rows: list[dict[str, Any]], task: Task) -> tuple[tuple[int, int], ...] | None:
    """Return the cores of a saved answer, where the machine deals cores and all are there."""
    if task.system.chip.compute.utilization is not None:
        return None
    found = [(row.get("lanes"), row.get("stages")) for row in rows]
    dealt = tuple((a, b) for a, b in found if a is not None and b is not None)
    return dealt if len(dealt) == len(rows) else None


def _given_stages(rows: list[dict[str, Any]], problems: list[Problem]) -> tuple[int, ...] | None:
    """Return the pipeline stages of a saved answer, where it splits the graph."""
    stages = [row.get("pipeline_stage") for row in rows]
    if all(stage is None for stage in stages):
        return None
    for i, stage in enumerate(stages):
        if not isinstance(stage, int) or isinstance(stage, bool) or stage < 0:
            problems.append(
                Problem(
                    f"kernels[{i}].pipeline_stage",
                    f"got {stage!r}; allowed: a whole number, at least 0, or null for all kernels.",
                )
            )
            if len(problems) >= MOST_PROBLEMS:
                break
    return tuple(stage for stage in stages if isinstance(stage, int))
