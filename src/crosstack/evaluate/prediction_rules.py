"""Which published model a prediction follows, from the chip to the step: one set for each release.

A release is a set of choices in three places: how the chip is generated, how a kernel is timed and
how a step is put together. Each choice is a field there; this names the sets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from crosstack.errors import unknown_name
from crosstack.evaluate.step_rules import StepRules
from crosstack.machine.generate.rules import GeneratorRules
from crosstack.model.kernels.rules import KernelRules

__all__ = ["PREDICTION_RULES", "PredictionRules", "prediction_rules_named"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionRules:
    """How the ``chip`` is generated, its ``kernels`` timed and a ``step`` put together."""

    name: str
    chip: GeneratorRules
    kernels: KernelRules
    step: StepRules

    @classmethod
    def crosstack(cls) -> PredictionRules:
        """Return the default: what is physically right."""
        return cls(
            name="crosstack",
            chip=GeneratorRules.crosstack(),
            kernels=KernelRules.crosstack(),
            step=StepRules(),
        )

    @classmethod
    def deepflow_2025(cls) -> PredictionRules:
        """Release e8fc755 (2025-09-15); transformers are estimated from their products alone."""
        return cls(
            name="deepflow-2025",
            chip=GeneratorRules.deepflow_2025(),
            kernels=KernelRules.deepflow_2025(),
            step=StepRules.deepflow_2025(),
        )

    @classmethod
    def deepflow_2025_graph(cls) -> PredictionRules:
        """Return the same release with transformers as a graph of operations."""
        return cls(
            name="deepflow-2025-graph",
            chip=GeneratorRules.deepflow_2025(),
            kernels=KernelRules.deepflow_2025(),
            step=StepRules.deepflow_2025_graph(),
        )

    @classmethod
    def deepflow_2021(cls) -> PredictionRules:
        """Release 566c192 (2021-09-11)."""
        return cls(
            name="deepflow-2021",
            chip=GeneratorRules.deepflow_2021(),
            kernels=KernelRules.deepflow_2021(),
            step=StepRules.deepflow_2021(),
        )

    @classmethod
    def deepflow_2020(cls) -> PredictionRules:
        """Release e4e5d38 (2020-10-30); it generates chips as that of 2021."""
        return cls(
            name="deepflow-2020",
            chip=GeneratorRules.deepflow_2021(),
            kernels=KernelRules.deepflow_2020(),
            step=StepRules.deepflow_2020(),
        )


PREDICTION_RULES: dict[str, Callable[[], PredictionRules]] = {
    "crosstack": PredictionRules.crosstack,
    "deepflow-2025": PredictionRules.deepflow_2025,
    "deepflow-2025-graph": PredictionRules.deepflow_2025_graph,
    "deepflow-2021": PredictionRules.deepflow_2021,
    "deepflow-2020": PredictionRules.deepflow_2020,
}


def prediction_rules_named(name: str) -> PredictionRules:
    """Return the rule set called ``name``.

    Raises
    ------
    InputError
        If there is none; names the nearest.
    """
    if name not in PREDICTION_RULES:
        raise unknown_name("rules", "rules are", name, PREDICTION_RULES)
    return PREDICTION_RULES[name]()
