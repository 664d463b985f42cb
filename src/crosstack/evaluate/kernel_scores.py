"""Scores of kernels of any kind; see `crosstack.evaluate.scores`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crosstack.evaluate.attention_scores import (
    MeasuredAttention,
    attention_roofline,
    attention_said,
)
from crosstack.evaluate.expert_scores import (
    MeasuredExperts,
    MeasuredGroups,
    experts_roofline,
    experts_said,
    groups_roofline,
    groups_said,
)
from crosstack.evaluate.lane_scores import MeasuredElements, elements_roofline, elements_said
from crosstack.evaluate.scores import (
    KernelScore,
    MeasuredProduct,
    Timed,
    beyond_shortest,
    kernel_score,
    products_said,
    roofline_said,
)
from crosstack.machine.chip import Chip
from crosstack.workload.kernel_graph import Floats

Rows = Sequence[Any]  # measured kernels of one kind
MANY, MANY_TELL = 9, 3  # products, and those of them that tell what all take besides [1]


def _in_graphs(rows: Sequence[MeasuredProduct | MeasuredAttention]) -> bool:
    """Whether they are layers of a framework, with what it does beside the kernel."""
    return rows[0].timed is Timed.GRAPH


def _telling(rows: Rows) -> int:
    """Return how many kernels tell what all take besides: of many products three, else one.

    Single products take much longer than others of their size, and those of other kinds are few.
    """
    return MANY_TELL if isinstance(rows[0], MeasuredProduct) and len(rows) >= MANY else 1


@dataclass(frozen=True, slots=True)
class _Kind:
    """What is said of kernels of a kind, ours and a plain roofline's. [s]

    ``shortest_tells``: whether some take more besides, which the shortest of them tells
    (`crosstack.evaluate.scores.beyond_shortest`).
    """

    said: Callable[[Any, Chip], Floats]
    roofline: Callable[[Any, Chip], Floats]
    shortest_tells: Callable[[Any], bool]


_KINDS: dict[type, _Kind] = {
    MeasuredProduct: _Kind(products_said, roofline_said, _in_graphs),
    MeasuredElements: _Kind(elements_said, elements_roofline, lambda rows: True),
    MeasuredAttention: _Kind(attention_said, attention_roofline, _in_graphs),
    MeasuredExperts: _Kind(experts_said, experts_roofline, lambda rows: True),
    MeasuredGroups: _Kind(groups_said, groups_roofline, lambda rows: False),
}


def measured_times(rows: Rows) -> Floats:
    """Return what kernels took. [s]"""
    return np.array([row.time for row in rows], dtype=np.float64)


def kernels_said(rows: Rows, chip: Chip) -> Floats:
    """Return what is said of kernels of one kind on a chip, without what all take besides. [s]"""
    return _KINDS[type(rows[0])].said(rows, chip)


def shortest_tells(rows: Rows) -> bool:
    """Whether kernels of one kind take more besides, which the shortest of them tells."""
    return _KINDS[type(rows[0])].shortest_tells(rows)


def score_kernels(rows: Rows, chip: Chip) -> KernelScore:
    """Score kernels of one kind and type that were measured on one chip.

    Raises `InputError` if there is one alone that tells what all take besides.
    """
    plain = _KINDS[type(rows[0])].roofline(rows, chip)
    measured, said = measured_times(rows), kernels_said(rows, chip)
    if shortest_tells(rows):
        return kernel_score(*beyond_shortest(measured, said, plain, _telling(rows)))
    return kernel_score(measured, said, plain)
