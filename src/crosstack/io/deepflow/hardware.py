"""A DeepFlow hardware file as a template, a budget and the machine around them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from crosstack.errors import InputError, Problem
from crosstack.io.deepflow import schema
from crosstack.machine.compute import Dataflow
from crosstack.machine.generate.budget import Budget
from crosstack.machine.generate.template import (
    ChipTemplate,
    ComputePart,
    DramPart,
    LinkPart,
    SramPart,
)
from crosstack.machine.memory import Scope
from crosstack.technology.dram import DramTechnology
from crosstack.technology.links import LinkTechnology
from crosstack.technology.logic import ComputeUnit
from crosstack.technology.sram import SramTechnology
from crosstack.technology.voltage import Supply
from crosstack.workload.dtype import dtype_of_size

MM2 = 1e-6
PER_MM = 1e3
_SCOPES = {"mcu": Scope.UNIT, "mcu-bundle": Scope.MULTIPROCESSOR, "global": Scope.CHIP}
_DATAFLOWS = {
    "best": Dataflow.BEST,
    "wst": Dataflow.WEIGHT,
    "ast": Dataflow.ACTIVATION,
    "ost": Dataflow.OUTPUT,
    "none": Dataflow.NONE,
}
# Links of a package that a topology shares out; the public tool takes 4 for everything.
_NEIGHBOURS = {"ring": 2, "crossbar": 1}
_NAMES = {"SRAM-R": "registers", "SRAM-L1": "L1", "SRAM-L2": "L2", "DRAM": "DRAM"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepflowHardware:
    """What a hardware file holds.

    Parameters
    ----------
    template, budget : ChipTemplate, Budget
        What the chip is generated from.
    software : SoftwareFile
        Launch overhead and precision.
    system : SystemFile
        Devices in a node, nodes, derates, which dimension leaves the node.
    n_devices : int
        Of the whole system. [1]
    topology : tuple of str
        Of a node, and between nodes; no published release uses them.
    schedule : ScheduleFile
        The parallelism.
    form : int
        2025 (absolute budgets, two files) or 2021 (shares, one file).
    model : GemmFile, LstmFile, LlmFile or None
        The model, where the file holds one.
    """

    template: ChipTemplate
    budget: Budget
    software: schema.SoftwareFile
    system: schema.SystemFile
    n_devices: int
    topology: tuple[str, str]
    schedule: schema.ScheduleFile
    form: int
    model: schema.ModelFile | None = None

    @property
    def rules(self) -> str:
        """Name of the rule set that reproduces the release the file was written for."""
        return f"deepflow-{self.form}"


def hardware_of(
    file: schema.HardwareFile,
    *,
    form: int,
    n_devices: int | None,
    model: schema.ModelFile | None,
    name: str,
) -> DeepflowHardware:
    """Return what a file means; raises `InputError` where its sections do not fit together."""
    levels = _levels(file)
    srams, dram = _parts(file, levels)
    network = file.tech_param.network
    # A topology that is not named leaves the mesh that the public tool assumes.
    neighbours = _NEIGHBOURS.get(file.network_topology.intra_node.lower(), 4)
    with_path = _links(network.intra_node, neighbours, "tech_param.network.intra_node")
    system = file.system_hierarchy
    count = system.num_devices_per_node * system.num_nodes
    try:
        dtype = dtype_of_size(file.sw_param.precision)
    except InputError as error:
        raise error.under("sw_param.precision") from None
    return DeepflowHardware(
        template=ChipTemplate(
            compute=_compute(file.tech_param.core),
            srams=srams,
            dram=dram,
            intra=with_path,
            inter=_links(network.inter_node, 1, "tech_param.network.inter_node"),
            launch_overhead=file.sw_param.kernel_launch_overhead,
            dtype=dtype,
            name=name,
        ),
        budget=_budget(file, levels),
        software=file.sw_param,
        system=system,
        n_devices=count if n_devices is None else n_devices,
        topology=(file.network_topology.intra_node, file.network_topology.inter_node),
        schedule=file.scheduling_param,
        form=form,
        model=model,
    )


def _levels(file: schema.HardwareFile) -> list[schema.LevelFile]:
    """Return the memory levels, innermost first, main memory last and alone."""
    path = "memory_hierarchy"
    numbered: list[tuple[int, schema.LevelFile]] = []
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
    if types.count("DRAM") != 1 or types[-1] != "DRAM" or len(set(types)) < len(types):
        message = f"got {', '.join(types)}; allowed: each type once, DRAM last."
        raise InputError(Problem(path, message))
    if levels[-1].scope != "global":
        raise InputError(
            Problem(
                f"{path}.l{len(levels) - 1}.scope",
                f"got '{levels[-1].scope}'; allowed: global for DRAM.",
            )
        )
    return levels


# Fields of records that are called otherwise in a file.
_FILE_NAMES = {
    "nominal": "nominal_voltage",
    "threshold": "threshold_voltage",
    "minimum": "margin_voltage",
    "maximum": "max_voltage",
    "rows": "FMA_d1",
    "depth": "FMA_d2",
    "units_per_multiprocessor": "num_mcu_per_bundle",
}


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Say the errors of a record by the fields of the file."""
    try:
        yield
    except InputError as error:
        raise error.renamed(_FILE_NAMES).under(path) from None


def _supply(
    file: schema.CoreFile | schema.DramFile | schema.LinkFile, path: str, maximum: float | None
) -> Supply:
    with _named(path):
        return Supply(
            nominal=file.nominal_voltage,
            threshold=file.threshold_voltage,
            minimum=file.threshold_voltage + file.margin_voltage,
            maximum=maximum,
        )


def _share(value: float, path: str) -> float:
    if value > 1:
        raise InputError(Problem(path, f"got {value:g}; allowed: above 0, at most 1."))
    return value


def _compute(file: schema.CoreFile) -> ComputePart:
    path = "tech_param.core"
    if file.operating_frequency is None and file.nominal_frequency is None:
        raise InputError(
            Problem(f"{path}.nominal_frequency", "required where there is no operating_frequency.")
        )
    # A unit drawn at another area does proportionally more or less work, for as much power.
    scale = file.operating_area_per_mcu / (file.nominal_area_per_mcu or file.operating_area_per_mcu)
    utilization = _share(file.util, f"{path}.util")
    supply = _supply(file, path, None)
    with _named(path):
        unit = ComputeUnit(
            work_per_cycle=file.nominal_flop_rate_per_mcu * scale,
            rows=file.FMA_d1,
            depth=file.FMA_d2,
            area=file.operating_area_per_mcu * MM2,
            power=file.nominal_power_per_mcu * scale,
            supply=supply,
            nominal_frequency=file.nominal_frequency,
        )
        return ComputePart(
            unit=unit,
            units_per_multiprocessor=file.num_mcu_per_bundle,
            dataflow=_DATAFLOWS[file.dataflow],
            utilization=utilization,
            n_multiprocessors=file.num_bundles,
            frequency=file.operating_frequency,
        )


def _parts(
    file: schema.HardwareFile, levels: list[schema.LevelFile]
) -> tuple[tuple[SramPart, ...], DramPart]:
    technologies = {
        schema.LevelType.REGISTERS: file.tech_param.SRAM_R,
        schema.LevelType.L1: file.tech_param.SRAM_L1,
        schema.LevelType.L2: file.tech_param.SRAM_L2,
    }
    srams = []
    for level in levels[:-1]:
        technology = technologies[schema.LevelType(level.type)]
        path = f"tech_param.{level.type}"
        if technology is None:
            raise InputError(Problem(path, "required by memory_hierarchy, but missing."))
        srams.append(_sram(technology, level, path))
    return tuple(srams), _dram(file.tech_param.DRAM)


def _sram(file: schema.SramFile, level: schema.LevelFile, path: str) -> SramPart:
    if file.overhead >= 1:
        raise InputError(
            Problem(f"{path}.overhead", f"got {file.overhead:g}; allowed: 0 to below 1.")
        )
    return SramPart(
        name=_NAMES[level.type],
        technology=SramTechnology(
            area_per_bit=file.area_per_bit * MM2,
            bank_capacity=file.bank_capacity,
            energy_per_bit=file.dynamic_energy_per_bit,
            static_power_per_bit=file.static_power_per_bit,
            periphery=file.overhead,
            crossbar_area=file.controller_area_per_link * MM2,
            latency=file.latency,
            name=level.type,
        ),
        scope=_SCOPES[level.scope],
        utilization=_share(file.util, f"{path}.util"),
        capacity=file.size,
        bandwidth=file.bandwidth,
    )


def _dram(file: schema.DramFile) -> DramPart:
    path = "tech_param.DRAM"
    if file.operating_frequency is None and file.nominal_frequency is None:
        raise InputError(
            Problem(f"{path}.nominal_frequency", "required where there is no operating_frequency.")
        )
    return DramPart(
        name=_NAMES["DRAM"],
        technology=DramTechnology(
            stack_capacity=file.stack_capacity,
            stack_area=file.area_per_stack * MM2,
            controller_area=file.mem_ctrl_area * MM2,
            wires_per_stack=file.num_links_per_stack,
            wires_per_length=file.num_links_per_mm * PER_MM,
            energy_per_bit=file.dynamic_energy_per_bit,
            supply=_supply(file, path, file.max_voltage),
            static_power_per_bit=file.static_power_per_bit,
            nominal_rate=file.nominal_frequency,
            latency=file.latency,
            name="DRAM",
        ),
        utilization=_share(file.util, f"{path}.util"),
        capacity=file.size,
        bandwidth=file.bandwidth,
        n_stacks=file.num_stacks,
        rate=file.operating_frequency,
    )


def _links(file: schema.LinkFile, neighbours: int, path: str) -> LinkPart:
    technology = LinkTechnology(
        energy_per_bit=file.nominal_energy_per_link,
        area_per_wire=file.nominal_area_per_link * MM2,
        wires_per_length=file.num_links_per_mm * PER_MM,
        nominal_rate=file.nominal_frequency,
        supply=_supply(file, path, None),
        latency=file.latency,
        name=path.rpartition(".")[2],
    )
    return LinkPart(
        technology=technology,
        n_neighbours=neighbours,
        utilization=_share(file.util, f"{path}.util"),
    )


def _budget(file: schema.HardwareFile, levels: list[schema.LevelFile]) -> Budget:
    area, power, edge = file.area_breakdown, file.power_breakdown, file.perimeter_breakdown
    fields = {"SRAM-R": "reg_mem", "SRAM-L1": "L1", "SRAM-L2": "L2", "DRAM": "DRAM"}
    used = {_NAMES[level.type]: fields[level.type] for level in levels}
    used["compute"] = "core"
    areas = {name: getattr(area, of) * MM2 for name, of in used.items()}
    powers = {name: getattr(power, of) for name, of in used.items()}
    network = {"intra": "intra_node", "inter": "inter_node"}
    areas |= {name: getattr(area.network, of) * MM2 for name, of in network.items()}
    powers |= {name: getattr(power.network, of) for name, of in network.items()}
    edges = {name: getattr(edge, of) for name, of in network.items()}
    return Budget(
        package_area=area.device_area_budget * MM2,
        chip_area=area.proc_chip_area_budget * MM2,
        power=power.TDP,
        areas=areas,
        powers=powers,
        edges=edges | {_NAMES["DRAM"]: edge.DRAM},
    )


def check_devices(hardware: DeepflowHardware) -> None:
    """Raise `InputError` where the parallelism of a file does not fill its devices.

    Only a prediction needs that; a chip can be generated from such a file.

    Raises
    ------
    InputError
        Says which numbers differ and what to change.
    """
    schedule, system = hardware.schedule, hardware.system
    dp, lp = schedule.dp or 1, schedule.lp or 1
    kp1 = schedule.kp1 or schedule.kp_hidden_dim1
    kp2 = schedule.kp2 or schedule.kp_hidden_dim2
    product = dp * lp * kp1 * kp2
    problems = []
    if product != hardware.n_devices:
        if hardware.form == 2025:
            has = f"{system.num_devices_per_node} devices x {system.num_nodes} nodes"
            change = (
                f"set system_hierarchy.num_devices_per_node and num_nodes to a product of "
                f"{product}, or scheduling_param.kp1, kp2, dp and lp to a product of "
                f"{hardware.n_devices}"
            )
        else:
            has = f"num_workers {hardware.n_devices}"
            change = f"set system_hierarchy.num_workers: {product}"
        message = (
            f"{has} are {hardware.n_devices} devices, but the parallelism kp1 {kp1} x kp2 {kp2} x "
            f"dp {dp} x lp {lp} fills {product}; {change}."
        )
        problems.append(Problem("system_hierarchy", message))
    # What crosses nodes cannot use the links inside one.
    inside = hardware.system.num_devices_per_node
    if dp > inside and not system.dp_inter:
        message = f"dp {dp} is more than the {inside} devices of a node; set dp_inter: true."
        problems.append(Problem("system_hierarchy.dp_inter", message))
    if problems:
        raise InputError(problems)
