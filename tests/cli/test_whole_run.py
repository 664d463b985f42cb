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
