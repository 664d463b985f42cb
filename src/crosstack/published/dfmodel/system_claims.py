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

from crosstack.evaluate.plan import optimise
from crosstack.explore.mapped import answer_terms
from crosstack.published.dfmodel.system_space import (
    AXES,
    RULES,
    SPACE,
    SpacePoint,
    task_of,
)

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
