"""A prediction that was saved with ``crosstack predict --json``, read back and checked."""

from __future__ import annotations

from typing import Annotated, Any

from crosstack.errors import InputError, Problem
from crosstack.io.native.problems import validate
from crosstack.io.native.schema import Bytes, Count, FileModel, Seconds, Text, quantity

__all__ = ["check_prediction", "is_prediction"]

Rate = Annotated[float, quantity("1/s")]


class SavedChip(FileModel):
    """The chip, in short."""

    name: Text
    throughput: Rate
    memory_bandwidth: Rate
    memory_capacity: Bytes


class SavedMemory(FileModel):
    """See `crosstack.evaluate.footprint.Footprint`."""

    total: Bytes
    weights: Bytes
    activations: Bytes
    scratch: Bytes
    parts: dict[str, Bytes]


class SavedLevel(FileModel):
    """What a kernel moves at one memory level."""

    traffic: Bytes
    bandwidth: Annotated[float, quantity("B/s")]
    passing: Bytes
    time: Seconds
    tile: list[Annotated[float, quantity("1")]]


class SavedKernel(FileModel):
    """See `crosstack.chip.roofline.KernelTime`."""

    m: Count
    k: Count
    n: Count
    time: Seconds
    bound: Text
    launch_time: Seconds
    compute_time: Seconds
    waiting_time: Seconds
    reduction_time: Seconds
    split: Annotated[float, quantity("1")]
    n_tiles: Annotated[float, quantity("1")]
    dataflow: Text
    utilization: Annotated[float, quantity("1")]
    levels: dict[str, SavedLevel]


class SavedPrediction(FileModel):
    """See `crosstack.evaluate.predict.Prediction`."""

    crosstack_version: Text
    workload: Text
    strategy: Text
    n_chips: Count
    rules: Text
    inputs: dict[str, Any]
    chip: SavedChip
    time: Seconds
    run_time: Seconds | None
    parts: dict[str, Seconds]
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
        If fields are missing, unknown or of another kind.
    """
    problems: list[Problem] = []
    found = validate(SavedPrediction, data, "", problems)
    if found is None:
        raise InputError(problems)
    return found.model_dump(exclude_unset=True)
