"""DFModel's design space: 80 systems of 1,024 chips, with four workloads each."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from crosstack.io.yaml_tree import parse_yaml
from crosstack.machine.system import Parallelism
from crosstack.mapping.mapping import Constraints, Task
from crosstack.published.dfmodel.machines import DATA, PIPELINE, SWITCH, TENSOR, chip, given, system
from crosstack.published.dfmodel.runs import published_workload
from crosstack.workload.workload import Workload

RULES = "dfmodel-e2"
SPACE: Any = parse_yaml(files(__package__).joinpath("space.yaml").read_text(encoding="utf-8"))
AXES: dict[str, tuple[str, ...]] = {
    "workload": tuple(SPACE["workloads"]),
    "chip": tuple(SPACE["chips"]),
    "topology": tuple(SPACE["topologies"]),
    "memory": tuple(SPACE["memories"]),
    "link": tuple(SPACE["links"]),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpacePoint:
    """One system and workload of the space; every field is a name in `AXES`."""

    workload: str
    chip: str
    topology: str
    memory: str
    link: str

    def __str__(self) -> str:
        """Return the names, joined as the public tool's directories are."""
        return f"{self.workload}/{self.chip}/{self.topology}_{self.memory}_{self.link}"


COUNTS_CYCLES = SpacePoint(
    workload="llm", chip="tpu_v4", topology="2d_torus", memory="hbm", link="nvlink"
)


def design_space(workloads: Sequence[str] = AXES["workload"]) -> list[SpacePoint]:
    """Return all points, workload by workload: 80 each."""
    names = {**AXES, "workload": tuple(workloads)}
    return [
        SpacePoint(**dict(zip(names, values, strict=True)))
        for values in itertools.product(*names.values())
    ]


def task_at(**names: str) -> Task:
    """Return the problem of the point with some names, one of every axis."""
    return task_of(SpacePoint(**names))


def task_of(point: SpacePoint) -> Task:
    """Return the problem of a point; see ``settings``."""
    kinds, its = SPACE["topologies"][point.topology], SPACE["chips"][point.chip]
    bandwidth, capacity, memory_power = SPACE["memories"][point.memory]
    speed, link_power = SPACE["links"][point.link]
    transformer = point.workload == "llm"
    the_chip = chip(
        its["name"],
        utilization=None if point == COUNTS_CYCLES else 0.9,
        price=its["price"],
        power=its["power"],
        sram=167772160.0 if (point.workload, point.chip) == ("hpl", "h100") else None,
    )
    if (point.workload, point.chip, point.topology) == ("fft", "h100", "dragonfly"):
        half = the_chip.compute.n_units // 2
        the_chip = the_chip.with_compute(n_units=half, n_multiprocessors=half)
    speeds, powers = [speed] * len(kinds), [link_power] * len(kinds)
    uses: tuple[Parallelism | None, ...] = (None,) * len(kinds)
    if transformer:
        uses = (TENSOR, PIPELINE, DATA)[: len(kinds)]
        speeds[1:], powers[1:] = [50.0] * (len(kinds) - 1), [0.052] * (len(kinds) - 1)
    machine = system(
        the_chip,
        (bandwidth, None if point.workload == "hpl" else capacity),
        tuple(zip(kinds, _sizes(point), speeds, uses, strict=True)),
        link_power=tuple(powers),
        memory_power=memory_power,
    )
    task = Task(workload=_workload(point), system=machine, constraints=_given(point))
    return given(task, "logged") if transformer else task


def _sizes(point: SpacePoint) -> tuple[int, ...]:
    kinds = SPACE["topologies"][point.topology]
    flat = len(kinds) == 2
    if point.workload == "llm":
        return (8, 128) if flat else (8, 64, 2)
    if point.workload == "hpl":
        return (32, 32) if flat else (4, 8, 32)
    if not flat:
        return 8, 8, 16
    return (8, 128) if SWITCH in kinds else (32, 32)


def _given(point: SpacePoint) -> Constraints:
    transformer = point.workload == "llm"
    fused = 1 if point.chip == "wse_2" else 6 if transformer and point.chip == "sn30" else None
    return Constraints(
        microbatch_size=1,
        kernel_by_kernel=fused is None,
        max_partitions=fused,
        tile_size=2048 if transformer and point != COUNTS_CYCLES else None,
    )


def _workload(point: SpacePoint) -> Workload:
    factorisation = "hpl_wafer" if point.chip == "wse_2" else "hpl_2_20"
    names = {"llm": "gpt3_1t", "dlrm": "dlrm_793b", "hpl": factorisation, "fft": "fft_2_40"}
    return published_workload(names[point.workload])
