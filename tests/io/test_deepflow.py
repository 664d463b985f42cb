"""Claims about reading DeepFlow's YAML."""

from __future__ import annotations

from pathlib import Path

import pytest

from crosstack.errors import InfeasibleError, InputError
from crosstack.io.deepflow import (
    check_devices,
    looks_like,
    read_hardware,
    read_model,
)
from crosstack.io.yaml_tree import parse_yaml
from crosstack.machine.compute import Dataflow
from crosstack.machine.generate.generated import generate
from crosstack.machine.memory import Scope
from crosstack.published.deepflow.generation import GENERATION_2025

CONFIGS = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "deepflow" / "configs"
HARDWARE = [
    "H100_SXM5_80GB",
    "a100_80GB",
    "exp_config_new",
    "exp_config_new_MCM",
    "test",
    "v100",
    "waferscale_20v100_80hbm",
]

MINE = """
sw_param: {kernel_launch_overhead: 9e-6, precision: 2}
tech_param:
  core: {nominal_power_per_mcu: 0.1, nominal_flop_rate_per_mcu: 128, nominal_frequency: 1.0e9,
    nominal_voltage: 0.8, threshold_voltage: 0.2, margin_voltage: 0.35, nominal_area_per_mcu: 0.4,
    operating_area_per_mcu: 0.2, num_mcu_per_bundle: 8, FMA_d1: 4, FMA_d2: 8, dataflow: wst,
    util: 0.85}
  DRAM: {dynamic_energy_per_bit: 4e-12, static_power_per_bit: 1e-12, stack_capacity: 4 GB,
    area_per_stack: 100, latency: 100e-9, mem_ctrl_area: 5, nominal_frequency: 1.38e9,
    nominal_voltage: 1.2, threshold_voltage: 0.4, margin_voltage: 0.6, max_voltage: 1.8,
    num_links_per_mm: 400, num_links_per_stack: 1024, util: 1, bandwidth: 8 Gb}
  SRAM-L2: {dynamic_energy_per_bit: 1e-13, static_power_per_bit: 1e-11, area_per_bit: 6.4e-8,
    bank_capacity: 32 KB, controller_area_per_link: 0.004, latency: 0, overhead: 0.2, util: 1}
  network:
    intra_node: &x {latency: 5e-6, nominal_frequency: 3e9, nominal_voltage: 1,
      nominal_energy_per_link: 1e-12, nominal_area_per_link: 1e-4, threshold_voltage: 0.25,
      margin_voltage: 0.45, num_links_per_mm: 400, util: 1}
    inter_node: {latency: 5e-6, nominal_frequency: 3e9, nominal_voltage: 1,
      nominal_energy_per_link: 1e-12, nominal_area_per_link: 1e-4, threshold_voltage: 0.25,
      margin_voltage: 0.45, num_links_per_mm: 400, util: 1}
area_breakdown: {device_area_budget: 1000, proc_chip_area_budget: 500, core: 100, L2: 50, DRAM: 15}
power_breakdown: {TDP: 100, core: 40, L2: 4, DRAM: 20}
perimeter_breakdown: {DRAM: 0.5}
system_hierarchy: {num_devices_per_node: 1, num_nodes: 1}
memory_hierarchy:
  l1: {type: DRAM, scope: global}
  l0: {type: SRAM-L2, scope: mcu-bundle}
""".replace("&x ", "")


def text_of(name: str) -> str:
    path = CONFIGS / name
    if not path.exists():
        pytest.skip("public configurations are not part of the repository")
    return path.read_text()


class TestPublicFiles:
    @pytest.mark.parametrize("name", HARDWARE)
    def test_every_hardware_file_of_2025_loads(self, name):
        text = text_of(f"2025/configs/hardware-config/{name}.yaml")
        hardware = read_hardware(text, f"{name}.yaml")
        assert (hardware.form, hardware.rules) == (2025, "deepflow-2025")
        assert [part.name for part in hardware.template.srams] == ["registers", "L1", "L2"]

    @pytest.mark.parametrize("name", ["GEMM", "LSTM", "LLM"])
    def test_every_model_file_of_2025_loads(self, name):
        assert read_model(text_of(f"2025/configs/model-config/{name}.yaml"), name).mode == name

    @pytest.mark.parametrize("name", ["H100_SXM5_80GB", "a100_80GB", "v100"])
    def test_a_file_whose_devices_are_not_filled_says_what_to_change(self, name):
        hardware = read_hardware(text_of(f"2025/configs/hardware-config/{name}.yaml"), name)
        with pytest.raises(InputError, match="16 devices x 1 nodes are 16 devices.*set system_hie"):
            check_devices(hardware)

    @pytest.mark.parametrize("name", ["exp_config_new", "waferscale_20v100_80hbm", "test"])
    def test_a_file_whose_devices_are_filled_is_good(self, name):
        check_devices(read_hardware(text_of(f"2025/configs/hardware-config/{name}.yaml"), name))

    @pytest.mark.parametrize(
        ("name", "says"),
        [
            ("exp_config_new_MCM", "power: the sum of the components needs 447.6 W, the limit"),
            ("waferscale_20v100_80hbm", "power: the sum of the components needs 303.4 W"),
        ],
    )
    def test_a_file_that_gives_away_more_than_it_has_is_refused(self, name, says):
        hardware = read_hardware(text_of(f"2025/configs/hardware-config/{name}.yaml"), name)
        with pytest.raises(InfeasibleError, match=says):
            generate(hardware.template, hardware.budget)
        made = generate(hardware.template, hardware.budget, GENERATION_2025)
        assert made.chip.compute.throughput > 0

    @pytest.mark.parametrize(
        "name", ["H100_SXM5_80GB", "a100_80GB", "exp_config_new", "test", "v100"]
    )
    def test_every_other_file_makes_a_chip_under_the_default_rules(self, name):
        hardware = read_hardware(text_of(f"2025/configs/hardware-config/{name}.yaml"), name)
        assert generate(hardware.template, hardware.budget).chip.compute.throughput > 1e14

    @pytest.mark.parametrize("name", ["v100", "p4", "exp_config"])
    def test_every_file_of_2021_loads_with_its_model(self, name):
        hardware = read_hardware(text_of(f"2021/configs/{name}.yaml"), name)
        assert (hardware.form, hardware.rules) == (2021, "deepflow-2021")
        assert hardware.model.mode == "LSTM"
        assert read_model(text_of(f"2021/configs/{name}.yaml"), name) == hardware.model

    def test_every_recorded_file_of_2020_loads(self):
        files = sorted((CONFIGS / "2020").rglob("*.yaml"))
        if not files:
            pytest.skip("public configurations are not part of the repository")
        for path in files:
            assert read_hardware(path.read_text(), str(path)).n_devices == 64

    def test_shares_of_2021_are_the_areas_of_2025(self):
        old = read_hardware(text_of("2021/configs/v100.yaml"), "old").budget
        new = read_hardware(text_of("2025/configs/hardware-config/v100.yaml"), "new").budget
        for parts in ("areas", "powers", "edges"):
            for name, value in getattr(new, parts).items():
                assert getattr(old, parts)[name] == pytest.approx(value, rel=1e-4), name


class TestMeaning:
    def test_prefixes_are_binary_and_small_b_is_bits(self):
        dram = read_hardware(MINE, "mine.yaml").template.dram
        assert dram.technology.stack_capacity == 4 * 2**30
        assert dram.bandwidth == 2**30

    def test_a_number_with_a_unit_may_stand_without_a_space(self):
        text = MINE.replace("4 GB", "0.5GB")
        assert read_hardware(text, "a").template.dram.technology.stack_capacity == 2**29

    def test_a_unit_drawn_at_half_its_area_does_half_the_work(self):
        unit = read_hardware(MINE, "mine.yaml").template.compute.unit
        assert (unit.work_per_cycle, unit.power) == (64.0, 0.05)
        assert unit.area == pytest.approx(0.2e-6)

    def test_levels_are_taken_by_number_with_their_scope(self):
        template = read_hardware(MINE, "mine.yaml").template
        assert [(p.name, p.scope) for p in template.srams] == [("L2", Scope.MULTIPROCESSOR)]
        assert template.compute.dataflow is Dataflow.WEIGHT
        assert (template.compute.unit.rows, template.compute.unit.depth) == (4, 8)

    @pytest.mark.parametrize(("topology", "n"), [("mesh", 4), ("ring", 2), ("crossbar", 1)])
    def test_a_topology_says_how_many_neighbours_share_the_links(self, topology, n):
        text = f"{MINE}network_topology: {{intra_node: {topology}, inter_node: none}}\n"
        assert read_hardware(text, "a").template.intra.n_neighbours == n

    def test_a_null_takes_a_field_out(self):
        change = "tech_param.core.nominal_area_per_mcu=null"
        unit = read_hardware(MINE, "mine.yaml", [change]).template.compute.unit
        assert unit.work_per_cycle == 128.0

    def test_it_is_told_from_other_yaml(self):
        assert looks_like(parse_yaml(MINE))
        assert not looks_like(parse_yaml("memory: hbm3"))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("util: 0.85", "utl: 0.85", 'core.utl: unknown field. Did you mean "util"'),
        ("util: 0.85", "util: 1.5", "tech_param.core.util: got 1.5; allowed: above 0, at most 1"),
        ("stack_capacity: 4 GB", "stack_capacity: 4 XB", "KB, MB, GB or TB (binary)"),
        ("dataflow: wst", "dataflow: wts", 'Did you mean "wst"'),
        ("nominal_frequency: 1.0e9,", "", "core.nominal_frequency: required where there is no op"),
        ("l0: {type: SRAM-L2", "l0: {type: SRAM-L1", "tech_param.SRAM-L1: required by memory_hier"),
        ("l1: {type: DRAM", "l2: {type: DRAM", "got l0, l2; allowed: l0 and every level after it"),
        ("scope: global", "scope: mcu", "got 'mcu'; allowed: global for DRAM"),
        ("l0: {type: SRAM-L2", "l0: {type: DRAM", "allowed: each type once, DRAM last"),
        ("overhead: 0.2", "overhead: 1", "SRAM-L2.overhead: got 1; allowed: 0 to below 1"),
        (
            "max_voltage: 1.8",
            "max_voltage: 0.9",
            "DRAM.max_voltage: got 0.9; allowed: volts, at le",
        ),
        ("core: 100", "core: lots", "area_breakdown.core: got 'lots'; allowed: a number"),
        ("perimeter_breakdown", "perimeter", 'perimeter: unknown field. Did you mean "perimeter_b'),
        ("num_nodes: 1", "num_nodes: 0", "num_nodes: got 0; allowed: a whole number, at least 1"),
    ],
)
def test_a_mistake_is_told_with_its_place(old, new, says):
    assert old in MINE
    with pytest.raises(InputError) as caught:
        read_hardware(MINE.replace(old, new, 1), "mine.yaml")
    assert says in str(caught.value)
    assert str(caught.value).startswith("mine.yaml: ")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "allowed: a DeepFlow file"),
        ("model_param: {mode: CNN}", "mode: got 'CNN'; allowed: GEMM, LSTM, LLM"),
        ("model_param: {mode: GEMM, M: 8, K: 8}", "model_param.N: required, but missing"),
        ("sw_param: {}", "model_param: required, but missing"),
    ],
)
def test_what_is_no_model_is_refused(text, says):
    with pytest.raises(InputError) as caught:
        read_model(text, "mine.yaml")
    assert says in str(caught.value)


def test_data_parallelism_across_nodes_needs_their_links():
    text = MINE.replace("num_nodes: 1", "num_nodes: 4, dp_inter: false")
    hardware = read_hardware(f"{text}scheduling_param: {{dp: 4}}\n", "mine.yaml")
    with pytest.raises(InputError, match="dp 4 is more than the 1 devices of a node; set dp_inter"):
        check_devices(hardware)


def test_parallelism_is_not_chosen_by_a_file():
    assert read_hardware(f"{MINE}scheduling_param: {{auto: false}}\n", "mine.yaml").form == 2025
    with pytest.raises(InputError, match=r"scheduling_param\.auto: got 'greedy'; allowed: false"):
        read_hardware(f"{MINE}scheduling_param: {{auto: greedy}}\n", "mine.yaml")


def test_an_older_file_is_told_its_own_names():
    text = text_of("2021/configs/v100.yaml")
    changes = ["system_hierarchy.num_workers=lots", "tech_param.core.FMA_width=0"]
    with pytest.raises(InputError) as caught:
        read_hardware(text, "v100.yaml", changes)
    paths = {problem.path for problem in caught.value.problems}
    assert paths == {
        "v100.yaml: system_hierarchy.num_workers",
        "v100.yaml: tech_param.core.FMA_width",
    }
