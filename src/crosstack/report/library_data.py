"""The library as plain values, for files: every number with its unit, kind and source."""

from __future__ import annotations

from typing import Any

from crosstack.errors import unknown_name
from crosstack.io import library
from crosstack.io.library import Entry
from crosstack.report.model_text import model_data

# What a list of the library is called -> the sections it is of.
LISTED = {
    "chips": ("chips",),
    "nodes": ("nodes",),
    "networks": ("fabrics", "links", "topologies"),
    "memories": ("memories",),
    "models": ("models",),
}


def named_entries(name: str) -> list[Entry]:
    """Return what the library holds under a name, in any section.

    Raises
    ------
    InputError
        If there is nothing of that name; names the nearest.
    """
    found = [s for s in library.SECTIONS if name in library.names(s)]
    if not found:
        known = dict.fromkeys(each for s in library.SECTIONS for each in library.names(s))
        raise unknown_name("NAME", "entry of the library is", name, known, "In the library")
    return [library.entry(section, name) for section in found]


def library_data(name: str | None) -> dict[str, dict[str, Any]]:
    """Return entries by section and name: all, those of a list, or those of one name.

    Raises
    ------
    InputError
        If ``name`` is neither; names the nearest.
    """
    if name is None or name in LISTED:
        sections = [s for listed, of in LISTED.items() if name in (None, listed) for s in of]
        entries = [library.entry(s, each) for s in sections for each in library.names(s)]
    else:
        entries = named_entries(name)
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        found.setdefault(entry.section, {})[entry.name] = _entry_data(entry)
    return found


def _entry_data(entry: Entry) -> dict[str, Any]:
    figures = [
        {
            "field": figure.field,
            "value": figure.value,
            "unit": figure.unit,
            "kind": figure.kind.value if figure.source else None,
            "source": figure.source or None,
            "where": figure.where or None,
        }
        for figure in entry.figures
    ]
    made = model_data(library.model(entry.name)) if entry.section == "models" else {}
    return {"title": entry.title, "figures": figures, **made}
