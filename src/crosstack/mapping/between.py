"""Kernels that are in a partition because they run between two others of it.

Partitions run one after the other, so each holds every path between its kernels. A kernel that
waits for a source and that another one of its partition waits for is with both. So ways from a
source to kernels around it have *steps* without length: from a kernel behind the source to one that
it waits for, if that is behind the source, too; and from one before the source to one that waits
for it, if that is before the source.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crosstack.model.partition import ChipLoad
from crosstack.workload.kernel_graph import Bools, Floats, Ints, bits

__all__ = ["Precedence", "Step"]

Step = tuple[Ints, Ints, Floats]
"""Kernels that steps lead to, no two to one, and that they begin at, shape (steps,); their lengths,
shape (steps, sources): 0 where they are allowed, infinite elsewhere."""


@dataclass(frozen=True, slots=True, eq=False)
class Precedence:
    """Kernels by their places: ``other`` waits for ``one`` right before it, shape (pairs,) each.

    ``behind``, shape (n, n), tells whether a kernel (row) waits for another (column), through
    others or not.
    """

    one: Ints
    other: Ints
    behind: Bools

    @classmethod
    def of(cls, load: ChipLoad, place: Ints) -> Precedence:
        """Return that of a load whose kernels have places along a topological order, (n,)."""
        pairs, behind = list[tuple[int, int]](), np.zeros((load.n, load.n), dtype=np.bool_)
        for i in np.argsort(place).tolist():
            here = int(place[i])
            for before in (int(place[j]) for j in bits(load.preds[i])):
                pairs.append((before, here))
                behind[here] |= behind[before]
                behind[here, before] = True
        one, other = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        return cls(one, other, behind)

    def steps(self, sources: Ints, low: int, high: int) -> tuple[Step, ...]:
        """Return steps on ways from some sources, in groups; see `Step`.

        Parameters
        ----------
        sources : array, shape (sources,)
            Their places. [1]
        low, high : int
            Places, ``high`` left out, among which ways stay; steps tell places less ``low``. [1]
        """
        near = (self.one >= low) & (self.other < high)
        one, other = self.one[near], self.other[near]
        back = self.behind[one[:, None], sources[None, :]]
        on = self.behind[sources[None, :], other[:, None]]
        some = np.flatnonzero(back.any(axis=1)), np.flatnonzero(on.any(axis=1))
        head = np.concatenate([one[some[0]], other[some[1]]]) - low
        tail = np.concatenate([other[some[0]], one[some[1]]]) - low
        length = np.where(np.concatenate([back[some[0]], on[some[1]]]), 0.0, np.inf)
        rank = np.argsort(head, kind="stable")
        number = np.arange(len(rank)) - np.searchsorted(head[rank], head[rank])
        groups = [rank[number == k] for k in range(int(number.max(initial=-1)) + 1)]
        return tuple((head[those], tail[those], length[those]) for those in groups)
