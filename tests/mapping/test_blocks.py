"""Claims about blocks: a bound of one holds for every plan that shares it."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from builders.every_plan import every_plan
from builders.seeds import few_and_many
from builders.small_models import GPT

import crosstack
from crosstack.io import library
from crosstack.machine.system import DimensionKind
from crosstack.mapping.blocks import block_bound, block_of, know_blocks
from crosstack.mapping.mapping import Constraints, Status
from crosstack.mapping.search import search_state
from crosstack.mapping.search_problem import SearchNode
from crosstack.model.partition import partition_cost
from crosstack.model.rules import rules_named
from crosstack.workload.kernels import Axis

RULES = rules_named("crosstack")
SEQUENCE_TILED = (Axis.N, Axis.NONE, Axis.NONE)


def random_groups(load, rng: random.Random) -> list[int]:
    """Return random runs of kernels in their order that the chip may fuse."""
    groups = [1 << load.order[0]]
    for i in load.order[1:]:
        together = groups[-1] | 1 << i
        legal = load.temporal is None or load.temporal.legality.allows(together)
        if legal and rng.random() < 0.5:
            groups[-1] = together
        else:
            groups.append(1 << i)
    return groups


@pytest.mark.parametrize("temporal", [False, True])
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("seeds", few_and_many(4, 28), ids=len)
def test_no_layer_of_any_plan_beats_the_bound_of_its_block(random_task, seeds, temporal, alone):
    compared = 0
    for seed in seeds:
        rng = random.Random(seed)
        workload, system = random_task(
            seed, 5, dimensions=2, length=4, temporal=temporal,
            utilization=temporal or seed % 2 > 0, tilings=SEQUENCE_TILED,
        )  # fmt: skip
        workload = replace(workload, global_batch_size=4)
        kind = rng.choice([DimensionKind.SWITCH, DimensionKind.RING])
        network = tuple(replace(d, kind=kind) for d in system.network)
        state = search_state(
            workload, replace(system, network=network), Constraints(kernel_by_kernel=alone), RULES
        )
        for plan in every_plan(state):
            node = SearchNode(plan, 1 if temporal else rng.choice([1, 2, 4]), None)
            domains = state.table(plan, node.n_tiles).index.domains()
            load = state.load(node, np.array([rng.choice(domain) for domain in domains]))
            masks = [1 << i for i in load.order] if alone else random_groups(load, rng)
            costs = [partition_cost(load, mask) for mask in masks]
            if all(cost.fits for cost in costs) and state.rooms(load, tuple(masks)):
                taken = sum(cost.cost for cost in costs) + load.extra
                assert block_bound(state, plan) <= taken * (1 + 1e-12), (seed, plan)
                compared += 1
    assert compared > 10 * len(seeds)


def test_plans_that_differ_in_what_others_than_tensor_parallel_chips_do_are_one_block(random_task):
    workload, system = random_task(1, 4, dimensions=2, kinds=(DimensionKind.SWITCH,), n_chips=16)
    state = search_state(replace(workload, global_batch_size=16), system, Constraints(), RULES)
    plans = list(every_plan(state))
    blocks = {block_of(state, plan) for plan in plans}
    assert 0 < 20 * len(blocks) < len(plans)


@pytest.mark.parametrize("temporal", [False, True])
@pytest.mark.parametrize("alone", [False, True])
def test_blocks_bounded_at_once_are_bounded_as_one_by_one(random_task, temporal, alone):
    workload, system = random_task(
        3, 5, dimensions=2, length=4, temporal=temporal, utilization=True, n_chips=8
    )
    workload, given = replace(workload, global_batch_size=8), Constraints(kernel_by_kernel=alone)
    one, many = (search_state(workload, system, given, RULES) for _ in range(2))
    plans = list(every_plan(one))
    know_blocks(many, [(plan, np.asarray(plan.again), False) for plan in plans])
    before = len(many.known.blocks)
    bounds = [(block_bound(one, plan), block_bound(many, plan)) for plan in plans]
    np.testing.assert_allclose(*np.array(bounds).T, rtol=1e-12)
    assert len(many.known.blocks) == before > 1


@pytest.mark.slow
def test_kernels_one_by_one_on_512_chips_that_parallelisms_share_are_proved():
    task = crosstack.load("tests/golden/tasks/llama_70b_512_h100.yaml")
    task = replace(task, constraints=Constraints(kernel_by_kernel=True))
    assert crosstack.optimise(task).certificate.status is Status.OPTIMAL


@pytest.mark.parametrize("passes", [0.0, 6.0])
@pytest.mark.parametrize("framework", ["eager", "megatron"])
def test_a_block_has_one_bound_whichever_of_its_plans_asks_first(framework, passes):
    # Who adds gradients up, and who copies them to be sent, differs between plans of a block.
    driven = replace(library.framework(framework), sent_passes=passes)
    system = crosstack.system("a100-dgx-80gb", chips=2).driven_by(driven)
    workload = crosstack.Job(model=GPT, batch=8, sequence=16).workload
    plans = list(every_plan(search_state(workload, system, Constraints(), RULES)))
    found = dict[object, set[float]]()
    for plan in plans:
        state = search_state(workload, system, Constraints(), RULES)
        key = block_of(state, plan), float(plan.again)
        found.setdefault(key, set()).add(block_bound(state, plan))
    assert len(plans) > len(found)
    assert all(max(bounds) <= min(bounds) * (1 + 1e-12) for bounds in found.values())
