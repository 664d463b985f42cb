"""A prediction as tables and as JSON."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from crosstack.evaluate.predict import Prediction
from crosstack.report.wording import percent, time_words
from crosstack.units import format_quantity

__all__ = ["prediction_data", "prediction_tables"]

SHOWN = 14  # parts; the longest ones


def prediction_tables(prediction: Prediction, chip: str) -> tuple[RenderableType, ...]:
    """Return a heading, the step with its memory, and its longest parts."""
    title = f"{prediction.workload.name} under {prediction.strategy} on {chip}"
    head = Table(show_header=False)
    head.add_row("time of a step", time_words(prediction.time))
    head.add_row("chips", str(prediction.strategy.n_chips))
    footprint = prediction.footprint
    if footprint is not None:
        head.add_row("memory of a chip", format_quantity(footprint.total, "B"))
        head.add_row("weights and their state", format_quantity(footprint.weights, "B"))
        head.add_row("activations", format_quantity(footprint.activations, "B"))
    for timeline in prediction.timelines:
        for name, busy in timeline.busy().items():
            if busy and name.startswith(("stage", "chip")):
                share = percent(busy / prediction.time)
                head.add_row(f"{name} works", f"{time_words(busy)}, {share} of the step")
    parts = Table()
    parts.add_column("part, the longest first")
    parts.add_column("time", justify="right")
    longest = sorted(prediction.parts, key=lambda part: -part[1])
    for name, value in longest[:SHOWN]:
        if value:
            parts.add_row(name, time_words(value))
    return Text(title), head, parts


def prediction_data(prediction: Prediction) -> dict[str, Any]:
    """Return a prediction as JSON holds it; times in seconds, sizes in bytes."""
    footprint = prediction.footprint
    return {
        "workload": prediction.workload.name,
        "strategy": str(prediction.strategy),
        "time": prediction.time,
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
