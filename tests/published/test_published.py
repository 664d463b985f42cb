from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from builders.suites import rows_of

from crosstack.cli.main import main
from crosstack.errors import InputError
from crosstack.io import library
from crosstack.published import runner
from crosstack.published.case import run_case
from crosstack.published.dfmodel.runs import dfmodel_cases
from crosstack.published.figures import catalogue
from crosstack.published.runner import SUITES, report_rows, run_suite

CASES = dfmodel_cases()
DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "dfmodel"


def test_no_published_run_is_missed():
    missed = [(case.source, check.quantity) for case in CASES for check in case.checks
              if check.reason]  # fmt: skip
    assert missed == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name} [{case.rules}]")
def test_published_case_holds_unless_it_says_why_not(case):
    rows = [row for row in rows_of("dfmodel") if (row.case, row.rules) == (case.name, case.rules)]
    assert len(rows) == len(case.checks)
    assert [row for row in rows if row.holds is bool(row.reason)] == []


def test_parameters_of_every_model_and_the_work_of_trainings_are_those_published():
    rows = rows_of("models")
    assert [row.case for row in rows if not row.holds] == []
    assert {row.case for row in rows} >= {library.model(n).name for n in library.names("models")}
    assert sum(row.tolerance == 0 for row in rows) >= 40  # to the digit
    assert sum(row.quantity == "work" for row in rows) == 32


def test_every_equality_is_held_to_a_millionth():
    checks = [check for case in CASES for check in case.checks if check.sense == "equal"]
    assert {check.tolerance for check in checks} == {1e-6}


def test_there_is_no_suite_by_another_name():
    with pytest.raises(InputError, match='Did you mean "dfmodel"'):
        run_suite("dfmodels")


def test_the_help_names_every_suite(capsys):
    with pytest.raises(SystemExit):
        main(["validate", "--help"])
    printed = " ".join(capsys.readouterr().out.split())
    assert [name for name in SUITES if name not in printed] == []


def test_progress_is_told_the_suites(monkeypatch):
    told = []
    for name in SUITES:
        monkeypatch.setitem(SUITES, name, lambda progress: progress("a case") or [])
    assert run_suite(progress=told.append) == []
    assert told == [told for name in SUITES for told in (name, f"{name}: a case")]


def test_every_suite_but_the_figures_tells_its_cases(monkeypatch):
    told = []
    monkeypatch.setattr(runner, "dfmodel_cases", lambda: CASES[:1])
    run_suite("dfmodel", told.append)
    run_suite("steps", told.append)
    assert told[:3] == ["dfmodel", f"dfmodel: {CASES[0].name}", "steps"]
    assert len(told) == 3 + 11


def test_the_suite_of_figures_tells_every_figure(monkeypatch):
    told = []
    monkeypatch.setattr(catalogue, "FIGURES", {"table6": catalogue.FIGURES["table6"]})
    run_suite("figures", told.append)
    assert told[:2] == ["figures", "figures: table6"]


def test_a_row_that_misses_is_shown_as_a_miss():
    rows = run_case(CASES[0], "dfmodel")
    wrong = rows[0].__class__(**{**_fields(rows[0]), "holds": False})
    assert "MISSES" in report_rows([wrong])


def test_json_rows_hold_both_numbers():
    rows = json.loads(report_rows(run_case(CASES[0], "dfmodel"), "json"))
    assert all(abs(row["ours"] / row["published"] - 1) < 1e-6 for row in rows)


def _fields(row):
    return {name: getattr(row, name) for name in row.__dataclass_fields__}


@pytest.mark.skipif(not DATA.exists(), reason="../shared/data is not here")
def test_the_re_entered_numbers_are_those_of_the_published_log():
    rows = [json.loads(line) for line in (DATA / "cases.jsonl").read_text().splitlines()]
    by_path = {row["path"]: row["result"] for row in rows}
    checked = 0
    for case in CASES:
        result = by_path.get(case.source.rpartition("; ")[2].split(" (")[0])
        if result is None:
            continue
        names = {
            "time": "final_s",
            "utilization": "System_FLOPS_Utilization",
            "price": "System_Cost",
            "power": "System_Power",
        }
        for check in case.checks:
            published = result.get(names.get(check.quantity, ""))
            if published is not None:
                assert check.published == pytest.approx(published, rel=1e-9), case.name
                checked += 1
    assert checked >= 25


def _source(case):
    return case.source.rpartition("; ")[2].split(" (")[0].split(",")[0]


@pytest.mark.skipif(not DATA.exists(), reason="../shared/data is not here")
def test_every_published_run_is_a_case():
    rows = [json.loads(line) for line in (DATA / "cases.jsonl").read_text().splitlines()]
    assert len(rows) == 35
    assert {row["path"] for row in rows} - {_source(case) for case in CASES} == set()
    # one directory holds two logs
    assert sum(_source(case).endswith("TP16_PP1/llama3_8B_SN40L_decode") for case in CASES) == 2


@pytest.mark.skipif(not DATA.exists(), reason="../shared/data is not here")
@pytest.mark.parametrize(
    ("setup", "rules", "published"),
    [
        ("readme_gpt3_1t_sn30", None, 78.99477102558104),
        ("llm_fwd_gpt3_175b_sn10_vendor_8x1", None, 1231.538922455016),
        ("llm_fwd_gpt3_175b_sn10_dfmodel_8x1", None, 1026.282435379187),
        ("llm_fwd_gpt3_175b_sn10_kbk_8x1", None, 4896.584839987134),
        ("llm_fwdbwd_gpt3_1t_calculon_fix_TP_8_16_32", None, 43.69955836015329),
        ("fft_compare_fp32_1024_a100", None, 1.357981486505653),
        ("fft_dse_h100_3d_torus_hbm_nvlink", None, 0.02031876953399225),
        ("hpl_dse_h100_3d_torus_hbm_nvlink", None, 0.27774263269892896),
        ("llm_decode_llama3_8b_sn40l_tp16_pp1", None, 13.793589503572779),
    ],
)
def test_a_complete_published_input_is_mapped_no_slower_than_published(setup, rules, published):
    import crosstack

    task = crosstack.load(DATA / "setups" / f"{setup}.txt")
    answer = crosstack.optimise(task, rules=rules)
    assert answer.certificate.status is crosstack.Status.OPTIMAL
    assert answer.evaluation.time <= published * (1 + 1e-6)


def test_a_published_recommendation_model_of_release_e2_takes_the_published_time():
    # DLRM/Compare_w_existing/F: a pair of its 128 chips exchanges 4,096,000 B of 524,288,000 B.
    import crosstack
    from crosstack.io.dfmodel.read import read_task
    from crosstack.io.dfmodel.write import write_task

    case = next(case for case in CASES if case.source == "DLRM/Compare_w_existing/F")
    text = write_task(replace(case.task, rules=case.rules))
    assert text.count("communication_size: 4096000.0") == 2
    assert text.count("memory_size: 524288000.0") == 2
    answer = crosstack.optimise(read_task(text, "F.txt"))
    assert answer.rules.name == "dfmodel-e2"
    assert answer.evaluation.time == pytest.approx(23671.57276655616, rel=1e-12)


@pytest.mark.skipif(not DATA.exists(), reason="../shared/data is not here")
def test_decode_on_sn40l_takes_the_published_time_of_a_layer():
    # LLM_Serving/DSE/TP16_PP1/llama3_8B_SN40L_decode, release E5: 26309.18408121639 ns a layer.
    import crosstack

    task = crosstack.load(DATA / "setups" / "llm_decode_llama3_8b_sn40l_tp16_pp1.txt")
    answer = crosstack.optimise(task)
    assert answer.evaluation.layer_time == pytest.approx(26309.18408121639e-9, rel=1e-6)
    assert answer.evaluation.latency == pytest.approx(841893.8905989245e-9, rel=1e-6)


@pytest.mark.skipif(not DATA.exists(), reason="../shared/data is not here")
@pytest.mark.parametrize("setup", ["dlrm_damsim_0.4T", "hpl_damsim_16x16"])
def test_published_inputs_with_memory_units_are_mapped(setup):
    import crosstack

    task = crosstack.load(DATA / "setups" / f"{setup}.txt")
    assert task.system.chip.levels[0].banks == 1040
    answer = crosstack.optimise(task)
    assert answer.certificate.status is crosstack.Status.OPTIMAL
    again = crosstack.evaluate(task, answer.mapping)
    assert again.time == pytest.approx(answer.certificate.objective, rel=1e-12)
