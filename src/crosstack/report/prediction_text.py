"""A prediction, and the product of one chip that it may be of: tables, JSON and a page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from crosstack.evaluate.plan import Plan
from crosstack.evaluate.predict import Prediction
from crosstack.machine.chip import Chip
from crosstack.model.kernels.clock import KernelTime
from crosstack.model.memory_account import MemoryAccount
from crosstack.report import html_parts as page
from crosstack.report.drawing import attribute
from crosstack.report.html import step_sections
from crosstack.report.text import pairs_table, rows_table, step_tables, titled
from crosstack.report.wording import Table, percent, table_of, time_words
from crosstack.units import format_quantity
from crosstack.version import __version__
from crosstack.workload.dtype import Dtype

SHOWN = 14  # parts in sight; the longest ones
MOST_LISTED, MOST_STAGES = 4, 32  # stages with a line, and with a bar


def prediction_tables(
    data: dict[str, Any], plan: Plan | None = None, *, parts: bool = True
) -> Group:
    """Return the step with its memory, what its time is made of, and the product of one chip.

    Parameters
    ----------
    data : dict
        What `prediction_data` returns, perhaps saved and read again.
    plan : Plan or None
        Its plan, of which the same is said as of any answer.
    parts : bool
        Whether to say what the time is made of.
    """
    warned = [Text(f"Warning: {words}") for words in data.get("warnings", ())]
    shown: list[RenderableType] = [*warned, pairs_table(_pairs(data, memory=plan is None))]
    if plan is not None:
        shown += step_tables(plan)
    kernel = data.get("kernel")
    if parts and (kernel is None or data["n_chips"] > 1):
        longest = _pieces(data)
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
        title = f"The product of one chip, {_sides(kernel)}"
        rows = pairs_table(_kernel_pairs(kernel)), rows_table(_level_rows(kernel))
        shown.append(titled(title, *rows))
    return titled(_title(data), *shown)


def _pieces(data: dict[str, Any]) -> list[tuple[str, float]]:
    """Return what the time of a step is made of, the longest first. [s]"""
    named = [(name, time) for name, time in data["parts"].items() if time]
    return sorted(named, key=lambda part: -part[1])


def _title(data: dict[str, Any]) -> str:
    """Return what was predicted, on one line."""
    return f"{data['workload']} under {data['strategy']} on {data['chip']['name']}"


def _pairs(data: dict[str, Any], *, memory: bool = True) -> tuple[tuple[str, str], ...]:
    """Return the numbers of a step, and of its ``memory``."""
    found = [("time of a step", time_words(data["time"]))]
    run_time, held = data["run_time"], data["memory"] if memory else None
    if run_time is not None:
        days = f"{run_time / 86400:,.4g} d"
        found.append(("time of a training run", f"{time_words(run_time)}, {days}"))
    found.append(("chips", f"{data['n_chips']:,}"))
    if held is not None and held["total"]:
        stages = _of_stages(held)
        where = f" of stage {stages.index(max(stages))}, the fullest" if len(stages) > 1 else ""
        found.append((f"memory of a chip{where}", format_quantity(held["total"], "B")))
        found += [(name, format_quantity(size, "B")) for name, size in _at_peak(held) if size]
    busy = data["busy"]
    if len(busy) > MOST_LISTED:
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
        "warnings": [] if prediction.plan is None else list(prediction.plan.warnings),
        "chip": {
            "name": chip.name,
            "throughput": chip.throughput(dtype),
            "memory_bandwidth": chip.main_memory.speed,
            "memory_capacity": chip.memory_room(spilled=False),
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


def _of_stages(memory: dict[str, Any]) -> list[float]:
    """Return what a chip of every stage holds. [B]"""
    return [sum(sizes) for sizes in zip(*memory["rows"].values(), strict=True)]


def _at_peak(memory: dict[str, Any]) -> list[tuple[str, float]]:
    """Return what a chip of the fullest stage holds, by row in words. [B]"""
    stages = _of_stages(memory)
    fullest = stages.index(max(stages)) if stages else 0
    return [(name.replace("_", " "), sizes[fullest]) for name, sizes in memory["rows"].items()]


def _sides(data: dict[str, Any]) -> str:
    """Return M x K x N."""
    return " x ".join(f"{data[side]:,}" for side in "mkn")


def _level_rows(data: dict[str, Any]) -> Table:
    """Return a row for each memory level: what it moves, how fast, how long that takes, its tile.

    The time is the traffic over the bandwidth.
    """
    return table_of(
        data["levels"].items(),
        ("memory", "<", lambda of: of[0]),
        ("traffic", ">", lambda of: format_quantity(of[1]["traffic"], "B")),
        ("bandwidth in use", ">", lambda of: format_quantity(of[1]["bandwidth"], "B/s")),
        ("takes", ">", lambda of: time_words(of[1]["time"])),
        ("tile, M x K x N", ">", lambda of: " x ".join(f"{side:,.0f}" for side in of[1]["tile"])),
    )


def _kernel_pairs(data: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the terms of one product."""
    found = [
        ("bound by", data["bound"]),
        ("compute", time_words(data["compute_time"])),
        ("waiting", time_words(data["waiting_time"])),
        ("launch", time_words(data["launch_time"])),
    ]
    if data["delay_time"]:
        memory = list(data["levels"])[-1]
        found.append((f"{memory} beyond its bytes", time_words(data["delay_time"])))
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
    numbers = (
        "launch_time", "delay_time", "compute_time", "waiting_time", "reduction_time", "split",
        "n_tiles",
    )  # fmt: skip
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


# ---------------------------------------------------------------- the page


def prediction_html(data: dict[str, Any], plan: Plan | None = None) -> str:
    """Return a page; ``data`` is what ``crosstack predict`` saves with ``--json``, see ``plan``."""
    title = _title(data)
    kernel = data.get("kernel")
    parts = [
        f"<h1>{attribute(title)}</h1>",
        *([_given(data)] if plan is None else step_sections(plan)),
        page.number_cards(_pairs(data, memory=plan is None), "xs-numbers xs-plain"),
        *_parts(data),
        *_stages(data),
        *([] if data["memory"] is None or plan is not None else _memory(data)),
        *([] if kernel is None else _kernel(kernel)),
        "<h2>What the number rests on</h2>",
        page.pairs_rows(_origin(data)),
    ]
    return page.page_frame(title, "\n".join(parts) + "\n")


def _given(data: dict[str, Any]) -> str:
    time = time_words(data["time"])
    said = f"A step takes {time} under the strategy that was given; nothing was searched."
    return f'<p class="xs-status">{said}</p>'


def _parts(data: dict[str, Any]) -> list[str]:
    longest = _pieces(data)
    if len(longest) < 2:
        return []
    whose = "Pieces of the step"
    if len(data["busy"]) > 1:
        whose = f"What {attribute(data['busiest'])}, which works longest, does and waits for"
    return [
        "<h2>Where the time goes</h2>",
        f"<p>{whose}; together the {time_words(data['time'])} of the step.</p>",
        *_time_bars("piece", longest),
    ]


def _stages(data: dict[str, Any]) -> list[str]:
    if len(data["busy"]) < 2:
        return []
    return [
        "<h2>How long each stage works</h2>",
        f"<p>Of a step of {time_words(data['time'])}; the rest is waiting, and sums of gradients "
        "that end last.</p>",
        *_time_bars("stage", data["busy"].items(), data["time"]),
    ]


def _time_bars(label: str, pairs: Iterable[tuple[str, float]], whole: float = 0.0) -> list[str]:
    rows = [(name, time_words(value), value) for name, value in pairs]
    most = max(whole, *(value for _, _, value in rows))
    found = [page.bar_table(label, "time", rows[:SHOWN], most, "compute")]
    if rows[SHOWN:]:
        rest = page.bar_table(label, "time", rows[SHOWN:], most, "compute")
        found.append(page.folded(rest, True, f"Show {len(rows) - SHOWN} more"))
    return found


def _memory(data: dict[str, Any]) -> list[str]:
    memory, capacity = data["memory"], data["chip"]["memory_capacity"]
    stages = [(f"stage {number}", size) for number, size in enumerate(_of_stages(memory))]
    words = (
        f"{format_quantity(memory['total'], 'B', 4)} of {format_quantity(capacity, 'B', 4)} on the "
        f"fullest chip, {percent(memory['total'] / capacity)}."
    )
    found = ["<h2>Memory of a chip</h2>", f"<p>{attribute(words)}</p>"]
    for label, shares in (
        ("what it holds", _at_peak(memory)),
        ("a chip of each stage", stages[:MOST_STAGES] if len(stages) > 1 else []),
    ):
        rows = [
            (name, f"{format_quantity(value, 'B', 4)}, {percent(value / capacity)}", value)
            for name, value in shares
        ]
        if rows:
            found.append(
                page.bar_table(label, "size, share of the memory", rows, capacity, "memory")
            )
    return found


def _kernel(kernel: dict[str, Any]) -> list[str]:
    terms = {
        "compute": kernel["compute_time"],
        **{name: level["time"] for name, level in kernel["levels"].items()},
        "waiting": kernel["waiting_time"],
        "launch": kernel["launch_time"],
    }
    return [
        f"<h2>The product of one chip, {attribute(_sides(kernel))}</h2>",
        page.number_cards(_kernel_pairs(kernel), "xs-numbers xs-plain"),
        "<h2>What compute and each memory take</h2>",
        f"<p>Bound by {attribute(str(kernel['bound']))}.</p>",
        *_time_bars("term", terms.items()),
        "<h2>What each memory moves</h2>",
        page.html_table(_level_rows(kernel)),
    ]


def _origin(data: dict[str, Any]) -> list[tuple[str, str]]:
    given = {
        name: ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        for name, value in data["inputs"].items()
        if value not in (None, [], False)
    }
    return [
        ("rules", data["rules"]),
        *given.items(),
        ("version", f"crosstack {data['crosstack_version']}"),
    ]
