"""Where nothing fits: what would make it fit, as tables and as a page."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType

from crosstack.report import html_parts as page
from crosstack.report.drawing import attribute
from crosstack.report.text import pairs_table, rows_table, titled
from crosstack.report.wording import Table, table_of, time_words
from crosstack.units import format_quantity

TITLE = "What would make it fit, cheapest first"


def ways_tables(data: dict[str, Any]) -> Group:
    """Return the ways that were found and what was tried in vain, as `Ways.to_dict` has them."""
    shown: list[RenderableType] = [pairs_table(_pairs(data))]
    if data["ways"]:
        shown.append(rows_table(_way_rows(data), wraps=0))
    if data["in_vain"]:
        shown.append(rows_table(_vain_rows(data), wraps=0))
    return titled(TITLE, *shown)


def ways_html(data: dict[str, Any]) -> str:
    """Return a page of the same."""
    title = f"{data['workload']} does not fit {data['system']}"
    parts = [
        f"<h1>{attribute(title)}</h1>",
        f'<p class="xs-status">{attribute(data["reason"])}</p>',
        page.number_cards(_pairs(data), "xs-numbers"),
    ]
    if data["ways"]:
        parts += [f"<h2>{TITLE}</h2>", page.html_table(_way_rows(data), wrap=0)]
    if data["in_vain"]:
        parts += ["<h2>Tried in vain</h2>", page.html_table(_vain_rows(data), wrap=0)]
    parts.append(f'<p class="xs-quiet">crosstack {data["crosstack_version"]}</p>')
    return page.page_frame(title, "\n".join(parts) + "\n")


def _pairs(data: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    lacks = f"{format_quantity(data['demand'], data['unit'], 4)} needed at least"
    there = f"{format_quantity(data['limit'], data['unit'], 4)} there"
    found = [
        (data["resource"], f"{lacks}, {there}"),
        ("chips", f"{data['n_chips']:,}"),
        ("ways found", f"{len(data['ways'])}, each with a mapping that fits"),
    ]
    if data["endless_memory_time_s"] is not None:
        words = f"{time_words(data['endless_memory_time_s'])} an iteration"
        found.append(("were memory without end", words))
    return tuple(found)


def _way_rows(data: dict[str, Any]) -> Table:
    def memory(way: dict[str, Any]) -> str:
        needed = format_quantity(way["memory_b"], "B", 4)
        if way["capacity_b"] is None:
            return needed
        return f"{needed} of {format_quantity(way['capacity_b'], 'B', 4)}"

    def against(way: dict[str, Any]) -> str:
        return "" if way["slowdown"] is None else f"{(way['slowdown'] - 1) * 100:+,.0f} %"

    return table_of(
        data["ways"],
        ("change", "<", lambda way: way["change"]),
        ("option", "<", lambda way: way["option"] or ""),
        ("chips", ">", lambda way: f"{way['n_chips']:,}"),
        ("tensor x pipeline x data", ">", _degrees),
        ("memory of a chip", ">", memory),
        ("time", ">", lambda way: time_words(way["time_s"])),
        ("against endless memory", ">", against),
    )


def _degrees(way: dict[str, Any]) -> str:
    said, experts = way["parallelism"], way["parallelism"].get("ep", 1)
    degrees = " x ".join(f"{said[use]:,}" for use in ("tp", "pp", "dp"))
    return degrees + (f", ep {experts:,}" if experts > 1 else "")


def _vain_rows(data: dict[str, Any]) -> Table:
    return table_of(
        data["in_vain"],
        ("tried in vain", "<", lambda change: change["change"]),
        ("which", "<", lambda change: change["reason"]),
    )
