"""Mappings that were drawn at random, priced under the rules of releases and our own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import crosstack
from crosstack.evaluate.plan import mapping_from_dict

HERE = Path(__file__).resolve().parent
FAMILY = "evaluations"
RELEASES = (
    "dfmodel-readme", "dfmodel-e2", "dfmodel-e3b", "dfmodel-e4", "dfmodel-e5",
    "dfmodel-e4+separate", "dfmodel-e4+separate-tensor", "dfmodel-e5+separate",
)  # fmt: skip
MAPPINGS = json.loads((HERE / "mappings.json").read_text())
TASKS = sorted({drawn["task"] for drawn in MAPPINGS})


def rules_of(number):
    """Return our own rules and three releases, all eight over three mappings."""
    return ("crosstack", *(RELEASES[(3 * number + i) % len(RELEASES)] for i in range(3)))


def mapping_of(drawn, task):
    """Return a stored mapping as a record."""
    kernels = []
    for i, kernel in enumerate(task.workload.graph.kernels):
        given = {"sharding": drawn["sharding"][i], "partition": drawn["partitions"][i]}
        more = {name: drawn[name][i] for name in ("lanes", "stages", "pipeline_stage")
                if name in drawn}  # fmt: skip
        kernels.append({"name": kernel.name, **given, **more})
    network = [{"size": size, "parallelism": use} for size, use in drawn["network"]]
    return mapping_from_dict({**drawn, "network": network, "kernels": kernels}, task)


def values_of(task, mapping, rules):
    """Return what a mapping costs, or what of it does not fit."""
    try:
        found = crosstack.evaluate(task, mapping, rules=rules)
    except crosstack.InfeasibleError as error:
        return {"refused": error.resource, "demand": error.demand, "limit": error.limit}
    return {
        "time": found.time,
        "layer_time": found.layer_time,
        "latency": found.latency,
        "compute_time": sum(part.compute_time for part in found.partitions),
        "memory_time": sum(part.memory_time for part in found.partitions),
        "network_time": sum(part.network_time for part in found.partitions),
        "memory_used": found.memory_used,
        "price": found.price.total,
        "power": found.power.total,
    }


@pytest.mark.parametrize("name", TASKS)
def test_mappings_cost_what_they_did(name, task_named, golden, row):
    task = task_named(name)
    rows = []
    for drawn in (drawn for drawn in MAPPINGS if drawn["task"] == name):
        mapping = mapping_of(drawn, task)
        rows += [
            row(
                name=f"mapping {drawn['number']}",
                rules=rules,
                values=values_of(task, mapping, rules),
            )
            for rules in rules_of(drawn["number"])
        ]
    golden.check(FAMILY, name, rows)


def test_every_case_of_the_file_is_computed(golden):
    golden.check_cases(FAMILY, TASKS)
