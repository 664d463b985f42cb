"""Numbers of a point that is mapped, or priced under a mapping that is given, by name."""

from __future__ import annotations

import math

from crosstack.evaluate.plan import Plan
from crosstack.explore.evaluators import Terms
from crosstack.machine.system import Parallelism

__all__ = ["ANSWER_UNITS", "UNITS", "answer_terms", "common_terms"]

UNITS: dict[str, str | None] = {
    "time": "s",
    "latency": "s",
    "throughput": "1/s",
    "utilization": "1",
    "work": "FLOP",
    "n_chips": "1",
    "price": "USD",
    "power": "W",
    "energy": "J",
    "cost_efficiency": "FLOP/s/USD",
    "power_efficiency": "FLOP/J",
    "compute_time": "s",
    "memory_time": "s",
    "network_time": "s",
    "launch_time": "s",
    "stage_transfer_time": "s",
    "bubble_factor": "1",
    "memory_used": "B",
    "memory_capacity": "B",
}
"""Terms that a mapping and a machine have, and their units. ``energy`` is that of one iteration
(`crosstack.model.energy`); the times of partitions are sums over one layer of one item."""

DECISIONS: dict[str, str | None] = {
    "tensor": "1",
    "pipeline": "1",
    "data": "1",
    "microbatch_size": "1",
    "n_tiles": "1",
    "n_partitions": "1",
    "bound": "s",
    "gap": "1",
}
ANSWER_UNITS = UNITS | DECISIONS


_OF_EVALUATION = (
    "time", "latency", "throughput", "utilization", "work", "stage_transfer_time", "bubble_factor",
    "memory_used", "memory_capacity",
)  # fmt: skip
_OF_PARTITIONS = ("compute_time", "memory_time", "network_time", "launch_time")


def common_terms(answer: Plan) -> Terms:
    """Return the terms of a mapping on a machine: those of `UNITS`."""
    e = answer.evaluation
    price, power = e.price.total, e.power.total
    rate = e.work / e.time
    found: Terms = {name: getattr(e, name) for name in _OF_EVALUATION}
    found |= {name: math.fsum(getattr(p, name) for p in e.partitions) for name in _OF_PARTITIONS}
    found |= {
        "n_chips": float(answer.task.system.n_chips),
        "price": price,
        "power": power,
        "energy": None if e.energy is None else e.energy.total,
        "cost_efficiency": rate / price if price else None,
        "power_efficiency": rate / power if power else None,
    }
    return {name: found[name] for name in UNITS}


def _decisions(answer: Plan) -> Terms:
    m, c = answer.mapping, answer.certificate
    counts: dict[str, int] = {
        **{use.value: m.degree(use) for use in Parallelism if use.value in DECISIONS},
        "microbatch_size": m.microbatch_size,
        "n_tiles": m.n_tiles,
        "n_partitions": len(answer.evaluation.partitions),
    }
    found: Terms = {name: float(count) for name, count in counts.items()}
    return found | {"bound": c.bound, "gap": c.gap}


def answer_terms(answer: Plan) -> Terms:
    """Return the terms of a searched answer: those of `ANSWER_UNITS`."""
    return common_terms(answer) | _decisions(answer)
