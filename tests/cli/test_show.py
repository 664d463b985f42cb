"""``crosstack show``: a task in words and as a picture."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("word", ["small on four chips", "ring of 2", "switch of 2", "kernels"])
def test_a_task_is_described(run, small, word):
    assert word in run("show", small).out


def test_dfmodel_text_is_described(run, dfmodel_file):
    assert "dfmodel-readme" in run("show", dfmodel_file).out


def test_an_override_is_described(run, small):
    assert "3 GHz" in run("show", small, "--set", "system.chip.frequency=3 GHz").out


def test_a_task_is_drawn(run, small):
    path = small.with_suffix(".svg")
    assert run("show", small, "--svg", path).out.endswith(f"wrote {path}\n")
    assert "<svg" in path.read_text()[:200]


def test_what_is_piped_has_no_control_codes(run, small):
    assert [c for c in run("show", small).out if not c.isprintable() and c != "\n"] == []


def test_a_bad_file_is_refused(run, small):
    outcome = run("show", small, "--set", "system.chip.lanes=0", "--svg", small.parent / "out.svg")
    assert (outcome.code, len(outcome.problems)) == (2, 1)
    assert not (small.parent / "out.svg").exists()


def test_an_output_without_a_directory_is_refused(run, small):
    outcome = run("show", small, "--svg", small.parent / "none" / "out.svg")
    assert (outcome.code, outcome.out, len(outcome.problems)) == (2, "", 1)


def test_a_graph_is_shown_as_a_strategy_transforms_it(run, small, tmp_path):
    svg = tmp_path / "steps.svg"
    outcome = run("show", small, "--parallel", "RC-1-2-d2-p2", "--svg", svg)
    assert (outcome.code, outcome.err) == (0, "")
    assert "cross edges" in outcome.out
    assert svg.read_text().startswith("<svg")


def test_what_is_no_strategy_is_refused(run, small):
    outcome = run("show", small, "--parallel", "RC-0-1")
    assert (outcome.code, outcome.problems[0][:10]) == (2, "--parallel")
