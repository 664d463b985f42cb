"""Read the mapping out of a saved answer, with every problem found."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from crosstack.errors import InputError, Problem, did_you_mean, nearest
from crosstack.machine.system import Parallelism
from crosstack.mapping.mapping import EndMapping, Mapping, Task
from crosstack.model.choice_index import named_axis
from crosstack.workload.kernel_graph import KernelGraph
from crosstack.workload.kernels import Axis
from crosstack.workload.passes.expert_parallel import cut_experts
from crosstack.workload.transformer_training import (
    ContextExchange,
    Hidden,
    Offload,
    Recompute,
    Schedule,
    Zero,
)

MOST_PROBLEMS = 20  # names looked up; a foreign result would list every kernel
Choice = TypeVar("Choice", bound=StrEnum)


def mapping_from_dict(data: dict[str, Any], task: Task) -> Mapping:
    """Return the mapping of a saved answer (`crosstack.evaluate.plan.Plan.to_dict`).

    Raises
    ------
    InputError
        If fields are missing, of another kind, or do not fit the task.
    """
    read = _Reader(cut=_is_whole(data.get("expert_tensor"), 2))
    rows = read.rows(data, task.workload.graph)
    ends = read.ends(data, task)
    uses = read.network(data, task)
    for name in ("microbatch_size", "n_tiles"):
        if name not in data:
            read.wrong(name, "missing from the result.")
    layers = read.block(data, rows, task.workload.graph)
    stages = read.stages(rows)
    order: Schedule | None = Schedule.ONE_F_ONE_B
    again = read.choice(data.get("recompute", Recompute.NONE), Recompute, "recompute")
    order = read.choice(data.get("schedule", order), Schedule, "schedule")
    zero = read.choice(data.get("zero", Zero.NONE), Zero, "zero")
    exchanged: ContextExchange | None = ContextExchange.RING
    exchanged = read.choice(
        data.get("context_exchange", exchanged), ContextExchange, "context_exchange"
    )
    overlap, offload = read.overlap(data), read.offload(data)
    if read.problems or layers is None or again is None or order is None or zero is None:
        raise InputError(read.problems)
    places = tuple(place for place, *_ in uses)
    return Mapping(
        sizes=tuple(size for _, size, _ in uses),
        parallelism=tuple(use for *_, use in uses if use is not None),
        dimensions=places if len({*places}) < len(places) else (),
        microbatch_size=data["microbatch_size"],
        n_tiles=layers.n_tiles,
        sharding=layers.sharding,
        partitions=layers.partitions,
        ends=ends,
        cores=_given_cores(rows, task),
        stages=stages,
        recompute=again,
        recompute_layers=data.get("recompute_layers"),
        schedule=order,
        interleave=data.get("interleave", 1),
        zero=zero,
        offload=offload,
        context_exchange=exchanged or ContextExchange.RING,
        expert_tensor=data.get("expert_tensor", 1),
        overlap=overlap,
    )


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


@dataclass(slots=True)
class _Reader:
    """What is wrong with an answer so far; ``cut``: whether chips cut experts, as that says."""

    cut: bool = False
    problems: list[Problem] = field(default_factory=list)

    def wrong(self, path: str, message: str) -> None:
        """Say what is wrong at a path."""
        self.problems.append(Problem(path, message))

    def ends(self, data: dict[str, Any], task: Task) -> tuple[EndMapping, ...]:
        """Return the mappings of what runs before and behind the layers."""
        saved, ends = data.get("ends", []), task.workload.ends
        if not isinstance(saved, list) or len(saved) > len(ends):
            count = f"one for each of {len(ends)}"
            self.wrong("ends", f"got {saved!r:.60}; allowed: a list, {count}.")
            return ()
        found = []
        for number, (row, end) in enumerate(zip(saved, ends, strict=False)):
            path = f"ends[{number}]."
            own = row if isinstance(row, dict) else {}
            if "n_tiles" not in own:
                self.wrong(f"{path}n_tiles", "missing from the result.")
            found.append(self.block(own, self.rows(own, end.graph, path), end.graph, path))
        return tuple(end for end in found if end is not None)

    def block(
        self, data: dict[str, Any], rows: list[dict[str, Any]], graph: KernelGraph, path: str = ""
    ) -> EndMapping | None:
        """Return tiles, partitions, and what kernels are split along; None with a problem.

        That is the name of an axis or its place.
        """
        axes, graph = [], cut_experts(graph) if self.cut else graph
        for i, row in enumerate(rows):
            value = row.get("sharding")
            axis = named_axis(graph, i, value) if isinstance(value, str) else None
            axes.append(axis or self.choice(value, Axis, f"{path}kernels[{i}].sharding"))
        for i, row in enumerate(rows):
            if "partition" not in row:
                self.wrong(f"{path}kernels[{i}].partition", "missing from the result.")
        if self.problems:
            return None
        return EndMapping(
            n_tiles=data["n_tiles"],
            sharding=tuple(axis for axis in axes if axis is not None),
            partitions=tuple(row["partition"] for row in rows),
        )

    def rows(
        self, data: dict[str, Any], graph: KernelGraph, path: str = ""
    ) -> list[dict[str, Any]]:
        """Return one row per kernel of a graph, in its order; none if one is missing."""
        rows = data.get("kernels")
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            message = "missing: a list of {name, partition, sharding}."
            raise InputError(Problem(f"{path}kernels", message))
        index, found = graph.index, dict[str, dict[str, Any]]()
        for i, row in enumerate(rows):
            name, where = row.get("name"), f"{path}kernels[{i}].name"
            if isinstance(name, str) and name in index:
                if name in found:
                    self.wrong(where, f'kernel "{name}" stands twice.')
                found[name] = row
            elif len(self.problems) < MOST_PROBLEMS:
                close = ", ".join(f'"{c}"' for c in nearest(name, index))
                hint = f" Nearest: {close}." if close else ""
                self.wrong(where, f'no kernel is called "{name}".{hint}')
        absent = [name for name in index if name not in found]
        for name in absent[:MOST_PROBLEMS]:
            self.wrong(f"{path}kernels", f'kernel "{name}" is missing.')
        return [found[name] for name in index] if not absent else []

    def network(
        self, data: dict[str, Any], task: Task
    ) -> list[tuple[int, int, Parallelism | None]]:
        """Return the dimension, the size and the parallelism of each use of the network."""
        network, given = data.get("network"), task.system.network
        if not isinstance(network, list) or not all(isinstance(d, dict) for d in network):
            allowed = f"got {network!r}; allowed: a list of {{dimension, size, parallelism}}."
            self.wrong("network", "missing from the result." if network is None else allowed)
            return []
        uses = []
        for i, dimension in enumerate(network):
            path = f"network[{i}]"
            place, size = dimension.get("dimension", i), dimension.get("size")
            if not _is_whole(place, 0) or place >= len(given):
                allowed = f"a whole number, 0 to {len(given) - 1}"
                self.wrong(f"{path}.dimension", f"got {place!r}; allowed: {allowed}.")
                place = 0
            if not _is_whole(size, 1):
                self.wrong(f"{path}.size", f"got {size!r}; allowed: a whole number, at least 1.")
            path, wanted = f"{path}.parallelism", given[place].parallelism
            use = self.choice(dimension.get("parallelism"), Parallelism, path)
            if use is not None and wanted not in (None, use):
                self.wrong(path, f"got {use.value}; the system's network gives {wanted}.")
            uses.append((place, size, use))
        return uses

    def stages(self, rows: list[dict[str, Any]]) -> tuple[int, ...] | None:
        """Return the pipeline stages of a saved answer, where it splits the graph."""
        stages = [row.get("pipeline_stage") for row in rows]
        if all(stage is None for stage in stages):
            return None
        allowed = "a whole number, at least 0, or null for all kernels"
        for i in [i for i, stage in enumerate(stages) if not _is_whole(stage, 0)][:MOST_PROBLEMS]:
            path = f"kernels[{i}].pipeline_stage"
            self.wrong(path, f"got {stages[i]!r}; allowed: {allowed}.")
        return tuple(stage for stage in stages if isinstance(stage, int))

    def overlap(self, data: dict[str, Any]) -> tuple[Hidden, ...] | None:
        """Return what is sent beside the work, None where that is not said."""
        said = data.get("overlap")
        if said is None:
            return None
        if not isinstance(said, list):
            self.wrong("overlap", f"got {said!r:.60}; allowed: null, or a list of what is hidden.")
            return None
        found = (self.choice(one, Hidden, f"overlap[{i}]") for i, one in enumerate(said))
        return tuple(one for one in found if one is not None)

    def offload(self, data: dict[str, Any]) -> tuple[Offload, ...]:
        """Return what is on the hosts; nothing where that is not said."""
        said = data.get("offload", [])
        if not isinstance(said, list):
            self.wrong("offload", f"got {said!r:.60}; allowed: a list of what is on the host.")
            return ()
        found = (self.choice(one, Offload, f"offload[{i}]") for i, one in enumerate(said))
        return tuple(one for one in found if one is not None)

    def choice(self, value: object, kind: type[Choice], path: str) -> Choice | None:
        """Return a member of an enum by its name, None where it has none of that."""
        names = [item.value for item in kind]
        if isinstance(value, str) and value in names:
            return kind(value)
        if len(self.problems) < MOST_PROBLEMS:
            hint = did_you_mean(value, names)
            self.wrong(path, f"got {value!r}.{hint} allowed: {', '.join(names)}.")
        return None


def _given_cores(rows: list[dict[str, Any]], task: Task) -> tuple[tuple[int, int], ...] | None:
    """Return the cores of a saved answer, where the machine deals cores and all are there."""
    if task.system.chip.compute.utilization is not None:
        return None
    found = [(row.get("lanes"), row.get("stages")) for row in rows]
    dealt = tuple((a, b) for a, b in found if a is not None and b is not None)
    return dealt if len(dealt) == len(rows) else None
