from __future__ import annotations

import json

import pytest
from builders.command_line import give_machine, options

ARGUMENTS = {
    "--draft": "llama-68m", "--target": "llama3-8b", "--context": 128, "--window": 2,
    "--acceptance": 0.7,
}  # fmt: skip


@pytest.fixture
def machine(small):
    """Return a file of a machine that an 8B model fits."""
    return give_machine(small, "64GB")


def test_it_compares_with_the_target_alone(run, machine, tmp_path):
    out = tmp_path / "speculation.json"
    outcome = run("speculate", machine, *options(ARGUMENTS), "--json", out)
    assert (outcome.code, outcome.err) == (0, "")
    found = json.loads(out.read_text())
    assert found["tokens"] == pytest.approx(1 + 0.7 + 0.49)
    assert f"{found['rate']:.6g} tokens/s" in outcome.out


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"acceptance": 1.5}, "--acceptance: got 1.5; allowed: 0 to 1."),
        ({"window": 0}, "--window: got 0"),
        ({"context": 0}, "--context: got 0"),
        ({"draft": "llama"}, "--draft: no model is called"),
        ({"target": "gpt"}, "--target: no model is called"),
    ],
)
def test_what_makes_no_sense_is_refused(run, machine, changes, says):
    outcome = run("speculate", machine, *options(ARGUMENTS, **changes))
    assert outcome.code == 2
    assert says in outcome.problems[0]
