"""What ``crosstack codesign``, ``optimize``, ``predict`` and ``map`` saved, read and checked.

Which fields there are is in ``saved.yaml``.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import PlainValidator

from crosstack.errors import InputError, Problem
from crosstack.io.native.problems import checked
from crosstack.io.native.schema import number, refused
from crosstack.io.native.tables import Table
from crosstack.units import format_quantity

ROUNDING = 1e-6  # relative: what pieces may be off their sum


def _signed(value: object) -> float:
    """Return a finite number, perhaps below 0."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf:
        return float(value)
    raise refused(value, "a finite number")


def _option(value: object) -> object:
    """Return an option as it was given: text, a number, a yes or no, nothing, a list of them."""
    for one in value if isinstance(value, list) else [value]:
        finite = math.isfinite(one) if isinstance(one, float) else isinstance(one, str | int)
        if not (one is None or finite):
            raise refused(one, "text, a number, true or false, or a list of them")
    return value


def _result(value: object) -> dict[str, Any]:
    """Return a saved mapping, which is checked with its task where it is shown."""
    if isinstance(value, dict):
        return value
    raise refused(value, "a saved mapping")


SAVED = Table(
    __package__,
    "saved.yaml",
    {
        "amount": Annotated[float, number("1")],
        "size": Annotated[float, number("1", above_zero=True)],
        "signed": Annotated[float, PlainValidator(_signed)],
        "result": Annotated[dict[str, Any], PlainValidator(_result)],
        "option": Annotated[Any, PlainValidator(_option)],
        **{unit: Annotated[float, number(unit)] for unit in ("s", "B")},
        **{
            f"{unit} > 0": Annotated[float, number(unit, above_zero=True)]
            for unit in ("s", "B", "B/s", "FLOP/s")
        },
    },
)


def is_front(data: dict[str, Any]) -> bool:
    """Whether a saved result is that of ``crosstack codesign``."""
    return "front" in data


def is_optimum(data: dict[str, Any]) -> bool:
    """Whether a saved result is that of ``crosstack optimize``."""
    return "choices" in data and "front" not in data


def is_prediction(data: dict[str, Any]) -> bool:
    """Whether a saved result is a prediction; otherwise it should be a mapping."""
    return "strategy" in data and "kernels" not in data


def is_infeasible(data: dict[str, Any]) -> bool:
    """Whether a saved result says why nothing fits."""
    return "in_vain" in data


def check_ways(data: dict[str, Any]) -> dict[str, Any]:
    """Return saved ways to fit as they were written; `InputError` as of `check_front`."""
    checked(SAVED["ways"], data)
    return data


def check_front(data: dict[str, Any]) -> dict[str, Any]:
    """Return a saved front as it was written.

    `InputError` if fields are missing, unknown or of another kind, or contradict one another.
    """
    found = checked(SAVED["front"], data)
    problems = [
        _other(f"{name}[{i}].choice", found.choices)
        for name in ("front", "dominated")
        for i, machine in enumerate(getattr(found, name))
        if list(machine.choice) != list(found.choices)
    ]
    if problems:
        raise InputError(problems)
    return data


def check_optimum(data: dict[str, Any]) -> dict[str, Any]:
    """Return a saved best design as it was written; `InputError` as of `check_front`."""
    found = checked(SAVED["optimum"], data)
    problems = [
        _other(f"choices[{i}].choice", found.choice)
        for i, choice in enumerate(found.choices)
        if list(choice.choice) != list(found.choice)
    ]
    if found.choice not in [choice.choice for choice in found.choices]:
        problems.append(Problem("choice", "is none of the choices; allowed: one of them."))
    if set(found.given_shares) != set(found.shares):
        problems.append(_other("given_shares", found.shares))
    if problems:
        raise InputError(problems)
    return data


def check_prediction(data: dict[str, Any]) -> dict[str, Any]:
    """Return a saved prediction as it was written; `InputError` as of `check_front`.

    The pieces of the step have to add up to its time.
    """
    found = checked(SAVED["prediction"], data)
    _check_sum("parts", sum(found.parts.values()), found.time, "s", "pieces of a step")
    if found.busiest not in (found.busy or [None]):
        raise refused(found.busiest, ", ".join(list(found.busy)[:8]) or "null").under("busiest")
    if found.memory is not None:
        rows = found.memory.rows.values()
        stages = sorted({len(sizes) for sizes in rows})
        if len(stages) > 1:
            message = f"got rows of {stages[0]} and {stages[-1]} stages; allowed: as many in each."
            raise InputError(Problem("memory.rows", message))
        peak = max((sum(sizes) for sizes in zip(*rows, strict=True)), default=0.0)
        _check_sum("memory.rows", peak, found.memory.total, "B", "rows")
    return found.model_dump(exclude_unset=True)


def _check_sum(path: str, added: float, total: float, unit: str, of: str) -> None:
    """Refuse what does not add up."""
    if not math.isclose(added, total, rel_tol=ROUNDING):
        came, said = format_quantity(added, unit), format_quantity(total, unit)
        message = f"add up to {came}; allowed: {of} of {said}, as predict saves them."
        raise InputError(Problem(path, message))


def _other(path: str, fields: dict[str, Any]) -> Problem:
    return Problem(path, f"has other fields; allowed: {', '.join(fields) or 'none'}.")
