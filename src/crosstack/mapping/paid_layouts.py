"""Choices together with the layouts that a kernel pays for, so that what is shared is pairwise.

What a kernel pays to change its output depends on what all of its readers need
(`crosstack.model.conversions`). With the set K of layouts that it pays for as a part of its
choice, the cost is the kernel's own, and a reader only has to go with it: it needs no change, or
one into K.

Sets and parameters: kernel i with pairs (a, K) of a choice a in A_i and a set K; cost c_i(a) of the
choice and p_i(a, K) of the changes. Variables: one pair a kernel.

(1) minimise sum_i c_i(a_i) + p_i(a_i, K_i), where every reader goes with what it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from crosstack.mapping.sharding import Elimination, eliminate, eliminate_tables
from crosstack.model.choices import Choices
from crosstack.workload.kernel_graph import Bools, Floats, Ints

__all__ = ["PaidLayouts", "least_with_layouts", "paid_layouts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidLayouts:
    """Per kernel and pair: ``codes`` (the choice) and ``price`` of the changes [s].

    ``agree`` tells by (producer, reader) which pairs go together, where not all do.
    """

    codes: tuple[Ints, ...]
    price: tuple[Floats, ...]
    agree: dict[tuple[int, int], Bools]


def paid_layouts(choices: Choices, domains: Sequence[Sequence[int]]) -> PaidLayouts:
    """Return the pairs of every kernel within ``domains``, of rules by which readers share."""
    return _paid(choices, tuple(map(tuple, domains)))


@lru_cache(maxsize=16)
def _paid(choices: Choices, domains: tuple[tuple[int, ...], ...]) -> PaidLayouts:
    index, need = choices.index, choices.conversions.need
    edges: list[list[int]] = [[] for _ in domains]
    for e, source in enumerate(index.source.tolist()):
        edges[source].append(e)
    pairs = [_sets_paid(choices, domains, i, edges[i]) for i in range(len(domains))]
    codes = [[code for code, *_ in of_kernel] for of_kernel in pairs]
    agree: dict[tuple[int, int], Bools] = {}
    for e, (i, j) in enumerate(zip(index.source.tolist(), index.target.tolist(), strict=True)):
        needed = need[index.table(e, codes[i], codes[j])]
        good = needed & ~np.array([paid for _, paid, _ in pairs[i]])[:, None] == 0
        agree[i, j] = agree[i, j] & good if (i, j) in agree else good
    kept = _consistent(agree, [len(of_kernel) for of_kernel in pairs])
    return PaidLayouts(
        codes=tuple(np.array(c)[k] for c, k in zip(codes, kept, strict=True)),
        price=tuple(
            np.array([price for *_, price in of_kernel])[k]
            for of_kernel, k in zip(pairs, kept, strict=True)
        ),
        agree={
            (i, j): good[np.ix_(kept[i], kept[j])]
            for (i, j), good in agree.items()
            if not good[np.ix_(kept[i], kept[j])].all()
        },
    )


def _sets_paid(
    choices: Choices, domains: Sequence[Sequence[int]], i: int, edges: list[int]
) -> list[tuple[int, int, float]]:
    """Choices of kernel ``i``, sets of layouts to pay for, and their price. [s]

    ``edges`` are those to its readers.

    Left out are sets that nobody may need or that leave a reader without a choice, and those that
    a larger one has for as little. Where all that is read is read again, so it is paid; else the
    second time is not counted.
    """
    index, known = choices.index, choices.conversions
    if not edges:
        return [(code, 0, 0.0) for code in domains[i]]
    again = bool((known.first & known.again)[edges].all())
    found = []
    for code in domains[i]:
        tables = (index.table(e, (code,), domains[int(index.target[e])]) for e in edges)
        asked = [set(known.need[entries[0]].tolist()) for entries in tables]
        sets = {0}
        for one in set().union(*asked):
            sets |= {held | one for held in sets}
        sets = {s for s in sets if all(any(not one & ~s for one in ones) for ones in asked)}
        price = {s: (1 + again) * float(known.table[code, s]) if s else 0.0 for s in sets}
        for s, cost in price.items():
            if not any(s != t and not s & ~t and price[t] <= cost for t in sets):
                found.append((code, s, cost))
    return found


def _consistent(agree: dict[tuple[int, int], Bools], counts: list[int]) -> list[Ints]:
    """Pairs of each kernel that every neighbour has some pair to go with."""
    alive = [np.ones(count, dtype=np.bool_) for count in counts]
    changed = True
    while changed:
        changed = False
        for (i, j), good in agree.items():
            for k, supported in ((i, good[:, alive[j]].any(1)), (j, good[alive[i]].any(0))):
                if (alive[k] & ~supported).any():
                    alive[k] &= supported
                    changed = True
    return [np.nonzero(a)[0] for a in alive]


def least_with_layouts(
    choices: Choices, domains: Sequence[Sequence[int]], nodes: Floats, *, sent: float = 1.0
) -> Elimination:
    """Minimise (1), or bound it from below where it is too wide.

    Parameters
    ----------
    domains : sequence of sequences of int
        Choices each kernel may take.
    nodes : array, shape (choices,)
        Cost of every choice. [s]
    sent : float
        Weight of what changes of layout take. [1]
    """
    known = choices.conversions
    if not known.shared:
        return eliminate(domains, nodes, choices.index, sent * known.edge_time)
    paid = paid_layouts(choices, domains)
    joined = zip(paid.codes, paid.price, strict=True)
    tables: dict[tuple[int, ...], Floats] = {
        (i,): nodes[codes] + sent * price for i, (codes, price) in enumerate(joined)
    }
    for (i, j), good in paid.agree.items():
        ends, fits = ((i, j), good) if i < j else ((j, i), good.T)
        tables[ends] = tables.get(ends, 0.0) + np.where(fits, 0.0, np.inf)
    return eliminate_tables([codes.tolist() for codes in paid.codes], tables)
