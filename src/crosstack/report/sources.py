"""What an answer was counted by: every rule with its meaning, and the sources that are cited."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from crosstack.model.rules import MAPPED, Rules
from crosstack.report.wording import Table

_ENTRY = re.compile(r"^@\w+\{([^,\s]+),\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^\s*(\w+)\s*=\s*\{(.*?)\},?$", re.MULTILINE | re.DOTALL)
_KEY = re.compile(r"``(\w+)``")


def rule_rows(rules: Rules) -> Table:
    """Return every part of a rule set and its fields: name, value, what it counts or switches."""
    rows = []
    for name, part in rules.parts():
        if name in MAPPED:
            rows.append((name, "", _first_paragraph(type(part).__doc__ or "")))
            simple = (f.name for f in fields(part) if not is_dataclass(getattr(part, f.name)))
            rows += [(f, _value(getattr(part, f)), meaning_of(part, f)) for f in simple]
    return Table(
        header=("rule", "value", "meaning"), numeric=(False, False, False), rows=tuple(rows)
    )


def cited(rules: Rules, also: Sequence[str] = ()) -> tuple[tuple[str, str], ...]:
    """Return the sources that the meanings of rules name, and others, as (key, words)."""
    known = _bibliography()
    named = (key for _, _, text in rule_rows(rules).rows for key in re.findall(r"\w+", text))
    keys = dict.fromkeys((*named, *also))
    return tuple((key, known[key]) for key in keys if key in known)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(getattr(value, "value", value))


def _first_paragraph(documentation: str) -> str:
    return _KEY.sub(r"\1", " ".join(documentation.partition("\n\n")[0].split()))


def meaning_of(part: Any, name: str) -> str:
    """Return what the metadata of a field say, of a part or of the one that it comes from."""
    kinds = (kind for kind in type(part).__mro__ if is_dataclass(kind))
    known = (f.metadata.get("meaning") for kind in kinds for f in fields(kind) if f.name == name)
    return _KEY.sub(r"\1", next(filter(None, known), ""))


@cache
def _bibliography() -> dict[str, str]:
    """Return every source as people cite it."""
    text = files("crosstack").joinpath("data", "references.bib").read_text(encoding="utf-8")
    found = {}
    for key, body in _ENTRY.findall(text):
        values = {name.lower(): _plain(value) for name, value in _FIELD.findall(body)}
        where = values.get("journal") or values.get("booktitle") or values.get("howpublished", "")
        if not where and "eprint" in values:
            where = f"arXiv:{values['eprint']}"
        people = values.get("author", "").replace(" and others", " et al.").replace(" and ", "; ")
        parts = (people, values.get("title", ""), where, values.get("year", ""))
        found[key] = ". ".join(part for part in parts if part) + "."
    return found


def _plain(text: str) -> str:
    """Return text without the marks of TeX."""
    text = re.sub(r"\\url\{([^}]*)\}", r"\1", text)
    text = re.sub(r"\\[\"'`^~]\{?(\w)\}?", r"\1", text)
    return " ".join(text.replace("{", "").replace("}", "").replace("--", "-").split())
