"""The fastest strategies: each costs what its mapping does, and nothing left out is faster."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crosstack.errors import CrosstackError, InfeasibleError, InputError, LimitError
from crosstack.evaluate.blocks import BlockTable
from crosstack.evaluate.plan import optimise
from crosstack.evaluate.ranking import MOST_SEARCHED, Answer, _Lean, fastest_strategies
from crosstack.evaluate.strategy_times import mapping_of, strategy_times
from crosstack.evaluate.time import evaluate
from crosstack.io.library.machines import system_on
from crosstack.io.transformers import transformer
from crosstack.machine.system import Parallelism
from crosstack.mapping.degrees import Degrees
from crosstack.mapping.mapping import Constraints, Status, Task
from crosstack.mapping.strategies import all_strategies
from crosstack.model.rules import rules_named
from crosstack.published.dfmodel.graphs.hpl import hpl
from crosstack.workload.architectures import graphs
from crosstack.workload.graph_workload import workload_of
from crosstack.workload.job import Job
from crosstack.workload.transformer_training import Recompute, Schedule

RULES = rules_named("crosstack")
WORK = 1e4  # enough that a block has the same kernels in whatever order blocks are searched


def a_task(capacity: float, chips: int = 16, **given: object) -> Task:
    """Eight layers of Llama 3 8B trained on servers of eight H100 with so much memory. [B]"""
    few = replace(transformer("llama3-8b"), layers=8)
    graph = graphs.training(few, sequence=1024, batch=16)
    system = system_on("h100-dgx", chips=chips)
    return Task(
        workload=workload_of(graph, block="layers", items="batch"),
        system=replace(system, chip=system.chip.with_memory(capacity=capacity)),
        constraints=Constraints(**given),
    )


@pytest.mark.parametrize(
    ("capacity", "given"),
    [
        pytest.param(8e9, {"chips": 8}, marks=pytest.mark.slow),
        (
            80e9,
            {
                "chips": 8,
                "recompute": Recompute.NONE,
                "degrees": Degrees(pipeline=2, context=1),
                "schedule": Schedule.ONE_F_ONE_B,
            },
        ),
    ],
)
def test_the_fastest_of_all_strategies_are_listed(capacity, given):
    task = a_task(capacity, **given)
    ranked = fastest_strategies(task, 5, work_limit=WORK)
    given = task.workload, task.system, RULES
    strategies = all_strategies(*given, task.constraints)
    table = BlockTable(
        workload=task.workload, system=task.system, rules=RULES, constraints=task.constraints,
        work_limit=WORK,
    )  # fmt: skip
    least = np.full(len(strategies), np.inf)
    for layers in range(1, int(strategies.layers.max()) + 1):  # that compute again, of each piece
        some = strategies.with_again(np.minimum(layers, strategies.layers))
        found = strategy_times(some, table)
        least = np.minimum(least, np.where(found.fits, found.time, np.inf))
    listed = np.array([priced.time for _, priced in ranked.found])
    # A strategy whose fastest kernels do not fit may be listed with others, which arrays know not.
    faster = np.sort(least)[np.sort(least) < listed[-1] * (1 - 1e-9)]
    assert np.isclose(faster[:, None], listed, rtol=1e-9).any(axis=1).all()
    assert (listed <= np.sort(least)[:5] * (1 + 1e-9)).all()
    assert ranked.total == len(strategies)
    assert ranked.blocks < len(table.solved)


def listed_and_best():
    """The first of Llama 3 70B on 512 H100 with degrees given, and what a search finds."""
    job = Job(model=transformer("llama3-70b"), batch=512, sequence=8192)
    given = Constraints(degrees=Degrees(tensor=8, pipeline=4, data=16))
    task = Task(workload=job.workload, system=system_on("h100-dgx", chips=512), constraints=given)
    first, *_ = fastest_strategies(task, 3).found
    return first, optimise(task, work_limit=2e5).evaluation


@pytest.mark.slow
def test_a_strategy_whose_fastest_kernels_do_not_fit_is_listed_with_others_that_do():
    """Tensor parallelism inside the servers keeps too much at first."""
    (mapping, priced), _ = listed_and_best()
    assert priced.memory_used <= priced.memory_capacity
    assert mapping.dimensions[0] == 0  # inside the servers
    assert mapping.parallelism[0] is Parallelism.TENSOR


@pytest.mark.slow
def test_what_is_listed_first_takes_what_a_search_finds():
    """But for 1 %: its fastest kernels do not fit, and few searches look for others that do."""
    (_, priced), best = listed_and_best()
    assert best.time * (1 - 1e-9) <= priced.time <= best.time * 1.01


def found_after(failures: int, failure: CrosstackError, monkeypatch: pytest.MonkeyPatch):
    """What is listed of the strategies of a block whose first searches fail, and how many ran."""
    task = a_task(80e9, microbatch_size=1, recompute=Recompute.NONE)
    given = task.workload, task.system, RULES
    strategies = all_strategies(*given, task.constraints)
    table = BlockTable(
        workload=task.workload, system=task.system, rules=RULES, constraints=task.constraints,
        work_limit=WORK,
    )  # fmt: skip
    search, asked = BlockTable.searched, []

    def searched(table, plan, system, **given):
        asked.append(plan)
        if len(asked) <= failures:
            raise failure
        return search(table, plan, system, **given)

    monkeypatch.setattr(BlockTable, "searched", searched)
    groups = np.array([table.group(plan) for plan in strategies.plans])[strategies.use]
    block = np.flatnonzero(groups == np.bincount(groups).argmax())
    assert len(block) > failures
    lean = _Lean(strategies, table)
    return [lean.priced(i) for i in block.tolist()], len(asked)


def test_strategies_that_are_proved_not_to_fit_do_not_end_the_search_of_a_block(monkeypatch):
    failure = InfeasibleError(
        resource="memory", demand=2.0, limit=1.0, unit="B", where="a chip", levers=()
    )
    listed, _ = found_after(MOST_SEARCHED, failure, monkeypatch)
    assert listed[:MOST_SEARCHED] == [None] * MOST_SEARCHED
    assert listed[MOST_SEARCHED] is not None


def test_searches_without_an_answer_end_that_of_a_block(monkeypatch):
    listed, asked = found_after(MOST_SEARCHED, LimitError("no mapping found"), monkeypatch)
    assert not any(listed)
    assert asked == MOST_SEARCHED


def test_ends_of_a_model_are_counted():
    few = replace(transformer("llama3-8b"), layers=4)
    workload = workload_of(graphs.training(few, sequence=512, batch=8), items="batch")
    assert workload.ends
    given = Constraints(
        microbatch_size=1, recompute=Recompute.NONE, degrees=Degrees(context=1),
        schedule=Schedule.ONE_F_ONE_B,
    )  # fmt: skip
    task = Task(workload=workload, system=system_on("h100-dgx"), constraints=given)
    ranked = fastest_strategies(task, 3, work_limit=WORK)
    strategies = all_strategies(task.workload, task.system, RULES, given)
    table = BlockTable(
        workload=workload, system=task.system, rules=RULES, constraints=given, work_limit=WORK
    )
    alone = strategy_times(strategies, table)
    times = []
    for i in range(len(strategies)):
        mapping = mapping_of(strategies, i, table)
        assert mapping is not None
        times.append(evaluate(workload, task.system, mapping, RULES).time)
        assert times[-1] > alone.time[i]
    assert [priced.time for _, priced in ranked.found] == pytest.approx(sorted(times)[:3])


def test_what_is_listed_costs_what_its_mapping_does():
    task = a_task(80e9, chips=8, microbatch_size=1)
    ranked = fastest_strategies(task, 3, work_limit=WORK)
    assert len(ranked.found) == 3
    for mapping, priced in ranked.found:
        assert mapping.microbatch_size == 1
        assert evaluate(task.workload, task.system, mapping, RULES).time == priced.time


def test_fewer_are_listed_where_fewer_fit():
    task = a_task(80e9, chips=8, microbatch_size=16, degrees=Degrees(context=1))
    ranked = fastest_strategies(task, 10_000, work_limit=WORK)
    assert 0 < len(ranked.found) <= ranked.total < 10_000
    assert fastest_strategies(a_task(1e8, chips=8), 5, work_limit=WORK).found == ()


def test_a_workload_that_brings_its_distribution_has_none():
    task = replace(a_task(80e9), workload=hpl(size=4096, block=128))
    with pytest.raises(InputError, match="placement"):
        fastest_strategies(task, 5)


@pytest.mark.slow
def test_a_settled_list_is_that_of_the_best_mappings_of_all_strategies():
    """Brute force: every strategy of a tiny training is searched by itself."""
    tiny = replace(transformer("llama-68m"), layers=2)
    graph = graphs.training(tiny, sequence=256, batch=8)
    task = Task(
        workload=workload_of(graph, block="layers", items="batch"),
        system=system_on("h100-dgx", chips=4),
        constraints=Constraints(
            microbatch_size=1, recompute=Recompute.NONE, degrees=Degrees(context=1, tensor=2),
            kernel_by_kernel=True,
        ),
    )  # fmt: skip
    ranked = fastest_strategies(task, 4, searches=100)
    assert ranked.exact
    strategies = all_strategies(task.workload, task.system, RULES, task.constraints)
    table = BlockTable(
        workload=task.workload,
        system=task.system,
        rules=RULES,
        constraints=task.constraints,
        work_limit=1e6,
    )
    times = []
    for i in range(len(strategies)):
        whole = strategies.one(i, task.workload, whole=True)
        given = {"schedule": whole.schedule, "interleave": whole.interleave}
        found = table.searched(strategies.one(i, task.workload), task.system, **given)
        assert found.certificate.status is Status.OPTIMAL
        times.append(found.certificate.objective)
    assert len(times) > 6
    listed = [priced.time for _, priced in ranked.found]
    assert listed == pytest.approx(sorted(times)[:4], rel=1e-9)
    few = fastest_strategies(task, 4, searches=2)
    assert not few.exact
    assert few.left <= sorted(times)[4] * (1 + 1e-9)
    for (_, priced), bound in zip(few.found, few.bounds, strict=True):
        assert bound <= priced.time


def test_a_list_says_what_is_left_out_takes_at_least():
    task = a_task(80e9, chips=8, microbatch_size=1, degrees=Degrees(context=1, pipeline=2))
    first = fastest_strategies(task, 3, work_limit=WORK)
    ranked = fastest_strategies(task, 3, work_limit=WORK, searches=2)
    assert ranked.found[0][1].time <= first.found[0][1].time
    for number, (_, priced) in enumerate(ranked.found):
        assert 0 < ranked.bounds[number] <= priced.time
        assert 0 <= ranked.gap(number) < 1
    fewer = ranked.without(ranked.found[0][0], 1)
    assert len(fewer.found) == len(fewer.bounds) == 1
    assert 0 < fewer.left <= ranked.left


def test_the_answer_of_a_search_is_listed_from_the_start(monkeypatch):
    """With blocks that nothing was found for, what the search found is the list."""
    given = {"chips": 8, "recompute": Recompute.NONE, "schedule": Schedule.ONE_F_ONE_B}
    task = a_task(80e9, degrees=Degrees(pipeline=2, context=1), **given)
    answer = optimise(task)
    known = Answer(answer.mapping, answer.evaluation, answer.certificate)
    monkeypatch.setattr(BlockTable, "_solved", lambda *_: None)
    monkeypatch.setattr(BlockTable, "searched", no_mapping)
    assert fastest_strategies(task, 3, work_limit=WORK).found == ()
    ranked = fastest_strategies(task, 3, work_limit=WORK, answer=known)
    assert [mapping for mapping, _ in ranked.found] == [answer.mapping]
    assert ranked.left >= answer.certificate.bound * (1 - 1e-12)


def no_mapping(*_: object, **__: object) -> None:
    raise LimitError("nothing was found")
