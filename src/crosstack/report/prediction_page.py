"""A saved prediction as one self-contained page: what its time and memory are made of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from crosstack.report import html_parts as page
from crosstack.report.drawing import attribute
from crosstack.report.prediction_text import (
    kernel_pairs,
    level_rows,
    memory_at_peak,
    memory_of_stages,
    pieces_of,
    prediction_pairs,
    prediction_title,
    sides_words,
)
from crosstack.report.wording import percent, time_words
from crosstack.units import format_quantity

__all__ = ["prediction_html"]

SHOWN = 14  # rows of bars; the rest is folded away

MOST_STAGES = 32  # of which a bar is drawn


def prediction_html(data: dict[str, Any]) -> str:
    """Return a page; ``data`` is what ``crosstack predict`` saves with ``--json``."""
    title = prediction_title(data)
    parts = [
        f"<h1>{attribute(title)}</h1>",
        f'<p class="xs-status">A step takes {time_words(data["time"])} under the strategy that was '
        "given; nothing was searched.</p>",
        page.number_cards(prediction_pairs(data), "xs-numbers"),
        *_parts(data),
        *_stages(data),
        *_memory(data),
        *_kernel(data),
        "<h2>What the number rests on</h2>",
        page.pairs_rows(_origin(data)),
    ]
    return page.page_frame(title, "\n".join(parts) + "\n")


def _parts(data: dict[str, Any]) -> list[str]:
    longest = pieces_of(data)
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
    found = [_bars(label, "time", rows[:SHOWN], most, "compute")]
    if rows[SHOWN:]:
        rest = _bars(label, "time", rows[SHOWN:], most, "compute")
        found.append(page.folded(rest, True, f"Show {len(rows) - SHOWN} more"))
    return found


def _memory(data: dict[str, Any]) -> list[str]:
    memory = data["memory"]
    if memory is None:
        return []
    capacity = data["chip"]["memory_capacity"]
    sizes = memory_of_stages(memory)
    stages = [(f"stage {number}", size) for number, size in enumerate(sizes)]
    words = (
        f"{format_quantity(memory['total'], 'B', 4)} of {format_quantity(capacity, 'B', 4)} on the "
        f"fullest chip, {percent(memory['total'] / capacity)}."
    )
    found = ["<h2>Memory of a chip</h2>", f"<p>{attribute(words)}</p>"]
    for label, shares in (
        ("what it holds", memory_at_peak(memory)),
        ("a chip of each stage", stages[:MOST_STAGES] if len(stages) > 1 else []),
    ):
        rows = [
            (name, f"{format_quantity(value, 'B', 4)}, {percent(value / capacity)}", value)
            for name, value in shares
        ]
        if not rows:
            continue
        found.append(_bars(label, "size, share of the memory", rows, capacity, "memory"))
    return found


def _kernel(data: dict[str, Any]) -> list[str]:
    kernel = data.get("kernel")
    if kernel is None:
        return []
    terms = {
        "compute": kernel["compute_time"],
        **{name: level["time"] for name, level in kernel["levels"].items()},
        "waiting": kernel["waiting_time"],
        "launch": kernel["launch_time"],
    }
    return [
        f"<h2>The product of one chip, {attribute(sides_words(kernel))}</h2>",
        page.number_cards(kernel_pairs(kernel), "xs-numbers xs-plain"),
        "<h2>What compute and each memory take</h2>",
        f"<p>Bound by {attribute(str(kernel['bound']))}.</p>",
        *_time_bars("term", terms.items()),
        "<h2>What each memory moves</h2>",
        page.html_table(level_rows(kernel)),
    ]


def _bars(
    label: str, value: str, rows: list[tuple[str, str, float]], most: float, colour: str
) -> str:
    """Return a table with a bar beside each number; the longest possible one is ``most``."""
    per_cent = 100 / most if most else 0.0
    body = "\n".join(
        f'<tr><th scope="row">{attribute(name)}</th>'
        f'<td class="xs-right">{attribute(words)}</td><td class="xs-bar-cell">'
        f'<div class="xs-bar xs-bar-{colour}" style="width: {number * per_cent:.4g}%"></div>'
        "</td></tr>"
        for name, words, number in rows
    )
    head = f'<th scope="col">{label}</th><th class="xs-right" scope="col">{value}</th><td></td>'
    table = (
        f'<table class="xs-bars"><thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table>'
    )
    return page.scrolled(table, f"{value} by {label}")


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
