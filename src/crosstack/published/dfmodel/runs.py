"""DFModel's published runs as tasks, and what was printed of them.

``setups.yaml`` has what makes a task, ``cases.yaml`` what was printed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

from crosstack.io.yaml_tree import parse_yaml
from crosstack.mapping.mapping import Constraints, Mapping, Task
from crosstack.published.case import Case, Check
from crosstack.published.dfmodel.graphs.sections import GRAPHS
from crosstack.published.dfmodel.machines import DATA, SETUPS, axes, chip, given, system
from crosstack.workload.workload import Workload

PRINTED: Any = parse_yaml(files(__package__).joinpath("cases.yaml").read_text(encoding="utf-8"))
MACHINE = ("link_power", "switch_power", "memory_power", "latency")


def _told(section: str, name: str) -> dict[str, Any]:
    """Return what an entry says, over what those say that it is like."""
    told = dict(SETUPS[section][name])
    like = told.pop("like", None)
    return told if like is None else _told(section, like) | told


@cache
def published_workload(name: str) -> Workload:
    """Return the workload of a name."""
    told = _told("workloads", name)
    return GRAPHS[told.pop("graph")](**told)


def published_task(name: str, **changes: Any) -> Task:
    """Return the task of a name, some of what ``setups.yaml`` says of it changed.

    A ``workload`` is a name there, or the workload itself.
    """
    told = _told("tasks", name) | changes
    given_powers = {key: told[key] for key in MACHINE if key in told}
    machine = system(chip(**told["chip"]), told["memory"], told["network"], **given_powers)
    pins, work = tuple(told.get("partitions", {}).items()), told["workload"]
    task = Task(
        workload=published_workload(work) if isinstance(work, str) else work,
        system=replace(machine, domain_size=told.get("domain_size")),
        constraints=Constraints(**told["constraints"], partitions=pins),
    )
    return given(task, told["sharding"]) if "sharding" in told else task


def published_mapping(name: str, task: Task) -> Mapping:
    """Return the mapping of a name for a task whose network is given."""
    told, network = SETUPS["mappings"][name], task.system.network
    cores = zip(told["lanes"], told["stages"], strict=True) if "lanes" in told else None
    return Mapping(
        sizes=tuple(d.size or 1 for d in network),
        parallelism=tuple(d.parallelism or DATA for d in network),
        microbatch_size=1,
        n_tiles=told["n_tiles"],
        sharding=axes(told["sharding"]),
        partitions=tuple(told["partitions"]),
        cores=None if cores is None else tuple(cores),
    )


def published_case(name: str) -> Case:
    """Return a published run of ``cases.yaml``."""
    told = PRINTED[name]
    task = published_task(told["task"])
    return Case(
        name=name,
        source=told["source"],
        rules=told["rules"],
        task=task,
        checks=tuple(Check(*check) for check in told["checks"]),
        mapping=published_mapping(told["mapping"], task) if "mapping" in told else None,
        proved=told.get("proved", False),
        note=told.get("note", ""),
    )


def dfmodel_cases() -> list[Case]:
    """Return every case, in the order of the published table."""
    return [published_case(name) for name in PRINTED]
