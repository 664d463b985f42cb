"""The exception tree of crosstack, and the check used by every record.

Everything a caller may want to catch derives from `CrosstackError`; the command line maps
each branch to one exit code (`exit_code`).
"""

from __future__ import annotations

import copyreg
import difflib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from crosstack.quantities import compared

__all__ = [
    "MOST_SHOWN",
    "CrosstackError",
    "InfeasibleError",
    "InputError",
    "LimitError",
    "Problem",
    "did_you_mean",
    "nearest",
    "require",
    "require_jobs",
    "require_quantity",
    "require_whole",
    "unknown_name",
]

LONGEST_NAME = 200
MOST_JOBS = 1024
MOST_SHOWN = 20  # problems of one error that are said line by line


class CrosstackError(Exception):
    """Base of every error crosstack raises on purpose."""

    exit_code = 1

    def __reduce__(self) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """Return how another process makes it again, whatever ``__init__`` takes."""
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with an input: where it is, and what would be right.

    ``count`` is how many of a kind it stands for, where they are said together. [1]
    """

    path: str
    message: str
    count: int = 1

    def at(self, path: str) -> Problem:
        """Return the same problem at another place."""
        return replace(self, path=path)

    def __str__(self) -> str:
        """Return ``path: message``, or the message alone where there is no path."""
        return f"{self.path}: {self.message}" if self.path else self.message


class InputError(CrosstackError, ValueError):
    """Bad input. Carries every problem found; says the first `MOST_SHOWN`, one line each.

    Parameters
    ----------
    problems : Problem or iterable of Problem
        What is wrong, in the order found.
    """

    exit_code = 2

    def __init__(self, problems: Problem | Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = (
            (problems,) if isinstance(problems, Problem) else tuple(problems)
        )
        super().__init__("\n".join(self.lines()))

    def lines(self) -> Iterator[str]:
        """Yield a line for each of the first `MOST_SHOWN` problems, and how many more there are."""
        yield from map(str, self.problems[:MOST_SHOWN])
        left = sum(problem.count for problem in self.problems[MOST_SHOWN:])
        if left:
            yield f"and {left:,} more problem{'s' if left > 1 else ''}."

    def under(self, prefix: str) -> InputError:
        """Return the same error with ``prefix`` put before the path of every problem."""
        return InputError(problem.at(_join(prefix, problem.path)) for problem in self.problems)

    def renamed(self, names: Mapping[str, str]) -> InputError:
        """Return the same error with other paths, where ``names`` has them."""
        return InputError(problem.at(names.get(problem.path, problem.path))
                          for problem in self.problems)  # fmt: skip


class InfeasibleError(CrosstackError):
    """No mapping fits. Names the resource, the demand, the limit and the levers.

    Parameters
    ----------
    resource : str
        What runs out, e.g. ``"SRAM"``.
    demand, limit : float
        The smallest demand found and what there is, in ``unit``.
    unit : str
        Unit of both.
    where : str
        The kernel, partition or stage that needs it.
    levers : sequence of str
        Changes that would make it fit.
    """

    exit_code = 3

    def __init__(
        self,
        *,
        resource: str,
        demand: float,
        limit: float,
        unit: str,
        where: str,
        levers: Sequence[str],
    ) -> None:
        self.resource, self.demand, self.limit, self.unit = resource, demand, limit, unit
        self.where, self.levers = where, tuple(levers)
        needed, there = compared(demand, limit, unit)
        super().__init__(
            f"infeasible: {resource}: {where} needs {needed}, the limit is {there}. "
            f"What would make it fit: {'; '.join(self.levers)}."
        )


class LimitError(CrosstackError):
    """A limit came before any answer: there is none, though nothing is proved infeasible."""

    exit_code = 3


def _join(prefix: str, path: str) -> str:
    if not prefix or not path:
        return prefix or path
    return f"{prefix}{path}" if path.startswith("[") else f"{prefix}.{path}"


def nearest(name: object, allowed: Iterable[str], count: int = 3) -> list[str]:
    """Return up to ``count`` allowed names closest to ``name``, best first, any case.

    Only the first `LONGEST_NAME` letters of ``name`` are looked at: comparing takes long for text
    that is no name.
    """
    by_fold = {a.casefold(): a for a in allowed}
    cut = str(name)[:LONGEST_NAME].casefold()
    found = difflib.get_close_matches(cut, list(by_fold), n=count, cutoff=0.5)
    return [by_fold[f] for f in found]


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return `` Did you mean "x"?`` with the nearest of ``known``, empty where none is near."""
    close = nearest(name, known, 1)
    return f' Did you mean "{close[0]}"?' if close else ""


def unknown_name(
    path: str, what: str, name: object, known: Iterable[str], label: str = "Allowed"
) -> InputError:
    """Return the error for a name that is none of ``known``: the nearest, then all of them.

    ``what`` is a noun with its verb, ``"model is"``.
    """
    names = list(known)
    hint = did_you_mean(name, names)
    message = f'no {what} called "{str(name)[:60]}".{hint} {label}: {", ".join(names)}.'
    return InputError(Problem(path, message))


def require(condition: bool, field: str, value: object, allowed: str) -> None:
    """Raise `InputError` for ``field`` unless ``condition`` holds.

    Raises
    ------
    InputError
        Saying which field, what came and what is allowed.
    """
    if not condition:
        raise InputError(Problem(field, f"got {value!r}; allowed: {allowed}."))


def require_whole(field: str, value: object, *, minimum: int = 1, what: str = "") -> None:
    """Raise `InputError` unless ``value`` is a whole number, at least ``minimum``, below 2^53."""
    good = isinstance(value, int) and not isinstance(value, bool) and minimum <= value < 2**53
    limit = ", below 2^53" if isinstance(value, int) and value >= 2**53 else ""
    allowed = f"a whole number{what and ' of ' + what}, at least {minimum}{limit}"
    require(good, field, value, allowed)


def require_wholes(**values: object) -> None:
    """Raise `InputError` unless all are whole numbers, at least 1; see `require_whole`."""
    for field, value in values.items():
        require_whole(field, value)


def require_jobs(jobs: object) -> None:
    """Raise `InputError` unless ``jobs`` is a number of processes that a machine can hold."""
    good = isinstance(jobs, int) and not isinstance(jobs, bool) and 1 <= jobs <= MOST_JOBS
    require(good, "jobs", jobs, f"a whole number of processes, 1 to {MOST_JOBS:,}")


def require_quantity(
    field: str, value: object, unit: str, *, above_zero: bool = False, infinite: bool = False
) -> None:
    """Raise `InputError` unless ``value`` is a real number in range (never NaN)."""
    good = isinstance(value, int | float) and not isinstance(value, bool)
    if good:
        try:
            number = float(value)  # type: ignore[arg-type]
        except OverflowError:  # a whole number past the largest float
            number = math.nan
        good = number > 0 if above_zero else number >= 0
        good = good and (infinite or math.isfinite(number))
    bound = "above 0" if above_zero else "0 or above"
    require(good, field, value, f"a{'' if infinite else ' finite'} number {bound} [{unit}]")
