"""From one logic node to the next: smaller and less power at the same speed.

Two sets of steps: ``paper`` is the case study of ``ardalani2022deepflow``, section 9 (1.8x in area
and 1.3x in power at the same speed for every node, SRAM as logic); ``foundry`` is what was
published node by node, with SRAM following its bit cell instead of the logic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

from crosstack.errors import InputError, Problem, unknown_name
from crosstack.records import Checked, Positive, Quantity
from crosstack.technology.parts import ComputeUnit, SramTechnology


class Scaling(StrEnum):
    """Which set of steps."""

    PAPER = "paper"
    FOUNDRY = "foundry"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogicNode(Checked):
    """A node and the step that leads to it from the ``previous`` node; None for the first.

    ``paper_density`` and ``paper_power`` are those of the paper, the others were published.
    """

    name: str
    sram_cell: Annotated[float, Positive("m^2", "area of the high-density SRAM bit cell")]
    previous: str | None = None
    density: Annotated[float, Positive("1", "logic per area over that of the node before")] = 1.0
    power: Annotated[float, Positive("1", "at the same speed, over the node before")] = 1.0
    paper_density: Annotated[float, Positive("1")] = 1.0
    paper_power: Annotated[float, Positive("1")] = 1.0
    wafer_price: Annotated[float, Positive("USD", "of a processed wafer of 300 mm")] | None = None
    defect_density: Annotated[float, Quantity("1/m^2", "that break a die")] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """From one node to another: logic ``density``, ``power`` and ``sram_area`` ratios. [1]"""

    density: float
    power: float
    sram_area: float


def steps_between(nodes: Mapping[str, LogicNode], start: str, end: str, scaling: Scaling) -> Steps:
    """Return what changes from node ``start`` to node ``end``, in either direction.

    `InputError` if a node is not known, or no chain of nodes joins the two.

    Parameters
    ----------
    nodes : mapping of str to LogicNode
        Every node on the way, by name.
    start, end : str
        Names of nodes.
    scaling : Scaling
        Which set of steps.
    """
    from_start, from_end = _chain(nodes, start), _chain(nodes, end)
    if start in from_end:
        upper, sign = from_end[: from_end.index(start)], 1
    elif end in from_start:
        upper, sign = from_start[: from_start.index(end)], -1
    else:
        raise InputError(Problem("node", f"no steps lead from {start} to {end}."))
    density = power = 1.0
    for name in upper:
        node = nodes[name]
        paper = scaling is Scaling.PAPER
        density *= node.paper_density if paper else node.density
        power *= node.paper_power if paper else node.power
    density, power = density**sign, power**sign
    cell = nodes[end].sram_cell / nodes[start].sram_cell
    sram_area = 1 / density if scaling is Scaling.PAPER else cell
    return Steps(density=density, power=power, sram_area=sram_area)


def _chain(nodes: Mapping[str, LogicNode], name: str) -> list[str]:
    """Return ``name`` and every node before it, latest first."""
    chain: list[str] = []
    here: str | None = name
    while here is not None and here not in chain:
        if here not in nodes:
            raise unknown_name("node", "node is", here, nodes, "Nodes")
        chain.append(here)
        here = nodes[here].previous
    return chain


def scaled_unit(unit: ComputeUnit, steps: Steps) -> ComputeUnit:
    """Return ``unit`` in another node: area / density, power x power, same speed and voltages."""
    return replace(unit, area=unit.area / steps.density, power=unit.power * steps.power)


def scaled_sram(sram: SramTechnology, steps: Steps) -> SramTechnology:
    """Return ``sram`` in another node.

    Cells follow the SRAM ratio; the crossbar is logic; energy and leakage follow the power.
    """
    return replace(
        sram,
        area_per_bit=sram.area_per_bit * steps.sram_area,
        crossbar_area=sram.crossbar_area / steps.density,
        energy_per_bit=sram.energy_per_bit * steps.power,
        static_power_per_bit=sram.static_power_per_bit * steps.power,
    )
