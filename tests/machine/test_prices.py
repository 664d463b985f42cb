from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crosstack.machine.chip import flat_chip
from crosstack.machine.memory import main_memory
from crosstack.machine.prices import (
    Bill,
    link_amounts,
    switch_amounts,
    system_power,
    system_price,
)
from crosstack.machine.system import Dimension, DimensionKind, Prices, System

KINDS = {
    "r": DimensionKind.RING,
    "sw": DimensionKind.SWITCH,
    "fc": DimensionKind.FULLY_CONNECTED,
}


def network(variant: str, sizes, bandwidths, link_powers=(0.0,) * 4) -> tuple[Dimension, ...]:
    """Build what DFModel calls ``variant``; bandwidths in GB/s, powers in W/(GB/s)."""
    kinds = [KINDS[part] for part in variant.split("_")]
    return tuple(
        Dimension(kind=kind, size=size, bandwidth=bandwidth * 1e9, link_power=power / 1e9)
        for kind, size, bandwidth, power in zip(kinds, sizes, bandwidths, link_powers, strict=False)
    )


def unpriced(variant: str, sizes, bandwidths=(1.0,) * 4) -> System:
    return System(
        chip=replace(
            flat_chip(n_cores=1, lanes=1, stages=1, frequency=1e9, sram_capacity=1.0),
            memories=main_memory(bandwidth=1e9),
        ),
        network=network(variant, sizes, bandwidths),
        n_chips=int(np.prod(sizes)),
    )


def single(value: float | None) -> float:
    """Round to a float32, as the published tool does with every number it reads."""
    return float(np.float32(value or 0.0))


def published_system(run) -> tuple[System, tuple[int, ...]]:
    system, cost = run["system"], run["cost"]
    topology = system["topology"]
    n_dimensions = topology["variant"].count("_") + 1
    axes = "xyz"[:n_dimensions]
    sizes = tuple(topology[axis] for axis in axes)
    return System(
        chip=replace(
            flat_chip(
                n_cores=1,
                lanes=1,
                stages=1,
                frequency=1e9,
                sram_capacity=1.0,
                price=single(cost["accelerator_price"]),
                power=single(cost["accelerator_power"]),
            ),
            memories=main_memory(bandwidth=single(system["memory"]["dram_bw"]) * 1e9),
        ),
        network=network(
            topology["variant"],
            sizes,
            [single(topology[f"link_bw_{axis}"]) for axis in axes],
            [single(cost.get(f"link_unit_power_{axis}")) for axis in axes],
        ),
        n_chips=system["num_chip"],
        prices=Prices(
            link=single(cost["link_unit_price"]) / 1e9,
            switch=single(cost["switch_unit_price"]) / 1e9,
            memory=single(cost["dram_unit_price"]) / 1e9,
            switch_power=single(cost.get("switch_unit_power")) / 1e9,
            memory_power=single(cost["dram_unit_power"]) / 1e9,
        ),
    ), sizes


@pytest.mark.parametrize(
    ("variant", "sizes", "links", "ports"),
    [
        # dfmodel_code: amounts per dimension, S the sizes, n their product
        pytest.param("r", (8,), (8,), (2,), id="r: S0; 2"),
        pytest.param("sw", (8,), (8,), (8,), id="sw: S0; S0"),
        pytest.param("fc", (8,), (56,), (0,), id="fc: S0 (S0-1); 0"),
        pytest.param("r_r", (4, 6), (24, 24), (12, 8), id="r_r: n, n; 2 S1, 2 S0"),
        pytest.param(
            "fc_fc", (4, 6), (72, 30), (0, 36), id="fc_fc: S0 (S0-1) S1, S1 (S1-1); 0, S1^2"
        ),
        pytest.param("r_fc", (4, 6), (24, 30), (12, 36), id="r_fc: n, S1 (S1-1); 2 S1, S1^2"),
        pytest.param("r_sw", (4, 6), (24, 6), (12, 6), id="r_sw: n, S1; 2 S1, S1"),
        pytest.param("sw_sw", (4, 6), (24, 6), (24, 6), id="sw_sw: n, S1; n, S1"),
        pytest.param(
            "r_r_r", (4, 6, 10), (240, 240, 240), (120, 80, 48),
            id="r_r_r: n, n, n; 2 S1 S2, 2 S0 S2, 2 S0 S1",
        ),
        pytest.param(
            "r_sw_sw", (4, 6, 10), (240, 60, 10), (120, 60, 10),
            id="r_sw_sw: n, S1 S2, S2; 2 S1 S2, S1 S2, S2",
        ),
        pytest.param(
            "sw_sw_sw", (4, 6, 10), (240, 60, 10), (240, 60, 10),
            id="sw_sw_sw: n, S1 S2, S2; n, S1 S2, S2",
        ),
    ],
)  # fmt: skip
class TestAmounts:
    def test_links_are_those_of_the_topology(self, variant, sizes, links, ports):
        amounts = link_amounts(unpriced(variant, sizes), sizes)
        assert amounts == tuple(n * 1e9 for n in links)

    def test_switch_ports_are_those_of_the_topology(self, variant, sizes, links, ports):
        amounts = switch_amounts(unpriced(variant, sizes), sizes)
        assert amounts == tuple(n * 1e9 for n in ports)

    def test_amounts_grow_with_the_bandwidth_of_their_dimension(self, variant, sizes, links, ports):
        bandwidths = (1.0, 2.0, 3.0)
        amounts = link_amounts(unpriced(variant, sizes, bandwidths), sizes)
        assert amounts == tuple(n * b * 1e9 for n, b in zip(links, bandwidths, strict=False))


# Unit prices of the cases below: 2 USD and 24 USD per GB/s (dfmodel_code).
@pytest.mark.parametrize(
    ("variant", "sizes", "bandwidths", "links", "switches"),
    [
        pytest.param(
            "sw_sw_sw", (8, 16, 32), (150, 25, 25),
            (1228800, 25600, 1600), (14745600, 307200, 19200),
            id="DFModel LLM/Compare_w_existing/Calculon/fix_TP/8_16_32",
        ),
        pytest.param(
            "r_r_r", (8, 8, 24), (300, 12.5, 12.5),
            (921600, 38400, 38400), (2764800, 115200, 38400),
            id="DFModel LLM/Compare_w_existing/GPU/Megatron_LM/12288",
        ),
        pytest.param(
            "sw_sw", (90, 90), (25, 25), (405000, 4500), (4860000, 54000),
            id="DFModel HPL/Compare_w_existing/GPU/Selene",
        ),
        pytest.param(
            "r_r", (8, 128), (50, 50), (102400, 102400), (307200, 19200),
            id="DFModel LLM/DSE/system/sn30/2d_torus_ddr_pcie",
        ),
        pytest.param(
            "r_fc", (8, 16), (600, 25), (153600, 12000), (460800, 153600),
            id="DFModel DLRM/Compare_w_existing/A",
        ),
    ],
)  # fmt: skip
def test_links_and_switches_cost_what_was_published(variant, sizes, bandwidths, links, switches):
    system = unpriced(variant, sizes, bandwidths)
    assert (
        [2 * amount / 1e9 for amount in link_amounts(system, sizes)],
        [24 * amount / 1e9 for amount in switch_amounts(system, sizes)],
    ) == (pytest.approx(links), pytest.approx(switches))


# DFModel README example: GPT3-1T on 1024 SN30, log LLM/DSE/system/sn30/2d_torus_ddr_pcie.
SN30 = {
    "system": {
        "num_chip": 1024,
        "memory": {"dram_bw": 300.0},
        "topology": {"variant": "r_r", "x": 8, "y": 128, "link_bw_x": 50.0, "link_bw_y": 50.0},
    },
    "cost": {
        "link_unit_price": 2.0,
        "switch_unit_price": 24.0,
        "dram_unit_price": 1.0,
        "accelerator_price": 16522.25023,
        "link_unit_power_x": 0.052,
        "link_unit_power_y": 0.052,
        "switch_unit_power": 0.052,
        "dram_unit_power": 0.16248,
        "accelerator_power": 444.7061955,
    },
}


def test_the_readme_system_costs_what_was_published():
    assert system_price(*published_system(SN30)).total == pytest.approx(17757184, rel=1e-9)


def test_the_readme_system_draws_what_was_published():
    assert system_power(*published_system(SN30)).total == pytest.approx(511325.01135492, rel=1e-9)


@pytest.mark.runs_with(lambda run: "LINK_cost" in run["result"])
class TestPublishedAmounts:
    def test_links_cost_what_the_log_says(self, published_run):
        system, sizes = published_system(published_run)
        costs = [a * system.prices.link for a in link_amounts(system, sizes)]
        assert costs == pytest.approx(published_run["result"]["LINK_cost"], rel=1e-9)

    def test_switches_cost_what_the_log_says(self, published_run):
        system, sizes = published_system(published_run)
        costs = [a * system.prices.switch for a in switch_amounts(system, sizes)]
        assert costs == pytest.approx(published_run["result"]["SWITCH_cost"], rel=1e-9)


@pytest.mark.runs_with(lambda run: "LINK_power" in run["result"])
class TestPublishedPowers:
    def test_links_draw_what_the_log_says(self, published_run):
        system, sizes = published_system(published_run)
        powers = [
            amount * dimension.link_power
            for amount, dimension in zip(link_amounts(system, sizes), system.network, strict=True)
        ]
        assert powers == pytest.approx(published_run["result"]["LINK_power"], rel=1e-9)

    def test_switches_draw_what_the_log_says(self, published_run):
        system, sizes = published_system(published_run)
        powers = [a * system.prices.switch_power for a in switch_amounts(system, sizes)]
        assert powers == pytest.approx(published_run["result"]["SWITCH_power"], rel=1e-9)


@pytest.mark.runs_with(lambda run: "System_Cost" in run["result"])
def test_every_published_system_costs_what_the_log_says(published_run):
    bill = system_price(*published_system(published_run))
    assert bill.total == pytest.approx(published_run["result"]["System_Cost"], rel=1e-9)


@pytest.mark.runs_with(lambda run: "System_Power" in run["result"])
def test_every_published_system_draws_what_the_log_says(published_run):
    bill = system_power(*published_system(published_run))
    assert bill.total == pytest.approx(published_run["result"]["System_Power"], rel=1e-9)


PRICES = Prices(link=2e-9, switch=24e-9, memory=1e-9, switch_power=5e-11, memory_power=1.6e-10)


def test_one_chip_needs_no_links(a_system, a_dimension):
    system = a_system(network=(a_dimension(size=1),), n_chips=1, prices=PRICES)
    assert system_price(system, (1,)).links == 0


@pytest.mark.parametrize(("n_chips", "charged"), [(4, False), (5, True)])
def test_switches_are_charged_from_five_chips_on(a_system, a_dimension, n_chips, charged):
    # dfmodel_code: the switch total is 0 up to 4 chips
    system = a_system(network=(a_dimension(size=n_chips),), n_chips=n_chips, prices=PRICES)
    assert (system_price(system, (n_chips,)).switches > 0) is charged


def test_four_chips_draw_no_switch_power(a_system, a_dimension):
    system = a_system(network=(a_dimension(size=4),), n_chips=4, prices=PRICES)
    assert system_power(system, (4,)).switches == 0


def test_memory_is_paid_by_its_bandwidth(a_system):
    # 8 chips with 100 GB/s each at 1 USD per GB/s
    assert system_price(a_system(prices=PRICES), (8,)).memory == pytest.approx(800)


def test_chips_are_paid_each(a_system, a_chip):
    assert system_price(a_system(chip=a_chip(price=10.0)), (8,)).chips == 80


def test_chips_draw_power_each(a_system, a_chip):
    assert system_power(a_system(chip=a_chip(power=10.0)), (8,)).chips == 80


@pytest.mark.parametrize("bill", [system_price, system_power])
def test_what_is_not_given_has_no_price_and_no_power_and_nor_has_the_total(a_system, bill):
    found = bill(a_system(), (8,))
    assert (found.chips, found.memory, found.links, found.switches) == (None,) * 4
    assert found.missing == ("chips", "memory", "links", "switches")
    assert found.total is None


def test_one_part_that_is_not_given_leaves_the_others(a_system, a_chip):
    found = system_price(a_system(chip=a_chip(price=10.0), prices=Prices(memory=0.0)), (8,))
    assert (found.chips, found.memory, found.total) == (80, 0, None)
    assert found.missing == ("links", "switches")


def test_a_price_of_zero_is_a_price(a_system, a_chip):
    free = Prices(link=0.0, switch=0.0, memory=0.0)
    assert system_price(a_system(chip=a_chip(price=0.0), prices=free), (8,)).total == 0


def test_one_chip_needs_no_price_of_links(a_chip):
    alone = System(
        chip=replace(a_chip(price=10.0), memories=main_memory(bandwidth=1e9)),
        network=(Dimension(kind=DimensionKind.RING, size=1, bandwidth=1e9),),
        n_chips=1,
        prices=Prices(memory=1e-9),
    )
    assert system_price(alone, (1,)).total == 11


def test_a_total_is_the_sum_of_its_parts():
    assert Bill(chips=1.0, memory=2.0, links=4.0, switches=8.0).total == 15


def test_sizes_left_open_are_priced_as_they_are_chosen(a_system, a_dimension):
    system = a_system(network=(a_dimension(), a_dimension()), prices=PRICES)
    fixed = a_system(network=(a_dimension(size=4), a_dimension(size=2)), prices=PRICES)
    assert system_price(system, (4, 2)) == system_price(fixed, (4, 2))


@pytest.mark.parametrize(
    ("kind", "more", "links", "ports"),
    [
        pytest.param("torus", {"shape": (4, 4)}, 2, 0, id="a link a chip and axis"),
        pytest.param("mesh", {"shape": (4, 4)}, 2 * 3 / 4, 0, id="no link at the ends"),
        pytest.param("rail_only", {}, 1, 1, id="wang2023railonly: a switch a rail"),
        pytest.param("fat_tree", {}, 2, 3, id="leiserson1985: as much up as down"),
        pytest.param("fat_tree", {"oversubscription": 4.0}, 1.25, 1.5, id="a quarter of it"),
        pytest.param("fat_tree", {"pod_size": 16}, 1, 1, id="one leaf"),
        pytest.param("rail_optimised", {}, 2, 3, id="rails and what joins them"),
        pytest.param("dragonfly", {}, 2.5, 4, id="kim2008dragonfly: a = 2p = 2h"),
        pytest.param("dragonfly", {"oversubscription": 2.0}, 2.25, 3.5, id="tapered"),
    ],
)
def test_links_and_ports_a_chip_of_the_other_kinds(kind, more, links, ports):
    inner = Dimension(kind=DimensionKind.SWITCH, size=8, bandwidth=1.0)
    outer = Dimension(kind=DimensionKind(kind), size=16, bandwidth=1.0, **more)
    system = System(
        chip=replace(
            flat_chip(n_cores=1, lanes=1, stages=1, frequency=1e9, sram_capacity=1.0),
            memories=main_memory(bandwidth=1e9),
        ),
        network=(inner, outer),
        n_chips=128,
    )
    assert link_amounts(system, (8, 16))[1] == pytest.approx(128 * links)
    assert switch_amounts(system, (8, 16))[1] == pytest.approx(128 * ports)
