from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from builders.stores import points_in

pytest.importorskip("pyarrow", reason="needs crosstack[explore]")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
STUDY = """\
base: small.yaml
axes:
  memory: {path: system.memory.bandwidth, values: [10 GB/s, 20 GB/s]}
  room: {path: system.memory.capacity, values: [1 kB, 1 GB]}
objectives: {time: min, memory_used: min}
"""


@pytest.fixture(scope="module")
def swept_once(small_text, tmp_path_factory, run):
    """Return a folder with a study and the store of its sweep."""
    folder = tmp_path_factory.mktemp("swept")
    (folder / "small.yaml").write_text(small_text)
    study = folder / "study.yaml"
    study.write_text(STUDY)
    found = run("sweep", study, "--jobs", 1, "--store", folder / "results")
    assert found.code == 0, found.err
    assert "points 4: 2 infeasible, 2 optimal" in " ".join(found.out.split())
    return folder


@pytest.fixture
def swept(swept_once, tmp_path):
    """Return the study's file and the store of its sweep, the test's own."""
    shutil.copytree(swept_once, tmp_path, dirs_exist_ok=True)
    return tmp_path / "study.yaml", tmp_path / "results"


def test_a_sweep_is_not_repeated_unasked_and_goes_on_if_asked(swept, run):
    study, store = swept
    refused = run("sweep", study, "--store", store)
    assert refused.code == 2
    assert "holds 4 points already" in refused.problems[0]
    assert run("sweep", study, "--store", store, "--resume").code == 0


def test_study_show_says_what_is_asked_and_what_came(swept, run):
    study, store = swept
    assert "10 GB/s, 20 GB/s" in run("study", "show", study).out
    for found in (run("study", "show", store), run("study", "show", store, "--study", study)):
        assert found.code == 0
        assert "2 infeasible, 2 optimal" in found.out
        assert "Pareto front" in found.out
        assert "main memory" in " ".join(found.out.split())


def test_what_leads_nowhere_is_told_before_anything_runs(small, run):
    study = small.parent / "wrong.yaml"
    study.write_text(STUDY.replace("memory.capacity", "memory.capasity"))
    for command in (("study", "show", study), ("sweep", study, "--store", small.parent / "s")):
        found = run(*command)
        assert found.code == 2
        assert "axes.room: system.memory.capasity: unknown field. Did you" in found.problems[0]


def test_a_path_to_keep_that_is_not_there_ends_the_sweep_at_once(small, run):
    study = small.parent / "wrong.yaml"
    study.write_text(STUDY + 'keep: ["partitions[0].memory_tme_s"]\n')
    found = run("sweep", study, "--jobs", 1, "--store", small.parent / "s")
    assert found.code == 2
    assert 'keep.partitions[0].memory_tme_s: there is no "memory_tme_s"' in found.problems[0]


def test_answers_of_another_version_are_left_out_but_exported(swept, run, tmp_path, monkeypatch):
    from crosstack.explore import points, question
    from crosstack.explore import run as run_module

    study, store = swept
    for module in (points, run_module, question):
        monkeypatch.setattr(module, "model_version", lambda: "the next one")
    found = run("sweep", study, "--jobs", 1, "--store", store, "--resume")
    assert found.code == 0, found.err
    shown = run("study", "show", store)
    assert "points 4: 2 infeasible, 2 optimal" in " ".join(shown.out.split())
    assert "4 points that another version of crosstack answered are left out" in shown.err
    assert "8 points" in run("study", "export", store, "-o", tmp_path / "all.csv").out


def test_study_plot_draws_lines_and_heat_maps(swept, run, tmp_path):
    store = swept[1]
    lines = run("study", "plot", store, "--x", "memory", "--y", "time", "-o", tmp_path / "a.svg")
    assert lines.code == 0
    cells = run(
        "study", "plot", store, "--x", "memory", "--y", "room", "--value", "time",
        "-o", tmp_path / "b.svg",
    )  # fmt: skip
    assert cells.code == 0
    assert all((tmp_path / name).read_text().startswith("<svg") for name in ("a.svg", "b.svg"))


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet"])
def test_study_export_writes_every_row(swept, run, tmp_path, suffix):
    out = tmp_path / f"rows.{suffix}"
    found = run("study", "export", swept[1], "-o", out)
    assert found.code == 0
    assert "4 points" in found.out
    if suffix == "json":
        rows = json.loads(out.read_text())
        assert [row["status"] for row in rows].count("optimal") == 2
    assert out.stat().st_size > 0


def test_study_init_writes_a_study_that_runs(small, run, tmp_path):
    new = tmp_path / "new.yaml"
    assert run("study", "init", new, "--base", small).code == 0
    shown = run("study", "show", new)
    assert shown.code == 0
    assert "points 18" in " ".join(shown.out.split())
    again = run("study", "init", new, "--base", small)
    assert again.code == 2
    assert "is there already" in again.problems[0]


def test_study_init_takes_a_chip_file(run, tmp_path):
    new = tmp_path / "chips.yaml"
    assert run("study", "init", new, "--base", EXAMPLES / "chips/n5_hbm3.yaml").code == 0
    found = run("sweep", new, "--jobs", 1, "--store", tmp_path / "store")
    assert found.code == 0, found.err
    assert "10 points" in found.out


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["sweep", "none.yaml"], "none.yaml: no such file"),
        (["sweep", "STUDY", "--jobs", "0"], "--jobs: got 0"),
        (["sweep", "STUDY", "--timeout", "0"], "--timeout: got 0"),
        (["sweep", "STUDY", "--dask", "tcp://x", "--jobs", "2"], "--jobs: given with a Dask"),
        (["study", "show", "STORE", "--top", "0"], "--top: got 0"),
        (["study", "show", "STUDY", "--study", "STUDY"], "--study: allowed: with a store"),
        (["study", "show", "."], "is no store"),
        (["study", "export", "STORE", "-o", "a.xlsx"], "got a.xlsx; allowed: .csv, .json"),
        (["study", "plot", "STORE", "--x", "memory", "--y", "tim", "-o", "a.svg"], "tim: no col"),
        (["study", "plot", "STORE", "--x", "memory", "--y", "time", "-o", "a.gif"], "a.gif"),
        (
            ["study", "plot", "STORE", "--x", "memory", "--y", "room", "--value", "time", "--by",
             "room", "-o", "a.svg"],
            "--by: given with --value",
        ),
    ],
)  # fmt: skip
def test_bad_arguments_are_one_line(swept, run, arguments, problem, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    places = {"STUDY": swept[0], "STORE": swept[1]}
    found = run(*(places.get(argument, argument) for argument in arguments))
    assert found.code == 2
    assert len(found.problems) == 1
    assert problem in found.problems[0]


@pytest.mark.slow
def test_an_interrupt_keeps_what_is_done_and_says_how_to_go_on(small, tmp_path):
    study = small.parent / "long.yaml"
    study.write_text(
        "base: small.yaml\naxes:\n"
        "  system.memory.bandwidth: {range: {from: 1 GB/s, to: 9 GB/s, count: 20000}}\n"
    )
    running = subprocess.Popen(
        [sys.executable, "-m", "crosstack", "sweep", study, "--jobs", "2", "--store", "s"],
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    store = tmp_path / "s"
    stop = time.monotonic() + 300
    while running.poll() is None and time.monotonic() < stop:
        if points_in(store):
            break
        time.sleep(0.05)
    os.kill(running.pid, signal.SIGINT)
    message = running.communicate(timeout=120)[1]
    assert running.returncode == 130
    assert "points are in s, --resume goes on with them" in message
    assert not list(store.glob("*.sweep*"))
