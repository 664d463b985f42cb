"""Claims of docs/models/collectives.md about measured collectives: no set is further off."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crosstack.evaluate.collective_scores import (
    ALL,
    Library,
    collectives_said,
    line_said,
    score_sets,
)
from crosstack.io.measured_collectives import read_collectives

ROWS = Path(__file__).resolve().parents[3] / "shared/data/measured/collectives.jsonl"
PAGE = Path(__file__).resolve().parents[2] / "docs/models/collectives.md"
POINT = 1.0  # by which a mean may have moved [%]


@pytest.fixture(scope="module")
def table():
    if not ROWS.exists():
        pytest.skip("the measured rows are not beside the project")
    return read_collectives(ROWS)


def told():
    """Cells of the page's table, by machine, library and collective."""
    text = PAGE.read_text(encoding="utf-8").split("## Against collectives of libraries")[1]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {(row[0], row[1], row[2].replace(" ", "_")): row for row in rows[1:]}


def test_every_set_is_as_far_off_as_the_page_says(table):
    page, scores = told(), score_sets(table.sets)
    assert page.keys() == scores.keys()
    for key, score in scores.items():
        mean, bias = (float(x.strip("()+")) for x in page[key][5].split())
        assert page[key][3] == str(score.ours.rows)
        assert 100 * score.ours.mean == pytest.approx(mean, abs=POINT), key
        assert 100 * score.ours.bias == pytest.approx(bias, abs=POINT), key


def test_over_nvlink_rows_are_within_fifteen_percent_but_for_launches_of_a_host(table):
    errors = np.concatenate(
        [
            np.log(collectives_said(rows, each.system) / [row.time for row in rows])
            for each in table.sets
            if (rows := [row for row in each.rows if row.library is not Library.VLLM_EAGER])
        ]
    )
    assert errors.size == 658
    assert np.abs(errors).mean() < 0.15
    assert -0.10 < errors.mean() < 0.0


def test_bytes_over_bandwidth_are_further_off_on_every_machine(table):
    for key, score in score_sets(table.sets).items():
        if key[2] == ALL:
            assert score.ours.mean < 0.5 * score.line.mean, key


def test_tables_of_collectives_say_what_a_rank_has(table):
    """All-gathers and reduce-scatters of as many bytes and ranks take about as long."""
    for each in table.sets:
        line = line_said(each.rows, each.system)
        large = [i for i, row in enumerate(each.rows) if row.size >= 2**27]
        ratios = [each.rows[i].time / line[i] for i in large]
        assert all(0.7 < ratio < 2.2 for ratio in ratios), (each.gpu, ratios)
