"""The shapes of files, from tables in YAML: which fields there are and what each may hold.

A table names mappings; each is its fields, ``FIELD: TYPE`` or ``FIELD: TYPE = VALUE`` where it may
be left out. ``FIELD as NAME`` is called NAME by those who read it, and ``A / B as NAME`` is A or B.
A type is ``text``, ``flag``, ``count``, ``index``, ``any`` or another of `TYPES` or of the table's
reader; the name of a mapping of the table; an enum by its place in crosstack
(``machine.memory.Scope``); words to choose from (``time | area``); or the unit of a quantity, which
``> 0`` may follow. ``TYPE?`` may be null or left out, ``TYPE | null`` may be null; ``TYPE list`` is
a list, ``some TYPE list`` one that is not empty, and ``TYPE by KEY`` a mapping of any names
(``KEY`` is ``name``, or the type of them).

Beside its fields, a mapping may be ``like`` another, whose fields go first; let ``others`` be; and
say which field a value ``alone`` stands for, by what the value is (``text``, ``list``, ``any``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from importlib import import_module
from importlib.resources import files
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, ConfigDict, Field, PlainValidator, create_model

from crosstack.io.native.schema import (
    Count,
    FileModel,
    Flag,
    Index,
    Names,
    Text,
    one_of,
    quantity,
    refused,
)
from crosstack.io.yaml_tree import parse_yaml
from crosstack.workload.dtype import Dtype


def _words(value: object) -> tuple[str, ...]:
    words = value.split() if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise refused(value, "names of axes in one text, or a list of them")
    return tuple(words)


def _real(value: object) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not isinstance(value, int | float) or not number or not math.isfinite(value):
        raise refused(value, "a number")
    return float(value)


_Share = Annotated[float, quantity("1", above_zero=True)]
TYPES: dict[str, Any] = {
    "any": Any,
    "axes": Annotated[tuple[str, ...], PlainValidator(_words)],
    "count": Count,
    "dtype": Annotated[Dtype, one_of(Dtype)],
    "flag": Flag,
    "index": Index,
    "name": str,
    "names": Names,
    "real": Annotated[float, PlainValidator(_real)],
    "share": _Share,
    "shares": tuple[_Share, _Share, _Share],
    "text": Text,
}
_KINDS: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "list": (list,),
    "any": (int, float, str, list, type(None)),
}
_ENUM = re.compile(r"[a-z_.]+\.[A-Z]\w+")


class Table:
    """The mappings of a format, by their names in a file of YAML beside its reader.

    Parameters
    ----------
    package, name : str
        Where the file is.
    types : mapping of str to type, optional
        What it says besides `TYPES`.
    before : mapping of str to function, optional
        What is made of a mapping before its fields are looked at.
    """

    def __init__(
        self,
        package: str,
        name: str,
        types: Mapping[str, Any] | None = None,
        before: Mapping[str, Callable[[Any], Any]] | None = None,
    ) -> None:
        tree: Any = parse_yaml(files(package).joinpath(name).read_text(encoding="utf-8"))
        self.tree: dict[str, dict[str, Any]] = tree
        self.types, self.before = {**TYPES, **(types or {})}, before or {}
        self.known: dict[str, type[FileModel]] = {}

    def __getitem__(self, name: str) -> type[FileModel]:
        """Return the shape of the mapping called ``name``."""
        if name not in self.known:
            self.known[name] = self._shape(name, self.tree[name])
            self.known[name].before = self.before.get(name)
        return self.known[name]

    def _whole(self, said: dict[str, Any]) -> dict[str, Any]:
        """Return a mapping with all of the one that it is like."""
        return self._whole(self.tree[said["like"]]) | said if "like" in said else said

    def _shape(self, name: str, said: dict[str, Any]) -> type[FileModel]:
        said = self._whole(said)
        base = _WithOthers if "others" in said else FileModel
        fields: dict[str, Any] = dict(self._fields(said))
        made: type[FileModel] = create_model(f"{name.title()}File", __base__=base, **fields)
        alone: dict[str, str] = said.get("alone", {})
        made.alone = {kind: field for words, field in alone.items() for kind in _KINDS[words]}
        return made

    def _fields(self, said: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """Yield what readers call each field of a mapping, with its type and all else of it."""
        for key, words in said.items():
            if key in ("like", "others", "alone"):
                continue
            called, _, name = key.partition(" as ")
            others: dict[str, Any] = {}
            if name:
                others["validation_alias"] = AliasChoices(*called.split(" / "))
            text, has_default, default = str(words).partition(" = ")
            if has_default and not isinstance(words, dict):
                usual = parse_yaml(default)
                others |= {"default": usual, "validate_default": usual != []}
            elif text.endswith("?"):
                others["default"] = None
            shape = self.type_of(words if isinstance(words, dict) else text)
            yield name or called, (shape, Field(**others))

    def type_of(self, words: Any) -> Any:
        """Return the type that words of a table mean; a mapping is the fields of one."""
        if isinstance(words, dict):
            return self._shape("inner", words)
        for mark in ("?", " | null"):
            if words.endswith(mark):
                return self.type_of(words.removesuffix(mark)) | None
        if words.endswith(" list"):
            each = self.type_of(words.removesuffix(" list").removeprefix("some "))
            listed = list.__class_getitem__(each)
            return Annotated[listed, Field(min_length=1)] if words.startswith("some ") else listed
        value, by, key = words.rpartition(" by ")
        if by:
            return dict.__class_getitem__((self.types[key], self.type_of(value)))
        if " | " in words:
            return Literal[tuple(words.split(" | "))]
        if words in self.tree:
            return self[words]
        if words not in self.types:
            self.types[words] = _leaf(words)
        return self.types[words]


class _WithOthers(FileModel):
    """A mapping of which only some fields are read."""

    model_config = ConfigDict(extra="ignore", frozen=True)


def _leaf(words: str) -> Any:
    """Return an enum, one of whose words a field holds, or a quantity."""
    if _ENUM.fullmatch(words):
        place, _, name = words.rpartition(".")
        choices: type[StrEnum] = getattr(import_module(f"crosstack.{place}"), name)
        return Annotated[choices, one_of(choices)]
    unit = words.removesuffix(" > 0")
    return Annotated[float, quantity(unit, above_zero=unit != words)]
