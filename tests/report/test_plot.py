from __future__ import annotations

import errno
import math
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

matplotlib = pytest.importorskip("matplotlib", reason="needs crosstack[plot]")

from matplotlib.colors import to_hex  # noqa: E402

from crosstack.charts import (  # noqa: E402
    BarChart,
    Bars,
    HeatMap,
    LineChart,
    Mark,
    Measure,
    Series,
)
from crosstack.errors import InputError  # noqa: E402
from crosstack.report.plot import (  # noqa: E402
    COLUMN,
    MARKS,
    paper_figure,
    paper_page,
    save_page,
    save_plot,
)

LINES = LineChart(
    title="time over memory",
    x=Measure(label="memory", unit="GB/s", worth=1e9, log=True),
    y=Measure(label="time", unit="ms", worth=1e-3),
    series=(
        Series(name="ours", x=(1e9, 2e9), y=(4e-3, 2e-3), colour=0),
        Series(name="paper", x=(1e9, 2e9), y=(5e-3, 2e-3), colour=1, published=True),
        Series(name="front", x=(1e9, 2e9), y=(4e-3, 2e-3), colour=2, mark=Mark.NONE),
    ),
)
CELLS = HeatMap(
    title="least time",
    value=Measure(label="time", unit="ms", worth=1e-3),
    columns=("a", "b"),
    rows=("x", "y"),
    column_title="node",
    row_title="memory",
    values=((1e-3, 2e-3), (math.nan, 10e-3)),
)
BARS = BarChart(
    title="where it goes",
    y=Measure(label="time", unit="ms", worth=1e-3),
    groups=("a", "b"),
    bars=(
        Bars(name="paper", values=(1e-3, None), colour=0, published=True),
        Bars(name="ours", values=(2e-3, 4e-3), colour=0),
    ),
)


def heights(axes):
    return [[round(patch.get_height(), 9) for patch in bars] for bars in axes.containers]


def test_bars_stand_beside_one_another_in_the_shown_unit():
    axes = paper_figure(BARS).axes[0]
    assert heights(axes) == [[1.0, 0.0], [2.0, 4.0]]
    (paper, _), (ours, _) = axes.containers
    assert paper.get_x() + paper.get_width() == pytest.approx(ours.get_x())
    assert (axes.get_ylabel(), [t.get_text() for t in axes.get_xticklabels()]) == (
        "time [ms]", ["a", "b"]
    )  # fmt: skip


def test_stacked_bars_stand_on_one_another():
    axes = paper_figure(replace(BARS, stacked=True)).axes[0]
    assert heights(axes) == [[1.0, 0.0], [2.0, 4.0]]
    assert [patch.get_y() for patch in axes.containers[1]] == [1.0, 0.0]


def test_bars_differ_in_their_hatching_and_what_is_published_is_hollow():
    (paper, _), (ours, _) = paper_figure(BARS).axes[0].containers
    assert paper.get_hatch() != ours.get_hatch()
    assert (paper.get_facecolor()[3], ours.get_facecolor()[3]) == (0.0, 1.0)


def test_a_page_has_two_charts_in_a_row_each_under_its_title(tmp_path):
    page = paper_page("all of it", [LINES, BARS, CELLS])
    assert page.get_suptitle() == "all of it"
    titles = [axes.get_title() for axes in page.axes if axes.get_title()]
    assert titles == [LINES.title, BARS.title, CELLS.title]
    assert page.get_size_inches()[0] == pytest.approx(2 * COLUMN)
    save_page("all of it", [BARS], tmp_path / "a.svg")
    assert "where it goes" in (tmp_path / "a.svg").read_text()


def test_lines_are_in_the_shown_units():
    axes = paper_figure(LINES).axes[0]
    assert [list(line.get_xdata()) for line in axes.lines] == [[1.0, 2.0]] * 3
    assert list(axes.lines[0].get_ydata()) == [4.0, 2.0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("memory [GB/s]", "time [ms]")
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "linear")


def test_series_differ_in_mark_and_colour_and_what_is_published_is_hollow():
    ours, paper, front = paper_figure(LINES).axes[0].lines
    assert (ours.get_marker(), paper.get_marker()) == MARKS[:2]
    assert front.get_marker() in ("", "None")
    assert len({to_hex(line.get_color()) for line in (ours, paper, front)}) == 3
    assert (ours.get_linestyle(), paper.get_linestyle()) == ("-", "--")
    assert paper.get_markerfacecolor() == "none"


def test_cells_carry_their_numbers_and_are_read_on_their_colour():
    axes = paper_figure(CELLS).axes[0]
    words = {text.get_text(): to_hex(text.get_color()) for text in axes.texts}
    assert words == {"1": "#ffffff", "2": "#ffffff", "-": "#000000", "10": "#000000"}
    assert axes.images[0].get_cmap().name == "cividis"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["x", "y"]


@pytest.mark.parametrize("chart", [LINES, CELLS, BARS], ids=["lines", "heat", "bars"])
def test_pictures_are_one_column_wide_and_the_same_each_time(chart, tmp_path):
    files = [tmp_path / "a.svg", tmp_path / "b.svg"]
    for file in files:
        save_plot(chart, file)
    texts = [file.read_text() for file in files]
    assert texts[0] == texts[1]
    assert float(re.search(r'width="([\d.]+)pt"', texts[0])[1]) == pytest.approx(COLUMN * 72)
    assert ">time" in texts[0] or ">memory" in texts[0]  # words stay words
    save_plot(chart, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    save_plot(chart, tmp_path / "a.pdf")
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
    assert {file.name for file in tmp_path.iterdir()} == {"a.svg", "b.svg", "a.png", "a.pdf"}


def test_no_half_of_a_picture_is_left(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="there is no directory"):
        save_plot(LINES, tmp_path / "nowhere" / "a.png")

    def half(figure, path, **_):
        Path(path).write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", half)
    with pytest.raises(InputError, match="cannot be written: No space left on device"):
        save_plot(LINES, tmp_path / "a.png")
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install 'crosstack\[plot\]'"):
        save_plot(LINES, tmp_path / "a.png")
