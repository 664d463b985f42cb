"""Whom every parallel dimension of a strategy communicates with on the network of a system.

Ranks are numbered along an order of the dimensions, the innermost first, and fill the innermost
level of the network first (`crosstack.model.collectives.group`).
"""

from __future__ import annotations

import math

from crosstack.errors import InputError, Problem
from crosstack.machine.system import System
from crosstack.mapping.strategy import MappingOrder, ParallelDimension, Strategy, whole_order
from crosstack.model.collectives import Group, group_of
from crosstack.model.collectives.group import domain_group
from crosstack.published.deepflow.distributed import Peers

__all__ = ["WHERE", "check_chips", "peers_of"]

WHERE = ("link inside a package", "link between packages")


def sizes_of(system: System) -> tuple[int, ...]:
    """Return how many chips, or blocks of the level below, each level joins. [1]

    Raises
    ------
    InputError
        If a level leaves that free.
    """
    free = [f"system.network[{i}].size" for i, d in enumerate(system.network) if d.size is None]
    if free:
        raise InputError(Problem(free[0], "required: an order of ranks fills levels of a size."))
    return tuple(level.size or 1 for level in system.network)


def _degrees(strategy: Strategy, order: MappingOrder) -> tuple[int, ...]:
    return tuple(strategy.degree(d) for d in order)


def check_chips(strategy: Strategy, system: System) -> None:
    """Raise `InputError` if the strategy needs more chips than there are."""
    if strategy.n_chips > system.n_chips:
        message = f"{strategy} needs {strategy.n_chips} chips; there are {system.n_chips}."
        raise InputError(Problem("strategy", message))


def peers_of(
    strategy: Strategy, system: System, order: MappingOrder
) -> dict[ParallelDimension, Peers]:
    """Return whom every dimension communicates with.

    Parameters
    ----------
    strategy : Strategy
        What is numbered.
    system : System
        The machine.
    order : tuple of ParallelDimension
        The dimensions, innermost first.

    Raises
    ------
    InputError
        If the strategy needs more chips than there are, or the order leaves out a dimension.
    """
    check_chips(strategy, system)
    whole, sizes = whole_order(strategy, order), sizes_of(system)
    degrees = _degrees(strategy, whole)
    return {
        d: _named(d, system, _group(system, sizes, degrees, number))
        for number, d in enumerate(whole)
    }


def _group(system: System, sizes: tuple[int, ...], degrees: tuple[int, ...], number: int) -> Group:
    found = group_of(system.network, sizes, degrees, number)
    if system.domain_size is None or degrees[number] == 1:
        return found
    levels = [extent.dimension for extent in found.extents]
    last = max(i for i, level in enumerate(system.network) if any(level is d for d in levels))
    inside = math.prod(degrees[:number])
    return domain_group(system.network, system.domain_size, inside, degrees[number], last=last)


def _named(dimension: ParallelDimension, system: System, group: Group) -> Peers:
    leaves = any(extent.dimension is not system.network[0] for extent in group.extents)
    return Peers(
        name=f"{dimension.value}: {WHERE[leaves]}", group=group, all_reduce=system.all_reduce
    )
