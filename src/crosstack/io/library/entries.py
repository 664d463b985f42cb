"""The files of the library: entries by name, every number with its source and kind.

Machines are in ``crosstack/data/library``; the head of ``chips/nvidia.yaml`` says what their fields
are. Models are in ``crosstack/workload/models.yaml`` and ``images.yaml``. An entry that is
``based_on`` another has its fields where it says nothing itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from crosstack.errors import InputError, Problem, unknown_name
from crosstack.io.yaml_tree import parse_yaml
from crosstack.units import parse_quantity

# Section -> what one entry of it is, its file or folder, and the key in the file.
SECTIONS = {
    "chips": ("chip", "data/library/chips", ""),
    "nodes": ("node", "data/library/nodes.yaml", ""),
    "links": ("link", "data/library/networks.yaml", "links"),
    "fabrics": ("fabric", "data/library/networks.yaml", "fabrics"),
    "topologies": ("topology", "data/library/networks.yaml", "topologies"),
    "memories": ("memory", "data/library/memories.yaml", ""),
    "frameworks": ("framework", "data/library/frameworks.yaml", ""),
    "models": ("model", "workload/models.yaml", ""),
    "images": ("model of images", "workload/images.yaml", ""),
}
# Last part of a path -> unit of what stands there; a bare number is a count or a share.
_UNITS = {
    "capacity": "B",
    "depth_bytes": "B",
    "bandwidth": "B/s",
    "bandwidth_per_link": "B/s",
    "link_bandwidth": "B/s",
    "memory_bandwidth": "B/s",
    "latency": "s",
    "ramp": "s",
    "latency_per_switch": "s",
    "launch_overhead": "s",
    "dispatch": "s",
    "checks": "s",
    "set_aside": "B",
    "link_power": "W/(B/s)",
    "switch_power": "W/(B/s)",
    "switch_price": "USD/(B/s)",
}
_ABOUT = ("name", "based_on", "sources")


class Origin(StrEnum):
    """What kind of evidence a number rests on.

    ``market``: a price as asked or paid at a date; ``calibrated``: found on runs that are measured.
    """

    MEASURED = "measured"
    DATASHEET = "datasheet"
    PAPER = "paper"
    MARKET = "market"
    CALIBRATED = "calibrated"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number of an entry, at the path ``field`` and in ``unit`` (SI, or ``"1"``).

    ``source`` is a key in ``data/references.bib``, ``where`` a page, table or file there.
    """

    field: str
    value: Any
    unit: str
    kind: Origin
    source: str
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What the library holds under one name."""

    section: str
    name: str
    title: str
    figures: tuple[Figure, ...]

    @property
    def values(self) -> dict[str, Any]:
        """Path of a field to its value."""
        return {figure.field: figure.value for figure in self.figures}

    def under(self, path: str) -> dict[str, Any]:
        """Return the values below a path, by the rest of their paths."""
        start = f"{path}."
        return {
            f.field.removeprefix(start): f.value for f in self.figures if f.field.startswith(start)
        }


@cache
def _section(section: str) -> Mapping[str, Entry]:
    if section not in SECTIONS:
        message = f"the library has no section {section!r}; allowed: {', '.join(SECTIONS)}."
        raise InputError(Problem("", message))
    _, place, key = SECTIONS[section]
    found = files("crosstack").joinpath(*place.split("/"))
    texts = [found] if found.is_file() else sorted(found.iterdir(), key=lambda f: f.name)
    trees: dict[str, Any] = {}
    for text in texts:
        tree: Any = parse_yaml(text.read_text(encoding="utf-8"))
        trees |= tree[key] if key else tree
    return MappingProxyType({name: _entry(section, name, trees) for name in trees})


def _entry(section: str, name: str, trees: Mapping[str, Any]) -> Entry:
    tree = _whole(trees, name)
    numbers = dict(_leaves({k: v for k, v in tree.items() if k not in _ABOUT}))
    figures = []
    for path, given in numbers.items():
        source = _source_of(path, tree["sources"])
        unit = _unit_of(section, path)
        value = given if unit is None or isinstance(given, list) else parse_quantity(given, unit)
        figures.append(
            Figure(
                field=path,
                value=tuple(value) if isinstance(value, list) else value,
                unit=unit or "1",
                kind=Origin(source["kind"]),
                source=source["source"],
                where=source["where"],
            )
        )
    return Entry(section=section, name=name, title=tree["name"], figures=tuple(figures))


def _whole(trees: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return an entry with all that it is based on; its own sources go first."""
    own: dict[str, Any] = trees[name]
    if "based_on" not in own:
        return own
    base = _whole(trees, own["based_on"])
    sources = [*own.get("sources", ()), *base["sources"]]
    merged: dict[str, Any] = _merged(base, own)
    return merged | {"sources": sources}


def _merged(base: Any, own: Any) -> Any:
    if not (isinstance(base, dict) and isinstance(own, dict)):
        return own
    return base | {key: _merged(base.get(key), value) for key, value in own.items()}


def _leaves(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        here = f"{path}.{key}" if path else str(key)
        if isinstance(value, dict):
            yield from _leaves(value, here)
        elif value is not None:  # null: what the entry it is based on says is not so here
            yield here, value


_UNKNOWN = {"kind": Origin.PAPER, "source": "", "where": ""}  # of words, which need no source


def _source_of(path: str, sources: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the source of a field: that of the longest path which it stands under, the first."""
    found: Mapping[str, Any] = _UNKNOWN
    longest = 0
    for source in sources:
        for field in source["fields"]:
            covers = path == field or path.startswith(f"{field}.")
            if covers and len(field) > longest:
                found, longest = source, len(field)
    return found


def _unit_of(section: str, path: str) -> str | None:
    root, last = path.split(".", maxsplit=1)[0], path.rsplit(".", maxsplit=1)[-1]
    if root in ("rates", "vector_rates", "accumulator_rates"):
        return "FLOP/s"
    if root == "frequency":
        return "Hz"
    if root == "power":
        return "W/(B/s)" if section == "memories" else "W"
    if last == "price":
        return "USD" if section in ("chips", "nodes") else "USD/(B/s)"
    return _UNITS.get(last)


def names(section: str) -> tuple[str, ...]:
    """Return the names in a section, a key of `SECTIONS`."""
    return tuple(_section(section))


def entry(section: str, name: str) -> Entry:
    """Return what the library holds under ``name``, every number with its source and kind.

    `InputError` if there is no such section or name; names the nearest.
    """
    entries = _section(section)
    if name not in entries:
        raise unknown_name("", f"{SECTIONS[section][0]} is", name, entries, "In the library")
    return entries[name]


@cache
def references() -> frozenset[str]:
    """Return the keys of ``data/references.bib``."""
    text = files("crosstack").joinpath("data", "references.bib").read_text(encoding="utf-8")
    return frozenset(re.findall(r"^@\w+\{([^,\s]+),", text, flags=re.MULTILINE))
