"""A DeepFlow hardware file as a template, a budget and the machine around them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from crosstack.errors import InputError, Problem
from crosstack.io.deepflow import schema
from crosstack.io.files import under
from crosstack.io.native.schema import FileModel
from crosstack.machine.generate.budget import Budget
from crosstack.machine.generate.template import (
    ChipTemplate,
    ComputePart,
    DramPart,
    LinkPart,
    SramPart,
)
from crosstack.machine.memory import Scope
from crosstack.technology.parts import ComputeUnit, DramTechnology, LinkTechnology, SramTechnology
from crosstack.technology.voltage import Supply
from crosstack.workload.dtype import dtype_of_size

# Links of a package that a topology shares out; the public tool takes 4 for everything.
_NEIGHBOURS = {"ring": 2, "crossbar": 1}
_NAMES: dict[str, str] = {"SRAM-R": "registers", "SRAM-L1": "L1", "SRAM-L2": "L2", "DRAM": "DRAM"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepflowHardware:
    """What a hardware file holds; of 2025 (absolute budgets), or of 2021 (shares, one file).

    ``template`` and ``budget`` are what the chip is generated from, ``system`` the devices in a
    node, nodes and derates, ``n_devices`` those of the whole system [1], ``schedule`` the
    parallelism, and ``model`` what the file holds of one.
    """

    template: ChipTemplate
    budget: Budget
    system: FileModel
    n_devices: int
    schedule: FileModel
    form: int
    model: FileModel | None = None

    @property
    def rules(self) -> str:
        """Name of the rule set that reproduces the release the file was written for."""
        return f"deepflow-{self.form}"


def hardware_of(
    file: FileModel,
    *,
    form: int,
    n_devices: int | None,
    model: FileModel | None,
    name: str,
) -> DeepflowHardware:
    """Return what a file means; raises `InputError` where its sections do not fit together."""
    levels, system, technology = _levels(file), file.system_hierarchy, file.tech_param
    # A topology that is not named leaves the mesh that the public tool assumes.
    neighbours = _NEIGHBOURS.get(file.network_topology.intra_node.lower(), 4)
    count = system.num_devices_per_node * system.num_nodes
    with under("sw_param.precision"):
        dtype = dtype_of_size(file.sw_param.precision)
    return DeepflowHardware(
        template=ChipTemplate(
            compute=_compute(technology.core, "tech_param.core"),
            srams=_srams(technology, levels[:-1]),
            dram=_dram(technology.DRAM, "tech_param.DRAM"),
            intra=_links(technology.network, "intra_node", neighbours),
            inter=_links(technology.network, "inter_node", 1),
            launch_overhead=file.sw_param.kernel_launch_overhead,
            dtype=dtype,
            name=name,
        ),
        budget=_budget(file, levels),
        system=system,
        n_devices=count if n_devices is None else n_devices,
        schedule=file.scheduling_param,
        form=form,
        model=model,
    )


def _levels(file: FileModel) -> list[FileModel]:
    """Return the memory levels, innermost first, main memory last and alone."""
    path = "memory_hierarchy"
    numbered: list[tuple[int, FileModel]] = []
    for key, level in file.memory_hierarchy.items():
        if not re.fullmatch(r"l\d{1,2}", key):
            raise InputError(Problem(f"{path}.{key}", "unknown level; allowed: l0, l1 and so on."))
        numbered.append((int(key[1:]), level))
    numbered.sort(key=lambda pair: pair[0])
    levels = [level for _, level in numbered]
    expected = list(range(len(levels)))
    if [number for number, _ in numbered] != expected or not levels:
        found = ", ".join(f"l{number}" for number, _ in numbered) or "nothing"
        message = f"got {found}; allowed: l0 and every level after it, without a gap."
        raise InputError(Problem(path, message))
    types = [level.type for level in levels]
    if types[-1] != schema.LevelType.DRAM or len(set(types)) < len(types):
        message = f"got {', '.join(types)}; allowed: each type once, DRAM last."
        raise InputError(Problem(path, message))
    if levels[-1].scope is not Scope.CHIP:
        word = next(word for word, scope in schema.SCOPES.items() if scope is levels[-1].scope)
        message = f"got '{word}'; allowed: global for DRAM."
        raise InputError(Problem(f"{path}.l{len(levels) - 1}.scope", message))
    return levels


def _supply(file: FileModel, path: str) -> Supply:
    return file.record(Supply, path, minimum=file.threshold + file.minimum)


def _compute(file: FileModel, path: str) -> ComputePart:
    _require_frequency(file.frequency, file.nominal_frequency, path)
    # A unit drawn at another area does proportionally more or less work, for as much power.
    area = file.operating_area_per_mcu
    scale = area / (file.nominal_area_per_mcu or area)
    unit = file.record(
        ComputeUnit,
        path,
        work_per_cycle=file.nominal_flop_rate_per_mcu * scale,
        area=area * schema.MM2,
        power=file.nominal_power_per_mcu * scale,
        supply=_supply(file, path),
    )
    return file.record(ComputePart, path, unit=unit)


def _srams(technology: FileModel, levels: Sequence[FileModel]) -> tuple[SramPart, ...]:
    srams = []
    for level in levels:
        path, name = f"tech_param.{level.type}", level.type.value
        file = getattr(technology, name.replace("-", "_"))
        if file is None:
            raise InputError(Problem(path, "required by memory_hierarchy, but missing."))
        made = file.record(SramTechnology, path, name=name)
        others = {"name": _NAMES[name], "scope": level.scope, "technology": made}
        srams.append(file.record(SramPart, path, **others))
    return tuple(srams)


def _dram(file: FileModel, path: str) -> DramPart:
    _require_frequency(file.rate, file.nominal_rate, path)
    made = file.record(DramTechnology, path, supply=_supply(file, path), name="DRAM")
    return file.record(DramPart, path, name=_NAMES["DRAM"], technology=made)


def _require_frequency(operating: float | None, nominal: float | None, path: str) -> None:
    if operating is None and nominal is None:
        message = "required where there is no operating_frequency."
        raise InputError(Problem(f"{path}.nominal_frequency", message))


def _links(network: FileModel, name: str, neighbours: int) -> LinkPart:
    file, path = getattr(network, name), f"tech_param.network.{name}"
    made = file.record(LinkTechnology, path, supply=_supply(file, path), name=name)
    return LinkPart(technology=made, n_neighbours=neighbours, utilization=file.utilization)


def _budget(file: FileModel, levels: list[FileModel]) -> Budget:
    area, power, edge = file.area_breakdown, file.power_breakdown, file.perimeter_breakdown
    inside, links = [*(_NAMES[level.type] for level in levels), "compute"], ("intra", "inter")
    areas, powers = (
        {name: getattr(shares, name) for name in inside}
        | {name: getattr(shares.network, name) for name in links}
        for shares in (area, power)
    )
    return Budget(
        package_area=area.device_area_budget * schema.MM2,
        chip_area=area.proc_chip_area_budget * schema.MM2,
        power=power.TDP,
        areas={name: part * schema.MM2 for name, part in areas.items()},
        powers=powers,
        edges={name: getattr(edge, name) for name in (*links, "DRAM")},
    )
