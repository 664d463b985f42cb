"""DFModel text to message: parsing, errors that name the field, and overrides."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from google.protobuf import text_format
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from crosstack.errors import InputError, Problem, did_you_mean
from crosstack.io.dfmodel.schema import ENUMS, REPEATED, new_dse
from crosstack.io.yaml_tree import Change

_TOKEN = re.compile(
    r"""\#[^\n]* | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' | [{}<>:;,] | [^\s{}<>:;,"'\#]+""",
    re.VERBOSE,
)
_ELEMENT = re.compile(r"(\w+)(?:\[(\d+)\])?")


def unknown(what: str, name: str, allowed: Iterable[str]) -> str:
    """Return the message for a name that is not among the allowed ones, with the nearest."""
    allowed = list(allowed)
    return f"{what}.{did_you_mean(name, allowed)} Allowed: {', '.join(allowed)}."


def _unknown_value(enum: EnumDescriptor, name: str) -> str:
    return unknown(f'unknown value "{name}"', name, ENUMS[enum.name][1:])


def parse_text(text: str) -> Any:
    """Parse a DFModel file; `InputError` names field, line and column of the first mistake."""
    dse = new_dse()
    try:
        text_format.Parse(text, dse)
    except text_format.ParseError as error:
        raise _explain(error, text, dse.DESCRIPTOR) from None
    return dse


def _path_at(text: str, line: int, column: int) -> tuple[str, ...]:
    """Return the blocks open at a position, with their numbers, and the last name read."""
    end = sum(len(row) + 1 for row in text.split("\n")[: line - 1]) + column - 1
    blocks: list[str] = []
    counts: list[dict[str, int]] = [{}]
    last, is_value = "", False
    for token in _TOKEN.finditer(text):
        word = token.group()
        if token.start() > end or (token.start() == end and word in "{}<>:;,"):
            break
        if word.startswith("#") or word in ";,":
            continue
        if word in "{<":
            number = counts[-1].get(last, 0)
            counts[-1][last] = number + 1
            blocks.append(f"{last}[{number}]" if last in REPEATED else last)
            counts.append({})
            last, is_value = "", False
        elif word in "}>":
            if not blocks:
                break
            blocks.pop()
            counts.pop()
            last, is_value = "", False
        elif word == ":":
            is_value = True
        elif is_value:
            is_value = False
        else:
            last = word
    return (*blocks, last) if last else tuple(blocks)


def _explain(error: text_format.ParseError, text: str, root: Descriptor) -> InputError:
    line, column = error.GetLine() or 1, error.GetColumn() or 1
    names = _path_at(text, line, column)
    rows = text.split("\n")
    raw = re.sub(r"^\d+:\d+ : ", "", str(error))
    raw = raw.removeprefix(f"'{rows[line - 1] if line <= len(rows) else ''}': ")
    path, where = ".".join(names), f" (line {line}, column {column})"
    parent, field = _resolve(root, names)
    if "has no field named" in raw and parent is not None:
        message = unknown("unknown field", names[-1], parent.fields_by_name)
    elif "has no value named" in raw and field is not None and field.enum_type is not None:
        message = _unknown_value(field.enum_type, raw.rsplit(" ", 1)[-1].rstrip("."))
    elif parse := re.match(r"Couldn't parse (\w+): (.*)", raw):
        kind = {"integer": "a whole number", "float": "a number"}.get(parse[1], parse[1])
        message = f"got {parse[2]}; allowed: {kind}."
    elif other := re.match(r'Field "\w+" is specified along with field "(\w+)"', raw):
        message = f'"{other[1]}" is given already; allowed: one of them.'
    elif "should not have multiple" in raw:
        message = "given more than once; allowed: once."
    else:
        message = raw.replace("crosstack.dfmodel.", "").rstrip(".") + "."
    return InputError(Problem(path, message.removesuffix(".") + where + "."))


def _resolve(
    root: Descriptor, names: tuple[str, ...]
) -> tuple[Descriptor | None, FieldDescriptor | None]:
    """Return the message the last name stands in, and its field if there is one."""
    message: Descriptor | None = root
    for name in names[:-1]:
        field = message.fields_by_name.get(name.partition("[")[0]) if message else None
        message = field.message_type if field else None
    if message is None or not names:
        return None, None
    return message, message.fields_by_name.get(names[-1])


def apply_override(dse: Any, override: Change) -> None:
    """Set one field of a parsed file: ``path=value``, as in ``system.r_r.link_bw_x=450``.

    `InputError` if the path or the value is not one of the schema; names the nearest.
    """
    if isinstance(override, str):
        path, equals, value = (part.strip() for part in override.partition("="))
        if not equals or not path:
            raise InputError(Problem(override, "allowed: path=value."))
    else:  # numbers and text as the format writes them
        path, value = override[0], json.dumps(override[1])
    *blocks, last = path.split(".")
    if blocks and blocks[0] in ("execution", "miscellany"):  # two names of one block
        blocks[0] = next((b for b in ("execution", "miscellany") if dse.HasField(b)), blocks[0])
    message, walked = dse, ""
    for element in blocks:
        walked = f"{walked}.{element}" if walked else element
        message = _entered(message, element, walked)
    walked = f"{walked}.{last}" if walked else last
    field, number = _field(message, last, walked)
    if field.message_type is not None:
        inside = ", ".join(field.message_type.fields_by_name)
        raise InputError(Problem(walked, f"this is a block; allowed: one of its fields: {inside}."))
    if number is not None:
        raise InputError(Problem(walked, f"there is one of it; allowed: {field.name}."))
    setattr(message, field.name, _value(field, value, walked))


def _field(message: Any, element: str, path: str) -> tuple[FieldDescriptor, int | None]:
    """Return the field called ``element``, and the number of its entry where that is said."""
    parts = _ELEMENT.fullmatch(element)
    fields = message.DESCRIPTOR.fields_by_name
    if parts is None or parts[1] not in fields:
        name = parts[1] if parts else element
        raise InputError(Problem(path, unknown("unknown field", name, fields)))
    field = fields[parts[1]]
    if field.containing_oneof is not None:
        given = message.WhichOneof(field.containing_oneof.name)
        if given not in (None, field.name):
            raise InputError(Problem(path, f'the file gives "{given}"; allowed: {given}.'))
    return field, None if parts[2] is None else int(parts[2])


def _entered(message: Any, element: str, path: str) -> Any:
    """Return the block called ``element``."""
    field, number = _field(message, element, path)
    if field.message_type is None:
        raise InputError(Problem(path, "this is a field, not a block: nothing stands in it."))
    inner = getattr(message, field.name)
    if field.name not in REPEATED:
        if number is not None:
            raise InputError(Problem(path, f"there is one of it; allowed: {field.name}."))
        return inner
    if number is None or number >= len(inner):
        allowed = f"{field.name}[0] to {field.name}[{len(inner) - 1}]" if inner else "none"
        raise InputError(Problem(path, f"allowed: {allowed}."))
    return inner[number]


def _value(field: FieldDescriptor, value: str, path: str) -> int | float | bool | str:
    if field.enum_type is not None:
        values = field.enum_type.values_by_name
        if value not in values:
            raise InputError(Problem(path, _unknown_value(field.enum_type, value)))
        return int(values[value].number)
    if field.type == FieldDescriptor.TYPE_STRING:
        return value.strip("\"'")
    if field.type == FieldDescriptor.TYPE_BOOL:
        if value.lower() not in ("true", "false"):
            raise InputError(Problem(path, f"got {value}; allowed: true or false."))
        return value.lower() == "true"
    whole = field.type == FieldDescriptor.TYPE_INT64
    try:
        number = int(value) if whole else float(value)
        if abs(number) >= 2**63 and whole:
            raise ValueError
    except ValueError:
        kind = "a whole number" if whole else "a number"
        raise InputError(Problem(path, f"got {value}; allowed: {kind}.")) from None
    return number
