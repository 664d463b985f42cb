"""What a run over so many tokens takes, as `crosstack map --tokens` says it."""

from __future__ import annotations

import json

import pytest


def test_the_command_says_it(run, tmp_path):
    saved = tmp_path / "plan.json"
    asked = ("map", "llama-68m", "--on", "h100-dgx", "--batch", 16, "--sequence", 512)
    found = run(*asked, "--work-limit", 1000, "--tokens", "1.5T", "--json", saved)
    assert "A run over 1,500,000,000,000 tokens" in found.out
    assert "price of a million tokens" in found.out
    data = json.loads(saved.read_text())
    assert data["run"]["iterations"] == -(-1_500_000_000_000 // (16 * 512))
    assert data["run"]["time_s"] == pytest.approx(data["run"]["iterations"] * data["time_s"])


@pytest.mark.parametrize("text", ["", "0", "15Q", "-3", "1e999", "T", "nan"])
def test_what_is_no_number_of_tokens_is_refused(run, text):
    outcome = run("map", "llama-68m", "--on", "h100-dgx", "--tokens", text)
    assert (outcome.code, len(outcome.problems)) == (2, 1)
    assert "--tokens" in outcome.err


def test_what_has_no_tokens_is_refused_before_it_is_mapped(run):
    outcome = run("map", "examples/my_graph.yaml", "--on", "h100-dgx", "--tokens", "1T")
    assert outcome.code == 2
    assert "allowed for models of language" in outcome.err


FREE = ("map", "llama-68m", "--on", "h100-dgx", "--batch", 16, "--sequence", 512)
ASKED = (*FREE, "--given", "tp=1,pp=1,dp=8", "--work-limit", 1000)


def test_a_saved_run_is_shown_again(run, tmp_path):
    saved, page = tmp_path / "plan.json", tmp_path / "plan.html"
    found = run(*ASKED, "--tokens", "1.5T", "--json", saved)
    assert run("show", saved).out in found.out
    assert run("report", saved, "-o", page).code == 0
    assert "A run over 1,500,000,000,000 tokens" in page.read_text()


def test_energy_is_in_megawatt_hours_and_the_price_says_what_it_is_of(run):
    words = " ".join(run(*ASKED, "--tokens", "150T").out.split())
    assert "MWh" in words
    assert "kWh" not in words
    assert "of the purchase price over 4 years, without electricity" in words
    assert "electricity of a" not in words


@pytest.mark.parametrize("price", ["0.08", "0.08 USD/kWh", "80 USD/MWh"])
def test_electricity_is_a_line_of_its_own(run, tmp_path, price):
    saved = tmp_path / "plan.json"
    outcome = run(*ASKED, "--tokens", "1.5T", "--electricity", price, "--json", saved)
    data = json.loads(saved.read_text())["run"]
    assert data["electricity_usd"] == pytest.approx(data["energy_j"] / 3.6e6 * 0.08)
    assert "electricity of a million tokens" in outcome.out
    assert "without electricity" not in outcome.out


@pytest.mark.parametrize("price", ["", "free", "-1", "0.08 EUR/kWh", "nan"])
def test_what_is_no_price_of_electricity_is_refused(run, price):
    outcome = run(*ASKED, "--electricity", price)
    assert (outcome.code, len(outcome.problems)) == (2, 1)
    assert "--electricity" in outcome.err


def test_a_trace_of_the_answer_is_saved(run, tmp_path):
    trace = tmp_path / "trace.json"
    assert run(*ASKED, "--trace", trace).code == 4  # stopped at its limit
    events = json.loads(trace.read_text())["traceEvents"]
    assert any("stage 0" in str(event.get("args")) for event in events)


@pytest.mark.slow
def test_a_prediction_says_the_same_as_the_mapping_of_its_decisions(run, tmp_path):
    given = ("--given", "tp=2,pp=1,dp=4", "--recompute", "none", "--zero", 0, "--tokens", "1T")
    said, mapped = tmp_path / "said.json", tmp_path / "mapped.json"
    predicted = run("predict", *FREE[1:], *given, "--microbatches", 1, "--json", said)
    more = ("--microbatch-size", 4, "--work-limit", 4e5)
    found = run(*FREE, *given, *more, "--json", mapped)
    whole = json.loads(mapped.read_text())
    plan = json.loads(said.read_text())["plan"]
    assert {name: plan[name] for name in ("step", "run", "memory")} == {
        name: whole[name] for name in ("step", "run", "memory")
    }
    first = found.out[found.out.index("Bound by") : found.out.index("A run over")]
    assert first in predicted.out
