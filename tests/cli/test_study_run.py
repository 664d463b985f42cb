"""``crosstack study run``: studies that come with crosstack."""

from __future__ import annotations

import re
import subprocess
import sys
import time

import pytest
from builders.stores import points_in

pytest.importorskip("pyarrow", reason="needs crosstack[explore]")

NAMES = ("dfmodel-dse", "dfmodel-fig19", "dfmodel-fig22")


def test_without_a_name_the_studies_are_listed(run):
    found = run("study", "run")
    assert found.code == 0
    assert all(name in found.out for name in NAMES)


def test_a_study_that_comes_with_crosstack_is_shown_by_its_name(run):
    found = run("study", "show", "dfmodel-dse")
    assert found.code == 0
    assert "points 320" in " ".join(found.out.split())
    assert "2d_torus, 3d_torus, dragonfly, dgx_1, dgx_2" in found.out
    assert "no such file" in run("study", "show", "dfmodel-des").problems[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dfmodel-des",), 'no study is called "dfmodel-des". Did you mean "dfmodel-dse"?'),
        (("mine.yaml",), "crosstack sweep mine.yaml runs it"),
        (("--jobs", 2), "--jobs: allowed: with the name of a study"),
        (("--resume",), "--resume: allowed: with the name of a study"),
        (("dfmodel-fig19", "--jobs", 0), "--jobs: got 0"),
    ],
)
def test_what_cannot_be_run_is_one_line(run, arguments, message):
    found = run("study", "run", *arguments)
    assert found.code == 2
    assert len(found.problems) == 1
    assert message in found.problems[0]


@pytest.mark.slow
def test_a_killed_design_space_goes_on_and_is_held_against_its_paper(run, tmp_path):
    from crosstack.explore.store import Store

    store = tmp_path / "space"
    command = [sys.executable, "-m", "crosstack", "study", "run", "dfmodel-dse", "--jobs", "2"]
    killed = subprocess.Popen(
        [*command, "--store", str(store)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    waited = time.monotonic() + 300
    while time.monotonic() < waited:
        if points_in(store) >= 40:
            break
        time.sleep(0.05)
    killed.kill()
    killed.wait()
    before = {row["key"]: row for row in Store.open(store).table().to_pylist()}
    assert 40 <= len(before) < 320
    found = run("study", "run", "dfmodel-dse", "--jobs", 2, "--store", store, "--resume")
    assert found.code == 0, found.err
    rows = Store.open(store).table().to_pylist()
    assert len(rows) == len({row["key"] for row in rows}) == 320
    assert {row["key"]: row for row in rows if row["key"] in before} == before
    assert all(row["status"] == "optimal" for row in rows)
    words = " ".join(found.out.split())
    for claim in ("SN30 over H100 and TPU v4, utilization 1.52 1.517 holds", "6.3 6.297 holds"):
        assert claim in words
    # What misses says why.
    assert len(re.findall(r"MISSES", words)) == words.count(" misses: ") > 0
    assert run("study", "show", store).code == 0
    assert run("report", store, "-o", tmp_path / "space.html").code == 0
    map_ = ("--x", "topology", "--y", "chip", "--value", "utilization", "-o", tmp_path / "a.svg")
    assert run("study", "plot", store, *map_).code == 0
