"""What the DFModel paper says of its 320 points (``ko2025dfmodel``, VI.C), and what ours say.

Each of its ratios compares one choice with others, all else equal: it is the geometric mean over
matched pairs of points. Throughput is utilization times the nominal peak of the paper's Table V;
efficiency is throughput per dollar of price or watt of power.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping as Table
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from crosstack.evaluate.answer import optimise
from crosstack.explore.mapped import answer_terms
from crosstack.published.dfmodel.system_space import (
    AXES,
    NOMINAL_PEAK,
    RULES,
    SpacePoint,
    task_of,
)

__all__ = ["CLAIMS", "PointResult", "RatioClaim", "result_in", "result_of"]

N_CHIPS = 1024
SIMPLE = ("2d_torus", "3d_torus", "dgx_1", "dgx_2")
UTILIZATION, COST, POWER = "utilization", "cost_efficiency", "power_efficiency"


@dataclass(frozen=True, slots=True, kw_only=True)
class PointResult:
    """A point mapped: its terms, what it costs and how sure it is.

    Parameters
    ----------
    point : SpacePoint
        Which.
    time : float
        Of one iteration. [s]
    utilization : float
        Of the peak. [1]
    price, power : float
        Of the system. [USD], [W]
    compute_time, memory_time, network_time : float
        Summed over the partitions of a layer. [s]
    status : str
        Of the certificate.
    gap : float
        Of the certificate. [1]
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
        return self.utilization * NOMINAL_PEAK[self.point.chip] * N_CHIPS

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
    """One ratio of the paper.

    Parameters
    ----------
    workload : str
        Which 80 points.
    axis : str
        What is compared, of `AXES`.
    choices, others : tuple of str
        The better, or worse, and what it is compared with.
    among : dict of str to tuple of str
        The values of other axes that count; all where left out.
    quantity : str
        ``utilization``, ``cost_efficiency`` or ``power_efficiency``.
    published : float
        As printed. [1]
    digit : float
        Half of the last printed digit; within it a ratio agrees. [1]
    reason : str
        Why ours differs, where it does.
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
        """Return our ratio from results that cover the points it needs.

        Raises
        ------
        KeyError
            If a point is missing.
        """
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


# From 79 logs (one of 80 ends without an answer); 11 are more than 1 % below our optimum.
SLOWER = (
    "the published logs give 1.646: many searches stopped at their time limit below the optimum"
)
LATE = (
    "the published logs give 0.511: searches for dragonflies stopped at their time limit, up to "
    "7 % below the optimum"
)
PRINTED = "the published logs give 0.988; the paper prints another number"
WAFER = (
    "the published logs give 5.155: their searches for dragonflies with PCIe stopped at 0.691, "
    "where 0.791 is the optimum"
)


def _three(
    workload: str,
    axis: str,
    choices: tuple[str, ...],
    others: tuple[str, ...],
    published: tuple[float | None, float | None, float | None],
    among: Table[str, tuple[str, ...]] | None = None,
    reasons: tuple[str, str, str] = ("", "", ""),
) -> list[RatioClaim]:
    quantities = (UTILIZATION, COST, POWER)
    return [
        RatioClaim(
            workload=workload,
            axis=axis,
            choices=choices,
            others=others,
            quantity=quantity,
            published=value,
            digit=0.05 if value in (1.6, 6.3) else 0.005,
            among=among or {},
            reason=reason,
        )
        for quantity, value, reason in zip(quantities, published, reasons, strict=True)
        if value is not None
    ]


_GPUS = ("h100", "tpu_v4")
_OTHERS = (*_GPUS, "sn30")
_NO_WAFER = {"chip": _OTHERS}

CLAIMS: tuple[RatioClaim, ...] = (
    *_three("llm", "chip", ("sn30",), _GPUS, (1.52, 1.59, 1.6)),
    *_three("llm", "memory", ("hbm",), ("ddr",), (1.66, None, None), {"chip": _GPUS},
            (SLOWER, "", "")),
    *_three("llm", "memory", ("hbm",), ("ddr",), (1.0, None, None), {"chip": ("sn30",)}),
    *_three("llm", "memory", ("hbm",), ("ddr",), (1.0, None, None), {"chip": ("wse_2",)}),
    *_three("llm", "topology", ("dragonfly",), SIMPLE, (1.0, None, None),
            {"link": ("nvlink",), **_NO_WAFER}),
    *_three("llm", "topology", ("dragonfly",), SIMPLE, (1.21, 0.51, 0.91),
            {"link": ("pcie",), **_NO_WAFER}, ("", LATE, PRINTED)),
    *_three("llm", "link", ("nvlink",), ("pcie",), (5.15, None, None), {"chip": ("wse_2",)},
            (WAFER, "", "")),
    *_three("llm", "chip", ("wse_2",), _OTHERS, (None, 0.06, 0.2)),
    *_three("dlrm", "link", ("nvlink",), ("pcie",), (6.3, 4.31, 6.04)),
    *_three("dlrm", "topology", ("dragonfly",), SIMPLE, (2.51, 1.66, 2.13)),
    *_three("dlrm", "chip", ("tpu_v4",), ("h100", "sn30", "wse_2"), (4.43, 9.45, 5.24)),
    *_three("dlrm", "chip", ("wse_2",), _OTHERS, (0.1, 0.01, 0.04)),
    *_three("hpl", "chip", ("wse_2",), _OTHERS, (None, 0.09, 0.33)),
    *_three("fft", "link", ("nvlink",), ("pcie",), (7.02, 4.81, 6.73)),
    *_three("fft", "topology", ("dragonfly",), SIMPLE, (3.22, 2.13, 2.74)),
    *_three("fft", "chip", ("tpu_v4",), ("h100", "sn30", "wse_2"), (5.11, 10.92, 6.06)),
    *_three("fft", "chip", ("wse_2",), _OTHERS, (0.09, 0.01, 0.03)),
)  # fmt: skip
