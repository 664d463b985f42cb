from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from importlib.resources import files

import pytest

from crosstack.report.drawing import DARK, LIGHT
from crosstack.report.pages.study_page import PARTS, page_css, study_data, study_html
from crosstack.report.pages.study_table import StudyTable

PAGES = files("crosstack.report.pages")


def luminance(colour):
    """WCAG 2.2, relative luminance of an sRGB colour."""
    shares = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return sum(w * s for w, s in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def themes():
    """Return the colours of the page in light and in dark."""
    found = re.findall(r":root \{ (--[^}]*)\}", page_css())
    assert len(found) == 2
    return [dict(re.findall(r"--([\w-]+): (#\w{6});", text)) for text in found]


def test_contrast_is_that_of_wcag():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", themes(), ids=["light", "dark"])
def test_words_are_read_on_what_they_stand_on(theme):
    for words in ("ink", "muted", "accent", "bad"):
        for ground in ("page", "frame"):
            assert contrast(theme[words], theme[ground]) >= 4.5, (words, ground)
    assert contrast(theme["on-accent"], theme["accent"]) >= 4.5


@pytest.mark.parametrize(("name", "theme"), list(zip(("light", "dark"), themes(), strict=True)))
def test_marks_are_seen_on_the_page(name, theme):
    script = PAGES.joinpath("palette.js").read_text(encoding="utf-8")
    kinds = re.findall(r"#\w{6}", re.search(rf"{name}: \[([^\]]*)\]", script)[1])
    assert len(kinds) == 7
    for colour in kinds:  # WCAG 1.4.11: parts of graphics
        assert contrast(colour, theme["page"]) >= 3, colour


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_figures_are_read_and_seen(theme):
    for ground in ("page", "frame", "fs", "fv", "bs", "bv"):
        assert contrast(theme["ink"], theme[ground]) >= 4.5, ground
    for ground in ("page", "frame"):
        assert contrast(theme["muted"], theme[ground]) >= 4.5, ground
    assert contrast(theme["on-network"], theme["network"]) >= 4.5
    for mark in ("compute", "memory", "network", "fs-line"):
        assert contrast(theme[mark], theme["page"]) >= 3, mark


def test_every_script_is_in_the_page():
    there = {p.name for p in PAGES.iterdir() if p.name.endswith(".js")}
    assert there == set(PARTS)


def test_the_page_loads_nothing(space):
    page = study_html(space(8))
    assert "default-src 'none'" in page
    assert "connect-src 'none'" in page
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:)""", page)
    assert "@import" not in page
    assert "url(" not in page


def test_text_of_a_study_cannot_end_its_element(space):
    evil = "</script><script>alert(1)</script>"
    table = space(8)
    columns = dict(table.columns, chip=[evil] * 8)
    page = study_html(replace(table, columns=columns, title=evil, notes=(evil,)))
    assert page.count("<script") == 2
    assert page.count("</script>") == 2


def test_data_of_the_page_is_that_of_the_table(space):
    table = space(400)
    data = json.loads(json.dumps(study_data(table), allow_nan=False))
    found = {}
    for column in data["columns"]:
        if "codes" in column:
            found[column["name"]] = [column["levels"][k] for k in column["codes"]]
        else:
            found[column["name"]] = column["values"]
    assert found == {name: list(values) for name, values in table.columns.items()}
    assert data["points"] == data["total"] == 400


def test_what_is_not_finite_is_none():
    columns = {"a": [1.0, math.inf, math.nan]}
    table = StudyTable(title="t", columns=columns, axes=(), objectives=())
    assert study_data(table)["columns"][0]["values"] == [1.0, None, None]
