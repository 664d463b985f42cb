"""DFModel's design space: 80 systems of 1,024 chips, each with four workloads.

Everything is as in the public tool's setups (``dfmodel_code``, E2; ``*/DSE/system/``); the paper
(``ko2025dfmodel``, section VI.C) names other bandwidths.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from crosstack.machine.system import DimensionKind, Parallelism
from crosstack.mapping.mapping import Constraints, Task
from crosstack.published.dfmodel.machines import (
    DATA,
    PIPELINE,
    RING,
    SWITCH,
    TENSOR,
    chip,
    given,
    system,
)
from crosstack.published.dfmodel.runs import published_workload
from crosstack.workload.workload import Workload

__all__ = [
    "AXES",
    "NOMINAL_PEAK",
    "RULES",
    "SETTINGS",
    "SYSTEMS",
    "SpacePoint",
    "design_space",
    "task_of",
]

RULES = "dfmodel-e2"
FULL = DimensionKind.FULLY_CONNECTED

TOPOLOGIES = {
    "2d_torus": (RING, RING),
    "3d_torus": (RING, RING, RING),
    "dragonfly": (FULL, FULL),
    "dgx_1": (RING, SWITCH),
    "dgx_2": (SWITCH, SWITCH),
}
# Table V's name, price [USD], power [W]
CHIPS = {
    "h100": ("H100", 33000.0, 750.0),
    "tpu_v4": ("TPU v4", 4474.816901, 170.6308815),
    "sn30": ("SN30", 16522.25023, 444.7061955),
    "wse_2": ("WSE-2", 3025964.118, 20298.12258),
}
# bandwidth [GB/s], capacity [B], power [W/(GB/s)]
MEMORIES = {"ddr": (300.0, 1099511600000.0, 0.16248), "hbm": (3072.0, 103079215104.0, 0.05624)}
# bandwidth [GB/s], power [W/(GB/s)]
LINKS = {"pcie": (50.0, 0.052), "nvlink": (450.0, 0.0104)}
WORKLOADS = ("llm", "dlrm", "hpl", "fft")

AXES: dict[str, tuple[str, ...]] = {
    "workload": WORKLOADS,
    "chip": tuple(CHIPS),
    "topology": tuple(TOPOLOGIES),
    "memory": tuple(MEMORIES),
    "link": tuple(LINKS),
}

SYSTEMS = 80  # of one workload

# Table V of the paper, which its throughputs are counted from. [FLOP/s]
NOMINAL_PEAK = {"h100": 993e12, "tpu_v4": 275e12, "sn30": 614e12, "wse_2": 7500e12}

SETTINGS = """\
- Transformer: 8 chips tensor parallel on the named link, 128 pipeline stages (3-D: 64 stages, 2
  copies) on links of 50 GB/s; tiles of 2,048 tokens; sharded as most logs are, with four
  all-reduces. (Another sharding moves as few bytes in less time; free, the ratios change.) One
  setup, the TPU's 2-D torus with HBM and NVLink, counts cycles and leaves the tile free.
- Recommendation model: DLRM-A of 793 billion parameters; 32 x 32 chips, 8 x 8 x 16 in 3-D, 8 x 128
  where there is a switch; all links as named.
- Fourier transform: 2^40 points; shapes as the recommendation model's. The H100 of a dragonfly has
  half of its cores in these setups alone, and so here.
- Factorisation: 2^20 rows, 64 of 512 panels of 2,048; on WSE-2 5 x 2^20 rows, 64 panels of 81,920;
  32 x 32 chips, or 4 x 8 x 32 in 3-D; main memory without limit.
- H100, TPU v4 and SN30 run kernel by kernel, but the SN30's transformer in six partitions; WSE-2
  runs everything in one. Compute takes 90 % of its peak.
"""


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


def design_space(workloads: Sequence[str] = WORKLOADS) -> list[SpacePoint]:
    """Return all points, workload by workload: 80 each."""
    names = {**AXES, "workload": tuple(workloads)}
    return [
        SpacePoint(**dict(zip(names, values, strict=True)))
        for values in itertools.product(*names.values())
    ]


def task_of(point: SpacePoint) -> Task:
    """Return the problem of a point; see `SETTINGS`."""
    kinds = TOPOLOGIES[point.topology]
    name, price, power = CHIPS[point.chip]
    bandwidth, capacity, memory_power = MEMORIES[point.memory]
    speed, link_power = LINKS[point.link]
    transformer = point.workload == "llm"
    the_chip = chip(
        name,
        utilization=None if point == COUNTS_CYCLES else 0.9,
        price=price,
        power=power,
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
    flat = len(TOPOLOGIES[point.topology]) == 2
    if point.workload == "llm":
        return (8, 128) if flat else (8, 64, 2)
    if point.workload == "hpl":
        return (32, 32) if flat else (4, 8, 32)
    if not flat:
        return 8, 8, 16
    return (8, 128) if SWITCH in TOPOLOGIES[point.topology] else (32, 32)


def _given(point: SpacePoint) -> Constraints:
    unfused = Constraints(microbatch_size=1, kernel_by_kernel=True)
    if point.workload == "llm" and point != COUNTS_CYCLES:
        unfused = replace(unfused, tile_size=2048)
    if point.chip == "wse_2":
        return replace(unfused, kernel_by_kernel=False, max_partitions=1)
    if point.workload == "llm" and point.chip == "sn30":
        return replace(unfused, kernel_by_kernel=False, max_partitions=6)
    return unfused


def _workload(point: SpacePoint) -> Workload:
    factorisation = "hpl_wafer" if point.chip == "wse_2" else "hpl_2_20"
    names = {"llm": "gpt3_1t", "dlrm": "dlrm_793b", "hpl": factorisation, "fft": "fft_2_40"}
    return published_workload(names[point.workload])
