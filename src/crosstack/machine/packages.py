"""The system that packages of equal chips make, joined by the chips' own links."""

from __future__ import annotations

from dataclasses import replace

from crosstack.errors import InputError, Problem, require_whole
from crosstack.machine.chip import Chip, Link
from crosstack.machine.system import Dimension, DimensionKind, Prices, System
from crosstack.machine.topology import RING, SWITCH, NetworkLevel

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
        of its axes, a mesh a line.

    Raises
    ------
    InputError
        If several chips are to be joined by links without bandwidth: says what to give them.
    """
    require_whole("chips_per_package", chips_per_package)
    require_whole("n_packages", n_packages)
    levels = (
        ("intra", chips_per_package, chip.intra, inside),
        ("inter", n_packages, chip.inter, between),
    )
    network = [
        _dimension(name, extent, link, one)
        for name, size, link, level in levels
        for one, extent in _dimensions(level, size)
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


def _dimensions(level: NetworkLevel, size: int) -> list[tuple[NetworkLevel, int]]:
    """Return the one-dimensional networks that a level is composed of, with their sizes."""
    match level.kind:
        case DimensionKind.TORUS:
            return [(RING, extent) for extent in level.axes(size)]
        case DimensionKind.MESH:
            return [(replace(level, shape=(extent,)), extent) for extent in level.axes(size)]
        case _:
            return [(level, size)]


def _dimension(name: str, size: int, link: Link | None, level: NetworkLevel) -> Dimension:
    if link is None or link.bandwidth <= 0:
        message = (
            f"{size} chips are to be joined, but the {name} links have no bandwidth; give {name} "
            "area, power and a share of the edge."
        )
        raise InputError(Problem(name, message))
    return Dimension(
        kind=level.kind,
        size=size,
        bandwidth=link.bandwidth,
        latency=link.latency,
        link_power=0.0,
        shape=level.shape,
        oversubscription=level.oversubscription,
        pod_size=level.pod_size,
        reduces=level.reduces,
    )
