"""How many chips split tensors, layers and the batch, as far as that is given: ``tp=8,pp=4``.

Chips that have parts of the experts are among those that split the batch, so ``ep`` divides ``dp``
and all chips are ``tp x cp x pp x dp``, as in Megatron: ``cp`` of them share each sequence. All
``tp`` chips share those parts besides: ``etp`` says whether they cut each expert (``etp=tp``, which
leaves ``ep`` as it is) or have some experts each (``etp=1``). Then ``ep`` counts those chips, too,
as there are so many parts of the experts: ``ep x etp`` chips have all of them, whatever is said.
With an ``etp`` in between, so many of those chips, the nearest, cut each expert of theirs, and the
``tp / etp`` groups of them have other experts (``nvidia_megatron_core``, ``liu2025folding``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from crosstack.errors import InputError, Problem, require, require_whole
from crosstack.machine.system import Parallelism
from crosstack.model.tiles import divisors

_DEGREE = re.compile(r"(tp|pp|dp|etp|ep|cp)=(\d{1,15})", re.IGNORECASE)
_WORDS = {
    "tp": Parallelism.TENSOR,
    "pp": Parallelism.PIPELINE,
    "dp": Parallelism.DATA,
    "ep": Parallelism.EXPERT,
    "cp": Parallelism.CONTEXT,
}
_CUT = "etp"
_FIELDS = {word: use.value for word, use in _WORDS.items()} | {_CUT: "expert_tensor"}
_ALLOWED = (
    "degrees such as tp=8,pp=4,dp=16, cp=4 or ep=8, part of dp, or etp=1 of those; one that is "
    "left out is free"
)


def degree_of(use: Parallelism, sizes: Sequence[int], uses: Sequence[Parallelism]) -> int:
    """Return the product of the sizes whose use it is; those of experts are of data, too. [1]"""
    kinds = (use, Parallelism.EXPERT) if use is Parallelism.DATA else (use,)
    return math.prod(size for size, own in zip(sizes, uses, strict=True) if own in kinds)


def expert_chips(expert: int, expert_tensor: int | None, tensor: int) -> int:
    """Return how many data-parallel chips have parts of the experts: ``ep etp / tp``. [1]

    Parameters
    ----------
    expert, expert_tensor, tensor : int
        ``ep``, ``etp`` and ``tp``; an ``etp`` that is not said (None) is as good as ``tp``. [1]

    Raises
    ------
    InputError
        If ``etp`` does not divide ``tp``, or the experts are in fewer parts than there are groups
        of ``etp`` tensor-parallel chips.
    """
    cut = tensor if expert_tensor is None else expert_tensor
    require(tensor % cut == 0, "expert_tensor", cut, cuts_allowed(tensor, cut))
    groups = tensor // cut
    fewer = expert // groups * groups
    near = " or ".join(f"ep={n}" for n in (fewer, fewer + groups) if n)
    whose = "each of those chips has" if cut == 1 else f"each {cut} of those chips have"
    allowed = f"a multiple of {groups_words(tensor, cut)}, as {whose} other experts"
    require(expert % groups == 0, "expert", expert, f"{allowed}; nearest: {near}")
    return expert // groups


def cuts_allowed(tensor: int, asked: int) -> str:
    """Say over how many tensor-parallel chips each expert may be cut, with the nearest. [1]"""
    good = divisors(tensor)
    near = [*[n for n in good if n < asked][-1:], *[n for n in good if n > asked][:1]]
    close = " or ".join(f"etp={n}" for n in near)
    return f"a divisor of tp={tensor}, of whose chips so many cut each expert; nearest: {close}"


def groups_words(tensor: int, cut: int) -> str:
    """Say how many groups of tensor-parallel chips have other experts, in terms of degrees. [1]"""
    return f"tp={tensor} with etp=1" if cut == 1 else f"tp/etp={tensor // cut} with etp={cut}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Degrees:
    """Chips of each parallelism; None: free. [1]

    ``expert`` of the ``data`` chips have a part of the routed experts each; ``context`` chips share
    a sequence. ``expert_tensor`` of the ``tensor`` chips cut each expert: one, some or all; where
    it is given, ``expert`` is how many parts the experts are in, see `expert_chips`.
    """

    tensor: int | None = None
    pipeline: int | None = None
    data: int | None = None
    expert: int | None = None
    context: int | None = None
    expert_tensor: int | None = None

    def __post_init__(self) -> None:
        """Check the numbers that are given."""
        for use, degree in self.given.items():
            require_whole(use.value, degree, what="chips")
        if self.expert_tensor is not None:
            require_whole("expert_tensor", self.expert_tensor, what="chips")
        chips = self.expert_chips
        if chips is not None and self.data is not None:
            allowed = f"a divisor of the data-parallel degree, {self.data}"
            if self.expert != chips and self.tensor and self.expert_tensor:
                allowed += f", times {groups_words(self.tensor, self.expert_tensor)}"
            require(self.data % chips == 0, "expert", self.expert, allowed)

    @property
    def given(self) -> dict[Parallelism, int]:
        """Degree of every parallelism that has one. [1]"""
        degrees = (self.tensor, self.pipeline, self.data, self.expert, self.context)
        pairs = zip(Parallelism, degrees, strict=True)
        return {use: degree for use, degree in pairs if degree is not None}

    @property
    def expert_chips(self) -> int | None:
        """Data-parallel chips that have parts of the experts; None: free, or for tp to say. [1]"""
        if self.tensor is None:
            return self.expert if self.expert_tensor is None else None
        chips = expert_chips(self.expert or self.tensor, self.expert_tensor, self.tensor)
        return None if self.expert is None else chips

    @property
    def all_given(self) -> bool:
        """Whether none is free, but for how many of the data-parallel chips share experts."""
        return None not in (self.tensor, self.pipeline, self.data, self.context)

    @property
    def n_chips(self) -> int:
        """Chips of all that are given. [1]"""
        data = self.expert_chips if self.data is None else self.data
        return math.prod(each or 1 for each in (self.tensor, self.pipeline, data, self.context))

    def may_have(self, use: Parallelism, size: int) -> bool:
        """Whether ``size`` chips may be a factor of what ``use`` has."""
        given = self.given  # all divide 0, which stands for free
        among = (use, Parallelism.DATA) if use is Parallelism.EXPERT else (use,)
        return all(given.get(one, 0) % size == 0 for one in among)

    def are_those_of(self, sizes: Sequence[int], uses: Sequence[Parallelism]) -> bool:
        """Whether dimensions of so many chips, used so, have these degrees."""
        given, tensor = self.given, degree_of(Parallelism.TENSOR, sizes, uses)
        groups = 1 if self.expert_tensor is None else tensor / self.expert_tensor
        if groups % 1 or (self.expert or 0) % groups:
            return False
        if self.expert is not None:
            given[Parallelism.EXPERT] = self.expert // int(groups)
        return all(degree_of(use, sizes, uses) == each for use, each in given.items())

    @property
    def by_word(self) -> dict[str, int]:
        """Degree of every parallelism that has one, by its word. [1]"""
        given = self.given
        found = {word: given[use] for word, use in _WORDS.items() if use in given}
        return found if self.expert_tensor is None else found | {_CUT: self.expert_tensor}

    def __str__(self) -> str:
        """Return the degrees as `parse_degrees` reads them."""
        return ",".join(f"{word}={degree}" for word, degree in self.by_word.items())


FREE = Degrees()


def parse_degrees(text: str) -> Degrees:
    """Read degrees such as ``tp=8,pp=4,dp=16``; one that is left out is free.

    Raises
    ------
    InputError
        If the text is none, names one twice, or a degree is 0.
    """
    found = [_DEGREE.fullmatch(part.strip()) for part in text[:200].split(",")]
    named = {_FIELDS[one[1].lower()]: int(one[2]) for one in found if one}
    if len(named) < len(found):
        raise InputError(Problem("degrees", f"got {text[:60]!r}; allowed: {_ALLOWED}."))
    try:
        return Degrees(**named)
    except InputError as error:
        raise error.under("degrees") from None
