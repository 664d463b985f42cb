"""DFModel's design space: 80 systems of 1,024 chips, with four workloads each.

What the paper says of its 320 points (``ko2025dfmodel``, VI.C) are ratios, each of one choice to
others, all else equal: the geometric mean over matched pairs of points. Throughput is utilization
times the nominal peak of the paper's Table V; efficiency is throughput per dollar or watt.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping as Table
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from importlib.resources import files
from typing import Any

import numpy as np

from crosstack.evaluate.plan import optimise
from crosstack.explore.mapped import answer_terms
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


# ---------------------------------------------------------------- what came of a point

N_CHIPS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PointResult:
    """A point mapped: its terms, what it costs and how sure it is.

    ``time`` of one iteration [s], ``utilization`` of the peak [1], ``price`` [USD] and ``power``
    [W] of the system, ``*_time`` summed over the partitions of a layer [s]; ``status`` and ``gap``
    [1] of the certificate.
    """

    point: SpacePoint
    time: float
    utilization: float
    price: float
    power: float
    compute_time: float
    memory_time: float
    network_time: float
    status: str
    gap: float

    @property
    def throughput(self) -> float:
        """Utilization times the nominal peak of all chips. [FLOP/s]"""
        peak: float = SPACE["chips"][self.point.chip]["peak"]
        return self.utilization * peak * N_CHIPS

    @property
    def cost_efficiency(self) -> float:
        """Throughput per price. [FLOP/s/USD]"""
        return self.throughput / self.price

    @property
    def power_efficiency(self) -> float:
        """Throughput per power. [FLOP/s/W]"""
        return self.throughput / self.power


def result_of(point: SpacePoint, *, time_limit: float = math.inf) -> PointResult:
    """Map one point, with proof unless ``time_limit`` [s] ends the search."""
    answer = optimise(task_of(point), rules=RULES, time_limit=time_limit)
    return result_in(point, {**answer_terms(answer), "status": answer.certificate.status.value})


def result_in(point: SpacePoint, row: Table[str, Any]) -> PointResult:
    """Return what came of a point from terms by name: of an answer, or a row of a store."""
    names = [field.name for field in fields(PointResult) if field.name != "point"]
    return PointResult(point=point, **{name: row[name] for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioClaim:
    """One ratio of the paper, over the 80 points of a workload: ``choices`` over ``others``.

    ``axis`` is what is compared, of `AXES`; ``among`` the values of other axes that count, all
    where left out; ``quantity`` is ``utilization``, ``cost_efficiency`` or ``power_efficiency``;
    ``digit`` half of the last printed digit, within which a ratio agrees [1]; ``reason`` why ours
    differs, where it does.
    """

    workload: str
    axis: str
    choices: tuple[str, ...]
    others: tuple[str, ...]
    quantity: str
    published: float
    digit: float
    among: Table[str, tuple[str, ...]]
    reason: str = ""

    def ratio(self, results: Sequence[PointResult]) -> float:
        """Return our ratio from results that cover the points it needs; else a `KeyError`."""
        known = {result.point: getattr(result, self.quantity) for result in results}
        values = {**AXES, **self.among, "workload": (self.workload,), self.axis: self.choices}
        logs = []
        for names in itertools.product(*(values[field.name] for field in fields(SpacePoint))):
            point = SpacePoint(**dict(zip(AXES, names, strict=True)))
            for other in self.others:
                reference = replace(point, **{self.axis: other})
                logs.append(math.log(known[point] / known[reference]))
        return float(np.exp(np.mean(logs)))

    def agrees(self, ours: float) -> bool:
        """Return whether ours prints as the published ratio does."""
        return abs(ours - self.published) <= self.digit * (1 + 1e-9)


CLAIMS: tuple[RatioClaim, ...] = tuple(
    RatioClaim(
        workload=told["workload"],
        axis=told["axis"],
        choices=tuple(told["choices"]),
        others=tuple(told["others"]),
        quantity=quantity,
        published=value,
        digit=told.get("digits", {}).get(quantity, 0.005),
        among={axis: tuple(names) for axis, names in told.get("among", {}).items()},
        reason=told.get("reasons", {}).get(quantity, ""),
    )
    for told in SPACE["ratios"]
    for quantity, value in told["published"].items()
)
