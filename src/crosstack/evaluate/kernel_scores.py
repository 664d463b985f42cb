"""Scores of kernels of any kind; see `crosstack.evaluate.scores`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crosstack.evaluate.attention_scores import MeasuredAttention, score_attentions
from crosstack.evaluate.expert_scores import (
    MeasuredExperts,
    MeasuredGroups,
    score_experts,
    score_groups,
)
from crosstack.evaluate.lane_scores import MeasuredElements, score_elements
from crosstack.evaluate.scores import KernelScore, MeasuredProduct, score_products
from crosstack.machine.chip import Chip

SCORES: dict[type, Any] = {
    MeasuredProduct: score_products,
    MeasuredElements: score_elements,
    MeasuredAttention: score_attentions,
    MeasuredExperts: score_experts,
    MeasuredGroups: score_groups,
}


def score_kernels(rows: Sequence[Any], chip: Chip) -> KernelScore:
    """Score kernels of one kind that were measured on one chip."""
    score: KernelScore = SCORES[type(rows[0])](rows, chip)
    return score
