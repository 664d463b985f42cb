"""What every record shares: a check that its fields are what they say, and a short way to print."""

from __future__ import annotations

import dataclasses
import enum
import math
import reprlib
import types
import typing
from collections.abc import Callable
from functools import cache, lru_cache, partial, wraps
from typing import Annotated, Any

from crosstack.errors import InputError, Problem, require, require_quantity, require_whole

__all__ = [
    "Bytes", "Checked", "Count", "Name", "Natural", "Number", "Positive", "Quantity", "brief",
    "known_again", "plain", "require_type", "require_types", "words_of",
]  # fmt: skip

P = typing.ParamSpec("P")
R = typing.TypeVar("R")
Word = typing.TypeVar("Word", bound=enum.StrEnum)
LONGEST = 800  # letters of a record in which the records inside are spelled out: ten lines


# ---------------------------------------------------------------- what is known already


class _Same:
    """A record as a key: equal to itself alone, so that nothing of it is read."""

    __slots__ = ("record",)

    def __init__(self, record: object) -> None:
        self.record = record

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.record is other.record

    def __hash__(self) -> int:
        return id(self.record)


def known_again(maxsize: int, *, by_value: int = 0) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that keeps what a function of records gave, for the same records.

    Records are frozen, so the same one says the same; to compare or hash those of a large graph
    takes longer than most of what is asked of them.

    Parameters
    ----------
    maxsize : int
        Answers kept, the latest asked for. [1]
    by_value : int
        Arguments, the last ones, that are compared by value. [1]
    """

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        asked: Any = function

        @lru_cache(maxsize)
        def known(*keys: Any) -> Any:
            return asked(*(key.record if type(key) is _Same else key for key in keys))

        @wraps(function)
        def kept(*args: Any) -> Any:
            records = len(args) - by_value
            return known(*map(_Same, args[:records]), *args[records:])

        return typing.cast("Callable[P, R]", kept)

    return decorated


# ---------------------------------------------------------------- what a field may hold


def meaning(text: str) -> dict[str, str]:
    """Return metadata of a field that say what it counts or switches, as reports print it."""
    return {"meaning": text}


Check = Callable[[object], bool]
Rule = Callable[[str, Any], None]


def _require_name(field: str, value: str) -> None:
    require(value.strip() != "", field, value, "a name")


# Fields that say their range as well; `require_types` looks at it.
Name = Annotated[str, _require_name]
Count = Annotated[int, require_whole]  # at least 1
Natural = Annotated[int, partial(require_whole, minimum=0)]
Number = Annotated[float, partial(require_quantity, unit="1")]
Bytes = Annotated[float, partial(require_quantity, unit="B")]


@dataclasses.dataclass(frozen=True, slots=True)
class Quantity:
    """The range of a number that says its unit and what it is of: ``Quantity("s", "of a hop")``."""

    unit: str
    of: str = ""
    above_zero: typing.ClassVar[bool] = False

    def __call__(self, field: str, value: object) -> None:
        """Raise `InputError` unless a field is in range."""
        require_quantity(field, value, self.unit, above_zero=self.above_zero)


class Positive(Quantity):
    """A quantity that is above 0."""

    __slots__ = ()
    above_zero = True


class Checked:
    """A record whose fields are what their annotations say, looked at when it is made."""

    __slots__ = ()

    def __post_init__(self) -> None:
        """Check every field."""
        require_types(self)


def require_type(field: str, value: object, hint: Any) -> None:
    """Raise `InputError` unless ``value`` is what a type hint says.

    Whole and real numbers pass unseen: `require_whole` and `require_quantity` know their ranges.

    Parameters
    ----------
    hint : type hint
        A class, a union, a tuple of a type (``tuple[X, ...]``) or of several (``tuple[X, Y]``).
    """
    holds = _check_of(hint)
    if holds is not None and not holds(value):
        raise InputError(_problem(field, value, hint))


def require_types(record: Any) -> None:
    """Raise `InputError` with every field of a record that does not hold what its annotation says.

    To be called first of all in ``__post_init__``; see `require_type`. Ranges of numbers are looked
    at where a field has one, such as `Count`.
    """
    kind: Any = type(record)  # mypy takes a type for something without a hash
    wrong = [
        _problem(field, getattr(record, field), hint)
        for field, hint, holds in _checks_of(kind)
        if not holds(getattr(record, field))
    ]
    if wrong:
        raise InputError(wrong)
    for field, optional, rule in _rules_of(kind):
        value = getattr(record, field)
        if not (optional and value is None):
            rule(field, value)


@cache
def _rules_of(record: Any) -> tuple[tuple[str, bool, Rule], ...]:
    """Return name, whether it may be None, and the rule of every field with a range."""
    found: list[tuple[str, bool, Rule]] = []
    hints = typing.get_type_hints(record, include_extras=True)
    for item in dataclasses.fields(record):
        hint = hints[item.name]
        parts = typing.get_args(hint) if _is_union(hint) else (hint,)
        rules = [part.__metadata__[0] for part in parts if hasattr(part, "__metadata__")]
        found += [(item.name, type(None) in parts, rule) for rule in rules if item.init]
    return tuple(found)


def _problem(field: str, value: object, hint: Any) -> Problem:
    return Problem(field, f"got {brief(value)}; allowed: {_words(hint)}.")


@cache
def _checks_of(record: Any) -> tuple[tuple[str, Any, Check], ...]:
    """Return name, annotation and check of every field of a record that there is a check for."""
    hints = typing.get_type_hints(record)
    fields = [(f.name, hints[f.name]) for f in dataclasses.fields(record) if f.init]
    return tuple((f, hint, holds) for f, hint in fields if (holds := _check_of(hint)) is not None)


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


@cache
def _check_of(hint: Any) -> Check | None:
    """Return the check of a type hint; None where every value passes."""
    parts = typing.get_args(hint)
    if _is_union(hint):
        checks = [_check_of(part) for part in parts]
        some = [check for check in checks if check is not None]
        return None if len(some) < len(checks) else lambda v: any(check(v) for check in some)
    origin = typing.get_origin(hint) or hint
    if origin in (int, float, Any) or not isinstance(origin, type):
        return None
    if origin is tuple and parts:
        return _check_of_tuple(parts)
    return lambda v: isinstance(v, origin)


def _check_of_tuple(parts: tuple[Any, ...]) -> Check:
    if parts[-1] is Ellipsis:
        each = _check_of(parts[0])
        return lambda v: isinstance(v, tuple) and (each is None or all(map(each, v)))
    inner = [_check_of(part) for part in parts]
    return lambda v: (
        isinstance(v, tuple)
        and len(v) == len(inner)
        and all(check is None or check(x) for check, x in zip(inner, v, strict=True))
    )


def _words(hint: Any) -> str:
    parts = typing.get_args(hint)
    if _is_union(hint):
        return " or ".join(map(_words, parts))
    if hint is type(None):
        return "None"
    if typing.get_origin(hint) is tuple:
        if parts[-1] is Ellipsis:
            return f"a tuple of {_words(parts[0])}"
        return f"({', '.join(map(_words, parts))})"
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return ", ".join(f"{hint.__name__}.{member.name}" for member in hint)
    return {bool: "True or False"}.get(hint, getattr(hint, "__name__", str(hint)))


# ---------------------------------------------------------------- printing


class _Brief(reprlib.Repr):
    """Records without the fields that are as usual; what is long is counted, what is deep named."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 2
        self.maxstring = self.maxother = 60

    def repr_instance(self, x: Any, level: int) -> str:
        """Return a record, a member of an enum, or anything else."""
        if isinstance(x, enum.Enum):
            return f"{type(x).__name__}.{x.name}"
        if not dataclasses.is_dataclass(x) or isinstance(x, type):
            return super().repr_instance(x, level)
        if level <= 0:
            called = getattr(x, "name", None)
            return f"{type(x).__name__}({'' if called is None else repr(called) + ', '}...)"
        shown = [(f.name, getattr(x, f.name)) for f in dataclasses.fields(x) if _tells(f, x)]
        fields = (f"{name}={self.repr1(value, level - 1)}" for name, value in shown)
        return f"{type(x).__name__}({', '.join(fields)})"

    def repr_tuple(self, x: tuple[Any, ...], level: int) -> str:
        """Return a tuple, or how many of what it holds."""
        if len(x) <= self.maxtuple and level > 0:
            return super().repr_tuple(x, level)
        kinds = " or ".join(dict.fromkeys(type(each).__name__ for each in x))
        return f"({len(x):,} x {kinds})" if x else "()"


def _tells(field: dataclasses.Field[Any], record: Any) -> bool:
    """Whether a field is to be shown and not as it is when it is left out."""
    value, usual = getattr(record, field.name), field.default
    return field.repr and not (type(value) is type(usual) and value == usual)


_BRIEF = _Brief()


def words_of(choices: type[Word]) -> dict[str, Word]:
    """Return the members of an enum by its words; an alias is another word of its member."""
    members = choices.__members__
    others = {n.lower(): one for n, one in members.items() if n != one.name}
    return {one.value: one for one in choices} | others


def brief(value: object) -> str:
    """Return any value in a few lines, a record by those of its fields that are not as usual."""
    whole = _BRIEF.repr(value)
    return whole if len(whole) <= LONGEST else _BRIEF.repr1(value, 1)


# ---------------------------------------------------------------- as plain data


def plain(value: Any) -> Any:
    """Return a record as what JSON holds; numbers that are not finite are None.

    A field is called by its name and its ``unit``, where its metadata have one, or by their
    ``key``; a key of None leaves it out. ``DERIVED`` of a record are properties that follow its
    fields.
    """
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if not dataclasses.is_dataclass(value):
        return value
    record: Any = type(value)  # mypy takes a type for something without a hash
    return {key: plain(getattr(value, name)) for name, key in _keys_of(record)}


@cache
def _keys_of(record: Any) -> tuple[tuple[str, str], ...]:
    """Return every field that is said, and what it is called."""
    found = []
    for item in dataclasses.fields(record):
        unit = item.metadata.get("unit")
        key = item.metadata.get("key", f"{item.name}_{unit}" if unit else item.name)
        if key is not None:
            found.append((item.name, key))
    return (*found, *((name, name) for name in getattr(record, "DERIVED", ())))
