"""The system that packages of equal chips make, joined by the chips' own links."""

from __future__ import annotations

from dataclasses import fields, replace

from crosstack.errors import InputError, Problem, require_whole
from crosstack.machine.chip import Chip, Link
from crosstack.machine.network import KINDS, RING, SWITCH, NetworkLevel
from crosstack.machine.system import Dimension, DimensionKind, Prices, System
from crosstack.machine.topology import Grid

ABSENT = 1e-300  # stands for the bandwidth of a link that is not there [B/s]
SLOWEST = 1.0  # less than that many bytes a second is no link [B/s]
_PRICES = Prices(memory_power=0.0)  # the chip's power holds it, and that of links


def dimension_of(link: Link | None, level: NetworkLevel, size: int) -> Dimension:
    """Return ``size`` chips, or blocks of chips, joined as ``level`` says by links of a chip."""
    joined = {item.name: getattr(level, item.name) for item in fields(level)}
    return Dimension(
        **joined,
        size=size,
        bandwidth=max(ABSENT, link.bandwidth if link else 0.0),
        latency=link.latency if link else None,
        link_power=0.0,
    )


def system_of_packages(
    chip: Chip,
    *,
    chips_per_package: int = 1,
    n_packages: int = 1,
    inside: NetworkLevel = RING,
    between: NetworkLevel = SWITCH,
) -> System:
    """Return ``n_packages`` packages of equal chips: one network level in them, one between.

    The power of a chip holds that of its memory and links. A link that the chip has not is no
    error: nothing may have to be sent over it. Raises `InputError` if a level has the shape of
    another number of chips.

    Parameters
    ----------
    chips_per_package, n_packages : int
        How many. [1]
    inside, between : NetworkLevel
        How chips are joined inside a package, and equal chips of all packages.
    """
    require_whole("chips_per_package", chips_per_package)
    require_whole("n_packages", n_packages)
    network = (
        dimension_of(chip.intra, inside, chips_per_package),
        dimension_of(chip.inter, between, n_packages),
    )
    return System(
        chip=chip,
        network=network,
        n_chips=chips_per_package * n_packages,
        prices=_PRICES,
        name=chip.name,
    )


def require_links(system: System) -> None:
    """Raise `InputError` if several chips are to be joined by links without bandwidth.

    Says what to give them.
    """
    for number, level in enumerate(system.network):
        if level.size != 1 and level.bandwidth < SLOWEST:
            name = "inter" if number else "intra"
            size = system.n_chips if level.size is None else level.size
            message = (
                f"{size} chips are to be joined, but the {name} links have no bandwidth; give "
                f"{name} area, power and a share of the edge, or use fewer chips."
            )
            raise InputError(Problem(name, message))


def divided_system(system: System) -> System:
    """Return packages of chips with every axis of a grid as a dimension of its own.

    Each can then be given to a parallelism. A torus is a ring along each of its axes, a mesh a
    line; levels of one chip are left out.

    Raises `InputError` as `require_links`.
    """
    require_links(system)
    axes = (axis for level in system.network for axis in _axes(level, level.size or 1))
    network = [axis for axis in axes if axis.size != 1]
    if not network:
        # A system has a network; that of one chip carries nothing, whatever its bandwidth.
        alone = system.chip.main_memory.speed
        network = [Dimension(kind=DimensionKind.RING, size=1, bandwidth=alone)]
    return replace(system, network=tuple(network))


def _axes(level: Dimension, size: int) -> list[Dimension]:
    """Return the one-dimensional networks that a level is composed of."""
    kind = KINDS[level.kind].axis
    if kind is None:  # of one piece
        return [level]
    return [
        replace(level, kind=kind, shape=(extent,) if KINDS[kind].axis else (), size=extent)
        for extent in level.axes(size)
    ]


def system_of_grid(chip: Chip, grid: Grid) -> System:
    """Return chips on a mesh or torus that is cut into packages.

    Of a package that has c chips along an axis only the last reaches the next package, so the
    links between packages are those of its chips by c: a chip's share of what crosses. Packages
    along each axis are a level of their own. The way that closes a torus of several packages leads
    from the last to the first, so that a package by itself is a mesh.

    Raises `InputError` if the grid has more levels than a network.
    """
    whole = grid.n_packages == 1
    kind = DimensionKind.TORUS if grid.torus and whole else DimensionKind.MESH
    inside = dimension_of(
        chip.intra, NetworkLevel(kind=kind, shape=grid.package), grid.n_chips // grid.n_packages
    )
    between = []
    for chips, packages in zip(grid.package, grid.packages, strict=True):
        if packages > 1:
            line = NetworkLevel(kind=DimensionKind.MESH, shape=(packages,))
            one = dimension_of(chip.inter, RING if grid.torus else line, packages)
            between.append(replace(one, bandwidth=one.bandwidth / chips))
    return System(
        chip=chip, network=(inside, *between), n_chips=grid.n_chips, prices=_PRICES, name=chip.name
    )
