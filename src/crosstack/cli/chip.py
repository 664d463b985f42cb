"""``crosstack chip``: chips made from a technology and a budget."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from crosstack.cli import inputs
from crosstack.cli.options import add_commands
from crosstack.cli.outputs import asked_files, json_text, show, write

if TYPE_CHECKING:
    from crosstack.io.chip_file import ChipDescription
    from crosstack.io.deepflow import DeepflowHardware
    from crosstack.io.technology import TechnologyLibrary

chip_app = typer.Typer(no_args_is_help=True, help="Make chips from a technology and a budget.")


def library_given(path: Path | None) -> TechnologyLibrary:
    """Return the technologies that ``--library`` adds to, or those shipped."""
    from crosstack.io.files import read_text
    from crosstack.io.technology import read_library, shipped

    return shipped() if path is None else read_library(read_text(path), str(path))


def generate_(
    file: Path,
    rules: str = "crosstack",
    library: Path | None = None,
    set_: list[str] | None = None,
    output: Path | None = None,
    json_out: Path | None = None,
) -> None:
    """Fill a chip from its area, power and edge, and say what binds each component."""
    from crosstack.io.native import write_system
    from crosstack.machine.generate.generated import generate
    from crosstack.machine.packages import divided_system, system_of_packages
    from crosstack.report.chip_text import chip_data, chip_tables

    inputs.check_outputs(file, {"--output": output, "--json": json_out})
    if output is not None:
        inputs.check_suffix("--output", output, inputs.YAML_SUFFIXES)
    chosen = inputs.rules_asked(rules, ("chips",))
    machine = _machine(described(file, library, set_ or []))
    text = ""
    with inputs.in_file(file):
        chip = generate(machine.template, machine.budget, chosen.chips)
        if output is not None:
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
    write(*asked_files((json_out, lambda: json_text(data))))
    if output is not None:
        write((output, text), note="; it takes a workload, see crosstack generate --system")


add_commands(chip_app, "chip", generate_)


def described(
    file: Path, library: Path | None, set_: list[str]
) -> ChipDescription | DeepflowHardware:
    """Return what a chip file or DeepFlow hardware YAML describes."""
    from crosstack.io import deepflow
    from crosstack.io.chip_file import read_chip
    from crosstack.io.files import read_text
    from crosstack.io.yaml_tree import parse_yaml

    text = read_text(file)
    with inputs.in_file(file):
        tree = parse_yaml(text)
    if deepflow.looks_like(tree):
        message = f"allowed with a chip file; {file} is DeepFlow's and names no technology."
        inputs.refuse({"--library": library}, message)
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
