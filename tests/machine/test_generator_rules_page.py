"""Claims of docs/technology.md: what each rule does to a chip like NVIDIA's V100."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from crosstack.errors import InfeasibleError
from crosstack.io.chip_file import read_chip
from crosstack.machine.generate.generated import GeneratedChip, chip_at
from crosstack.machine.generate.generator import GeneratedChips, generate_chips
from crosstack.published.deepflow.generation import (
    GENERATION_2021,
    GENERATION_2025,
    ReleaseGeneration,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "technology.md"
V100 = """
memory: {dram: hbm2, utilization: 1.0}
chip_area: 815 mm^2
package_area: 1230 mm^2
power: 300 W
intra: {link: on_package, neighbours: 1}
shares:
  area: {compute: 0.3, registers: 0.022, L1: 0.0103, L2: 0.08062, DRAM: 0.0248, inter: 0.1}
  power: {compute: 0.3745, registers: 0.3022, L1: 0.1041, L2: 0.008, DRAM: 0.16, inter: 0.00935}
  edge: {DRAM: 0.4, inter: 0.4, intra: 0.2}
technology:
  srams:
    sram_ports:
      node: {value: N12, kind: assumed, source: this case}
      area_per_bit: {value: 0.08 um^2, kind: assumed, source: this case}
      bank_capacity: {value: 32 KiB, kind: assumed, source: this case}
      energy_per_bit: {value: 0.13 pJ, kind: assumed, source: this case}
      periphery: {value: 0.2, kind: assumed, source: this case}
      crossbar_area: {value: 0.004 mm^2, kind: assumed, source: this case}
"""
PORTS = (
    "levels=[{name: registers, sram: sram_registers, scope: unit}, "
    "{name: L1, sram: sram_ports, scope: multiprocessor}, {name: L2, sram: sram_l2, scope: chip}]"
)
LINKS = ("shares.area.intra=0.01", "shares.power.intra=0.03")

Show = Callable[[GeneratedChip, GeneratedChips], str]


def compute_power(chip: GeneratedChip, _: GeneratedChips) -> str:
    clock = chip.chip.compute.frequency / 1e9
    return f"{clock:.3f} GHz, {chip.components[0].power:.1f} W"


def units(chip: GeneratedChip, _: GeneratedChips) -> str:
    compute = chip.chip.compute
    return f"{compute.n_units} units, {compute.peak_throughput / 1e12:.2f} TFLOP/s"


def level(name: str) -> Show:
    return lambda chip, _: f"{chip.chip.level(name).capacity / 2**20:.2f} MiB"


def made(chip: GeneratedChip, _: GeneratedChips) -> str:
    return "made"


def memory(chip: GeneratedChip, chips: GeneratedChips) -> str:
    bandwidth = chip.chip.main_memory.bandwidth / 1e9
    return f"{bandwidth:.0f} GB/s at {float(chips.dram.voltage):.2f} V"


def stacks(chip: GeneratedChip, chips: GeneratedChips) -> str:
    return f"{chip.n_stacks} stacks, {float(chips.dram.n_wires):.0f} wires"


def neighbour(chip: GeneratedChip, _: GeneratedChips) -> str:
    return f"{chip.chip.intra.bandwidth / 1e9:.1f} GB/s"


def unpowered(chip: GeneratedChip, _: GeneratedChips) -> str:
    return f"{chip.chip.inter.bandwidth:.1g} B/s"


# Field, the value that differs from the release of 2021, the case, what is shown.
CASES = [
    ("checks_budgets", True, ("shares.power.compute=0.6",), made),
    ("clock_at_minimum", True, ("shares.power.compute=0.03",), compute_power),
    ("refuses_over_maximum", True, ("shares.power.DRAM=0.4",), memory),
    ("unpowered_sram", "kept", ("shares.power.L2=0",), level("L2")),
    ("loose_units", False, (), units),
    ("stacks_need_edge", True, ("shares.edge.DRAM=0.06",), stacks),
    ("crossbar_by_scope", True, (PORTS,), level("L1")),
    ("given_clock_sets_voltage", True, ("frequency=1.53 GHz",), compute_power),
    ("sheds_units", True, ("shares.power.compute=0.03",), units),
    ("intra_neighbours", 0, LINKS, neighbour),
    ("eigenvalue", False, ("shares.power.inter=0",), unpowered),
]


def shown(rules: ReleaseGeneration, changes: tuple[str, ...], show: Show) -> str:
    described = read_chip(V100, "v100.yaml", changes)
    chips = generate_chips(described.template, described.budget, rules)
    try:
        return show(chip_at(chips, ()), chips)
    except InfeasibleError as error:
        return f"refused: {error.demand:.4g} of {error.limit:.4g} {error.unit}"


@pytest.mark.parametrize(
    ("field", "value", "changes", "show"), CASES, ids=[case[0] for case in CASES]
)
def test_the_page_says_what_a_rule_does(field, value, changes, show):
    base = GENERATION_2021
    kinds = {"kept": GENERATION_2025.unpowered_sram}
    before = shown(base, changes, show)
    after = shown(replace(base, **{field: kinds.get(value, value)}), changes, show)
    assert before != after
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| `{field}` |")]
    assert len(rows) == 1
    assert rows[0].endswith(f"| {before} | {after} |"), f"{before} | {after}"


def test_every_rule_is_on_the_page():
    fields = {name for name, *_ in CASES}
    record = set(ReleaseGeneration.__dataclass_fields__)
    assert fields == record
