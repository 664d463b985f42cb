"""The system that packages of equal chips make, joined by the chips' own links."""

from __future__ import annotations

from typing import assert_never

from crosstack.errors import InputError, Problem, require_whole
from crosstack.machine.chip import Chip, Link
from crosstack.machine.system import Dimension, DimensionKind, Prices, System
from crosstack.machine.topology import RING, SWITCH, NetworkLevel, Topology

__all__ = ["packaged_system"]


def packaged_system(
    chip: Chip,
    *,
    chips_per_package: int = 1,
    n_packages: int = 1,
    inside: NetworkLevel = RING,
    between: NetworkLevel = SWITCH,
) -> System:
    """Return ``n_packages`` packages of equal chips, joined by the chips' own links.

    Parameters
    ----------
    chip : Chip
        One chip; its power holds that of its memory and links.
    chips_per_package, n_packages : int
        How many. [1]
    inside, between : NetworkLevel
        How chips are joined inside a package, and between packages. A torus is a ring along each
        of its axes.

    Raises
    ------
    InputError
        If several chips are to be joined by links without bandwidth: says what to give them. If
        they are joined as a mesh, which no dimension of a system is.
    """
    require_whole("chips_per_package", chips_per_package)
    require_whole("n_packages", n_packages)
    levels = (
        ("intra", chips_per_package, chip.intra, inside),
        ("inter", n_packages, chip.inter, between),
    )
    network = [
        _dimension(name, extent, link, kind)
        for name, size, link, level in levels
        for kind, extent in _dimensions(name, size, level)
        if extent > 1
    ]
    if not network:
        # A system has a network; that of one chip carries nothing, whatever its bandwidth.
        alone = chip.main_memory.speed
        network = [Dimension(kind=DimensionKind.RING, size=1, bandwidth=alone)]
    return System(
        chip=chip,
        network=tuple(network),
        n_chips=chips_per_package * n_packages,
        prices=Prices(memory_power=0.0),  # the chip's power holds it, and that of links
        name=chip.name,
    )


def _dimensions(name: str, size: int, level: NetworkLevel) -> list[tuple[DimensionKind, int]]:
    """Return the one-dimensional networks that a level is composed of, with their sizes."""
    match level.topology:
        case Topology.RING:
            return [(DimensionKind.RING, size)]
        case Topology.SWITCH:
            return [(DimensionKind.SWITCH, size)]
        case Topology.FULLY_CONNECTED:
            return [(DimensionKind.FULLY_CONNECTED, size)]
        case Topology.TORUS:
            return [(DimensionKind.RING, extent) for extent in level.axes(size)]
        case Topology.MESH:
            allowed = ", ".join(kind for kind in Topology if kind is not Topology.MESH)
            message = f"got mesh; a system that is mapped has none. Allowed: {allowed}."
            raise InputError(Problem(f"{name}.kind", message))
        case _:
            assert_never(level.topology)


def _dimension(name: str, size: int, link: Link | None, kind: DimensionKind) -> Dimension:
    if link is None or link.bandwidth <= 0:
        message = (
            f"{size} chips are to be joined, but the {name} links have no bandwidth; give {name} "
            "area, power and a share of the edge."
        )
        raise InputError(Problem(name, message))
    return Dimension(
        kind=kind,
        size=size,
        bandwidth=link.bandwidth,
        latency=link.latency,
        link_power=0.0,
    )
