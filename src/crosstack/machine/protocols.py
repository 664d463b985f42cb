"""How a library of collectives passes messages on: what each of its protocols takes.

A protocol with flags beside the data needs no waiting between steps, but half of what it sends are
flags (LL) or little of it (LL128); one that sends whole pieces (Simple) has all of the links, and
waits for each piece. The library takes the one that is the fastest for a size.

Source: ``nvidia_nccl_tuning``, the times and bandwidths by which NCCL itself chooses; what a step
takes there beyond one of LL, which is the latency of the link.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from crosstack.errors import require, require_quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """What a protocol takes beside the links.

    ``base``: once, whatever the chips, with the launch of its kernel; ``near`` and ``far``: for
    every step inside of a node and between nodes, beside the latency of the link. [s] ``share``: of
    the bandwidth that it has. [1]
    ``in_switch``: whether switches that add have it, which then takes ``base`` alone.
    """

    name: str
    base: float = 0.0
    near: float = 0.0
    far: float = 0.0
    share: float = 1.0
    in_switch: bool = False

    def __post_init__(self) -> None:
        """Check every number."""
        for name in ("base", "near", "far"):
            require_quantity(name, getattr(self, name), "s")
        require(0 < self.share <= 1, "share", self.share, "a share of the bandwidth, above 0")


PLAIN = Protocol(name="plain", in_switch=True)  # of chips that pass on what comes
# Of rings: 6.6, 14.0 and 8.4 us; steps of 0.6, 1.9 and 3.4 us by NVLink, of 2.7, 4.0 and 14.0 us
# between nodes. LL has a quarter to a third of the bandwidth, LL128 120 of 128 bytes, switches that
# add (NVLS) five sixths and 23 us.
PROTOCOLS: Mapping[str, tuple[Protocol, ...]] = {
    "nccl": (
        Protocol(name="LL", base=6.6e-6, share=0.25),
        Protocol(name="LL128", base=14.0e-6, near=1.3e-6, far=1.3e-6, share=0.92),
        Protocol(name="Simple", base=8.4e-6, near=2.8e-6, far=11.3e-6),
        Protocol(name="NVLS", base=23e-6, share=5 / 6, in_switch=True),
    ),
}
