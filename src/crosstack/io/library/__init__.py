"""The machine library: chips, nodes, networks and memories by name, with sources."""

from crosstack.io.library.entries import SECTIONS, Entry, Figure, Origin, entry, names, references
from crosstack.io.library.machines import (
    NetworkLink,
    chip,
    chip_names,
    fabric,
    joined_by,
    link,
    memory,
    node,
    port,
    system_on,
    topology,
)

__all__ = [
    "SECTIONS",
    "Entry",
    "Figure",
    "NetworkLink",
    "Origin",
    "chip",
    "chip_names",
    "entry",
    "fabric",
    "joined_by",
    "link",
    "memory",
    "names",
    "node",
    "port",
    "references",
    "system_on",
    "topology",
]
