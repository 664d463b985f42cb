from __future__ import annotations

import csv
import json
from xml.etree import ElementTree

import pytest

from crosstack.validation.figures import FIGURES


def test_figures_are_listed(run):
    outcome = run("figure")
    assert outcome.code == 0
    assert [line.split()[0] for line in outcome.out.splitlines()] == list(FIGURES)


def test_a_figure_is_printed_drawn_and_saved(run, tmp_path):
    svg, data, table = (tmp_path / name for name in ("f.svg", "f.json", "f.csv"))
    outcome = run("figure", "table6", "-o", svg, "--json", data, "--csv", table)
    assert (outcome.code, outcome.err) == (0, "")
    assert "speedup of 4 x 2 torus" in outcome.out
    assert "6.13" in outcome.out
    root = ElementTree.parse(svg).getroot()
    assert root.tag.endswith("svg")
    assert len(json.loads(data.read_text())["rows"]) == 4
    with table.open() as file:
        assert len(list(csv.reader(file))) == 5


def test_a_page_gets_its_picture_beside_it(run, tmp_path):
    (tmp_path / "images").mkdir()
    outcome = run("figure", "table6", "-o", tmp_path / "page.md")
    assert outcome.code == 0
    assert "images/figure_table6.svg" in (tmp_path / "page.md").read_text()
    assert (tmp_path / "images" / "figure_table6.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("tabel6",), 'Did you mean "table6"'),
        (("table6", "-o", "x.png"), "allowed: .svg, .md"),
        (("all", "-o", "x.svg"), "allowed: .md"),
        (("all", "--json", "x.json"), "allowed: with the name of one figure"),
        (("-o", "x.svg"), "allowed: with the name of a figure"),
        (("table6", "-o", "nowhere/x.svg"), "there is no directory"),
    ],
)
def test_bad_arguments_are_one_line(run, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    outcome = run("figure", *arguments)
    assert outcome.code == 2
    (problem,) = outcome.problems
    assert says in problem


def test_a_page_without_a_folder_for_its_pictures_is_refused(run, tmp_path):
    outcome = run("figure", "table6", "-o", tmp_path / "page.md")
    assert outcome.code == 2
    assert "images" in outcome.problems[0]


def test_the_mappings_of_a_file_are_counted(run, small):
    outcome = run("space", small)
    assert outcome.code == 0
    (line,) = (line for line in outcome.out.splitlines() if line.split()[:1] == ["partitions"])
    assert line.split()[1] == "3,125"  # five kernels, at most five partitions


def test_a_pin_makes_the_space_smaller(run, small):
    free = run("space", small).out
    pinned = run("space", small, "--set", "constraints.partitions={A: 0}").out
    assert "5 for each kernel; kernels with a choice: 5" in free
    assert "5 for each kernel; kernels with a choice: 4" in pinned
