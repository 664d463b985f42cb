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

from dataclasses import dataclass
from functools import lru_cache
from typing import assert_never

from crosstack.machine.network import Joint, Medium
from crosstack.machine.system import AllReduceAlgorithm
from crosstack.model.collectives.group import Axis
from crosstack.model.collectives.protocols import TREE_SHARE
from crosstack.workload.kernels import Collective

CHUNKS = (1, 4, 16, 64, 256)  # pieces of a message that is passed on piece by piece
RING, TREE, DIRECT, IN_NETWORK = AllReduceAlgorithm
GATHER, SCATTER, REDUCE = Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_REDUCE
SPREAD, EXCHANGE, SEND = Collective.BROADCAST, Collective.ALL_TO_ALL, Collective.POINT_TO_POINT


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A row of the table; see the module. [1]

    ``near``: of all chips of a part of the network, one message only goes to another part; so it
    is in a ring, and where switches add.
    """

    name: AllReduceAlgorithm
    steps: float
    load: float
    arrives: float
    added: float = 0.0
    near: bool = False


def _passed_on(
    name: AllReduceAlgorithm, hops: float, load: float = 1.0, *, near: bool = True
) -> list[Algorithm]:
    """Broadcasts in every number k of chunks: h + k - 1 steps of 1/k."""
    return [
        Algorithm(name, hops + k - 1, load * (hops + k - 1) / k, 1.0, near=near) for k in CHUNKS
    ]


def _there_and_back(
    p: int, hops: float, added: float, follows: int, *, near: bool
) -> list[Algorithm]:
    """All-reduces to a root and back, in every number k of chunks.

    h hops up and h down; each further chunk arrives ``follows`` messages later: 2 where what comes
    down goes through the same ports as what goes up, else 1. Over each of the p - 1 ways
    between two chips the tensor goes once up and once down.
    """
    arrives = 2 * ((p - 1) / p)
    return [
        Algorithm(
            TREE, 2 * hops + k - 1, (2 * hops + follows * (k - 1)) / k, arrives, added, near=near
        )
        for k in CHUNKS
    ]


@lru_cache(maxsize=1024)
def _table(joint: Joint, p: int) -> dict[Collective, list[Algorithm]]:
    """Return the rows of all collectives among p chips.

    An all-to-all is of messages of 1/p^2. A ring works both ways round at once: half of what is
    missing comes from either side. The ends of a line take all that is missing over one link; sums
    meet in the middle and come back. One port sends one message after the other; of two binary
    trees a chip is inside one at most: of half of the tensor, it gets and adds two messages there
    and sends its own up both, then the other way round. In pairs a chip sends to all at once.
    """
    others, missing, half_way = p - 1, (p - 1) / p, p // 2
    crossing, sent = (p**2 // 4) / p**2, (p - 1) / p**2  # over the middle of a line, by a chip
    steps, load = (half_way, 0.5 * missing) if joint is Joint.RING else (others, missing)
    rows = {
        GATHER: [Algorithm(RING, steps, load, missing, near=True)],
        SCATTER: [Algorithm(RING, steps, load, missing, missing, near=True)],
        REDUCE: [Algorithm(RING, 2 * steps, 2 * load, 2 * missing, missing, near=True)],
        SEND: [Algorithm(DIRECT, 1.0, 1.0, 1.0, near=True)],
    }
    match joint:
        case Joint.RING:
            rows[SPREAD] = [*_passed_on(RING, half_way), *_passed_on(RING, others, 0.5)]
            rows[EXCHANGE] = [Algorithm(DIRECT, half_way, 0.5 * crossing, sent)]
        case Joint.LINE:
            rows[REDUCE] += _there_and_back(p, half_way, 2.0, 1, near=True)
            rows[SPREAD] = _passed_on(RING, others)
            rows[EXCHANGE] = [Algorithm(DIRECT, others, crossing, sent)]
        case Joint.PORT:
            depth = others.bit_length()  # levels of a binary tree below its root
            rows[REDUCE] += _there_and_back(p, depth, 1.0, 2, near=False)
            rows[REDUCE].append(Algorithm(DIRECT, others, others, others, others))
            rows[SPREAD] = [*_passed_on(RING, others), *_passed_on(TREE, depth, near=False)]
            rows[EXCHANGE] = [Algorithm(DIRECT, others, sent, sent)]
        case Joint.PAIRS:
            share = 1 / p
            rows[GATHER].append(Algorithm(DIRECT, 1.0, share, missing))
            rows[SCATTER].append(Algorithm(DIRECT, 1.0, share, missing, missing))
            rows[REDUCE].append(Algorithm(DIRECT, 2.0, 2 * share, 2 * missing, missing))
            rows[REDUCE].append(Algorithm(DIRECT, 1.0, 1.0, others, others))
            rows[SPREAD] = [
                Algorithm(DIRECT, 1.0, 1.0, 1.0),
                Algorithm(DIRECT, 2.0, 2 * share, 1.0),
            ]
            rows[EXCHANGE] = [Algorithm(DIRECT, 1.0, 1 / p**2, sent)]
        case _:
            assert_never(joint)
    return rows


def _in_switch(collective: Collective, p: int) -> tuple[Algorithm, ...]:
    """Return what a switch that adds and copies does.

    Each chip sends its tensor or gets one, once; a reduction and the copies of its result follow
    one another. What arrives are sums: of a reduce-scatter its share, of an all-reduce all, once.
    """
    missing = (p - 1) / p
    rows = {
        GATHER: Algorithm(IN_NETWORK, 1.0, missing, missing, near=True),
        SCATTER: Algorithm(IN_NETWORK, 1.0, 1.0, 1 / p, near=True),
        REDUCE: Algorithm(IN_NETWORK, 2.0, 1.0, 1.0, near=True),
        SPREAD: Algorithm(IN_NETWORK, 1.0, 1.0, 1.0, near=True),
    }
    return (rows[collective],) if collective in rows else ()


def _by_library(collective: Collective, p: int, medium: Medium) -> tuple[Algorithm, ...]:
    """Return how a library of collectives goes about it among p chips at a switch.

    What passes is passed on in pieces that keep the links busy, so steps take their latency once; a
    chip's own part, of each p that go round a ring, goes through its memory while its links wait:
    that is what ``arrives`` here. In a tree, what comes down shares the port with what goes up.
    Messages of all to all are on their way at once.
    """
    others, missing, own = p - 1, (p - 1) / p, 1 / p
    deep = others if medium is Medium.NVLINK else others.bit_length()
    rows = {
        GATHER: (Algorithm(RING, others, missing, own, near=True),),
        SCATTER: (Algorithm(RING, others, missing, own, near=True),),
        REDUCE: (
            Algorithm(RING, 2 * others, 2 * missing, own, near=True),
            Algorithm(TREE, 2 * deep, 2 / TREE_SHARE, own),
        ),
        SPREAD: (Algorithm(RING, others, 1.0, own, near=True),),
        EXCHANGE: (Algorithm(DIRECT, 1.0, (p - 1) / p**2, 1 / p**2),),
        SEND: (Algorithm(DIRECT, 1.0, 1.0, 0.0, near=True),),
    }
    return rows[collective]


def _in_switch_by_library(collective: Collective, p: int) -> tuple[Algorithm, ...]:
    """Return what a switch does that adds and copies for a library of collectives.

    A chip reads sums of its part over the switch, which reads that of all chips, and sends them to
    all; so a link carries the tensor and a part more. What chips put in, and take out, passes their
    memories before and after (``arrives``).
    """
    own = 1 / p
    rows = {
        GATHER: Algorithm(IN_NETWORK, 1.0, 1.0, 1 + own, near=True),
        SCATTER: Algorithm(IN_NETWORK, 1.0, 1.0, 1 + own, near=True),
        REDUCE: Algorithm(IN_NETWORK, 1.0, 1 + own, 2.0, near=True),
    }
    return (rows[collective],) if collective in rows else ()


def algorithms_of(collective: Collective, axis: Axis, *, adding: bool) -> tuple[Algorithm, ...]:
    """Return the rows of a library of collectives among chips at a switch of some ``medium``.

    ``adding``: whether its protocol is one for switches that add.
    """
    assert axis.medium is not None
    rows = _by_library(collective, axis.members, axis.medium)
    if adding and axis.reduces:
        rows += _in_switch_by_library(collective, axis.members)
    return rows


def algorithms(
    collective: Collective, joint: Joint, members: int, *, reduces: bool
) -> tuple[Algorithm, ...]:
    """Return the rows for a collective among so many chips joined one way.

    Parameters
    ----------
    collective, joint
        What is to be done, and how the chips are joined.
    members : int
        Chips. [1]
    reduces : bool
        Whether the switch of their ports adds and copies.
    """
    rows = tuple(_table(joint, members)[collective])
    if reduces and joint is Joint.PORT:
        rows += _in_switch(collective, members)
    return rows
