"""Where a search for a front looks next: points drawn evenly, and points near its members."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from crosstack.explore.machines import MachineChoice

__all__ = ["Drawn", "draws_near", "first_draws"]

Drawn = tuple[int, NDArray[np.float64]]  # the number of a choice, and a point of its space
SPREAD = 0.4  # standard deviation of the logarithms of shares, from parent to child
MOVES = 0.3  # how often a child takes another choice than its parent


def first_draws(
    choices: Sequence[MachineChoice], random: np.random.Generator, count: int
) -> list[Drawn]:
    """Return given and even shares of every choice, then points drawn evenly, choice by choice."""
    drawn: list[Drawn] = [(i, c.space.start) for i, c in enumerate(choices)]
    drawn += [(i, c.space.centre) for i, c in enumerate(choices)]
    while len(drawn) < count:
        drawn.append(_even(choices, random))
    return drawn


def draws_near(
    choices: Sequence[MachineChoice],
    parents: Sequence[tuple[int, tuple[float, ...]]],
    random: np.random.Generator,
    count: int,
) -> list[Drawn]:
    """Return points near ``parents``; evenly drawn ones where there is none yet."""
    drawn: list[Drawn] = []
    for _ in range(count):
        if not parents:
            drawn.append(_even(choices, random))
            continue
        number, point = parents[int(random.integers(len(parents)))]
        space = choices[number].space.space
        moved = space.logarithms(np.array(point))
        moved = moved + SPREAD * random.standard_normal(len(moved))
        if random.random() < MOVES:
            other = int(random.integers(len(choices)))
            if choices[other].space.space.names == space.names:
                number = other
        drawn.append((number, choices[number].space.space.from_logarithms(moved)))
    return drawn


def _even(choices: Sequence[MachineChoice], random: np.random.Generator) -> Drawn:
    number = int(random.integers(len(choices)))
    return number, choices[number].space.space.draw(random, 1)[0]
