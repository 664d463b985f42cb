"""Whom every parallel dimension of a strategy communicates with on the network of a system.

Ranks are numbered along an order of the dimensions, the innermost first, and fill the innermost
level of the network first (`crosstack.model.collectives.group`).
"""

from __future__ import annotations

import math

from crosstack.errors import InputError, Problem, require
from crosstack.machine.system import System
from crosstack.mapping.strategy import MappingOrder, ParallelDimension, Strategy, whole_order
from crosstack.model.collectives import Group, group_of
from crosstack.model.collectives.group import domain_group
from crosstack.published.deepflow.distributed import Peers

WHERE = ("link inside a package", "link between packages")


def check_chips(strategy: Strategy, system: System) -> None:
    """Raise `InputError` if the strategy needs more chips than there are, or spreads more."""
    spread = strategy.ep > 1 or strategy.cp > 1
    require(not spread, "strategy", str(strategy), "ep=1 and cp=1 under these rules")
    if strategy.n_chips > system.n_chips:
        message = f"{strategy} needs {strategy.n_chips} chips; there are {system.n_chips}."
        raise InputError(Problem("strategy", message))


def peers_of(
    strategy: Strategy, system: System, order: MappingOrder
) -> dict[ParallelDimension, Peers]:
    """Return whom every dimension communicates with, in an ``order``, innermost first.

    Raises
    ------
    InputError
        If the strategy needs more chips than there are, the order leaves out a dimension, or a
        level of the network leaves free how many it joins.
    """
    check_chips(strategy, system)
    free = [i for i, level in enumerate(system.network) if level.size is None]
    if free:
        message = "required: an order of ranks fills levels of a size."
        raise InputError(Problem(f"system.network[{free[0]}].size", message))
    sizes = tuple(level.size or 1 for level in system.network)
    whole = whole_order(strategy, order)
    degrees = tuple(strategy.degree(d) for d in whole)
    found = {}
    for number, dimension in enumerate(whole):
        group = _group(system, sizes, degrees, number)
        leaves = any(extent.dimension is not system.network[0] for extent in group.extents)
        found[dimension] = Peers(
            name=f"{dimension.value}: {WHERE[leaves]}", group=group, all_reduce=system.all_reduce
        )
    return found


def _group(system: System, sizes: tuple[int, ...], degrees: tuple[int, ...], number: int) -> Group:
    found = group_of(system.network, sizes, degrees, number)
    if system.domain_size is None or degrees[number] == 1:
        return found
    levels = [extent.dimension for extent in found.extents]
    last = max(i for i, level in enumerate(system.network) if any(level is d for d in levels))
    inside = math.prod(degrees[:number])
    return domain_group(system.network, system.domain_size, inside, degrees[number], last=last)
