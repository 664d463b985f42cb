"""Published design spaces as studies: their points, their stores, and what the paper says."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

pytest.importorskip("pyarrow", reason="needs crosstack[explore]")

from crosstack.errors import InputError
from crosstack.explore.axes import axis_of_values
from crosstack.explore.points import expand
from crosstack.explore.pool import Serial
from crosstack.explore.run import layout_of, run_study, sweep
from crosstack.explore.store import Store
from crosstack.explore.study import Study
from crosstack.published.dfmodel.system_space import (
    AXES,
    CLAIMS,
    SpacePoint,
    design_space,
    result_in,
    result_of,
)
from crosstack.published.studies import STUDIES, built_in, claims_text, study_list


def _point(row: dict) -> SpacePoint:
    return SpacePoint(**{name: row[name] for name in AXES})


def _only(study: Study, **names: tuple[str, ...]) -> Study:
    """Return a study with fewer values on some axes."""
    axes = [
        axis_of_values(a.name, [{a.name: v} for v in names[a.name]], list(names[a.name]))
        if a.name in names
        else a
        for a in study.axes
    ]
    return replace(study, axes=tuple(axes))


@pytest.fixture(scope="module")
def recommendation(tmp_path_factory):
    """Return the rows of the recommendation model's 80 points, and what a resumed sweep did."""
    study = _only(STUDIES["dfmodel-dse"].make(), workload=("dlrm",))
    store = Store.create(tmp_path_factory.mktemp("space") / "store", layout_of(study))
    run_study(_only(study, memory=("ddr",)), store, Serial())
    seen = []
    points = run_study(study, store, Serial(), progress=seen.append)
    return store.table(points.keys).to_pylist(), seen


@pytest.mark.parametrize(
    ("name", "count"), [("dfmodel-dse", 320), ("dfmodel-fig19", 18), ("dfmodel-fig22", 30)]
)
def test_a_study_has_as_many_points_as_are_published(name, count):
    points = expand(STUDIES[name].make())
    assert len(points) == len({key.tobytes() for key in points.keys}) == count


def test_the_design_space_is_every_system_under_every_workload():
    points = expand(STUDIES["dfmodel-dse"].make())
    assert [SpacePoint(**dict(points.assignments(i))) for i in range(320)] == design_space()


def test_a_name_with_a_typo_is_told_the_nearest():
    with pytest.raises(InputError, match='Did you mean "dfmodel-fig19"'):
        built_in("dfmodel-fig91")
    assert all(name in study_list() for name in STUDIES)


def test_a_resumed_study_answers_only_what_is_open(recommendation):
    rows, seen = recommendation
    assert (seen[-1].fresh, seen[-1].done, seen[-1].total) == (40, 80, 80)
    assert len(rows) == 80
    assert len({row["key"] for row in rows}) == 80


def test_every_row_has_its_proof(recommendation):
    for row in recommendation[0]:
        assert row["status"] == "optimal"
        assert row["gap"] == 0.0
        assert row["bound"] == pytest.approx(row["time"], rel=1e-9)


def test_a_row_is_what_mapping_its_point_gives_to_the_last_bit(recommendation):
    for row in recommendation[0][::16]:
        assert result_in(_point(row), row) == result_of(_point(row))


def test_published_ratios_come_out_of_the_table(recommendation):
    rows = recommendation[0]
    results = [result_in(_point(row), row) for row in rows]
    claims = [claim for claim in CLAIMS if claim.workload == "dlrm"]
    assert len(claims) == 12
    for claim in claims:
        ours = claim.ratio(results)
        assert claim.agrees(ours), claim
        # The same from the table's columns alone, as anyone would with pandas.
        known = {_point(row): row[claim.quantity] for row in rows}
        logs = [
            math.log(known[point] / known[replace(point, **{claim.axis: other})])
            for point in known
            if getattr(point, claim.axis) in claim.choices
            for other in claim.others
        ]
        assert math.exp(math.fsum(logs) / len(logs)) == pytest.approx(ours, rel=1e-12)


def test_a_point_without_an_answer_leaves_the_claims_open():
    rows = [{"utilization": None, "status": "limit"}, {"utilization": 0.5, "status": "optimal"}]
    assert claims_text(STUDIES["dfmodel-fig19"], rows).startswith("1 point has no answer")


@pytest.mark.slow
def test_figure_19_as_a_study_has_the_figures_claims():
    study = STUDIES["dfmodel-fig19"]
    table = sweep(study.make(), jobs=2, table="arrow")
    assert set(table["status"].to_pylist()) == {"optimal"}
    (figure,) = study.figures(table.to_pylist())
    assert all(row.holds for row in figure.points)
    assert [row.holds or bool(row.reason) for row in figure.claims] == [True] * 5
    words = claims_text(study, table.to_pylist())
    assert "18 of 18 published runs are matched or beaten" in words
    assert "crosstack figure memory-sweep" in words
