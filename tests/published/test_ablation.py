"""Claims of the docs about parts of the physics: what leaving one out does to the error."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from crosstack.io.measured_runs import read_runs

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ROOT.parent / "shared/data/measured"
PAGE = ROOT / "docs/ablation.md"
POINT = 1.0  # by which a mean may have moved [%]
KERNELS = ("Products", "Attention", "Expert layers", "Elements and rows", "Collectives")
SOME_RUNS = ("megatron-table5", "vtrain-single")
SOME_PARTS = ("clock under load", "host that launches kernels", "splits of K")
WHOLE = "nothing"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ablation():
    """Return the script that makes the tables."""
    if not MEASURED.exists():
        pytest.skip("the measured rows are not beside the project")
    spec = importlib.util.spec_from_file_location("ablation", ROOT / "benchmarks/ablation.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["ablation"] = module  # where records look for their types
    spec.loader.exec_module(module)
    return module


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("| ").split(" | ")]


def told(heading: str) -> dict[str, dict[str, float]]:
    """Means of a table of the page, by part and by machine or source. [%]"""
    section = PAGE.read_text(encoding="utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    head, _, *rows = (cells(line) for line in section.splitlines() if line.startswith("|"))
    whole = dict(zip(head[1:], map(float, rows[0][1:]), strict=True))
    found = {}
    for part, *means in rows[:-1]:  # the last one counts rows
        pairs = zip(whole, means, strict=True)
        found[part] = {name: whole[name] if x == "=" else float(x) for name, x in pairs}
    return found


@pytest.mark.parametrize("heading", KERNELS)
def test_a_part_does_to_kernels_what_the_page_says(ablation, heading):
    page, parts = told(heading), ablation.tables(MEASURED)[heading]
    for part, score in parts.items():
        means = score()
        for name, mean in page.get(WHOLE if part == ablation.ALL else part, page[WHOLE]).items():
            assert means.of(name) == pytest.approx(mean, abs=POINT), (part, name)


def test_some_parts_do_to_some_runs_what_the_page_says(ablation):
    page = told("Training runs")
    sources = read_runs(MEASURED / "training.jsonl").sets
    parts = ablation.parts_of_runs({name: sources[name] for name in SOME_RUNS})
    for part in SOME_PARTS:
        means = parts[part]()
        for name in SOME_RUNS:
            assert means.of(name) == pytest.approx(page[part][name], abs=POINT), (part, name)
