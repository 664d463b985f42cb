"""What a whole run takes: a training on so many tokens, or as many tokens read or written."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from crosstack.errors import InputError, Problem, require, require_quantity
from crosstack.evaluate.evaluation import Evaluation
from crosstack.mapping.mapping import Task
from crosstack.model.objective import YEAR, YEARS
from crosstack.workload.workload import Workload

TOKEN = "token"
MOST_TOKENS = 1e30


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What an iteration costs; None where it is not known. [USD]

    ``price`` is its share of the purchase price over `crosstack.model.objective.YEARS`,
    ``electricity`` what its energy is billed.
    """

    price: float | None
    electricity: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeRun:
    """A run of ``iterations`` as one is planned, one after the other, that nothing interrupts.

    ``tokens`` [1] are what is asked for, the last iteration may go past them; ``time`` [s],
    ``chip_time`` of all chips [s], ``energy`` [J], ``price`` [USD], the share of the purchase price
    over `crosstack.model.objective.YEARS` without electricity, and ``electricity`` [USD] for the
    energy, each None where it is not known.
    """

    tokens: float
    iterations: int
    time: float = field(metadata={"unit": "s"})
    chip_time: float = field(metadata={"unit": "s"})
    energy: float | None = field(metadata={"unit": "j"})
    price: float | None = field(metadata={"unit": "usd"})
    electricity: float | None = field(default=None, metadata={"unit": "usd"})

    def of_tokens(self, count: float) -> tuple[float | None, float | None]:
        """Return what so many tokens take: energy [J] and price [USD]."""
        share = count / self.tokens
        return (
            None if self.energy is None else share * self.energy,
            None if self.price is None else share * self.price,
        )


def cost_of(task: Task, found: Evaluation) -> Cost:
    """Return what an iteration of an evaluated task costs."""
    price, billed, energy = found.price.total, task.system.prices.electricity, found.energy
    return Cost(
        price=None if price is None else price * found.time / (YEARS * YEAR),
        electricity=None if billed is None or energy is None else billed * energy.total,
    )


def tokens_of_iteration(workload: Workload) -> int:
    """Return how many tokens an iteration reads or writes; `InputError` if it counts none. [1]"""
    if TOKEN not in (workload.item, workload.item_part):
        message = f"allowed for models of language; an item of {workload.name} is {workload.item}."
        raise InputError(Problem("tokens", message))
    return workload.global_batch_size * (workload.item_length if workload.item_part == TOKEN else 1)


def tokens_per_second(workload: Workload, found: Evaluation) -> float | None:
    """Return how many tokens are read or written a second; None where none are counted. [1/s]"""
    try:
        return tokens_of_iteration(workload) / found.time
    except InputError:
        return None


def whole_run(task: Task, found: Evaluation, tokens: float) -> WholeRun:
    """Return what a run of an evaluated task over so many tokens takes. [1]

    Raises
    ------
    InputError
        If the workload counts no tokens, or there are none.
    """
    require_quantity("tokens", tokens, "1", above_zero=True)
    require(tokens <= MOST_TOKENS, "tokens", tokens, f"up to {MOST_TOKENS:g}")
    system = task.system
    iterations = math.ceil(tokens / tokens_of_iteration(task.workload))
    time = iterations * found.time
    spent = cost_of(task, found)
    return WholeRun(
        tokens=tokens,
        iterations=iterations,
        time=time,
        chip_time=time * system.n_chips * system.copies,
        energy=None if found.energy is None else iterations * found.energy.total,
        price=None if spent.price is None else iterations * spent.price,
        electricity=None if spent.electricity is None else iterations * spent.electricity,
    )
