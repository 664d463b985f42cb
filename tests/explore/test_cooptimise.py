from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from builders.examples import fewer
from hypothesis import given
from hypothesis import strategies as st

from crosstack.errors import InfeasibleError, InputError
from crosstack.explore.bounds import shortest_makespan, time_bound
from crosstack.explore.cooptimise import ChoiceStatus, co_optimise
from crosstack.explore.design import Metric
from crosstack.explore.methods import METHODS
from crosstack.explore.optimize import read_optimization
from crosstack.explore.recorded import Choice
from crosstack.explore.store import Store
from crosstack.mapping.strategy import parse_strategy
from crosstack.model.schedule.events import TaskGraphBuilder, simulate

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/optimize/lstm_64.yaml"
SMALL = (
    "chips=8",
    "batch=256",
    "choices={}",
    "strategies=[RC-1-1-d8-p1, CR-4-d2-p1, RC-2-2-d2-p1, RC-1-4-d2-p1, CR-8-d1-p1]",
)


@pytest.fixture(scope="module")
def choices():
    """Return five strategies of a small machine."""
    return read_optimization(EXAMPLE, SMALL).choices


@pytest.mark.parametrize(
    "rules", [pytest.param("crosstack", marks=pytest.mark.slow), "deepflow-2021", "deepflow-2025"]
)
def test_no_design_beats_its_bound(rules):
    case = read_optimization(EXAMPLE, (*SMALL, f"rules={rules}"))
    random = np.random.default_rng(7)
    for choice in case.choices:
        problem = choice.problem
        try:
            bound = time_bound(problem)
        except InputError:  # the release has no such strategy
            continue
        points = np.vstack(
            [problem.free.start, problem.free.centre, problem.free.space.draw(random, 12)]
        )
        values = [v.objective for v in problem(points) if v.feasible]
        assert values
        assert min(values) >= bound * (1 - 1e-12)


def test_a_transformer_does_not_beat_its_bound():
    case = read_optimization(
        EXAMPLE,
        ("model=gpt-22b", "batch=16", "microbatches=4", "chips=64", "choices={}",
         "strategies=[RC-1-8-d1-p8, RC-1-16-d1-p4]"),
    )  # fmt: skip
    for choice in case.choices:
        values = choice.problem(np.stack([choice.problem.free.start, choice.problem.free.centre]))
        feasible = [v.objective for v in values if v.feasible]
        assert all(v >= time_bound(choice.problem) for v in feasible)
        assert feasible


@st.composite
def task_graphs(draw):
    build = TaskGraphBuilder()
    for i in range(draw(st.integers(1, 12))):
        after = draw(st.lists(st.integers(0, i - 1), max_size=3, unique=True)) if i else []
        resource = draw(st.sampled_from([None, "stage 0", "stage 1", "link 0"]))
        build.add(str(i), draw(st.floats(0, 10)), resource=resource, after=after)
    return build.build()


@given(task_graphs())
@fewer(0.25)
def test_no_schedule_beats_the_shortest_makespan(graph):
    assert simulate(graph).makespan >= shortest_makespan(graph) * (1 - 1e-12)


@pytest.mark.slow
def test_pruning_does_not_change_the_best(choices):
    pruned = co_optimise(choices, evaluations=30)
    every = [co_optimise([choice], evaluations=30).best.best for choice in choices]
    assert pruned.best.best == min(every)
    assert pruned.design.metrics.time == pruned.best.best
    assert pruned.proved <= pruned.best.best


@pytest.mark.slow
def test_every_choice_has_a_status(choices):
    found = co_optimise(choices, evaluations=20, searches=1)
    statuses = [o.status for o in found.results]
    assert statuses.count(ChoiceStatus.SEARCHED) == 1
    assert [o.choice for o in found.results] == list(choices)
    for o in found.results:
        if o.status is ChoiceStatus.PRUNED:
            assert o.bound >= found.best.best


def test_an_impossible_choice_is_a_row_with_its_reason(choices):
    cut = parse_strategy("RC-1-1-d2-p4")  # words share weights, which stages would not have
    wrong = Choice(labels=(("strategy", "odd"),), problem=replace(choices[1].problem, strategy=cut))
    found = co_optimise([choices[0], wrong], evaluations=2)
    assert found.results[1].status is ChoiceStatus.IMPOSSIBLE
    assert "share weights" in found.results[1].reason


def test_what_fits_nowhere_is_infeasible(choices):
    large = replace(choices[0].problem.workload, vocabulary=2**24)
    wrong = Choice(labels=(), problem=replace(choices[0].problem, workload=large))
    with pytest.raises(InfeasibleError, match="main memory"):
        co_optimise([wrong], evaluations=5)


@pytest.mark.slow
def test_less_power_is_found_where_power_is_minimised(choices):
    given, objective = choices[0].problem, Metric.ENERGY
    free = replace(given.free, spare=objective.spare)
    problem = replace(given, objective=objective, free=free)
    slow = co_optimise([Choice(labels=(), problem=problem)], evaluations=80)
    fast = co_optimise([choices[0]], evaluations=80)
    assert slow.design.metrics.value(Metric.ENERGY) < fast.design.metrics.value(Metric.ENERGY)
    assert slow.design.metrics.power < fast.design.metrics.power


@pytest.mark.slow
def test_a_limit_holds_for_the_best(choices):
    free = co_optimise([choices[0]], evaluations=60)
    limit = 0.95 * free.design.metrics.area
    problem = replace(choices[0].problem, limits={Metric.AREA: limit})
    bound = co_optimise([Choice(labels=(), problem=problem)], evaluations=60)
    assert bound.design.metrics.area <= limit
    assert bound.best.best >= free.best.bound


def test_held_components_keep_their_shares(choices):
    free = replace(choices[0].problem.free, held=("DRAM", "inter"))
    budget = free.budgets(free.space.draw(np.random.default_rng(1), 3))
    given_ = free.shares("power")
    for name in ("DRAM", "inter"):
        assert budget.power_of(name) / 300 == pytest.approx([given_[name]] * 3)
    total = sum(budget.power_of(name) for name in free.template.components)
    assert total == pytest.approx(300)


def test_a_point_is_the_same_alone_and_among_others(choices):
    problem = choices[0].problem
    points = np.stack([problem.free.start, problem.free.centre])
    together = [v.objective for v in problem(points)]
    assert [problem(p[None])[0].objective for p in points] == together
    assert problem.design(points[1]).metrics.time == together[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [pytest.param(name, marks=() if name == "cma-es" else pytest.mark.slow) for name in METHODS],
)
def test_a_search_that_was_stopped_goes_on_from_its_store(method, tmp_path):
    quick = (
        "chips=4", "batch=128", "choices={node: [N7]}", "strategies=[RC-1-1-d4-p1]",
        f"search={{method: {method}, evaluations: 20}}",
    )  # fmt: skip
    asked, store = read_optimization(EXAMPLE, quick), tmp_path / "store"

    def stop(progress):
        if progress.done >= 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asked.run(store=store, progress=stop)
    kept = Store.open(store).count()
    with pytest.raises(InputError, match="holds"):
        asked.run(store=store)
    again, whole = asked.run(store=store, resume=True), asked.run()
    assert again.best.result.evaluated == whole.best.result.evaluated
    assert again.point == whole.point
    # A point that was asked for twice is a row once.
    points = {(e.point, e.probe) for e in whole.best.result.evaluated}
    assert 10 < kept < Store.open(store).count() <= len(points) + 2


@pytest.mark.slow
def test_every_row_of_a_search_has_its_metrics(tmp_path):
    quick = ("chips=4", "batch=128", "choices={node: [N7], power: [300 W, 400 W]}",
             "strategies=[RC-1-1-d4-p1]", "search={evaluations: 10}")  # fmt: skip
    read_optimization(EXAMPLE, quick).run(store=tmp_path / "store")
    rows = Store.open(tmp_path / "store").table().to_pylist()
    assert {row["choice.power"] for row in rows} == {"300 W", "400 W"}
    good = [row for row in rows if row["status"] == "feasible"]
    assert good
    for row in good:
        assert row["energy"] == pytest.approx(row["power"] * row["time"])
