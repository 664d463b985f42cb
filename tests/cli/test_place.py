from __future__ import annotations

import json

import pytest


def test_it_says_which_links_are_shared(run, tmp_path):
    out = tmp_path / "place.json"
    outcome = run("place", "RC-4-2-d8-p1", "--package", "4x4", "--packages", "2x2", "--json", out)
    assert (outcome.code, outcome.err) == (0, "")
    found = json.loads(out.read_text())
    assert found["edges_on_busiest_link"] == {"between_packages": 4, "inside_packages": 4}
    assert found["crosses_packages"] == ["dp"]
    assert "kp1, kp2, dp" in outcome.out


def test_every_order_is_listed_on_request(run):
    every = run("place", "RC-4-2-d8-p1", "--package", "8x8", "--all").out
    assert every.count("kp1, ") + every.count("kp2, ") + every.count("dp, ") >= 6


def test_a_given_order_alone_is_tried(run, tmp_path):
    out = tmp_path / "place.json"
    grid = ("--package", "4x4", "--packages", "2x2")
    outcome = run("place", "RC-4-2-d8-p1", *grid, "--order", "dp,kp1,kp2", "--all", "--json", out)
    assert (outcome.code, outcome.err) == (0, "")
    assert json.loads(out.read_text())["order"][:3] == ["dp", "kp1", "kp2"]
    assert "kp1, kp2, dp" not in outcome.out


def test_a_picture_is_saved(run, tmp_path):
    out = tmp_path / "place.svg"
    assert run("place", "CR-4-d2-p2", "--package", "4x4", "--torus", "--svg", out).code == 0
    assert out.read_text().startswith("<svg")


def test_the_rules_of_the_release_are_those_recorded(run, tmp_path):
    out = tmp_path / "place.json"
    arguments = ("--package", "4x4", "--packages", "4x1", "--rules", "deepflow-2025", "--json", out)
    assert run("place", "RC-2-4-d8-p1", *arguments).code == 0
    # deepflow_code, device mapping of the same case: the best order has 4 and 5.
    busiest = json.loads(out.read_text())["edges_on_busiest_link"]
    assert busiest == {"between_packages": 4, "inside_packages": 5}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("RC-2-1-d2-p1", "--package", "2x2", "--order", "dp,kq"), "--order: no dimension is"),
        (("RC-2-1-d2-p1", "--package", "2x2", "--order", "dp"), "--order: got dp, which leaves"),
        (("RC-4-2-d8", "--package", "8x8"), "strategy"),
        (("RC-4-2-d8-p1", "--package", "8by8"), "--package"),
        (("RC-4-2-d8-p1", "--package", "4x4"), "needs 64 chips"),
        (("RC-4-2-d8-p1", "--package", "0x4"), "--package"),
        (("RC-4-2-d8-p1", "--package", "8x8", "--packages", "2"), "--packages"),
        (("RC-4-2-d8-p1", "--package", "8x8", "--rules", "deepflo"), "--rules"),
    ],
)
def test_bad_input_says_where_it_is(run, arguments, says):
    outcome = run("place", *arguments)
    assert outcome.code == 2
    assert says in outcome.err
