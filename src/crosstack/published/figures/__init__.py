"""Figures of the DFModel and DeepFlow papers, computed again, their claims beside ours.

Source: ``ko2025dfmodel``; points behind its pictures are those of the public tool's logs
(``dfmodel_code``).
"""

from __future__ import annotations

from crosstack.published.figures.catalogue import (
    FIGURES,
    UNAVAILABLE,
    figure_named,
    figure_rows,
    figures,
    named,
)
from crosstack.published.figures.figure import Figure

__all__ = [
    "FIGURES",
    "UNAVAILABLE",
    "Figure",
    "figure_named",
    "figure_rows",
    "figures",
    "named",
]
