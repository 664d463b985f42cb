"""Options that go together, as one record: a command that takes the record takes all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, signature
from typing import Any, get_type_hints

__all__ = ["with_options"]


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that takes every field of a record of options as an option of its own.

    Parameters
    ----------
    command : callable
        Parameters that are annotated with a dataclass stand for the fields of that class, whose
        annotations are those of typer.
    """
    hints = get_type_hints(command, include_extras=True)
    records = {
        name: kind for name, kind in hints.items() if is_dataclass(kind) and isinstance(kind, type)
    }
    taken: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        if name not in records:
            taken.append(parameter.replace(annotation=hints[name], kind=Parameter.KEYWORD_ONLY))
            continue
        inside = get_type_hints(records[name], include_extras=True)
        taken += [
            Parameter(
                field.name,
                Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=inside[field.name],
            )
            for field in fields(records[name])
        ]

    @wraps(command)
    def run(**given: Any) -> None:
        for name, kind in records.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        command(**given)

    made: Any = run
    made.__signature__ = signature(command).replace(parameters=taken)
    made.__annotations__ = {parameter.name: parameter.annotation for parameter in taken}
    del made.__wrapped__
    return run
