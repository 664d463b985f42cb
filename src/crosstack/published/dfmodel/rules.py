"""What the releases of DFModel count: their parts, and the rule sets made of them.

Sources: ``ko2025dfmodel``, ``dfmodel_code``. E3a is the release of the README, E2 that of most
design-space results, E5 that of the serving results. E4 and E5 count one half of an all-reduce
unless ``separate_rs_ag_for_ar`` is on.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from crosstack.model.decisions import Decisions
from crosstack.model.iteration import Pipelining
from crosstack.model.parts import Clock, MainMemory
from crosstack.model.rules import Rules
from crosstack.model.traffic import Traffic
from crosstack.published.dfmodel import parts
from crosstack.published.dfmodel.collectives import (
    ExchangeRule,
    LatencyRule,
    ReleaseCollectives,
)


def _readme() -> Rules:
    return Rules(
        name="dfmodel-readme",
        collectives=ReleaseCollectives(),
        traffic=parts.DFModelTraffic(),
        memory=parts.DFModelMemory(),
        iteration=parts.DFModelPipelining(),
        decisions=parts.DFModelDecisions(),
        clock=parts.DFModelClock(),
    )


def _e2() -> Rules:
    return _readme().changed(exchange=ExchangeRule.ONE_WAY, unfused_depth=1)


def _e3b() -> Rules:
    return _readme().changed(ring_all_reduce_halves=1)


def _e4() -> Rules:
    return _e3b().changed(latency=LatencyRule.ALL_REDUCE, tiles_divide=True)


def _e5() -> Rules:
    return _e3b().changed(
        latency=LatencyRule.KERNEL,
        tiles_divide=True,
        weight_cuts=parts.WeightCuts.ALL,
        network_takes_maximum=True,
        exchange=ExchangeRule.TWO_WAY,
        batch_in_sram=False,
    )


_RELEASES = {
    "dfmodel-readme": _readme,
    "dfmodel-e2": _e2,
    "dfmodel-e3b": _e3b,
    "dfmodel-e4": _e4,
    "dfmodel-e5": _e5,
}


def as_dfmodel(rules: Rules) -> Rules:
    """Return the same rules in parts that have a field for all that DFModel does otherwise."""
    made: dict[str, Any] = {}
    for name, part in rules.parts():
        kind = {
            Clock: parts.DFModelClock,
            Decisions: parts.DFModelDecisions,
            MainMemory: parts.DFModelMemory,
            Pipelining: parts.DFModelPipelining,
            Traffic: parts.DFModelTraffic,
        }.get(type(part))
        if kind is not None:
            held = {item.name: getattr(part, item.name) for item in fields(part)}
            own = {item.name for item in fields(kind)} & set(parts.ENGINE)
            made[name] = kind(**{field: parts.ENGINE[field] for field in own} | held)
    return replace(rules, **made)


def release(name: str) -> Rules:
    """Return the rule set of a release, perhaps ``+separate`` or ``+separate-tensor``."""
    base, plus, rest = name.partition("+separate")
    rules = replace(_RELEASES[base](), name=name)
    if not plus:
        return rules
    return rules.changed(
        ring_all_reduce_halves=2,
        full_all_reduce_halves=2 if base == "dfmodel-e5" else 1,
        gradient_halves=1 if rest else 0,
    )
