"""YAML text as plain dicts, lists and scalars, with the traps of YAML taken out.

Compared with what PyYAML makes of the same text: ``1e9`` is a number; ``yes``, ``no``, ``on`` and
``off`` are text, so are dates, ``010`` and ``1:30``; keys are always text; a key given twice, an
alias, a tag and a second document are errors. The tree is built from events without recursion, so
neither deep nesting nor an alias bomb can do harm.
"""

from __future__ import annotations

import re
from typing import Protocol, TypeAlias

import yaml

from crosstack.errors import InputError, Problem

Tree: TypeAlias = "dict[str, Tree] | list[Tree] | str | int | float | bool | None"
Content: TypeAlias = "str | dict[str, Tree]"
"""What a file holds: its text, or the tree of it where that is at hand."""
Change: TypeAlias = "str | tuple[str, Tree]"
"""``path=value``, the value as YAML; or a path and its value."""


class _Mark(Protocol):
    line: int
    column: int


DEEPEST = 50
LONGEST_WHOLE_NUMBER = 40
TOO_DEEP = "maximum nesting depth"  # what libyaml says of far deeper nesting, which it reads ahead
LONGEST_SHOWN = 200  # letters on either side of where a syntax error is, that are looked at

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_REAL = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_NAME_BEFORE = re.compile(r"[\w.-]+$")
_BRACKETS = re.compile(r"(?:\[[^\[\]]*\][\w.-]*)+")
_ZEROS_FIRST = re.compile(r"[-+]?0[0-9]+")
_SPECIAL: dict[str, Tree] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **{
        f"{sign}{word}": float(f"{sign}inf")
        for sign in ("", "+", "-")
        for word in (".inf", ".Inf", ".INF")
    },
}


def parse_yaml(text: str) -> Tree:
    """Return the one YAML document in ``text``; None if it is empty.

    `InputError` has line and column as its path: bad syntax, a key given twice, an alias, a tag, a
    second document, nesting deeper than `DEEPEST`.
    """
    builder = _Builder()
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if TOO_DEEP in (error.problem or ""):
            raise _too_deep(mark) from None
        what = " ".join(f"{error.problem or error.context or 'bad YAML'}".split())
        raise _at(mark, f"not YAML: {_unquoted(text, mark) or what}.") from None
    except yaml.reader.ReaderError as error:
        what = " ".join(str(error.reason).split())
        message = f"not YAML: the character at offset {error.position}: {what}."
        raise InputError(Problem("", message)) from None
    except yaml.YAMLError as error:
        raise InputError(Problem("", f"not YAML: {' '.join(str(error).split())}.")) from None
    except UnicodeEncodeError as error:
        message = f"not YAML: a lone surrogate at offset {error.start}."
        raise InputError(Problem("", message)) from None
    return builder.root


def tree_of(content: Content) -> Tree:
    """Return the tree of a YAML file; `InputError` as of `parse_yaml`."""
    return parse_yaml(content) if isinstance(content, str) else content


def _at(mark: _Mark | None, message: str) -> InputError:
    where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    return InputError(Problem(where, message))


def _too_deep(mark: _Mark | None) -> InputError:
    return _at(mark, f"nested deeper than {DEEPEST} levels.")


def _unquoted(text: str, mark: _Mark | None) -> str:
    """Say what to do about text with brackets inside a list or mapping; empty if it is not that."""
    lines = text.split("\n", mark.line + 1) if mark else []
    if mark is None or mark.line >= len(lines):  # YAML has other ends of a line, too
        return ""
    line = lines[mark.line]
    name = _NAME_BEFORE.search(line[max(mark.column - LONGEST_SHOWN, 0) : mark.column])
    rest = _BRACKETS.match(line[mark.column : mark.column + LONGEST_SHOWN])
    if name is None or rest is None:
        return ""
    path = name.group() + rest.group()
    quoted = f"'{path}'" if '"' in path else f'"{path}"'
    return f'"[" in the middle of a text; put the text in quotes: {quoted}'


def _scalar(text: str) -> Tree:
    if text in _SPECIAL:
        return _SPECIAL[text]
    if _WHOLE.fullmatch(text) and len(text) <= LONGEST_WHOLE_NUMBER:
        return int(text)
    if _REAL.fullmatch(text) and not _ZEROS_FIRST.fullmatch(text):
        return float(text)
    return text


class _Builder:
    """Turns events into a tree; a stack of open collections, each mapping with its open key."""

    def __init__(self) -> None:
        self.root: Tree = None
        self._documents = 0
        self._open: list[dict[str, Tree] | list[Tree]] = []
        self._keys: list[str | None] = []

    def take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.ScalarEvent):
            self._refuse_tag(event)
            self._take_scalar(event)
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            self._refuse_tag(event)
            self._start({} if isinstance(event, yaml.MappingStartEvent) else [], event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._open.pop()
            self._keys.pop()
        elif isinstance(event, yaml.AliasEvent):
            message = f"an alias (*{event.anchor}); allowed: the value written out."
            raise _at(event.start_mark, message)
        elif isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise _at(event.start_mark, "a second document (---); allowed: one a file.")

    @staticmethod
    def _refuse_tag(event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> None:
        if event.tag is not None:
            raise _at(event.start_mark, f"a tag ({event.tag}); allowed: plain values.")

    def _take_scalar(self, event: yaml.ScalarEvent) -> None:
        at_key = bool(self._open) and isinstance(self._open[-1], dict) and self._keys[-1] is None
        if not at_key:
            self._put(_scalar(event.value) if event.implicit[0] else event.value)
            return
        mapping = self._open[-1]
        if event.value in mapping:
            raise _at(event.start_mark, f"the key {event.value[:60]!r} is given twice.")
        self._keys[-1] = event.value

    def _start(self, collection: dict[str, Tree] | list[Tree], event: yaml.Event) -> None:
        if self._open and isinstance(self._open[-1], dict) and self._keys[-1] is None:
            raise _at(event.start_mark, "a list or mapping as a key; allowed: text.")
        if len(self._open) >= DEEPEST:
            raise _too_deep(event.start_mark)
        self._put(collection)
        self._open.append(collection)
        self._keys.append(None)

    def _put(self, value: Tree) -> None:
        if not self._open:
            self.root = value
            return
        inside = self._open[-1]
        if isinstance(inside, list):
            inside.append(value)
            return
        key = self._keys[-1]
        assert key is not None  # a scalar key came before
        inside[key] = value
        self._keys[-1] = None
