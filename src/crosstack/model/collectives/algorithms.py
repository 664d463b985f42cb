"""Algorithms of collectives among chips that are joined one way, as a table.

A row says what an algorithm takes among p chips, for a tensor of n bytes: how many ``steps``
follow one another, each of one hop; what the busiest link carries one way (``load`` n); what
arrives at a chip (``arrives`` n: the mean over those at which something does, without what only
passes by); and what the busiest chip adds up (``added`` n). A switch that adds leaves the chips
nothing to add, and sends each the sums only. An algorithm that passes a message on in chunks has a
row for each number of chunks: few start sooner, many keep all links busy.

n is the whole tensor: what all chips hold together after an all-gather, before a reduce-scatter
and an all-to-all (of which each has 1/p), and what each holds in an all-reduce or a broadcast.

References: ``thakur2005`` (rings, pairwise exchange), ``sanders2009twotree`` (two binary trees
that share the chips' links, passed through in chunks), ``chan2006multilink`` (both links of a ring
at once), ``dally2004`` (bisections), ``graham2016sharp`` and ``klenk2020innetwork`` (switches that
add and copy).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from crosstack.machine.network import Joint
from crosstack.machine.system import AllReduceAlgorithm
from crosstack.workload.kernels import Collective

CHUNKS = (1, 4, 16, 64, 256)  # pieces of a message that is passed on piece by piece

Count = Callable[[int], float]
RING, TREE, DIRECT, IN_NETWORK = AllReduceAlgorithm
GATHER, SCATTER, REDUCE = Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_REDUCE
SPREAD, EXCHANGE, SEND = Collective.BROADCAST, Collective.ALL_TO_ALL, Collective.POINT_TO_POINT


# ---------------------------------------------------------------- counts over p chips


def none(p: int) -> float:
    """Nothing, whatever the number of chips."""
    return 0.0


def once(p: int) -> float:
    """One, whatever the number of chips."""
    return 1.0


def twice(p: int) -> float:
    """Two, whatever the number of chips."""
    return 2.0


def others(p: int) -> float:
    """All chips but one."""
    return p - 1


def share(p: int) -> float:
    """A chip's share of a tensor."""
    return 1 / p


def missing(p: int) -> float:
    """What a chip that holds its share does not have."""
    return (p - 1) / p


def depth(p: int) -> float:
    """Levels of a binary tree below its root."""
    return (p - 1).bit_length()


def half_way(p: int) -> float:
    """Hops to the farthest chip of a ring, or of a line from its middle."""
    return p // 2


def crossing(p: int) -> float:
    """Messages of an all-to-all, each 1/p^2, that go one way over the middle of a line."""
    return (p**2 // 4) / p**2


def sent(p: int) -> float:
    """Messages of an all-to-all, each 1/p^2, that a chip sends."""
    return (p - 1) / p**2


def pair(p: int) -> float:
    """Message of an all-to-all between two chips."""
    return 1 / p**2


def times(factor: float, count: Count) -> Count:
    """Return ``factor`` times a count."""
    return lambda p: factor * count(p)


# ---------------------------------------------------------------- rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """A row of the table, each column over the number of chips; see the module. [1]

    ``near``: of all chips of a part of the network, one message only goes to another part; so it
    is in a ring, and where switches add.
    """

    name: AllReduceAlgorithm
    steps: Count
    load: Count
    arrives: Count
    added: Count = none
    near: bool = False


def _passed_on(
    name: AllReduceAlgorithm, hops: Count, load: float = 1.0, *, near: bool = True
) -> list[Algorithm]:
    """Broadcasts in every number k of chunks: h + k - 1 steps of 1/k."""

    def of(k: int) -> Algorithm:
        return Algorithm(
            name=name,
            steps=lambda p: hops(p) + k - 1,
            load=lambda p: load * (hops(p) + k - 1) / k,
            arrives=once,
            near=near,
        )

    return [of(k) for k in CHUNKS]


def _there_and_back(hops: Count, added: Count, follows: int, *, near: bool) -> list[Algorithm]:
    """All-reduces to a root and back, in every number k of chunks.

    h hops up and h down; each further chunk arrives ``follows`` messages later: 2 where what comes
    down goes through the same ports as what goes up, else 1. Over each of the p - 1 ways
    between two chips the tensor goes once up and once down.
    """

    def of(k: int) -> Algorithm:
        return Algorithm(
            name=TREE,
            steps=lambda p: 2 * hops(p) + k - 1,
            load=lambda p: (2 * hops(p) + follows * (k - 1)) / k,
            arrives=times(2, missing),
            added=added,
            near=near,
        )

    return [of(k) for k in CHUNKS]


def _around(steps: Count, load: Count) -> dict[Collective, list[Algorithm]]:
    """All-gather, its mirror with additions, and both as an all-reduce; steps of a neighbour."""
    return {
        GATHER: [Algorithm(name=RING, steps=steps, load=load, arrives=missing, near=True)],
        SCATTER: [
            Algorithm(name=RING, steps=steps, load=load, arrives=missing, added=missing, near=True)
        ],
        REDUCE: [
            Algorithm(
                name=RING,
                steps=times(2, steps),
                load=times(2, load),
                arrives=times(2, missing),
                added=missing,
                near=True,
            )
        ],
        SEND: [Algorithm(name=DIRECT, steps=once, load=once, arrives=once, near=True)],
    }


def _exchange(steps: Count, load: Count) -> list[Algorithm]:
    return [Algorithm(name=DIRECT, steps=steps, load=load, arrives=sent)]


def _ring() -> dict[Collective, list[Algorithm]]:
    """Both ways round at once: half of what is missing comes from either side."""
    return _around(half_way, times(0.5, missing)) | {
        SPREAD: [*_passed_on(RING, half_way), *_passed_on(RING, others, 0.5)],
        EXCHANGE: _exchange(half_way, times(0.5, crossing)),
    }


def _line() -> dict[Collective, list[Algorithm]]:
    """The ends take all that is missing over one link; sums meet in the middle and come back."""
    rows = _around(others, missing)
    rows[REDUCE] += _there_and_back(half_way, twice, 1, near=True)
    return rows | {
        SPREAD: _passed_on(RING, others),
        EXCHANGE: _exchange(others, crossing),
    }


def _port() -> dict[Collective, list[Algorithm]]:
    """One port sends one message after the other.

    Of two binary trees a chip is inside one at most: of half of the tensor, it gets and adds two
    messages there and sends its own up both, then the other way round.
    """
    rows = _around(others, missing)
    rows[REDUCE] += _there_and_back(depth, once, 2, near=False)
    rows[REDUCE].append(
        Algorithm(name=DIRECT, steps=others, load=others, arrives=others, added=others)
    )
    return rows | {
        SPREAD: [*_passed_on(RING, others), *_passed_on(TREE, depth, near=False)],
        EXCHANGE: _exchange(others, sent),
    }


def _pairs() -> dict[Collective, list[Algorithm]]:
    """A chip sends to all others at once."""
    rows = _around(others, missing)
    rows[GATHER].append(Algorithm(name=DIRECT, steps=once, load=share, arrives=missing))
    rows[SCATTER].append(
        Algorithm(name=DIRECT, steps=once, load=share, arrives=missing, added=missing)
    )
    rows[REDUCE] += [
        Algorithm(
            name=DIRECT,
            steps=twice,
            load=times(2, share),
            arrives=times(2, missing),
            added=missing,
        ),
        Algorithm(name=DIRECT, steps=once, load=once, arrives=others, added=others),
    ]
    return rows | {
        SPREAD: [
            Algorithm(name=DIRECT, steps=once, load=once, arrives=once),
            Algorithm(name=DIRECT, steps=twice, load=times(2, share), arrives=once),
        ],
        EXCHANGE: _exchange(once, pair),
    }


_TABLE = {Joint.RING: _ring(), Joint.LINE: _line(), Joint.PORT: _port(), Joint.PAIRS: _pairs()}
# Each chip sends its tensor or gets one, once; a reduction and the copies of its result follow
# one another. What arrives are sums: of a reduce-scatter its share, of an all-reduce all, once.
_IN_SWITCH = {
    GATHER: Algorithm(name=IN_NETWORK, steps=once, load=missing, arrives=missing, near=True),
    SCATTER: Algorithm(name=IN_NETWORK, steps=once, load=once, arrives=share, near=True),
    REDUCE: Algorithm(name=IN_NETWORK, steps=twice, load=once, arrives=once, near=True),
    SPREAD: Algorithm(name=IN_NETWORK, steps=once, load=once, arrives=once, near=True),
}


def algorithms(collective: Collective, joint: Joint, *, reduces: bool) -> tuple[Algorithm, ...]:
    """Return the rows for a collective among chips joined one way.

    Parameters
    ----------
    collective : Collective
        What is to be done.
    joint : Joint
        How the chips are joined.
    reduces : bool
        Whether the switch of their ports adds and copies.
    """
    rows = tuple(_TABLE[joint][collective])
    if reduces and joint is Joint.PORT and collective in _IN_SWITCH:
        rows += (_IN_SWITCH[collective],)
    return rows
