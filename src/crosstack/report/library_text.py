"""The library as tables: what there is, and every number of one entry with its source."""

from __future__ import annotations

import math
from collections.abc import Callable

from rich.console import Group, RenderableType
from rich.text import Text

from crosstack.io import library
from crosstack.io.library import Entry, Figure
from crosstack.machine.chip import Chip
from crosstack.machine.node import Node
from crosstack.report.library_data import LISTED, named_entries
from crosstack.report.model_text import count_table, model_table
from crosstack.report.text import pairs_table, rows_table
from crosstack.report.wording import Table
from crosstack.units import UNITS, format_quantity
from crosstack.workload.dtype import Dtype

__all__ = ["LISTS", "chip_table", "library_list", "library_tables", "node_table"]

LISTS = (*LISTED, "technology")
_HALF = (Dtype.BF16, Dtype.FP16)


def library_list(which: str | None = None) -> Group:
    """Return the tables of one of `LISTS`, all but technology if left out."""
    tables = {
        "chips": (chip_table(),),
        "nodes": (node_table(),),
        "networks": tuple(map(_section, LISTED["networks"])),
        "memories": (_section("memories"),),
        "models": (model_table(),),
    }
    chosen = list(tables) if which is None else [which]
    shown: list[RenderableType] = []
    for name in chosen:
        shown.append(Text(name.capitalize(), style="bold"))
        shown += [rows_table(table, wraps=len(table.header) - 1) for table in tables[name]]
    return Group(*shown)


def library_tables(name: str) -> Group:
    """Return every number of one entry, with its kind and source.

    Raises
    ------
    InputError
        If the library has nothing of that name; names the nearest.
    """
    return Group(*(part for entry in named_entries(name) for part in _entry(entry)))


def _entry(entry: Entry) -> tuple[RenderableType, ...]:
    """Return the numbers of an entry, what follows from a model's, and the sources below them."""
    sources = list(dict.fromkeys(_source(figure) for figure in entry.figures if figure.source))
    rows = tuple(
        (
            figure.field,
            _shown(figure.value, figure.unit),
            figure.kind.value if figure.source else "",
            str(sources.index(_source(figure)) + 1) if figure.source else "",
        )
        for figure in entry.figures
    )
    numeric = (False, True, False, True)
    table = Table(header=("", "value", "kind", "source"), numeric=numeric, rows=rows)
    pairs = tuple((str(i), source) for i, source in enumerate(sources, start=1))
    title = Text(f"{entry.name}: {entry.title}", style="bold")
    counts = [count_table(library.model(entry.name))] if entry.section == "models" else []
    more = [part for each in counts for part in (Text(""), rows_table(each, wraps=0), Text(""))]
    return title, rows_table(table, wraps=1), *more, pairs_table(pairs)


def _source(figure: Figure) -> str:
    return f"{figure.source}: {figure.where}"


def _shown(value: object, unit: str) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return str(value)
    if unit not in UNITS or unit == "1":
        return f"{value:,}" if isinstance(value, int) else f"{value:g}"
    return format_quantity(value, unit, 6)


def chip_table() -> Table:
    """Return the chips: what they reach, hold and draw."""
    rows = tuple(_chip_row(library.chip(name)) for name in library.names("chips"))
    header = ("chip", "runs kernels", "16-bit rate", "8-bit rate", "on the chip", "main memory",
              "at", "links", "W")  # fmt: skip
    return Table(header=header, numeric=(False, False, *([True] * 7)), rows=rows)


def _chip_row(chip: Chip) -> tuple[str, ...]:
    rates = dict(chip.compute.relative_rates)
    half = next((rates[d] for d in _HALF if d in rates), None)
    beside = chip.memories[:1]
    return (
        chip.name,
        {"spatial": "side by side", "temporal": "one by one"}[chip.execution.value],
        _rate(chip, half),
        _rate(chip, max((rates[d] for d in (Dtype.FP8, Dtype.INT8) if d in rates), default=None)),
        format_quantity(chip.on_chip_capacity, "B", 3),
        "".join(format_quantity(memory.room, "B", 3) for memory in beside),
        "".join(format_quantity(memory.speed, "B/s", 3) for memory in beside if memory.bandwidth),
        "" if chip.intra is None else format_quantity(chip.intra.bandwidth, "B/s", 3),
        _whole(chip.power),
    )


def _whole(number: float | None) -> str:
    return "" if number is None else f"{number:,.0f}"


def _rate(chip: Chip, share: float | None) -> str:
    return "" if share is None else format_quantity(share * chip.peak_throughput, "FLOP/s", 4)


def node_table() -> Table:
    """Return the nodes: their chips, what joins these, and what leads out."""
    rows = tuple(_node_row(library.node(name)) for name in library.names("nodes"))
    header = ("node", "chips", "of", "joined by", "out of it, a chip", "W", "USD")
    return Table(header=header, numeric=(False, True, False, False, True, True, True), rows=rows)


def _node_row(node: Node) -> tuple[str, ...]:
    joined = [
        f"{d.kind.value.replace('_', ' ')} of {d.size}, {format_quantity(d.bandwidth, 'B/s', 3)}"
        for d in node.network
    ]
    same = len(set(joined)) == 1 and len(joined) > 1
    return (
        node.name,
        f"{node.n_chips:,}",
        node.chip.name,
        f"{len(joined)} times {joined[0]}" if same else "; ".join(joined),
        format_quantity(node.bandwidth_out, "B/s", 3) if node.n_ports else "",
        *map(_whole, (node.power, node.price)),
    )


def _fabric_words(name: str) -> tuple[str, ...]:
    fabric = library.fabric(name)
    pods = "" if fabric.pod_size is None else f"{fabric.pod_size:,}"
    return fabric.kind.value.replace("_", " "), f"{fabric.oversubscription:g}", pods


def _link_words(name: str) -> tuple[str, ...]:
    link = library.link(name)
    latency = "" if link.latency is None else format_quantity(link.latency, "s", 3)
    return format_quantity(link.bandwidth, "B/s", 3), latency


def _memory_words(name: str) -> tuple[str, ...]:
    (memory,) = library.memory(name)
    room = "" if math.isinf(memory.room) else format_quantity(memory.room, "B", 3)
    return format_quantity(memory.speed, "B/s", 3), room


# Section: what its columns are called, between the name and what it is; which are numbers; words.
_COLUMNS: dict[str, tuple[tuple[str, ...], tuple[bool, ...], Callable[[str], tuple[str, ...]]]] = {
    "fabrics": (("kind", "oversubscription", "nodes a leaf"), (False, True, True), _fabric_words),
    "links": (("bandwidth", "latency"), (True, True), _link_words),
    "topologies": ((), (), lambda name: ()),
    "memories": (("bandwidth", "capacity"), (True, True), _memory_words),
}


def _section(section: str) -> Table:
    """Return what stands in a section of the library, an entry a row."""
    header, numeric, words = _COLUMNS[section]
    rows = [
        (name, *words(name), library.entry(section, name).title) for name in library.names(section)
    ]
    return Table(
        header=(library.SECTIONS[section][0], *header, "what it is"),
        numeric=(False, *numeric, False),
        rows=tuple(rows),
    )
