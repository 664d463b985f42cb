"""What plans take of main memory at least and at most, and what is said where it is too much."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pytest

from crosstack.errors import InfeasibleError
from crosstack.io.library.machines import system_on
from crosstack.io.steps import job_named
from crosstack.io.transformers import transformer
from crosstack.machine.system import Parallelism
from crosstack.mapping.mapping import Constraints
from crosstack.mapping.room import Room
from crosstack.mapping.search import search, search_state
from crosstack.mapping.search_node import SearchState
from crosstack.model.choice_index import axis_names
from crosstack.model.memory import (
    COPY_COLUMNS,
    CopyMemory,
    copy_memory,
    kept_slopes,
    kept_tensors,
    static_size,
)
from crosstack.model.mesh_plan import MeshPlan, make_plan
from crosstack.model.rules import rules_named
from crosstack.model.schedule.allowed import with_recompute
from crosstack.workload.architectures import graphs
from crosstack.workload.graph_workload import workload_of
from crosstack.workload.transformer_training import Recompute, Schedule

RULES = rules_named("crosstack")


@pytest.mark.parametrize(
    ("activations", "most", "lever"),
    [
        (4.0, "weights and caches", "more tensor or pipeline parallelism"),
        (5.0, "weights and caches", "more tensor or pipeline parallelism"),
        (6.0, "activations", "smaller microbatches"),
    ],
)
def test_what_takes_more_than_half_is_named_with_what_makes_it_less(activations, most, lever):
    plan = SimpleNamespace(
        tensor=2, pipeline=1, data=1, expert=1, context=1, layers_per_stage=3, microbatch_size=2,
        recompute=Recompute.NONE, has_ends=False,
    )  # fmt: skip
    room = SimpleNamespace(
        workload=SimpleNamespace(training=False, experts=1),
        arrays=SimpleNamespace(),
        rules=SimpleNamespace(
            memory=SimpleNamespace(keeps_activations=False),
            collectives=SimpleNamespace(shares_sequences=False),
        ),
    )
    where, levers = Room.lack(room, plan, SimpleNamespace(activations=activations, total=10.0))
    assert where.endswith(f"most of it {most},")
    assert any(each.startswith(lever) for each in levers)


def test_logits_of_a_long_sequence_are_named_where_they_take_most():
    job = job_named("llama3-8b", batch=2, sequence=1_000_000)
    with pytest.raises(InfeasibleError) as caught:
        search(job.workload, system_on("h100-dgx", chips=8), Constraints(), RULES, work_limit=1e4)
    assert "most of it logits and their gradients" in caught.value.where


def a_state(capacity: float = 80e9, **given: object) -> SearchState:
    """Two layers of a small model on eight chips, with so much memory each. [B]"""
    few = replace(transformer("llama3-8b"), layers=2)
    graph = graphs.training(few, sequence=128, batch=8)
    system = system_on("h100-dgx", chips=8)
    system = replace(system, chip=system.chip.with_memory(capacity=capacity))
    workload = workload_of(graph, block="layers", items="batch")
    return search_state(workload, system, Constraints(**given), RULES)


def a_plan(state: SearchState, recompute: Recompute = Recompute.NONE) -> MeshPlan:
    plan = make_plan(state.workload, state.system, (8,), (Parallelism.TENSOR,), 2, RULES, (0,))
    assert plan is not None
    return with_recompute(plan, state.arrays, recompute)


def memory_of(state: SearchState, plan: MeshPlan, codes: list[int]) -> CopyMemory:
    """What a copy takes where every kernel has its choice of ``codes``."""
    columns = {name: getattr(state.table(plan, 1), name)[codes] for name in COPY_COLUMNS}
    return copy_memory(state.workload, state.arrays, plan, RULES, **columns)


def by_hand(
    state: SearchState, plan: MeshPlan, name: str, pick: Callable[..., float], tiles: int = 1
) -> list[float]:
    """The least or the most of a column of every kernel, looked for among its own choices."""
    column = getattr(state.table(plan, tiles), name).tolist()
    return [pick(column[code] for code in codes) for codes in state.index.domains()]


@pytest.mark.parametrize("recompute", list(Recompute))
@pytest.mark.parametrize("most", [False, True])
def test_the_least_and_the_most_are_those_of_the_choices_of_every_kernel(recompute, most):
    state = a_state()
    plan, pick = a_plan(state, recompute), max if most else min
    found = state.room._memory(plan, most=most)
    columns = {name: np.array(by_hand(state, plan, name, pick)) for name in COPY_COLUMNS}
    hand = copy_memory(state.workload, state.arrays, plan, RULES, **columns)
    for row in fields(CopyMemory):
        assert getattr(found, row.name).tolist() == getattr(hand, row.name).tolist(), row.name


def test_the_least_is_less_than_the_most_of_what_can_be_whole_on_each_chip():
    state = a_state()
    plan = a_plan(state, Recompute.FULL)
    least, most = (state.room._memory(plan, most=most) for most in (False, True))
    assert (least.kept <= most.kept).all()
    assert least.kept.sum() < most.kept.sum()
    assert state.room.lightest(plan) is not least
    assert state.room.lightest(plan).kept.tolist() == least.kept.tolist()


@pytest.mark.parametrize("recompute", list(Recompute))
def test_every_choice_takes_no_less_than_the_least_and_no_more_than_the_most(recompute):
    state = a_state()
    plan = a_plan(state, recompute)
    least, most = (
        float(static_size(state.workload, plan, state.room._memory(plan, most=most)))
        for most in (False, True)
    )
    rng = random.Random(0)
    for _ in range(20):
        codes = [rng.choice(codes) for codes in state.index.domains()]
        size = float(static_size(state.workload, plan, memory_of(state, plan, codes)))
        assert least * (1 - 1e-12) <= size <= most * (1 + 1e-12)


def test_what_is_given_of_a_kernel_is_its_least_and_its_most():
    free = a_state()
    plan = a_plan(free)
    least, most = (free.room._memory(plan, most=most).kept for most in (False, True))
    kernel = int((most - least).argmax())
    codes = list(free.index.domains()[kernel])
    for pick, value in ((np.argmin, least), (np.argmax, most)):
        place = int(pick(free.table(plan, 1).kept[codes]))
        axis = axis_names(free.arrays, kernel)[free.index.axes(kernel)[place]]
        state = a_state(sharding=((free.arrays.names[kernel], axis),))
        some = (state.room._memory(a_plan(state), most=most).kept for most in (False, True))
        assert [kept[kernel] for kept in some] == [value[kernel]] * 2
    assert least[kernel] < most[kernel]


def test_a_plan_always_fits_from_the_capacity_that_holds_the_most():
    """All that stays at most, with every tensor between kernels of both sequences there at once."""
    state = a_state()
    plan = a_plan(state)
    kept = kept_tensors(state.arrays).output
    made = [
        np.array(by_hand(state, plan, "output_total", max, tiles))[~kept].sum()
        for tiles in (1, state.workload.sequence_length)
    ]
    most = state.room._memory(plan, most=True)
    needed = float(static_size(state.workload, plan, most)) + plan.microbatch_size * sum(made)
    assert a_state(needed * 1.001).room.always_fits(plan)
    assert not a_state(needed * 0.999).room.always_fits(plan)


@pytest.mark.parametrize("schedule", [Schedule.ONE_F_ONE_B, Schedule.ZB_H1, Schedule.DUALPIPE])
@pytest.mark.parametrize("recompute", [Recompute.NONE, Recompute.FULL])
def test_choices_take_no_less_than_the_line_of_what_they_keep(schedule, recompute):
    """A chip of a pipeline of four under choices, beside the least and how that grows."""
    few = replace(transformer("llama3-8b"), layers=8)
    graph = graphs.training(few, sequence=128, batch=32)
    system = system_on("h100-dgx", chips=8)
    workload = workload_of(graph, block="layers", items="batch")
    state = search_state(workload, system, Constraints(), RULES)
    uses = (Parallelism.TENSOR, Parallelism.PIPELINE)
    plan = make_plan(workload, system, (2, 4), uses, 2, RULES, (0, 0))
    plan = replace(with_recompute(plan, state.arrays, recompute), schedule=schedule)
    least = state.room._memory(plan, most=False)
    line = kept_slopes(workload, plan, least)
    assert line.least == pytest.approx(float(static_size(workload, plan, least)), rel=1e-12)
    rng, grown = random.Random(1), 0
    for _ in range(20):
        codes = [rng.choice(codes) for codes in state.index.domains()]
        own = memory_of(state, plan, codes)
        kept, again = (
            float((getattr(own, row) - getattr(least, row)).sum()) for row in ("kept", "again")
        )
        size = float(static_size(workload, plan, own))
        assert size >= (line.least + line.kept * kept + line.again * again) * (1 - 1e-12)
        grown += line.kept * kept + line.again * again > 0
    assert grown
