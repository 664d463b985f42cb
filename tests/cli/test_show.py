"""``crosstack show``: a task in words and as a picture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

GRAPH = Path(__file__).resolve().parents[2] / "examples/graphs/my_transformer.yaml"
CHIP = Path(__file__).resolve().parents[2] / "examples/chips/n5_hbm3.yaml"


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
    outcome = run("show", small, "--given", "RC-1-2-d2-p2", "--svg", svg)
    assert (outcome.code, outcome.err) == (0, "")
    assert "cross edges" in outcome.out
    assert svg.read_text().startswith("<svg")


def test_what_is_no_strategy_is_refused(run, small):
    outcome = run("show", small, "--given", "RC-0-1")
    assert (outcome.code, outcome.problems[0][:7]) == (2, "--given")


def test_a_graph_over_named_axes_is_shown_operation_by_operation(run):
    outcome = run("show", GRAPH, "--set", "axes.layer=3")
    assert (outcome.code, outcome.err) == (0, "")
    assert "layers_bwd, 3 times" in outcome.out
    assert "softmax_gradient" in outcome.out


@pytest.mark.parametrize("option", [("--svg", "out.svg"), ("--given", "RC-1-2"), ("--chips", 4)])
def test_a_graph_over_named_axes_has_no_machine(run, option):
    outcome = run("show", GRAPH, *option)
    assert (outcome.code, outcome.problems) == (
        2, [f"{option[0]}: allowed: with a workload and a machine alone."],
    )  # fmt: skip


def test_a_bad_graph_over_named_axes_is_refused(run):
    outcome = run("show", GRAPH, "--set", "axes.hidden=0")
    (problem,) = outcome.problems
    assert (outcome.code, problem) == (
        2, f"{GRAPH}: axes.hidden.size: got 0; allowed: a whole number, at least 1.",
    )  # fmt: skip


def test_a_saved_mapping_is_shown_as_it_was_printed(run, small):
    saved = small.with_suffix(".json")
    printed = run("map", small, "--json", saved).out
    shown = run("show", saved)
    assert (shown.code, shown.err) == (0, "")
    assert printed == shown.out + f"wrote {saved}\n"


@pytest.fixture
def prediction(saved_by, tmp_path):
    """Return a saved prediction and what was printed."""

    def make(*arguments):
        out = tmp_path / "prediction.json"
        outcome, saved = saved_by("predict", *arguments)
        assert outcome.code == 0, outcome.err
        out.write_text(saved)
        return out, outcome.out

    return make


STEP = (CHIP, "--set", "packages=16", "--model", "gpt-22b", "--given", "RC-1-4-d2-p2")


@pytest.mark.parametrize(
    "asked",
    [
        (*STEP, "--batch", "2"),
        ("--on", "a100-pcie-80gb", "--gemm", "512,512,512"),
        (CHIP, "--gemm", "512,512,512", "--given", "CR-2-d1-p1", "--set", "packages=2"),
    ],
    ids=["step", "product", "product of two chips"],
)
def test_a_saved_prediction_is_shown_as_it_was_printed(run, prediction, asked):
    saved, printed = prediction(*asked)
    shown = run("show", saved)
    assert (shown.code, shown.err, shown.out) == (0, "", printed)


def test_a_saved_prediction_says_what_was_asked(prediction):
    saved, _ = prediction(
        "--on", "a100-pcie-80gb", "--gemm", "512,256,128", "--set", "frequency=1GHz"
    )
    inputs = json.loads(saved.read_text())["inputs"]
    assert (inputs["on"], inputs["gemm"]) == ("a100-pcie-80gb", "512,256,128")
    assert inputs["set"] == ["frequency=1GHz"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"time": -1}, "time: got -1"),
        ({"tme": 1}, 'Did you mean "time"'),
        ({"parts": {"a": "x"}}, "parts.a: got 'x'"),
        ({"parts": {"product": 1.0}}, "parts: add up to 1 s; allowed: pieces of a step of"),
        ({"time": 0}, "time: got 0"),
        ({"busiest": "stage 9"}, "busiest: got 'stage 9'; allowed: stage 0."),
        ({"busiest": None}, "busiest: got nothing; allowed: stage 0."),
        ({"time": "2 s"}, "time: got '2 s'; allowed: a number [s]"),
        ({"inputs": {"file": float("nan")}}, "inputs.file: got nan"),
        ({"n_chips": 0}, "n_chips: got 0"),
        ({"kernel": {"levels": 3}}, "kernel.levels: got 3"),
    ],
)
def test_a_changed_prediction_is_refused(run, prediction, change, message):
    saved, _ = prediction("--on", "a100-pcie-80gb", "--gemm", "512,512,512")
    saved.write_text(json.dumps(json.loads(saved.read_text()) | change))
    shown = run("show", saved)
    assert (shown.code, shown.out) == (2, "")
    assert message in shown.err


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (lambda sizes: [*sizes, 1e9], "stages; allowed: as many in each"),
        (lambda sizes: [2 * size for size in sizes], "memory.rows: add up to"),
        (lambda sizes: [-1.0, *sizes[1:]], "memory.rows.weights[0]: got -1"),
    ],
)
def test_memory_that_does_not_add_up_is_refused(run, prediction, row, says):
    saved, _ = prediction(*STEP, "--batch", "2")
    data = json.loads(saved.read_text())
    data["memory"]["rows"]["weights"] = row(data["memory"]["rows"]["weights"])
    saved.write_text(json.dumps(data))
    shown = run("show", saved)
    assert (shown.code, shown.out) == (2, "")
    assert says in shown.err


@pytest.mark.parametrize("command", ["show", "report"])
@pytest.mark.parametrize("wrong", [0, "", "x", "1e9", "5 GB", None, [], {}, True, 1e308, -1])
def test_no_number_of_a_prediction_may_be_zero_or_text(run, prediction, tmp_path, command, wrong):
    saved, _ = prediction(*STEP, "--batch", "2")
    data = json.loads(saved.read_text())
    for field in data["chip"]:
        data["chip"][field] = wrong
    data["time"] = data["n_chips"] = data["memory"]["total"] = wrong
    saved.write_text(json.dumps(data))
    page = tmp_path / "page.html"
    found = run(command, saved, *(("-o", page) if command == "report" else ()))
    assert found.code == 2
    fields = ["chip.throughput", "chip.memory_bandwidth", "chip.memory_capacity", "time", "n_chips"]
    for field in fields:
        assert sum(f"{saved}: {field}: got" in line for line in found.err.splitlines()) == 1
    assert not page.exists()


def test_options_of_a_task_are_refused_with_a_result(run, prediction):
    saved, _ = prediction("--on", "a100-pcie-80gb", "--gemm", "512,512,512")
    assert run("show", saved, "--svg", saved.with_suffix(".svg")).code == 2
