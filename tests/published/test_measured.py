from __future__ import annotations

import json
from dataclasses import replace

import pytest
from builders.misses import with_known_misses

from crosstack.cli.main import main
from crosstack.io.library import references
from crosstack.published import runner
from crosstack.published.case import inside
from crosstack.published.dfmodel.graphs.dlrm import dlrm
from crosstack.published.measured import measured_cases, run_measured
from crosstack.published.runner import report_rows

CASES = measured_cases()
# What DFModel's log of the same input says; the last is printed with four digits.
LOGGED = [case for case in CASES if case.modelled is not None and case.rules != "crosstack"]


@pytest.fixture(scope="module")
def rows():
    return {case.name: run_measured(case) for case in CASES}


@pytest.mark.parametrize("case", with_known_misses(CASES))
def test_a_measured_number_is_reached(case, rows):
    assert rows[case.name].holds, f"{rows[case.name].error:+.3f}"


@pytest.mark.parametrize("case", LOGGED, ids=lambda case: case.name)
def test_the_log_of_the_same_input_is_reproduced(case, rows):
    tolerance = 1e-3 if case.modelled == 1188.0 else 1e-6
    assert rows[case.name].ours == pytest.approx(case.modelled, rel=tolerance)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_source_of_a_measured_number_is_in_the_bibliography(case):
    key, _, place = case.source.partition(": ")
    assert key in references()
    assert place


def test_no_measured_number_is_our_own_or_a_models_output(rows):
    assert [name for name, row in rows.items() if abs(row.error) < 1e-6] == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        pytest.param("DLRM-A training on 128 A100", 0.10, id="ko2025dfmodel, VI.B: 10 % higher"),
        pytest.param(
            "GPT-3 175B on 8 SN10, the vendor's mapping", 0.0, id="ko2025dfmodel, VII.B: within 3 %"
        ),
    ],
)
def test_a_number_that_is_not_printed_is_relative_to_dfmodels(rows, name, said):
    row = rows[name]
    assert row.unit == "1"
    assert row.modelled_error == pytest.approx(said)


def test_selene_is_listed_at_63460_teraflops_and_tethys_at_2255(rows):
    listed = {name: row.published / 1e12 for name, row in rows.items() if "HPL" in name}
    assert listed["HPL on Selene, 4,480 A100"] == 63460
    assert listed["HPL on Tethys, 160 A100"] == 2255


@pytest.mark.parametrize(
    ("sense", "error", "holds"),
    [
        ("equal", 0.05, True),
        ("equal", -0.11, False),
        ("at most", -0.5, True),
        ("at most", 0.11, False),
        ("at least", 0.5, True),
        ("at least", -0.11, False),
    ],
)
def test_a_tolerance_has_a_side(sense, error, holds):
    assert inside(sense, error, 0.1) is holds


def test_a_miss_prints_its_reason_and_ends_with_exit_code_1(rows, monkeypatch, capsys):
    missed = [row for row in rows.values() if not row.holds]
    monkeypatch.setitem(runner.SUITES, "measured", lambda progress: missed)
    with pytest.raises(SystemExit) as stop:
        main(["validate", "--suite", "measured"])
    assert stop.value.code == 1
    printed = capsys.readouterr().out
    assert all(row.reason in printed for row in missed)
    assert f"0 of {len(missed)} checks hold. {len(missed)} miss, {len(missed)} of them" in printed


def test_rows_that_hold_end_with_exit_code_0(rows, monkeypatch):
    held = [row for row in rows.values() if row.holds]
    monkeypatch.setitem(runner.SUITES, "measured", lambda progress: held)
    with pytest.raises(SystemExit) as stop:
        main(["validate", "--suite", "measured", "--format", "json"])
    assert stop.value.code == 0


def test_the_table_gives_the_sources_model_beside_ours(rows):
    row = rows["HPL on Selene, DFModel's input"]
    assert json.loads(report_rows([row], "json"))[0]["modelled_error"] == pytest.approx(
        0.0612, abs=1e-4
    )
    assert "| source's model | its error |" in report_rows([row], "md")


def test_rows_added_up_before_the_exchange_would_be_as_fast_as_the_reason_says():
    (case,) = (case for case in CASES if case.name == "DLRM-A training on 128 A100")
    first = case.task.workload.graph.kernels[0]
    pooled = dlrm(
        width=first.m, n_bottom=10, n_top=10, n_tables=600, rows=14211469, embedding_size=93,
        samples=first.n, pooled_rows=1, global_batch_size=case.task.workload.global_batch_size,
    )  # fmt: skip
    row = run_measured(replace(case, task=replace(case.task, workload=pooled)))
    assert f"{row.ours:.1f} times DFModel's" in case.reason


def test_the_memory_of_the_input_would_make_the_vendors_mapping_as_slow_as_the_note_says():
    (case,) = (case for case in CASES if "SN10" in case.name)
    system = case.task.system
    slower = replace(
        system,
        chip=system.chip.with_memory(bandwidth=100e9),
    )
    row = run_measured(replace(case, task=replace(case.task, system=slower)))
    assert f"{row.ours:.1f} times as long as DFModel's" in case.note
