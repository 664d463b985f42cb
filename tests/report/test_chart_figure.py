from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstack.charts import BarChart, Bars, HeatMap, LineChart, Mark, Measure, Series
from crosstack.report.chart_figure import chart_figure, charts_svg
from crosstack.report.scales import log_scale, number_words, round_scale

SVG = "{http://www.w3.org/2000/svg}"
BARS = BarChart(
    title="Bars",
    y=Measure(label="time", unit="ms", worth=1e-3),
    groups=("one", "two"),
    bars=(
        Bars(name="paper", values=(0.002, None), published=True),
        Bars(name="ours", values=(0.001, 0.004), colour=1),
    ),
)
LINES = LineChart(
    title="Lines",
    x=Measure(label="chips", log=True),
    y=Measure(label="rate", unit="GB/s", worth=1e9),
    series=(
        Series(name="ours", x=(1.0, 10.0, 100.0), y=(1e9, 2e9, 3e9)),
        Series(name="log", x=(1.0, 100.0), y=(1e9, 3e9), published=True, mark=Mark.SQUARE),
    ),
)
HEAT = HeatMap(
    title="Heat",
    value=Measure(label="rate"),
    columns=("a", "b", "c"),
    rows=("x", "y"),
    column_title="columns",
    row_title="rows",
    values=((1.0, 2.0, 3.0), (4.0, 5.0, 6.0)),
)


def drawn(chart):
    svg = charts_svg("Title", "source", [chart], [("claim", "1", "2", "MISSES")], ["A note."])
    return ElementTree.fromstring(svg)


def test_bars_are_as_tall_as_their_values():
    groups = [g for g in drawn(BARS).iter() if g.get("data-value")]
    heights = {
        float(g.get("data-value")): float(g.find(f"{SVG}rect").get("height")) for g in groups
    }
    assert sorted(heights) == [1.0, 2.0, 4.0]  # in ms; the missing one is not drawn
    assert heights[4.0] == pytest.approx(4 * heights[1.0], abs=0.2)
    assert heights[2.0] == pytest.approx(2 * heights[1.0], abs=0.2)


def test_stacked_bars_stand_on_each_other():
    bars = (Bars(name="a", values=(1.0,)), Bars(name="b", values=(3.0,)))
    chart = BarChart(title="S", y=Measure(label="t"), groups=("g",), stacked=True, bars=bars)
    rects = [g.find(f"{SVG}rect") for g in drawn(chart).iter() if g.get("data-value")]
    below, above = ((float(r.get("y")), float(r.get("height"))) for r in rects)
    assert above[0] + above[1] == pytest.approx(below[0], abs=0.2)


def test_every_point_of_a_series_has_its_mark():
    series = [g for g in drawn(LINES).iter() if g.get("data-series") is not None]
    circles = [len(g.findall(f"{SVG}circle")) for g in series]
    squares = [len(g.findall(f"{SVG}rect")) for g in series]
    assert (circles, squares) == ([3, 0], [0, 2])
    assert [g.get("data-published") for g in series] == ["false", "true"]


def test_decades_are_equally_far_apart_on_a_logarithmic_axis():
    (ours, _) = (g for g in drawn(LINES).iter() if g.get("data-series") is not None)
    xs = [float(c.get("cx")) for c in ours.findall(f"{SVG}circle")]
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2)


def test_a_heat_map_is_darker_where_values_are_larger():
    cells = [float(r.get("fill-opacity")) for r in drawn(HEAT).iter(f"{SVG}rect")
             if r.get("fill-opacity")]  # fmt: skip
    assert len(cells) == 6
    assert cells == sorted(cells)


@pytest.mark.parametrize("chart", [BARS, LINES, HEAT], ids=lambda c: c.title)
def test_axes_have_titles_with_units(chart):
    text = " ".join(t.text or "" for t in drawn(chart).iter(f"{SVG}text"))
    measures = [getattr(chart, name) for name in ("x", "y", "value") if hasattr(chart, name)]
    assert all(measure.title in text for measure in measures)


@pytest.mark.parametrize("chart", [BARS, LINES, HEAT], ids=lambda c: c.title)
def test_a_page_has_claims_verdicts_and_notes(chart):
    text = [t.text for t in drawn(chart).iter(f"{SVG}text")]
    assert {"claim", "MISSES", "A note."} <= set(text)


def test_an_odd_chart_leaves_its_place_to_the_claims():
    one = charts_svg("T", "s", [BARS], [], [])
    two = charts_svg("T", "s", [BARS, BARS], [], [])
    widths = [ElementTree.fromstring(svg).get("width") for svg in (one, two)]
    assert widths[0] == widths[1]


def test_names_are_escaped():
    chart = Bars(name="a<b & c", values=(1.0, 2.0))
    figure = chart_figure(
        BarChart(title="t", y=Measure(label="y"), groups=("<", "&"), bars=(chart,))
    )
    ElementTree.fromstring("<svg>" + "".join(figure.canvas.elements) + "</svg>")


@given(low=st.floats(0, 1e6), span=st.floats(1e-6, 1e9))
def test_round_ticks_ascend_and_hold_the_values(low, span):
    high = low + span
    scale = round_scale(high, low)
    assert list(scale.ticks) == sorted(scale.ticks)
    assert scale.low <= low + 1e-6 * max(span, low)
    assert scale.high >= high - 1e-6 * max(span, low)
    assert 2 <= len(scale.ticks) <= 12


@given(low=st.floats(1e-9, 1e9), factor=st.floats(1, 1e12))
def test_logarithmic_ticks_ascend_and_hold_the_values(low, factor):
    scale = log_scale(low, low * factor)
    assert list(scale.ticks) == sorted(scale.ticks)
    assert scale.low <= low * (1 + 1e-6)
    assert scale.high >= low * factor * (1 - 1e-6)
    assert 0 <= scale.at(low) <= scale.at(low * factor) <= 1


@pytest.mark.parametrize(
    ("value", "words"), [(0.0, "0"), (12345.0, "12,345"), (0.25, "0.25"), (3e9, "3e+09")]
)
def test_numbers_are_short(value, words):
    assert number_words(value) == words
