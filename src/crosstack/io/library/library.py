"""Looks machines up by name in the YAML files beside this one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from crosstack.errors import InputError, Problem, nearest
from crosstack.io.yaml_tree import parse_yaml
from crosstack.machine.chip import Chip, flat_chip, relative_rates
from crosstack.machine.memory import MemoryLevel, main_memory
from crosstack.machine.system import DimensionKind
from crosstack.units import parse_quantity
from crosstack.workload.dtype import Dtype

__all__ = [
    "Entry",
    "Figure",
    "Link",
    "Origin",
    "chip",
    "entry",
    "link",
    "memory",
    "names",
    "references",
    "topology",
]

# Field -> unit; "count" is a whole number, "kinds" a list of dimension kinds and "rates" a figure
# [FLOP/s] for every type of number.
_FIELDS: dict[str, dict[str, str]] = {
    "chips": {
        "n_cores": "count",
        "lanes": "count",
        "stages": "count",
        "frequency": "Hz",
        "sram_capacity": "B",
        "price": "USD",
        "power": "W",
        "rates": "rates",
    },
    "memories": {"bandwidth": "B/s", "capacity": "B", "price": "USD/(B/s)", "power": "W/(B/s)"},
    "links": {
        "bandwidth": "B/s",
        "latency": "s",
        "price": "USD/(B/s)",
        "link_power": "W/(B/s)",
        "switch_price": "USD/(B/s)",
        "switch_power": "W/(B/s)",
    },
    "topologies": {"kinds": "kinds"},
}
_ONE = {"chips": "chip", "memories": "memory", "links": "link", "topologies": "topology"}


RATES = "rates."  # before the type of number, in the name of a figure


class Origin(StrEnum):
    """What kind of evidence a number rests on."""

    MEASURED = "measured"
    DATASHEET = "datasheet"
    PAPER = "paper"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number of an entry, and where it comes from.

    Parameters
    ----------
    field : str
        Name of the field in the record it goes into.
    value : int, float or tuple of DimensionKind
        In ``unit``.
    unit : str
        SI unit, or ``"1"``.
    kind : Origin
        What kind of evidence it is.
    source, where : str
        Key in ``data/references.bib``, and page, table or file there.
    """

    field: str
    value: int | float | tuple[DimensionKind, ...]
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
        """Field to value; rates of a chip as `crosstack.machine.chip.flat_chip` takes them."""
        values: dict[str, Any] = {figure.field: figure.value for figure in self.figures}
        named = [field for field in values if field.startswith(RATES)]
        rates = {Dtype(field.removeprefix(RATES)): values.pop(field) for field in named}
        if rates:
            values["relative_rates"] = relative_rates(rates, values)
        return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link technology.

    ``bandwidth`` [B/s] each way, ``latency`` of a hop [s], ``link_power`` [W/(B/s)] and ``price``
    [USD/(B/s)] of the link, ``switch_power`` and ``switch_price`` of the switch port it plugs into;
    None where no source gives one.
    """

    bandwidth: float
    latency: float | None = None
    link_power: float | None = None
    price: float | None = None
    switch_power: float | None = None
    switch_price: float | None = None
    name: str = "link"


@cache
def _section(section: str) -> MappingProxyType[str, Entry]:
    if section not in _FIELDS:
        allowed = ", ".join(_FIELDS)
        raise InputError(
            Problem("", f"the library has no section {section!r}; allowed: {allowed}.")
        )
    text = files(__package__).joinpath(f"{section}.yaml").read_text(encoding="utf-8")
    tree: Any = parse_yaml(text)
    return MappingProxyType(
        {name: _entry(section, name, dict(fields)) for name, fields in tree.items()}
    )


def _entry(section: str, name: str, fields: dict[str, Any]) -> Entry:
    title = fields.pop("title")
    rates = fields.pop("rates", {})
    units = {field: _FIELDS[section][field] for field in fields}
    units |= {f"{RATES}{dtype}": "FLOP/s" for dtype in rates}
    figures = []
    for field, given in (fields | {f"{RATES}{dtype}": rates[dtype] for dtype in rates}).items():
        unit = units[field]
        value = given["value"]
        if unit == "kinds":
            value = tuple(DimensionKind(kind) for kind in value)
        elif unit != "count":
            value = parse_quantity(value, unit)
        figures.append(
            Figure(
                field=field,
                value=value,
                unit="1" if unit in ("count", "kinds") else unit,
                kind=Origin(given["kind"]),
                source=given["source"],
                where=given["where"],
            )
        )
    return Entry(section=section, name=name, title=title, figures=tuple(figures))


def names(section: str) -> tuple[str, ...]:
    """Return the names in a section: ``chips``, ``memories``, ``links`` or ``topologies``."""
    return tuple(_section(section))


def entry(section: str, name: str) -> Entry:
    """Return what the library holds under ``name``, every number with its source and kind.

    Raises
    ------
    InputError
        If there is no such section or name; names the nearest.
    """
    entries = _section(section)
    if name not in entries:
        close = nearest(name, entries, 1)
        hint = f' Did you mean "{close[0]}"?' if close else ""
        message = f'no {_ONE[section]} is called "{name}".{hint} In the library: '
        raise InputError(Problem("", f"{message}{', '.join(entries)}."))
    return entries[name]


def chip(name: str) -> Chip:
    """Return the chip called ``name``; `InputError` if there is none."""
    return flat_chip(**entry("chips", name).values, name=name)


def memory(name: str) -> tuple[MemoryLevel, ...]:
    """Return the memory called ``name``, as those of a chip; `InputError` if there is none."""
    values = entry("memories", name).values
    return main_memory(bandwidth=values["bandwidth"], capacity=values.get("capacity"), name=name)


def link(name: str) -> Link:
    """Return the link called ``name``; `InputError` if there is none."""
    return Link(**entry("links", name).values, name=name)


def topology(name: str) -> tuple[DimensionKind, ...]:
    """Return the kind of each dimension, innermost first; `InputError` if there is none."""
    kinds: tuple[DimensionKind, ...] = entry("topologies", name).values["kinds"]
    return kinds


@cache
def references() -> frozenset[str]:
    """Return the keys of ``data/references.bib``."""
    text = files("crosstack").joinpath("data", "references.bib").read_text(encoding="utf-8")
    return frozenset(re.findall(r"^@\w+\{([^,\s]+),", text, flags=re.MULTILINE))
