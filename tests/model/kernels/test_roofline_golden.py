"""Claims about products that the releases of the public tool were run for, row by row.

The recorded runs are not part of the repository (../shared/data/deepflow); without them these
tests are skipped. Runs of 2020 are whole steps only: tests/evaluate/test_recorded_steps.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders.products import gemm_time

from crosstack.io.deepflow import read_hardware
from crosstack.machine.chip import Chip
from crosstack.machine.compute import Dataflow
from crosstack.machine.generate.generated import generate
from crosstack.machine.generate.generation import Generation
from crosstack.model.kernels.clock import KernelTime
from crosstack.published.deepflow.generation import GENERATION_2021, GENERATION_2025
from crosstack.published.deepflow.kernels import tiles_of_2021, tiles_of_2025

DATA = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "deepflow"
CLOSE = {"rel": 1e-9, "abs": 0.0}
Row = dict[str, Any]


def rows_with(wanted: Callable[[Row], bool]) -> list[Any]:
    path = DATA / "golden.jsonl"
    if not path.exists():
        reason = "recorded runs are not part of the repository (../shared/data/deepflow)"
        return [pytest.param(None, marks=pytest.mark.skip(reason=reason))]
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [pytest.param(row, id=row["id"]) for row in found if wanted(row)]


def chip_of(path: Path, rules: Generation, row: Row) -> Chip:
    changes = [
        f"{name}={json.dumps(value)}" for name, value in row.get("hardware_overrides", {}).items()
    ]
    hardware = read_hardware(path.read_text(), path.name, changes)
    return generate(hardware.template, hardware.budget, rules).chip


def chip_of_2025(row: Row) -> Chip:
    path = DATA / "configs" / "2025" / row["hardware_config"]
    return chip_of(path, GENERATION_2025, row)


def traffic(found: KernelTime) -> list[float]:
    return [float(moved) for moved in found.traffic.values()]


def is_product(row: Row) -> bool:
    # A distributed run records the tiles of its share, and the time with its collective.
    return row["kind"] in ("GEMM", "GEMM-dist") and row["version"].startswith("master")


@pytest.mark.parametrize("row", rows_with(is_product))
def test_products_of_2025(row):
    m, k, n = row["output"]["tile"][3]
    chip = chip_of_2025(row)
    found = gemm_time(chip, m, k, n, clock=tiles_of_2025())
    assert traffic(found) == pytest.approx(row["output"]["bytes"], **CLOSE)
    tiles = [found.tiles[level.name].tolist() for level in chip.storage]
    # The innermost tile of the record is drawn, printed and not used.
    assert tiles[1:] == [
        np.minimum(tile, outer).tolist()
        for tile, outer in zip(row["output"]["tile"][1:], [*tiles[2:], [m, k, n]], strict=True)
    ]
    if row["kind"] == "GEMM":
        assert float(found.time) == pytest.approx(row["output"]["time_s"], **CLOSE)


@pytest.mark.parametrize("row", rows_with(lambda row: row["id"].startswith("edge_dataflow")))
def test_dataflows_of_2025(row):
    # The record has no shape; of all powers of two from 128 only this one moves its bytes thrice.
    found = gemm_time(chip_of_2025(row), 4096, 1024, 2048, clock=tiles_of_2025())
    assert float(found.time) == pytest.approx(row["output"]["t"], **CLOSE)
    assert traffic(found) == pytest.approx(row["output"]["bytes"], **CLOSE)


@pytest.mark.parametrize("row", rows_with(lambda row: row["id"] == "readme_LLM"))
def test_products_of_the_readme_of_2025(row):
    config = {"hardware_config": "configs/hardware-config/waferscale_20v100_80hbm.yaml"}
    chip = chip_of_2025(config)
    for shape, time in row["output"]["per_gemm_s"].items():
        m, k, n = map(int, shape.split("x"))
        # Twenty chips share the rows; what they cannot share evenly is left out.
        found = gemm_time(chip, m // 20, k, n, clock=tiles_of_2025())
        assert float(found.time) == pytest.approx(time, **CLOSE)


@pytest.mark.parametrize("row", rows_with(lambda row: row["id"].startswith("gemm2021")))
def test_products_of_2021(row):
    path = DATA / "configs" / "2021" / row["config"]
    chip = chip_of(path, GENERATION_2021, row)
    given = row["cli"]
    # Without a kernel split that release swaps K and N.
    m, k, n = given["m"], given["n"], given["k"]
    times = tiles_of_2021().times(chip)
    assert times.product(m, k, n) == pytest.approx(row["output"]["time_s"], **CLOSE)
    found = gemm_time(chip, m, k, n, clock=tiles_of_2021())
    assert float(found.time) == times.product(m, k, n)
    tiles = [found.tiles[level.name].tolist() for level in chip.storage]
    assert tiles[3] == row["output"]["order"]


def test_many_products_at_once_are_the_same():
    row = rows_with(is_product)[0]
    if row.values[0] is None:
        pytest.skip("recorded runs are not part of the repository (../shared/data/deepflow)")
    chip = replace(chip_of_2025(row.values[0]), launch_overhead=1e-6)
    sides = np.floor(2.0 ** np.random.default_rng(1).uniform(0, 15, (3, 40)))
    for clock in (tiles_of_2025(), tiles_of_2021()):
        together = gemm_time(chip, *sides, clock=clock)
        for i, shape in enumerate(sides.T):
            alone = gemm_time(chip, *shape, clock=clock)
            assert alone.time == together.time[i]
            assert traffic(alone) == [moved[i] for moved in together.traffic.values()]


def test_forced_dataflows_bound_the_best():
    row = rows_with(is_product)[0].values[0]
    if row is None:
        pytest.skip("recorded runs are not part of the repository (../shared/data/deepflow)")
    chip, clock = chip_of_2025(row), tiles_of_2025()
    forced = [
        gemm_time(chip, 777, 888, 99, clock=clock, dataflow=flow)
        for flow in (Dataflow.WEIGHT, Dataflow.ACTIVATION, Dataflow.OUTPUT)
    ]
    best = gemm_time(chip, 777, 888, 99, clock=clock, dataflow=Dataflow.BEST)
    assert best.time == min(found.time for found in forced)
