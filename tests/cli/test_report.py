from __future__ import annotations

import json
import re
import signal
import subprocess
import sys

import pytest

CHIP = """\
base: small.yaml
axes:
  memory: {path: system.memory.bandwidth, values: [10 GB/s, 20 GB/s]}
objectives: {time: min}
"""


@pytest.fixture
def store(small, tmp_path, run):
    """Return the store of a sweep over the small task."""
    pytest.importorskip("pyarrow", reason="needs crosstack[explore]")
    (small.parent / "study.yaml").write_text(CHIP)
    path = tmp_path / "results"
    assert run("sweep", small.parent / "study.yaml", "--jobs", 1, "--store", path).code == 0
    return path


@pytest.fixture
def result(small_result, tmp_path):
    path = tmp_path / "map.json"
    path.write_text(small_result)
    return path


@pytest.fixture
def prediction(run, tmp_path):
    path = tmp_path / "step.json"
    asked = ("--gemm", "512,512,512", "--json", path)
    assert run("predict", "--on", "a100-pcie-80gb", *asked).code == 0
    return path


def test_a_store_becomes_a_page_of_its_points(store, tmp_path, run):
    page = tmp_path / "study.html"
    assert run("report", store, "-o", page).code == 0
    data = re.search(r'id="study">(.*?)</script>', page.read_text())[1]
    assert json.loads(data)["points"] == 2


def test_a_result_becomes_the_page_that_map_writes(small, result, tmp_path, run):
    for name, command in (
        ("report.html", ("report", result, "-o", tmp_path / "report.html")),
        ("map.html", ("map", small, "--html", tmp_path / "map.html")),
    ):
        assert run(*command).code == 0, name
    pages = [(tmp_path / name).read_text() for name in ("report.html", "map.html")]
    timed = re.compile(r"found in [\d.,]+ \w+")
    assert timed.sub("", pages[0]) == timed.sub("", pages[1])


def test_a_prediction_becomes_a_page_of_its_terms(prediction, tmp_path, run):
    page = tmp_path / "step.html"
    assert run("report", prediction, "-o", page).code == 0
    text = page.read_text()
    assert "GEMM 512 x 512 x 512" in text
    assert "<script" not in text
    data = json.loads(prediction.read_text())
    assert f"Bound by {data['kernel']['bound']}" in text


def test_what_is_not_asked_rightly_is_refused(store, result, prediction, tmp_path, run):
    page = tmp_path / "page.html"
    for arguments, problem in (
        ((store, "-o", tmp_path / "page.pdf"), "--output"),
        ((store, "-o", page, "--rules", "crosstack"), "--rules: allowed: with a mapping alone."),
        ((prediction, "-o", page, "--task", result), "--task: allowed: with a mapping alone."),
        ((tmp_path / "nothing.json", "-o", page), "no such file"),
        ((tmp_path, "-o", page), str(tmp_path)),
    ):
        found = run("report", *arguments)
        assert found.code == 2, problem
        assert problem in found.problems[0]
    assert not page.exists()


def test_explore_refuses_what_it_cannot_serve(store, tmp_path, run):
    for arguments, problem in (
        ((store, "--port", 70_000), "--port: got 70000"),
        ((tmp_path / "nothing",), "nothing"),
    ):
        found = run("explore", *arguments)
        assert found.code == 2
        assert problem in found.problems[0]


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_explore_says_where_and_ends_at_an_interrupt(store, ending):
    import urllib.request

    command = [sys.executable, "-m", "crosstack", "explore", str(store), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            address = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())[0]
            with urllib.request.urlopen(address, timeout=120) as answer:
                assert answer.status == 200
            process.send_signal(ending)
            assert process.wait(120) == 0
            assert "stopped" in process.stdout.read()
        finally:
            process.kill()


def test_study_plot_draws_fronts_and_pictures_for_papers(small, tmp_path, run):
    pytest.importorskip("matplotlib", reason="needs crosstack[plot]")
    pytest.importorskip("pyarrow", reason="needs crosstack[explore]")
    (small.parent / "study.yaml").write_text(CHIP.replace("min}", "min, memory_used: min}"))
    store = tmp_path / "results"
    assert run("sweep", small.parent / "study.yaml", "--jobs", 1, "--store", store).code == 0
    plot = ("study", "plot", store, "--x", "memory", "--y", "time")
    for name, options in (("a.png", ()), ("a.pdf", ()), ("a.svg", ("--paper",))):
        assert run(*plot, *options, "-o", tmp_path / name).code == 0
        assert (tmp_path / name).stat().st_size > 3000
    refused = run(*plot, "--front", "-o", tmp_path / "b.png")
    assert "memory: is no objective of the study" in refused.problems[0]
    assert "time, memory_used" in refused.problems[0]
    assert run("study", "plot", store, "--x", "memory_used", "--y", "time", "--front", "-o",
               tmp_path / "c.svg").code == 0  # fmt: skip
    assert "Pareto front" in (tmp_path / "c.svg").read_text()
