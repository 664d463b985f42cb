"""The machine that a step is predicted on: its chip, its network, the order of ranks on it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from crosstack.errors import InputError, Problem
from crosstack.evaluate.predict import Program
from crosstack.io.chip_file import ChipDescription
from crosstack.io.deepflow import DeepflowHardware
from crosstack.io.deepflow.steps import order_of, program_of, system_of
from crosstack.io.library.named import LibraryMachine
from crosstack.machine.chip import Chip
from crosstack.machine.generate.generated import generate
from crosstack.machine.generate.generation import Generation
from crosstack.machine.network import NetworkLevel
from crosstack.machine.packages import system_of_packages
from crosstack.machine.system import System
from crosstack.mapping.strategy import MappingOrder, Strategy
from crosstack.workload.dtype import Dtype

__all__ = [
    "Levels", "Machine", "Ranked", "TypedChip", "as_measured", "joined", "ranked", "typed_chip",
]  # fmt: skip

Machine = ChipDescription | DeepflowHardware | LibraryMachine
Levels = tuple[NetworkLevel, NetworkLevel | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedChip:
    """A chip, the type of number that it computes with, and what it draws [W] if that is known."""

    chip: Chip
    dtype: Dtype
    power: float | None


def typed_chip(machine: Machine, rules: Generation) -> TypedChip:
    """Return the chip of a machine, generated where only its technology and budget are given.

    `InfeasibleError` or `InputError` if no chip comes of them.
    """
    if isinstance(machine, LibraryMachine):
        return TypedChip(chip=machine.chip, dtype=machine.dtype, power=machine.chip.power)
    built = generate(machine.template, machine.budget, rules)
    return TypedChip(chip=built.chip, dtype=machine.template.dtype, power=built.power)


def joined(machine: Machine, levels: Levels | None) -> Machine:
    """Return a machine whose chips, and packages where that is said, are joined as ``levels`` say.

    `InputError` if a file says itself what shares its links.
    """
    if levels is None or isinstance(machine, LibraryMachine):  # joined when its size is known
        return machine
    if not isinstance(machine, ChipDescription):
        message = "allowed with a chip file, or a machine of the library; this file says what "
        raise InputError(Problem("topology", message + "shares its links."))
    inside, between = levels
    return machine.joined(inside, between or machine.between)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A machine, the order of ranks on its network, and what predicts a step on it."""

    system: System
    order: MappingOrder | None
    step: Program


def ranked(
    machine: Machine,
    chip: Chip,
    strategy: Strategy,
    step: Program,
    *,
    levels: Levels | None = None,
    order: MappingOrder | None = None,
) -> Ranked:
    """Return what a strategy runs on.

    `InputError` if the order leaves out a dimension, a file says it itself, or there are too few
    chips.

    Parameters
    ----------
    machine : Machine
        As `joined` returns it.
    chip : Chip
        As `typed_chip` returns it.
    strategy : Strategy
        Which says how many chips a machine of the library has, unless that is given.
    step : Program
        What predicts a step; that of a release knows what else its files state.
    levels : tuple of NetworkLevel, optional
        How chips and nodes of the library are joined.
    order : tuple of ParallelDimension, optional
        The dimensions, innermost first; left out, the usual one or that of a file.
    """
    if isinstance(machine, LibraryMachine):
        return Ranked(system=machine.system(strategy, levels), order=order, step=step)
    if isinstance(machine, ChipDescription):
        system = system_of_packages(
            chip,
            chips_per_package=machine.chips_per_package,
            n_packages=machine.n_packages,
            inside=machine.inside,
            between=machine.between,
        )
        return Ranked(system=system, order=order, step=step)
    if order is not None:
        message = "allowed with a chip file, or a machine of the library; this file says what "
        raise InputError(Problem("order", message + "crosses."))
    program = program_of(step, machine)
    return Ranked(
        system=system_of(machine, chip),
        order=None if program is step else order_of(machine),
        step=program,
    )


def as_measured(machine: Machine, on: Ranked, typed: TypedChip) -> tuple[Ranked, TypedChip]:
    """Return what a strategy runs on, and its chip, as the machine was measured, where it was."""
    if not isinstance(machine, LibraryMachine) or not machine.calibration.said:
        return on, typed
    found, chip = machine.calibration, machine.calibration.chip(typed.chip)
    named = replace(chip, name=found.named(chip.name))
    return replace(on, system=found.applied(on.system)), replace(typed, chip=named)
