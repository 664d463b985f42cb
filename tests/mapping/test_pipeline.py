"""Pipeline stages against brute force, closed cases, and what must hold of any assignment."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstack.chip.chip import Overlap
from crosstack.errors import InfeasibleError, InputError
from crosstack.mapping.mapping import Status
from crosstack.mapping.pipeline import (
    StageProblem,
    Stages,
    kernels_to_stages,
    layers_to_stages,
    make_stage_problem,
)
from crosstack.model.iteration import iteration
from crosstack.model.plan import make_plan
from crosstack.model.rules import ModelRules
from crosstack.system.system import Memory, Parallelism, System
from crosstack.workload.graph import Consumer, DataflowGraph, Kernel, Tensor
from crosstack.workload.llm import llm, llm_forward, llm_training

TOLERANCE = 1e-9
OVERLAPS = (Overlap.ALL, Overlap.NONE, Overlap.COMPUTE_MEMORY)
Graphs = Callable[..., DataflowGraph]


# ---------------------------------------------------------------- slow, obvious answers


def slow_stage_times(
    problem: StageProblem, stages: Sequence[int], n_stages: int
) -> tuple[list[float], list[float]]:
    """Time [s] and memory [B] of every stage, from the sentences that open the module."""
    times, memory = [], []
    for p in range(n_stages):
        held = [i for i in range(len(stages)) if stages[i] == p]
        work = math.fsum(float(problem.times[i]) for i in held)
        sent = math.fsum(
            flow.total
            for flow in problem.flows
            if stages[flow.producer] <= p < max(stages[reader] for reader, _ in flow.readers)
        )
        times.append(max(work, sent) if problem.overlap is Overlap.ALL else work + sent)
        memory.append(math.fsum(float(problem.memory[i]) for i in held))
    return times, memory


def forward(problem: StageProblem, stages: Sequence[int]) -> bool:
    return all(
        stages[j] <= stages[i]
        for i, mask in enumerate(problem.preds)
        for j in range(len(stages))
        if mask >> j & 1
    )


def assignments(problem: StageProblem) -> Iterator[float]:
    """Slowest stage of every assignment that fits, stages without kernels included. [s]"""
    for stages in itertools.product(range(problem.n_stages), repeat=len(problem.times)):
        if forward(problem, stages):
            times, memory = slow_stage_times(problem, stages, problem.n_stages)
            if max(memory) <= problem.capacity * (1 + 1e-12):
                yield max(times)


def check_result(problem: StageProblem, result: Stages) -> None:
    """The record says what the assignment costs, and the assignment keeps every constraint."""
    assert forward(problem, result.stages)
    assert sorted(set(result.stages)) == list(range(result.n_stages))
    assert result.n_stages <= problem.n_stages
    times, memory = slow_stage_times(problem, result.stages, result.n_stages)
    assert result.slowest == pytest.approx(max(times), rel=TOLERANCE, abs=1e-12)
    assert result.memory == pytest.approx(memory, rel=TOLERANCE)
    assert max(result.memory) <= problem.capacity * (1 + 1e-9)
    assert result.bound <= result.slowest


@pytest.fixture(scope="session")
def random_problem(a_graph: Graphs) -> Callable[..., StageProblem]:
    """Return a builder of problems of a few kernels, some of no work, some tensors of no size."""

    def build(seed: int, most_kernels: int = 6, **changes: Any) -> StageProblem:
        rng = random.Random(seed)
        n = rng.randint(1, most_kernels)
        dense = rng.choice([0.1, 0.3, 0.6])
        names = rng.sample(range(n), n)  # listing order is not topological
        pairs = itertools.combinations(range(n), 2)
        graph = a_graph(n, [(names[i], names[j]) for i, j in pairs if rng.random() < dense])
        scale = rng.choice([0.1, 1.0, 4.0])
        values: dict[str, Any] = {
            "n_stages": rng.randint(1, 3),
            "memory": [rng.choice([0.0, 1.0, 2.0, 5.0]) for _ in range(n)],
            "capacity": rng.choice([None, None, 4.0, 7.0]),
            "overlap": rng.choice(OVERLAPS),
            "fan_out_copies": rng.random() < 0.2,
        }
        return make_stage_problem(
            graph,
            [rng.choice([0.0, 1.0, rng.uniform(0.1, 3)]) for _ in range(n)],
            [scale * rng.choice([0.0, 1.0, rng.random()]) for _ in graph.tensors],
            **{**values, **changes},
        )

    return build


# ---------------------------------------------------------------- chains


def slow_split(
    times: Sequence[float],
    transfers: Sequence[float],
    memory: Sequence[float],
    n_stages: int,
    capacity: float,
    overlap: Overlap,
) -> float:
    """Least slowest stage over every way to cut the chain, infinite if none fits. [s]"""
    n, best = len(times), math.inf
    for parts in range(1, min(n, n_stages) + 1):
        for cuts in itertools.combinations(range(1, n), parts - 1):
            ends = [0, *cuts, n]
            slowest = 0.0
            for start, end in itertools.pairwise(ends):
                work = math.fsum(times[start:end])
                sent = transfers[end - 1] if end < n else 0.0
                taken = max(work, sent) if overlap is Overlap.ALL else work + sent
                fits = math.fsum(memory[start:end]) <= capacity * (1 + 1e-12)
                slowest = max(slowest, taken if fits else math.inf)
            best = min(best, slowest)
    return best


@given(
    layers=st.lists(
        st.tuples(
            st.floats(0, 10, allow_subnormal=False),
            st.floats(0, 10, allow_subnormal=False),
            st.integers(0, 5),
        ),
        min_size=1,
        max_size=8,
    ),
    n_stages=st.integers(1, 6),
    capacity=st.one_of(st.none(), st.integers(1, 15)),
    overlap=st.sampled_from(OVERLAPS),
)
def test_split_of_a_chain_equals_brute_force(
    layers: list[tuple[float, float, int]],
    n_stages: int,
    capacity: int | None,
    overlap: Overlap,
) -> None:
    times, sent, memory = zip(*layers, strict=True)
    limit = math.inf if capacity is None else float(capacity)
    best = slow_split(times, sent[:-1], memory, n_stages, limit, overlap)
    ask = {"n_stages": n_stages, "memory": memory, "capacity": capacity, "overlap": overlap}
    if math.isinf(best):
        with pytest.raises(InfeasibleError, match="main memory"):
            layers_to_stages(times, sent[:-1], **ask)
        return
    result = layers_to_stages(times, sent[:-1], **ask)
    assert result.slowest == pytest.approx(best, rel=TOLERANCE, abs=1e-12)
    assert result.status is Status.OPTIMAL
    assert result.gap == 0
    assert result.boundaries[0] == 0
    assert result.boundaries[-1] == len(times)
    assert list(result.stages) == sorted(result.stages)


def test_equal_layers_split_evenly() -> None:
    result = layers_to_stages([2.0] * 12, [0.0] * 11, n_stages=4)
    assert result.boundaries == (0, 3, 6, 9, 12)
    assert result.slowest == 6.0


def test_transfer_hides_behind_work_only_where_everything_overlaps() -> None:
    hidden = layers_to_stages([1.0, 1.0], [0.5], n_stages=2)
    added = layers_to_stages([1.0, 1.0], [0.5], n_stages=2, overlap=Overlap.NONE)
    assert hidden.slowest == 1.0
    assert added.slowest == 1.5


def test_a_border_that_costs_more_than_the_work_is_avoided() -> None:
    # Cutting in the middle would balance the work, but sends for 10 s.
    result = layers_to_stages([1.0] * 4, [0.0, 10.0, 0.0], n_stages=2)
    assert result.slowest == 3.0
    assert layers_to_stages([1.0, 1.0], [10.0], n_stages=2).n_stages == 1


def test_one_stage_takes_all_work_and_sends_nothing() -> None:
    result = layers_to_stages([1.0, 2.0, 3.0], [9.0, 9.0], n_stages=1, overlap=Overlap.NONE)
    assert result.slowest == 6.0
    assert result.transfer == (0.0,)


def test_iteration_time_has_the_bubble() -> None:
    result = layers_to_stages([1.0] * 8, [0.0] * 7, n_stages=4)
    assert result.iteration_time(1) == 8.0  # one microbatch: every stage in turn
    assert result.iteration_time(100) == 2.0 * 103
    assert result.iteration_time(100, n_virtual=2) == 2.0 * 101.5


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_equal_layers_take_as_long_as_the_evaluator_says(
    a_chip: Callable[..., Any], a_dimension: Callable[..., Any], overlap: Overlap
) -> None:
    workload = llm(
        hidden=64, sequence_length=16, n_heads=4, head_size=16, n_layers=12, global_batch_size=8
    )
    system = System(
        chip=a_chip(overlap=overlap),
        memory=Memory(bandwidth=100e9),
        network=(a_dimension(size=4, parallelism=Parallelism.PIPELINE),),
        n_chips=4,
    )
    rules = ModelRules.crosstack()
    plan = make_plan(workload, system, (4,), (Parallelism.PIPELINE,), 2, rules)
    assert plan is not None
    expected = iteration(plan, 1e-6, overlap, rules)
    sent = plan.stage_transfer.fixed + plan.stage_transfer.per_byte * plan.microbatch_size
    times = [1e-6 * plan.microbatch_size] * workload.n_layers
    result = layers_to_stages(times, [sent] * 11, n_stages=4, overlap=overlap)
    virtual = max(plan.layers_per_stage - 1, 1)
    assert result.slowest == pytest.approx(expected.stage_time, rel=TOLERANCE)
    found = result.iteration_time(plan.n_microbatches, n_virtual=virtual)
    assert found == pytest.approx(expected.time, rel=TOLERANCE)


def test_a_thousand_layers_over_a_hundred_stages_take_a_fifth_of_a_second() -> None:
    rng = random.Random(5)
    times = [rng.uniform(0.5, 2) for _ in range(1000)]
    transfers = [rng.uniform(0, 20) for _ in range(999)]
    memory = [rng.uniform(0, 1) for _ in range(1000)]
    taken = []
    for _ in range(3):
        started = time.perf_counter()
        result = layers_to_stages(times, transfers, n_stages=100, memory=memory, capacity=8.0)
        taken.append(time.perf_counter() - started)
    assert result.n_stages <= 100
    assert min(taken) < 0.2


# ---------------------------------------------------------------- graphs


@pytest.mark.parametrize("seed", range(250))
def test_stages_of_a_graph_equal_brute_force(
    random_problem: Callable[..., StageProblem], seed: int
) -> None:
    problem = random_problem(seed)
    best = min(assignments(problem), default=math.inf)
    if math.isinf(best):
        with pytest.raises(InfeasibleError, match="main memory"):
            kernels_to_stages(problem)
        return
    result = kernels_to_stages(problem)
    check_result(problem, result)
    assert result.status is Status.OPTIMAL
    assert result.slowest == pytest.approx(best, rel=TOLERANCE, abs=1e-12)
    assert result.bound == result.slowest


@pytest.mark.parametrize("seed", range(120))
def test_bound_holds_and_is_not_called_a_proof_where_ideals_are_too_many(
    random_problem: Callable[..., StageProblem], seed: int
) -> None:
    problem = random_problem(seed)
    best = min(assignments(problem), default=math.inf)
    try:
        result = kernels_to_stages(problem, most_ideals=4)
    except InfeasibleError:
        assert math.isinf(best)
        return
    assert result.bound <= best * (1 + TOLERANCE)
    if result.stages:
        check_result(problem, result)
        assert result.slowest >= best * (1 - TOLERANCE)
        if result.status is Status.OPTIMAL:
            assert result.slowest == pytest.approx(best, rel=TOLERANCE)
    else:
        assert result.status is Status.LIMIT
        assert result.gap == 1.0


@pytest.mark.parametrize("seed", range(40))
def test_more_stages_or_more_memory_are_never_slower(
    random_problem: Callable[..., StageProblem], seed: int
) -> None:
    def slowest(**changes: Any) -> float:
        try:
            return kernels_to_stages(random_problem(seed, 10, **changes)).slowest
        except InfeasibleError:
            return math.inf

    by_stages = [slowest(n_stages=p) for p in range(1, 8)]
    by_memory = [slowest(capacity=c, n_stages=3) for c in (3.0, 6.0, 12.0, None)]
    for worse, better in (*itertools.pairwise(by_stages), *itertools.pairwise(by_memory)):
        assert better <= worse * (1 + TOLERANCE)


@pytest.mark.parametrize("seed", range(20))
def test_no_random_assignment_beats_the_optimum(
    random_problem: Callable[..., StageProblem], seed: int
) -> None:
    problem = random_problem(seed, 14, n_stages=4, capacity=None)
    result = kernels_to_stages(problem)
    assert result.status is Status.OPTIMAL
    rng, n = random.Random(seed), len(problem.times)
    for _ in range(200):
        stages, done = [0] * n, 0
        for _ in range(n):  # a random topological order, each kernel no earlier than its inputs
            ready = [i for i in range(n) if not done >> i & 1 and not problem.preds[i] & ~done]
            i = rng.choice(ready)
            first = max((stages[j] for j in range(n) if problem.preds[i] >> j & 1), default=0)
            stages[i], done = rng.randint(first, min(3, first + 1)), done | 1 << i
        assert max(slow_stage_times(problem, stages, 4)[0]) >= result.slowest * (1 - TOLERANCE)


@pytest.mark.parametrize("seed", range(20))
def test_a_chain_as_a_graph_is_split_like_a_chain(a_graph: Graphs, seed: int) -> None:
    rng = random.Random(seed)
    n = rng.randint(2, 30)
    times = [rng.uniform(0, 2) for _ in range(n)]
    sent = [rng.uniform(0, 6) for _ in range(n - 1)]
    overlap, stages = rng.choice(OVERLAPS), rng.randint(1, 8)
    graph = a_graph(n, list(itertools.pairwise(range(n))))
    by_graph = kernels_to_stages(
        make_stage_problem(graph, times, sent, n_stages=stages, overlap=overlap)
    )
    by_chain = layers_to_stages(times, sent, n_stages=stages, overlap=overlap)
    assert by_graph.slowest == pytest.approx(by_chain.slowest, rel=TOLERANCE)


def test_a_tensor_is_sent_over_every_border_it_crosses(a_graph: Graphs) -> None:
    # 0 -> 1 -> 2 of 4 s each, and a tensor of 3 s that 0 makes for 2 as well: stages 0 and 1 both
    # send it, so each takes 4 + 3 s.
    graph = a_graph(3, [(0, 1), (0, 2), (1, 2)])
    ask: dict[str, Any] = {"n_stages": 3, "overlap": Overlap.NONE}
    result = kernels_to_stages(make_stage_problem(graph, [4.0] * 3, [3.0, 0.0], **ask))
    assert result.stages == (0, 1, 2)
    assert result.transfer == (3.0, 3.0, 0.0)
    assert result.slowest == 7.0
    # A copy per reader: the first border sees both, 4 + 3 + 3 s.
    copies = make_stage_problem(graph, [4.0] * 3, [3.0, 0.0], fan_out_copies=True, **ask)
    assert kernels_to_stages(copies).slowest == 10.0


def test_readers_of_one_stage_share_a_transfer(a_graph: Graphs) -> None:
    graph = a_graph(3, [(0, 1), (0, 2)])
    ask: dict[str, Any] = {"n_stages": 2, "overlap": Overlap.NONE}
    once = make_stage_problem(graph, [4.0, 2.0, 2.0], [1.0], **ask)
    twice = make_stage_problem(graph, [4.0, 2.0, 2.0], [1.0], fan_out_copies=True, **ask)
    assert kernels_to_stages(once).slowest == 5.0
    assert kernels_to_stages(twice).slowest == 6.0


def test_elided_connections_order_kernels_and_are_never_sent(
    a_kernel: Callable[..., Kernel],
) -> None:
    tensor = Tensor(producer="b", consumers=(Consumer(kernel="a", elided=True),), size=8.0)
    graph = DataflowGraph(kernels=(a_kernel("a"), a_kernel("b")), tensors=(tensor,), word=2)
    result = kernels_to_stages(make_stage_problem(graph, [1.0, 1.0], [9.0], n_stages=2))
    assert result.stages == (1, 0)
    assert result.slowest == 1.0


@pytest.mark.parametrize("n_stages", [2, 4])
def test_four_equal_gpt_layers_fill_stages_whole(n_stages: int) -> None:
    graph = llm_forward(
        hidden=12288, sequence_length=2048, n_heads=96, head_size=128, layers_in_graph=4
    )
    times = [kernel.work / 300e12 for kernel in graph.kernels]
    result = kernels_to_stages(
        make_stage_problem(graph, times, [0.0] * len(graph.tensors), n_stages=n_stages)
    )
    layers = [int(kernel.name.rsplit("_", 1)[1]) for kernel in graph.kernels]
    assert list(result.stages) == [layer * n_stages // 4 for layer in layers]
    assert result.status is Status.OPTIMAL
    assert result.slowest == pytest.approx(sum(times) / n_stages, rel=TOLERANCE)


def test_a_training_layer_is_proved() -> None:
    graph = llm_training(hidden=12288, sequence_length=2048, n_heads=96, head_size=128)
    problem = make_stage_problem(
        graph,
        [kernel.work / 300e12 for kernel in graph.kernels],
        [tensor.size / 25e9 for tensor in graph.tensors],
        n_stages=4,
        memory=[kernel.weight_size for kernel in graph.kernels],
        overlap=Overlap.NONE,
    )
    result = kernels_to_stages(problem)
    check_result(problem, result)
    assert result.status is Status.OPTIMAL


def test_a_graph_of_too_many_ideals_has_a_bound_and_a_gap() -> None:
    graph = llm_training(
        hidden=12288, sequence_length=2048, n_heads=96, head_size=128, layers_in_graph=2
    )
    problem = make_stage_problem(
        graph,
        [kernel.work / 300e12 for kernel in graph.kernels],
        [tensor.size / 450e9 for tensor in graph.tensors],
        n_stages=4,
        overlap=Overlap.NONE,
    )
    result = kernels_to_stages(problem)
    check_result(problem, result)
    assert result.status is Status.FEASIBLE
    assert 0 < result.gap < 0.15


def test_a_deadline_leaves_the_incumbent_and_says_so() -> None:
    graph = llm_training(hidden=12288, sequence_length=2048, n_heads=96, head_size=128)
    problem = make_stage_problem(
        graph,
        [kernel.work for kernel in graph.kernels],
        [0.0] * len(graph.tensors),
        n_stages=6,
    )
    late = kernels_to_stages(problem, deadline=0.0)
    check_result(problem, late)
    assert late.status is Status.LIMIT
    assert late.bound <= kernels_to_stages(problem).slowest <= late.slowest


# ---------------------------------------------------------------- what does not fit


def test_a_layer_that_fills_more_than_a_chip_is_named() -> None:
    with pytest.raises(InfeasibleError, match="main memory: layer 1 alone") as caught:
        layers_to_stages([1.0] * 3, [0.0] * 2, n_stages=3, memory=[1.0, 8.0, 1.0], capacity=5.0)
    assert (caught.value.demand, caught.value.limit) == (8.0, 5.0)


def test_the_demand_named_is_the_least_memory_that_would_do(a_graph: Graphs) -> None:
    # 4 + 4 + 4 over two stages: one of them holds 8.
    memory = [4.0] * 3
    with pytest.raises(InfeasibleError, match="main memory.*more pipeline stages") as caught:
        layers_to_stages([1.0] * 3, [0.0] * 2, n_stages=2, memory=memory, capacity=7.0)
    assert caught.value.demand == 8.0
    graph = a_graph(3, [(0, 1), (0, 2)])
    ask: dict[str, Any] = {"n_stages": 2, "memory": memory}
    with pytest.raises(InfeasibleError, match="main memory") as caught:
        kernels_to_stages(make_stage_problem(graph, [1.0] * 3, [0.0], capacity=7.0, **ask))
    assert caught.value.demand == 8.0
    fits = make_stage_problem(graph, [1.0] * 3, [0.0], capacity=8.0, **ask)
    assert max(kernels_to_stages(fits).memory) == 8.0


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"times": [1.0, -1.0]}, r"times\[1\]"),
        ({"times": [1.0, math.nan]}, r"times\[1\]"),
        ({"times": []}, "times"),
        ({"transfers": []}, "transfers"),
        ({"transfers": [math.inf]}, r"transfers\[0\]"),
        ({"n_stages": 0}, "n_stages"),
        ({"memory": [1.0]}, "memory"),
        ({"capacity": -1.0}, "capacity"),
    ],
)
def test_bad_numbers_are_refused(changes: dict[str, Any], field: str) -> None:
    ask: dict[str, Any] = {"times": [1.0, 1.0], "transfers": [0.0], "n_stages": 2, **changes}
    with pytest.raises(InputError, match=field):
        layers_to_stages(ask.pop("times"), ask.pop("transfers"), **ask)
