"""Technologies by name: those shipped beside this file, and a user's own on top of them.

A user's file has the same sections and fields; ``source`` is any text there, and an entry of a
shipped name replaces it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from crosstack.errors import InputError, Problem, require_whole, unknown_name
from crosstack.io.files import in_file
from crosstack.io.library import Entry, Figure, Origin
from crosstack.io.native.problems import unknown_field
from crosstack.io.native.schema import shown
from crosstack.io.yaml_tree import parse_yaml
from crosstack.technology.dram import DramTechnology
from crosstack.technology.links import LinkTechnology
from crosstack.technology.logic import ComputeUnit
from crosstack.technology.scaling import LogicNode
from crosstack.technology.sram import SramTechnology
from crosstack.technology.substrates import Substrate
from crosstack.technology.voltage import Supply
from crosstack.units import parse_quantity

_SUPPLY = {
    "nominal_voltage": "V",
    "threshold_voltage": "V",
    "minimum_voltage": "V",
    "maximum_voltage": "V",
}
_VOLTAGES = {name.removesuffix("_voltage"): name for name in _SUPPLY}  # as `Supply` calls them
# Section -> field -> unit; "count" is a whole number, "text" a name, "1" a bare number.
SECTIONS: dict[str, dict[str, str]] = {
    "units": {
        "node": "text",
        "work_per_cycle": "FLOP",
        "rows": "count",
        "depth": "count",
        "area": "m^2",
        "power": "W",
        "nominal_frequency": "Hz",
        **_SUPPLY,
    },
    "nodes": {
        "previous": "text",
        "density": "1",
        "power": "1",
        "paper_density": "1",
        "paper_power": "1",
        "sram_cell": "m^2",
        "wafer_price": "USD",
        "defect_density": "1/m^2",
    },
    "srams": {
        "node": "text",
        "area_per_bit": "m^2",
        "bank_capacity": "B",
        "energy_per_bit": "J",
        "static_power_per_bit": "W",
        "periphery": "1",
        "crossbar_area": "m^2",
        "latency": "s",
    },
    "drams": {
        "stack_capacity": "B",
        "stack_area": "m^2",
        "controller_area": "m^2",
        "wires_per_stack": "count",
        "wires_per_length": "1/m",
        "nominal_rate": "bit/s",
        "energy_per_bit": "J",
        "static_power_per_bit": "W",
        "latency": "s",
        **_SUPPLY,
    },
    "links": {
        "energy_per_bit": "J",
        "area_per_wire": "m^2",
        "wires_per_length": "1/m",
        "nominal_rate": "bit/s",
        "latency": "s",
        **_SUPPLY,
    },
    "substrates": {"wires_per_length": "1/m", "maximum_area": "m^2"},
}
_ONE = {
    "units": "compute unit",
    "nodes": "node",
    "srams": "on-chip memory",
    "drams": "main memory",
    "links": "link",
    "substrates": "substrate",
}
_OPTIONAL = {
    "maximum_voltage", "previous", "density", "power", "paper_density", "paper_power",
    "static_power_per_bit", "periphery", "crossbar_area", "latency", "wafer_price",
    "defect_density",
}  # fmt: skip
_PARTS = ("value", "kind", "source", "where")


@dataclass(frozen=True, slots=True)
class TechnologyLibrary:
    """Entries by section and name; the methods make records of them.

    Every method raises `InputError` where there is no such entry, and names the nearest.
    """

    entries: Mapping[str, Mapping[str, Entry]]

    def names(self, section: str) -> tuple[str, ...]:
        """Return the names in a section, a key of `SECTIONS`."""
        return tuple(self.entries[section])

    def entry(self, section: str, name: str) -> Entry:
        """Return one entry, every number with its source and kind."""
        found = self.entries[section]
        if name not in found:
            raise unknown_name("", f"{_ONE[section]} is", name, found, "In the library")
        return found[name]

    def find(self, name: str) -> Entry:
        """Return the entry of a name in whatever section has it, any case."""
        for section in self.entries.values():
            for known, entry in section.items():
                if known.casefold() == name.casefold():
                    return entry
        every = [known for section in self.entries.values() for known in section]
        raise unknown_name("", "technology is", name, every, "In the library")

    def unit(self, name: str) -> tuple[ComputeUnit, str]:
        """Return a compute unit, and the node it is drawn in."""
        values = self._values("units", name)
        node = values.pop("node")
        return ComputeUnit(**values, name=name), node

    def sram(self, name: str) -> tuple[SramTechnology, str]:
        """Return an on-chip memory, and the node it is drawn in."""
        values = self._values("srams", name)
        node = values.pop("node")
        return SramTechnology(**values, name=name), node

    def dram(self, name: str) -> DramTechnology:
        """Return a main memory."""
        return DramTechnology(**self._values("drams", name), name=name)

    def link(self, name: str) -> LinkTechnology:
        """Return a link."""
        return LinkTechnology(**self._values("links", name), name=name)

    def substrate(self, name: str) -> Substrate:
        """Return a substrate."""
        return Substrate(**self._values("substrates", name), name=name)

    def nodes(self) -> dict[str, LogicNode]:
        """Return every logic node by name."""
        return {
            name: LogicNode(**self._values("nodes", name), name=name)
            for name in self.entries["nodes"]
        }

    def _values(self, section: str, name: str) -> dict[str, Any]:
        values = self.entry(section, name).values
        if "nominal_voltage" in SECTIONS[section]:
            values["supply"] = Supply(
                nominal=values.pop("nominal_voltage"),
                threshold=values.pop("threshold_voltage"),
                minimum=values.pop("minimum_voltage"),
                maximum=values.pop("maximum_voltage", None),
            )
        return values

    def with_entries(self, tree: object, path: str = "") -> TechnologyLibrary:
        """Return the library with the sections of a parsed file on top.

        Raises
        ------
        InputError
            With every problem found.
        """
        if not isinstance(tree, dict):
            allowed = f"a mapping of {', '.join(SECTIONS)}"
            raise InputError(Problem(path, f"got {shown(tree)}; allowed: {allowed}."))
        problems: list[Problem] = []
        entries = {section: dict(known) for section, known in self.entries.items()}
        for section, given in tree.items():
            here = f"{path}.{section}" if path else section
            if section not in SECTIONS:
                problems.append(Problem(here, unknown_field(section, SECTIONS)))
                continue
            if not isinstance(given, dict):
                message = f"got {shown(given)}; allowed: a mapping of names."
                problems.append(Problem(here, message))
                continue
            for name, fields in given.items():
                found = _entry(section, name, fields, f"{here}.{name}", problems)
                if found is not None:
                    entries[section][name] = found
        if problems:
            raise InputError(problems)
        made = TechnologyLibrary(entries)
        for section, given in tree.items():
            for name in given:
                made.check(section, name, f"{path}.{section}" if path else section)
        return made

    def check(self, section: str, name: str, path: str) -> None:
        """Raise `InputError` unless the record of an entry can be made."""
        makers: dict[str, Any] = {
            "units": self.unit,
            "srams": self.sram,
            "drams": self.dram,
            "links": self.link,
            "substrates": self.substrate,
            "nodes": lambda name: LogicNode(**self._values("nodes", name), name=name),
        }
        try:
            makers[section](name)
        except InputError as error:
            raise InputError(
                Problem(f"{path}.{name}.{_VOLTAGES.get(p.path, p.path)}.value", p.message)
                for p in error.problems
            ) from None


def _entry(
    section: str, name: str, fields: object, path: str, problems: list[Problem]
) -> Entry | None:
    if not isinstance(fields, dict):
        allowed = f"a mapping of title, {', '.join(SECTIONS[section])}"
        problems.append(Problem(path, f"got {shown(fields)}; allowed: {allowed}."))
        return None
    before = len(problems)
    known = {"title": "text", **SECTIONS[section]}
    figures = []
    for field, given in fields.items():
        here = f"{path}.{field}"
        if field not in known:
            problems.append(Problem(here, unknown_field(field, known)))
        elif field != "title":
            figure = _figure(field, known[field], given, here, problems)
            figures += [figure] if figure is not None else []
    for field in SECTIONS[section]:
        if field not in fields and field not in _OPTIONAL:
            problems.append(Problem(f"{path}.{field}", "required, but missing."))
    if len(problems) > before:
        return None
    return Entry(
        section=section, name=name, title=str(fields.get("title", name)), figures=tuple(figures)
    )


def _figure(
    field: str, unit: str, given: object, path: str, problems: list[Problem]
) -> Figure | None:
    if not isinstance(given, dict):
        message = f"got {shown(given)}; allowed: a mapping of {', '.join(_PARTS)}."
        problems.append(Problem(path, message))
        return None
    before = len(problems)
    for part in given:
        if part not in _PARTS:
            problems.append(Problem(f"{path}.{part}", unknown_field(part, _PARTS)))
    for part in ("value", "kind", "source"):
        if given.get(part) is None:
            problems.append(Problem(f"{path}.{part}", "required, but missing."))
    kinds = [kind.value for kind in Origin]
    kind = given.get("kind")
    if kind is not None and kind not in kinds:
        message = f"got {shown(kind)}; allowed: {', '.join(kinds)}."
        problems.append(Problem(f"{path}.kind", message))
    value: Any = given.get("value")
    try:
        value = _value(value, unit) if value is not None else None
    except InputError as error:
        problems.extend(error.under(f"{path}.value").problems)
    if len(problems) > before:
        return None
    return Figure(
        field=field,
        value=value,
        unit="1" if unit in ("count", "text") else unit,
        kind=Origin(str(kind)),
        source=str(given["source"]),
        where=str(given.get("where") or ""),
    )


def _value(value: object, unit: str) -> object:
    if unit == "count":
        require_whole("", value)
        return value
    if unit == "text":
        if not isinstance(value, str):
            raise InputError(Problem("", f"got {shown(value)}; allowed: text."))
        return value
    return parse_quantity(value, unit)


@cache
def shipped() -> TechnologyLibrary:
    """Return the library that comes with crosstack."""
    empty: dict[str, Mapping[str, Entry]] = {section: {} for section in SECTIONS}
    here = files(__package__)
    tree = {
        section: parse_yaml(here.joinpath(f"{section}.yaml").read_text(encoding="utf-8"))
        for section in SECTIONS
    }
    found = TechnologyLibrary(empty).with_entries(tree)
    return TechnologyLibrary(
        MappingProxyType({s: MappingProxyType(dict(e)) for s, e in found.entries.items()})
    )


def read_library(text: str, source: str) -> TechnologyLibrary:
    """Return the shipped library with the entries of a file on top.

    Parameters
    ----------
    text : str
        YAML: sections of `SECTIONS`, names, fields, each with ``value``, ``kind``, ``source`` and
        ``where``.
    source : str
        What to call the file in errors.

    Raises
    ------
    InputError
        With every problem found: ``FILE: path: what is wrong``.
    """
    try:
        return shipped().with_entries(parse_yaml(text))
    except InputError as error:
        raise in_file(error, source) from None
