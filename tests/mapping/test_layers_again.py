"""Layers of a stage that compute again what others keep: by hand, and the best of all mappings."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import cache

import pytest
from builders.graphs import product_and_function

from crosstack.errors import InfeasibleError, InputError
from crosstack.evaluate.evaluation import Evaluation
from crosstack.evaluate.plan import given_plan
from crosstack.evaluate.time import evaluate, mapped_plan
from crosstack.evaluate.timeline import stages_of, timeline_of
from crosstack.machine.chip import Execution, Overlap, flat_chip
from crosstack.machine.memory import main_memory
from crosstack.machine.system import Dimension, DimensionKind, Parallelism, Prices, System
from crosstack.mapping.mapping import Constraints, Mapping, Task
from crosstack.mapping.mapping_space import mapping_space
from crosstack.mapping.search import search
from crosstack.model.objective import Objective
from crosstack.model.rules import rules_named
from crosstack.workload.kernels import Axis, Saved
from crosstack.workload.transformer_training import Recompute, Zero, recompute_named
from crosstack.workload.workload import Workload

RULES = rules_named("crosstack")
FULL = Recompute.FULL
LAYER = product_and_function(
    {
        "product": [("function", 0)],
        "function": [("update", 1)],
        "function_back": [("product_back", 0), ("update", 0)],
    },
    saved=Saved.INPUT,
    tiling=Axis.NONE,
)
WORKLOAD = Workload(graph=LAYER, n_layers=8, global_batch_size=8, boundary_size=64.0)
USES = (Parallelism.PIPELINE, Parallelism.DATA)
PARTITIONS = (0, 1, 2, 3, 4)


def machine(capacity: float | None, bandwidth: float = 1e5) -> System:
    """Four chips that run kernels one by one, on two rings."""
    chip = flat_chip(
        n_cores=4, lanes=2, stages=2, frequency=1e3, sram_capacity=1e4, utilization=0.5,
        overlap=Overlap.COMPUTE_MEMORY, memories=main_memory(bandwidth=1e5, capacity=capacity),
        power=30.0, idle_power=2.0,
    )  # fmt: skip
    return System(
        chip=replace(chip, execution=Execution.TEMPORAL, launch_overhead=1e-4),
        network=tuple(
            Dimension(kind=DimensionKind.RING, bandwidth=bandwidth, size=2, link_power=3e-5)
            for _ in range(2)
        ),
        n_chips=4,
        prices=Prices(memory_power=1e-4, switch_power=1e-5),
    )


def mapped(recompute: Recompute, layers: int | None = None, **changes: object) -> Mapping:
    one = Mapping(
        sizes=(2, 2), parallelism=USES, microbatch_size=1, n_tiles=1,
        sharding=(Axis.M, Axis.NONE, Axis.NONE, Axis.M, Axis.NONE), partitions=PARTITIONS,
        recompute=recompute, recompute_layers=layers,
    )  # fmt: skip
    return replace(one, **changes)


def priced(recompute: Recompute, layers: int | None = None, **changes: object) -> Evaluation:
    return evaluate(WORKLOAD, machine(None), mapped(recompute, layers, **changes), RULES)


# ---------------------------------------------------------------- by hand


def test_a_layer_takes_so_much_of_what_both_kinds_take():
    none, whole = priced(Recompute.NONE), priced(FULL)
    for layers in (1, 2, 3):
        some = priced(FULL, layers)
        share = layers / 4  # two stages of four layers
        for name in ("layer_time", "executed_work"):
            a, b, c = (getattr(one, name) for one in (none, whole, some))
            assert c == pytest.approx(a + share * (b - a), rel=1e-12)
        assert some.energy.compute == pytest.approx(
            none.energy.compute + share * (whole.energy.compute - none.energy.compute)
        )


def test_layers_that_compute_again_keep_their_input_and_one_of_them_all():
    # In and out of `function`, 128 B, of four layers and two microbatches; or the operand of
    # `product`, 64 B, and once the 64 B more of the one that runs again.
    assert priced(Recompute.NONE).memory.stages[0].activations == 4 * 128 * 2
    assert priced(FULL).memory.stages[0].activations == 4 * 64 * 2 + 64
    for layers in (1, 2, 3):
        some = priced(FULL, layers).memory
        kept = [(layers * 64 + (4 - layers) * 128) * alive + 64 for alive in (2, 1)]
        assert [stage.activations for stage in some.stages] == kept
    assert priced(FULL, 4) == priced(FULL)


def test_every_piece_of_a_stage_has_as_many():
    some = priced(FULL, 1, interleave=2)
    none, whole = (priced(kind, interleave=2) for kind in (Recompute.NONE, FULL))
    assert some.layer_time == pytest.approx((none.layer_time + whole.layer_time) / 2)


@pytest.mark.parametrize("zero", [Zero.NONE, Zero.STATE, Zero.GRADIENTS, Zero.WEIGHTS])
@pytest.mark.parametrize("bandwidth", [1e3, 1e4, 1e5])
@pytest.mark.parametrize("layers", [1, 3, None])
def test_events_end_when_the_closed_form_says(zero, bandwidth, layers):
    task = Task(workload=WORKLOAD, system=machine(None, bandwidth))
    for pieces in (1,) if bandwidth < 1e5 else (1, 2):
        some = None if layers is None or pieces > 1 else layers
        mapping = mapped(FULL, some or (1 if pieces > 1 else None), zero=zero, interleave=pieces)
        plan = given_plan(task, mapping)
        ran = timeline_of(plan, stages_of(plan)).makespan
        assert ran == pytest.approx(plan.evaluation.time, rel=1e-9)
        spent = plan.step_account().spent
        assert sum(time for _, time in spent) == pytest.approx(plan.evaluation.time, rel=1e-9)


def exchanged(layers: int, again: int, take: tuple[float, float], each: float) -> float:
    """When the last layer is through backward, layer by layer: links first, then the chip. [s]"""
    links = chip = 0.0
    for number in range(layers):
        links += each
        chip = max(links, chip) + take[number >= layers - again]
    return chip


@pytest.mark.parametrize("zero", [Zero.GRADIENTS, Zero.WEIGHTS])
@pytest.mark.parametrize("again", [1, 2, 3])
@pytest.mark.parametrize("bandwidth", [2e3, 1e4, 3e4, 1e5])
def test_links_are_waited_for_as_two_machines_say(again, zero, bandwidth):
    system = machine(None, bandwidth)
    plan = mapped_plan(WORKLOAD, system, mapped(FULL, again, zero=zero), RULES)
    plan = replace(plan, taken=0.0)
    layer = evaluate(WORKLOAD, system, mapped(FULL, again, zero=zero), RULES).layer_time
    from crosstack.model.stage_paths import exchange_paths

    work = 4 * layer
    forward, rerun = work * plan.forward, work * plan.rerun
    kept = (work - forward - rerun) / 4
    sizes = plan.summed, plan.expert_summed
    weights, sums = float(plan.bringing_time(*sizes)), float(plan.leaving_time(*sizes))
    there = exchanged(4, 0, (forward / 4, 0.0), weights)
    back = exchanged(4, again, (kept, kept + rerun / again), weights + sums)
    longest = max(a * work + b for a, b in exchange_paths(plan))
    assert longest == pytest.approx(there + back, rel=1e-12)


def test_links_are_waited_for_where_no_layer_computes_again():
    from crosstack.model.stage_paths import exchange_paths

    system = machine(None, 1e4)
    plan = mapped_plan(WORKLOAD, system, mapped(FULL, 1, zero=Zero.WEIGHTS), RULES)
    none, never = (replace(plan, again=share, rerun=0.0) for share in (0.0, 1.0))
    longest = [max(a + b for a, b in exchange_paths(one)) for one in (none, never)]
    assert longest[0] == pytest.approx(longest[1], rel=1e-12)


# ---------------------------------------------------------------- against everything


def orders() -> list[tuple[int, ...]]:
    """Return every numbering of partitions in which none runs before what it reads."""
    before = {1: {0}, 3: {2}, 4: {1, 2}}
    return [
        numbers
        for numbers in itertools.product(range(5), repeat=5)
        if set(numbers) == set(range(max(numbers) + 1))
        and all(numbers[j] <= numbers[i] for i, some in before.items() for j in some)
    ]


def value(found: Evaluation, objective: Objective) -> float:
    assert found.energy is not None
    return found.time if objective is Objective.TIME else found.energy.total


def runs(partitions: tuple[int, ...]) -> bool:
    """Whether the chip runs partitions as one each."""
    try:
        return priced(Recompute.NONE, partitions=partitions).time > 0
    except InputError:
        return False


@cache
def every_evaluation() -> list[tuple[str, Evaluation]]:
    """Return what every mapping of whole stages costs, with what it computes again."""
    found, system, legal = [], machine(None), [*filter(runs, orders())]
    for size, pieces in itertools.product((1, 2, 4), (1, 2, 4)):
        count = 4 // size  # microbatches
        if pieces > 1 and count % 2:
            continue
        kinds = [(Recompute.NONE, None), *((FULL, n) for n in range(1, 4 // pieces + 1))]
        for (kind, layers), zero in itertools.product(kinds, list(Zero)[:4]):
            for partitions in legal:
                how = {"microbatch_size": size, "interleave": pieces, "zero": zero}
                mapping = mapped(kind, layers, partitions=partitions, **how)
                found.append((f"{kind}:{layers}", evaluate(WORKLOAD, system, mapping, RULES)))
    return found


@pytest.mark.parametrize(
    "objective", [Objective.TIME, pytest.param(Objective.ENERGY, marks=pytest.mark.slow)]
)
def test_the_search_finds_the_best_of_all_mappings(objective):
    every, best = every_evaluation(), set()
    fastest = {
        how: min((value(one, objective), one.memory_used) for other, one in every if other == how)[
            1
        ]
        for how in ("full:1", "full:2", "full:3", "none:None")
    }
    for capacity in (min(one.memory_used for _, one in every), *fastest.values()):
        system = machine(capacity)
        network = tuple(
            replace(level, parallelism=use) for level, use in zip(system.network, USES, strict=True)
        )
        system = replace(system, network=network)
        fitting = [(how, one) for how, one in every if one.memory_used <= capacity]
        least = min(value(one, objective) for _, one in fitting)
        mapping, certificate = search(WORKLOAD, system, Constraints(), RULES, objective=objective)
        assert certificate.objective == pytest.approx(least, rel=1e-9)
        assert certificate.bound == pytest.approx(least, rel=1e-9)
        best.add(mapping.recompute_layers)
        for layers in (1, 2, 3):
            given = Constraints(recompute=FULL, recompute_layers=layers)
            some = [value(one, objective) for how, one in fitting if how == f"{FULL}:{layers}"]
            try:
                _, certificate = search(WORKLOAD, system, given, RULES, objective=objective)
            except InfeasibleError:
                assert not some
                continue
            assert certificate.objective == pytest.approx(min(some), rel=1e-9)
            assert certificate.objective >= least * (1 - 1e-9)
    assert best > {None}  # between nothing and all somewhere


def test_more_layers_take_longer_and_keep_less():
    found = [priced(Recompute.NONE), *(priced(FULL, layers) for layers in (1, 2, 3, 4))]
    times = [one.time for one in found]
    assert times == sorted(times)
    held = [one.memory_used for one in found]
    assert held == sorted(held, reverse=True)


# ---------------------------------------------------------------- what is said and refused


@pytest.mark.parametrize(
    ("said", "found"),
    [("none", ("none", None)), ("full", ("full", None)), ("attention:3", ("attention", 3))],
)
def test_what_is_computed_again_is_one_text(said, found):
    assert recompute_named(said) == found


@pytest.mark.parametrize("said", ["full:0", "full:x", "full:", "none:2", "full:1.5", "full:-1"])
def test_a_text_that_says_no_layers_is_refused(said):
    with pytest.raises(InputError, match="attention:N or full:N, N layers, at least 1"):
        recompute_named(said)


def test_layers_need_something_that_is_computed_again():
    for kind in (None, Recompute.NONE):
        with pytest.raises(InputError, match="recompute_layers: got 2; allowed: none, unless"):
            Constraints(recompute=kind, recompute_layers=2)


def test_a_piece_has_no_more_layers_than_it_has():
    with pytest.raises(InputError, match="got 5; allowed: up to 4, the layers of each of 2 pieces"):
        priced(FULL, 5)
    with pytest.raises(InputError, match="got 3; allowed: up to 2, the layers of each of 4 pieces"):
        priced(FULL, 3, interleave=2)


def test_layers_of_chips_on_which_kernels_share_time_are_alike():
    system = machine(None)
    for change in ({"execution": Execution.SPATIAL}, {"overlap": Overlap.ALL}):
        other = replace(system, chip=replace(system.chip, **change))
        with pytest.raises(InputError, match="got 2; allowed: all layers of a stage"):
            evaluate(WORKLOAD, other, mapped(FULL, 2), RULES)
        given = Constraints(recompute=FULL, recompute_layers=2)
        with pytest.raises(InputError, match="got 2; allowed: all layers of a stage"):
            search(WORKLOAD, other, given, RULES)


def test_the_space_counts_them():
    factors = {
        f.decision: f for f in mapping_space(Task(workload=WORKLOAD, system=machine(None))).factors
    }
    again = factors["recomputation"]
    assert 10**again.digits == pytest.approx(1 + 8)
    assert math.isfinite(again.digits)
