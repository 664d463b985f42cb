"""crosstack's own chip file: what a chip is made of and what it may take, as YAML.

The shortest file names a memory, an area and a power; everything else has the value that the
public tool gives an NVIDIA V100 (``deepflow_code``, configs/v100.yaml of 2021): its units and
memories, scaled to the node, and the shares of its area, power and edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from crosstack.errors import InputError, Problem
from crosstack.io.files import of_file
from crosstack.io.kinds import FileKind
from crosstack.io.native.overrides import read_fields
from crosstack.io.native.problems import collecting, unknown_field
from crosstack.io.native.schema import FileModel
from crosstack.io.native.tables import Table
from crosstack.io.technology import TechnologyLibrary, shipped
from crosstack.io.yaml_tree import Change, Content
from crosstack.machine.generate.budget import Budget
from crosstack.machine.generate.template import (
    ChipTemplate,
    ComputePart,
    DramPart,
    LinkPart,
    SramPart,
)
from crosstack.machine.network import RING, SWITCH, NetworkLevel, parse_shape
from crosstack.technology.scaling import (
    LogicNode,
    Steps,
    scaled_sram,
    scaled_unit,
    steps_between,
)
from crosstack.workload.dtype import dtype_of_size

# configs/v100.yaml of deepflow_code, release of 2021.
_SHARES: dict[str, dict[str, float]] = {
    "area": {"compute": 0.3, "registers": 0.022, "L1": 0.0103, "L2": 0.08062, "DRAM": 0.0248,
             "inter": 0.1},
    "power": {"compute": 0.3745, "registers": 0.3022, "L1": 0.1041, "L2": 0.008, "DRAM": 0.16,
              "inter": 0.00935},
    "edge": {"DRAM": 0.5, "inter": 0.5},
}  # fmt: skip


CHIP_FILE = Table(__package__, "chip_file.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipDescription:
    """A chip file's template and budget, its logic node, and the machine that its chips make.

    ``inside`` joins the chips of a package, ``between`` the packages.
    """

    template: ChipTemplate
    budget: Budget
    chips_per_package: int
    n_packages: int
    inside: NetworkLevel
    between: NetworkLevel
    node: LogicNode | None = None

    def joined(self, inside: NetworkLevel, between: NetworkLevel) -> ChipDescription:
        """Return the same chips joined otherwise, their wires shared out over the neighbours."""
        template = replace(
            self.template,
            intra=_among(self.template.intra, inside.links(self.chips_per_package)),
            inter=_among(self.template.inter, between.links(self.n_packages)),
        )
        return replace(self, template=template, inside=inside, between=between)


def _among(part: LinkPart | None, neighbours: int) -> LinkPart | None:
    return part and replace(part, n_neighbours=neighbours)


def read_chip(
    content: Content,
    source: str,
    overrides: Sequence[Change] = (),
    library: TechnologyLibrary | None = None,
) -> ChipDescription:
    """Return what a chip file describes.

    `InputError` with every problem found: ``FILE: path: what is wrong``.

    Parameters
    ----------
    content : str or dict
        YAML, or its tree.
    source : str
        What to call the file in errors, and its chip if it has no name.
    overrides : sequence of str, or of (str, value)
        ``path=value``, e.g. ``node=N3``.
    library : TechnologyLibrary or None
        Where names are looked up; None: what comes with crosstack. The file's own section
        ``technology`` goes on top.
    """
    with of_file(source):
        file = read_fields(CHIP_FILE["chip"], FileKind.CHIP, content, overrides)
        return _describe(file, library or shipped(), PurePath(source).stem)


def _describe(file: FileModel, library: TechnologyLibrary, name: str) -> ChipDescription:
    if file.technology is not None:
        library = library.with_entries(file.technology, "technology")
    problems: list[Problem] = []
    inside = _level("intra", file.intra, RING, file.chips_per_package, problems)
    between = _level("inter", file.inter, SWITCH, file.packages, problems)
    neighbours = {
        "intra": inside.links(file.chips_per_package),
        "inter": between.links(file.packages),
    }
    parts = _parts(file, library, neighbours, problems)
    with collecting(problems, "word"):
        parts["dtype"] = dtype_of_size(file.word)
    if problems:
        raise InputError(problems)
    largest = parts.pop("largest")
    template = ChipTemplate(**parts, launch_overhead=file.launch_overhead, name=file.name or name)
    package = largest if file.package_area is None else file.package_area
    if package > largest:
        message = (
            f"got {package * 1e6:g} mm^2; allowed: up to {largest * 1e6:g} mm^2, the largest "
            f'"{file.substrate}" that is made.'
        )
        raise InputError(Problem("package_area", message))
    return ChipDescription(
        template=template,
        budget=_budget(file, template, package),
        chips_per_package=file.chips_per_package,
        n_packages=file.packages,
        inside=inside,
        between=between,
        node=library.nodes()[file.node],
    )


def _level(
    name: str, file: FileModel | None, usual: NetworkLevel, size: int, problems: list[Problem]
) -> NetworkLevel:
    """Return how ``size`` chips or packages are joined; problems grow."""
    if file is None:
        return usual
    with collecting(problems, name):
        shape = () if file.shape is None else parse_shape(file.shape)
        level = file.record(NetworkLevel, kind=file.kind or usual.kind, shape=shape)
        if level.shape:
            level.axes(size)
        return level
    return usual


def _parts(
    file: FileModel, library: TechnologyLibrary, neighbours: dict[str, int], problems: list[Problem]
) -> dict[str, Any]:
    """Return the parts of a template, and the ``largest`` package; problems grow.

    ``neighbours`` are those of the kind of network that links make.
    """

    def steps(node: str) -> Steps:
        return steps_between(library.nodes(), node, file.node, file.scaling)

    parts: dict[str, Any] = {"intra": None, "inter": None}
    with collecting(problems, ""):
        steps(file.node)  # is the node known?
    known = not problems
    with collecting(problems, "substrate"):
        substrate = library.substrate(file.substrate)
        parts["largest"] = substrate.maximum_area
        with collecting(problems, "memory"):
            technology = substrate.carry_memory(library.dram(file.memory.dram))
            parts["dram"] = file.memory.record(DramPart, technology=technology)
    with collecting(problems, "unit"):
        unit, node = library.unit(file.unit)
        unit = scaled_unit(unit, steps(node)) if known else unit
        with collecting(problems, ""):
            parts["compute"] = file.record(ComputePart, unit=unit)
    srams = []
    for i, level in enumerate(file.levels):
        with collecting(problems, f"levels[{i}].sram"):
            sram, node = library.sram(level.sram)
            if known:
                sram = scaled_sram(sram, steps(node))
                srams.append(level.record(SramPart, technology=sram))
    parts["srams"] = tuple(srams)
    for name, link in (("intra", file.intra), ("inter", file.inter)):
        if link is not None:
            with collecting(problems, f"{name}.link"):
                wire = library.link(link.link)
                if name == "intra" and not problems:
                    wire = substrate.carry_link(wire)
                usual = neighbours[name] if link.kind else 1
                others = {"technology": wire, "n_neighbours": link.neighbours or usual}
                parts[name] = link.record(LinkPart, **others)
    return parts


def _budget(file: FileModel, template: ChipTemplate, package_area: float) -> Budget:
    given = file.shares.given() if file.shares is not None else {}
    components = template.components
    problems = [
        Problem(f"shares.{kind}.{name}", unknown_field(name, components))
        for kind, parts in given.items()
        for name in parts
        if name not in components
    ]
    if problems:
        raise InputError(problems)
    known = {
        kind: {n: share for n, share in (given.get(kind) or usual).items() if n in components}
        for kind, usual in _SHARES.items()
    }
    return Budget(
        package_area=package_area,
        chip_area=file.chip_area,
        power=file.power,
        areas={name: share * file.chip_area for name, share in known["area"].items()},
        powers={name: share * file.power for name, share in known["power"].items()},
        edges=known["edge"],
    )
