"""The library and technologies: what there is, every number with its source, what follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType

from crosstack.errors import unknown_name
from crosstack.io import library
from crosstack.io.library import Entry, Figure
from crosstack.io.technology import SECTIONS, TechnologyLibrary
from crosstack.machine.chip import Chip
from crosstack.machine.framework import Framework
from crosstack.machine.node import Node
from crosstack.report.model_text import (
    count_table,
    image_data,
    image_table,
    model_data,
    model_table,
)
from crosstack.report.text import pairs_table, rows_table, titled
from crosstack.report.wording import Table, table_of
from crosstack.technology.scaling import Scaling, steps_between
from crosstack.units import UNITS, format_quantity
from crosstack.workload.dtype import Dtype

Pairs = tuple[tuple[str, str], ...]
# What a list of the library is called -> the sections it is of.
LISTED = {
    "chips": ("chips",),
    "nodes": ("nodes",),
    "networks": ("fabrics", "links", "topologies"),
    "memories": ("memories",),
    "frameworks": ("frameworks",),
    "models": ("models", "images"),
}
_RUNS = {"spatial": "side by side", "temporal": "one by one"}
GB, MB = 1e9, 1e6


def library_list(which: str | None = None) -> Group:
    """Return the tables of one of `LISTED`, all if left out."""
    tables = {"chips": chip_table, "nodes": node_table, "models": model_table}
    tables["images"] = image_table
    shown: list[RenderableType] = []
    for name in LISTED if which is None else [which]:
        made = [tables[s]() if s in tables else _section(s) for s in LISTED[name]]
        fitted = (rows_table(table, wraps=len(table.header) - 1) for table in made)
        shown.append(titled(name.capitalize(), *fitted))
    return Group(*shown)


def library_tables(name: str) -> Group:
    """Return every number of one entry, with its kind and source.

    Raises `InputError` if the library has nothing of that name; names the nearest.
    """
    return Group(*map(_entry, _named_entries(name)))


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
        ("bandwidth", ">", lambda name: _quantity(library.link(name).bandwidth)),
        ("latency", ">", lambda name: _quantity(library.link(name).latency, "s")),
    ),
    "topologies": (),
    "memories": (
        ("bandwidth", ">", lambda name: _quantity(library.memory(name)[0].speed)),
        ("capacity", ">", lambda name: _quantity(library.memory(name)[0].capacity, "B")),
    ),
    "frameworks": (
        ("fuses", "<", lambda name: _fused(library.framework(name))),
        ("a launch", ">", lambda name: _quantity(library.framework(name).dispatch, "s")),
    ),
}


def _fused(framework: Framework) -> str:
    return "; ".join((*framework.fusions, *framework.chains))


def _section(section: str) -> Table:
    """Return what stands in a section of the library, an entry a row."""
    return table_of(
        library.names(section),
        (library.SECTIONS[section][0], "<", str),
        *_COLUMNS[section],
        ("what it is", "<", lambda name: library.entry(section, name).title),
    )


def _named_entries(name: str) -> list[Entry]:
    """Return what the library holds under a name, in any section."""
    found = [s for s in library.SECTIONS if name in library.names(s)]
    if not found:
        known = dict.fromkeys(each for s in library.SECTIONS for each in library.names(s))
        raise unknown_name("NAME", "entry of the library is", name, known, "In the library")
    return [library.entry(section, name) for section in found]


def library_data(name: str | None) -> dict[str, dict[str, Any]]:
    """Return entries by section and name: all, those of a list, or those of one name.

    Raises `InputError` if ``name`` is none of these; names the nearest.
    """
    entries: Sequence[Entry]
    if name is None or name in LISTED:
        sections = [s for listed, of in LISTED.items() if name in (None, listed) for s in of]
        entries = [library.entry(s, each) for s in sections for each in library.names(s)]
    else:
        entries = _named_entries(name)
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        made: dict[str, Any] = {}
        if entry.section == "models":
            made = model_data(library.model(entry.name))
        elif entry.section == "images":
            made = image_data(library.image_model(entry.name))
        figures = [_figure_data(figure) for figure in entry.figures]
        data = {"title": entry.title, "figures": figures, **made}
        found.setdefault(entry.section, {})[entry.name] = data
    return found


def _figure_data(figure: Figure) -> dict[str, Any]:
    sourced = bool(figure.source)
    return asdict(figure) | {
        "kind": figure.kind.value if sourced else None,
        "source": figure.source or None,
        "where": figure.where or None,
    }


# ---------------------------------------------------------------- technologies


def technology_list(known: TechnologyLibrary) -> Group:
    """Return the names of technologies, section by section."""
    table = table_of(
        ((section, name) for section in SECTIONS for name in known.names(section)),
        ("section", "<", lambda entry: entry[0]),
        ("name", "<", lambda entry: entry[1]),
        ("what it is", "<", lambda entry: known.entry(*entry).title),
    )
    return Group(rows_table(table, wraps=2))


def technology_tables(known: TechnologyLibrary, name: str) -> Group:
    """Return one technology: its numbers with source and kind, and quantities derived from them.

    ``name`` is what it is called, any case.
    """
    entry = known.find(name)
    table = table_of(
        entry.figures,
        ("", "<", lambda f: f.field),
        ("value", ">", lambda f: _technology_value(f.value, f.unit)),
        ("kind", "<", lambda f: f.kind.value),
        ("source", "<", lambda f: f"{f.source}: {f.where}".rstrip(": ")),
    )
    return titled(
        f"{entry.name}: {entry.title}",
        rows_table(table, wraps=3),
        titled("What follows, at nominal voltage", pairs_table(derived(known, entry))),
    )


def _technology_value(value: object, unit: str) -> str:
    if isinstance(value, str) or unit not in UNITS:
        return str(value)
    assert isinstance(value, int | float)
    if unit == "m^2" and value >= 1e-9:  # read beside areas of chips
        return f"{value * 1e6:,.0f} mm^2" if value > 1e-3 else f"{value * 1e6:.4g} mm^2"
    if unit == "1/m^2":
        return f"{value / 1e4:.3g} /cm^2"
    return format_quantity(float(value), unit)


def derived(known: TechnologyLibrary, entry: Entry) -> Pairs:
    """Return what follows from the numbers of an entry, as words."""
    return _DERIVED[entry.section](known, entry.name)


def _transfer(joules: float) -> Pairs:
    """Return what a bit takes. [J]"""
    power = ("power per bandwidth", f"{8 * joules * GB:.4g} W/(GB/s)")
    return ("energy", f"{joules * 1e12:.4g} pJ/bit"), power


def _of_unit(known: TechnologyLibrary, name: str) -> Pairs:
    unit, node = known.unit(name)
    energy, density = unit.energy_per_flop, unit.throughput_density
    assert energy is not None
    assert density is not None  # the library gives every unit a nominal frequency
    return (
        ("energy", f"{energy * 1e12:.4g} pJ/FLOP in {node}"),
        ("throughput per area", f"{density * 1e-6 / 1e12:.4g} TFLOP/s/mm2"),
        ("power per area", f"{unit.power / unit.area * 1e-6:.4g} W/mm2"),
    )


def _of_node(known: TechnologyLibrary, name: str) -> Pairs:
    nodes, first = known.nodes(), name
    while (before := nodes[first].previous) is not None:
        first = before
    lines = []
    for scaling in Scaling:
        steps = steps_between(nodes, first, name, scaling)
        words = (
            f"{steps.density:.4g} x the logic per area, {steps.power:.4g} x the power at the same "
            f"speed, {steps.sram_area:.4g} x the area of SRAM"
        )
        lines.append((f"against {first}, {scaling.value}", words))
    return tuple(lines)


def _of_sram(known: TechnologyLibrary, name: str) -> Pairs:
    sram, node = known.sram(name)
    (label, energy), power = _transfer(sram.energy_per_bit)
    return (
        (label, f"{energy} in {node}"),
        power,
        ("area, with periphery", f"{MB / sram.capacity_density * 1e6:.4g} mm2/MB"),
        ("leakage", f"{float(sram.static_power(MB)) * 1e3:.4g} mW/MB"),
    )


def _of_dram(known: TechnologyLibrary, name: str) -> Pairs:
    dram = known.dram(name)
    bandwidth, edge = dram.stack_bandwidth, dram.edge_bandwidth
    assert bandwidth is not None
    assert edge is not None  # the library gives every memory a nominal rate
    energy, power = _transfer(dram.energy_per_bit)
    return (
        energy,
        ("bandwidth of one", format_quantity(bandwidth, "B/s")),
        power,
        ("power of one at full rate", f"{8 * dram.energy_per_bit * bandwidth:.4g} W"),
        ("bandwidth per edge", f"{edge / GB / 1e3:.4g} GB/s/mm"),
        ("area beside the chip", f"{dram.stack_area * 1e6 / (bandwidth / GB):.4g} mm2/(GB/s)"),
        ("area on the chip", f"{dram.controller_area * 1e6 / (bandwidth / GB):.4g} mm2/(GB/s)"),
    )


def _of_link(known: TechnologyLibrary, name: str) -> Pairs:
    link = known.link(name)
    energy, power = _transfer(link.energy_per_bit)
    return (
        energy,
        ("bandwidth of one wire", format_quantity(link.nominal_rate / 8, "B/s")),
        power,
        ("area on the chip", f"{link.area_per_bandwidth * GB * 1e6:.4g} mm2/(GB/s)"),
        ("bandwidth per edge", f"{link.edge_bandwidth / GB / 1e3:.4g} GB/s/mm"),
    )


def _of_substrate(known: TechnologyLibrary, name: str) -> Pairs:
    wires = known.substrate(name).wires_per_length
    return (
        ("one wire takes", f"{1e6 / wires:.4g} um of edge, all layers"),
        ("wires of a 800 mm2 chip", f"{4 * 800**0.5 * wires / 1e3:,.0f}"),
    )


_DERIVED: dict[str, Callable[[TechnologyLibrary, str], Pairs]] = {
    "units": _of_unit,
    "nodes": _of_node,
    "srams": _of_sram,
    "drams": _of_dram,
    "links": _of_link,
    "substrates": _of_substrate,
}
