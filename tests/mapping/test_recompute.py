"""Recomputation as a decision: what it costs by hand, and the best of all mappings."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest
from builders.trained_layers import LAYER, rings

from crosstack.errors import InfeasibleError, InputError
from crosstack.evaluate.evaluation import Evaluation
from crosstack.evaluate.time import evaluate
from crosstack.machine.chip import Overlap, flat_chip
from crosstack.machine.memory import main_memory
from crosstack.machine.system import Dimension, DimensionKind, Parallelism, System
from crosstack.mapping.mapping import Constraints, Mapping
from crosstack.mapping.search import search
from crosstack.model.objective import Objective
from crosstack.model.rules import rules_named
from crosstack.published.dfmodel.graphs.llm import llm
from crosstack.workload.kernels import Axis
from crosstack.workload.transformer_training import ZEROS, Recompute, Schedule, Zero
from crosstack.workload.workload import Workload

RULES = rules_named("crosstack")
KINDS = list(Recompute)


def machine(capacity: float | None, dimensions: int = 2, overlap: Overlap = Overlap.NONE) -> System:
    return rings(overlap, capacity, dimensions, bandwidth=1e5)


WORKLOAD = Workload(graph=LAYER, n_layers=8, global_batch_size=8, boundary_size=64.0)


def mapped(recompute: Recompute, partitions: tuple[int, ...] = (0, 1, 2, 3, 4)) -> Mapping:
    return Mapping(
        sizes=(2, 1), parallelism=(Parallelism.DATA, Parallelism.DATA), microbatch_size=1,
        n_tiles=1, sharding=(Axis.M, Axis.NONE, Axis.NONE, Axis.M, Axis.NONE),
        partitions=partitions, recompute=recompute,
    )  # fmt: skip


def priced(recompute: Recompute, partitions: tuple[int, ...] = (0, 1, 2, 3, 4)):
    system = replace(
        machine(None),
        network=tuple(
            Dimension(kind=DimensionKind.RING, bandwidth=1e5, size=s) for s in (2, 1)
        ),
        n_chips=2,
    )  # fmt: skip
    return evaluate(WORKLOAD, system, mapped(recompute, partitions), RULES)


class TestByHand:
    def test_forward_kernels_run_twice(self):
        once, twice = priced(Recompute.NONE), priced(Recompute.FULL)
        ratio = [
            b.compute_time / a.compute_time
            for a, b in zip(once.kernels, twice.kernels, strict=True)
        ]
        assert ratio == [2, 2, 1, 1, 1]
        assert twice.work == once.work  # of the model; what is executed is in the kernels

    def test_what_they_move_moves_twice_but_results_that_leave(self):
        # In, weight, out; in, out; gradient, out; weight, in, result; both operands, result.
        none = [64 + 32 + 64, 64 + 64, 64 + 64, 32 + 64 + 64, 64 + 64 + 32]
        full = [2 * none[0], 2 * 64 + 64, *none[2:]]
        for recompute, sizes in ((Recompute.NONE, none), (Recompute.FULL, full)):
            found = [p.memory_traffic for p in priced(recompute).partitions]
            assert found == pytest.approx(sizes)

    def test_a_tensor_inside_a_partition_never_leaves_it(self):
        found = priced(Recompute.FULL, (0, 0, 1, 2, 3)).partitions[0]
        assert found.memory_traffic == pytest.approx(2 * (64 + 32) + 64)

    def test_less_is_kept(self):
        # In and out of `function`, or the operand of `product`: of 8 layers, one computed again.
        kept = [priced(k).memory.stages[0].activations for k in (Recompute.NONE, Recompute.FULL)]
        assert kept == [8 * 128, 8 * 64 + 64]


# ---------------------------------------------------------------- against everything


def orders(n: int, preds: dict[int, set[int]]) -> list[tuple[int, ...]]:
    """Return every numbering of partitions in which none runs before what it reads."""
    return [
        numbers
        for numbers in itertools.product(range(n), repeat=n)
        if set(numbers) == set(range(max(numbers) + 1))
        and all(numbers[j] <= numbers[i] for i, before in preds.items() for j in before)
    ]


PARTITIONS = orders(5, {1: {0}, 3: {2}, 4: {1, 2}})
GIVEN = Constraints(n_tiles=1)


def value(evaluation: Evaluation, objective: Objective) -> float:
    """Return what is minimised. [s], [J]"""
    assert evaluation.energy is not None
    return evaluation.time if objective is Objective.TIME else evaluation.energy.total


ORDERS = [(Schedule.GPIPE, 1), *((Schedule.ONE_F_ONE_B, pieces) for pieces in (1, 2, 4, 8))]
Decided = tuple[Recompute, Schedule, int, Zero]


def zero_shares(use: Sequence[Parallelism]) -> tuple[Zero, ...]:
    """Return what data-parallel chips may have shares of, a dimension for each use."""
    data = sum(u is Parallelism.DATA for u in use)
    return (Zero.NONE,) if data == 0 else ZEROS if data > 1 else ZEROS[:4]


@cache
def every_evaluation(system: System) -> list[tuple[Decided, Evaluation]]:
    """Return what every mapping that fits costs, with what it decides beside partitions."""
    found = []
    uses = itertools.product((Parallelism.PIPELINE, Parallelism.DATA), repeat=len(system.network))
    kinds = (Recompute.NONE, Recompute.FULL)
    for use, recompute, (schedule, pieces) in itertools.product(uses, kinds, ORDERS):
        data = math.prod(2 for u in use if u is Parallelism.DATA)
        stages = 2 ** len(use) // data
        for size in (1, 2, 4, 8):
            if WORKLOAD.global_batch_size % (data * size):
                continue
            whole = WORKLOAD.global_batch_size // (data * size) % stages == 0
            may = stages > 1 and whole and WORKLOAD.n_layers % (stages * pieces) == 0
            if pieces > 1 and not may:
                continue
            shares = zero_shares(use)
            for partitions, zero in itertools.product(PARTITIONS, shares):
                mapping = replace(
                    mapped(recompute, partitions),
                    sizes=(2,) * len(system.network),
                    parallelism=use,
                    microbatch_size=size,
                    schedule=schedule,
                    interleave=pieces,
                    zero=zero,
                )
                try:
                    evaluation = evaluate(WORKLOAD, system, mapping, RULES)
                except InfeasibleError:
                    continue
                found.append(((recompute, schedule, pieces, zero), evaluation))
    return found


def least_of_all(
    system: System, objective: Objective, room: float = math.inf
) -> dict[Decided, float]:
    """Return the least of each decision, of what takes such memory. [s], [J]"""
    orders = [(k, *order, zero) for k in KINDS for order in ORDERS for zero in Zero]
    least = dict.fromkeys(orders, math.inf)
    for decided, made in every_evaluation(system):
        if made.memory_used <= room:
            least[decided] = min(least[decided], value(made, objective))
    return least


def without_tensor(system: System) -> list[System]:
    """Return the system with every use of its dimensions that splits no kernel."""
    uses = itertools.product((Parallelism.PIPELINE, Parallelism.DATA), repeat=len(system.network))
    return [
        replace(
            system,
            network=tuple(
                replace(d, parallelism=u) for d, u in zip(system.network, use, strict=True)
            ),
        )
        for use in uses
    ]


def found(
    system: System, objective: Objective = Objective.TIME, **given_decisions: object
) -> tuple[float, Decided | None]:
    """Return the least that the search finds without tensor parallelism, and how. [s], [J]"""
    least, how = math.inf, None
    for given in without_tensor(system):
        try:
            constraints = replace(GIVEN, **given_decisions)
            mapping, certificate = search(WORKLOAD, given, constraints, RULES, objective=objective)
        except InfeasibleError:
            continue
        except InputError:
            if constraints.interleave in (None, 1) and constraints.zero in (None, Zero.NONE):
                raise  # otherwise there may be no such plan
            continue
        evaluation = evaluate(WORKLOAD, given, mapping, RULES)
        reached = value(evaluation, objective)
        assert reached == pytest.approx(certificate.objective, rel=1e-9)
        room = given.chip.memory_room(spilled=given.chip.has_second_memory)
        assert evaluation.memory_used <= room * (1 + 1e-9)
        if reached < least:
            least = reached
            how = mapping.recompute, mapping.schedule, mapping.interleave, mapping.zero
    return least, how


# Pieces of a stage are a choice where everything overlaps.
# Every overlap, capacity and objective with every one of the others, if not all three at once.
CASES = [
    (objective, overlap, capacity)
    for i, overlap in enumerate((Overlap.ALL, Overlap.NONE, Overlap.COMPUTE_MEMORY))
    for j, capacity in enumerate((1700.0, 2400.0, 1e6))
    for k, objective in enumerate((Objective.TIME, Objective.ENERGY))
    if (i + j + k) % 2 == 0
]


@pytest.mark.slow
@pytest.mark.parametrize(("objective", "overlap", "capacity"), CASES, ids=str)
def test_the_search_finds_the_best_of_all_mappings(capacity, overlap, objective):
    system = machine(capacity, overlap=overlap)
    room = system.chip.memory_room(spilled=False)
    is_best(system, objective, least_of_all(machine(None, overlap=overlap), objective, room))


@pytest.mark.slow
@pytest.mark.parametrize("objective", [Objective.TIME, Objective.ENERGY])
def test_the_search_finds_the_best_of_all_mappings_of_data_in_two_memories(objective):
    system = machine(None, dimensions=1)
    two = main_memory(bandwidth=1e5, capacity=1700.0, second_bandwidth=2e4, second_capacity=1200.0)
    system = replace(system, chip=replace(system.chip, memories=two))
    is_best(system, objective, least_of_all(system, objective))


def is_best(system: System, objective: Objective, every: dict[Decided, float]) -> None:
    """Whether the search finds the best with what is given, or nothing."""
    one = Schedule.ONE_F_ONE_B
    for kind in (None, Recompute.NONE, Recompute.FULL):
        best = [v for (k, order, *_), v in every.items() if kind in (None, k) and order is one]
        reached, _ = found(system, objective, recompute=kind)
        assert reached == pytest.approx(min(best), rel=1e-9), kind
    for order, pieces in ORDERS:
        best = [v for (_, *decided, _), v in every.items() if decided == [order, pieces]]
        reached, _ = found(system, objective, schedule=order, interleave=pieces)
        assert reached == pytest.approx(min(best), rel=1e-9), (order, pieces)
    for zero in Zero:
        best = [v for (_, order, _, z), v in every.items() if z == zero and order is one]
        reached, _ = found(system, objective, zero=zero)
        assert reached == pytest.approx(min(best), rel=1e-9), zero


@pytest.mark.slow
def test_what_is_free_is_never_worse_and_more_memory_neither():
    before, kinds, pieces = math.inf, set(), set()
    for capacity in (1500.0, 1700.0, 2100.0, 2600.0, 4000.0, 1e6):
        system = machine(capacity, overlap=Overlap.ALL)
        free, how = found(system)
        for given in (Recompute.NONE, Recompute.FULL):
            assert free <= found(system, recompute=given)[0] * (1 + 1e-9)
        for count in (1, 2, 4):
            assert free <= found(system, interleave=count)[0] * (1 + 1e-9)
        assert free <= before * (1 + 1e-9)
        before = free
        if how is not None:
            kinds.add(how[0])
        _, whole = found(
            system, zero=Zero.NONE
        )  # with shares, data parallelism alone is always best here
        pieces.add(whole is not None and whole[2] > 1)
    assert kinds == {Recompute.NONE, Recompute.FULL}  # both are best somewhere
    assert True in pieces


# ---------------------------------------------------------------- what is said


def gpt(**given: object):
    workload = llm(
        hidden=512, sequence_length=1024, n_heads=8, head_size=64, n_layers=8, global_batch_size=8
    )
    chip = flat_chip(
        n_cores=64, lanes=32, stages=8, frequency=1e9, sram_capacity=1e8, utilization=0.9,
        memories=main_memory(bandwidth=1e11, capacity=given.pop("capacity", None)),
    )  # fmt: skip
    system = System(
        chip=chip,
        network=(
            Dimension(
                kind=DimensionKind.RING, bandwidth=1e10, size=2, parallelism=Parallelism.PIPELINE
            ),
        ),
        n_chips=2,
    )
    constraints = Constraints(
        microbatch_size=1, n_tiles=1, separate_directions=True, max_partitions=6, **given
    )
    return search(workload, system, constraints, RULES, work_limit=1e5, gap=0.5)


def test_the_certificate_says_whether_recomputation_was_free():
    assert {"recomputation", "schedule"} <= set(gpt()[1].free)
    mapping, certificate = gpt(recompute=Recompute.ATTENTION)
    assert "recomputation" in certificate.given
    assert {"schedule", "interleaving"} <= set(certificate.free)
    assert mapping.recompute is Recompute.ATTENTION


def test_what_does_not_fit_names_the_kind_and_what_helps():
    with pytest.raises(InfeasibleError) as caught:
        gpt(capacity=4e8, recompute=Recompute.NONE)
    assert "most of it activations" in caught.value.where
    assert caught.value.levers[0] == "recompute: full"
    with pytest.raises(InfeasibleError) as caught:
        gpt(capacity=1e8)
    assert "most of it weights and optimizer state" in caught.value.where
    assert gpt(capacity=4e8)[0].recompute is not Recompute.NONE


def test_recomputation_needs_a_backward_pass_and_rules_that_keep_activations():
    forward = llm(
        hidden=64, sequence_length=16, n_heads=4, head_size=16, n_layers=1, global_batch_size=1,
        training=False,
    )  # fmt: skip
    full = Constraints(recompute=Recompute.FULL)
    with pytest.raises(InputError, match="constraints.recompute: got 'full'; allowed: none for"):
        search(forward, machine(None), full, RULES)
    with pytest.raises(InputError, match="constraints.recompute: got 'full'; allowed: none for"):
        search(WORKLOAD, machine(None), full, rules_named("dfmodel-readme"))
    # No attention, so computing it again is no choice.
    with pytest.raises(InputError, match="got 'attention'; allowed: none, full for"):
        search(WORKLOAD, machine(None), Constraints(recompute=Recompute.ATTENTION), RULES)


@pytest.mark.parametrize(
    ("rules", "given", "message"),
    [
        (
            "crosstack",
            {"interleave": 3},
            "interleave: got 3; allowed: pieces of as many",
        ),
        (
            "crosstack",
            {"interleave": 2, "schedule": Schedule.GPIPE},
            "constraints.interleave: got 2; allowed: 1 with schedule gpipe; more with 1f1b",
        ),
        ("dfmodel-readme", {"interleave": 2}, "constraints.interleave: got 2; allowed: 1 for"),
        ("dfmodel-readme", {"schedule": Schedule.GPIPE}, "constraints.schedule: got 'gpipe'"),
    ],
)
def test_schedules_that_cannot_be_are_refused(rules, given, message):
    with pytest.raises(InputError, match=re.escape(message)):
        search(WORKLOAD, machine(None), Constraints(**given), rules_named(rules))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"interleave": 2},
            "mapping.interleave: got 2; allowed: 1 with 1f1b, stages x layers 1 x 8",
        ),
        ({"interleave": 0}, "interleave: got 0; allowed: a whole number, at least 1"),
    ],
)
def test_a_mapping_with_pieces_that_cannot_be_is_refused(changes, message):
    system = replace(machine(None, 1), n_chips=2)
    with pytest.raises(InputError, match=re.escape(message)):
        evaluate(
            WORKLOAD,
            system,
            replace(mapped(Recompute.NONE), **changes, sizes=(2,), parallelism=(Parallelism.DATA,)),
            RULES,
        )
