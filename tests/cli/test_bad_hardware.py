"""Claims about hardware files that are wrong: every field, changed to what it cannot be."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from crosstack.cli.chip import described
from crosstack.errors import CrosstackError, InputError
from crosstack.io.yaml_tree import parse_yaml
from crosstack.machine.generate.generated import generate
from crosstack.machine.packages import divided_system, system_of_packages

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT.parent / "shared/data/deepflow/configs"
WRONG = (-1, "lots", [1], {"a": 1}, True, float("nan"), float("inf"), 1e308, None, 0, 1e9, 1e-9)
CHIP = """
node: N5
scaling: paper
unit: tensor_core_v100
units_per_multiprocessor: 32
dataflow: best
utilization: 85 %
frequency: 1.5 GHz
multiprocessors: 90
levels:
  - {name: L1, sram: sram_l1, scope: multiprocessor, utilization: 1, capacity: 20 MB,
     bandwidth: 90 TB/s, line_size: 32 B}
  - {name: L2, sram: sram_l2, scope: chip}
memory: {dram: hbm3, name: DRAM, utilization: 1, stacks: 4, line_size: 64 B}
intra: {link: on_package, neighbours: 2, utilization: 1, kind: torus, shape: 2x1}
inter: {link: nvlink4, neighbours: 1, utilization: 1, kind: switch}
substrate: interposer
chip_area: 800 mm^2
package_area: 2000 mm^2
power: 500 W
shares:
  area: {compute: 30 %, L1: 3 %, L2: 12 %, DRAM: 4 %, inter: 4 %, intra: 1 %}
  power: {compute: 40 %, L1: 8 %, L2: 4 %, DRAM: 22 %, inter: 5 %, intra: 5 %}
  edge: {DRAM: 60 %, inter: 30 %, intra: 10 %}
chips_per_package: 2
packages: 4
launch_overhead: 5 us
word: 2 B
"""


def places(tree, way=()):
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for name, value in items:
        yield (*way, name)
        if isinstance(value, dict | list):
            yield from places(value, (*way, name))


def put(tree, way, value):
    changed = copy.deepcopy(tree)
    here = changed
    for name in way[:-1]:
        here = here[name]
    here[way[-1]] = value
    return changed


def yaml_of(value):
    """Return flow YAML; strings are quoted, numbers are as YAML 1.2 writes them."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {yaml_of(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(yaml_of, value)) + "]"
    if isinstance(value, str):
        return f'"{value}"'
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value)
    return {"nan": ".nan", "inf": ".inf"}.get(text, text)


def outcome(path, text):
    """Return the error that a file ends with, or None; anything else would be a bug."""
    path.write_text(text)
    try:
        found = described(path, None, [])
        chip = generate(found.template, found.budget)
        divided_system(system_of_packages(chip.chip))
    except CrosstackError as error:
        return error
    return None


def files():
    yield pytest.param("a chip file", CHIP, id="chip")
    for name in ("2025/configs/hardware-config/a100_80GB", "2021/configs/v100"):
        path = CONFIGS / f"{name}.yaml"
        absent = pytest.mark.skipif(not path.exists(), reason="the configurations are absent")
        text = path.read_text() if path.exists() else ""
        yield pytest.param(name, text, id=name, marks=absent)


@pytest.mark.parametrize(("name", "text"), list(files()))
def test_no_value_of_any_field_ends_in_anything_but_a_chip_or_an_error_of_ours(
    name, text, tmp_path
):
    tree = parse_yaml(text)
    path = tmp_path / "file.yaml"
    assert outcome(path, yaml_of(tree)) is None
    for i, way in enumerate(places(tree)):
        for wrong in (WRONG[i % len(WRONG)], WRONG[(5 * i + 3) % len(WRONG)]):
            outcome(path, yaml_of(put(tree, way, wrong)))  # raises what is not ours


@pytest.mark.parametrize(("name", "text"), list(files()))
def test_an_unknown_field_anywhere_is_told_with_its_place(name, text, tmp_path):
    tree = parse_yaml(text)
    path = tmp_path / "file.yaml"
    sections = [(), *(way for way in places(tree) if isinstance(_at(tree, way), dict))]
    for way in sections:
        error = outcome(path, yaml_of(put(tree, (*way, "utilizatoin"), 1)))
        assert isinstance(error, InputError), way
        assert "utilizatoin" in str(error), way


def _at(tree, way):
    for name in way:
        tree = tree[name]
    return tree


@pytest.mark.parametrize("wrong", ["lots", [1], {"a": 1}, True, float("nan")])
@pytest.mark.parametrize(("name", "text"), list(files()))
def test_a_wrong_kind_of_value_is_told_with_its_field(name, text, wrong, tmp_path):
    tree = parse_yaml(text)
    path = tmp_path / "file.yaml"
    leaves = [w for w in places(tree) if isinstance(_at(tree, w), int | float)]
    free = {"area_per_bit", "controller_power_per_link", "auto"}  # read and never used
    for way in leaves[:: 1 + len(leaves) // 40]:
        if way[-1] in free or (wrong is True and isinstance(_at(tree, way), bool)):
            continue
        error = outcome(path, yaml_of(put(tree, way, wrong)))
        assert isinstance(error, InputError), (way, wrong)
        assert str(way[-1]) in str(error), (way, wrong)
