"""Which figures there are, by the name they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from crosstack.errors import InputError, Problem, did_you_mean
from crosstack.published.case import Progress, Row, silent
from crosstack.published.figures.calculon import parallelism_sweep
from crosstack.published.figures.chip_power import chip_power
from crosstack.published.figures.cooptimised_nodes import cooptimised_nodes
from crosstack.published.figures.figure import Figure
from crosstack.published.figures.intensity import intensity
from crosstack.published.figures.mappings import roofline, table_6
from crosstack.published.figures.measured_systems import measured_systems
from crosstack.published.figures.memory_sweep import memory_sweep
from crosstack.published.figures.package_size import package_size
from crosstack.published.figures.rail_only import domain_sweep
from crosstack.published.figures.serving import serving_sweep
from crosstack.published.figures.space import mapping_spaces
from crosstack.published.figures.speculation import speculative_decoding
from crosstack.published.figures.stacked_memory import stacked_memory
from crosstack.published.figures.systems import SYSTEM_FIGURES
from crosstack.published.figures.technology_scaling import technology_scaling

__all__ = [
    "FIGURES",
    "UNAVAILABLE",
    "Entry",
    "Unavailable",
    "figure_named",
    "figure_rows",
    "figures",
    "named",
]


@dataclass(frozen=True, slots=True)
class Entry:
    """A figure that can be made: where it stands in the paper, and what it shows."""

    place: str
    shows: str
    make: Callable[[Progress], Figure]


FIGURES: dict[str, Entry] = {
    "mapping-space": Entry(
        "Conclusion", "how many mappings there are, by decision", mapping_spaces
    ),
    "measured-systems": Entry(
        "Fig. 6", "what is known of DFModel beside measured systems", measured_systems
    ),
    "rail-only": Entry("Fig. 7", "iteration by the size of a high-bandwidth domain", domain_sweep),
    "parallelism-sweep": Entry(
        "Fig. 8", "TP, PP and DP of GPT-3 1T on 4,096 A100", parallelism_sweep
    ),
    "chip-power": Entry("Fig. 9", "power of a chip over its throughput", chip_power),
    "systems-llm": Entry("Fig. 10, 11", "GPT-3 1T on 80 systems", SYSTEM_FIGURES["llm"]),
    "systems-dlrm": Entry("Fig. 12, 13", "DLRM on 80 systems", SYSTEM_FIGURES["dlrm"]),
    "systems-hpl": Entry("Fig. 14, 15", "HPL on 80 systems", SYSTEM_FIGURES["hpl"]),
    "systems-fft": Entry("Fig. 16, 17", "FFT on 80 systems", SYSTEM_FIGURES["fft"]),
    "table6": Entry("Table VI", "four mappings of GPT-3 175B on eight SN10", table_6),
    "roofline": Entry("Fig. 18", "the same mappings under their roofs", roofline),
    "memory-sweep": Entry("Fig. 19", "SRAM x memory, fused against kernel by kernel", memory_sweep),
    "serving": Entry("Fig. 20", "Llama-3 8B on 16 SN40L: TTFT, TPOT, throughput", serving_sweep),
    "speculation": Entry("Fig. 21", "speculative decoding of Llama-3 405B", speculative_decoding),
    "stacked-memory": Entry(
        "Fig. 22", "compute share of a chip under 2-D, 2.5-D and 3-D memory", stacked_memory
    ),
    "intensity": Entry("DeepFlow, Fig. 1", "operations for each access by parallelism", intensity),
    "technology-scaling": Entry(
        "DeepFlow, Fig. 9", "7 nodes x 4 memories x 3 networks", technology_scaling
    ),
    "co-optimised-nodes": Entry(
        "DeepFlow, Fig. 10", "parallelism, then chip, then model, by node", cooptimised_nodes
    ),
    "package-size": Entry("DeepFlow, Fig. 11", "chips that share a package", package_size),
}


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A figure that cannot be made again: where it stands, what it shows, and why not."""

    place: str
    shows: str
    why: str


_UNPUBLISHED = (
    "the measured times are dots in a picture and nowhere printed, and the public tool holds the "
    "scripts that measured, but none of their results (deepflow_code, validation/benchmarks)"
)
UNAVAILABLE: dict[str, Unavailable] = {
    "gemm-p4": Unavailable(
        "DeepFlow, Fig. 6",
        "measured and predicted matrix products on a P4",
        f"{_UNPUBLISHED}; the paper says: correlation 0.996, mean error 8.9 %",
    ),
    "gemm-dgx1": Unavailable(
        "DeepFlow, Fig. 7",
        "measured and predicted products on 1, 2, 4 and 8 V100 of a DGX-1",
        f"{_UNPUBLISHED}, nor which of its more than 2,000 kernels ran under which strategy; the "
        "paper says: correlation 0.98 to 0.99, mean error 6 % to 18 %",
    ),
    "lm-v100": Unavailable(
        "DeepFlow, Fig. 8",
        "measured and predicted steps of an LSTM language model on a V100",
        f"{_UNPUBLISHED}, nor the length of a sequence in its 125 configurations; the paper says: "
        "correlation 0.996, mean error 16 %",
    ),
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
