"""The machine library as data: sources, units and agreement of figures, read plainly."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from crosstack.units import parse_quantity

DATA = Path(__file__).resolve().parents[2] / "src" / "crosstack" / "data"
LIBRARY = DATA / "library"
KEYS = set(re.findall(r"@\w+\{(\w+),", (DATA / "references.bib").read_text()))
KINDS = {"measured", "datasheet", "paper", "market", "assumed", "calibrated"}
BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "fp4": 0.5}
BYTES |= {"mxfp8": 1, "nvfp4": 0.5}  # without scales
FUSIONS = {"epilogue", "elementwise", "normalisation", "attention", "any"}
SCOPES = {"unit", "multiprocessor", "chip"}


def _read(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text())


def _merged(base: Any, own: Any) -> Any:
    if not (isinstance(base, dict) and isinstance(own, dict)):
        return own
    return base | {key: _merged(base.get(key), value) for key, value in own.items()}


def _whole(entries: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the entry with all that it is based on; its own sources go first."""
    own = entries[name]
    if "based_on" not in own:
        return own
    base = _whole(entries, own["based_on"])
    sources = [*own.get("sources", []), *base["sources"]]
    rest = {key: value for key, value in own.items() if key not in ("based_on", "sources")}
    return _merged({k: v for k, v in base.items() if k != "sources"}, rest) | {"sources": sources}


OWN_CHIPS = {k: v for path in sorted(LIBRARY.glob("chips/*.yaml")) for k, v in _read(path).items()}
OWN_NODES = _read(LIBRARY / "nodes.yaml")
NETWORKS = _read(LIBRARY / "networks.yaml")
CHIPS = {name: _whole(OWN_CHIPS, name) for name in OWN_CHIPS}
NODES = {name: _whole(OWN_NODES, name) for name in OWN_NODES}
OWN_FRAMEWORKS = _read(LIBRARY / "frameworks.yaml")
FRAMEWORKS = {name: _whole(OWN_FRAMEWORKS, name) for name in OWN_FRAMEWORKS}
OWN_LINKS, FABRICS = NETWORKS["links"], NETWORKS["fabrics"]
LINKS = {name: _whole(OWN_LINKS, name) for name in OWN_LINKS}
OTHERS = {**_read(LIBRARY / "memories.yaml"), **NETWORKS["topologies"]}
WORKING = [n for n, c in CHIPS.items() if "work_per_cycle" in c.get("units", {}).get("matrix", {})]


def _scale_up(node: dict[str, Any]) -> Any:
    return CHIPS[node["chip"]].get("links", {}).get("scale_up")


LINKED = [n for n, node in NODES.items() if "inside" in node and _scale_up(node)]
# A chip and a memory may have one name, so may a fabric and a topology.
OTHERS = {f"{name}, a part": other for name, other in OTHERS.items()}
ENTRIES = {**CHIPS, **NODES, **LINKS, **FABRICS, **OTHERS, **FRAMEWORKS}
OWN = {**OWN_CHIPS, **OWN_NODES, **OWN_LINKS, **FABRICS, **OTHERS, **OWN_FRAMEWORKS}


def _is_number(value: object) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int | float) or bool(re.match(r"[\d.]+ [A-Za-z/()]+$", str(value)))


def _numbers(tree: dict[str, Any], path: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in tree.items():
        if key in ("sources", "name", "based_on"):
            continue
        here = f"{path}.{key}" if path else key
        if isinstance(value, dict):
            found |= _numbers(value, here)
        elif _is_number(value):
            found[here] = value
    return found


def _covers(field: str, path: str) -> bool:
    return path == field or path.startswith(f"{field}.")


def _sourced(entry: dict[str, Any], path: str) -> bool:
    return any(_covers(f, path) for s in entry.get("sources", []) for f in s["fields"])


@pytest.mark.parametrize("name", ENTRIES)
def test_every_number_says_where_it_comes_from(name):
    entry = ENTRIES[name]
    assert [p for p in _numbers(entry) if not _sourced(entry, p)] == []


@pytest.mark.parametrize("name", [n for n in OWN if "based_on" in OWN[n]])
def test_a_number_that_replaces_one_brings_its_own_source(name):
    own = OWN[name]
    assert [p for p in _numbers(own) if not _sourced(own, p)] == []


@pytest.mark.parametrize("name", ENTRIES)
def test_sources_are_in_the_bibliography_and_name_fields_that_exist(name):
    for source in OWN[name].get("sources", []):
        assert set(source) == {"source", "where", "kind", "fields"}
        assert source["source"] in KEYS
        assert source["kind"] in KINDS
        words = (
            "kinds", "fusions", "chains", "attention", "tokens_once", "fused_sums", "sharing",
            "experts_apart", "schedules", "contexts", "window_contexts", "functions", "passes",
            "keeps", "buckets",
        )  # fmt: skip
        paths = {**_numbers(ENTRIES[name]), **{word: ENTRIES[name].get(word) for word in words}}
        assert [f for f in source["fields"] if not any(_covers(f, p) for p in paths)] == []


def _unit_of(path: str, *, part: bool) -> str | None:
    """Return the unit of a field that carries one; none of a count, a share or cycles."""
    last = path.rsplit(".", 1)[-1]
    if path.split(".", maxsplit=1)[0] in ("rates", "vector_rates", "accumulator_rates"):
        return "FLOP/s"
    if path.startswith("frequency"):
        return "Hz"
    if path.startswith("power"):
        return "W/(B/s)" if part else "W"
    if last == "price":
        return "USD/(B/s)" if part else "USD"
    return {
        "capacity": "B",
        "bandwidth": "B/s",
        "bandwidth_per_link": "B/s",
        "link_bandwidth": "B/s",
        "memory_bandwidth": "B/s",
        "latency": "s",
        "latency_per_switch": "s",
        "ramp": "s",
        "launch_overhead": "s",
        "dispatch": "s",
        "set_aside": "B",
        "link_power": "W/(B/s)",
        "switch_power": "W/(B/s)",
        "switch_price": "USD/(B/s)",
    }.get(last)


@pytest.mark.parametrize("name", ENTRIES)
def test_quantities_have_units_and_are_above_zero(name):
    for path, value in _numbers(ENTRIES[name]).items():
        unit = _unit_of(path, part=name in LINKS or name in OTHERS)
        if unit is None:
            assert isinstance(value, int | float), path
        elif unit != "B":
            assert isinstance(value, str), f"{path}: {value} has no unit"
        assert parse_quantity(value, unit or "1") > 0, path


@pytest.mark.parametrize("name", [n for n in WORKING if "frequency" in CHIPS[n]])
def test_rates_follow_from_units_work_and_clock(name):
    chip, matrix = CHIPS[name], CHIPS[name]["units"]["matrix"]
    clock = parse_quantity(chip["frequency"].get("matrix") or chip["frequency"]["boost"], "Hz")
    n_units = chip["multiprocessors"] * matrix["per_multiprocessor"]
    for dtype, work in matrix["work_per_cycle"].items():
        rate = parse_quantity(chip["rates"][dtype], "FLOP/s")
        assert n_units * work * clock == pytest.approx(rate, rel=0.03), dtype


@pytest.mark.parametrize("name", WORKING)
def test_the_shape_of_a_cycle_makes_its_work(name):
    matrix = CHIPS[name]["units"]["matrix"]
    dtype = next(d for d in ("bf16", "fp16", "int8") if d in matrix["work_per_cycle"])
    if name == "groq-lpu-v1":
        dtype = "int8"  # products of 16 bits take two planes
    depth = matrix["depth_bytes"] / BYTES[dtype]
    work = 2 * matrix["rows"] * matrix["columns"] * depth
    assert work == matrix["work_per_cycle"][dtype]


@pytest.mark.parametrize("name", CHIPS)
def test_narrower_types_are_not_slower(name):
    rates = {d: parse_quantity(r, "FLOP/s") for d, r in CHIPS[name]["rates"].items()}
    floating = sorted((d for d in rates if d != "int8"), key=lambda d: -BYTES[d])
    ordered = [rates[d] for d in floating]
    assert ordered == sorted(ordered)


@pytest.mark.parametrize("name", CHIPS)
def test_memories_grow_outwards_and_hold_bytes(name):
    chip = CHIPS[name]
    per_multiprocessor = chip.get("units", {}).get("matrix", {}).get("per_multiprocessor", 1)
    n_of = {
        "unit": chip["multiprocessors"] * per_multiprocessor,
        "multiprocessor": chip["multiprocessors"],
        "chip": 1,
    }
    main = list(chip["levels"].values())[-1]
    assert main["scope"] == "chip"
    for level in chip["levels"].values():
        assert level["scope"] in SCOPES
        assert not {"bandwidth", "bytes_per_cycle"} <= set(level)
        held = parse_quantity(level["capacity"], "B") * n_of[level["scope"]]
        assert held == int(held)
        assert held <= parse_quantity(main["capacity"], "B")
    assert 0.5 < main.get("achieved", 0.9) < 1


@pytest.mark.parametrize("name", CHIPS)
def test_chips_are_of_a_known_execution_and_name_known_fusions(name):
    chip = CHIPS[name]
    assert chip["execution"] in ("temporal", "spatial")
    assert set(chip["fusions"]) <= FUSIONS
    assert (chip["fusions"] == ["any"]) == (chip["execution"] == "spatial")


@pytest.mark.parametrize("name", NODES)
def test_the_levels_of_a_node_hold_its_chips(name):
    node = NODES[name]
    product = 1
    for level in node.get("inside", {}).values():
        assert level["kind"] in ("switch", "ring", "fully_connected")
        product *= level["size"]
    assert product == node["chips"]
    assert node["chip"] in CHIPS


@pytest.mark.parametrize("name", LINKED)
def test_a_node_uses_the_links_of_its_chip_and_no_more(name):
    """Both are one way: a node that counted both directions would have twice its chip's."""
    levels = NODES[name]["inside"].values()
    scale_up = _scale_up(NODES[name])
    assert sum(level["links"] for level in levels) == scale_up["links"]
    assert {level["bandwidth_per_link"] for level in levels} == {scale_up["bandwidth_per_link"]}


@pytest.mark.parametrize("name", FABRICS)
def test_fabrics_are_of_a_known_kind(name):
    fabric = FABRICS[name]
    assert fabric["kind"] in ("fat_tree", "rail_only", "dragonfly")
    assert fabric["rails"] in ("none", "optimised", "only")
    assert fabric["oversubscription"] >= 1
    assert (fabric["rails"] == "only") == (fabric["kind"] == "rail_only")
