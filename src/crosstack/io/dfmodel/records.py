"""Building records from message fields: values looked up, error paths said in DFModel's words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from crosstack.errors import InputError, Problem
from crosstack.io.dfmodel.schema import ENUMS

T = TypeVar("T")


@contextmanager
def fields_of(path: str, names: Mapping[str, str]) -> Iterator[None]:
    """Say the errors of a record, made from the block at ``path``, in the file's words.

    ``names``: field of the record -> field of the block, or a whole path after a leading ``/``.
    """
    try:
        yield
    except InputError as error:
        raise InputError(
            problem.at(_renamed(path, names, problem.path)) for problem in error.problems
        ) from None


def _renamed(path: str, names: Mapping[str, str], field: str) -> str:
    name = names.get(field, field)
    return name[1:] if name.startswith("/") else f"{path}.{name}"


def choice(
    path: str, enum: str, number: int, meanings: Mapping[str, T], *, unset: T | None = None
) -> T:
    """Return what a value of ``enum`` means; ``unset`` for 0, where that may be left out.

    Raises
    ------
    InputError
        If the value is not set and must be, or is none of the enum's.
    """
    if number == 0 and unset is not None:
        return unset
    values = ENUMS[enum]
    word = values[number] if 0 < number < len(values) else None
    if word is None or word not in meanings:
        came = "not set" if number == 0 else f"got {word or number}"
        raise InputError(Problem(path, f"{came}; allowed: {', '.join(meanings)}."))
    return meanings[word]


def unsupported(path: str, what: str, allowed: str) -> InputError:
    """Return the error for something DFModel has and crosstack has not."""
    return InputError(Problem(path, f"{what} is not supported yet; allowed: {allowed}."))
