"""What each partition takes of a chip that runs kernels one after the other, of what each takes.

`crosstack.model.temporal` makes the record; formulas and bounds are told there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from crosstack.model.legality import Legality, renumbered
from crosstack.model.schedule.layer import KernelRun
from crosstack.workload.kernel_graph import bits


@dataclass(frozen=True, slots=True)
class Run:
    """One time that kernels run: those of mask ``members``.

    ``own`` is what each moves of main memory in any partition; ``moves`` are pairs of a mask and a
    time: what it also moves where one of those kernels is in another partition. [s] ``share``:
    copies of the graph that run so, of all. [1]
    """

    members: int
    own: tuple[float, ...]
    moves: tuple[tuple[tuple[int, float], ...], ...]
    share: float = 1.0

    def of(self, kernels: Sequence[int]) -> Run:
        """Return the same of some of the kernels, numbered anew; the others are left out."""
        number = {kernel: i for i, kernel in enumerate(kernels)}
        kept = (self.moves[i] for i in kernels)
        moves = (((renumbered(mask, number), time) for mask, time in each) for each in kept)
        return Run(
            renumbered(self.members, number),
            tuple(self.own[i] for i in kernels),
            tuple(tuple(move for move in each if move[0]) for each in moves),
            self.share,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TemporalLoad:
    """What the kernels of a load take one after the other, for one sequence. [s]

    ``launch`` of a partition, each time that it runs; by kernel ``delay`` of main memory, ``work``
    and ``after``, each time. ``runs`` are the times that kernels run; all run in the
    first. ``shares`` of a launch are those that each kernel brings to any partition at least.
    ``hides``: whether work and memory hide.
    """

    launch: float
    delay: tuple[float, ...]
    work: tuple[float, ...]
    after: tuple[float, ...]
    runs: tuple[Run, ...]
    shares: tuple[float, ...]
    hides: bool
    legality: Legality

    def computing(self, i: int) -> float:
        """Time of a kernel without main memory, of all times that it runs. [s]"""
        times = sum((run.members >> i & 1) * run.share for run in self.runs)
        return (self.work[i] + self.after[i]) * times

    def terms(self, inside: int) -> tuple[float, float, float, float]:
        """Time on the device, of compute, main memory and launches alone of a partition. [s]"""
        device, compute, memory = self.busy(inside, inside)
        launch = self.launches(inside)
        return device + launch, compute, memory, launch

    def launches(self, inside: int) -> float:
        """Time of the launches of a partition. [s]"""
        launch = 0.0
        for run in self.runs:
            launch += self.launch * run.share if inside & run.members else 0.0
        return launch

    def busy(self, of: int, inside: int) -> tuple[float, float, float]:
        """Time on the device, of compute and of main memory of kernels in a partition. [s]

        Parameters
        ----------
        of, inside : int
            Masks of the kernels, and of all in the partition.
        """
        device = compute = memory = 0.0
        work, after, outside = self.work, self.after, ~inside
        for run in self.runs:
            share, own, moves = run.share, run.own, run.moves
            for i in bits(of & run.members):  # the innermost loop of a search
                moved = own[i]
                for mask, time in moves[i]:
                    if mask & outside:
                        moved += time
                waited = moved + self.delay[i] if moved > 0 else 0.0
                busy = max(work[i], waited) if self.hides else work[i] + waited
                device += share * (after[i] + busy)
                compute += share * (work[i] + after[i])
                memory += share * moved
        return device, compute, memory

    def kernel_runs(self, inside: int, names: Sequence[str]) -> tuple[KernelRun, ...]:
        """Return what each kernel of the partition ``inside`` takes, each time that it runs."""
        found = []
        for number, run in enumerate(self.runs):
            for i in bits(inside & run.members):
                moved = run.own[i] + sum(time for mask, time in run.moves[i] if mask & ~inside)
                one = KernelRun(
                    name=names[i],
                    compute=run.share * self.work[i],
                    memory=run.share * (moved + self.delay[i]) if moved > 0 else 0.0,
                    reduction=run.share * self.after[i],
                    again=number > 0,
                )
                found.append(one)
        return tuple(found)

    @property
    def own(self) -> tuple[float, ...]:
        """Main memory that each kernel moves in any partition, of all times that it runs. [s]"""
        return tuple(
            sum(run.share * run.own[i] * (run.members >> i & 1) for run in self.runs)
            for i in range(len(self.work))
        )

    def label(self, i: int) -> object:
        """Equal for kernels between the same others that may swap places in a sequence."""
        runs = tuple(
            (run.members >> i & 1, run.share, run.own[i], tuple(sorted(run.moves[i])))
            for run in self.runs
        )
        return self.work[i], self.after[i], self.delay[i], runs, self.legality.label(i)

    def of(self, kernels: Sequence[int]) -> TemporalLoad:
        """Return what some of the kernels take, numbered anew; the others are left out."""
        return replace(
            self,
            delay=tuple(self.delay[i] for i in kernels),
            work=tuple(self.work[i] for i in kernels),
            after=tuple(self.after[i] for i in kernels),
            runs=tuple(run.of(kernels) for run in self.runs),
            shares=tuple(self.shares[i] for i in kernels),
            legality=self.legality.of(kernels),
        )
