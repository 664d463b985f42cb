"""Which partitions each kernel may be in, of pins and of a limit on their number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from crosstack.errors import InputError, Problem, nearest, require
from crosstack.mapping.mapping import Constraints
from crosstack.model.decisions import Decisions
from crosstack.model.rules import Rules
from crosstack.workload.kernel_graph import KernelGraph, bits

MOST_EMPTY = 8  # partitions a kernel, where pins count empty ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """Which partition numbers each kernel may have: ``first[i]`` to ``last[i]`` of ``count``."""

    count: int
    first: tuple[int, ...]
    last: tuple[int, ...]

    def hold(self, partitions: Sequence[int]) -> bool:
        """Whether every kernel may be in its one of ``partitions``."""
        placed = zip(self.first, partitions, self.last, strict=True)
        return all(first <= number <= last for first, number, last in placed)


def make_slots(
    arrays: KernelGraph, constraints: Constraints, rules: Rules
) -> tuple[Slots | None, bool]:
    """Return which partitions each kernel may have, and whether directions stay apart.

    Raises `InputError` if what is given of partitions contradicts itself.
    """
    n, count = arrays.n, constraints.max_partitions
    number = {name: i for i, name in enumerate(arrays.names)}
    backward = arrays.backward.tolist()
    decisions = rules.decisions
    separate = constraints.separate_directions or decisions.parts_directions(backward, count)
    if constraints.kernel_by_kernel:
        pins, own = dict(constraints.partitions), "as kernel_by_kernel gives every kernel its own"
        require(not pins, "constraints.partitions", pins, f"none, {own} partition")
        enough, allowed = count is None or count >= n, f"at least {n}, {own} partition"
        require(enough, "constraints.max_partitions", count, allowed)
    if count is None and constraints.partitions:
        count = n
    if count is not None:
        count = _useful_count(backward, count, constraints, decisions)
    some = None if count is None else decisions.partitions(backward, count)
    if count is None or (count >= n and not constraints.partitions and some is None):
        return None, separate
    whole = [(0, count - 1)] * n
    first, last = ([*ends] for ends in zip(*(some or whole), strict=True))
    problems = []
    for name, partition in constraints.partitions:
        path = f"constraints.partitions.{name}"
        if name not in number:
            problems.append(unknown_kernel(path, name, number))
            continue
        i = number[name]
        allowed = f"{first[i]} to {last[i]}"
        allowed += "" if some is None else _whose(first[i], last[i], count)
        require(first[i] <= partition <= last[i], path, partition, allowed)
        first[i] = last[i] = partition
    problems += _pins_against_order(arrays, dict(constraints.partitions), number)
    if problems:
        raise InputError(problems)
    return Slots(count=count, first=tuple(first), last=tuple(last)), separate


def _useful_count(
    backward: list[bool], count: int, constraints: Constraints, decisions: Decisions
) -> int:
    """Return a limit on partitions that says the same: more than one a kernel serves nobody."""
    if not constraints.partitions:
        return decisions.most_partitions(backward, count)
    # Pins number partitions, empty ones among them; where rules deal them out, by their limit.
    n, dealt = len(backward), decisions.partitions(backward, count) is not None
    needed = max([n, *(partition + 1 for _, partition in constraints.partitions)])
    least = count if dealt else min(count, needed)
    most = MOST_EMPTY * n + MOST_EMPTY
    allowed = f"up to {most} where kernels are pinned"
    require(least <= most, "constraints.max_partitions", count, allowed)
    return least


def unknown_kernel(path: str, name: str, known: Iterable[str]) -> Problem:
    """Return the problem of a name that no kernel has, with the nearest that are."""
    close = ", ".join(f'"{c}"' for c in nearest(name, known))
    return Problem(
        path, f'no kernel is called "{name}".' + (f" Nearest: {close}." if close else "")
    )


def _whose(first: int, last: int, count: int) -> str:
    """Why a kernel may be pinned to some of ``count`` partitions only."""
    direction = "backward" if first else "forward"
    if count == 1:
        return ", as there is one partition"
    return f", as {direction} kernels have {last - first + 1} of {count} partitions"


def _pins_against_order(
    arrays: KernelGraph, pins: dict[str, int], number: dict[str, int]
) -> list[Problem]:
    """Pinned kernels that would run before a pinned kernel they depend on."""
    latest: dict[int, tuple[int, str]] = {}  # the last pinned partition upstream of each kernel
    problems = []
    for i in arrays.order:
        name = arrays.names[i]
        above = max((latest[j] for j in bits(arrays.preds[i]) if j in latest), default=None)
        if above is not None and pins.get(name, above[0]) < above[0]:
            message = (
                f'got {pins[name]}, but it needs what "{above[1]}" in partition {above[0]} makes; '
                f"allowed: {above[0]} or later."
            )
            problems.append(Problem(f"constraints.partitions.{name}", message))
        own = (pins[name], name) if name in pins else None
        known = [place for place in (above, own) if place is not None]
        if known:
            latest[i] = max(known)
    return problems
