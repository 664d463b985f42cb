"""The rules of releases by name; each is loaded when it is asked for."""

from __future__ import annotations

from functools import partial

from crosstack.evaluate.prediction_rules import PredictionRules, register_prediction_rules

__all__ = ["register_bundles"]

DEEPFLOW = ("deepflow-2025", "deepflow-2025-graph", "deepflow-2021", "deepflow-2020")


def _deepflow(name: str) -> PredictionRules:
    from crosstack.published.deepflow.rules import release

    return release(name)


def register_bundles() -> None:
    """Register every name."""
    for name in DEEPFLOW:
        register_prediction_rules(name, partial(_deepflow, name))
