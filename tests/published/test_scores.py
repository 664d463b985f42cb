"""Claims of the docs about measured kernels and runs: no set is further off than they say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from published.compared import RUNS, compared
from published.compared import scored as scored_runs

from crosstack.evaluate.comparisons import COMPARISONS
from crosstack.evaluate.kernel_scores import score_kernels
from crosstack.io.measured import read_kernels

ROWS = Path(__file__).resolve().parents[3] / "shared/data/measured/gemm.jsonl"
PAGE = Path(__file__).resolve().parents[2] / "docs/roofline.md"
TABLES = {
    "products of libraries": ROWS,
    "kernels of elements and rows": ROWS.with_name("elementwise.jsonl"),
    "attention kernels": ROWS.with_name("attention.jsonl"),
    "expert layers": ROWS.with_name("moe.jsonl"),
}
POINT = 1.0  # by which a mean may have moved [%]
STEPS = PAGE.with_name("parallelism.md")
NEAR = 0.03  # by which a ratio of measured to said steps may have moved, relative


def told(section: str) -> dict[tuple[str, str], list[str]]:
    """Cells of a table of the page, by chip with type and by source."""
    text = PAGE.read_text(encoding="utf-8").split(f"## Against {section}")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {(row[0], row[1]): row for row in rows[1:]}


def scored(path: Path):
    """Return the score of every set of a table, by chip with type and by source."""
    if not path.exists():
        pytest.skip("the measured rows are not beside the project")
    return {(s.name, s.source): score_kernels(s.rows, s.chip) for s in read_kernels(path).sets}


@pytest.mark.parametrize(("section", "path"), TABLES.items(), ids=str)
def test_every_set_is_as_far_off_as_the_page_says(section, path):
    page, scores = told(section), scored(path)
    assert page.keys() == scores.keys()
    for key, score in scores.items():
        mean, bias = (float(x.strip("()+")) for x in page[key][4].split())
        assert page[key][2] == str(score.ours.rows)
        assert 100 * score.ours.mean == pytest.approx(mean, abs=POINT), key
        assert 100 * score.ours.bias == pytest.approx(bias, abs=POINT), key


def test_a_plain_roofline_of_products_is_further_off_but_for_one_set():
    scores = scored(ROWS)
    worse = {key[0] for key, score in scores.items() if score.ours.mean > score.roofline.mean}
    assert worse == {"GB300, bf16"}


def test_kernels_of_elements_on_an_a100_are_within_20_percent():
    scores = scored(TABLES["kernels of elements and rows"])
    ours = {key: score.ours for key, score in scores.items() if key[0].startswith("A100")}
    rows = sum(score.rows for score in ours.values())
    assert sum(score.mean * score.rows for score in ours.values()) / rows <= 0.20


@pytest.mark.parametrize(
    ("section", "mean"),
    [("kernels of elements and rows", 0.17), ("attention kernels", 0.15), ("expert layers", 0.235)],
)
def test_all_kernels_of_a_table_are_as_near_as_the_page_says(section, mean):
    ours = [score.ours for score in scored(TABLES[section]).values()]
    rows = sum(score.rows for score in ours)
    assert sum(score.mean * score.rows for score in ours) / rows <= mean


def test_prompts_and_training_are_within_14_percent_and_every_set_beats_a_plain_roofline():
    scores = scored(TABLES["attention kernels"])
    assert all(score.ours.mean < score.roofline.mean for score in scores.values())
    ours = [score.ours for key, score in scores.items() if not key[0].endswith("generation")]
    rows = sum(score.rows for score in ours)
    assert sum(score.mean * score.rows for score in ours) / rows <= 0.14


@pytest.mark.parametrize("gpu", ["B200", "GB200", "GB300"])
def test_products_in_four_bits_are_within_15_percent(gpu):
    ours = {key: score.ours for key, score in scored(ROWS).items()}
    (four,) = [score for key, score in ours.items() if key[0] == f"{gpu}, nvfp4"]
    assert four.mean <= 0.15


@pytest.fixture(scope="module")
def scores():
    if not RUNS.exists():
        pytest.skip("the measured runs are not beside the project")
    return scored_runs()


@pytest.mark.slow
def test_what_is_expected_of_a_step_is_what_measured_ones_took(scores):
    found = compared(scores)
    alike = [replace(one, ratios=None) for one in found]
    assert alike == [replace(one, ratios=None) for one in COMPARISONS]
    for one, said in zip(found, COMPARISONS, strict=True):
        assert said.ratios == pytest.approx(one.ratios, rel=NEAR)


@pytest.mark.slow
def test_every_source_of_runs_is_as_far_off_as_the_page_says(scores):
    text = STEPS.read_text(encoding="utf-8").split("`crosstack score TABLE --most 40`")[1]
    text = text.split("\n## ")[0]
    cells = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    page = {row[0]: row for row in cells}
    for source, score in scores.items():
        assert page[source][1:3] == [str(len(score.timed)), str(len(score.refused))]
        if score.ours is not None:
            mean, bias = (float(x.strip("()+")) for x in page[source][4].split())
            assert 100 * score.ours.mean == pytest.approx(mean, abs=POINT), source
            assert 100 * score.ours.bias == pytest.approx(bias, abs=POINT), source
