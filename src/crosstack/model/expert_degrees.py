"""Which numbers of chips may have parts of a model's experts."""

from __future__ import annotations

from crosstack.model.rules import Rules
from crosstack.model.tiles import divisors
from crosstack.workload.kernels import Placement
from crosstack.workload.workload import Workload


def spread(workload: Workload, rules: Rules) -> int:
    """Return over how many chips the experts of all layers may be spread at most. [1]

    1 without experts, and by rules that know no such chips.
    """
    alone = not rules.collectives.spreads_experts or rules.iteration.sums_in_layers
    if alone or workload.placement is not Placement.SEARCHED:
        return 1
    return workload.experts


def cuts_experts(workload: Workload, rules: Rules) -> bool:
    """Whether tensor-parallel chips may cut each expert, instead of having some of them each.

    In training alone, of graphs whose axes have names: of others nothing says what lies inside.
    """
    named = rules.traffic.traces_layouts and bool(workload.graph.layouts)
    return named and workload.training and spread(workload, rules) > 1


def experts_allowed(workload: Workload, experts: int, asked: int, tensor: int = 1) -> str:
    """Say which chips may have parts of a workload's experts, and which are nearest to ``asked``.

    ``tensor``-parallel chips share them besides.
    """
    if experts == 1:
        return f"ep=1: {workload.name} has no experts that chips may have parts of"
    among = f", split over tp={tensor} chips besides" if tensor > 1 else ""
    good = [n for n in divisors(experts) if n == 1 or experts % (n * tensor) == 0]
    near = [*[n for n in good if n < asked][-1:], *[n for n in good if n > asked][:1]]
    close = " or ".join(f"ep={n}" for n in near)
    return f"ep=1, or a divisor of the {experts} experts{among}; nearest: {close}"
