"""What chips have in a memory, stage by stage and by what it is, and what would make it fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from crosstack.errors import require, require_quantity
from crosstack.model.memory import (
    LIVE,
    STATE,
    CopyMemory,
    activations_held,
    data_size,
    end_sizes,
    passing_size,
)
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.stage_layers import chip_layers
from crosstack.model.state import state_held
from crosstack.workload.kernel_graph import Floats
from crosstack.workload.transformer_training import Recompute
from crosstack.workload.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Bytes on a chip of one stage, by what they are. [B]

    ``weights`` with what else stays for good (tables, a matrix); ``gradients`` and
    ``optimizer_state`` of them; ``activations`` kept for the backward pass; ``caches`` of keys and
    values; ``logits`` of the last stage with their gradient; ``buffers``, tensors between the
    kernels that run and what kernels set aside; ``reserve``, what something else keeps for itself.
    """

    weights: float = 0.0
    gradients: float = 0.0
    optimizer_state: float = 0.0
    activations: float = 0.0
    caches: float = 0.0
    logits: float = 0.0
    buffers: float = 0.0
    reserve: float = 0.0

    def __post_init__(self) -> None:
        """Check every row."""
        for row in fields(self):
            require_quantity(row.name, getattr(self, row.name), "B")

    @property
    def total(self) -> float:
        """Bytes of all rows. [B]"""
        return math.fsum(getattr(self, row.name) for row in fields(self))


ROWS: tuple[str, ...] = tuple(row.name for row in fields(StageMemory))
MemoryRow = tuple[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryAccount:
    """Main memory of a chip of every stage at its peak: ``sizes`` of every row of `ROWS`. [B]

    Raises `InputError` if rows differ in their stages or a size is no number of bytes.
    """

    sizes: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        """Check that every row has a size a stage, there is a stage, and sizes are bytes."""
        stages = [len(sizes) for sizes in self.sizes]
        even = len(stages) == len(ROWS) and len(set(stages)) == 1 and stages[0] > 0
        require(even, "sizes", stages, f"{len(ROWS)} rows of one length, at least one stage")
        for row, sizes in zip(ROWS, self.sizes, strict=True):
            require_quantity(row, min(sizes), "B")
            require_quantity(row, max(sizes), "B")

    @classmethod
    def of(cls, stages: Sequence[StageMemory]) -> MemoryAccount:
        """Return the account of some stages."""
        return cls(sizes=tuple(tuple(float(getattr(s, row)) for s in stages) for row in ROWS))

    @property
    def totals(self) -> tuple[float, ...]:
        """Bytes of all rows by stage. [B]"""
        return tuple(map(math.fsum, zip(*self.sizes, strict=True)))

    @property
    def fullest(self) -> int:
        """The stage whose chips hold the most, of equal ones the first. [1]"""
        totals = self.totals
        return totals.index(max(totals))

    @property
    def peak(self) -> float:
        """What a chip of the fullest stage holds. [B]"""
        return max(self.totals)

    @property
    def kind(self) -> str:
        """Name of the row that takes most of the peak, in words."""
        here = [sizes[self.fullest] for sizes in self.sizes]
        return ROWS[here.index(max(here))].replace("_", " ")

    def stage(self, number: int) -> StageMemory:
        """Return what a chip of a stage holds."""
        here = (sizes[number] for sizes in self.sizes)
        return StageMemory(**dict(zip(ROWS, here, strict=True)))

    @property
    def stages(self) -> tuple[StageMemory, ...]:
        """What a chip of every stage holds."""
        return tuple(map(self.stage, range(len(self.sizes[0]))))

    def rows(self) -> tuple[MemoryRow, ...]:
        """Return (name, bytes by stage) of every row that is not empty, and of the total. [B]"""
        named = [(row, sizes) for row, sizes in zip(ROWS, self.sizes, strict=True) if any(sizes)]
        return (*named, ("total", self.totals))


def pipeline_account(
    workload: Workload,
    plan: MeshPlan,
    memory: CopyMemory,
    working: Sequence[float],
    kernels: Sequence[Sequence[int]] | None = None,
) -> MemoryAccount:
    """Return the account of the pipeline of a mapped graph.

    Parameters
    ----------
    working : sequence of float
        By stage that holds part of a copy, or of one that holds whole copies: the most that tensors
        between the partitions that run take. [B]
    kernels : sequence of sequences, optional
        Those of each stage that holds part of a copy; left out, stages hold whole copies, as even
        as can be, the longer ones first.
    """
    if kernels is None:
        stages = np.arange(plan.pipeline)
        count = chip_layers(plan, stages)
        moving = working[0] * (count > 0)
        activations = activations_held(plan, memory, stage=stages, copies=count)
    else:
        moving, activations = np.asarray(working, float), np.zeros(len(working))

    def of(sizes: Floats) -> Floats:
        if kernels is None:
            return count * float(sizes.sum())
        return np.array([sizes[list(inside)].sum() for inside in kernels])

    nothing, some = np.zeros(len(moving)), memory.experts.any()
    experts = [of(np.where(memory.experts, getattr(memory, row), 0.0)) for row in STATE if some]
    sizes = state_held(plan, *(of(getattr(memory, row)) for row in STATE), *experts)
    table = dict(zip(STATE, sizes, strict=True))
    table["weights"] = table["weights"] + data_size(workload, plan)
    table["activations"], table["caches"] = activations, of(memory.caches)
    table["buffers"] = of(memory.buffers) + moving
    if kernels is None:
        table["buffers"] += passing_size(plan, float(memory.weights.sum()), count)
    for stage, rows in zip(sorted({0, plan.pipeline - 1}), end_sizes(plan), strict=False):
        if not rows:
            break
        more = max(rows.pop(LIVE) - moving[stage], 0.0)  # an end runs while no layer does
        table["buffers"][stage] += more
        for row, size in rows.items():
            table.setdefault(row, nothing.copy())[stage] += size
    return MemoryAccount(sizes=tuple(tuple(table.get(row, nothing).tolist()) for row in ROWS))


def memory_levers(account: MemoryAccount, recompute: Recompute) -> tuple[str, ...]:
    """Return what would make a mapping fit, by what takes most of its peak."""
    stage = account.stage(account.fullest)
    state = stage.weights + stage.gradients + stage.optimizer_state
    first: tuple[str, ...]
    if stage.activations > max(state, stage.caches, stage.buffers):
        more = () if recompute is Recompute.FULL else ("recomputation",)
        first = (*more, "smaller microbatches", "more tensor parallelism")
    elif stage.caches > max(state, stage.buffers):
        first = ("fewer sequences at a time", "more tensor parallelism")
    elif stage.buffers > state:
        first = ("smaller microbatches", "fewer, larger partitions", "more tensor parallelism")
    else:
        first = ("more tensor or pipeline parallelism (fewer layers a stage)", "more chips")
    return (*first, "more memory a chip")
