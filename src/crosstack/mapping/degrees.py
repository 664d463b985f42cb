"""How many chips split tensors, layers and the batch, as far as that is given: ``tp=8,pp=4``."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from crosstack.errors import InputError, Problem, require_whole
from crosstack.machine.system import Parallelism

_DEGREE = re.compile(r"(tp|pp|dp)=(\d{1,15})", re.IGNORECASE)
_WORDS = {"tp": Parallelism.TENSOR, "pp": Parallelism.PIPELINE, "dp": Parallelism.DATA}
_ALLOWED = "degrees such as tp=8,pp=4,dp=16; one that is left out is free"


def degree_of(use: Parallelism, sizes: Sequence[int], uses: Sequence[Parallelism]) -> int:
    """Return the product of the sizes whose use it is. [1]"""
    return math.prod(size for size, own in zip(sizes, uses, strict=True) if own is use)


@dataclass(frozen=True, slots=True, kw_only=True)
class Degrees:
    """Chips of each parallelism; None: free. [1]"""

    tensor: int | None = None
    pipeline: int | None = None
    data: int | None = None

    def __post_init__(self) -> None:
        """Check the numbers that are given."""
        for use, degree in self.given.items():
            require_whole(use.value, degree, what="chips")

    @property
    def given(self) -> dict[Parallelism, int]:
        """Degree of every parallelism that has one. [1]"""
        degrees = (self.tensor, self.pipeline, self.data)
        pairs = zip(Parallelism, degrees, strict=True)
        return {use: degree for use, degree in pairs if degree is not None}

    @property
    def all_given(self) -> bool:
        """Whether none is free."""
        return len(self.given) == len(Parallelism)

    def may_have(self, use: Parallelism, size: int) -> bool:
        """Whether ``size`` chips may be a factor of what ``use`` has."""
        return self.given.get(use, 0) % size == 0  # all divide 0, which stands for free

    def are_those_of(self, sizes: Sequence[int], uses: Sequence[Parallelism]) -> bool:
        """Whether dimensions of so many chips, used so, have these degrees."""
        return all(degree_of(use, sizes, uses) == each for use, each in self.given.items())

    def __str__(self) -> str:
        """Return the degrees as `parse_degrees` reads them."""
        given = self.given
        return ",".join(f"{word}={given[use]}" for word, use in _WORDS.items() if use in given)


FREE = Degrees()


def parse_degrees(text: str) -> Degrees:
    """Read degrees such as ``tp=8,pp=4,dp=16``; one that is left out is free.

    Raises
    ------
    InputError
        If the text is none, names one twice, or a degree is 0.
    """
    found = [_DEGREE.fullmatch(part.strip()) for part in text[:200].split(",")]
    named = {_WORDS[one[1].lower()].value: int(one[2]) for one in found if one}
    if len(named) < len(found):
        raise InputError(Problem("degrees", f"got {text[:60]!r}; allowed: {_ALLOWED}."))
    try:
        return Degrees(**named)
    except InputError as error:
        raise error.under("degrees") from None
