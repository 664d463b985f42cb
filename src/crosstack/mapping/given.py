"""Decisions that are given in one text: ``tp=8,pp=4,microbatch=2,zero=1,recompute=full``."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from crosstack.errors import InputError, Problem, unknown_name
from crosstack.records import words_of
from crosstack.workload.transformer_training import (
    ContextExchange,
    Offload,
    Recompute,
    Schedule,
    Zero,
    offload_named,
    recompute_named,
    recompute_word,
)

# By word: the field that it gives, and its choices, or that it is a whole number.
DECISIONS: Mapping[str, tuple[str, type[StrEnum] | type[int]]] = {
    "microbatch": ("microbatch_size", int),
    "recompute": ("recompute", Recompute),
    "schedule": ("schedule", Schedule),
    "interleave": ("interleave", int),
    "zero": ("zero", Zero),
    "offload": ("offload", Offload),
    "context-exchange": ("context_exchange", ContextExchange),
}


def split_given(text: str, others: Mapping[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
    """Return the degrees of a text, or the strategy that it names, and its other decisions.

    Parameters
    ----------
    text : str
        Parts with commas between them.
    others : mapping, optional
        Decisions that are given by themselves, by field; None: not given.

    Returns
    -------
    tuple of str and dict
        What of the text is no decision of `DECISIONS`, empty where there is no more; and those, by
        field.

    Raises
    ------
    InputError
        At ``given`` for a value that is not allowed, and at the field for one that is given
        twice differently.
    """
    left, found = list[str](), dict[str, Any]()
    for part in text.split(","):
        word, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or word.lower() not in DECISIONS:
            left.append(part)
            continue
        field, kind = DECISIONS[word.lower()]
        decided = _decided(word.lower(), kind, value)
        if found.setdefault(field, decided) != decided:
            message = f"got {word}={found[field]} and {word}={value}; allowed: one of the two."
            raise InputError(Problem("given", message))
    for field, decided in found.items():
        alone = (others or {}).get(field)
        if alone is not None and _as(decided, alone) != decided:
            message = f"got {alone}; another place gives {decided}: allowed: one of the two."
            raise InputError(Problem(field, message))
    return ",".join(left).strip(), found


def _decided(word: str, kind: type[StrEnum] | type[int], value: str) -> Any:
    if kind is Offload:
        try:
            return "+".join(offload_named(value)) or "none"
        except InputError as error:
            raise error.renamed({"offload": "given"}) from None
    if kind is Recompute:
        try:
            again, layers = recompute_named(value)
        except InputError as error:
            raise error.renamed({"recompute": "given"}) from None
        return again if layers is None else recompute_word(again, layers)
    if not issubclass(kind, StrEnum):
        if not (value.isascii() and value.isdecimal() and len(value) <= 15 and int(value)):
            allowed = "a whole number, at least 1"
            raise InputError(Problem("given", f"got {word}={value[:60]}; allowed: {allowed}."))
        return int(value)
    known = words_of(kind)
    if value not in known:
        raise unknown_name("given", f"{word} is", value, known)
    return known[value]


def _as(decided: Any, alone: Any) -> Any:
    """Return a decision that is given by itself as what the same one is in a text."""
    return words_of(type(decided)).get(str(alone), alone) if isinstance(decided, StrEnum) else alone
