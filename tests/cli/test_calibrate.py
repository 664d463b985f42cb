"""``crosstack calibrate``, and what its file is to other commands."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROWS = Path(__file__).resolve().parents[2] / "examples/measured/products_b200.jsonl"


@pytest.fixture(scope="module")
def made(run, tmp_path_factory):
    """Return how the command ended, the machine that it saved, and the fit as data."""
    folder = tmp_path_factory.mktemp("calibrated")
    files = folder / "mine.yaml", folder / "fit.json"
    outcome = run("calibrate", ROWS, "--on", "b200-dgx", "-o", files[0], "--json", files[1])
    return outcome, files[0], json.loads(files[1].read_text())


def predicted(run, on, tmp_path, *asked):
    """Return the time of what is asked, and what is printed."""
    out = tmp_path / "step.json"
    outcome = run("predict", "--on", on, *asked, "--json", out)
    assert outcome.code == 0, outcome.err
    return json.loads(out.read_text())["time"], outcome.out


def test_factors_errors_before_and_after_and_what_is_refused_are_printed(made):
    outcome, file, data = made
    assert outcome.code == 0
    (factor,) = data["factors"]
    assert re.search(rf"products +rate of matrix products +{factor['value']:.3f}", outcome.out)
    for words, score in (("24 rows, before", "before"), ("held out, after", "held_out")):
        mean, bias = 100 * data[score]["mean"], 100 * data[score]["bias"]
        assert f"{words}: {mean:.1f} ({bias:+.1f})" in outcome.out
    assert [f"not told: {one['name']}: " in outcome.out for one in data["refused"]] == [True] * 2
    assert f"wrote {file}" in outcome.out


def test_held_out_rows_of_the_example_are_nearer_than_before(made):
    assert made[2]["held_out"]["mean"] < 0.8 * made[2]["before"]["mean"]


@pytest.mark.parametrize(
    "asked",
    [
        ("--gemm", "8192,8192,8192"),
        ("--model", "llama-68m", "--batch", 64, "--sequence", 2048, "--given", "dp=8"),
    ],
    ids=["product", "step"],
)
def test_what_is_predicted_on_a_calibrated_machine_takes_longer_and_says_so(
    run, made, tmp_path, asked
):
    plain, _ = predicted(run, "b200-dgx", tmp_path, *asked)
    slower, said = predicted(run, made[1], tmp_path, *asked)
    assert plain < slower < plain / made[2]["factors"][0]["value"]
    assert "on b200, calibrated on 24 rows" in said


def test_a_host_that_was_measured_is_slower_with_its_framework(run, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("system: {on: b200-dgx, calibrated: {dispatch: 2}}")
    asked = ("--model", "llama-68m", "--batch", 8, "--sequence", 128, "--given", "dp=8")
    driven = (*asked, "--framework", "megatron")
    times = [predicted(run, on, tmp_path, *driven)[0] for on in ("b200-dgx", file)]
    assert times[1] > 1.8 * times[0]  # all of a short step is launching
    assert predicted(run, file, tmp_path, *asked) == predicted(run, "b200-dgx", tmp_path, *asked)


def test_a_graph_is_mapped_onto_a_calibrated_machine(run, made, small):
    assert "b200-dgx, calibrated on 24 rows" in run("show", small, "--on", made[1]).out
    shown = run("show", small, "--on", made[1], "--chips", 16).out
    assert "2 x b200-dgx, calibrated on 24 rows" in shown
    mapped = run("map", small, "--on", made[1], "--set", "system.calibrated.products=0.5")
    assert "b200-dgx, calibrated on 24 rows" in mapped.out + mapped.err


def test_rows_are_scored_on_the_machine_that_they_were_fitted_to(run, made, tmp_path):
    out = tmp_path / "score.json"
    assert run("score", ROWS, "--on", made[1], "--json", out).code == 0
    ((ours,),) = [[one["ours"] for one in json.loads(out.read_text())["sets"]]]
    assert ours["mean"] == pytest.approx(made[2]["after"]["mean"], rel=1e-4)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("calibrate", "none.jsonl", "--on", "b200"), "none.jsonl: no such file."),
        (("calibrate", ROWS, "--on", "b20"), '--on: no node or chip is called "b20".'),
        (("calibrate", ROWS, "--on", "h100-dgx"), f"{ROWS}: got kernels of B200; allowed: some of"),
        (("calibrate", ROWS, "--on", "b200", "--most", 0), "--most: got 0; allowed: a whole numb"),
        (("calibrate", ROWS, "--on", "b200", "--most", 7), f"{ROWS}: rows: got 7; allowed: 8 or"),
        (("calibrate", ROWS, "--on", "b200", "-o", ROWS), f"--output {ROWS}: cannot be written"),
        (("score", ROWS, "--on", "none.yaml"), "none.yaml: no such file."),
        (("map", "llama3-8b", "--on", "none.yaml"), "none.yaml: no such file."),
        (("predict", "gpt-7.5b", "--on", "none.yaml"), "none.yaml: no such file."),
    ],
)
def test_what_cannot_be_is_said_with_file_and_option(run, arguments, problem):
    outcome = run(*arguments)
    assert outcome.code == 2
    assert outcome.problems[0].startswith(problem)


def test_runs_are_scored_on_a_calibrated_machine_alone(run, tmp_path):
    table = tmp_path / "runs.jsonl"
    table.write_text('{"layers": 1}')
    outcome = run("score", table, "--on", "a100-dgx-80gb")
    assert outcome.code == 2
    allowed = "a file that crosstack calibrate saved; runs say their machines."
    assert outcome.problems == [f"--on: got a100-dgx-80gb; allowed: {allowed}"]
