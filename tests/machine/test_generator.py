"""Claims about generated chips: the physics, what binds, and impossible budgets."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstack.errors import InfeasibleError, InputError
from crosstack.machine.chip import Execution
from crosstack.machine.generate.budget import Budget
from crosstack.machine.generate.checks import feasible
from crosstack.machine.generate.generated import chip_at, generate
from crosstack.machine.generate.generation import Generation
from crosstack.machine.generate.generator import SizeBound, generate_chips
from crosstack.machine.generate.template import (
    ChipTemplate,
    ComputePart,
    DramPart,
    LinkPart,
    SramPart,
)
from crosstack.machine.memory import Scope
from crosstack.model.rules import rule_names, rules_named
from crosstack.published.deepflow.generation import GENERATION_2021, GENERATION_2025, UnpoweredSram
from crosstack.technology.parts import ComputeUnit, DramTechnology, LinkTechnology, SramTechnology
from crosstack.technology.voltage import RateBound, Supply

MM2 = 1e-6
LOGIC = Supply(nominal=0.8, threshold=0.2, minimum=0.55)
UNIT = ComputeUnit(
    work_per_cycle=128.0, rows=4, depth=4, area=0.4 * MM2, power=0.1, nominal_frequency=1e9,
    supply=LOGIC,
)  # fmt: skip
SRAM = SramTechnology(
    area_per_bit=1e-7 * MM2, bank_capacity=2.0**15, energy_per_bit=1e-13,
    static_power_per_bit=1e-11, periphery=0.2, crossbar_area=1e-3 * MM2,
)  # fmt: skip
DRAM = DramTechnology(
    stack_capacity=2.0**33, stack_area=100 * MM2, controller_area=5 * MM2, wires_per_stack=1024,
    wires_per_length=4e5, energy_per_bit=4e-12, nominal_rate=2e9, static_power_per_bit=1e-12,
    supply=Supply(nominal=1.2, threshold=0.4, minimum=1.0, maximum=1.3),
)  # fmt: skip
WIRE = LinkTechnology(
    energy_per_bit=1e-11, area_per_wire=0.05 * MM2, wires_per_length=2e4, nominal_rate=2e10,
    supply=Supply(nominal=1.2, threshold=0.35, minimum=0.85), latency=1e-6,
)  # fmt: skip
TEMPLATE = ChipTemplate(
    compute=ComputePart(unit=UNIT, units_per_multiprocessor=8, utilization=0.8),
    srams=(
        SramPart(name="L1", technology=SRAM, scope=Scope.MULTIPROCESSOR),
        SramPart(name="L2", technology=SRAM, scope=Scope.CHIP, utilization=0.5),
    ),
    dram=DramPart(name="HBM", technology=DRAM),
    inter=LinkPart(technology=WIRE),
)
AREAS = {"compute": 201.0, "L1": 20.0, "L2": 60.0, "HBM": 22.0, "inter": 30.0}
POWERS = {"compute": 60.0, "L1": 20.0, "L2": 4.0, "HBM": 40.0, "inter": 10.0}
BUDGET = Budget(
    package_area=1200 * MM2,
    chip_area=600 * MM2,
    power=150.0,
    areas={name: area * MM2 for name, area in AREAS.items()},
    powers=POWERS,
    edges={"HBM": 0.5, "inter": 0.4},
)


def with_power(name, power, **changes):
    return replace(BUDGET, powers={**BUDGET.powers, name: power}, **changes)


def with_area(name, area):
    return replace(BUDGET, areas={**BUDGET.areas, name: area * MM2})


def part(chip, name):
    return next(component for component in chip.components if component.name == name)


def test_of_a_budget_that_is_used_up_rounding_leaves_nothing():
    chip = generate(TEMPLATE, BUDGET)
    used_up = replace(chip, power=sum(part.power for part in chip.components) * (1 - 1e-15))
    assert used_up.unused_power == 0
    given_more = replace(chip, power=0.9 * used_up.power)  # a given clock may take more
    assert given_more.unused_power < 0


class TestCompute:
    def test_units_fill_the_area_in_whole_multiprocessors(self):
        compute = generate(TEMPLATE, BUDGET).chip.compute
        assert (compute.n_units, compute.n_multiprocessors) == (496, 62)  # 502 units of 0.4 mm2 fit

    def test_in_the_releases_loose_units_compute(self):
        chip = generate(TEMPLATE, BUDGET, GENERATION_2021)
        assert (chip.chip.compute.n_units, chip.chip.compute.n_multiprocessors) == (502, 62)

    def test_throughput_is_equation_1(self):
        compute = generate(TEMPLATE, BUDGET).chip.compute
        assert compute.peak_throughput == pytest.approx(496 * 128 * compute.frequency)
        assert compute.throughput == pytest.approx(0.8 * compute.peak_throughput)

    @pytest.mark.parametrize("rules", rule_names(("chips",)))
    def test_compute_without_power_has_no_clock_and_draws_nothing(self, rules):
        chips = generate_chips(TEMPLATE, with_power("compute", 0.0), rules_named(rules).chips)
        assert (chips.compute.frequency, chips.compute.power) == (0.0, 0.0)

    def test_at_nominal_power_the_clock_is_nominal(self):
        compute = generate(TEMPLATE, with_power("compute", 49.6)).chip.compute
        assert compute.frequency == pytest.approx(1e9, rel=1e-12)
        assert compute.voltage == pytest.approx(0.8, rel=1e-12)

    def test_shedding_units_keeps_the_throughput_but_for_a_multiprocessor(self):
        budget = with_power("compute", 5.0)
        slow = generate(TEMPLATE, budget).chip.compute
        few = generate(TEMPLATE, budget, Generation(sheds_units=True))
        lost = 8 * 128 * few.chip.compute.frequency
        assert few.chip.compute.n_units < slow.n_units
        assert slow.peak_throughput - lost <= few.chip.compute.peak_throughput
        assert few.chip.compute.peak_throughput <= slow.peak_throughput * (1 + 1e-12)
        assert part(few, "compute").size_bound is SizeBound.MINIMUM_VOLTAGE
        assert part(few, "compute").power <= 5.0

    def test_a_given_clock_sets_the_power(self):
        compute = replace(TEMPLATE.compute, frequency=1e9)
        chip = generate(replace(TEMPLATE, compute=compute), with_power("compute", 10.0))
        assert part(chip, "compute").power == pytest.approx(49.6)
        assert part(chip, "compute").unused_power == pytest.approx(-39.6)
        assert part(chip, "compute").rate_bound is RateBound.GIVEN

    def test_given_multiprocessors_are_taken_whatever_the_area(self):
        compute = replace(TEMPLATE.compute, n_multiprocessors=100)
        chip = generate(replace(TEMPLATE, compute=compute), BUDGET)
        assert chip.chip.compute.n_units == 800
        assert part(chip, "compute").unused_area == pytest.approx((201 - 320) * MM2)


class TestMemory:
    def test_a_level_spends_its_power_by_equations_2_and_3(self):
        level = generate(TEMPLATE, BUDGET).chip.level("L2")
        static = 8 * 1e-11 * level.capacity
        assert level.static_power == pytest.approx(static)
        assert level.bandwidth == pytest.approx(0.5 * (4.0 - static) / 8e-13)

    def test_a_bank_has_a_port_for_each_client_in_its_scope(self):
        level = generate_chips(TEMPLATE, BUDGET).srams[0]
        bank = 8 * 1e-13 * 2**15 / 0.8
        assert float(level.n_banks) == 20e-6 // (bank + 8 * 1e-9)

    def test_in_the_releases_it_has_one_for_each_multiprocessor(self):
        level = generate_chips(TEMPLATE, BUDGET, GENERATION_2025).srams[0]
        bank = 8 * 1e-13 * 2**15 / 0.8
        assert float(level.n_banks) == 20e-6 // (bank + 62 * 1e-9)

    @pytest.mark.parametrize(
        ("budget", "bound", "stacks"),
        [
            (BUDGET, SizeBound.AREA, 4),  # 22 mm2 of controllers of 5 mm2
            (replace(BUDGET, package_area=950 * MM2), SizeBound.PACKAGE, 3),
            # 98 mm x 0.06 x 400 wires / 1024
            (replace(BUDGET, edges={"HBM": 0.06}), SizeBound.EDGE, 2),
        ],
    )
    def test_stacks_are_bound_by_equation_4(self, budget, bound, stacks):
        chip = generate(TEMPLATE, budget)
        assert (chip.n_stacks, part(chip, "HBM").size_bound) == (stacks, bound)
        assert chip.chip.main_memory.capacity == stacks * 2.0**33

    def test_in_the_releases_the_edge_leaves_stacks_half_wired(self):
        budget = replace(BUDGET, edges={"HBM": 0.06})
        dram = generate_chips(TEMPLATE, budget, GENERATION_2021).dram
        assert (float(dram.n_stacks), float(dram.n_wires)) == (4.0, 2351.0)

    def test_memory_on_the_board_takes_no_package(self):
        dram = replace(TEMPLATE.dram, technology=replace(DRAM, stack_area=0.0))
        budget = replace(BUDGET, package_area=BUDGET.chip_area)
        assert generate(replace(TEMPLATE, dram=dram), budget).n_stacks == 4

    def test_the_energy_of_a_bit_follows_the_voltage(self):
        made = generate_chips(TEMPLATE, BUDGET).dram
        dynamic = 8 * float(made.raw_bandwidth) * float(made.energy_per_bit)
        assert dynamic == pytest.approx(float(made.dynamic_power), rel=1e-12)

    def test_given_numbers_are_taken_as_they_are(self):
        srams = (replace(TEMPLATE.srams[0], capacity=2.0**20, bandwidth=1e12), TEMPLATE.srams[1])
        dram = replace(TEMPLATE.dram, capacity=2.0**34, bandwidth=1e12)
        levels = generate(replace(TEMPLATE, srams=srams, dram=dram), BUDGET).chip.storage
        assert (levels[0].capacity, levels[0].bandwidth) == (2.0**20, 1e12)
        assert (levels[2].capacity, levels[2].bandwidth) == (2.0**34, 1e12)

    def test_stacks_take_the_edge_that_their_wires_need(self):
        made = generate(TEMPLATE, BUDGET)
        assert part(made, "HBM").edge == pytest.approx(made.n_stacks * 1024 / 4e5)

    def test_a_given_capacity_comes_in_whole_stacks(self):
        for stacks in (1, 2, 3):
            dram = replace(TEMPLATE.dram, capacity=stacks * 2.0**33, n_stacks=None)
            assert generate(replace(TEMPLATE, dram=dram), BUDGET).n_stacks == stacks


class TestLinks:
    @pytest.mark.parametrize(("edge", "n"), [(0.4, 600), (0.1, 195)])
    def test_wires_fit_area_and_edge(self, edge, n):
        chip = generate(TEMPLATE, replace(BUDGET, edges={"HBM": 0.5, "inter": edge}))
        assert chip.chip.inter.n_links == n

    def test_neighbours_share_the_links(self):
        mesh = replace(TEMPLATE, intra=replace(TEMPLATE.inter, n_neighbours=4), inter=None)
        budget = replace(
            BUDGET,
            areas={**AREAS_M, "intra": AREAS_M["inter"]},
            powers={**POWERS, "intra": POWERS["inter"]},
            edges={"HBM": 0.5, "intra": 0.4},
        )
        budget = replace(
            budget,
            areas={k: v for k, v in budget.areas.items() if k != "inter"},
            powers={k: v for k, v in budget.powers.items() if k != "inter"},
        )
        alone = generate(TEMPLATE, BUDGET).chip.inter
        assert generate(mesh, budget).chip.intra.bandwidth == pytest.approx(alone.bandwidth / 4)

    def test_links_reach_the_share_that_is_used_of_what_their_wires_carry(self):
        half = replace(TEMPLATE, inter=replace(TEMPLATE.inter, utilization=0.5))
        whole, used = (generate(one, BUDGET).chip.inter for one in (TEMPLATE, half))
        assert used.bandwidth == pytest.approx(whole.bandwidth / 2)

    def test_a_chip_without_links_has_none(self):
        chip = generate(TEMPLATE, with_area("inter", 0.0))
        assert (chip.chip.inter.n_links, chip.chip.inter.bandwidth) == (0, 0.0)


AREAS_M = {name: area * MM2 for name, area in AREAS.items()}


class TestImpossible:
    @pytest.mark.parametrize(
        ("budget", "says"),
        [
            (with_area("compute", 401), "area: the sum of the components needs 533 mm2"),
            (replace(BUDGET, power=100.0), "power: the sum of the components needs 134 W"),
            (replace(BUDGET, edges={"HBM": 0.7, "inter": 0.4}), "edge: the sum"),
            (replace(BUDGET, package_area=500 * MM2), "area: the chip needs 600 mm2"),
            (with_area("compute", 3), "one multiprocessor of compute needs 3.2 mm2,"),
            (with_power("compute", 0.0), "one compute unit at its minimum voltage needs 23.39 mW"),
            (with_area("L2", 0.05), "one bank of L2 with its crossbar needs 0.09"),
            (with_power("L2", 0.0), "the leakage of L2, before any access, needs 1.659 mW"),
            (with_area("HBM", 4), "the controller of one stack of HBM needs 5 mm2"),
            (replace(BUDGET, package_area=690 * MM2), "beside the chip needs 100 mm2"),
            (replace(BUDGET, edges={"HBM": 0.01}), "one stack of HBM needs 1,024 wires"),
            (with_power("HBM", 0.1), "what HBM takes at rest needs 274.9 mW"),
        ],
    )
    def test_an_impossible_budget_says_which_and_by_how_much(self, budget, says):
        if says.startswith("area: the sum"):
            budget = replace(budget, chip_area=400 * MM2)
        with pytest.raises(InfeasibleError, match=f"^infeasible: .*{says}.*the limit is "):
            generate(TEMPLATE, budget)

    def test_memory_without_power_is_kept_emptied_or_refused(self):
        budget = with_power("L2", 0.0)
        kept = generate(TEMPLATE, budget, GENERATION_2025).chip.level("L2")
        emptied = generate(TEMPLATE, budget, GENERATION_2021).chip.level("L2")
        assert (kept.capacity > 0, kept.bandwidth) == (True, 0.0)
        assert (emptied.capacity, emptied.bandwidth) == (0.0, 0.0)
        with pytest.raises(InfeasibleError):
            generate(TEMPLATE, budget)

    def test_a_part_that_does_not_exist_is_bad_input(self):
        budget = replace(BUDGET, powers={**BUDGET.powers, "L3": 1.0})
        with pytest.raises(InputError, match=r'powers.L3: no such component. Did you mean "L'):
            generate(TEMPLATE, budget)

    @pytest.mark.parametrize("value", [-1.0, np.nan, "much"])
    def test_a_budget_that_is_no_number_is_bad_input(self, value):
        with pytest.raises(InputError, match="chip_area: "):
            replace(BUDGET, chip_area=value)


class TestMany:
    def budgets(self, n):
        rng = np.random.default_rng(1)
        return replace(
            BUDGET,
            areas={k: v * rng.uniform(0.3, 1.0, n) for k, v in BUDGET.areas.items()},
            powers={k: v * rng.uniform(0.01, 1.0, n) for k, v in BUDGET.powers.items()},
        )

    @pytest.mark.parametrize("rules", rule_names(("chips",)))
    def test_many_budgets_give_what_each_gives_alone(self, rules):
        budget = self.budgets(20)
        rules = rules_named(rules).chips
        many = generate_chips(TEMPLATE, budget, rules)
        for i in range(20):
            one = replace(
                budget,
                areas={k: float(v[i]) for k, v in budget.areas.items()},
                powers={k: float(v[i]) for k, v in budget.powers.items()},
            )
            try:
                alone = generate(TEMPLATE, one, rules)
            except InfeasibleError:
                with pytest.raises(InfeasibleError):
                    chip_at(many, (i,))
                assert not feasible(many)[i]
                continue
            assert feasible(many)[i]
            same_numbers(chip_at(many, (i,)).chip, alone.chip)

    def test_a_generated_budget_is_never_exceeded(self):
        chips = generate_chips(TEMPLATE, self.budgets(500))
        good = feasible(chips)
        assert good.any()
        for name, use in chips.uses.items():
            assert np.all(use.area[good] <= chips.budget.area(name)[good] * (1 + 1e-9)), name
            assert np.all(use.power[good] <= chips.budget.power_of(name)[good] * (1 + 1e-9)), name

    def test_one_chip_of_arrays_is_refused(self):
        with pytest.raises(InputError, match="see generate_chips"):
            generate(TEMPLATE, self.budgets(2))


def same_numbers(a, b):
    for item in fields(a.compute):
        assert getattr(a.compute, item.name) == pytest.approx(getattr(b.compute, item.name))
    for one, other in zip(a.levels, b.levels, strict=True):
        assert one.capacity == other.capacity
        assert one.bandwidth == pytest.approx(other.bandwidth)
    assert a.inter.bandwidth == pytest.approx(b.inter.bandwidth)


@given(
    st.sampled_from(sorted(AREAS)),
    st.floats(1.0, 1.2),
    st.sampled_from(["area", "power"]),
    st.sampled_from(rule_names(("chips",))),
)
def test_a_larger_share_never_makes_its_component_worse(name, more, kind, rules):
    rules = rules_named(rules).chips
    checked = rules.checks_budgets
    rules = replace(rules.unchecked(), checks_budgets=checked)
    base = generate(TEMPLATE, BUDGET, rules).chip
    grown = (
        with_area(name, AREAS[name] * more)
        if kind == "area"
        else with_power(name, POWERS[name] * more)
    )
    after = generate(TEMPLATE, grown, rules).chip
    if name == "compute":
        slack = 1e-9 if kind == "power" else 1e-2  # more units spread the power thinner
        assert after.compute.peak_throughput >= base.compute.peak_throughput * (1 - slack)
    elif name == "inter":
        slack = 1e-9 if kind == "power" else 1.0
        assert after.inter.bandwidth >= base.inter.bandwidth * (1 - slack)
    else:
        assert after.level(name).capacity >= base.level(name).capacity
        if kind == "power":
            assert after.level(name).bandwidth >= base.level(name).bandwidth * (1 - 1e-9)


class TestChip:
    def test_it_keeps_what_the_template_and_the_budget_make_of_it(self):
        made = generate(TEMPLATE, BUDGET)
        chip = made.chip
        assert [level.name for level in chip.levels] == [part.name for part in TEMPLATE.srams]
        assert chip.main_memory.name == TEMPLATE.dram.name
        assert chip.power == sum(part.power for part in made.components)
        assert (chip.compute.n_units, chip.compute.rows, chip.compute.columns) == (496, 4, 4)
        assert chip.execution is Execution.TEMPORAL

    def test_its_units_reach_what_they_are_given(self):
        unit = replace(UNIT, work_per_cycle=37.0)
        template = replace(TEMPLATE, compute=replace(TEMPLATE.compute, unit=unit))
        compute = generate(template, BUDGET).chip.compute
        assert compute.peak_throughput == compute.n_units * 37.0 * compute.frequency
        assert compute.elements_deep(template.dtype) == unit.depth


class TestRules:
    def test_an_unknown_set_is_refused(self):
        with pytest.raises(InputError, match='Did you mean "deepflow-20'):
            rules_named("deepflow-2012", ("chips",))

    @pytest.mark.parametrize(
        "change", [{"loose_units": 1}, {"intra_neighbours": 9}, {"unpowered_sram": "gone"}]
    )
    def test_a_wrong_kind_is_refused(self, change):
        with pytest.raises(InputError):
            replace(GENERATION_2021, **change)

    def test_the_releases_differ_in_what_2025_changed(self):
        old, new = GENERATION_2021, GENERATION_2025
        differ = {f.name for f in fields(old) if getattr(old, f.name) != getattr(new, f.name)}
        assert differ == {"clock_at_minimum", "refuses_over_maximum", "unpowered_sram"}
        assert new.unpowered_sram is UnpoweredSram.KEPT


def test_stacks_that_are_given_beyond_the_area_are_warned_of():
    many = replace(TEMPLATE, dram=replace(TEMPLATE.dram, n_stacks=20))
    on_chip, beside = generate(many, BUDGET).warnings
    assert on_chip.startswith("HBM takes 100 mm2 of the chip, and 22 mm2 is there")
    assert beside.startswith("the stacks of HBM take 2000 mm2 beside the chip")


def test_a_chip_within_its_area_has_no_warning():
    assert generate(TEMPLATE, BUDGET).warnings == ()
