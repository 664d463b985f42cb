"""Technologies as tables: every number with its source, and what follows from them."""

from __future__ import annotations

from rich.console import Group

from crosstack.io.library import Entry
from crosstack.io.technology import SECTIONS, TechnologyLibrary
from crosstack.report.text import pairs_table, rows_table, titled
from crosstack.report.wording import table_of
from crosstack.technology.scaling import Scaling, steps_between
from crosstack.units import UNITS, format_quantity

Pairs = tuple[tuple[str, str], ...]
GB = 1e9


def technology_list(library: TechnologyLibrary) -> Group:
    """Return the names in the library, section by section."""
    table = table_of(
        ((section, name) for section in SECTIONS for name in library.names(section)),
        ("section", "<", lambda entry: entry[0]),
        ("name", "<", lambda entry: entry[1]),
        ("what it is", "<", lambda entry: library.entry(*entry).title),
    )
    return Group(rows_table(table, wraps=2))


def technology_tables(library: TechnologyLibrary, name: str) -> Group:
    """Return one technology: its numbers with source and kind, and quantities derived from them.

    ``name`` is what it is called in the library, any case.
    """
    entry = library.find(name)
    table = table_of(
        entry.figures,
        ("", "<", lambda f: f.field),
        ("value", ">", lambda f: _shown(f.value, f.unit)),
        ("kind", "<", lambda f: f.kind.value),
        ("source", "<", lambda f: f"{f.source}: {f.where}".rstrip(": ")),
    )
    return titled(
        f"{entry.name}: {entry.title}",
        rows_table(table, wraps=3),
        titled("What follows, at nominal voltage", pairs_table(derived(library, entry))),
    )


def _shown(value: object, unit: str) -> str:
    if isinstance(value, str) or unit not in UNITS:
        return str(value)
    assert isinstance(value, int | float)
    if unit == "m^2" and value >= 1e-9:  # read beside areas of chips
        return f"{value * 1e6:,.0f} mm^2" if value > 1e-3 else f"{value * 1e6:.4g} mm^2"
    if unit == "1/m^2":
        return f"{value / 1e4:.3g} /cm^2"
    return format_quantity(float(value), unit)


def derived(library: TechnologyLibrary, entry: Entry) -> Pairs:
    """Return what follows from the numbers of an entry, as words."""
    of = {
        "units": _of_unit,
        "nodes": _of_node,
        "srams": _of_sram,
        "drams": _of_dram,
        "links": _of_link,
        "substrates": _of_substrate,
    }
    return of[entry.section](library, entry.name)


def _energy(joules: float) -> str:
    return f"{joules * 1e12:.4g} pJ/bit"


def _power(joules_per_bit: float) -> str:
    return f"{8 * joules_per_bit * GB:.4g} W/(GB/s)"


def _of_unit(library: TechnologyLibrary, name: str) -> Pairs:
    unit, node = library.unit(name)
    energy, density = unit.energy_per_flop, unit.throughput_density
    assert energy is not None
    assert density is not None  # the library gives every unit a nominal frequency
    return (
        ("energy", f"{energy * 1e12:.4g} pJ/FLOP in {node}"),
        ("throughput per area", f"{density * 1e-6 / 1e12:.4g} TFLOP/s/mm2"),
        ("power per area", f"{unit.power / unit.area * 1e-6:.4g} W/mm2"),
    )


def _of_node(library: TechnologyLibrary, name: str) -> Pairs:
    nodes = library.nodes()
    first = name
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


def _of_sram(library: TechnologyLibrary, name: str) -> Pairs:
    sram, node = library.sram(name)
    megabyte = 1e6
    leak = float(sram.static_power(megabyte)) * 1e3
    return (
        ("energy", f"{_energy(sram.energy_per_bit)} in {node}"),
        ("power per bandwidth", _power(sram.energy_per_bit)),
        ("area, with periphery", f"{megabyte / sram.capacity_density * 1e6:.4g} mm2/MB"),
        ("leakage", f"{leak:.4g} mW/MB"),
    )


def _of_dram(library: TechnologyLibrary, name: str) -> Pairs:
    dram = library.dram(name)
    bandwidth, edge = dram.stack_bandwidth, dram.edge_bandwidth
    assert bandwidth is not None
    assert edge is not None  # the library gives every memory a nominal rate
    return (
        ("energy", _energy(dram.energy_per_bit)),
        ("bandwidth of one", format_quantity(bandwidth, "B/s")),
        ("power per bandwidth", _power(dram.energy_per_bit)),
        ("power of one at full rate", f"{8 * dram.energy_per_bit * bandwidth:.4g} W"),
        ("bandwidth per edge", f"{edge / GB / 1e3:.4g} GB/s/mm"),
        ("area beside the chip", f"{dram.stack_area * 1e6 / (bandwidth / GB):.4g} mm2/(GB/s)"),
        ("area on the chip", f"{dram.controller_area * 1e6 / (bandwidth / GB):.4g} mm2/(GB/s)"),
    )


def _of_link(library: TechnologyLibrary, name: str) -> Pairs:
    link = library.link(name)
    return (
        ("energy", _energy(link.energy_per_bit)),
        ("bandwidth of one wire", format_quantity(link.nominal_rate / 8, "B/s")),
        ("power per bandwidth", _power(link.energy_per_bit)),
        ("area on the chip", f"{link.area_per_bandwidth * GB * 1e6:.4g} mm2/(GB/s)"),
        ("bandwidth per edge", f"{link.edge_bandwidth / GB / 1e3:.4g} GB/s/mm"),
    )


def _of_substrate(library: TechnologyLibrary, name: str) -> Pairs:
    substrate = library.substrate(name)
    return (
        ("one wire takes", f"{1e6 / substrate.wires_per_length:.4g} um of edge, all layers"),
        ("wires of a 800 mm2 chip", f"{4 * 800**0.5 * substrate.wires_per_length / 1e3:,.0f}"),
    )
