"""Scores of kernels of any kind; see `crosstack.evaluate.scores`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crosstack.evaluate.attention_scores import (
    MeasuredAttention,
    attention_said,
    score_attentions,
)
from crosstack.evaluate.expert_scores import (
    MeasuredExperts,
    MeasuredGroups,
    experts_said,
    groups_said,
    score_experts,
    score_groups,
)
from crosstack.evaluate.lane_scores import MeasuredElements, elements_said, score_elements
from crosstack.evaluate.scores import (
    KernelScore,
    MeasuredProduct,
    Timed,
    products_said,
    score_products,
)
from crosstack.machine.chip import Chip
from crosstack.workload.kernel_graph import Floats

SCORES: dict[type, Any] = {
    MeasuredProduct: score_products,
    MeasuredElements: score_elements,
    MeasuredAttention: score_attentions,
    MeasuredExperts: score_experts,
    MeasuredGroups: score_groups,
}
SAID: dict[type, Any] = {
    MeasuredProduct: products_said,
    MeasuredElements: elements_said,
    MeasuredAttention: attention_said,
    MeasuredExperts: experts_said,
    MeasuredGroups: groups_said,
}


def score_kernels(rows: Sequence[Any], chip: Chip) -> KernelScore:
    """Score kernels of one kind that were measured on one chip."""
    score: KernelScore = SCORES[type(rows[0])](rows, chip)
    return score


def kernels_said(rows: Sequence[Any], chip: Chip) -> Floats:
    """Return what is said of kernels of one kind on a chip, without what all take besides. [s]"""
    said: Floats = SAID[type(rows[0])](rows, chip)
    return said


def shortest_tells(rows: Sequence[Any]) -> bool:
    """Whether kernels of one kind take more besides, which the shortest of them tells.

    See `crosstack.evaluate.scores.beyond_shortest`.
    """
    if isinstance(rows[0], MeasuredAttention):
        return rows[0].timed is Timed.GRAPH
    return isinstance(rows[0], MeasuredElements | MeasuredExperts)
