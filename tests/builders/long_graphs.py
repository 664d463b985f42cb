"""Generated graphs of any length on one chip, and loads where nothing takes time but tensors."""

from __future__ import annotations

from dataclasses import replace

import graphs

from crosstack.machine.chip import Overlap
from crosstack.machine.system import Parallelism
from crosstack.mapping.fusion import make_problem
from crosstack.model.choices import make_choices
from crosstack.model.mesh_plan import make_plan
from crosstack.model.partition import make_load, partition_cost
from crosstack.model.rules import rules_named
from crosstack.workload.kernel_graph import bits


def long_problem(kind: str, ratio: float, n: int = 60, seed: int = 3):
    """The problem of fusing a generated graph on one chip."""
    workload, system, _ = graphs.one_chip(graphs.KINDS[kind](n, seed), ratio)
    rules = rules_named("crosstack")
    plan = make_plan(workload, system, (1,), (Parallelism.DATA,), 1, rules)
    choices = make_choices(workload, workload.graph, plan, 1, rules, system.chip)
    codes = choices.index.start[:-1]
    return make_problem(make_load(workload, system, workload.graph, plan, choices, codes, rules))


def moving_alone(load):
    """The same load where nothing takes time but tensors that move."""
    none = (0.0,) * load.n
    return replace(
        load,
        compute=none,
        staircases=None,
        network=none,
        data=none,
        own_memory=none,
        weight_time=none,
        overlap=Overlap.ALL,
        resident_alone=False,
        memory_price=0.0,
        network_price=0.0,
    )


def assert_it_runs(problem, partitions) -> None:
    """Assert that partitions fit, hold every kernel, and run in an order that is allowed."""
    run = 0
    for mask in partitions:
        assert partition_cost(problem.load, mask).fits
        assert all(problem.order.preds[i] & ~(run | mask) == 0 for i in bits(mask))
        assert not run & mask
        run |= mask
    assert run == problem.load.everything
