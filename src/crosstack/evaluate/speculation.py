"""Speculative decoding: a small model drafts, a large one checks.

Sources: ``leviathan2023speculative`` for a sequence of drafted tokens, ``miao2024specinfer`` for a
tree of them, ``ko2025dfmodel`` (section VIII.B) for both on one machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from crosstack.errors import require, require_whole
from crosstack.evaluate.plan import optimise
from crosstack.machine.system import System
from crosstack.mapping.mapping import Constraints
from crosstack.model.rules import Rules
from crosstack.records import require_type
from crosstack.workload.architectures import Transformer
from crosstack.workload.dtype import Dtype
from crosstack.workload.job import Job

MOST_DRAFTED = 2**20  # tokens of one tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """What speculative decoding reaches.

    ``draft_time`` and ``check_time`` of one step [s], ``tokens`` that a step is expected to add to
    each sequence [1], ``rate`` of each sequence [1/s], and ``plain_time``, what the target takes
    for a token on its own [s].
    """

    window: int
    acceptance: float
    branches: int
    draft_time: float
    check_time: float
    tokens: float
    plain_time: float

    @property
    def rate(self) -> float:
        """Tokens of one sequence per second. [1/s]"""
        return self.tokens / (self.draft_time + self.check_time)

    @property
    def speedup(self) -> float:
        """Over the target on its own. [1]"""
        return self.rate * self.plain_time


def expected_tokens(window: int, acceptance: float, branches: int = 1) -> float:
    """Tokens that one step is expected to add to a sequence. [1]

    Parameters
    ----------
    window : int
        Drafted tokens that follow one another. [1]
    acceptance : float
        Probability that a drafted token is accepted, 0 to 1. [1]
    branches : int
        Tokens drafted for each place; 1 is a sequence. [1]

    Raises
    ------
    InputError
        If one of them is out of range.

    Notes
    -----
    ``1 + b + ... + b^K`` with ``b = 1 - (1 - a)^w``: each level of the tree goes on if one of its w
    tokens is accepted, each on its own; the check adds one token in any case. For w = 1 this is
    ``(1 - a^(K+1)) / (1 - a)`` (``leviathan2023speculative``, equation 1); for larger w the
    independence is an assumption (``miao2024specinfer``).
    """
    _check(window, acceptance, branches)
    goes_on = 1.0 - (1.0 - acceptance) ** branches
    return math.fsum(goes_on**level for level in range(window + 1))


def drafted_tokens(window: int, branches: int = 1) -> tuple[int, ...]:
    """Tokens of each level of the tree, from the one that is known to the deepest. [1]"""
    return tuple(branches**level for level in range(window + 1))


def _check(window: int, acceptance: float, branches: int) -> None:
    require_whole("window", window)
    require_whole("branches", branches)
    number = isinstance(acceptance, int | float) and not isinstance(acceptance, bool)
    require(number and 0 <= acceptance <= 1, "acceptance", acceptance, "0 to 1")
    tokens = window * math.log2(branches) if branches > 1 else math.log2(window + 1)
    allowed = f"{branches}^window at most {MOST_DRAFTED} tokens"
    require(tokens <= math.log2(MOST_DRAFTED), "window", window, allowed)


def speculate(
    draft: Transformer,
    target: Transformer,
    system: System,
    constraints: Constraints | None = None,
    *,
    context: int,
    window: int,
    acceptance: float,
    branches: int = 1,
    batch: int = 1,
    dtype: Dtype | str = Dtype.BF16,
    rules: Rules | str | None = None,
) -> Speculation:
    """Return what speculative decoding reaches when both models share all chips.

    Parameters
    ----------
    draft, target : Transformer
        The model that drafts and the one that checks.
    constraints : Constraints, optional
        What is given of the mappings of both.
    context, batch : int
        Tokens that are kept of each sequence; sequences that are written at once. [1]
    window, acceptance, branches
        See `expected_tokens`.
    dtype : Dtype or str
        Of weights and activations of both.

    Raises
    ------
    InputError
        If a number makes no sense.
    InfeasibleError
        If a model does not fit.

    Notes
    -----
    The draft model runs once a level of the tree, on all tokens of that level; the target runs
    once, on all tokens. Each run is a decoding step, mapped on its own.
    """
    require_type("draft", draft, Transformer)
    require_type("target", target, Transformer)
    require_type("system", system, System)
    tokens = expected_tokens(window, acceptance, branches)
    levels = drafted_tokens(window, branches)

    @cache
    def step(model: Transformer, new: int) -> float:
        job = Job(
            model=model, kind="decode", context=context, sequence=new, batch=batch, dtype=dtype
        )
        answer = optimise(job, system, constraints=constraints, rules=rules)
        return answer.evaluation.time

    return Speculation(
        window=window,
        acceptance=acceptance,
        branches=branches,
        draft_time=sum(step(draft, new) for new in levels[:-1]),
        check_time=step(target, sum(levels)),
        tokens=tokens,
        plain_time=step(target, 1),
    )
