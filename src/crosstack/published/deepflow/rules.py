"""The rules of each release: how it generates chips, times kernels and puts a step together."""

from __future__ import annotations

from crosstack.evaluate.prediction_rules import PredictionRules
from crosstack.machine.generate.rules import GeneratorRules
from crosstack.model.kernels.rules import KernelRules
from crosstack.published.deepflow.release import RELEASES
from crosstack.published.deepflow.steps import ReleaseSteps

__all__ = ["release"]

CHIPS = {
    "deepflow-2025": GeneratorRules.deepflow_2025,
    "deepflow-2025-graph": GeneratorRules.deepflow_2025,
    "deepflow-2021": GeneratorRules.deepflow_2021,
    "deepflow-2020": GeneratorRules.deepflow_2021,  # as it does
}
KERNELS = {
    "deepflow-2025": KernelRules.deepflow_2025,
    "deepflow-2025-graph": KernelRules.deepflow_2025,
    "deepflow-2021": KernelRules.deepflow_2021,
    "deepflow-2020": KernelRules.deepflow_2020,
}


def release(name: str) -> PredictionRules:
    """Return the rules of the release called ``name``."""
    return PredictionRules(
        name=name,
        chip=CHIPS[name](),
        kernels=KERNELS[name](),
        step=ReleaseSteps(release=RELEASES[name]),
    )
