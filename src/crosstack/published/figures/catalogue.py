"""Which figures there are, by the name they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from crosstack.errors import InputError, Problem, did_you_mean
from crosstack.published.case import Progress, Row, silent
from crosstack.published.figures.chip_power import chip_power
from crosstack.published.figures.deepflow import (
    cooptimised_nodes,
    intensity,
    package_size,
    technology_scaling,
)
from crosstack.published.figures.figure import TEXTS, Figure
from crosstack.published.figures.gpt3_1t import domain_sweep, mapping_spaces, parallelism_sweep
from crosstack.published.figures.mappings import roofline, table_6
from crosstack.published.figures.measured_systems import measured_systems
from crosstack.published.figures.memory_sweep import memory_sweep
from crosstack.published.figures.serving import serving_sweep, speculative_decoding
from crosstack.published.figures.stacked_memory import stacked_memory
from crosstack.published.figures.systems import SYSTEM_FIGURES


@dataclass(frozen=True, slots=True)
class Entry:
    """A figure that can be made: where it stands in the paper, and what it shows."""

    place: str
    shows: str
    make: Callable[[Progress], Figure]


_MAKERS: dict[str, Callable[[Progress], Figure]] = {
    "mapping-space": mapping_spaces,
    "measured-systems": measured_systems,
    "rail-only": domain_sweep,
    "parallelism-sweep": parallelism_sweep,
    "chip-power": chip_power,
    **{f"systems-{workload}": make for workload, make in SYSTEM_FIGURES.items()},
    "table6": table_6,
    "roofline": roofline,
    "memory-sweep": memory_sweep,
    "serving": serving_sweep,
    "speculation": speculative_decoding,
    "stacked-memory": stacked_memory,
    "intensity": intensity,
    "technology-scaling": technology_scaling,
    "co-optimised-nodes": cooptimised_nodes,
    "package-size": package_size,
}
FIGURES: dict[str, Entry] = {
    name: Entry(TEXTS["figures"][name]["place"], TEXTS["figures"][name]["shows"], make)
    for name, make in _MAKERS.items()
}


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A figure that cannot be made again: where it stands, what it shows, and why not."""

    place: str
    shows: str
    why: str


UNAVAILABLE: dict[str, Unavailable] = {
    name: Unavailable(**said) for name, said in TEXTS["not_to_be_made_again"].items()
}


def named(name: str) -> Entry:
    """Return the figure called ``name``.

    Raises
    ------
    InputError
        If there is none: names the nearest, or says why it cannot be made again.
    """
    if name in UNAVAILABLE:
        missing = UNAVAILABLE[name]
        raise InputError(
            Problem("NAME", f"{name} ({missing.place}) cannot be made again: {missing.why}.")
        )
    if name not in FIGURES:
        hint = did_you_mean(name, [*FIGURES, *UNAVAILABLE])
        raise InputError(
            Problem(
                "NAME", f'no figure is called "{name}".{hint} Allowed: {", ".join(FIGURES)}, all.'
            )
        )
    return FIGURES[name]


def figure_named(name: str, progress: Progress = silent) -> Figure:
    """Compute a figure; ``progress`` is told what comes next."""
    return named(name).make(progress)


def figures(progress: Progress = silent) -> Iterator[Figure]:
    """Compute all figures, in the order of the paper."""
    for name, entry in FIGURES.items():
        progress(name)
        yield entry.make(progress)


def figure_rows(made: Sequence[Figure] | None = None, progress: Progress = silent) -> list[Row]:
    """Return the claims and published points of all figures, or of those that are made already."""
    return [
        row
        for figure in (made if made is not None else figures(progress))
        for row in (*figure.claims, *figure.points)
    ]
