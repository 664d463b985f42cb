"""A prediction that was saved with ``crosstack predict --json``, read back and checked."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import PlainValidator

from crosstack.errors import InputError, Problem
from crosstack.io.native.problems import validate
from crosstack.io.native.schema import Count, FileModel, Text, number, shown
from crosstack.units import format_quantity

__all__ = ["check_prediction", "is_prediction"]

ROUNDING = 1e-6  # relative: what pieces may be off their sum

Seconds = Annotated[float, number("s")]
SecondsAboveZero = Annotated[float, number("s", above_zero=True)]
Bytes = Annotated[float, number("B")]
BytesAboveZero = Annotated[float, number("B", above_zero=True)]
Bandwidth = Annotated[float, number("B/s", above_zero=True)]
Throughput = Annotated[float, number("FLOP/s", above_zero=True)]
Factor = Annotated[float, number("1", above_zero=True)]


def _asked(value: object) -> object:
    """Return an option as it was given: text, a number, a yes or no, nothing, a list of them."""
    for one in value if isinstance(value, list) else [value]:
        finite = math.isfinite(one) if isinstance(one, float) else isinstance(one, str | int)
        if not (one is None or finite):
            allowed = "text, a number, true or false, or a list of them"
            raise InputError(Problem("", f"got {shown(one)}; allowed: {allowed}."))
    return value


Asked = Annotated[Any, PlainValidator(_asked)]


class SavedChip(FileModel):
    """The chip, in short."""

    name: Text
    throughput: Throughput
    memory_bandwidth: Bandwidth
    memory_capacity: BytesAboveZero


class SavedMemory(FileModel):
    """See `crosstack.model.memory.MemoryAccount`."""

    total: Bytes
    rows: dict[str, list[Bytes]]


class SavedLevel(FileModel):
    """What a kernel moves at one memory level."""

    traffic: Bytes
    bandwidth: Bandwidth
    passing: Bytes
    time: Seconds
    tile: list[Factor]


class SavedKernel(FileModel):
    """See `crosstack.model.kernels.clock.KernelTime`."""

    m: Count
    k: Count
    n: Count
    time: SecondsAboveZero
    bound: Text
    launch_time: Seconds
    compute_time: Seconds
    waiting_time: Seconds
    reduction_time: Seconds
    split: Factor
    n_tiles: Factor
    dataflow: Text
    utilization: Factor
    levels: dict[str, SavedLevel]


class SavedPrediction(FileModel):
    """See `crosstack.evaluate.predict.Prediction`."""

    crosstack_version: Text
    workload: Text
    strategy: Text
    n_chips: Count
    rules: Text
    inputs: dict[str, Asked]
    chip: SavedChip
    time: SecondsAboveZero
    run_time: SecondsAboveZero | None
    parts: dict[str, Seconds]
    busiest: Text | None
    busy: dict[str, Seconds]
    memory: SavedMemory | None
    kernel: SavedKernel | None = None


def is_prediction(data: dict[str, Any]) -> bool:
    """Whether a saved result is a prediction; otherwise it should be a mapping."""
    return "strategy" in data and "kernels" not in data


def check_prediction(data: dict[str, Any]) -> dict[str, Any]:
    """Return a saved prediction as it was written.

    Raises
    ------
    InputError
        If fields are missing, unknown or of another kind, or the pieces of the step do not add up
        to its time.
    """
    problems: list[Problem] = []
    found = validate(SavedPrediction, data, "", problems)
    if found is None:
        raise InputError(problems)
    total = sum(found.parts.values())
    if not math.isclose(total, found.time, rel_tol=ROUNDING):
        added, time = format_quantity(total, "s"), format_quantity(found.time, "s")
        message = f"add up to {added}; allowed: pieces of a step of {time}, as predict saves them."
        raise InputError(Problem("parts", message))
    if found.busiest not in (found.busy or [None]):
        allowed = ", ".join(list(found.busy)[:8]) or "null"
        raise InputError(Problem("busiest", f"got {shown(found.busiest)}; allowed: {allowed}."))
    if found.memory is not None:
        _check_memory(found.memory)
    return found.model_dump(exclude_unset=True)


def _check_memory(memory: SavedMemory) -> None:
    """Refuse rows of different numbers of stages, and a total that is not their peak."""
    stages = sorted({len(sizes) for sizes in memory.rows.values()})
    if len(stages) > 1:
        message = f"got rows of {stages[0]} and {stages[-1]} stages; allowed: as many in each."
        raise InputError(Problem("memory.rows", message))
    peak = max((sum(sizes) for sizes in zip(*memory.rows.values(), strict=True)), default=0.0)
    if not math.isclose(peak, memory.total, rel_tol=ROUNDING):
        added, total = format_quantity(peak, "B"), format_quantity(memory.total, "B")
        message = f"add up to {added}; allowed: rows of {total}, as predict saves them."
        raise InputError(Problem("memory.rows", message))
