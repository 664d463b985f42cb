"""A bound for chips that run kernels one after the other, whatever the partitions.

Each kernel adds at least its own time to the device (`crosstack.model.temporal`), so a sharding is
bounded by a sum over kernels and pairs of them: what each takes at least and what it sends, which
`crosstack.mapping.paid_layouts` minimises. Where the network hides behind the device, a
partition takes the longer of both, and so no less than any mean of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from crosstack.machine.chip import Overlap
from crosstack.mapping.paid_layouts import least_with_layouts
from crosstack.model.choices import Choices
from crosstack.model.partition import ChipLoad

__all__ = ["following_bound"]

# Of the device, where the network hides: alone, either is bounded elsewhere.
SHARES = (0.5, 0.8)


def following_bound(choices: Choices, domains: Sequence[Sequence[int]], load: ChipLoad) -> float:
    """Return what a layer takes at least under any sharding within ``domains``. [s]

    Nothing is known of a spatial chip.

    Parameters
    ----------
    choices : Choices
        With what a temporal chip takes.
    load : ChipLoad
        Of the chip, under the least of those shardings.
    """
    if choices.clocked is None:
        return 0.0
    network = choices.network_time
    if not load.network_takes_maximum:
        network = network + choices.data_time
    pairs = [(1.0, 1.0)]
    if load.overlap is Overlap.ALL:
        pairs = [(share, 1 - share) for share in SHARES]
    return max(
        least_with_layouts(
            choices, domains, device * choices.clocked.least + sent * network, sent=sent
        ).bound
        for device, sent in pairs
    )
