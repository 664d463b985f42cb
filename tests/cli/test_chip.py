"""``crosstack chip generate`` and ``crosstack show technology``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import crosstack
from crosstack.io.native import read_system_alone

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "chips" / "n5_hbm3.yaml"


def test_a_chip_is_described_with_what_binds_it(run):
    out = run("chip", "generate", EXAMPLE).out
    for words in ("3,776 units in 118 multiprocessors", "power left  5 of 500 W", "rate bound by"):
        assert words in out


def test_stacks_beyond_the_area_are_warned_of(run, tmp_path):
    out = tmp_path / "chip.json"
    many = "memory={dram: hbm3, stacks: 40}"
    shown = run("chip", "generate", EXAMPLE, "--set", many, "--json", out)
    assert shown.code == 0
    assert "Warning: DRAM takes 200 mm2 of the chip, and 32 mm2 is there" in shown.out
    assert len(json.loads(out.read_text())["warnings"]) == 2


def test_a_field_can_be_changed(run):
    assert "n5_hbm3" in run("chip", "generate", EXAMPLE, "--set", "node=N3").out
    outcome = run("chip", "generate", EXAMPLE, "--set", "node=N4")
    assert (outcome.code, len(outcome.problems)) == (2, 1)
    assert f'{EXAMPLE}: node: no node is called "N4"' in outcome.err


def test_an_impossible_budget_is_infeasible(run):
    outcome = run("chip", "generate", EXAMPLE, "--set", "shares.power.L2=90 %")
    assert outcome.code == 3
    assert "power: the sum of the components needs 925 W, the limit is 500 W" in outcome.err


def test_unknown_rules_are_refused(run):
    outcome = run("chip", "generate", EXAMPLE, "--rules", "deepflow")
    assert (outcome.code, outcome.problems[0][:7]) == (2, "--rules")


def test_the_machine_can_be_mapped_onto(run, tmp_path):
    system, task = tmp_path / "system.yaml", tmp_path / "task.yaml"
    assert run("chip", "generate", EXAMPLE, "--set", "packages=2", "-o", system).code == 0
    made = read_system_alone(system.read_text(), "system.yaml")
    assert (made.n_chips, made.chip.name) == (2, "n5_hbm3")
    model = ("--hidden", 64, "--heads", 4, "--sequence", 32, "--batch", 8, "--layers", 2)
    assert run("generate", "llm", *model, "--system", system, "-o", task).code == 0
    assert crosstack.load(task).system == made
    assert run("map", task).code == 0


def test_the_chip_is_saved_with_what_is_left_of_its_budget(run, tmp_path):
    out = tmp_path / "chip.json"
    assert run("chip", "generate", EXAMPLE, "--json", out).code == 0
    found = json.loads(out.read_text())
    assert found["hierarchy"]["compute"]["n_units"] == 3776
    parts = {part["name"]: part for part in found["components"]}
    assert parts["DRAM"]["size_bound"] == "area"
    assert parts["DRAM"]["unused_area"] == pytest.approx(2e-6)
    spent = sum(part["power"] for part in parts.values())
    assert found["unused_power"] == pytest.approx(500 - spent)


def test_chips_without_links_cannot_be_joined(run, tmp_path):
    change = ("--set", "shares.area.inter=0", "--set", "shares.power.inter=0")
    outcome = run("chip", "generate", EXAMPLE, *change, "-o", tmp_path / "system.yaml")
    assert outcome.code == 2
    assert "the inter links have no bandwidth; give inter area" in outcome.err
    assert not (tmp_path / "system.yaml").exists()


@pytest.mark.parametrize("name", ["hbm3", "HBM3", "N5", "nvlink4", "sram_l2", "interposer"])
def test_a_technology_is_shown_with_its_sources(run, name):
    out = run("show", "technology", name).out
    assert "source" in out
    assert "What follows" in out


def test_derived_quantities_are_shown(run):
    out = run("show", "technology", "nvlink4").out
    assert "5.5 pJ/bit" in out
    assert "0.0472 mm2/(GB/s)" in out  # 8 x 0.59 mm2 / 100


def test_technologies_are_listed(run):
    assert "ucie_advanced" in run("show", "technology").out


def test_an_unknown_technology_is_refused(run):
    outcome = run("show", "technology", "hbm9")
    assert (outcome.code, len(outcome.problems)) == (2, 1)


@pytest.mark.parametrize("extra", [("hbm3",), ("--library", "own.yaml")])
def test_a_file_takes_no_technology(run, small, extra):
    assert run("show", small, *extra).code == 2


def test_a_library_of_the_users_own_is_shown(run, tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text(
        "substrates:\n  glass:\n"
        "    wires_per_length: {value: 250 /mm, kind: assumed, source: me}\n"
        "    maximum_area: {value: 5000 mm^2, kind: assumed, source: me}\n"
    )
    assert "4 um of edge" in run("show", "technology", "glass", "--library", own).out


@pytest.mark.parametrize("arguments", [("--svg", "x.svg"), ("--set", "a=1")])
def test_options_of_files_are_refused_with_a_technology(run, arguments):
    assert run("show", "technology", "hbm3", *arguments).code == 2
