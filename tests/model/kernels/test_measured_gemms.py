"""Claims of docs/roofline.md about 48 products measured on an A100.

The page holds the measured times; traffic and clocks are in ../shared/data/deepflow alone.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crosstack.io import library

HERE = Path(__file__).resolve()
PAGE = HERE.parents[3] / "docs" / "roofline.md"
SPEC = importlib.util.spec_from_file_location("measured_gemms", HERE.parent / "measured_gemms.py")
gemms = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(gemms)

with_data = pytest.mark.skipif(
    not gemms.DATA.exists(), reason="traffic and clocks are in ../shared/data/deepflow"
)
ONCE_AND_A_HALF = 1.5


@pytest.fixture(scope="module")
def page():
    """Return sides, measured time [s], and the errors the page states [%]."""
    rows = re.findall(r"^\| (\d+ \| .*) \|$", PAGE.read_text(), flags=re.MULTILINE)
    cells = [row.split(" | ") for row in rows]
    cells = [row for row in cells if len(row) == gemms.HEAD.count("|") - 1]
    numbers = np.array([[float(cell) for cell in row[:6]] for row in cells])
    return (*numbers[:, :3].T, numbers[:, 3] * 1e-6, numbers[:, 5])


@pytest.fixture(scope="module")
def errors(page):
    m, k, n, time, _ = page
    return gemms.predicted(m, k, n).time / time - 1


def test_the_page_holds_all_rows_and_their_errors(page, errors):
    assert len(errors) == 48
    assert 100 * errors == pytest.approx(page[4], abs=0.051)


def test_the_mean_error_of_products_of_matrices_is_within_5_percent(page, errors):
    assert np.mean(np.abs(errors[page[2] > 1])) <= 0.05


def test_the_mean_error_above_a_millisecond_is_within_6_percent(page, errors):
    long = page[3] > 1e-3
    assert np.count_nonzero(long) == 25
    assert np.mean(np.abs(errors[long])) <= 0.06


def test_no_product_of_matrices_is_off_by_more_than_a_quarter(page, errors):
    assert np.max(np.abs(errors[page[2] > 1])) <= 0.25


COLUMNS = (
    "The library ran a kernel that has 16 blocks for 1024 rows and waits for memory at every step: "
    "0.03 to 0.35 of the bandwidth. The model reads the matrix as fast as memory gives it, as "
    "it does for a row."
)


@pytest.mark.parametrize(
    ("m", "k"),
    [(1024, 4096), (1024, 8192), (1024, 16384), (16384, 4096), (16384, 5120), (16384, 8192)],
)
@pytest.mark.xfail(strict=True, reason=COLUMNS)
def test_a_column_is_not_off_by_more_than_a_quarter(page, errors, m, k):
    row = (page[0] == m) & (page[1] == k) & (page[2] == 1)
    assert np.abs(errors[row]) <= 0.25


def test_the_page_states_the_means(page, errors):
    text = " ".join(PAGE.read_text().split())
    time, vector = page[3], page[2] == 1
    for part in (np.full(48, True), ~vector, vector, time > 1e-3, time < 1e-4):
        assert f"{100 * np.mean(np.abs(errors[part])):.1f} % over {np.count_nonzero(part)}" in text


def test_the_page_states_what_the_launch_does(page):
    m, k, n, time, _ = page
    means = []
    for launch in (2e-6, 3e-6, 5e-6, 7e-6, 9e-6):
        chip = replace(
            library.chip("a100-pcie-80gb", frequency=gemms.CLOCK), launch_overhead=launch
        )
        error = (gemms.gemm_time(chip, m, k, n).time / time - 1)[n > 1]
        means.append(f"{100 * np.mean(np.abs(error)):.1f} %")
    stated = f"{', '.join(means[:-1])} and {means[-1]} with a launch of 2, 3, 5, 7 and 9 us"
    assert stated in " ".join(PAGE.read_text().split())


@with_data
def test_the_table_is_what_the_script_prints():
    text = PAGE.read_text()
    assert "\n".join(gemms.table()) in text


@with_data
def test_the_mean_errors_hold_at_the_clock_of_every_row():
    data = gemms.measured()
    error = np.abs(gemms.at_own_clock(data) / data["time"] - 1)
    assert np.mean(error[data["n"] > 1]) <= 0.05
    assert np.mean(error[data["time"] > 1e-3]) <= 0.06


def traffic_ratios(level, measured):
    """Return predicted over measured, and the row's name, for kernels above 0.1 ms."""
    data = gemms.measured()
    found = gemms.predicted(data["m"], data["k"], data["n"])
    found = gemms.counted(found, level) / data[measured]
    shapes = zip(data["m"], data["k"], data["n"], strict=True)
    names = [f"{m:.0f}x{k:.0f}x{n:.0f}" for m, k, n in shapes]
    long = data["time"] > 1e-4
    return dict(zip(np.array(names)[long].tolist(), found[long].tolist(), strict=True))


STRIPS = (
    "The library's order of tiles is not known: it reads what strips of 4 tiles would, and other "
    "rows what strips of 8 would; the model takes the best strip, so it moves too little here."
)
MISSED = ("16384x8192x57344", "16384x8192x32000", "16384x13824x5120")


@with_data
@pytest.mark.parametrize("row", MISSED)
@pytest.mark.xfail(strict=True, reason=STRIPS)
def test_main_memory_traffic_of_a_missed_row(row):
    assert 1 / ONCE_AND_A_HALF <= traffic_ratios("HBM2e", "dram")[row] <= ONCE_AND_A_HALF


@with_data
def test_main_memory_traffic_is_within_1_5_of_measured_elsewhere():
    ratios = traffic_ratios("HBM2e", "dram")
    assert len(ratios) == 36
    held = [value for row, value in ratios.items() if row not in MISSED]
    assert min(held) >= 1 / ONCE_AND_A_HALF
    assert max(held) <= ONCE_AND_A_HALF


@with_data
def test_l2_traffic_is_within_1_5_of_measured():
    ratios = traffic_ratios("L2", "l2").values()
    assert min(ratios) >= 1 / ONCE_AND_A_HALF
    assert max(ratios) <= ONCE_AND_A_HALF
