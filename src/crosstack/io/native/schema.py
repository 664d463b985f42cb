"""The values of a native YAML file, each with its check, and what its mappings have in common."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    TypeGuard,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
)

from pydantic import AliasChoices, BaseModel, ConfigDict, PlainValidator, model_validator
from pydantic.fields import FieldInfo

from crosstack.errors import InputError, Problem, did_you_mean, require_quantity
from crosstack.records import words_of
from crosstack.units import parse_quantity

SMALLEST, LARGEST = 1e-60, 1e60  # quantities in a file, whatever the unit


def shown(value: object) -> str:
    """Return ``value`` for an error message, cut to a readable length."""
    if isinstance(value, int) and abs(value) >= 10**40:
        return "a huge number"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:50]}...{text[-1]}"


def refused(value: object, allowed: str) -> InputError:
    """Return the error for a value that is not what is ``allowed``."""
    return InputError(Problem("", f"got {shown(value)}; allowed: {allowed}."))


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        quote = ' (put it in quotes: "...")' if isinstance(value, int | float) else ""
        raise refused(value, f"text{quote}")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise refused(value, "true or false")
    return value


def _whole(value: object, minimum: int = 1) -> int:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)  # 1e3 is 1000
    good = isinstance(value, int) and not isinstance(value, bool) and minimum <= value < 2**53
    if not isinstance(value, int) or not good:
        raise refused(value, f"a whole number, at least {minimum}")
    return value


def _quantity(value: object, unit: str, above_zero: bool = False) -> float:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise refused(value, f"a number [{unit}] or text with a unit")
    number = parse_quantity(value, unit)
    require_quantity("", number, unit, above_zero=above_zero)
    # So that no product or quotient of a few quantities leaves the range of a float.
    if not (number == 0 or SMALLEST <= number <= LARGEST):
        zero = "" if above_zero else "0, or "
        raise refused(value, f"{zero}{SMALLEST:g} to {LARGEST:g} [{unit}]")
    return number


def _number(value: object, unit: str, above_zero: bool = False) -> float:
    if isinstance(value, str):
        raise refused(value, f"a number [{unit}]")
    return _quantity(value, unit, above_zero)


def _one_of(value: object, choices: Mapping[str, object]) -> object:
    if type(value) is int and str(value) in choices:  # YAML reads a word that is a number as one
        return choices[str(value)]
    if not isinstance(value, str) or value not in choices:
        hint = did_you_mean(value, choices) if isinstance(value, str) else ""
        message = f"got {shown(value)}; allowed: {', '.join(choices)}.{hint}"
        raise InputError(Problem("", message))
    return choices[value]


def _names(value: object) -> list[str]:
    """Return a list of names; one name alone is a list of one."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
        raise refused(value, "a name, or a list of names")
    return value


def _checked(check: Callable[..., Any], **options: Any) -> PlainValidator:
    return PlainValidator(partial(check, **options))


def one_of(choices: type[StrEnum] | Mapping[str, object]) -> PlainValidator:
    """Return the check of a field that holds the name of one of ``choices``."""
    named = choices if isinstance(choices, Mapping) else words_of(choices)
    return _checked(_one_of, choices=named)


def quantity(unit: str, *, above_zero: bool = False) -> PlainValidator:
    """Return the check of a field that holds a quantity in ``unit``, or text with a unit of it."""
    return _checked(_quantity, unit=unit, above_zero=above_zero)


def number(unit: str, *, above_zero: bool = False) -> PlainValidator:
    """Return the check of a field that a program has written: a number in ``unit``, no text."""
    return _checked(_number, unit=unit, above_zero=above_zero)


Text = Annotated[str, _checked(_text)]
Flag = Annotated[bool, _checked(_flag)]
Count = Annotated[int, _checked(_whole)]
Index = Annotated[int, _checked(_whole, minimum=0)]
Names = Annotated[list[str], _checked(_names)]


Record = TypeVar("Record")


class FileModel(BaseModel):
    """Base of every mapping in a file: an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    alone: ClassVar[dict[type, str]] = {}
    """The field that a value of a type may stand for, instead of the mapping."""
    before: ClassVar[Callable[[Any], Any] | None] = None
    """What is made of a mapping before its fields are looked at."""

    @model_validator(mode="before")
    @classmethod
    def _opened(cls, value: Any) -> Any:
        field = next((f for kind, f in cls.alone.items() if isinstance(value, kind)), None)
        value = value if field is None else {field: value}
        return value if cls.before is None else cls.before(value)

    def given(self, *nullable: str) -> dict[str, Any]:
        """Return the fields that the file gives; null is as left out, but of ``nullable``."""
        named = (name for name in type(self).model_fields if name in self.model_fields_set)
        given = {name: getattr(self, name) for name in named}
        return {name: v for name, v in given.items() if v is not None or name in nullable}

    def record(self, kind: type[Record], path: str = "", /, **others: Any) -> Record:
        """Return a record of the fields that are called as its own, and of others.

        `InputError` by the fields of the file, under ``path``.
        """
        made: Any = kind
        shared = {f.name for f in dataclasses.fields(made)} & type(self).model_fields.keys()
        given = {name: v for name in shared if (v := getattr(self, name)) is not None}
        try:
            return cast(Record, made(**given | others))
        except InputError as error:
            raise error.renamed(names_in_file(type(self))).under(path) from None

    if TYPE_CHECKING:  # fields are in tables, see `crosstack.io.native.tables`

        def __init__(self, **fields: Any) -> None:
            """Take the fields of a table."""

        def __getattr__(self, name: str) -> Any:
            """Return a field of a table."""


def strip_optional(annotation: Any) -> Any:
    """Return the type that is left of an annotation without ``None`` and ``Annotated``."""
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            # A validated leaf, whatever its Python type.
            return None
        if origin in (types.UnionType, Union):
            annotation = next(a for a in get_args(annotation) if a is not types.NoneType)
        else:
            return annotation


def is_model(schema: Any) -> TypeGuard[type[FileModel]]:
    """Whether a type is that of a mapping with fields."""
    return isinstance(schema, type) and issubclass(schema, FileModel)


def names_in_file(model: type[FileModel]) -> dict[str, str]:
    """Return what a file calls our fields, by the first name where they have many."""
    aliases = {name: field.validation_alias for name, field in model.model_fields.items()}
    return {
        name: str(alias.choices[0]) if isinstance(alias, AliasChoices) else name
        for name, alias in aliases.items()
    }


def fields_of(model: type[FileModel]) -> dict[str, FieldInfo]:
    """Return the fields of a mapping as a file calls them."""
    return dict(zip(names_in_file(model).values(), model.model_fields.values(), strict=True))


def inside(schema: Any, part: str | int) -> Any:
    """Return the type of what stands under a name or number in a type; None where nothing may."""
    if get_origin(schema) is (list if isinstance(part, int) else dict):
        return strip_optional(get_args(schema)[-1])
    if is_model(schema) and (field := fields_of(schema).get(str(part))) is not None:
        return strip_optional(field.annotation)
    return None
