"""How far off is what is said of measured kernels, collectives and runs, with a part left out?

Usage: python benchmarks/ablation.py FOLDER, of the measured tables. Every part of the physics is
left out by itself: by another record of the machine where the part is in one, by another row where
it is of what was measured, by a constant for splits of K. A cell is the mean of |ln(said /
measured)| in %, over the rows of a machine or a source; `=` where that is what it is with all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np

from crosstack.evaluate import attention_scores, expert_scores, lane_scores
from crosstack.evaluate.attention_programs import Tokens
from crosstack.evaluate.collective_scores import CollectiveSet, Library, score_sets
from crosstack.evaluate.kernel_scores import score_kernels
from crosstack.evaluate.product_tiles import ProductProgram
from crosstack.evaluate.run_scores import MeasuredRun, newest_of, score_runs, some_of
from crosstack.io import library
from crosstack.io.measured import KernelSet, read_kernels
from crosstack.io.measured_collectives import read_collectives
from crosstack.io.measured_runs import read_runs
from crosstack.machine.chip import Chip
from crosstack.machine.framework import Fusion
from crosstack.machine.system import Dimension, System
from crosstack.model.kernels import attention, tilings
from crosstack.model.kernels.clock import KernelClock
from crosstack.model.kernels.lanes import ONCE
from crosstack.model.kernels.roofline import Roofline
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernel_graph import Bools, Floats

RUNS = 12  # of every source
NONE = 1e30  # of a bandwidth or a rate that nothing waits for
SAME = 0.05  # by which a mean that is called the same may differ [%]
ALL = "all"


# ---------------------------------------------------------------- parts of a chip


def at_highest_clock(chip: Chip) -> Chip:
    """Return a chip that may take any power, from the start."""
    compute = chip.compute
    if compute.sustained is None:
        return chip
    return chip.with_compute(sustained=compute.boost, starting=None)


def with_whole_memory(chip: Chip) -> Chip:
    """Return a chip whose kernels reach all of the bandwidth of main memory."""
    memory = chip.main_memory
    share = library.entry("chips", chip.name).values[f"levels.{memory.name}.achieved"]
    return chip.with_memory(bandwidth=memory.speed / share)


def without_launches(chip: Chip) -> Chip:
    """Return a chip on which a kernel starts at once."""
    return replace(chip, launch_overhead=0.0)


def without_latencies(chip: Chip) -> Chip:
    """Return a chip whose memories answer at once."""
    levels = tuple(replace(level, latency=0.0) for level in chip.levels)
    return replace(chip, levels=levels).with_memory(latency=0.0, ramp=0.0)


def without_ramp(chip: Chip) -> Chip:
    """Return a chip whose main memory streams at its bandwidth from the first byte to the last."""
    return chip.with_memory(ramp=0.0)


def without_levels(chip: Chip) -> Chip:
    """Return a chip on which nothing waits for registers, shared memory and caches."""
    levels = tuple(replace(level, bandwidth=NONE) for level in chip.levels)
    return replace(chip, levels=levels)


def without_lanes(chip: Chip) -> Chip:
    """Return a chip whose lanes take no time; exponentials do."""
    compute = chip.compute
    rates = tuple((dtype, 1e6 * rate) for dtype, rate in compute.relative_vector_rates)
    return chip.with_compute(relative_vector_rates=rates or ((Dtype.FP32, 1e6),))


def with_(**changes: Any) -> Callable[[Chip], Chip]:
    """Return what gives a chip other fields of its units."""
    return lambda chip: chip.with_compute(**changes)


CHIP = {
    "clock under load": at_highest_clock,
    "share of main memory that is reached": with_whole_memory,
    "launches": without_launches,
    "latencies of memories": without_latencies,
    "ramp of main memory": without_ramp,
    "bandwidth of levels on the chip": without_levels,
    "clusters and pairs": with_(cluster=1, paired=1),
    "operands read from shared memory": with_(operand_rows=0),
    "exponentials": with_(special_per_cycle=NONE),
    "lanes": without_lanes,
}


# ---------------------------------------------------------------- parts of networks and runs


def without_protocols(level: Dimension) -> Dimension:
    """Return links of which no library is known, but the shares that it reaches of them."""
    return replace(level, medium=None, pace=1.0)


def with_whole_links(level: Dimension) -> Dimension:
    """Return links that messages reach the whole rate of."""
    return replace(level, achieved=1.0, adding=1.0)


def with_whole_buffers(chip: Chip) -> Chip:
    """Return a chip whose memory takes in what arrives in no time."""
    return chip.with_memory(bandwidth=NONE, latency=0.0, ramp=0.0)


NETWORK = {
    "protocols of NCCL": without_protocols,
    "share of links that is reached": with_whole_links,
}


def on_chip(change: Callable[[Chip], Chip], system: System) -> System:
    """Return a system with another chip."""
    return replace(system, chip=change(system.chip))


def on_links(change: Callable[[Dimension], Dimension], system: System) -> System:
    """Return a system with other links."""
    return replace(system, network=tuple(change(level) for level in system.network))


def without_framework(chip: Chip) -> Chip:
    """Return a chip that nothing drives: all is fused that may be, and no host is waited for."""
    return replace(chip, framework=None)


def without_host(chip: Chip) -> Chip:
    """Return a chip whose host launches kernels in no time."""
    driven = chip.framework
    return chip if driven is None else replace(chip, framework=replace(driven, dispatch=None))


def in_one_kernel(chip: Chip) -> Chip:
    """Return a chip whose framework has one kernel of every function, and copies no gradients."""
    one = {"passes": (), "sent_passes": 0.0, "fused_sums": True}
    driven = chip.framework
    return chip if driven is None else replace(chip, framework=replace(driven, **one))


def kernel_by_kernel(chip: Chip) -> Chip:
    """Return a chip that has no program for attention in one kernel."""
    return chip.without_fusion(Fusion.ATTENTION)


def beside_collectives(chip: Chip) -> Chip:
    """Return a chip whose collectives take none of its units."""
    return replace(chip, communicating_share=0.0)


# ---------------------------------------------------------------- kinds of what was measured


@contextmanager
def whole_k() -> Iterator[None]:
    """Let no product split K over multiprocessors."""
    kept, tilings.MOST_SPLITS = tilings.MOST_SPLITS, 1
    tilings._candidates.cache_clear()
    try:
        yield
    finally:
        tilings.MOST_SPLITS = kept
        tilings._candidates.cache_clear()


@contextmanager
def narrow_results() -> Iterator[None]:
    """Let results be as narrow as operands are, and gradients of weights be added to nothing."""
    kept, Roofline.result_time = Roofline.result_time, KernelClock.result_time
    try:
        yield
    finally:
        Roofline.result_time = kept


@contextmanager
def put(where: ModuleType, name: str, value: Any) -> Iterator[None]:
    """Let a module have something else of a name."""
    kept = getattr(where, name)
    setattr(where, name, value)
    try:
        yield
    finally:
        setattr(where, name, kept)


def never(chip: Chip, tokens: Tokens) -> Bools:
    """Return that no program for tokens does it."""
    return np.zeros(len(tokens.heads), dtype=np.bool_)


def nowhere(rows: Sequence[attention_scores.MeasuredAttention], chip: Chip) -> Bools:
    """Return that no kernel of the rows does it."""
    return np.zeros(len(rows), dtype=np.bool_)


def nothing(chip: Chip, queries: Floats, size: Floats, value: Floats) -> Floats:
    """Return no time."""
    return np.zeros_like(queries)


# What a library's source tells of its programs: where that is, its name, and what is without.
ATTENTION = {
    "heads one by one": (attention_scores, "takes_single_heads", never),
    "kernels before those for tokens": (attention_scores, "turns_before", never),
    "tiles that are asked for ahead": (attention_scores, "_ahead", nowhere),
    "heads in turn": (attention_scores, "_grid", nowhere),
    "kernels around those backward": (attention, "around_time", nothing),
}
EXPERTS = {"borders of groups": (expert_scores, "_has_maps", lambda row, chip: False)}
ELEMENTS = {"passes over long rows": (lane_scores, "_passes", lambda row, chip: ONCE)}


@dataclass(frozen=True)
class Means:
    """Sums of errors, and rows, by machine or source. [1]"""

    errors: dict[str, float] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, mean: float, rows: int) -> None:
        """Add rows with their mean."""
        for each in (name, ALL):
            self.errors[each] = self.errors.get(each, 0.0) + mean * rows
            self.rows[each] = self.rows.get(each, 0) + rows

    def of(self, name: str) -> float:
        """Return the mean of a machine or a source. [%]"""
        return 100 * self.errors[name] / self.rows[name]


def gpu(name: str) -> str:
    """Return what a chip is called without its memory and socket."""
    return name.split("-", maxsplit=1)[0]


def kernels(
    sets: Sequence[KernelSet], chip: Callable[[Chip], Chip], row: Callable[[Any], Any]
) -> Means:
    """Score kernels on other chips, or as other rows."""
    means = Means()
    for each in sets:
        score = score_kernels([row(one) for one in each.rows], chip(each.chip)).ours
        means.add(gpu(each.gpu), score.mean, score.rows)
    return means


def collectives(
    sets: Sequence[CollectiveSet], system: Callable[[System], System], row: Callable[[Any], Any]
) -> Means:
    """Score collectives on other machines, or as other rows."""
    changed = [
        replace(each, system=system(each.system), rows=tuple(map(row, each.rows))) for each in sets
    ]
    means = Means()
    for (name, _, what), score in score_sets(changed).items():
        if what != "all":
            means.add(gpu(name), score.ours.mean, score.ours.rows)
    return means


def runs(
    sources: dict[str, list[MeasuredRun]], change: Callable[[MeasuredRun], MeasuredRun]
) -> Means:
    """Score some runs of every source, each changed."""
    means = Means()
    for source, all_of in sources.items():
        score = score_runs([change(run) for run in some_of(newest_of(all_of), RUNS)]).ours
        if score is not None:
            means.add(source, score.mean, score.rows)
    return means


Part = Callable[[], Means]


def same(value: Any) -> Any:
    """Return what is given."""
    return value


def with_fields(row: Any, **changes: Any) -> Any:
    """Return a row with other fields, of those that it has."""
    return replace(row, **{name: to for name, to in changes.items() if hasattr(row, name)})


def parts_of_kernels(
    path: Path,
    rows: dict[str, Callable[[Any], Any]],
    programs: Mapping[str, tuple[ModuleType, str, Any]] = MappingProxyType({}),
) -> dict[str, Part]:
    """Return how kernels of a table are scored with all, and without each part."""
    sets = read_kernels(path).sets

    def whole() -> Means:
        with whole_k():
            return kernels(sets, same, same)

    def without(place: tuple[ModuleType, str, Any]) -> Means:
        with put(*place):
            return kernels(sets, same, same)

    return {
        ALL: partial(kernels, sets, same, same),
        **{name: partial(kernels, sets, change, same) for name, change in CHIP.items()},
        "splits of K": whole,
        **{name: partial(kernels, sets, same, change) for name, change in rows.items()},
        **{name: partial(without, place) for name, place in programs.items()},
    }


def parts_of_collectives(path: Path) -> dict[str, Part]:
    """Return how collectives are scored with all, and without each part."""
    sets = read_collectives(path).sets
    systems = {name: partial(on_links, change) for name, change in NETWORK.items()}
    systems |= {
        "launches": partial(on_chip, without_launches),
        "buffers in main memory": partial(on_chip, with_whole_buffers),
    }
    by_library = partial(replace, library=Library.NCCL)
    return {
        ALL: partial(collectives, sets, same, same),
        **{name: partial(collectives, sets, change, same) for name, change in systems.items()},
        "kernels of frameworks' own": partial(collectives, sets, same, by_library),
    }


def parts_of_runs(sources: dict[str, list[MeasuredRun]]) -> dict[str, Part]:
    """Return how training runs are scored with all, and without each part."""
    chips = CHIP | {
        "host that launches kernels": without_host,
        "framework, its host and what it fuses": without_framework,
        "functions in several kernels, and copies of gradients": in_one_kernel,
        "attention in one kernel": kernel_by_kernel,
        "units that collectives take": beside_collectives,
    }
    systems = {name: partial(on_chip, change) for name, change in chips.items()}
    systems |= {name: partial(on_links, change) for name, change in NETWORK.items()}

    def on(change: Callable[[System], System], run: MeasuredRun) -> MeasuredRun:
        return replace(run, system=change(run.system))

    def called(name: str, run: MeasuredRun) -> MeasuredRun:  # that nothing is known of already
        return on(partial(on_chip, lambda chip: replace(chip, name=name)), run)

    def whole() -> Means:
        with whole_k():
            return runs(sources, partial(called, "whole K"))

    def narrow() -> Means:
        with narrow_results():
            return runs(sources, partial(called, "narrow results"))

    return {
        ALL: partial(runs, sources, same),
        "results wider than operands, and their sums": narrow,
        **{name: partial(runs, sources, partial(on, change)) for name, change in systems.items()},
        "splits of K": whole,
        "communication beside work": partial(runs, sources, partial(replace, overlap=())),
    }


def tables(folder: Path) -> dict[str, dict[str, Part]]:
    """Return every table, by its heading: how to score it with all, and without each part."""
    narrow = {"results wider than operands, and their sums": partial(with_fields, result=0.0)}
    uncast = {"making narrow numbers of what is read": partial(with_fields, cast=False)} | narrow
    chosen = {
        "tiles that libraries name": partial(with_fields, program=ProductProgram.LIBRARY),
        "products that stay in the cache": partial(with_fields, turns=None),
    }
    even = {
        "uneven experts": partial(with_fields, exponent=None),
        "searches of tiles that are lost": partial(with_fields, searched=True),
        **narrow,
    }
    return {
        "Products": parts_of_kernels(folder / "gemm.jsonl", uncast | chosen),
        "Attention": parts_of_kernels(folder / "attention.jsonl", {}, ATTENTION),
        "Expert layers": parts_of_kernels(folder / "moe.jsonl", even, EXPERTS),
        "Elements and rows": parts_of_kernels(folder / "elementwise.jsonl", {}, ELEMENTS),
        "Collectives": parts_of_collectives(folder / "collectives.jsonl"),
        "Training runs": parts_of_runs(read_runs(folder / "training.jsonl").sets),
    }


def lines(parts: dict[str, Part]) -> Iterator[str]:
    """Write one table; parts that change nothing are left out."""
    whole = parts[ALL]()
    names = [name for name in whole.rows if name != ALL]
    names = [*sorted(names), *([ALL] if len(names) > 1 else [])]
    yield "| without | " + " | ".join(names) + " |"
    yield "|---" * (len(names) + 1) + "|"
    yield "| nothing | " + " | ".join(f"{whole.of(name):.1f}" for name in names) + " |"
    for part, score in parts.items():
        if part == ALL:
            continue
        found = score()
        off = [found.of(name) if name in found.rows else None for name in names]
        cells = [
            "-" if x is None else "=" if abs(x - whole.of(name)) < SAME else f"{x:.1f}"
            for x, name in zip(off, names, strict=True)
        ]
        if set(cells) != {"="}:
            yield f"| {part} | " + " | ".join(cells) + " |"
    yield "| *rows* | " + " | ".join(str(whole.rows[name]) for name in names) + " |"


def main() -> None:
    """Score and print."""
    for heading, parts in tables(Path(sys.argv[1])).items():
        print(f"## {heading}\n")
        for line in lines(parts):
            print(line, flush=True)
        print()


if __name__ == "__main__":
    main()
