"""What ``crosstack codesign`` and ``crosstack optimize`` saved, read back and checked."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, PlainValidator

from crosstack.errors import InputError, Problem
from crosstack.io.native.problems import validate
from crosstack.io.native.schema import Count, FileModel, Index, Text, number, shown


def _signed(value: object) -> float:
    """Return a finite number, perhaps below 0."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf:
        return float(value)
    raise InputError(Problem("", f"got {shown(value)}; allowed: a finite number."))


Amount = Annotated[float, number("1")]
Size = Annotated[float, number("1", above_zero=True)]
Signed = Annotated[float, PlainValidator(_signed)]
Labels = dict[str, Text]


class FrontDegrees(FileModel):
    """How a machine is mapped."""

    tp: Count
    pp: Count
    dp: Count


class FrontChip(FileModel):
    """The chip of a machine, in short."""

    throughput: Size
    sram_capacity: Amount
    memory_bandwidth: Size


class FrontMachine(FileModel):
    """A machine that was mapped."""

    choice: Labels
    throughput_per_s: Size
    price_usd: Amount
    power_w: Amount
    time_s: Size
    bound_s: Amount
    status: Text
    parallelism: FrontDegrees
    bound_by: Text
    chip: FrontChip
    chip_area_m2: Size
    die_price_usd: Amount
    die_yield: Amount


class FrontMember(FrontMachine):
    """A machine on the front."""

    shares: dict[str, Amount]
    system: Text


class SavedFront(FileModel):
    """See `crosstack.report.front_text.front_data`."""

    crosstack_version: Text
    workload: Text
    item: Text
    rules: Text
    without_price: list[Text]
    choices: dict[str, list[Text]]
    n_choices: Count
    candidates: Count
    mapped: Count
    not_mapped: Index
    no_machine: dict[str, Count]
    front: Annotated[list[FrontMember], Field(min_length=1)]
    dominated: list[FrontMachine]


class ReadFields(FileModel):
    """A mapping of which only these fields are read."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class ChipCompute(ReadFields):
    """See `crosstack.machine.compute.Compute`."""

    n_units: Count
    n_multiprocessors: Count
    frequency: Amount
    voltage: Amount | None
    utilization: Amount


class ChipLevel(ReadFields):
    """See `crosstack.machine.memory.MemoryLevel`."""

    name: Text
    scope: Literal["unit", "multiprocessor", "chip"]
    capacity: Amount
    capacity_of_instance: Amount
    bandwidth: Amount
    energy_per_bit: Amount


class ChipLink(ReadFields):
    """See `crosstack.machine.chip.Link`."""

    n_links: Index
    frequency: Amount
    bandwidth: Amount
    voltage: Amount


class MadeChip(ReadFields):
    """See `crosstack.machine.chip.Chip`."""

    name: Text
    compute: ChipCompute
    levels: Annotated[list[ChipLevel], Field(min_length=1)]
    intra: ChipLink | None
    inter: ChipLink | None
    peak_throughput: Amount
    throughput: Amount
    n_stacks: Index


class ChipComponent(ReadFields):
    """See `crosstack.machine.generate.generated.Component`."""

    name: Text
    area: Amount
    area_budget: Amount
    power: Amount
    power_budget: Amount
    size_bound: Text
    rate_bound: Text


class OptimumChip(ReadFields):
    """See `crosstack.report.chip_text.chip_data`."""

    rules: Text
    hierarchy: MadeChip
    components: list[ChipComponent]
    area: Amount
    power: Amount
    unused_area: Signed
    unused_power: Signed
    warnings: list[Text]


class OptimumMetrics(FileModel):
    """See `crosstack.explore.design.Metrics`."""

    time: Amount
    energy: Amount
    energy_delay: Amount
    power: Amount
    area: Amount


class OptimumChoice(FileModel):
    """What became of a choice."""

    choice: Labels
    status: Literal["searched", "pruned", "left", "impossible"]
    best: Amount | None
    first: Amount | None
    bound: Amount | None
    reason: Text | None
    history: list[Amount | None] | None


class SavedOptimum(FileModel):
    """See `crosstack.report.optimize_text.optimum_data`."""

    crosstack_version: Text
    workload: Text
    objective: Literal["time", "energy", "energy_delay", "power", "area"]
    unit: Text
    best: Size
    bound: Amount | None
    choice: Labels
    metrics: OptimumMetrics
    energy_basis: Text
    given_shares: dict[str, Amount]
    shares: dict[str, Amount]
    chip: OptimumChip
    evaluations: Count
    choices: Annotated[list[OptimumChoice], Field(min_length=1)]


def is_front(data: dict[str, Any]) -> bool:
    """Whether a saved result is that of ``crosstack codesign``."""
    return "front" in data


def is_optimum(data: dict[str, Any]) -> bool:
    """Whether a saved result is that of ``crosstack optimize``."""
    return "choices" in data and "front" not in data


def check_front(data: dict[str, Any]) -> dict[str, Any]:
    """Return a saved front as it was written.

    `InputError` if fields are missing, unknown or of another kind, or contradict one another.
    """
    problems: list[Problem] = []
    found = validate(SavedFront, data, "", problems)
    if found is not None:
        for name, machines in (("front", found.front), ("dominated", found.dominated)):
            for i, machine in enumerate(machines):
                if list(machine.choice) != list(found.choices):
                    problems.append(_other(f"{name}[{i}].choice", found.choices))
    if problems:
        raise InputError(problems)
    return data


def check_optimum(data: dict[str, Any]) -> dict[str, Any]:
    """Return a saved best design as it was written; `InputError` as of `check_front`."""
    problems: list[Problem] = []
    found = validate(SavedOptimum, data, "", problems)
    if found is not None:
        for i, choice in enumerate(found.choices):
            if list(choice.choice) != list(found.choice):
                problems.append(_other(f"choices[{i}].choice", found.choice))
        if found.choice not in [choice.choice for choice in found.choices]:
            problems.append(Problem("choice", "is none of the choices; allowed: one of them."))
        if set(found.given_shares) != set(found.shares):
            problems.append(_other("given_shares", found.shares))
    if problems:
        raise InputError(problems)
    return data


def _other(path: str, fields: dict[str, Any]) -> Problem:
    return Problem(path, f"has other fields; allowed: {', '.join(fields) or 'none'}.")
