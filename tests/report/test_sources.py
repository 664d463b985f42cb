"""Claims about what a report says of the rules it was counted by."""

from __future__ import annotations

import pytest

from crosstack.model.rules import MAPPED, rule_names, rules_named
from crosstack.report.sources import cited, rule_rows


@pytest.mark.parametrize("name", rule_names(MAPPED))
def test_every_part_and_every_field_has_its_meaning(name):
    rows = rule_rows(rules_named(name)).rows
    assert [row[0] for row in rows if not row[1]] == list(MAPPED)
    assert all(meaning for _, _, meaning in rows)


def test_what_a_field_says_ends_with_the_field():
    (row,) = (r for r in rule_rows(rules_named("dfmodel-e4")).rows if r[0] == "bytes_first")
    said = "Whether sharding minimises bytes moved before anything else is decided."
    assert row == ("bytes_first", "yes", said)


def test_sources_that_meanings_name_are_cited():
    keys = [key for key, _ in cited(rules_named("dfmodel-e4"))]
    assert {"dfmodel_code", "ko2025dfmodel"} <= set(keys)
