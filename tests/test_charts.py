from __future__ import annotations

import pytest

from crosstack.charts import BarChart, Bars, HeatMap, Measure, Series
from crosstack.errors import InputError


def test_a_series_needs_a_y_for_each_x():
    with pytest.raises(InputError, match="one for each x"):
        Series(name="s", x=(1.0, 2.0), y=(1.0,))


def test_bars_need_a_value_for_each_group():
    with pytest.raises(InputError, match="one for each group"):
        BarChart(title="t", y=Measure(label="y"), groups=("a", "b"),
                 bars=(Bars(name="n", values=(1.0,)),))  # fmt: skip


def test_a_heat_map_needs_a_value_for_each_cell():
    with pytest.raises(InputError, match="2 rows of 3"):
        HeatMap(title="t", value=Measure(label="v"), columns=("a", "b", "c"), rows=("x", "y"),
                column_title="c", row_title="r", values=((1.0, 2.0, 3.0),))  # fmt: skip


def test_a_measure_names_its_unit():
    assert Measure(label="rate", unit="GB/s", worth=1e9).title == "rate [GB/s]"
    assert Measure(label="speedup").title == "speedup"


def test_a_unit_is_worth_something():
    with pytest.raises(InputError, match="above 0"):
        Measure(label="rate", worth=0.0)
