from __future__ import annotations

import json
from pathlib import Path

import pytest

CONFIGS = Path(__file__).resolve().parents[3] / "shared/data/deepflow/configs/2025/configs"
HARDWARE = CONFIGS / "hardware-config/a100_80GB.yaml"
pytestmark = pytest.mark.skipif(not HARDWARE.exists(), reason="the configurations are absent")
PLACED = ("--package", "1", "--packages", "4")


def test_a_product_is_predicted(run, tmp_path):
    out = tmp_path / "gemm.json"
    one_chip = ("--parallel", "RC-1-1-d1-p1")
    outcome = run("predict", HARDWARE, "--gemm", "4096,4096,4096", *one_chip, "--json", out)
    assert (outcome.code, outcome.err) == (0, "")
    # Two operations a multiplication at 312 TFLOP/s times the file's utilization, and a launch.
    work = 2 * 4096**3 / (108 * 4 * 512 * 1.41e9 * 0.75)
    assert json.loads(out.read_text())["time"] == pytest.approx(work + 9e-6)


def test_a_step_has_parts_and_memory(run, tmp_path):
    out = tmp_path / "step.json"
    arguments = ("--model", "gpt-22b", "--batch", "4", "--parallel", "RC-1-8-d1-p2")
    grid = ("--package", "1", "--packages", "16")
    outcome = run("predict", HARDWARE, *arguments, *grid, "--json", out)
    assert (outcome.code, outcome.err) == (0, "")
    found = json.loads(out.read_text())
    assert found["strategy"] == "RC-1-8-d1-p2"
    assert found["memory"]["total"] < 80 * 2**30
    assert "head and loss forward" in found["parts"]


def test_a_model_file_is_read(run):
    model = CONFIGS / "model-config/GEMM.yaml"
    outcome = run("predict", HARDWARE, "--model", model)
    assert outcome.code == 0
    assert "GEMM" in outcome.out


def test_a_trace_and_a_chart_are_saved(run, tmp_path):
    trace, chart = tmp_path / "trace.json", tmp_path / "chart.svg"
    outcome = run("trace", HARDWARE, "--model", "lstm-lm-40k", "--parallel", "RC-1-1-d1-p4",
                  *PLACED, "-o", trace, "--svg", chart)  # fmt: skip
    assert (outcome.code, outcome.err) == (0, "")
    events = json.loads(trace.read_text())["traceEvents"]
    assert {"stage 0", "stage 3"} <= {e["args"]["name"] for e in events if e["ph"] == "M"}
    assert chart.read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--gemm", "4096,4096"), 2, "--gemm"),
        (("--gemm", "0,1,1"), 2, "--gemm"),
        (("--gemm", "1,1,1", "--model", "gpt-22b"), 2, "one of them"),
        (("--model", "gpt-22c"), 2, "gpt-22b"),
        (("--model", "lstm-lm-40k", "--microbatches", "2"), 2, "--microbatches"),
        (("--model", "lstm-lm-40k", "--batch", "0"), 2, "--batch"),
        (("--gemm", "64,64,64", "--parallel", "RC-2"), 2, "--parallel"),
        (("--gemm", "64,64,64", "--parallel", "RC-1-1-d2-p1"), 2, "no replicas"),
        (("--gemm", "64,64,64", "--parallel", "RC-1-64-d1-p1"), 2, "there are 16"),
        (("--model", "lstm-lm-40k", "--parallel", "RC-1-1-d4-p1"), 2, "no bandwidth"),
        (("--model", "gpt-530b"), 3, "main memory"),
        (("--gemm", "1,1,1", "--torus"), 2, "--package"),
        ((), 2, "holds no model"),
    ],
)
def test_what_cannot_be_predicted_is_an_error_that_says_so(run, arguments, code, says):
    outcome = run("predict", HARDWARE, *arguments)
    assert outcome.code == code
    assert says in outcome.err


def test_a_trace_needs_a_place_to_go(run):
    outcome = run("trace", HARDWARE, "--gemm", "64,64,64")
    assert outcome.code == 2
    assert "--output" in outcome.err
