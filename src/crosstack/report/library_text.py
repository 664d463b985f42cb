"""The library as tables: what there is, and every number of one entry with its source."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Group, RenderableType

from crosstack.io import library
from crosstack.io.library import Entry, Figure
from crosstack.machine.chip import Chip
from crosstack.machine.node import Node
from crosstack.report.library_data import LISTED, named_entries
from crosstack.report.model_text import count_table, model_table
from crosstack.report.text import pairs_table, rows_table, titled
from crosstack.report.wording import Table, table_of
from crosstack.units import UNITS, format_quantity
from crosstack.workload.dtype import Dtype

LISTS = (*LISTED, "technology")
_RUNS = {"spatial": "side by side", "temporal": "one by one"}


def library_list(which: str | None = None) -> Group:
    """Return the tables of one of `LISTS`, all but technology if left out."""
    tables = {
        "chips": (chip_table(),),
        "nodes": (node_table(),),
        "networks": tuple(map(_section, LISTED["networks"])),
        "memories": (_section("memories"),),
        "models": (model_table(),),
    }
    shown: list[RenderableType] = []
    for name in tables if which is None else [which]:
        fitted = (rows_table(table, wraps=len(table.header) - 1) for table in tables[name])
        shown.append(titled(name.capitalize(), *fitted))
    return Group(*shown)


def library_tables(name: str) -> Group:
    """Return every number of one entry, with its kind and source.

    Raises
    ------
    InputError
        If the library has nothing of that name; names the nearest.
    """
    return Group(*map(_entry, named_entries(name)))


def _entry(entry: Entry) -> Group:
    """Return the numbers of an entry, what follows from a model's, and the sources below them."""
    sources = list(dict.fromkeys(_source(figure) for figure in entry.figures if figure.source))
    table = table_of(
        entry.figures,
        ("", "<", lambda figure: figure.field),
        ("value", ">", lambda figure: _shown(figure.value, figure.unit)),
        ("kind", "<", lambda figure: figure.kind.value if figure.source else ""),
        ("source", ">", lambda f: str(sources.index(_source(f)) + 1) if f.source else ""),
    )
    counts = [count_table(library.model(entry.name))] if entry.section == "models" else []
    return titled(
        f"{entry.name}: {entry.title}",
        rows_table(table, wraps=1),
        *(part for each in counts for part in ("", rows_table(each, wraps=0), "")),
        pairs_table(tuple((str(i), source) for i, source in enumerate(sources, start=1))),
    )


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
    return table_of(
        map(library.chip, library.names("chips")),
        ("chip", "<", lambda c: c.name),
        ("runs kernels", "<", lambda c: _RUNS[c.execution.value]),
        ("16-bit rate", ">", lambda c: _rate(c, Dtype.BF16) or _rate(c, Dtype.FP16)),
        ("8-bit rate", ">", lambda c: _rate(c, Dtype.FP8, Dtype.INT8)),
        ("on the chip", ">", lambda c: _quantity(c.on_chip_capacity, "B")),
        ("main memory", ">", lambda c: _quantity(c.memories[0].room if c.memories else None, "B")),
        ("at", ">", lambda c: _quantity(c.memories[0].bandwidth if c.memories else None)),
        ("links", ">", lambda c: _quantity(c.intra.bandwidth if c.intra else None)),
        ("W", ">", lambda c: _whole(c.power)),
    )


def _whole(number: float | None) -> str:
    return "" if number is None else f"{number:,.0f}"


def _quantity(number: float | None, unit: str = "B/s", digits: int = 3) -> str:
    return "" if number is None else format_quantity(number, unit, digits)


def _rate(chip: Chip, *dtypes: Dtype) -> str:
    """Return the highest rate in one of some types."""
    known = dict(chip.compute.relative_rates)
    share = max((known[dtype] for dtype in dtypes if dtype in known), default=None)
    return _quantity(None if share is None else share * chip.peak_throughput, "FLOP/s", 4)


def node_table() -> Table:
    """Return the nodes: their chips, what joins these, and what leads out."""
    return table_of(
        map(library.node, library.names("nodes")),
        ("node", "<", lambda node: node.name),
        ("chips", ">", lambda node: f"{node.n_chips:,}"),
        ("of", "<", lambda node: node.chip.name),
        ("joined by", "<", _joined),
        ("out of it, a chip", ">", lambda n: _quantity(n.bandwidth_out if n.n_ports else None)),
        ("W", ">", lambda node: _whole(node.power)),
        ("USD", ">", lambda node: _whole(node.price)),
    )


def _joined(node: Node) -> str:
    joined = [
        f"{d.kind.value.replace('_', ' ')} of {d.size}, {_quantity(d.bandwidth)}"
        for d in node.network
    ]
    same = len(set(joined)) == 1 and len(joined) > 1
    return f"{len(joined)} times {joined[0]}" if same else "; ".join(joined)


# The columns of a section, between the name and what it is.
_COLUMNS: dict[str, tuple[tuple[str, str, Callable[[str], str]], ...]] = {
    "fabrics": (
        ("kind", "<", lambda name: library.fabric(name).kind.value.replace("_", " ")),
        ("oversubscription", ">", lambda name: f"{library.fabric(name).oversubscription:g}"),
        ("nodes a leaf", ">", lambda name: _whole(library.fabric(name).pod_size)),
    ),
    "links": (
        ("bandwidth", ">", lambda name: format_quantity(library.link(name).bandwidth, "B/s", 3)),
        ("latency", ">", lambda name: _quantity(library.link(name).latency, "s")),
    ),
    "topologies": (),
    "memories": (
        ("bandwidth", ">", lambda name: format_quantity(library.memory(name)[0].speed, "B/s", 3)),
        ("capacity", ">", lambda name: _quantity(library.memory(name)[0].capacity, "B")),
    ),
}


def _section(section: str) -> Table:
    """Return what stands in a section of the library, an entry a row."""
    return table_of(
        library.names(section),
        (library.SECTIONS[section][0], "<", str),
        *_COLUMNS[section],
        ("what it is", "<", lambda name: library.entry(section, name).title),
    )
