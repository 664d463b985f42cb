"""Claims about memories, links, substrates and the steps between logic nodes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstack.errors import InputError
from crosstack.technology.parts import (
    ComputeUnit,
    DramTechnology,
    LinkTechnology,
    SramTechnology,
    Substrate,
    whole,
)
from crosstack.technology.scaling import LogicNode, Scaling, scaled_sram, scaled_unit, steps_between
from crosstack.technology.voltage import Supply

SUPPLY = Supply(nominal=1.0, threshold=0.3, minimum=0.7)
SRAM = SramTechnology(
    area_per_bit=1e-13, bank_capacity=1000.0, energy_per_bit=1e-13, periphery=0.2,
    crossbar_area=1e-10, static_power_per_bit=1e-11,
)  # fmt: skip
DRAM = DramTechnology(
    stack_capacity=1e9, stack_area=1e-4, controller_area=1e-6, wires_per_stack=1000,
    wires_per_length=4e5, energy_per_bit=4e-12, nominal_rate=2e9, supply=SUPPLY,
)  # fmt: skip
LINK = LinkTechnology(
    energy_per_bit=1e-12, area_per_wire=1e-7, wires_per_length=1e4, nominal_rate=8e9, supply=SUPPLY
)
UNIT = ComputeUnit(
    work_per_cycle=128.0, rows=4, depth=4, area=4e-7, power=0.128, nominal_frequency=1e9,
    supply=SUPPLY,
)  # fmt: skip
NODES = {
    "a": LogicNode(name="a", sram_cell=4e-14),
    "b": LogicNode(name="b", sram_cell=3e-14, previous="a", density=2.0, power=0.5),
    "c": LogicNode(name="c", sram_cell=2e-14, previous="b", density=3.0, power=0.5,
                   paper_density=1.8, paper_power=1 / 1.3),
    "other": LogicNode(name="other", sram_cell=1e-14),
}  # fmt: skip


class TestSram:
    def test_a_bank_takes_cells_periphery_and_ports(self):
        # 8 x 1e-13 x 1000 = 8e-10 m2 of cells, a fifth on top of four fifths, ten ports.
        assert float(SRAM.area_per_bank(10)) == pytest.approx(8e-10 / 0.8 + 1e-9, rel=1e-14)

    def test_banks_fill_the_area(self):
        assert float(SRAM.banks(20e-9, 10)) == 10.0
        assert float(SRAM.banks(20e-9 * (1 - 1e-9), 10)) == 9.0

    def test_power_becomes_bandwidth_by_equation_3(self):
        assert float(SRAM.bandwidth(1.0)) == pytest.approx(1.25e12, rel=1e-14)

    def test_leakage_by_equation_2(self):
        assert float(SRAM.static_power(1e6)) == pytest.approx(8e-5, rel=1e-14)

    @given(st.floats(0, 1e-3), st.integers(0, 1000))
    def test_banks_never_take_more_than_their_area(self, area, clients):
        assert float(SRAM.banks(area, clients) * SRAM.area_per_bank(clients)) <= area * (1 + 1e-11)

    @given(st.integers(1, 10**6), st.floats(1e-9, 1e3))
    def test_a_whole_number_of_parts_is_not_lost_to_rounding(self, n, size):
        assert float(whole(n * size / size)) == n


def test_a_stack_has_wires_times_rate():
    assert DRAM.stack_bandwidth == pytest.approx(1000 * 2e9 / 8)
    assert DRAM.edge_bandwidth == pytest.approx(4e5 * 2e9 / 8)


def test_memory_that_takes_no_area_at_all_is_refused():
    with pytest.raises(InputError, match="controller_area"):
        replace(DRAM, stack_area=0.0, controller_area=0.0)


def test_a_link_takes_area_for_its_bandwidth():
    assert LINK.area_per_bandwidth == pytest.approx(1e-7 / 1e9)


def test_a_unit_has_an_energy_and_a_density():
    assert UNIT.energy_per_flop == pytest.approx(1e-12)
    assert UNIT.throughput_density == pytest.approx(128e9 / 4e-7)


def test_a_substrate_holds_no_more_wires_than_it_has():
    board = Substrate(wires_per_length=2e4, maximum_area=0.1)
    assert board.carry_memory(DRAM).wires_per_length == 2e4
    assert board.carry_link(LINK).wires_per_length == 1e4


class TestSteps:
    def test_published_steps_multiply_and_sram_follows_its_cell(self):
        steps = steps_between(NODES, "a", "c", Scaling.FOUNDRY)
        assert (steps.density, steps.power, steps.sram_area) == (6.0, 0.25, 0.5)

    def test_in_the_paper_sram_follows_the_logic(self):
        steps = steps_between(NODES, "b", "c", Scaling.PAPER)
        assert steps.density == 1.8
        assert steps.sram_area == pytest.approx(1 / 1.8)
        assert steps.power == pytest.approx(1 / 1.3)

    @pytest.mark.parametrize("scaling", Scaling)
    def test_back_again_is_where_it_began(self, scaling):
        there, back = (steps_between(NODES, *way, scaling) for way in (("a", "c"), ("c", "a")))
        assert there.density * back.density == pytest.approx(1)
        assert there.power * back.power == pytest.approx(1)
        assert there.sram_area * back.sram_area == pytest.approx(1)

    def test_a_scaled_unit_is_smaller_and_takes_less_at_the_same_speed(self):
        unit = scaled_unit(UNIT, steps_between(NODES, "a", "c", Scaling.FOUNDRY))
        assert unit.area == pytest.approx(UNIT.area / 6)
        assert unit.power == pytest.approx(UNIT.power / 4)
        assert unit.nominal_frequency == UNIT.nominal_frequency

    def test_the_crossbar_of_a_scaled_memory_is_logic(self):
        sram = scaled_sram(SRAM, steps_between(NODES, "a", "c", Scaling.FOUNDRY))
        assert sram.area_per_bit == pytest.approx(SRAM.area_per_bit / 2)
        assert sram.crossbar_area == pytest.approx(SRAM.crossbar_area / 6)
        assert sram.energy_per_bit == pytest.approx(SRAM.energy_per_bit / 4)

    def test_nodes_that_no_step_joins_are_refused(self):
        with pytest.raises(InputError, match="no steps lead from a to other"):
            steps_between(NODES, "a", "other", Scaling.FOUNDRY)

    def test_an_unknown_node_is_refused(self):
        with pytest.raises(InputError, match='no node is called "d"'):
            steps_between(NODES, "a", "d", Scaling.FOUNDRY)

    def test_nodes_in_a_circle_end(self):
        circle = {
            "x": LogicNode(name="x", sram_cell=1e-14, previous="y"),
            "y": LogicNode(name="y", sram_cell=1e-14, previous="x"),
        }
        assert steps_between(circle, "x", "x", Scaling.FOUNDRY).density == 1.0


@pytest.mark.parametrize("record", [SRAM, DRAM, LINK, UNIT])
def test_a_number_that_is_none_is_refused(record):
    for name in ("area_per_bit", "stack_area", "area_per_wire", "area"):
        if hasattr(record, name):
            with pytest.raises(InputError, match=name):
                replace(record, **{name: np.nan})
