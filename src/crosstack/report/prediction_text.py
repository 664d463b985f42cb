"""A prediction, and the product of one chip that it may be of, as tables and as JSON."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType

from crosstack.evaluate.predict import Prediction
from crosstack.machine.chip import Chip
from crosstack.model.kernels.clock import KernelTime
from crosstack.model.memory import MemoryAccount
from crosstack.report.text import pairs_table, rows_table, titled
from crosstack.report.wording import Table, percent, table_of, time_words
from crosstack.units import format_quantity
from crosstack.version import __version__
from crosstack.workload.dtype import Dtype

SHOWN = 14  # parts; the longest ones
MOST_STAGES = 4  # that are listed one by one


def prediction_tables(data: dict[str, Any], *, parts: bool = True) -> Group:
    """Return the step with its memory, what its time is made of, and the product of one chip.

    ``data`` is what `prediction_data` returns, perhaps saved and read again.
    """
    shown: list[RenderableType] = [pairs_table(prediction_pairs(data))]
    kernel = data.get("kernel")
    if parts and (kernel is None or data["n_chips"] > 1):
        longest = pieces_of(data)
        rest = sum(time for _, time in longest[SHOWN:])
        others = [(f"{len(longest) - SHOWN} shorter ones", rest)] if longest[SHOWN:] else []
        whose = f"{data['busiest']}, the busiest: " if len(data["busy"]) > 1 else ""
        table = table_of(
            (*longest[:SHOWN], *others, ("sum", data["time"])),
            (f"{whose}what the step is made of", "<", lambda part: part[0]),
            ("time", ">", lambda part: time_words(part[1])),
        )
        shown.append(rows_table(table))
    if parts and kernel is not None:
        title = f"The product of one chip, {sides_words(kernel)}"
        rows = pairs_table(kernel_pairs(kernel)), rows_table(level_rows(kernel))
        shown.append(titled(title, *rows))
    return titled(prediction_title(data), *shown)


def pieces_of(data: dict[str, Any]) -> list[tuple[str, float]]:
    """Return what the time of a step is made of, the longest first. [s]"""
    named = [(name, time) for name, time in data["parts"].items() if time]
    return sorted(named, key=lambda part: -part[1])


def prediction_title(data: dict[str, Any]) -> str:
    """Return what was predicted, on one line."""
    return f"{data['workload']} under {data['strategy']} on {data['chip']['name']}"


def prediction_pairs(data: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the numbers of a step, and of its memory."""
    found = [("time of a step", time_words(data["time"]))]
    run_time, memory = data["run_time"], data["memory"]
    if run_time is not None:
        days = f"{run_time / 86400:,.4g} d"
        found.append(("time of a training run", f"{time_words(run_time)}, {days}"))
    found.append(("chips", f"{data['n_chips']:,}"))
    if memory is not None and memory["total"]:
        stages = memory_of_stages(memory)
        where = f" of stage {stages.index(max(stages))}, the fullest" if len(stages) > 1 else ""
        found.append((f"memory of a chip{where}", format_quantity(memory["total"], "B")))
        held = [(name, size) for name, size in memory_at_peak(memory) if size]
        found += [(name, format_quantity(size, "B")) for name, size in held]
    busy = data["busy"]
    if len(busy) > MOST_STAGES:
        most, least = max(busy, key=lambda s: busy[s]), min(busy, key=lambda s: busy[s])
        busy = {f"{most}, the busiest,": busy[most], f"{least}, the least busy,": busy[least]}
    for name, time in busy.items():
        share = percent(time / data["time"]) if data["time"] else "all"
        found.append((f"{name} works", f"{time_words(time)}, {share} of the step"))
    return tuple(found)


def prediction_data(
    prediction: Prediction, chip: Chip, dtype: Dtype, rules: str, inputs: dict[str, Any]
) -> dict[str, Any]:
    """Return a prediction as JSON holds it; times in seconds, sizes in bytes.

    ``inputs`` is what was asked, so that the number can be computed again.
    """
    return {
        "crosstack_version": __version__,
        "workload": prediction.workload.name,
        "strategy": str(prediction.strategy),
        "n_chips": prediction.strategy.n_chips,
        "rules": rules,
        "inputs": inputs,
        "chip": {
            "name": chip.name,
            "throughput": chip.throughput(dtype),
            "memory_bandwidth": chip.main_memory.speed,
            "memory_capacity": chip.main_memory.room,
        },
        "time": prediction.time,
        "run_time": prediction.run_time,
        "parts": dict(prediction.parts),
        "busiest": prediction.busiest,
        "busy": dict(prediction.busy),
        "memory": _memory_data(prediction.memory),
    }


def _memory_data(account: MemoryAccount | None) -> dict[str, Any] | None:
    """Return what a chip of every stage holds, by row, and the peak of the fullest. [B]"""
    if account is None:
        return None
    rows = {name: list(sizes) for name, sizes in account.rows() if name != "total"}
    return {"total": account.peak, "rows": rows}


def memory_of_stages(memory: dict[str, Any]) -> list[float]:
    """Return what a chip of every stage holds. [B]"""
    return [sum(sizes) for sizes in zip(*memory["rows"].values(), strict=True)]


def memory_at_peak(memory: dict[str, Any]) -> list[tuple[str, float]]:
    """Return what a chip of the fullest stage holds, by row in words. [B]"""
    stages = memory_of_stages(memory)
    fullest = stages.index(max(stages)) if stages else 0
    return [(name.replace("_", " "), sizes[fullest]) for name, sizes in memory["rows"].items()]


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
