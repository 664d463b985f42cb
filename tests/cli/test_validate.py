from __future__ import annotations

import json
from dataclasses import replace

import pytest

from crosstack.cli import outputs
from crosstack.cli.main import main
from crosstack.published import runner
from crosstack.published.measured_steps import measured_steps, run_step
from crosstack.published.runner import suite_summary


@pytest.fixture(scope="module")
def held():
    """Return a row that holds."""
    return next(row for row in map(run_step, measured_steps()[4:]) if row.holds)


@pytest.fixture
def two_suites(monkeypatch, held):
    """Leave two suites of a row each, and return what runs before the second one's row."""
    before = []

    def second(progress):
        for act in before:
            act(progress)
        return [replace(held, suite="measured")]

    monkeypatch.setattr(runner, "SUITES", {"steps": lambda progress: [held], "measured": second})
    return before


def test_a_suite_is_printed_as_soon_as_it_ends(two_suites, capsys):
    seen = []
    two_suites.append(lambda progress: seen.append(capsys.readouterr().out))
    with pytest.raises(SystemExit) as stop:
        main(["validate"])
    assert stop.value.code == 0
    assert "steps: 1 of 1 checks hold." in seen[0]


def test_suites_printed_one_by_one_are_what_the_file_gets(two_suites, run, tmp_path):
    outcome = run("validate", "-o", tmp_path / "page.txt")
    assert outcome.code == 0
    assert outcome.out == (tmp_path / "page.txt").read_text()


@pytest.mark.parametrize("style", ["json", "md"])
def test_what_came_of_a_suite_is_told_beside_a_page_or_json(two_suites, held, run, style):
    outcome = run("validate", "--format", style)
    said = suite_summary("steps", [held])
    other = suite_summary("measured", [replace(held, suite="measured")])
    assert outcome.err == f"steps: {said}\nmeasured: {other}\n"
    if style == "json":
        assert len(json.loads(outcome.out)) == 2
    else:
        assert outcome.out.startswith("# Validation\n")


def test_a_long_suite_says_now_and_then_where_it_stands(two_suites, run, monkeypatch):
    monkeypatch.setattr(outputs.time, "monotonic", iter(range(0, 60, 3)).__next__)
    two_suites.append(lambda progress: [progress(f"case {k}") for k in range(4)])
    said = [line for line in run("validate").err.splitlines() if "measured" in line]
    assert said == ["running suite measured: case 0", "running suite measured: case 2"]


def test_a_short_suite_says_nothing_beside_its_table(two_suites, run):
    assert run("validate").err == ""


def test_a_place_that_cannot_be_written_is_refused_before_a_suite_runs(two_suites, run, tmp_path):
    two_suites.append(lambda progress: pytest.fail("it ran"))
    outcome = run("validate", "-o", tmp_path / "nowhere" / "page.md")
    assert outcome.code == 2
    assert "there is no directory" in outcome.problems[0]
