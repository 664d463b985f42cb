"""What holds of any strategy: better machines are never slower, special cases meet each other."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from builders.examples import fewer
from hypothesis import given
from hypothesis import strategies as st

from crosstack.errors import InputError
from crosstack.evaluate.blocks import BlockTable
from crosstack.evaluate.plan import given_plan
from crosstack.evaluate.strategy_times import mapping_of, strategy_times
from crosstack.evaluate.time import evaluate
from crosstack.evaluate.timeline import stages_of, timeline_of
from crosstack.io.library.machines import system_on
from crosstack.machine.system import Dimension, DimensionKind, System
from crosstack.mapping.degrees import Degrees
from crosstack.mapping.mapping import Constraints, Mapping, Task
from crosstack.mapping.search import search
from crosstack.mapping.strategies import Strategies, all_strategies
from crosstack.model.rules import rules_named
from crosstack.workload.architectures import Experts, Transformer, graphs
from crosstack.workload.dtype import Dtype
from crosstack.workload.graph_workload import workload_of
from crosstack.workload.kernel_graph import KernelGraph
from crosstack.workload.passes.dispatched import dispatched
from crosstack.workload.transformer_training import Hidden, Offload, Recompute, Schedule, Zero
from crosstack.workload.workload import Workload

RULES = rules_named("crosstack")
DENSE = Transformer(
    hidden=512, layers=4, heads=8, kv_heads=8, head_size=64, feed_forward=2048, vocabulary=1024,
    context=256,
)  # fmt: skip
MIXTURE = replace(DENSE, experts=Experts(count=4, active=2, feed_forward=1024))
MODELS = {"dense": DENSE, "mixture": MIXTURE, "sent": MIXTURE}  # tokens, in FP8, to experts
AWAY = [
    (Offload.OPTIMIZER,), (Offload.STATE,), (Offload.ACTIVATIONS,),
    (Offload.OPTIMIZER, Offload.ACTIVATIONS),
]  # fmt: skip
BETTER = ("capacity", "memory", "network", "clock")


@cache
def trained(model: str = "dense", batch: int = 16, *, ends: bool = True) -> Workload:
    """A few layers of a small model, forward and backward."""
    graph = graphs.training(MODELS[model], sequence=256, batch=batch)
    graph = dispatched(graph, Dtype.FP8) if model == "sent" else graph
    return workload_of(graph, block="" if ends else "layers", items="batch", name=model)


@cache
def machine(chips: int = 8) -> System:
    """H100 in two servers of four, or less."""
    system = system_on("h100-dgx", chips=8)
    inside = Dimension(kind=DimensionKind.SWITCH, bandwidth=4.5e11, latency=1e-6)
    across = Dimension(kind=DimensionKind.SWITCH, bandwidth=5e10, latency=5e-6)
    return replace(system, network=(inside, across)[: 1 + (chips > 4)], n_chips=chips)


@cache
def drawn(
    model: str, hidden: tuple[Hidden, ...] | None, ends: bool, cut: int | None
) -> tuple[Strategies, BlockTable]:
    """All strategies of a model on eight chips, by every schedule; ``cut``: chips of an expert."""
    workload = trained(model, ends=ends)
    degrees = Degrees(expert_tensor=cut)
    said = Constraints(overlap=hidden, kernel_by_kernel=True, degrees=degrees)
    strategies = all_strategies(workload, machine(), RULES, said, orders=tuple(Schedule))
    return strategies, BlockTable(
        workload=workload, system=machine(), rules=RULES, constraints=said, work_limit=1e2
    )


def any_mapping(data: st.DataObject, *, ends: bool = True) -> tuple[Task, Mapping]:
    """A mapping of a strategy that is drawn, with the task that it is of."""
    model = data.draw(st.sampled_from(sorted(MODELS)))
    hidden = data.draw(st.sampled_from([None, (), (Hidden.GRADIENTS, Hidden.SENDS)]))
    cut = None if model == "dense" else data.draw(st.sampled_from([None, 1, 2, 4]))
    strategies, table = drawn(model, hidden, ends, cut)
    i = data.draw(st.integers(0, len(strategies) - 1))
    one = strategies.at(np.array([i]))
    strategy_times(one, table)
    mapping = mapping_of(one, 0, table)
    assert mapping is not None
    task = Task(workload=table.workload, system=table.system)
    change = data.draw(
        st.fixed_dictionaries({"recompute_layers": st.integers(1, 3)})
        | st.fixed_dictionaries({"offload": st.sampled_from(AWAY)})
        | st.just({})
    )
    with contextlib.suppress(InputError):  # more layers than a stage has, all that is kept
        changed = replace(mapping, **change)
        evaluate(task.workload, task.system, changed, RULES)
        mapping = changed
    return task, mapping


def better(system: System, what: str, factor: float) -> System:
    """The machine with so much more of something."""
    chip, memory = system.chip, system.chip.main_memory
    match what:
        case "capacity":
            chip = chip.with_memory(capacity=factor * memory.capacity)
        case "memory":
            chip = chip.with_memory(bandwidth=factor * memory.bandwidth)
        case "clock":
            chip = chip.with_compute(frequency=factor * chip.compute.frequency)
        case _:
            wide = (replace(d, bandwidth=factor * d.bandwidth) for d in system.network)
            return replace(system, network=tuple(wide))
    return replace(system, chip=chip)


class TestBetterMachines:
    @fewer(0.1)
    @given(data=st.data(), what=st.sampled_from(BETTER), factor=st.floats(1.0, 8.0))
    def test_a_given_mapping_is_never_slower(self, data, what, factor):
        task, mapping = any_mapping(data)
        plain = evaluate(task.workload, task.system, mapping, RULES).time
        system = better(task.system, what, factor)
        assert evaluate(task.workload, system, mapping, RULES).time <= plain * (1 + 1e-12)

    @pytest.mark.slow
    @pytest.mark.parametrize("what", BETTER)
    @pytest.mark.parametrize("model", ["dense", pytest.param("mixture", marks=pytest.mark.slow)])
    def test_the_best_mapping_is_never_slower(self, model, what):
        workload, one_by_one = trained(model, 8, ends=False), Constraints(kernel_by_kernel=True)
        times = []
        for factor in (1.0, 2.0):
            system = better(machine(4), what, factor)
            _, found = search(workload, system, one_by_one, RULES, work_limit=3e4)
            times.append((found.objective, found.bound))
        for (slow, _), (fast, bound) in pairwise(times):
            assert bound <= slow * (1 + 1e-9)
            assert fast <= slow * (1 + 1e-6)


class TestEvents:
    @fewer(0.1)
    @given(data=st.data(), ends=st.booleans())
    def test_a_step_takes_as_long_as_its_events(self, data, ends):
        task, mapping = any_mapping(data, ends=ends)
        plan = given_plan(task, mapping, RULES)
        timeline = timeline_of(plan, stages_of(plan))
        assert timeline.makespan == pytest.approx(plan.evaluation.time, rel=1e-9)


# ---------------------------------------------------------------- what meets what


def plain(system: System) -> System:
    """The machine with links that take no time but for their bytes."""
    return replace(system, network=tuple(replace(d, latency=0.0) for d in system.network))


def priced(workload: Workload, system: System, **said: object) -> tuple[Mapping, float, float]:
    """A mapping with what is given, its step, and the time of one layer of a sequence. [s]"""
    given = Constraints(recompute=Recompute.NONE, overlap=(), **said)
    mapping, _ = search(workload, system, given, RULES, work_limit=1e4)
    found = evaluate(workload, system, mapping, RULES)
    return mapping, found.time, found.layer_time


def layer_bytes() -> float:
    """Weights of a layer, of 2 bytes: 4 h h of attention, 3 h f, and two norms of h. [B]"""
    h, f = DENSE.hidden, DENSE.feed_forward
    return 2.0 * (4 * h * h + 3 * h * f)


def exchanged(size: float, share: float) -> float:
    """Time of one message by hand: what arrives, by links and three times by memory. [s]"""
    chip = machine().chip
    arrives = share * size
    moved = arrives / 4.5e11 + 3 * arrives / chip.main_memory.speed
    return moved + chip.launch_overhead + chip.main_memory.latency


def test_fsdp_on_one_node_gathers_every_layer_twice_a_microbatch_and_scatters_once():
    workload, system = trained(batch=16, ends=False), plain(machine(4))
    common = {"degrees": Degrees(data=4), "microbatch_size": 2}
    _, alone, layer = priced(workload, system, zero=Zero.NONE, **common)
    _, shared, again = priced(workload, system, zero=Zero.WEIGHTS, **common)
    assert again == pytest.approx(layer, rel=1e-12)  # the same kernels
    layers, microbatches, size = DENSE.layers, 16 // 4 // 2, layer_bytes()
    # An all-gather brings three of four shares of a layer, as a reduce-scatter does.
    sent = layers * microbatches * 3 * exchanged(size, 3 / 4)
    # All-reduces of all layers are one message, twice as long.
    summed = exchanged(layers * size, 2 * 3 / 4)
    # Each of four chips updates a quarter: of 54 B a weight, at the speed of main memory.
    update = 3 / 4 * 54 * (layers * size / 2) / system.chip.main_memory.speed
    assert shared == pytest.approx(alone - summed - update + sent, rel=2e-3)  # norms besides
    assert sent > 0.1 * shared


@pytest.mark.parametrize("n", [2, 4])
def test_replicas_take_what_one_chip_takes_and_the_sums_of_gradients(n):
    alone = trained(batch=4, ends=False)
    _, one, _ = priced(alone, plain(machine(1)), microbatch_size=2, zero=Zero.NONE)
    workload, system = trained(batch=4 * n, ends=False), plain(machine(n))
    given = {"degrees": Degrees(data=n), "microbatch_size": 2, "zero": Zero.NONE}
    _, many, _ = priced(workload, system, **given)
    summed = exchanged(DENSE.layers * layer_bytes(), 2 * (n - 1) / n)
    assert many - one == pytest.approx(summed, rel=2e-3)  # of norms besides


def products(graph: KernelGraph) -> list[tuple[int, ...]]:
    """Sides of all products of matrices, in order of size. [1]"""
    sides = zip(graph.outer, graph.m, graph.k, graph.columns, strict=True)
    of_matrices = zip(sides, graph.gemm.tolist(), strict=True)
    return sorted(tuple(map(int, each)) for each, gemm in of_matrices if gemm)


@pytest.mark.slow
def test_a_mixture_of_one_expert_multiplies_what_a_dense_model_does_and_its_router():
    one = replace(DENSE, experts=Experts(count=1, active=1, feed_forward=DENSE.feed_forward))
    dense, mixture = (
        workload_of(graphs.training(model, sequence=256, batch=4), block=block, items="batch")
        for model, block in ((DENSE, "layers"), (one, "layers"))
    )
    router = DENSE.hidden  # one score of every token
    more = mixture.graph.parameters.sum() - dense.graph.parameters.sum()
    assert more == 2 * router  # each weight is read forward and backward
    left = products(mixture.graph)
    for sides in products(dense.graph):
        left.remove(sides)
    work = sum(2 * a * b * c * d for a, b, c, d in left)
    assert work <= 3 * 2 * 256 * router
    system = machine(1)
    _, with_router, _ = priced(mixture, system, microbatch_size=1)
    _, without, _ = priced(dense, system, microbatch_size=1)
    assert without < with_router < 2 * without
