"""The machine library: chips, memories, links and topologies by name, with sources."""

from crosstack.io.library.library import (
    Entry,
    Figure,
    Link,
    Origin,
    chip,
    entry,
    link,
    memory,
    names,
    references,
    topology,
)

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
