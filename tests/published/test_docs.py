from __future__ import annotations

import re
from pathlib import Path

import pytest
from builders.suites import rows_of

from crosstack.model.rules import rule_names, rules_named
from crosstack.published.dfmodel.corrections import (
    corrections,
    corrections_markdown,
    differing,
)
from crosstack.published.dfmodel.rules import as_dfmodel
from crosstack.published.dfmodel.runs import published_task
from crosstack.published.runner import SUITES, report_rows

DOCS = Path(__file__).resolve().parents[2] / "docs"


def without_digits_that_differ(text: str) -> str:
    """Errors of rounding size differ between machines; keep six digits of the rest."""
    text = re.sub(r"[+-]\d\.\de-1\d", "~0", text)
    text = re.sub(r"[+-]0\.0e\+00", "~0", text)
    text = re.sub(r"(median error is|the worst) \d\.\de-\d\d", r"\1 small", text)
    return re.sub(r"\d+\.\d{6,}", lambda m: f"{float(m.group()):.6g}", text)


LONG = ("figures", "dfmodel", "memory", "steps")  # suites


def section(page: str, suite: str) -> str:
    """Return what stands before the first suite, and the part of one suite."""
    head, *parts = page.split("\n## ")
    (part,) = (part for part in parts if part.startswith(f"{suite}\n"))
    return without_digits_that_differ(f"{head}\n{part.strip()}")


@pytest.mark.parametrize(
    "suite",
    [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in SUITES],
)
def test_the_validation_page_is_what_the_command_writes(suite):
    written = (DOCS / "validation.md").read_text()
    fresh = report_rows(rows_of(suite), "md")
    assert section(written, suite) == section(fresh, suite)


@pytest.mark.parametrize("suite", SUITES)
def test_the_validation_page_has_a_table_of_every_suite(suite):
    assert f"\n## {suite}\n" in (DOCS / "validation.md").read_text()


@pytest.mark.slow
def test_the_table_of_corrections_is_what_the_command_writes():
    page = (DOCS / "rules.md").read_text()
    table = corrections_markdown(corrections(published_task("sn30")))
    assert table in page


@pytest.mark.parametrize("name", rule_names())
def test_the_rules_page_names_every_rule_set(name):
    assert f"`{name}`" in (DOCS / "rules.md").read_text()


def test_the_rules_page_names_every_field_the_default_changes():
    base, default = rules_named("dfmodel-readme"), as_dfmodel(rules_named("crosstack"))
    page = (DOCS / "rules.md").read_text()
    changed = differing(base, default)
    assert "collectives" in changed
    assert [name for name in changed if f"`{name}`" not in page] == []


@pytest.mark.parametrize(
    ("column", "name"),
    [(2, "crosstack"), (3, "dfmodel-e4"), (4, "deepflow-2021"), (5, "deepflow-paper")],
)
def test_the_rules_page_says_which_set_has_which_part(column, name):
    page = (DOCS / "rules.md").read_text().partition("## Parts\n")[2].partition("\n\n`map`")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines()[3:]]
    said = {row[0].strip("`"): row[column].partition(",")[0].strip("`") for row in rows}
    held = dict(rules_named(name).parts())
    kinds = {part: getattr(value, "__name__", type(value).__name__) for part, value in held.items()}
    assert {part: kind for part, kind in said.items() if kind} == kinds
