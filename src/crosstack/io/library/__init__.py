"""The library: chips, nodes, networks, memories and models by name, with sources."""

from crosstack.io.library.entries import SECTIONS, Entry, Figure, Origin, entry, names, references
from crosstack.io.library.machines import (
    NetworkLink,
    chip,
    chip_names,
    driven,
    fabric,
    framework,
    joined_by,
    link,
    memory,
    node,
    port,
    system_on,
    topology,
)  # fmt: skip
from crosstack.io.library.models import (
    PublishedParameters,
    image_model,
    model,
    published_parameters,
)

__all__ = [
    "SECTIONS", "Entry", "Figure", "NetworkLink", "Origin", "PublishedParameters", "chip",
    "chip_names", "driven", "entry", "fabric", "framework", "image_model", "joined_by", "link",
    "memory", "model", "names", "node", "port", "published_parameters", "references", "system_on",
    "topology",
]  # fmt: skip
