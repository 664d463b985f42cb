"""Claims about changed configurations: every chip again, one number at a time, from the formulas.

The formulas are those of the public generator (`deepflow_code`), written down here a second time,
from the YAML itself and without arrays; nothing of the package takes part but the reader of YAML.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from crosstack.io.deepflow import read_hardware
from crosstack.io.yaml_tree import parse_yaml
from crosstack.machine.generate.generator import generate_chips
from crosstack.model.rules import rules_named

CONFIGS = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "deepflow" / "configs"
CLOSE = {"rel": 1e-9, "abs": 0.0}
FILES = [
    *(f"2025/configs/hardware-config/{name}.yaml" for name in (
        "a100_80GB", "H100_SXM5_80GB", "v100", "test", "exp_config_new", "exp_config_new_MCM",
        "waferscale_20v100_80hbm")),
    *(f"2021/configs/{name}.yaml" for name in ("v100", "p4", "exp_config")),
]  # fmt: skip
pytestmark = pytest.mark.skipif(
    not CONFIGS.exists(), reason="the configurations are not part of the repository"
)
# Edges and other values of single fields; null takes a field out.
CHANGES = [
    {},
    {"tech_param.core.operating_frequency": 1.7e9},
    {"tech_param.core.operating_frequency": None, "tech_param.core.nominal_frequency": 1.2e9},
    {"tech_param.core.num_bundles": 7},
    {"tech_param.core.num_bundles": None, "tech_param.core.nominal_area_per_mcu": None},
    {"tech_param.core.num_mcu_per_bundle": 5, "tech_param.core.operating_area_per_mcu": 0.9},
    {"tech_param.core.margin_voltage": 0.6, "tech_param.core.operating_frequency": None,
     "tech_param.core.nominal_frequency": 1.33e9},
    {"tech_param.SRAM-L2.size": "40 MB", "tech_param.SRAM-L2.util": 0.3},
    {"tech_param.SRAM-L2.size": None, "tech_param.SRAM-L2.controller_area_per_link": 0.0},
    {"tech_param.SRAM-L1.bandwidth": "19000 GB", "tech_param.SRAM-L1.overhead": 0.4},
    {"tech_param.SRAM-R.bank_capacity": "3 KB", "tech_param.SRAM-R.static_power_per_bit": 1e-9},
    {"tech_param.DRAM.size": None, "tech_param.DRAM.num_stacks": None,
     "tech_param.DRAM.bandwidth": None, "tech_param.DRAM.operating_frequency": None,
     "tech_param.DRAM.nominal_frequency": 1.4e9, "tech_param.DRAM.max_voltage": 9.0},
    {"tech_param.DRAM.size": "48 GB", "tech_param.DRAM.bandwidth": None},
    {"tech_param.DRAM.num_stacks": 3, "tech_param.DRAM.size": None,
     "tech_param.DRAM.operating_frequency": 2e9},
    {"tech_param.DRAM.num_links_per_mm": 13, "tech_param.DRAM.size": None},
    {"perimeter_breakdown.DRAM": 0.01, "tech_param.DRAM.size": None},
    {"perimeter_breakdown.inter_node": 0.0},
    {"tech_param.network.inter_node.nominal_area_per_link": 1.7},
    {"tech_param.network.intra_node.margin_voltage": 0.1, "perimeter_breakdown.intra_node": 0.2},
]  # fmt: skip


def put(tree, path, value):
    *way, last = path.split(".")
    for name in way:
        tree = tree[name]
    if value is None:
        tree.pop(last, None)
    else:
        tree[last] = value


def size(value):
    if not isinstance(value, str):
        return value
    number, unit = value.split()
    of = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}[unit[0]]
    return float(number) * of / (8 if unit[1] == "b" else 1)


def operating(share, nominal, threshold, margin, after_clamp):
    """Return rate over nominal and voltage, by halving an interval."""
    low, high = threshold, threshold + 1.0
    wanted = share * nominal * (nominal - threshold) ** 2
    while high * (high - threshold) ** 2 < wanted:
        high = threshold + 2 * (high - threshold)
    for _ in range(200):
        middle = (low + high) / 2
        small = middle * (middle - threshold) ** 2 < wanted
        low, high = (middle, high) if small else (low, middle)
    voltage, least = high, threshold + margin
    held = (voltage / least) ** 2 if voltage < least else 1.0
    used = max(voltage, least) if after_clamp else voltage
    rate = (used - threshold) ** 2 / used / ((nominal - threshold) ** 2 / nominal)
    return held * rate, max(voltage, least)


def voltages(part):
    return part["nominal_voltage"], part["threshold_voltage"], part["margin_voltage"]


def by_hand(tree, release):
    """Return what the release makes of a file, in the order of its formulas."""
    technology, area = tree["tech_param"], tree["area_breakdown"]
    power, edge = tree["power_breakdown"], tree["perimeter_breakdown"]
    chip, whole_power = area["proc_chip_area_budget"], power["TDP"]
    of_area = 1.0 if release == 2025 else chip
    of_power = 1.0 if release == 2025 else whole_power
    core = technology["core"]
    scale = core["operating_area_per_mcu"] / core.get(
        "nominal_area_per_mcu", core["operating_area_per_mcu"]
    )
    if core.get("num_bundles"):
        units = core["num_bundles"] * core["num_mcu_per_bundle"]
    else:
        units = math.floor(area["core"] * of_area / core["operating_area_per_mcu"] * (1 + 1e-12))
    multiprocessors = core.get("num_bundles") or units // core["num_mcu_per_bundle"]
    needed = core["nominal_power_per_mcu"] * units * scale
    rate, _ = operating(power["core"] * of_power / needed, *voltages(core), release == 2025)
    clock = core.get("operating_frequency") or rate * core.get("nominal_frequency", 0.0)
    found = {
        "units": units,
        "multiprocessors": multiprocessors,
        "clock": clock,
        "throughput": core["nominal_flop_rate_per_mcu"] * scale * clock * units * core["util"],
    }
    for name, key, kind in (("registers", "reg_mem", "SRAM-R"), ("L1", "L1", "SRAM-L1"),
                            ("L2", "L2", "SRAM-L2")):  # fmt: skip
        sram, mine = technology[kind], power[key] * of_power
        cells = 1 - sram["overhead"]
        bank = size(sram["bank_capacity"])
        each = (
            bank * 8 * sram["area_per_bit"]
            + cells * multiprocessors * sram["controller_area_per_link"]
        )
        banks = math.floor(cells * area[key] * of_area / each * (1 + 1e-12))
        capacity = banks * bank
        if sram.get("size"):
            capacity = size(sram["size"])
            banks = capacity // bank
        moving = max(0.0, mine - 8 * sram["static_power_per_bit"] * capacity)
        bandwidth = moving / (8 * sram["dynamic_energy_per_bit"]) if banks else 0.0
        bandwidth = size(sram["bandwidth"]) if sram.get("bandwidth") else bandwidth
        if not bandwidth and release != 2025:
            capacity = 0.0
        found[name] = capacity, bandwidth * sram["util"]
    dram, perimeter = technology["DRAM"], 4 * math.sqrt(chip)
    outer = area["device_area_budget" if release == 2025 else "node_area_budget"]
    stacks = dram.get("num_stacks") or math.floor(
        min((outer - chip) // dram["area_per_stack"],
            area["DRAM"] * of_area * (1 + 1e-12) // dram["mem_ctrl_area"])
    )  # fmt: skip
    edge_wires = math.floor(perimeter * edge["DRAM"] * dram["num_links_per_mm"])
    wires = min(edge_wires, dram["num_links_per_stack"] * stacks)
    capacity = stacks * size(dram["stack_capacity"])
    if dram.get("size"):
        capacity = size(dram["size"])
        stacks = capacity // size(dram["stack_capacity"])
        wires = dram["num_links_per_stack"] * stacks
    moving = max(0.0, power["DRAM"] * of_power - 8 * dram["static_power_per_bit"] * capacity)
    nominal = dram.get("nominal_frequency") or dram["operating_frequency"]
    needed = dram["dynamic_energy_per_bit"] * wires * nominal
    rate, voltage = (
        operating(moving / needed, *voltages(dram), release == 2025) if needed else (0, 0)
    )
    if voltage > dram["max_voltage"]:
        at, v0, vt = dram["max_voltage"], dram["nominal_voltage"], dram["threshold_voltage"]
        rate = (at - vt) ** 2 / at / ((v0 - vt) ** 2 / v0)
    per_wire = dram.get("operating_frequency") or rate * nominal
    raw = size(dram["bandwidth"]) if dram.get("bandwidth") else wires * per_wire / 8
    found["DRAM"] = capacity, raw * dram["util"]
    found["stacks"] = stacks
    for key, degree in (("intra_node", 4), ("inter_node", 1)):
        link = technology["network"][key]
        wires = math.floor(
            min(area["network"][key] * of_area / link["nominal_area_per_link"],
                edge[key] * perimeter * link["num_links_per_mm"]) * (1 + 1e-12)
        )  # fmt: skip
        bandwidth = 0.0
        mine = power["network"][key] * of_power
        if wires and mine:
            needed = link["nominal_energy_per_link"] * wires * link["nominal_frequency"]
            rate, _ = operating(mine / needed, *voltages(link), False)
            bandwidth = wires * rate * link["nominal_frequency"] * link["util"] / 8 / degree
        found[key] = wires, bandwidth
    return found


@pytest.mark.parametrize("change", CHANGES, ids=lambda c: ",".join(k[-30:] for k in c) or "as is")
@pytest.mark.parametrize("path", FILES)
def test_a_changed_file_makes_the_chip_of_the_formulas(path, change):
    release = int(path[:4])
    text = (CONFIGS / path).read_text()
    tree = parse_yaml(text)
    for field, value in change.items():
        put(tree, field, value)
    expected = by_hand(tree, release)
    overrides = [f"{k}={'null' if v is None else v}" for k, v in change.items()]
    hardware = read_hardware(text, path, overrides)
    made = generate_chips(
        hardware.template, hardware.budget, rules_named(f"deepflow-{release}", ("chips",)).chips
    )
    assert (made.compute.n_units, made.compute.n_multiprocessors) == (
        expected["units"], expected["multiprocessors"]
    )  # fmt: skip
    assert float(made.compute.frequency) == pytest.approx(expected["clock"], **CLOSE)
    throughput = float(made.peak_throughput) * made.template.compute.utilization
    assert throughput == pytest.approx(expected["throughput"], **CLOSE)
    levels = {part.name: level for part, level in zip(made.template.srams, made.srams, strict=True)}
    for name, level in {**levels, "DRAM": made.dram}.items():
        capacity, bandwidth = expected[name]
        assert float(level.capacity) == pytest.approx(capacity, **CLOSE), name
        assert float(level.bandwidth) == pytest.approx(bandwidth, **CLOSE), name
    assert made.dram.n_stacks == expected["stacks"]
    for links, key in ((made.intra, "intra_node"), (made.inter, "inter_node")):
        wires, bandwidth = expected[key]
        assert links.n_links == wires
        if bandwidth:
            assert float(links.bandwidth) == pytest.approx(bandwidth, **CLOSE), key
        else:  # no power: what is left is the noise of the release's eigenvalues
            assert float(links.bandwidth) < 1.0
