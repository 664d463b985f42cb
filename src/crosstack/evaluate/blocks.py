"""Blocks of many strategies: the kernels of a layer, sharded and fused once for all of them.

A *block problem* is the best sharding and fusion of one layer for a use of tensor parallelism, a
microbatch size and what is computed again (`crosstack.mapping.search` with those given, without a
limit on main memory). Its *terms* are what any strategy needs of the answer: the time of every
partition without gradients, the bytes of gradients, and what a chip keeps. They depend, beside the
block, on how many microbatches add to the gradients and on whether a layer is alone in its stage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from crosstack.errors import InfeasibleError, InputError, LimitError
from crosstack.evaluate.time import evaluate
from crosstack.machine.system import System
from crosstack.mapping.blocks import chips_of_tokens
from crosstack.mapping.decided import decided
from crosstack.mapping.degrees import FREE
from crosstack.mapping.ideals import TableCache
from crosstack.mapping.incumbent import masks_of
from crosstack.mapping.mapping import Certificate, Constraints, Mapping
from crosstack.mapping.parallelism import Use
from crosstack.mapping.search import search
from crosstack.model.alive import live_sizes
from crosstack.model.choice_index import sharding_codes
from crosstack.model.choices import make_choices
from crosstack.model.collectives import AffineTime, ConcaveTime
from crosstack.model.memory import COPY_COLUMNS, STATE, copy_memory
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.partition import (
    ChipLoad,
    combine_arrays,
    make_load,
    one_by_one,
    partition_cost,
)
from crosstack.model.rules import Rules
from crosstack.model.schedule.allowed import some_layers_again
from crosstack.workload.kernel_graph import Bools, Floats, Ints, bits
from crosstack.workload.transformer_training import ZEROS, Recompute
from crosstack.workload.workload import Workload

BLOCK_WORK = 1e4  # units of work of the search of one block: about 0.1 s
NOUGHT = np.zeros(())  # the time of main memory, where that on the chip has it
BlockKey = tuple[int, int, int]  # group, microbatch size, place of what is computed again
RowKey = tuple[int, ...]  # of a block, data degree, whether a layer is alone, memory tier
_BYTES = ConcaveTime((AffineTime(per_byte=1.0),))  # whose time is the bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SolvedBlock:
    """The mapping that a block was solved with, of one of its strategies, and how sure it is."""

    mapping: Mapping
    certificate: Certificate


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockTerms:
    """What blocks take, each shape (rows, ...); times of one sequence [s], sizes [B].

    ``others`` is the time of all partitions that sum no gradients. Of the others, one place each in
    ``device`` and ``network``: the time on the chip, and of messages among tensor-parallel chips;
    ``gradients`` are the bytes that each kernel with gradients sums once an iteration, and
    ``place`` is that of its partition, by rules that count that in the layers; ``summed`` are all
    of one copy by others, and of those the ones of routed experts that fewer chips sum. ``state``
    are the rows of `crosstack.model.memory.STATE`, but for such experts and of them, ``rest`` what
    else stays whatever runs; ``kept``, ``again`` and ``waiting`` are those
    of `crosstack.model.memory.CopyMemory`, ``working`` is the most that tensors between
    kernels take. ``fits``: whether the partitions fit the chip. Times are of a layer that computes
    again what its block says; ``more`` is what it takes longer for that than one that does not.
    """

    others: Floats
    device: Floats
    network: Floats
    gradients: Floats
    place: Ints
    summed: Floats
    state: Floats
    rest: Floats
    kept: Floats
    again: Floats
    waiting: Floats
    working: Floats
    fits: Bools
    more: Floats

    @classmethod
    def stacked(cls, rows: Sequence[BlockTerms]) -> BlockTerms:
        """Return many rows as one table."""
        names = [column.name for column in fields(cls)]
        return cls(**{name: np.stack([getattr(row, name) for row in rows]) for name in names})


@dataclass(slots=True, kw_only=True)
class BlockTable:
    """Blocks of one workload on one system, solved when they are first asked for.

    ``constraints`` are decisions on kernels that are given; the search of a block ends after
    ``work_limit`` units of work. [1]
    """

    workload: Workload
    system: System
    rules: Rules
    constraints: Constraints = field(default_factory=Constraints)
    work_limit: float = BLOCK_WORK
    solved: dict[BlockKey, SolvedBlock | None] = field(default_factory=dict)
    groups: dict[object, int] = field(default_factory=dict)
    rows: dict[RowKey, int] = field(default_factory=dict)
    tables: TableCache = field(default_factory=dict)
    _priced: list[BlockTerms] = field(default_factory=list)
    _alike: dict[tuple[int, int], Mapping] = field(default_factory=dict)
    _stacked: BlockTerms | None = None
    _grouped: tuple[tuple[MeshPlan, ...], Ints] | None = None

    def __post_init__(self) -> None:
        """Take the workload as the chips run it, and chips that overlap what is given."""
        self.workload, self.system = self.constraints.as_run(self.workload, self.system)

    @property
    def terms(self) -> BlockTerms:
        """All rows that are known."""
        if self._stacked is None or len(self._stacked.others) < len(self._priced):
            self._stacked = BlockTerms.stacked(self._priced)
        return self._stacked

    def group(self, plan: MeshPlan) -> int:
        """Return the number of what plans share whose tensor parallelism takes the same times."""
        key = plan.tensor, tuple(plan.collectives.items()), chips_of_tokens(plan)
        return self.groups.setdefault(key, len(self.groups))

    def groups_of(self, plans: tuple[MeshPlan, ...]) -> Ints:
        """Return the `group` of each of many plans; they are asked of the same ones again."""
        if self._grouped is None or self._grouped[0] is not plans:
            self._grouped = plans, np.array([self.group(plan) for plan in plans])
        return self._grouped[1]

    def solve(self, key: BlockKey, plan: MeshPlan) -> SolvedBlock | None:
        """Return the answer to the block problem of one of its plans; None: nothing was found."""
        if key not in self.solved:
            alike = (key[2], plan.tensor)
            self.solved[key] = self._solved(plan, self._alike.get(alike))
            if (found := self.solved[key]) is not None:
                self._alike[alike] = found.mapping
        return self.solved[key]

    def add(self, key: RowKey, plan: MeshPlan, block: SolvedBlock | None) -> int:
        """Add what a block takes under a plan, None: nothing was found; and return its row."""
        self.rows[key] = len(self._priced)
        self._priced.append(self._nothing() if block is None else self._terms(plan, block.mapping))
        return self.rows[key]

    def searched(
        self,
        plan: MeshPlan,
        system: System,
        start: tuple[Mapping, float] | None = None,
        **given: Any,
    ) -> SolvedBlock:
        """Return the kernels of a plan's block on a system, and how sure they are.

        ``start`` is a mapping of it with its time [s], from which it is searched; ``given`` are
        decisions beside those that the plan says.

        Raises
        ------
        InfeasibleError
            If it is proved that nothing fits.
        LimitError
            If nothing was found before the limit on work.
        """
        use = Use.of(plan, (plan.microbatch_size,))
        constraints = replace(
            self.constraints,
            degrees=FREE,
            microbatch_size=None,
            recompute=plan.recompute if plan.training else None,
            zero=ZEROS[plan.zero],
            overlap=plan.hidden,
            **{"recompute_layers": None, **given},
        )
        mapping, certificate = search(
            *(self.workload, system, constraints, self.rules),
            uses=(use,),
            work_limit=self.work_limit,
            start=start,
            tables=self.tables,
        )
        return SolvedBlock(mapping=mapping, certificate=certificate)

    def _solved(self, plan: MeshPlan, kernels: Mapping | None) -> SolvedBlock | None:
        alone = self.system.replayed  # behind a host's launches, any block would do
        host = alone.host and replace(alone.host, capacity=math.inf)
        roomy = replace(alone, chip=alone.chip.with_memory(capacity=None), host=host)
        known = kernels and self._under(plan, kernels, roomy)
        for start in [known, None] if known else [None]:
            try:
                return self.searched(plan, roomy, start, interleave=1)
            except InputError:  # other kernels may be in an order that is not searched here
                if start is None:
                    raise
            except (InfeasibleError, LimitError):
                break
        return None

    def _under(
        self, plan: MeshPlan, kernels: Mapping, system: System
    ) -> tuple[Mapping, float] | None:
        """Return the kernels of another block under a plan, with the time; None: they may not be.

        Blocks that split tensors and compute again alike often have the same kernels. [s]
        """
        given = decided(plan) | {"interleave": 1, "recompute_layers": None}
        try:
            mapping = replace(kernels, **given)
            return mapping, evaluate(self.workload, system, mapping, self.rules).time
        except (InfeasibleError, InputError):
            return None

    def _nothing(self) -> BlockTerms:
        """Return the row of a block for which nothing fits the chip."""
        count = int((self.workload.graph.periodic_size > 0).sum())
        none, zero = np.zeros(count), np.asarray(0.0)
        return BlockTerms(
            others=zero, device=none, network=none, gradients=none, place=np.zeros(count, int),
            summed=np.zeros(2), state=np.zeros((len(STATE), 2)), rest=zero, kept=zero, again=zero,
            waiting=zero, working=zero, fits=np.asarray(False), more=zero,
        )  # fmt: skip

    def _terms(self, plan: MeshPlan, mapping: Mapping) -> BlockTerms:
        workload, arrays, rules = self.workload, self.workload.graph, self.rules
        chip, counted = self.system.chip, replace(plan, periodic=_BYTES, again=1.0)
        first = replace(counted, spilled=False)
        choices = make_choices(workload, arrays, first, mapping.n_tiles, rules, chip)
        codes = sharding_codes(choices.index, mapping.sharding, split=plan.tensor > 1)
        load = make_load(workload, self.system, arrays, counted, choices, codes, rules)
        masks = masks_of(mapping)
        load = one_by_one(load, rules) if len(masks) == arrays.n else load
        silent = replace(load, network=(0.0,) * load.n, data=(0.0,) * load.n)
        costs = [partition_cost(silent, mask) for mask in masks]
        more = self._more_of_again(counted, mapping, load, masks)
        device = np.array([cost.time for cost in costs])
        network = np.array([math.fsum(load.network[i] for i in bits(mask)) for mask in masks])
        summing = np.flatnonzero(arrays.periodic_size > 0)
        times = rules.iteration.shares_of_gradients(plan) * arrays.sharers[summing]
        where = {i: number for number, mask in enumerate(masks) for i in bits(mask)}
        partition = np.array([where[i] for i in summing.tolist()], dtype=np.int64)
        with_gradients, place = np.unique(partition, return_inverse=True)
        pad = (0, len(summing) - len(with_gradients))
        alone = np.delete(np.arange(len(masks)), with_gradients)
        both = combine_arrays(device[alone], NOUGHT, network[alone], chip.overlap)
        columns = {name: getattr(choices, name)[codes] for name in COPY_COLUMNS}
        memory = copy_memory(workload, arrays, plan, rules, **columns)
        return BlockTerms(
            others=np.asarray(both.sum()),
            device=np.pad(device[with_gradients], pad),
            network=np.pad(network[with_gradients], pad),
            gradients=np.array(load.data)[summing] * times,
            place=place,
            summed=np.array([c[codes].sum() for c in (choices.summed, choices.expert_summed)]),
            state=np.array([_apart(getattr(memory, row), memory.experts) for row in STATE]),
            rest=np.asarray((memory.buffers + memory.caches).sum()),
            kept=np.asarray(memory.kept.sum()),
            again=np.asarray(memory.again.sum()),
            waiting=np.asarray(memory.waiting.sum()),
            working=np.asarray(max(live_sizes(load, masks))),
            fits=np.asarray(all(cost.fits for cost in costs)),
            more=np.asarray(more),
        )

    def _more_of_again(
        self, plan: MeshPlan, mapping: Mapping, load: ChipLoad, masks: Sequence[int]
    ) -> float:
        """Time that a layer takes longer as it computes again what a plan says. [s]"""
        workload, arrays, rules = self.workload, self.workload.graph, self.rules
        chip = self.system.chip
        if plan.recompute is Recompute.NONE or not some_layers_again(chip, rules):
            return 0.0
        kept = replace(plan, again=0.0)
        choices = make_choices(workload, arrays, kept, mapping.n_tiles, rules, chip)
        codes = sharding_codes(choices.index, mapping.sharding, split=plan.tensor > 1)
        other = make_load(workload, self.system, arrays, kept, choices, codes, rules)
        other = one_by_one(other, rules) if len(masks) == arrays.n else other
        return math.fsum(
            partition_cost(load, mask).time - partition_cost(other, mask).time for mask in masks
        )


def _apart(sizes: Floats, experts: Bools) -> tuple[float, float]:
    """Return the sums of what is not of routed experts that chips have parts of, and of what is."""
    return float(sizes[~experts].sum()), float(sizes[experts].sum())
