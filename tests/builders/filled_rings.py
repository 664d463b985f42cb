"""Uses of rings, lines and grids that ranks fill one after the other, by trying all degrees."""

from __future__ import annotations

import itertools
import math

from crosstack.machine.network import KINDS
from crosstack.machine.system import Parallelism, System
from crosstack.model.tiles import divisors

Rows = list[tuple[int, Parallelism, int]]  # chips, what they are used for, and which level

_TENSOR, _PIPELINE, _DATA, _EXPERT, _CONTEXT = Parallelism
ORDERS = (
    (_TENSOR, _CONTEXT, _EXPERT, _PIPELINE, _DATA),
    (_TENSOR, _CONTEXT, _EXPERT, _DATA, _PIPELINE),
)


def rings_of(system: System, sizes: tuple[int, ...]) -> list[int]:
    """Return the levels that parallelisms may share although their chips have neighbours."""
    return [
        i
        for i, d in enumerate(system.network)
        if d.parallelism is None and sizes[i] > 1 and KINDS[d.kind].by_neighbours
    ]


def filled_rings(system: System, sizes: tuple[int, ...]) -> list[Rows]:
    """Return what each of those levels serves, where one at least serves several parallelisms."""
    rings = rings_of(system, sizes)
    chips = math.prod(sizes[i] for i in rings)
    found = []
    for order in ORDERS:
        for degrees in itertools.product(divisors(chips), repeat=len(order)):
            if math.prod(degrees) != chips:
                continue
            rows = _walked(rings, sizes, list(zip(order, degrees, strict=True)))
            if rows is not None and len(rows) > len(rings) and rows not in found:
                found.append(rows)
    return found


def _walked(
    rings: list[int], sizes: tuple[int, ...], degrees: list[tuple[Parallelism, int]]
) -> Rows | None:
    """Return the rows of degrees that fill rings in turn; None where borders do not meet."""
    rows: Rows = []
    at, left = 0, sizes[rings[0]] if rings else 1
    for use, degree in degrees:
        more = degree
        while more > 1:
            if left == 1:
                at += 1
                left = sizes[rings[at]]
            here = min(left, more)
            if left % here or more % here:
                return None
            rows.append((here, use, rings[at]))
            left, more = left // here, more // here
    return rows
