from __future__ import annotations

import csv
import json
import sys
from xml.etree import ElementTree

import pytest

from crosstack.published.figures import FIGURES, UNAVAILABLE


def test_figures_are_listed_and_those_that_cannot_be_made_again_apart(run):
    outcome = run("figure")
    assert outcome.code == 0
    made, others = outcome.out.split("\n\n")
    assert [line.split()[0] for line in made.splitlines()] == list(FIGURES)
    title, *others = others.splitlines()
    assert title.startswith("Not to be made again")
    assert [line.split()[0] for line in others] == list(UNAVAILABLE)


@pytest.mark.parametrize("name", UNAVAILABLE)
def test_a_figure_that_cannot_be_made_again_says_why(run, name):
    outcome = run("figure", name)
    assert (outcome.code, outcome.out) == (2, "")
    (problem,) = outcome.problems
    assert "DeepFlow, Fig. " in problem
    assert "none of their results" in problem


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


def test_a_page_gets_its_picture_beside_it_in_directories_that_are_made(run, tmp_path):
    page = tmp_path / "new" / "pages" / "page.md"
    outcome = run("figure", "table6", "-o", page)
    assert outcome.code == 0
    assert "images/figure_table6.svg" in page.read_text()
    assert (page.parent / "images" / "figure_table6.svg").exists()


@pytest.mark.parametrize(("name", "start"), [("f.pdf", b"%PDF"), ("new/F.PNG", b"\x89PNG")])
def test_a_figure_is_drawn_for_papers_by_the_suffix(run, tmp_path, name, start):
    pytest.importorskip("matplotlib", reason="needs crosstack[plot]")
    outcome = run("figure", "table6", "-o", tmp_path / name)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.endswith(f"wrote {tmp_path / name}\n")
    assert (tmp_path / name).read_bytes().startswith(start)


def test_a_picture_for_papers_without_matplotlib_is_refused_at_once(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    outcome = run("figure", "table6", "-o", tmp_path / "f.pdf")
    assert (outcome.code, outcome.out) == (2, "")
    assert "--output: needs matplotlib; pip install" in outcome.problems[0]


@pytest.mark.parametrize("name", ["file/f.svg", "file/new/f.svg", "file/page.md"])
def test_a_file_in_the_place_of_a_directory_is_refused(run, tmp_path, name):
    (tmp_path / "file").write_text("")
    outcome = run("figure", "table6", "-o", tmp_path / name)
    assert (outcome.code, outcome.out) == (2, "")
    assert f"{tmp_path / 'file'} is no directory" in outcome.problems[0]


def test_a_file_in_the_place_of_the_pictures_is_refused(run, tmp_path):
    (tmp_path / "images").write_text("")
    outcome = run("figure", "table6", "-o", tmp_path / "page.md")
    assert (outcome.code, outcome.out) == (2, "")
    assert "images is no directory" in outcome.problems[0]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("tabel6",), 'Did you mean "table6"'),
        (("table6", "-o", "x.gif"), "allowed: .svg, .png, .pdf, .md"),
        (("gemm-p5",), 'Did you mean "gemm-p4"'),
        (("all", "-o", "x.svg"), "allowed: .md"),
        (("all", "--json", "x.json"), "allowed: with the name of one figure"),
        (("-o", "x.svg"), "allowed: with the name of a figure"),
    ],
)
def test_bad_arguments_are_one_line(run, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    outcome = run("figure", *arguments)
    assert outcome.code == 2
    (problem,) = outcome.problems
    assert says in problem


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
