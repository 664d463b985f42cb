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

from crosstack.errors import InputError, Problem, unknown_name
from crosstack.io.files import of_file
from crosstack.io.library import Entry, Figure
from crosstack.io.native.problems import checked
from crosstack.io.native.schema import FileModel
from crosstack.io.native.tables import Table
from crosstack.io.yaml_tree import parse_yaml
from crosstack.technology.parts import (
    ComputeUnit,
    DramTechnology,
    LinkTechnology,
    SramTechnology,
    Substrate,
)
from crosstack.technology.scaling import LogicNode
from crosstack.technology.voltage import Supply

# Section -> what one entry of it is.
SECTIONS = {
    "units": "compute unit",
    "nodes": "node",
    "srams": "on-chip memory",
    "drams": "main memory",
    "links": "link",
    "substrates": "substrate",
}
# As `Supply` calls them.
_VOLTAGES = {name: f"{name}_voltage" for name in ("nominal", "threshold", "minimum", "maximum")}


class _Figures(Table):
    """The fields of entries, each a number in a unit with what it rests on."""

    def type_of(self, words: Any) -> Any:
        """Return the type that words mean; of a figure a mapping, where null is left out."""
        if not isinstance(words, str) or " figure" not in words:
            return super().type_of(words)
        figure = {"kind": "io.library.entries.Origin", "source": "any", "where": "any?"}
        shape = super().type_of({"value": _unit(words)} | figure)
        shape.before = _without_null
        return shape | None if words.endswith("?") else shape


def _unit(words: str) -> str:
    """Return what the value of a figure is."""
    return words.partition(" figure")[0]


def _without_null(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: part for name, part in value.items() if part is not None}


_FIELDS = _Figures(__package__, "sections.yaml")


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
        """Return one entry, every number with its source and kind.

        Raises `InputError` if there is none; names the nearest.
        """
        found = self.entries[section]
        if name not in found:
            raise unknown_name("", f"{SECTIONS[section]} is", name, found, "In the library")
        return found[name]

    def find(self, name: str) -> Entry:
        """Return the entry of a name in whatever section has it, any case.

        Raises `InputError` if there is none; names the nearest.
        """
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

    def node(self, name: str) -> LogicNode:
        """Return a logic node."""
        return LogicNode(**self._values("nodes", name), name=name)

    def nodes(self) -> dict[str, LogicNode]:
        """Return every logic node by name."""
        return {name: self.node(name) for name in self.entries["nodes"]}

    def _values(self, section: str, name: str) -> dict[str, Any]:
        values = self.entry(section, name).values
        if "nominal_voltage" in values:
            volts = {name: values.pop(field, None) for name, field in _VOLTAGES.items()}
            values["supply"] = Supply(**volts)
        return values

    def with_entries(self, tree: object, path: str = "") -> TechnologyLibrary:
        """Return the library with the sections of a parsed file on top, if all in it is right."""
        given: Any = tree
        file = checked(_FIELDS["library"], given, path).given()
        entries = {section: dict(known) for section, known in self.entries.items()}
        for section, found in file.items():
            for name, entry in found.items():
                entries[section][name] = _entry(section, name, entry, given[section][name])
        made = TechnologyLibrary(entries)
        for section, found in file.items():
            for name in found:
                made.check(section, name, f"{path}.{section}" if path else section)
        return made

    def check(self, section: str, name: str, path: str) -> None:
        """Raise `InputError` unless the record of an entry can be made."""
        try:
            getattr(self, section.removesuffix("s"))(name)
        except InputError as error:
            raise InputError(
                Problem(f"{path}.{name}.{_VOLTAGES.get(p.path, p.path)}.value", p.message)
                for p in error.problems
            ) from None


def _entry(section: str, name: str, found: FileModel, fields: Mapping[str, Any]) -> Entry:
    """Return the entry of checked fields, in the order of the file."""
    figures = []
    for field in [field for field in fields if field != "title"]:
        figure, unit = getattr(found, field), _unit(_FIELDS.tree[section][field])
        if figure is not None:
            figures.append(
                Figure(
                    field=field,
                    value=figure.value,
                    unit="1" if unit in ("count", "text") else unit,
                    kind=figure.kind,
                    source=str(figure.source),
                    where=str(figure.where or ""),
                )
            )
    title = str(fields.get("title", name))
    return Entry(section=section, name=name, title=title, figures=tuple(figures))


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
    """Return the shipped library with the entries of a file called ``source`` on top.

    ``text`` is YAML: sections of `SECTIONS`, names, fields, each with ``value``, ``kind``,
    ``source`` and ``where``. `InputError` says every problem: ``FILE: path: what is wrong``.
    """
    with of_file(source):
        return shipped().with_entries(parse_yaml(text))
