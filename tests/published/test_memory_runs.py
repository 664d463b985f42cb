"""Memory of published training runs beside ours."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

import pytest
from builders.misses import with_known_misses
from builders.suites import rows_of

from crosstack.io.library import references
from crosstack.mapping.strategy import parse_strategy
from crosstack.published.memory import memory_runs
from crosstack.units import parse_quantity

RUNS = memory_runs()
SHARED = Path(__file__).resolve().parents[3] / "shared/data/measured/training.jsonl"


@pytest.fixture(scope="module")
def rows():
    return {row.case: row for row in rows_of("memory")}


@pytest.mark.parametrize("run", with_known_misses(RUNS))
def test_memory_of_a_published_run_is_within_its_tolerance(run, rows):
    assert rows[run.name].holds, f"{rows[run.name].error:+.3f}"


def test_peaks_that_runs_print_are_met_within_one_percent(rows):
    peaks = [rows[run.name].error for run in RUNS if run.row == "peak"]
    assert fmean(map(abs, peaks)) < 0.007
    assert max(map(abs, peaks)) < 0.01


def test_caches_of_a_token_are_those_printed(rows):
    held = [row for row in rows.values() if row.quantity == "cache of a token"]
    assert len(held) == 3
    assert all(row.ours == row.published for row in held)


def test_figures_of_the_first_table_of_zero_are_sixteen_bytes_of_as_many_weights():
    # rajbhandari2020zero, table 1: 4 + 12 bytes of 7.5 billion weights.
    for run in RUNS:
        if run.source.startswith("rajbhandari"):
            assert run.published == pytest.approx(7.5e9 * (4 + 12), rel=2e-3)


@pytest.mark.parametrize("source", sorted({run.source.partition(": ")[0] for run in RUNS}))
def test_the_source_of_a_published_memory_is_in_the_bibliography(source):
    assert source in references()


@pytest.mark.skipif(not SHARED.exists(), reason="the collected measurements are absent")
def test_printed_memory_is_that_of_the_collected_runs():
    listed = [json.loads(line) for line in SHARED.read_text().splitlines()]
    sizes = {"nanotron": "static_memory_gib", "simumax": "peak_memory_gib"}
    known = {}
    for run in listed:
        name = sizes.get(run["source"])
        if name in run:
            row = run["id"].rpartition("/")[2] if run["source"] == "nanotron" else ""
            degrees = run["tp"], run["pp"], run["dp"]
            key = (run["source"], row, run["layers"], degrees, run["global_batch"], run["zero"])
            known[key] = run[name], run["microbatches"]
    for run in RUNS:
        source, _, where = run.source.partition("_")
        if source not in sizes:
            continue
        s = parse_strategy(run.strategy)
        row = str(int(where.rpartition(" ")[2]) - 1) if source == "nanotron" else ""
        zero = 1 if source == "simumax" else 0  # of one replica, which shares nothing
        key = (source, row, run.trained.layers, (s.kp2, s.lp, s.dp), run.batch, zero)
        size, microbatches = known[key]
        assert run.published == pytest.approx(parse_quantity(f"{size} GiB", "B"))
        assert run.microbatches == microbatches
