"""Claims about chips that the public generator was run for: every recorded value, row by row.

The recorded runs are not part of the repository (../shared/data/deepflow); without them these
tests are skipped.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crosstack.errors import InfeasibleError, InputError
from crosstack.io.deepflow import read_hardware
from crosstack.machine.generate.generated import chip_at
from crosstack.machine.generate.generator import Drams, GeneratedChips, Links, Srams, generate_chips
from crosstack.model.rules import rules_named

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "deepflow"
CLOSE = {"rel": 1e-9, "abs": 0.0}


def rows() -> list[Any]:
    path = DATA / "golden.jsonl"
    if not path.exists():
        reason = "recorded runs are not part of the repository (../shared/data/deepflow)"
        return [pytest.param(None, marks=pytest.mark.skip(reason=reason))]
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [pytest.param(row, id=row["id"]) for row in found]


def has(row: dict[str, Any] | None, wanted: str) -> bool:
    return row is None or (isinstance(row["output"], dict) and wanted in row["output"])


def rows_with(wanted: str) -> list[Any]:
    """Return the rows whose output has the key ``wanted``."""
    return [param for param in rows() if has(param.values[0], wanted)]


def chips_of(row: dict[str, Any]) -> GeneratedChips:
    if "config" in row:
        path, rules = DATA / "configs" / "2021" / row["config"], "deepflow-2021"
    else:
        path, rules = DATA / "configs" / "2025" / row["hardware_config"], "deepflow-2025"
    changes = [
        f"{name}={json.dumps(value)}" for name, value in row.get("hardware_overrides", {}).items()
    ]
    hardware = read_hardware(path.read_text(), path.name, changes)
    assert hardware.rules == rules
    return generate_chips(hardware.template, hardware.budget, rules_named(rules, ("chips",)).chips)


def check_compute(chips: GeneratedChips, core: dict[str, float]) -> None:
    made, part = chips.compute, chips.template.compute
    power = float(np.asarray(chips.budget.powers["compute"]))
    assert made.n_units == core["num_mcu"]
    assert made.n_multiprocessors == core["num_bundle"]
    assert float(made.point.voltage) == pytest.approx(core["operating_voltage"], **CLOSE)
    assert float(made.frequency) == pytest.approx(core["operating_freq"], **CLOSE)
    peak = float(chips.peak_throughput)
    assert peak == pytest.approx(core["operating_throughput"], **CLOSE)
    assert peak * part.utilization == pytest.approx(core["throughput"], **CLOSE)
    assert float(made.point.throttle) == pytest.approx(core["frequency_scaling_factor"], **CLOSE)
    assert float(made.nominal_power) == pytest.approx(core["nominal_power"], **CLOSE)
    # Recorded per unit of nominal area; every file of 2025 gives a unit 0.13 W.
    per_unit = 0.13 * power / float(made.nominal_power)
    assert per_unit == pytest.approx(core["operating_power_per_mcu"], **CLOSE)


def check_sram(chips: GeneratedChips, made: Srams, scope: str, level: dict[str, float]) -> None:
    each = {
        "unit": chips.compute.n_units,
        "multiprocessor": chips.compute.n_multiprocessors,
        "chip": 1.0,
    }[scope]
    assert made.n_banks == level["num_banks"]
    assert float(made.capacity) == level["size"]
    assert float(made.capacity) / float(each) == pytest.approx(level["size_per_bundle"], **CLOSE)
    assert float(made.raw_bandwidth) == pytest.approx(level["dynamic_throughput"], **CLOSE)
    assert float(made.bandwidth) == pytest.approx(level["throughput"], **CLOSE)
    assert float(made.static_power) == pytest.approx(level["static_power"], **CLOSE)
    assert float(made.dynamic_power) == pytest.approx(level["dynamic_power"], **CLOSE)


def check_dram(made: Drams, level: dict[str, float]) -> None:
    assert made.n_stacks == level["num_stacks"]
    assert made.n_wires == level["num_links"]
    assert made.edge_wires == level["perimeter_bound"]
    assert float(made.capacity) == level["size"]
    assert float(made.rate) == pytest.approx(level["operating_freq"], **CLOSE)
    assert float(made.point.voltage) == pytest.approx(level["operating_voltage"], **CLOSE)
    assert float(made.raw_bandwidth) == pytest.approx(level["dynamic_throughput"], **CLOSE)
    assert float(made.bandwidth) == pytest.approx(level["throughput"], **CLOSE)
    assert float(made.dynamic_power) == pytest.approx(level["dynamic_power"], **CLOSE)


def check_links(made: Links | None, links: dict[str, float]) -> None:
    assert made is not None
    assert made.n_links == links["num_links"]
    # The public tool reports the voltage before the minimum is enforced.
    voltage = float(made.point.free) if links["num_links"] else 0.0
    assert voltage == pytest.approx(links["operating_voltage"], **CLOSE)
    assert float(made.rate) == pytest.approx(links["operating_freq"], **CLOSE)
    assert float(made.bandwidth) == pytest.approx(links["throughput"], **CLOSE)


@pytest.mark.parametrize("row", rows_with("core"))
def test_a_chip_is_generated_as_recorded_in_2025(row):
    chips, recorded = chips_of(row), row["output"]
    check_compute(chips, recorded["core"])
    for i, (made, part) in enumerate(zip(chips.srams, chips.template.srams, strict=True)):
        check_sram(chips, made, part.scope, recorded[f"l{i}"])
    check_dram(chips.dram, recorded["l3"])
    check_links(chips.intra, recorded["intra_network"])
    check_links(chips.inter, recorded["inter_network"])


@pytest.mark.parametrize("row", rows_with("num_mcu"))
def test_compute_at_an_edge_is_generated_as_recorded(row):
    check_compute(chips_of(row), row["output"])


@pytest.mark.parametrize("row", rows_with("inter"))
def test_links_at_an_edge_are_generated_as_recorded(row):
    chips = chips_of(row)
    check_links(chips.inter, row["output"]["inter"])
    check_links(chips.intra, row["output"]["intra"])


@pytest.mark.parametrize("row", rows_with("num_banks"))
def test_memory_without_power_keeps_its_size_as_recorded(row):
    chips = chips_of(row)
    check_sram(chips, chips.srams[2], "chip", row["output"])


@pytest.mark.parametrize("row", rows_with("hw"))
def test_a_chip_is_generated_as_recorded_in_2021(row):
    chips, recorded = chips_of(row), row["output"]["hw"]
    assert chips.compute.n_units == recorded["nmcu"]
    assert chips.compute.n_multiprocessors == recorded["nb"]
    assert float(chips.compute.frequency) == pytest.approx(recorded["f"], **CLOSE)
    assert float(chips.compute.point.voltage) == pytest.approx(recorded["V"], **CLOSE)
    utilization = chips.template.compute.utilization
    assert float(chips.peak_throughput) * utilization == pytest.approx(recorded["th"], **CLOSE)
    made = chip_at(chips, ()).chip
    for level, expected in zip(made.storage, recorded["lev"], strict=True):
        assert level.capacity == expected["size"]
        assert made.capacity_of_instance(level) == pytest.approx(expected["spb"], **CLOSE)
        assert level.bandwidth == pytest.approx(expected["bw"], **CLOSE)
        assert level.latency == expected["lat"]
    assert made.inter.bandwidth == pytest.approx(recorded["inter"], **CLOSE)
    assert made.intra.bandwidth == pytest.approx(recorded["intra"], **CLOSE)


@pytest.mark.parametrize("row", [p for p in rows() if p.id == "edge_dram_over_vmax" or not p.id])
def test_memory_over_its_maximum_voltage_is_refused_under_the_rules_of_2025_alone(row):
    chips = chips_of(row)
    with pytest.raises(InfeasibleError, match="voltage: DRAM needs .* V, the limit is 1.8 V"):
        chip_at(chips, ())
    clamped = generate_chips(chips.template, replace(chips.budget, power=400.0))
    made = chip_at(clamped, ())
    assert float(clamped.dram.voltage) == 1.8
    memory = next(part for part in made.components if part.name == "DRAM")
    assert memory.rate_bound.words == "maximum voltage"
    assert memory.unused_power > 0


@pytest.mark.parametrize("row", [p for p in rows() if p.id == "edge_dram_no_freq" or not p.id])
def test_memory_without_any_rate_is_bad_input(row):
    with pytest.raises(InputError, match="DRAM.nominal_frequency: required"):
        chips_of(row)
