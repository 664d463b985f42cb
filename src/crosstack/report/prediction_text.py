"""A prediction as tables and as JSON."""

from __future__ import annotations

from typing import Any

from rich.console import Group
from rich.text import Text

from crosstack.evaluate.predict import Prediction
from crosstack.machine.chip import Chip
from crosstack.model.memory import MemoryAccount
from crosstack.report.text import pairs_table, rows_table
from crosstack.report.wording import Table, percent, time_words
from crosstack.units import format_quantity
from crosstack.version import __version__
from crosstack.workload.dtype import Dtype

__all__ = [
    "memory_at_peak",
    "memory_of_stages",
    "pieces_of",
    "prediction_data",
    "prediction_pairs",
    "prediction_tables",
    "prediction_title",
]

SHOWN = 14  # parts; the longest ones
MOST_STAGES = 4  # that are listed one by one


def prediction_tables(data: dict[str, Any], *, parts: bool = True) -> Group:
    """Return a heading, the step with its memory, and what its time is made of.

    ``data`` is what `prediction_data` returns, perhaps saved and read again.
    """
    title = prediction_title(data)
    longest = pieces_of(data)
    shown, rest = longest[:SHOWN], longest[SHOWN:]
    if rest:
        shown.append((f"{len(rest)} shorter ones", sum(time for _, time in rest)))
    whose = f"{data['busiest']}, the busiest: " if len(data["busy"]) > 1 else ""
    table = Table(
        header=(f"{whose}what the step is made of", "time"),
        numeric=(False, True),
        rows=tuple((name, time_words(value)) for name, value in (*shown, ("sum", data["time"]))),
    )
    head = Text(title, style="bold"), pairs_table(prediction_pairs(data))
    return Group(*head, rows_table(table)) if parts else Group(*head)


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
