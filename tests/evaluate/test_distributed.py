"""Collectives of one chip among many, by hand."""

import pytest

from crosstack.evaluate.distributed import Distributed, RingLink
from crosstack.mapping.strategy import ParallelDimension, Strategy

MEMORY = 1e12  # bytes a second
LAUNCH = 5e-6


class Chip:
    element_size, launch_overhead = 2.0, LAUNCH

    def product(self, m, k, n):
        return 0.0

    def elementwise(self, work, traffic):
        return traffic / MEMORY


def four_chips(*, direct):
    link = RingLink(bandwidth=1e9, latency=1e-6, direct=direct)
    links = dict.fromkeys(ParallelDimension, link)
    return Distributed(strategy=Strategy(kp1=4), times=Chip(), links=links)


# 1000 x 4 words of two bytes on four chips: shares of 2000 B, 2 us on a link of 1 GB/s and 1 us on
# the way. A share is read and written where it arrives; an all-gather copies 3 x 8000 B at the end,
# a sum reads two shares and writes one and is launched, for each of three shares.
@pytest.mark.parametrize(("direct", "rounds"), [(False, 3), (True, 1)])
def test_direct_links_take_one_round_where_a_ring_takes_one_for_each_other_chip(direct, rounds):
    chips, kp1 = four_chips(direct=direct), ParallelDimension.KP1
    sent, written = rounds * 3e-6, 3 * 4000 / MEMORY
    gathered = sent + written + 24_000 / MEMORY + LAUNCH
    added = 3 * (6000 / MEMORY + LAUNCH)
    assert chips.all_gather(1000, 4, kp1) == pytest.approx(gathered)
    assert chips.reduce_scatter(1000, 4, kp1) == pytest.approx(sent + written + added)
    assert chips.all_reduce(1000, 4, kp1) == pytest.approx(2 * (sent + written) + added)
