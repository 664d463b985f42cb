"""The terms of a matrix product's time as tables and as JSON."""

from __future__ import annotations

from typing import Any

from rich.console import Group
from rich.text import Text

from crosstack.chip.roofline import KernelTime
from crosstack.report.text import pairs_table, rows_table
from crosstack.report.wording import Table, percent, time_words
from crosstack.units import format_quantity

__all__ = ["kernel_data", "kernel_tables"]


def kernel_tables(kernel: KernelTime, shape: tuple[int, int, int]) -> Group:
    """Return the terms of one product, and a row for each memory level."""
    sides = " x ".join(f"{side:,}" for side in shape)
    rows = tuple(
        (
            name,
            format_quantity(float(kernel.traffic[name]), "B"),
            time_words(float(kernel.level_times[name])),
            " x ".join(f"{side:,.0f}" for side in kernel.tiles[name].tolist()),
        )
        for name in kernel.traffic
    )
    levels = Table(
        header=("memory", "traffic", "takes", "tile, M x K x N"),
        numeric=(False, True, True, True),
        rows=rows,
    )
    title = Text(f"The product of one chip, {sides}", style="bold")
    return Group(title, pairs_table(_pairs(kernel)), rows_table(levels))


def _pairs(kernel: KernelTime) -> tuple[tuple[str, str], ...]:
    found = [
        ("bound by", str(kernel.bound)),
        ("compute", time_words(float(kernel.compute_time))),
        ("waiting", time_words(float(kernel.waiting_time))),
        ("launch", time_words(kernel.launch_time)),
    ]
    split = float(kernel.split)
    if split > 1:
        found.append(("sum of a split K", time_words(float(kernel.reduction_time))))
        found.append(("parts of K", f"{split:,.0f}"))
    return (
        *found,
        ("tiles", f"{float(kernel.n_tiles):,.0f}"),
        ("dataflow", str(kernel.dataflow)),
        ("utilization", percent(float(kernel.utilization))),
    )


def kernel_data(kernel: KernelTime, shape: tuple[int, int, int]) -> dict[str, Any]:
    """Return the terms of one product as JSON holds them; times in seconds, traffic in bytes."""
    m, k, n = shape
    return {
        "m": m,
        "k": k,
        "n": n,
        "time": float(kernel.time),
        "bound": str(kernel.bound),
        "launch_time": float(kernel.launch_time),
        "compute_time": float(kernel.compute_time),
        "waiting_time": float(kernel.waiting_time),
        "reduction_time": float(kernel.reduction_time),
        "split": float(kernel.split),
        "n_tiles": float(kernel.n_tiles),
        "dataflow": str(kernel.dataflow),
        "utilization": float(kernel.utilization),
        "levels": {
            name: {
                "traffic": float(kernel.traffic[name]),
                "time": float(kernel.level_times[name]),
                "tile": kernel.tiles[name].tolist(),
            }
            for name in kernel.traffic
        },
    }
