"""The terms of a matrix product's time as tables and as JSON."""

from __future__ import annotations

from typing import Any

from rich.console import Group

from crosstack.model.kernels.clock import KernelTime
from crosstack.report.text import pairs_table, rows_table, titled
from crosstack.report.wording import Table, percent, table_of, time_words
from crosstack.units import format_quantity


def kernel_tables(data: dict[str, Any]) -> Group:
    """Return the terms of one product, and a row for each memory level.

    ``data`` is what `kernel_data` returns, perhaps saved and read again.
    """
    title = f"The product of one chip, {sides_words(data)}"
    return titled(title, pairs_table(kernel_pairs(data)), rows_table(level_rows(data)))


def sides_words(data: dict[str, Any]) -> str:
    """Return M x K x N."""
    return " x ".join(f"{data[side]:,}" for side in "mkn")


def level_rows(data: dict[str, Any]) -> Table:
    """Return a row for each memory level: what it moves, how fast, how long that takes, its tile.

    The time is the traffic over the bandwidth.
    """
    levels = data["levels"]
    return table_of(
        levels,
        ("memory", "<", str),
        ("traffic", ">", lambda name: format_quantity(levels[name]["traffic"], "B")),
        ("bandwidth in use", ">", lambda name: format_quantity(levels[name]["bandwidth"], "B/s")),
        ("takes", ">", lambda name: time_words(levels[name]["time"])),
        (
            "tile, M x K x N",
            ">",
            lambda name: " x ".join(f"{side:,.0f}" for side in levels[name]["tile"]),
        ),
    )


def kernel_pairs(data: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the terms of one product."""
    found = [
        ("bound by", data["bound"]),
        ("compute", time_words(data["compute_time"])),
        ("waiting", time_words(data["waiting_time"])),
        ("launch", time_words(data["launch_time"])),
    ]
    if data["split"] > 1:
        found.append(("sum of a split K", time_words(data["reduction_time"])))
        found.append(("parts of K", f"{data['split']:,.0f}"))
    found += [
        (f"between parts of {name}", format_quantity(level["passing"], "B"))
        for name, level in data["levels"].items()
        if level["passing"]
    ]
    return (
        *found,
        ("tiles", f"{data['n_tiles']:,.0f}"),
        ("dataflow", data["dataflow"]),
        ("utilization", percent(data["utilization"])),
    )


def kernel_data(kernel: KernelTime, shape: tuple[int, int, int]) -> dict[str, Any]:
    """Return the terms of one product as JSON holds them; times in seconds, traffic in bytes."""
    numbers = ("launch_time", "compute_time", "waiting_time", "reduction_time", "split", "n_tiles")
    return {
        **dict(zip("mkn", shape, strict=True)),
        "time": float(kernel.time),
        "bound": str(kernel.bound),
        **{name: float(getattr(kernel, name)) for name in numbers},
        "dataflow": str(kernel.dataflow),
        "utilization": float(kernel.utilization),
        "levels": {
            name: {
                "traffic": float(kernel.traffic[name]),
                "bandwidth": float(kernel.bandwidths[name]),
                "passing": float(kernel.passing[name]),
                "time": float(kernel.level_times[name]),
                "tile": kernel.tiles[name].tolist(),
            }
            for name in kernel.traffic
        },
    }
