from __future__ import annotations

import csv
import json

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from crosstack.charts import HeatMap, LineChart
from crosstack.errors import InputError
from crosstack.explore.question import StudyQuestion
from crosstack.explore.study import Bound, Goal
from crosstack.explore.tables import best, pareto, within, write_table
from crosstack.report.chart_figure import chart_figure
from crosstack.report.study_chart import heat_map, line_chart
from crosstack.report.study_text import results_tables
from crosstack.report.text import plain_text

MIN, MAX = Goal.MINIMUM, Goal.MAXIMUM


def table_of(**columns):
    n = len(next(iter(columns.values())))
    columns = {"status": ["feasible"] * n, "reason": [None] * n, **columns}
    fields = [
        pa.field(name, pa.string() if name in ("status", "reason", "kind") else pa.float64(),
                 metadata={"unit": "B/s" if name == "x" else "s"})
        for name in columns
    ]  # fmt: skip
    arrays = [pa.array(values, f.type) for values, f in zip(columns.values(), fields, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def asked(*axes: str, bounds=(), **objectives: Goal) -> StudyQuestion:
    return StudyQuestion(
        name="study",
        evaluator="map",
        base="base.yaml",
        axes=axes,
        bounds=tuple(bounds),
        objectives=tuple(objectives.items()),
    )


def test_rows_without_an_answer_or_outside_the_constraints_do_not_count():
    table = table_of(
        time=[1.0, 2.0, 3.0, None, 1.0],
        status=["optimal", "limit", "feasible", "infeasible", "timeout"],
    )
    assert within(table, ()).tolist() == [True, True, True, False, False]
    bounds = (Bound(column="time", minimum=2.0), Bound(column="time", maximum=2.5))
    assert within(table, bounds).tolist() == [False, True, False, False, False]


def test_the_best_rows_come_first():
    table = table_of(time=[3.0, 1.0, None, 2.0])
    good = np.ones(4, dtype=bool)
    assert best(table, ("time", MIN), good).tolist() == [1, 3, 0]
    assert best(table, ("time", MAX), good).tolist() == [0, 3, 1]


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=25))
def test_the_front_is_what_no_row_dominates(rows):
    a, b, c = (list(map(float, column)) for column in zip(*rows, strict=True))
    table = table_of(a=a, b=b, c=c)
    goals = (("a", MIN), ("b", MAX), ("c", MIN))
    scores = [(x, -y, z) for x, y, z in rows]
    front = {
        i
        for i, own in enumerate(scores)
        if not any(
            other != own and all(o <= p for o, p in zip(other, own, strict=True))
            for other in scores
        )
    }
    assert set(pareto(table, goals, np.ones(len(rows), dtype=bool)).tolist()) == front


def test_a_chart_has_a_series_for_each_value():
    table = table_of(x=[1e9, 2e9, 1e9, 2e9], time=[4.0, 3.0, 2.0, 1.0], kind=["a", "a", "b", "b"])
    chart = line_chart(table, asked("x", "kind"), x="x", y="time", by="kind")
    assert isinstance(chart, LineChart)
    assert [(s.name, s.x, s.y, s.line) for s in chart.series] == [
        ("a", (1e9, 2e9), (4.0, 3.0), True),
        ("b", (1e9, 2e9), (2.0, 1.0), True),
    ]
    assert (chart.x.unit, chart.x.worth) == ("GB/s", 1e9)
    assert chart_figure(chart).width > 0


def test_a_heat_map_shows_the_best_over_all_else():
    table = table_of(x=[1e9, 1e9, 2e9, 2e9], kind=["a", "a", "a", "b"], time=[4.0, 3.0, None, 1.0])
    least = heat_map(table, asked("x", "kind", time=MIN), x="x", y="kind", value="time")
    assert isinstance(least, HeatMap)
    assert least.columns == ("1 GB/s", "2 GB/s")
    assert least.rows == ("a", "b")
    assert least.values[0][0] == 3.0
    assert np.isnan(least.values[0][1])
    assert np.isnan(least.values[1][0])
    assert least.values[1][1] == 1.0
    assert "nan" not in str(chart_figure(least).canvas)
    largest = heat_map(table, asked("x", "kind"), x="x", y="kind", value="time")
    assert largest.values[0][0] == 4.0


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"x": "y", "y": "time"}, "no column of numbers is called"),
        ({"x": "kind", "y": "time"}, "no column of numbers is called"),
        ({"x": "x", "y": "time", "by": "kin"}, 'Did you mean "kind"'),
    ],
)
def test_a_column_that_is_not_there_is_named(columns, message):
    table = table_of(x=[1.0], time=[1.0], kind=["a"])
    with pytest.raises(InputError, match=message):
        line_chart(table, asked("x"), **{"by": None, **columns})


def test_exports_keep_every_bit(tmp_path):
    table = table_of(x=[0.1 + 0.2, float("inf")], kind=["a,b", None])
    write_table(table, tmp_path / "t.csv")
    with open(tmp_path / "t.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert float(rows[0]["x"]) == 0.1 + 0.2
    assert rows[0]["kind"] == "a,b"
    write_table(table, tmp_path / "t.json")
    loaded = json.loads((tmp_path / "t.json").read_text())
    assert [row["x"] for row in loaded] == [0.1 + 0.2, None]
    write_table(table, tmp_path / "t.parquet")
    import pyarrow.parquet

    assert pyarrow.parquet.read_table(tmp_path / "t.parquet").equals(table)


def test_a_front_runs_in_steps_that_no_point_is_beyond():
    table = table_of(time=[1.0, 2.0, 4.0, 3.0], price=[9.0, 5.0, 1.0, 6.0])
    chart = line_chart(table, asked(time=MIN, price=MIN), x="price", y="time", by=None, front=True)
    assert [s.line for s in chart.series] == [False, True]
    front = chart.series[1]
    steps = list(zip(front.x, front.y, strict=True))
    assert steps == [(1.0, 4.0), (5.0, 4.0), (5.0, 2.0), (9.0, 2.0), (9.0, 1.0)]


def test_a_front_of_more_and_less_turns_the_other_way():
    table = table_of(time=[1.0, 2.0], speed=[3.0, 7.0])
    chart = line_chart(table, asked(time=MIN, speed=MAX), x="speed", y="time", by=None, front=True)
    steps = list(zip(chart.series[1].x, chart.series[1].y, strict=True))
    assert steps == [(3.0, 1.0), (3.0, 2.0), (7.0, 2.0)]


def test_what_is_no_objective_has_no_front():
    table = table_of(time=[1.0], price=[9.0])
    with pytest.raises(InputError, match="price: is no objective"):
        line_chart(table, asked(time=MIN), x="price", y="time", by=None, front=True)


def test_a_front_is_that_of_all_points_where_too_many_are_there_to_be_drawn():
    n = 15_625
    draw = np.random.default_rng(4)
    time = draw.uniform(1, 2, n)
    table = table_of(time=time.tolist(), price=(1 / time + draw.uniform(0, 1, n)).tolist())
    goals = asked(time=MIN, price=MIN)
    chart = line_chart(table, goals, x="price", y="time", by=None, front=True)
    points, front = chart.series
    assert 5_000 <= len(points.x) < 5_100
    assert front.name == f"front of 15,625 points, {len(points.x):,} drawn"
    whole = pareto(table, goals.objectives, np.ones(n, dtype=bool))
    members = {(table["price"][i].as_py(), table["time"][i].as_py()) for i in whole.tolist()}
    for series in (points, front):
        assert members <= set(zip(series.x, series.y, strict=True))
    with pytest.raises(InputError, match="15,625 points; a chart shows up to 5,000"):
        line_chart(table, goals, x="price", y="time", by=None)


def test_an_objective_that_no_point_has_is_named_and_leaves_the_front_to_the_others():
    table = table_of(x=[1.0, 2.0], time=[2.0, 1.0], power=[1.0, 2.0], price=[None, None])
    objectives = asked("x", time=MIN, price=MIN, power=MIN)
    text = plain_text(results_tables(table, objectives, 5), 80)
    assert "No point has price: not an objective here." in text
    assert "Pareto front: 2 points" in text
    with pytest.raises(InputError, match="price: no point has it"):
        line_chart(table, objectives, x="price", y="time", by=None)
