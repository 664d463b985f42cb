"""The default rule set, `crosstack`: every part as this package holds it right."""

from __future__ import annotations

from crosstack.evaluate.predict import predict
from crosstack.machine.generate.generation import Generation
from crosstack.mapping.placement_rules import PlacementRules
from crosstack.model.collectives import LeastTime
from crosstack.model.decisions import Decisions
from crosstack.model.iteration import Pipelining
from crosstack.model.parts import Clock, MainMemory
from crosstack.model.rules import Rules
from crosstack.model.traffic import Traffic


def crosstack() -> Rules:
    """Return the default rules."""
    return Rules(
        name="crosstack",
        collectives=LeastTime(),
        traffic=Traffic(),
        memory=MainMemory(),
        iteration=Pipelining(),
        decisions=Decisions(),
        clock=Clock(),
        step=predict,
        chips=Generation(),
        placement=PlacementRules(),
    )
