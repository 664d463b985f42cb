"""The ``system.chip`` section of a native file, made into a `Chip`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from crosstack.errors import InputError, Problem
from crosstack.io.library import chip as library_chip
from crosstack.io.library import names
from crosstack.io.native.task_schema import ChipFile, LevelFile
from crosstack.machine.chip import Chip, Link, flat_chip, flat_fields, relative_rates
from crosstack.machine.compute import Compute
from crosstack.machine.memory import MemoryLevel
from crosstack.workload.dtype import Dtype

REQUIRED = ("n_cores", "lanes", "stages", "frequency", "sram_capacity")
_CELLS = ("n_cores", "lanes", "stages", "sram_capacity", "memory_units", "memory_unit_capacity")
FLAT = (*REQUIRED, "utilization", "memory_units", "memory_unit_capacity", "rates",
        "relative_rates")  # fmt: skip
LEVELLED = ("levels", "intra", "inter")
NULLABLE = {"utilization", "rates"}  # null takes what a library entry has away


def whole_chip(file: ChipFile) -> Chip:
    """Return a chip that the file describes as its record is, without memories."""
    assert file.compute is not None  # the caller asked
    compute = file.compute.given()
    for name in ("relative_rates", "relative_vector_rates"):
        compute[name] = _in_order(compute.get(name) or {})
    others = compute.pop("accumulator_rates", None) or {}
    compute["accumulator_rates"] = tuple(
        (dtype, sums, share) for dtype, shares in others.items() for sums, share in shares.items()
    )
    given = {k: v for k, v in file.given().items() if v is not None and k in Chip.__slots__}
    given["compute"] = Compute(**compute)
    given["fusions"] = tuple(given.get("fusions", ()))
    given["levels"], given["memories"] = read_levels(file.levels or ()), ()
    for name in ("intra", "inter"):
        if name in given:
            given[name] = Link(**given[name].given())
    return Chip(**given)


def read_levels(files: Iterable[LevelFile]) -> tuple[MemoryLevel, ...]:
    """Return levels of memory; raises `InputError` for the first that is wrong."""
    return tuple(MemoryLevel(**level.given()) for level in files)


def flat_of(given: dict[str, Any]) -> Chip:
    """Return the flat chip that the fields of a file make."""
    values = {name: value for name, value in given.items() if name != "rates"}
    values["fusions"] = tuple(values.get("fusions", ()))
    shares = dict(values.pop("relative_rates", {}))
    shares |= relative_rates(given.get("rates") or {}, values)
    return flat_chip(**values, relative_rates=_in_order(shares))


def changed_chip(base: Chip, given: dict[str, Any]) -> Chip:
    """Return a chip of the library with the fields that a file gives over its own.

    `InputError` if it is not of cores alone and fields of one are given, or for a bad number.
    """
    flat = flat_fields(base)
    if flat is not None:
        rates = {} if given.get("rates", {}) is None else dict(flat["relative_rates"])
        rates |= given.get("relative_rates", {})
        made = flat_of({**flat, **given, "relative_rates": rates})
        return replace(made, memories=base.memories)
    wrong = [
        Problem(name, f"{base.name} has levels and no cells; describe it with compute and levels.")
        for name in _CELLS
        if name in given
    ]
    if wrong:
        raise InputError(wrong)
    changed = base
    if "frequency" in given:
        known = base.name in names("chips")
        changed = (
            replace(library_chip(base.name, frequency=given["frequency"]), memories=base.memories)
            if known
            else base.with_compute(frequency=given["frequency"])
        )
        changed = replace(changed, intra=base.intra, inter=base.inter)
    compute = {name: given[name] for name in ("utilization",) if name in given}
    if "rates" in given or "relative_rates" in given:
        compute["relative_rates"] = _rates(changed, given)
    simple = {k: v for k, v in given.items() if k in Chip.__slots__ and k != "fusions"}
    if "fusions" in given:
        simple["fusions"] = tuple(given["fusions"])
    return replace(changed.with_compute(**compute), **simple)


def _rates(base: Chip, given: dict[str, Any]) -> tuple[tuple[Dtype, float], ...]:
    """Return the chip's rates with the file's over them; none where the file says null."""
    if given.get("rates", {}) is None:
        return ()
    found = dict(base.compute.relative_rates) | given.get("relative_rates", {})
    found |= {d: rate / base.peak_throughput for d, rate in given.get("rates", {}).items()}
    return _in_order(found)


def _in_order(shares: dict[Dtype, float]) -> tuple[tuple[Dtype, float], ...]:
    return tuple((dtype, shares[dtype]) for dtype in Dtype if dtype in shares)
