"""Experts of a microbatch: how many tokens each has, and how many of them are read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from builders import named_models

from crosstack.evaluate.plan import optimise
from crosstack.io import library
from crosstack.io.library.machines import system_on
from crosstack.machine.chip import Execution
from crosstack.mapping.mapping import Constraints
from crosstack.workload.architectures import graphs
from crosstack.workload.graph_workload import workload_of
from crosstack.workload.kernels import Axis
from crosstack.workload.lowering import lowered
from crosstack.workload.passes.routing import places, touched_share

MIXTRAL = library.model("mixtral-8x7b")  # 8 experts, of which 2; 4,096 wide, 14,336 inside
EXPERT = 2 * 4096 * 14336  # bytes of one of its three matrices
H100 = system_on("h100-dgx", chips=1)


def layer(kind=graphs.decode, name="mixtral-8x7b", block="layers", **sizes):
    workload = workload_of(kind(library.model(name), **sizes), block=block, items="batch")
    return replace(workload, n_layers=1, data_size=0.0)


def routing(workload, name):
    return tuple(workload.graph.routing[workload.graph.names.index(name), :3].tolist())


def test_experts_that_some_tokens_leave_unread_are_those_that_none_of_them_draws():
    """By drawing two different ones of eight for each of five tokens, 20,000 times."""
    random = np.random.default_rng(1)
    drawn = random.random((20_000, 5, 8)).argsort(axis=2)[:, :, :2].reshape(20_000, -1)
    distinct = np.mean([len(set(row)) for row in drawn.tolist()])
    assert 8 * touched_share(np.array([2 / 8, 5.0, 1.0]), 1.0) == pytest.approx(distinct, rel=5e-3)
    assert 8 * touched_share(np.array([2 / 8, 1.0, 1.0]), 1.0) == pytest.approx(2)
    assert touched_share(np.array([1.0, 1.0, 1.0]), 7.0) == 1


@pytest.mark.parametrize("batch", [2, 4, 16, 64])
def test_writing_for_many_is_as_much_work_as_for_each(batch):
    alone, many = layer(context=64), layer(context=64, batch=batch)
    experts = [name for name in many.graph.names if name.startswith("expert_")]
    assert many.global_batch_size == batch
    # One token fills a quarter of the eight places for it.
    assert {routing(many, name) for name in experts} == {(0.25, 1.0, 0.25)}
    done = dict(zip(many.graph.names, many.graph.work.tolist(), strict=True))
    assert done["expert_up"] == 2 * 2 * 4096 * 14336
    own = dict(zip(alone.graph.names, alone.graph.work.tolist(), strict=True))
    assert all(done[name] == pytest.approx(own[name]) for name in experts)


@pytest.mark.parametrize(
    ("name", "block", "each"),
    [("mixtral-8x7b", "layers", 1000 * 2 / 8), ("deepseek-v3", "expert_layers", 1000 * 8 / 256)],
)
def test_a_prompt_among_others_sends_its_own_tokens_to_experts(name, block, each):
    one = layer(graphs.prefill, name, block, sequence=1000)
    among = layer(graphs.prefill, name, block, sequence=1000, batch=4)
    assert among.graph == one.graph
    i = next(i for i, kernel in enumerate(one.graph.names) if kernel.endswith("expert_up"))
    assert one.graph.columns[i] == np.ceil(each)
    experts = library.model(name).experts
    work = 2 * experts.count * each * experts.feed_forward * library.model(name).hidden
    assert one.graph.work[i] == pytest.approx(work, rel=1e-12)


def test_a_capacity_above_an_even_share_is_worked_on():
    model, sizes = MIXTRAL, {"sequence": 1000, "batch": 4, "capacity": 1.5}
    workload = workload_of(graphs.prefill(model, **sizes), block="layers", items="batch")
    assert workload.graph.columns[workload.graph.names.index("expert_up")] == 375
    assert routing(workload, "expert_up") == (0.25, 1000.0, 1.0)


def test_the_backward_pass_of_experts_has_as_many_tokens():
    workload = layer(graphs.training, sequence=501)
    names = [n for n in workload.graph.names if n.startswith("expert_")]
    assert any(name.endswith("_bwd1") for name in names)
    assert {routing(workload, name) for name in names} == {(0.25, 501.0, 501 / 4 / 126)}
    assert routing(workload, "routes") == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("batch", [2, 8, 64])
def test_a_gpu_reads_the_experts_that_a_microbatch_is_sent_to(batch):
    answer = optimise(layer(context=1024, batch=batch), H100)
    (up,) = (p for p in answer.evaluation.partitions if p.kernels == ("expert_up",))
    distinct = 8 * (1 - 0.75**batch)
    moved = up.memory_traffic * answer.mapping.microbatch_size
    assert answer.mapping.microbatch_size == batch
    tokens = 2 * 2 * batch * (4096 + 14336)
    assert moved == pytest.approx(distinct * EXPERT + tokens, rel=0.03)


def test_the_slowest_of_chips_with_few_experts_each_reads_a_whole_one():
    workload, system = layer(context=1024, batch=2), system_on("h100-dgx", chips=8)
    split = tuple((n, Axis.OUTER) for n in workload.graph.names if n == "expert_up")
    answer = optimise(workload, system, constraints=Constraints(sharding=split))
    (up,) = (p for p in answer.evaluation.partitions if p.kernels == ("expert_up",))
    moved = up.memory_traffic * answer.mapping.microbatch_size
    assert moved == pytest.approx(EXPERT, rel=0.01)


def test_a_spatial_chip_reads_those_too():
    chip = replace(
        H100.chip.with_compute(utilization=0.9), execution=Execution.SPATIAL, fusions=(),
    )  # fmt: skip
    system = replace(H100, chip=chip)
    found = {}
    for batch in (2, 8):
        given = Constraints(microbatch_size=batch, kernel_by_kernel=True)
        answer = optimise(layer(context=1024, batch=batch), system, constraints=given)
        (up,) = (p for p in answer.evaluation.partitions if p.kernels == ("expert_up",))
        found[batch] = up.memory_traffic * batch / EXPERT
    for batch, experts in found.items():
        assert experts == pytest.approx(8 * (1 - 0.75**batch), rel=0.01)


def test_groups_that_choose_their_tokens_are_always_full():
    graph = named_models.mixture()
    assert places(graph)["capacity"].sent == 2 / 4  # each token chose two of four before
    chosen = replace(
        graph,
        blocks=tuple(
            replace(block, operations=tuple(
                replace(o, parameter=4.0) if o.name == "chosen" else o for o in block.operations
            ))
            for block in graph.blocks
        ),
    )  # fmt: skip
    assert places(chosen) == {}
    assert (lowered(chosen, chosen.blocks[0].name).routing[:, 0] == 1).all()
