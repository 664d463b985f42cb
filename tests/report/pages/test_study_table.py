from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from crosstack.errors import InputError
from crosstack.io.study_file import Goal
from crosstack.report.pages.study_table import StudyTable, front, shares, store_table, terms

MIN, MAX = Goal.MINIMUM, Goal.MAXIMUM
scores = st.lists(st.tuples(*[st.integers(0, 9)] * 3), min_size=1, max_size=60)


def table_of(rows, *, status=None, goals=(MIN, MIN, MIN)):
    names = ("a", "b", "c")[: len(rows[0])]
    columns = {name: [float(row[k]) for row in rows] for k, name in enumerate(names)}
    if status is not None:
        columns["status"] = status
    objectives = tuple(zip(names, goals, strict=False))
    return StudyTable(title="t", columns=columns, axes=(), objectives=objectives)


@given(scores)
def test_the_front_is_what_no_other_point_beats(rows):
    found = [rows[i] for i in front(table_of(rows), "abc")]

    def beats(one, other):
        return one != other and all(a <= b for a, b in zip(one, other, strict=True))

    beaten = {row for row in rows if any(beats(other, row) for other in rows)}
    assert set(found) == set(rows) - beaten
    assert len(set(found)) == len(found)  # of equal points one
    assert found == sorted(found)


def test_the_front_follows_the_goal_of_each_objective():
    rows = [(1, 1), (2, 3), (3, 2)]
    assert front(table_of(rows, goals=(MIN, MAX)), "ab").tolist() == [0, 1]


def test_points_without_an_answer_are_on_no_front():
    rows = [(0, 0), (1, 1)]
    assert front(table_of(rows, status=["infeasible", "optimal"]), "ab").tolist() == [1]


def test_a_thinned_study_keeps_front_and_best_and_says_so(space):
    table = space(3000)
    thin = table.thinned(300)
    assert 250 <= len(thin) <= 310
    assert thin.total == 3000
    assert "3,000 points" in thin.notes[-1]
    kept = set(thin.columns["key"])
    on_front = {table.columns["key"][i] for i in front(table, ["time", "price"])}
    assert len(on_front) < 150
    assert on_front <= kept
    least = min(v for v in table.columns["time"] if v is not None)
    assert least in thin.columns["time"]


def test_a_front_larger_than_the_page_is_an_even_share_of_it():
    rows = [(i, 1000 - i) for i in range(1000)]
    kept = shares(table_of(rows), 100)
    assert 50 <= len(kept) <= 100
    assert {0, 999} <= set(kept)


def test_a_study_that_fits_is_left_alone(space):
    table = space(20)
    assert table.thinned(20) is table


def test_names_that_are_not_there_are_refused():
    with pytest.raises(InputError, match="tim.*Did you mean.*time"):
        StudyTable(
            title="t", columns={"time": [1.0]}, axes=(), objectives=(("tim", MIN),)
        )  # fmt: skip
    with pytest.raises(InputError, match="one length"):
        StudyTable(title="t", columns={"a": [1.0], "b": []}, axes=(), objectives=())
    with pytest.raises(InputError, match="holds text"):
        StudyTable(title="t", columns={"a": ["x"]}, axes=(), objectives=(("a", MIN),))


def test_terms_are_neither_varied_nor_about_the_run(space):
    found = terms(space(4))
    assert "time" in found
    assert not {"chip", "key", "status", "runtime", "model"} & set(found)


def test_what_is_more_of_a_good_thing_is_to_be_large(space):
    table = space(4)
    assert table.goal("throughput") is MAX
    assert table.goal("power") is MIN


def test_a_store_becomes_a_table_of_what_was_asked(swept):
    table = store_table(swept("N7", "N5"))
    assert len(table) == table.total == 10
    assert table.axes == ("size", "node")
    assert table.objectives == (("peak_throughput", MAX), ("power_efficiency", MAX))
    assert table.units["size"] == "m^2"
    assert table.notes == ("Constraints: memory.capacity at least 1 GB.",)
    assert set(table.columns["within"]) == {"yes"}
    assert ("Bandwidth of each memory", "memory.bandwidth") in [
        (title, name) for title, names in table.details for name in names
    ]


def test_a_large_store_is_thinned_before_it_is_read(swept):
    store = swept("N7", "N5", "N3")
    whole, thin = store_table(store), store_table(store, most=8)
    assert 4 <= len(thin) <= 8
    assert thin.total == 15
    assert "15 points; this page holds" in thin.notes[-1]
    best = max(whole.columns["peak_throughput"])
    assert best in thin.columns["peak_throughput"]
    assert thin.take(range(len(thin))).columns == thin.columns
