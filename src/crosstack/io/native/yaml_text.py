"""Values and records as YAML: on one line each, but for sections and rows."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./-]+)*")
_NOT_PLAIN = {"null", "true", "false"}
_LONGEST_KEY = 200  # YAML wants an implicit key to end within 1024 characters


def changed(record: Any) -> dict[str, Any]:
    """Return the fields of a record that differ from their defaults, and its name."""
    return {
        f.name: getattr(record, f.name)
        for f in dataclasses.fields(record)
        if f.default is dataclasses.MISSING or getattr(record, f.name) != f.default
    }


class Section(dict[str, Any]):
    """Fields on a line each, below the name of what they are of."""


class Rows(list[Any]):
    """Entries on a line each, or each a `Section`."""


def block_lines(fields: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Yield a line for each field and for what is inside sections and rows."""
    for name, value in fields.items():
        if isinstance(value, Section | Rows) and value:
            yield f"{indent}{name}:"
        if isinstance(value, Section) and value:
            yield from block_lines(value, f"{indent}  ")
        elif isinstance(value, Rows) and value:
            for row in value:
                lines = (
                    block_lines(row, f"{indent}    ") if isinstance(row, Section) else [flow(row)]
                )
                first, *rest = lines
                yield f"{indent}  - {first.lstrip()}"
                yield from rest
        else:
            yield f"{indent}{name}: {flow(value)}"


def block_text(fields: Mapping[str, Any]) -> str:
    """Return fields as YAML, with sections and rows over several lines."""
    return "\n".join(block_lines(fields)) + "\n"


def flow(value: Any) -> str:
    """Return ``value`` as YAML on one line."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return flow(changed(value))
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_key(k)}: {flow(v)}' for k, v in value.items())}}}"
    if isinstance(value, Iterable):
        return f"[{', '.join(map(flow, value))}]"
    raise TypeError(type(value).__name__)


def _number(value: float) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return repr(value)


def _key(name: str) -> str:
    text = _text(name)
    return text if len(text) <= _LONGEST_KEY else f"? {text} "


def _text(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.casefold() not in _NOT_PLAIN:
        return text
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in ('"', "\\"):
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08x}"
