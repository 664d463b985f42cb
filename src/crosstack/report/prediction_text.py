"""A prediction as tables and as JSON."""

from __future__ import annotations

from typing import Any

from rich.console import Group
from rich.text import Text

from crosstack.chip.hierarchy import ChipHierarchy
from crosstack.evaluate.predict import Prediction
from crosstack.report.text import pairs_table, rows_table
from crosstack.report.wording import Table, percent, time_words
from crosstack.units import format_quantity

__all__ = ["prediction_data", "prediction_tables"]

SHOWN = 14  # parts; the longest ones
MOST_STAGES = 4  # that are listed one by one


def prediction_tables(prediction: Prediction, chip: str, *, parts: bool = True) -> Group:
    """Return a heading, the step with its memory, and its longest parts."""
    title = f"{prediction.workload.name} under {prediction.strategy} on {chip}"
    longest = sorted((part for part in prediction.parts if part[1]), key=lambda part: -part[1])
    table = Table(
        header=("part, over all stages, the longest first", "time"),
        numeric=(False, True),
        rows=tuple((name, time_words(value)) for name, value in longest[:SHOWN]),
    )
    head = Text(title, style="bold"), pairs_table(_pairs(prediction))
    return Group(*head, rows_table(table)) if parts else Group(*head)


def _pairs(prediction: Prediction) -> tuple[tuple[str, str], ...]:
    found = [("time of a step", time_words(prediction.time))]
    if prediction.run_time is not None:
        days = prediction.run_time / 86400
        found.append(
            ("time of a training run", f"{time_words(prediction.run_time)}, {days:,.4g} d")
        )
    found.append(("chips", f"{prediction.strategy.n_chips:,}"))
    footprint = prediction.footprint
    if footprint is not None:
        found += [
            ("memory of a chip", format_quantity(footprint.total, "B")),
            ("weights and their state", format_quantity(footprint.weights, "B")),
            ("activations", format_quantity(footprint.activations, "B")),
        ]
    busy = dict(prediction.busy)
    if len(busy) > MOST_STAGES:
        most, least = max(busy, key=lambda s: busy[s]), min(busy, key=lambda s: busy[s])
        busy = {f"{most}, the busiest,": busy[most], f"{least}, the least busy,": busy[least]}
    for name, time in busy.items():
        share = percent(time / prediction.time)
        found.append((f"{name} works", f"{time_words(time)}, {share} of the step"))
    return tuple(found)


def prediction_data(prediction: Prediction, chip: ChipHierarchy, rules: str) -> dict[str, Any]:
    """Return a prediction as JSON holds it; times in seconds, sizes in bytes."""
    footprint = prediction.footprint
    return {
        "workload": prediction.workload.name,
        "strategy": str(prediction.strategy),
        "n_chips": prediction.strategy.n_chips,
        "rules": rules,
        "chip": {
            "name": chip.name,
            "throughput": chip.compute.throughput,
            "memory_bandwidth": chip.main_memory.bandwidth,
            "memory_capacity": chip.main_memory.capacity,
        },
        "time": prediction.time,
        "run_time": prediction.run_time,
        "parts": dict(prediction.parts),
        "memory": None
        if footprint is None
        else {
            "total": footprint.total,
            "weights": footprint.weights,
            "activations": footprint.activations,
            "scratch": footprint.scratch,
            "parts": footprint.parts,
        },
    }
