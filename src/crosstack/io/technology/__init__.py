"""The technology library: units, nodes, memories, links and substrates by name, with sources."""

from crosstack.io.technology.library import SECTIONS, TechnologyLibrary, read_library, shipped

__all__ = ["SECTIONS", "TechnologyLibrary", "read_library", "shipped"]
