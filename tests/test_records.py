"""Records refuse what they are not made of, and print in a few lines."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from crosstack.errors import InputError
from crosstack.records import brief, known_again, require_type, require_types


class Colour(Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    name: str = "part"
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    parts: tuple[Part, ...]
    colour: Colour = Colour.RED
    hidden: bool = False
    pairs: tuple[tuple[str, int], ...] = ()
    count: int = 1
    above: Part | None = None
    anything: Any = None

    __repr__ = brief

    def __post_init__(self) -> None:
        require_types(self)


PART = Part()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"parts": PART}, "parts: got Part(); allowed: a tuple of Part."),
        ({"parts": [PART]}, "parts: got [Part()]; allowed: a tuple of Part."),
        ({"parts": (PART, 3)}, "parts: got (Part(), 3); allowed: a tuple of Part."),
        ({"parts": None}, "parts: got None; allowed: a tuple of Part."),
        ({"colour": 1}, "colour: got 1; allowed: Colour.RED, Colour.BLUE."),
        ({"hidden": 0}, "hidden: got 0; allowed: True or False."),
        ({"pairs": (("a",),)}, "pairs: got (('a',),); allowed: a tuple of (str, int)."),
        ({"pairs": ((1, 1),)}, "pairs: got ((1, 1),); allowed: a tuple of (str, int)."),
        ({"above": "x"}, "above: got 'x'; allowed: Part or None."),
    ],
)
def test_a_field_of_another_type_is_refused(fields, message):
    with pytest.raises(InputError) as refused:
        Whole(**{"parts": (PART,), **fields})
    assert str(refused.value) == message


def test_every_wrong_field_is_told():
    with pytest.raises(InputError) as refused:
        Whole(parts=(), colour="red", above=3)
    assert [problem.path for problem in refused.value.problems] == ["colour", "above"]


@pytest.mark.parametrize(
    "fields",
    [{}, {"above": PART}, {"pairs": (("a", 1),)}, {"anything": object()}, {"count": "numbers"}],
)
def test_fields_of_their_type_pass_and_numbers_are_left_to_others(fields):
    assert Whole(parts=(PART,), **fields).parts == (PART,)


@pytest.mark.parametrize("value", [None, 3, {}, b"x"])
def test_an_argument_is_checked_alike(value):
    with pytest.raises(InputError, match=r"path: got .*; allowed: str or Path\."):
        require_type("path", value, str | Path)


def test_what_is_as_usual_is_not_printed():
    assert repr(Whole(parts=(PART,))) == "Whole(parts=(Part('part', ...),))"


def test_many_parts_are_counted():
    whole = Whole(parts=(PART,) * 41, colour=Colour.BLUE)
    assert repr(whole) == "Whole(parts=(41 x Part), colour=Colour.BLUE)"


def test_a_record_never_takes_more_than_ten_lines():
    whole = Whole(parts=tuple(Part(name="x" * 1000) for _ in range(4)), anything="y" * 10_000)
    assert len(repr(whole)) <= 800


def test_what_was_asked_of_the_same_records_is_known():
    asked: list[tuple[Part, int]] = []

    @known_again(2, by_value=1)
    def said(part: Part, times: int) -> list[Part]:
        asked.append((part, times))
        return [part] * times

    one, equal = Part(name="a"), Part(name="a")
    assert said(one, 1000) is said(one, 999 + 1)
    assert len(asked) == 1
    # An equal record is another one: nothing is compared.
    assert said(equal, 1000) == said(one, 1000)
    assert len(asked) == 2
    said(one, 3)
    said(one, 4)
    said(equal, 1000)
    assert [times for _, times in asked] == [1000, 1000, 3, 4, 1000]


def test_a_refusal_is_said_every_time():
    @known_again(2)
    def refused(part: Part) -> None:
        raise InputError([])

    part = Part()
    for _ in range(2):
        with pytest.raises(InputError):
            refused(part)
