"""Collectives of one chip among many, by hand and measured."""

import json
from pathlib import Path

import pytest
from oracles.links import ring

from crosstack.errors import InputError
from crosstack.io import library
from crosstack.machine.node import system_of_nodes
from crosstack.machine.system import DimensionKind
from crosstack.mapping.strategy import NESTED, ParallelDimension, Strategy
from crosstack.model.collectives import Arrival
from crosstack.model.kernels.roofline import Roofline
from crosstack.published.deepflow.distributed import Distributed
from crosstack.published.deepflow.ranks import peers_of
from crosstack.workload.kernels import Collective

MEMORY = 1e12  # bytes a second
LAUNCH = 5e-6


class Chip:
    element_size, launch_overhead = 2.0, LAUNCH
    arrival = Arrival(moving=1 / MEMORY, launch=LAUNCH)

    def product(self, m, k, n):
        return 0.0

    def elementwise(self, work, traffic):
        return traffic / MEMORY


def four_chips(kind):
    links = dict.fromkeys(ParallelDimension, ring(4, 1e9, 1e-6, kind=kind))
    return Distributed(strategy=Strategy(kp1=4), times=Chip(), links=links)


# 1000 x 4 numbers of 2 B on four chips: shares of 2000 B, 2 us on a link of 1 GB/s and 1 us on
# the way. Every byte that arrives takes three accesses of main memory; a collective is launched
# once.
@pytest.mark.parametrize(
    ("kind", "rounds"), [(DimensionKind.SWITCH, 3), (DimensionKind.FULLY_CONNECTED, 1)]
)
def test_direct_links_take_one_round_where_a_port_takes_one_for_each_other_chip(kind, rounds):
    chips, kp1 = four_chips(kind), ParallelDimension.KP1
    sent, placed = rounds * 3e-6, 3 * 6000 / MEMORY
    assert chips.all_gather(1000, 4, kp1) == pytest.approx(sent + placed + LAUNCH)
    assert chips.reduce_scatter(1000, 4, kp1) == pytest.approx(sent + placed + LAUNCH)


def test_a_ring_scatters_its_sums_and_gathers_them():
    chips, kp1 = four_chips(DimensionKind.SWITCH), ParallelDimension.KP1
    sent, placed = 6 * 3e-6, 6 * 6000 / MEMORY
    assert chips.all_reduce(1000, 4, kp1) == pytest.approx(sent + placed + LAUNCH)


def test_links_both_ways_round_take_half_as_long():
    kp1 = ParallelDimension.KP1
    around, ports = (four_chips(k) for k in (DimensionKind.RING, DimensionKind.SWITCH))
    gap = ports.all_gather(1000, 4, kp1) - around.all_gather(1000, 4, kp1)
    assert gap == pytest.approx(9e-6 - (2e-6 + 3e-6))  # two steps, and half of 6 us of bytes


def test_a_message_to_a_neighbour_is_put_in_place():
    chips = four_chips(DimensionKind.SWITCH)
    assert chips.send(2000, ParallelDimension.KP1) == pytest.approx(3e-6 + 6000 / MEMORY)


class Adding(Chip):
    """A chip of which a FLOP takes a nanosecond."""

    arrival = Arrival(moving=1 / MEMORY, adding=0.5e-9, launch=LAUNCH)


def test_every_partial_sum_that_arrives_is_added_once():
    links = dict.fromkeys(ParallelDimension, ring(4, 1e300))
    chips = Distributed(strategy=Strategy(kp1=4), times=Adding(), links=links)
    adds = 3000 * 1e-9
    assert chips.all_reduce(1000, 4, ParallelDimension.KP1) == pytest.approx(adds + LAUNCH)
    assert chips.reduce_scatter(1000, 4, ParallelDimension.KP1) == pytest.approx(adds + LAUNCH)
    assert chips.all_gather(1000, 4, ParallelDimension.KP1) < adds + LAUNCH


def test_sending_over_no_link_is_an_error_that_names_it():
    with pytest.raises(InputError, match="kp1: link: .* no bandwidth"):
        ring(2, 0.0, name="kp1: link").time(Collective.POINT_TO_POINT, 1e6)


MEASURED = Path(__file__).resolve().parents[3] / "shared/data/measured/collectives.jsonl"
LARGE = 2**26  # bytes


NODES = {"A100-SXM4-80GB": "a100-dgx-80gb", "H100-SXM5-80GB": "h100-dgx"}


def measured(taken):
    """NCCL on servers; ``taken`` says of which rows."""
    if not MEASURED.exists():
        return [pytest.param(None, marks=pytest.mark.skip("the measured collectives are absent"))]
    rows = [json.loads(line) for line in MEASURED.read_text().splitlines()]
    rows = [row for row in rows if row["gpu"] in NODES and row["kernel"] == "NCCL"]
    return [pytest.param(row, id=row["id"]) for row in rows if taken(row)]


def on_a100(row):
    """Whether sums or gathers of an A100: two gather at half of what two chips sum up."""
    alone = row["op"] != "all_to_all" and (row["op"], row["ranks"]) != ("all_gather", 2)
    return row["gpu"].startswith("A100") and row["bytes"] >= LARGE and alone


def exchanges(row):
    """Whether an all-to-all of more than two chips, large enough for links to be full."""
    return row["op"] == "all_to_all" and row["ranks"] > 2 and row["bytes"] >= 4 * LARGE


def among(row):
    """Return the chips that a row was measured on."""
    strategy, node = Strategy(kp1=row["ranks"]), library.node(NODES[row["gpu"]])
    links = peers_of(strategy, system_of_nodes(node, node.n_chips), NESTED)
    return Distributed(strategy=strategy, times=Roofline().times(node.chip), links=links)


@pytest.mark.parametrize("row", measured(on_a100))
def test_large_collectives_take_what_was_measured(row):
    time = getattr(among(row), row["op"])(row["bytes"] / 2, 1, ParallelDimension.KP1)
    assert time == pytest.approx(row["time_s"], rel=0.16)


@pytest.mark.parametrize("row", measured(exchanges))
def test_large_exchanges_take_what_was_measured(row):
    chips = among(row)  # a row counts the bytes of one chip
    peers, whole = chips.links[ParallelDimension.KP1], row["bytes"] * row["ranks"]
    time = peers.time(Collective.ALL_TO_ALL, whole, chips.times.arrival)
    assert time == pytest.approx(row["time_s"], rel=0.08)
