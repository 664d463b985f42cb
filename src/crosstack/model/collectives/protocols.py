"""Protocols of a library of collectives: how messages are handed on, by links.

NCCL has three. Where every word brings a flag of its own (``LL``), a word is there as soon as it is
seen, and half of what a link carries are flags. Lines of 128 bytes with one flag in 16 words
(``LL128``) need links that keep a line together. Without flags (``SIMPLE``) blocks are written to a
buffer, and a fence and a counter say that they are there. Of all sizes, the fastest counts.

A call takes a start and so much for every step that follows another: as much as here where a hop of
the links takes a step of a ring with ``LL``, else as many times as much. Both are of the public
source of NCCL (``nccl``, src/graph/tuning.cc of 2.28: baseLatencies, hwLatencies, llMaxBws), but a
step of ``SIMPLE`` over NVLink, 3.4 us there: 6 us as published by its authors (``hu2025nccl``,
table 1). Trees go through a server as a chain. A switch that adds takes 25 us, with the start.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from crosstack.machine.network import Medium

US = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What a protocol has over one kind of links.

    ``ring`` and ``tree`` are the times of a step [s]; ``share`` of the bandwidth that large
    messages reach are data [1]; ``most``: of the links' full rate, at most [1].
    """

    ring: float
    tree: float
    share: float = 1.0
    most: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """A protocol: its ``start`` [s], and its steps by links.

    ``adding``: also where switches add.
    """

    start: float
    steps: MappingProxyType[Medium, Steps]
    adding: bool = False


LL = Protocol(
    start=6.6 * US,
    steps=MappingProxyType(
        {
            # llMaxBws of one node: 87.7 of 300, 141 of 450 and 282 of 900 GB/s; of more, 19 to 22.5
            # of 200 and 35 to 45 of 400.
            Medium.NVLINK: Steps(ring=0.6 * US, tree=0.6 * US, share=0.5, most=0.31),
            Medium.NETWORK: Steps(ring=2.7 * US, tree=5.0 * US, share=0.5, most=0.1),
        }
    ),
)
LL128 = Protocol(
    start=14 * US,
    steps=MappingProxyType(
        {
            Medium.NVLINK: Steps(ring=1.9 * US, tree=1.25 * US, share=120 / 128),
            Medium.NETWORK: Steps(ring=4.0 * US, tree=8.5 * US, share=120 / 128),
        }
    ),
)
SIMPLE = Protocol(
    start=8.4 * US,
    steps=MappingProxyType(
        {
            Medium.NVLINK: Steps(ring=6.0 * US, tree=4.0 * US),
            Medium.NETWORK: Steps(ring=14 * US, tree=14 * US),
        }
    ),
    adding=True,
)
PROTOCOLS = (LL, LL128, SIMPLE)
CHANNELS = 16  # each a multiprocessor, which share the links; short messages to one chip have one
TREE_SHARE = 0.92  # of the bandwidth of a ring; tuning.cc [1]
IN_SWITCH = 25 * US - SIMPLE.start  # NVLS
# What NVLS has in its buffers of each chip's part at once: chunks of 128 KiB of every channel.
IN_BUFFERS = CHANNELS * 128 * 2**10
