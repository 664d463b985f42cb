"""The pages on the models: their parts, and that formulas and errors are those of the code."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from crosstack.machine.system import DimensionKind
from crosstack.model import collectives
from crosstack.model.iteration import bubble_factor

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted((DOCS / "models").glob("*.md"))
SECTIONS = ["The model", "Assumptions", "Range", "Errors seen"]
LINK = re.compile(r"\]\((?P<page>[^)#]+\.md)[^)]*\)")
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e-?\d+)?(?![\w.]*\.md)")
KINDS = {
    "ring": DimensionKind.RING,
    "switch": DimensionKind.SWITCH,
    "fully connected": DimensionKind.FULLY_CONNECTED,
}
FUNCTIONS = {
    "all-gather": collectives.all_gather_time,
    "reduce-scatter": collectives.reduce_scatter_time,
    "all-reduce": collectives.all_reduce_time,
    "broadcast": collectives.broadcast_time,
}

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


def formulas() -> list[tuple[str, str, str]]:
    """Return the formulas of the page on collectives: function, kind of dimension, formula."""
    text = (DOCS / "models" / "collectives.md").read_text()
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] in KINDS:
            found.append(("all-to-all", cells[0], cells[1].strip("`")))
        for name in cells[0].split(", "):
            if name in FUNCTIONS:
                found += [(name, kind, cells[1].strip("`")) for kind in ("ring", "switch")]
                found.append((name, "fully connected", cells[2].strip("`")))
    return found


def test_the_page_has_a_formula_for_every_collective_and_kind():
    known = {(name, kind) for name in [*FUNCTIONS, "all-to-all"] for kind in KINDS}
    assert {(name, kind) for name, kind, _ in formulas()} == known


@pytest.mark.parametrize("p", [2, 5, 8])
@pytest.mark.parametrize(("name", "kind", "formula"), formulas())
def test_a_formula_is_what_the_function_returns(name, kind, formula, p):
    n, b, a = 3e6, 25e9, 150e-9
    time = FUNCTIONS.get(name, collectives.all_to_all_time)
    ours = time(KINDS[kind], n, n_chips=p, bandwidth=b, latency=a)
    values = {"p": p, "n": n, "a": a, "b": b, "floor": math.floor}
    assert eval(formula, values) == pytest.approx(float(ours), rel=1e-12)


@pytest.mark.parametrize(("stages", "layers", "microbatches"), [(8, 16, 32), (128, 1, 3072)])
def test_the_bubble_is_that_of_the_page(stages, layers, microbatches):
    text = (DOCS / "models" / "pipeline.md").read_text()
    line = re.search(r"slot x m x \((?P<factor>.+)\), +v = (?P<virtual>.+)\n", text)
    assert line

    class Plan:
        pipeline = stages
        layers_per_stage = layers
        n_microbatches = microbatches

    virtual = eval(line["virtual"], {"l": layers, "max": max})
    ours = bubble_factor(Plan())  # type: ignore[arg-type]
    assert eval(line["factor"], {"p": stages, "m": microbatches, "v": virtual}) == pytest.approx(
        ours
    )
