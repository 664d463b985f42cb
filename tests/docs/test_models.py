"""The pages on the models: their parts, and that formulas and errors are those of the code."""

from __future__ import annotations

import math
import re
from functools import partial
from pathlib import Path

import pytest

from crosstack.model.collectives.algorithms import CHUNKS, Joint, algorithms
from crosstack.model.schedule.closed import forward_ways, gpipe_ways, longest, training_ways
from crosstack.workload.kernels import Collective

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted((DOCS / "models").glob("*.md"))
SECTIONS = ["The model", "Assumptions", "Range", "Errors seen"]
LINK = re.compile(r"\]\((?P<page>[^)#]+\.md)[^)]*\)")
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e-?\d+)?(?![\w.]*\.md)")
COLLECTIVES = {
    "all-gather": Collective.ALL_GATHER,
    "reduce-scatter": Collective.REDUCE_SCATTER,
    "all-reduce": Collective.ALL_REDUCE,
    "broadcast": Collective.BROADCAST,
    "all-to-all": Collective.ALL_TO_ALL,
}
ADDS = "port that adds"

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


@every_page
def test_a_page_has_the_same_parts_as_all(page):
    assert re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE) == SECTIONS


@every_page
def test_the_index_names_every_page(page):
    assert f"(models/{page.name})" in (DOCS / "models.md").read_text()


def claims() -> list[tuple[str, str]]:
    """Return every line of a list of errors seen, with the page that it is in."""
    return [
        (page.name, line)
        for page in PAGES
        for line in page.read_text().partition("## Errors seen")[2].splitlines()
        if line.startswith("- ")
    ]


@pytest.mark.parametrize(("page", "claim"), claims(), ids=lambda text: text[:60])
def test_an_error_is_the_number_on_the_page_that_it_names(page, claim):
    link = LINK.search(claim)
    assert link, "an error seen names the page that it is from"
    source = (DOCS / "models" / link["page"]).read_text().replace(",", "")
    numbers = NUMBER.findall(LINK.sub("", claim))
    known = NUMBER.findall(source)
    assert [number for number in numbers if number not in known] == []


def known(chips: int) -> set[tuple[object, ...]]:
    """Return every row of the table of algorithms, for a number of chips."""
    rows = set()
    for joint in Joint:
        for collective in COLLECTIVES.values():
            plain = algorithms(collective, joint, chips, reduces=False)
            for row in algorithms(collective, joint, chips, reduces=True):
                where = joint.value if row in plain else ADDS
                numbers = round(row.steps, 9), round(row.load, 9)
                rows.add((where, collective, row.name.replace("_", " "), *numbers))
    return rows


def written(chips: int) -> set[tuple[object, ...]]:
    """Return every row of the page on collectives, for a number of chips."""
    text = (DOCS / "models" / "collectives.md").read_text()
    rows = set()
    for line in text.splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        if cells[0] not in (*Joint, ADDS):
            continue
        where, names, algorithm, *formulas = cells
        for k in CHUNKS:
            values = {"p": chips, "k": k, "floor": math.floor, "ceil": math.ceil, "log2": math.log2}
            numbers = [round(eval(formula, values), 9) for formula in formulas]
            rows |= {(where, COLLECTIVES[n], algorithm, *numbers) for n in names.split(", ")}
    return rows


@pytest.mark.parametrize("chips", [2, 5, 8])
def test_the_table_of_the_page_is_that_of_the_model(chips):
    assert written(chips) == known(chips)


@pytest.mark.parametrize(
    ("schedule", "ways"),
    [
        ("a forward graph", forward_ways),
        ("1f1b", training_ways),
        ("1f1b in v pieces", partial(training_ways, interleave=3)),
        ("gpipe", gpipe_ways),
    ],
)
@pytest.mark.parametrize(("stages", "microbatches"), [(8, 32), (4, 4), (2, 8)])
def test_the_time_of_a_pipeline_is_that_of_the_page(schedule, ways, stages, microbatches):
    text = (DOCS / "models" / "pipeline.md").read_text()
    formula = re.search(rf"^\| {schedule} \| `(?P<time>[^`]+)`", text, re.MULTILINE)
    assert formula
    work, send = 9.0, 0.5
    values = {"p": stages, "m": microbatches, "W": work, "x": send, "v": 3, "ceil": math.ceil}
    found = longest(ways(stages, microbatches), work, send)
    assert eval(formula["time"], values) == pytest.approx(float(found), rel=1e-12)
