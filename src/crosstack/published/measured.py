"""Runs that were measured on machines, beside what we say of them.

Each row names the measurement, what DFModel says of the same run where it prints or logs it, and
what was assumed where neither the measurement nor the paper gives the input. Nothing is fitted:
utilization 0.9 is DFModel's input, links and memories are those of its inputs or of the source.

The tolerance is what the paper's own model reaches: 10 % on average over its measured systems
(``ko2025dfmodel``, section VI.B and Fig. 6), 3 % for the SN10 (section VII.B), 8 % for the SN40L
(section VIII.A). Fig. 6 is drawn without numbers, so the tolerance of a single one of its bars is
not known. A row that misses says why.

Where only the distance of DFModel's number from the measured one is published, that distance is
the published number, and ours is taken relative to DFModel's too.

Every number was looked up again at its source: the paper, the logs of the public tool (the file
named in ``source``) and the vendor's page on its transforms. The pages of the TOP500's systems
could not be opened; the notes of their rows say where the number was read instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

from crosstack.evaluate.answer import given_answer, optimise
from crosstack.evaluate.evaluation import Evaluation
from crosstack.io import library
from crosstack.io.yaml_tree import parse_yaml
from crosstack.machine.chip import Overlap
from crosstack.mapping.mapping import Constraints, Mapping, Task
from crosstack.published.case import Progress, Row, inside, silent
from crosstack.published.dfmodel import cases as published
from crosstack.published.dfmodel.graphs.fft import fft
from crosstack.published.dfmodel.graphs.hpl import hpl
from crosstack.published.dfmodel.machines import (
    FORWARD_SHARDING,
    RING,
    SWITCH,
    TENSOR,
    axes,
    chip,
    mapping,
    system,
)
from crosstack.published.dfmodel.placed import Shape, dlrm_a, free_use, hpl_selene, placed_task
from crosstack.published.dfmodel.serving import serving_cases
from crosstack.workload.serving import decode

__all__ = ["Measured", "measured_cases", "measured_rows", "run_measured"]

AVERAGE = 0.10  # the tolerance of a run that names none
_TOLD: Any = parse_yaml(files(__package__).joinpath("measured.yaml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A measured number, the task that stands for its run, and how ours follows from it.

    ``modelled`` is what DFModel says, in the same unit; ``logged`` its time of one iteration, where
    the quantity is relative to it. [s]
    """

    name: str
    source: str
    quantity: str
    unit: str
    measured: float
    task: Task
    rules: str
    tolerance: float = AVERAGE
    modelled: float | None = None
    logged: float = 1.0
    mapping: Mapping | None = None
    note: str = ""
    reason: str = ""

    def ours(self, found: Evaluation) -> float:
        """Return our number, in ``unit``."""
        match self.quantity:
            case "throughput":
                return found.work / found.time
            case "tokens a second":  # of one sequence
                return 1 / found.latency
            case "throughput over DFModel's":
                return self.logged / found.time
            case _:
                return found.time / self.logged


def measured_cases() -> list[Measured]:
    """Return every case, in the order of the published table."""
    tasks = {**_hpl(), **_fft(), **_dlrm(), **_language_models()}
    mappings = {"GPT-3 175B on 8 SN10, the vendor's mapping": _vendors}
    return [
        Measured(
            name=name,
            task=task,
            mapping=mappings[name](task) if name in mappings else None,
            **_TOLD[name],
        )
        for name, task in tasks.items()
    ]


def measured_rows(progress: Progress = silent) -> list[Row]:
    """Run every measured case and return its row."""
    rows = []
    for case in measured_cases():
        progress(case.name)
        rows.append(run_measured(case))
    return rows


def run_measured(case: Measured) -> Row:
    """Evaluate or optimise a case and return its row."""
    if case.mapping is None:
        answer = optimise(case.task, rules=case.rules, time_limit=60.0)
        status = answer.certificate.status.value
    else:
        answer = given_answer(case.task, case.mapping, case.rules)
        status = "given"
    ours = case.ours(answer.evaluation)
    error = (ours - case.measured) / case.measured
    return Row(
        suite="measured",
        case=case.name,
        source=case.source,
        rules=case.rules,
        quantity=case.quantity,
        unit=case.unit,
        sense="equal",
        published=case.measured,
        ours=ours,
        tolerance=case.tolerance,
        status=status,
        holds=inside("equal", error, case.tolerance),
        note=case.note,
        reason=case.reason,
        modelled=case.modelled,
    )


# ---------------------------------------------------------------- factorisations


def _linpack(size: int, name: str, grid: tuple[int, int], link: float, memory: float) -> Task:
    """Return a factorisation in 64 panels on a grid of ``name``; links and memory in GB/s."""
    x, y = grid
    machine = system(
        chip(name, utilization=0.9),
        (memory, None),
        free_use(((SWITCH, x, link), (SWITCH, y, link))),
    )
    return placed_task(hpl(size=size, block=size // 64, word=8, name=f"HPL {size}"), machine)


def _hpl() -> dict[str, Task]:
    tensor = "A100 FP64 tensor"
    return {
        "HPL on Selene, DFModel's input": hpl_selene(),
        "HPL on Selene, 4,480 A100": _linpack(262144, tensor, (64, 70), 25.0, 1555.0),
        "HPL on Tethys, DFModel's input": _linpack(131072, "A100 FP64", (16, 16), 25.0, 1555.0),
        "HPL on Tethys, 160 A100": _linpack(131072, tensor, (10, 16), 25.0, 2039.0),
        "HPL on Eos, DFModel's input": _linpack(262144, "H100 FP64", (86, 86), 50.0, 2039.0),
    }


# ---------------------------------------------------------------- Fourier transforms


def _transform(length: int, dimensions: Shape, word: int, utilization: float | None = None) -> Task:
    machine = system(
        chip("A100 FP32", utilization=utilization), (2039.0, 85899345920.0), free_use(dimensions)
    )
    return placed_task(fft(length=length, radix=2, word=word, name=f"FFT {length}"), machine)


def _fft() -> dict[str, Task]:
    node, points, few = (SWITCH, 8, 300.0), 16384**3, 2048**3
    return {
        "cuFFTMp, 16384^3 points on 4,096 A100, DFModel's input": _transform(
            4398050000000, (node, (SWITCH, 512, 12.5)), 4
        ),
        "cuFFTMp, 16384^3 points on 4,096 A100": _transform(points, (node, (SWITCH, 512, 25.0)), 8),
        "cuFFTMp, 2048^3 points on 8 A100, DFModel's input": _transform(
            few, (node,), 4, utilization=0.9
        ),
        "cuFFTMp, 2048^3 points on 8 A100": _transform(few, (node,), 8),
        "cuFFTMp, 2048^3 points on 2,048 A100": _transform(few, (node, (SWITCH, 256, 25.0)), 8),
    }


# ---------------------------------------------------------------- recommendation


def _dlrm() -> dict[str, Task]:
    machine = system(
        chip("A100", utilization=0.9, overlap=Overlap.NONE),
        (1555.0, 42949672960.0),
        free_use(((SWITCH, 8, 300.0), (SWITCH, 16, 25.0))),
    )
    return {"DLRM-A training on 128 A100": placed_task(dlrm_a().workload, machine)}


# ---------------------------------------------------------------- language models


def _vendors(task: Task) -> Mapping:
    """Return the vendor's mapping of the language model on eight SN10."""
    cores = tuple(zip(published.VENDOR_LANES, published.VENDOR_STAGES, strict=True))
    return mapping(task, published.VENDOR_PARTITIONS, 8, axes(FORWARD_SHARDING), cores)


def _language_models() -> dict[str, Task]:
    pinned = published.sn10(published.VENDOR_PINS)
    slow = pinned.system.chip.with_memory(bandwidth=200e9)
    machine = system(
        chip("SN40L", utilization=0.9, overlap=Overlap.NONE),
        (1638.4, 68719476736.0),
        ((RING, 16, 25.0, TENSOR),),
        latency=150e-9,
    )
    own = Task(
        workload=decode(library.model("llama3-8b"), context=4096, global_batch_size=1),
        system=machine,
        constraints=Constraints(microbatch_size=1, max_partitions=1),
    )
    return {
        "GPT-3 175B on 8 SN10, the vendor's mapping": replace(
            pinned, system=replace(pinned.system, chip=slow)
        ),
        "Llama-3 8B decoding on 16 SN40L, DFModel's input": serving_cases()[0].task,
        "Llama-3 8B decoding on 16 SN40L": own,
    }
