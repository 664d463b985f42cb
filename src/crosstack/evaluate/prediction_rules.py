"""Which published model a prediction follows, from the chip to the step: one set for each release.

The default set is here; those of releases are registered by name and made when they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from crosstack.errors import unknown_name
from crosstack.evaluate.predict import Program, predict
from crosstack.machine.generate.rules import GeneratorRules
from crosstack.model.kernels.rules import KernelRules

__all__ = [
    "PredictionRules",
    "prediction_rules_named",
    "prediction_rules_names",
    "register_prediction_rules",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionRules:
    """How the ``chip`` is generated, its ``kernels`` timed and a ``step`` put together."""

    name: str
    chip: GeneratorRules
    kernels: KernelRules
    step: Program = predict


def _crosstack() -> PredictionRules:
    """Return the default: what is physically right."""
    return PredictionRules(
        name="crosstack", chip=GeneratorRules.crosstack(), kernels=KernelRules.crosstack()
    )


_LOADERS: dict[str, Callable[[], PredictionRules]] = {"crosstack": _crosstack}


def register_prediction_rules(name: str, load: Callable[[], PredictionRules]) -> None:
    """Make a set of rules known by its name; ``load`` returns it."""
    _LOADERS[name] = load


def prediction_rules_names() -> tuple[str, ...]:
    """Return the names of all sets, the default first."""
    return tuple(_LOADERS)


def prediction_rules_named(name: str) -> PredictionRules:
    """Return the rule set called ``name``.

    Raises
    ------
    InputError
        If there is none; names the nearest.
    """
    if name not in _LOADERS:
        raise unknown_name("rules", "rules are", name, _LOADERS)
    return _LOADERS[name]()
