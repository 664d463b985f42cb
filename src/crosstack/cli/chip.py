"""``crosstack chip``: chips made from a technology and a budget."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crosstack.cli.inputs import check_outputs, in_file, rules_asked
from crosstack.cli.outputs import YAML_SUFFIXES, check_suffix, json_text, show, write
from crosstack.errors import InputError, Problem

if TYPE_CHECKING:
    from crosstack.io.chip_file import ChipDescription
    from crosstack.io.deepflow import DeepflowHardware
    from crosstack.io.technology import TechnologyLibrary

__all__ = ["Library", "chip_app", "described", "library_given"]

chip_app = typer.Typer(no_args_is_help=True, help="Make chips from a technology and a budget.")

Library = Annotated[
    Path | None,
    typer.Option("--library", metavar="FILE", help="Technologies of your own, as YAML."),
]


def library_given(path: Path | None) -> TechnologyLibrary:
    """Return the technologies that ``--library`` adds to, or those shipped."""
    from crosstack.io.technology import read_library, shipped

    if path is None:
        return shipped()
    from crosstack.io.files import read_text

    return read_library(read_text(path), str(path))


@chip_app.command("generate")
def generate_(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A chip file, or DeepFlow hardware YAML.")
    ],
    rules: Annotated[
        str,
        typer.Option(
            "--rules",
            metavar="NAME|FILE",
            help="What is counted: crosstack (default), deepflow-paper, deepflow-2025, "
            "deepflow-2021, or a YAML file of rules.",
        ),
    ] = "crosstack",
    library: Library = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PATH=VALUE",
            help="Change a field before the file is checked, e.g. `node=N3`. May be repeated.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="OUT", help="Save the machine as native YAML."),
    ] = None,
    json_out: Annotated[
        Path | None,
        typer.Option("--json", metavar="OUT", help="Save chip and budget as JSON, in SI units."),
    ] = None,
) -> None:
    """Fill a chip from its area, power and edge, and say what binds each component.

    With -o, the machine that the chips make is saved for `crosstack map` (`--system` of
    `crosstack generate` takes it).

    Example: `crosstack chip generate examples/chips/n5_hbm3.yaml --set node=N3 -o system.yaml`
    """
    from crosstack.io.native import write_system
    from crosstack.machine.generate.generated import generate
    from crosstack.machine.packages import divided_system, system_of_packages
    from crosstack.report.chip_text import chip_data, chip_tables

    check_outputs(file, {"--output": output, "--json": json_out})
    if output is not None:
        check_suffix("--output", output, YAML_SUFFIXES)
    chosen = rules_asked(rules, ("chips",))
    machine = _machine(described(file, library, set_ or []))
    with in_file(file):
        chip = generate(machine.template, machine.budget, chosen.chips)
    text = ""
    if output is not None:
        with in_file(file):
            system = system_of_packages(
                chip.chip,
                chips_per_package=machine.chips_per_package,
                n_packages=machine.n_packages,
                inside=machine.inside,
                between=machine.between,
            )
            text = write_system(divided_system(system))
    data = chip_data(chip, chosen.name)
    show(chip_tables(data))
    if json_out is not None:
        write((json_out, json_text(data)))
    if output is not None:
        write((output, text), note="; it takes a workload, see crosstack generate --system")


def described(
    file: Path, library: Path | None, set_: list[str]
) -> ChipDescription | DeepflowHardware:
    """Return what a chip file or DeepFlow hardware YAML describes."""
    from crosstack.io import deepflow
    from crosstack.io.chip_file import read_chip
    from crosstack.io.files import read_text
    from crosstack.io.yaml_tree import parse_yaml

    text = read_text(file)
    with in_file(file):
        tree = parse_yaml(text)
    if deepflow.looks_like(tree):
        if library is not None:
            message = f"allowed with a chip file; {file} is DeepFlow's and names no technology."
            raise InputError(Problem("--library", message))
        return deepflow.read_hardware(text, str(file), set_)
    return read_chip(text, str(file), set_, library_given(library))


def _machine(found: ChipDescription | DeepflowHardware) -> ChipDescription:
    """Return a description with the machine around the chip, whatever file it is from."""
    from crosstack.io.chip_file import ChipDescription
    from crosstack.machine.network import RING, SWITCH

    if isinstance(found, ChipDescription):
        return found
    return ChipDescription(
        template=found.template,
        budget=found.budget,
        chips_per_package=found.system.num_devices_per_node,
        n_packages=found.system.num_nodes,
        inside=RING,
        between=SWITCH,
    )
