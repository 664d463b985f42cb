"""Claims of the docs about calibrated machines: rows that a fit has not seen come nearer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import crosstack
from crosstack.evaluate.run_scores import score_runs
from crosstack.io.calibration import on_measured
from crosstack.io.measured_runs import read_runs
from crosstack.io.native import CalibratedMachine

ROWS = Path(__file__).resolve().parents[3] / "shared/data/measured"
PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/calibrate.md"
POINT = 1.0  # by which a mean may have moved [%]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ROWS.exists(), reason="the measured rows are not beside the project"),
]


def of_source(name: str, file: str) -> list[str]:
    lines = (ROWS / file).read_text().splitlines()
    return [line for line in lines if f'"source": "{name}' in line]


@pytest.fixture
def shown(tmp_path):
    """Return a function that fits to some rows, and scores runs before and after."""

    def show(rows: list[str], on: str, runs: list[str]):
        table, held = tmp_path / "rows.jsonl", tmp_path / "runs.jsonl"
        table.write_text("\n".join(rows))
        held.write_text("\n".join(runs))
        fit = crosstack.calibrate(table, on)
        machine, found = CalibratedMachine(on=on, calibration=fit.calibration), read_runs(held)
        (before,), (after,) = found.sets.values(), on_measured(found, machine).sets.values()
        before = [replace(run, sustained=None) for run in before]  # as the library has the machine
        return fit, [score_runs(each).ours for each in (before, after)]

    return show


def held_to_the_page(row: str, before, after) -> None:
    line = next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| {row} |"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    for cell, score in zip(cells[-2:], (before, after), strict=True):
        mean, bias = (float(number.strip("()")) for number in cell.split())
        assert 100 * score.mean == pytest.approx(mean, abs=POINT)
        assert 100 * score.bias == pytest.approx(bias, abs=POINT)


@pytest.mark.timeout(1200)  # hundreds of steps, over and over
def test_half_of_the_steps_of_a_node_tell_of_the_other_half(shown):
    runs = of_source("vtrain-single", "training.jsonl")
    _, (before, after) = shown(runs[::2], "a100-dgx-80gb", runs[1::12])
    assert after.mean < before.mean
    assert abs(after.bias) < abs(before.bias)
    held_to_the_page("steps, every other of vTrain", before, after)


def test_products_of_a_chip_tell_of_its_steps(shown):
    products = [row for row in of_source("simumax", "gemm.jsonl") if '"gpu": "B200"' in row]
    runs = of_source("simumax", "training.jsonl")
    fit, (before, after) = shown(products, "b200-dgx", runs)
    assert fit.fit.held_out.mean < fit.fit.before.mean
    assert after.mean < 0.7 * before.mean
    held_to_the_page("products of SimuMax's B200", before, after)
