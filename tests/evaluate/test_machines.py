"""Many machines at once: a mapping with all that it decides costs what it does on each alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crosstack.errors import InputError
from crosstack.evaluate.machines import Machines, machine_times
from crosstack.evaluate.time import evaluate
from crosstack.io.library.machines import system_on
from crosstack.machine.chip import Overlap, flat_chip
from crosstack.machine.memory import main_memory
from crosstack.machine.system import Dimension, DimensionKind, Parallelism, System
from crosstack.mapping.degrees import Degrees
from crosstack.mapping.mapping import Constraints, Task
from crosstack.mapping.search import search
from crosstack.model.rules import rules_named
from crosstack.published.dfmodel.graphs.llm import llm
from crosstack.workload.architectures import Transformer, graphs
from crosstack.workload.graph_workload import workload_of
from crosstack.workload.kernel_graph import kernel_graph
from crosstack.workload.kernels import (
    Collective,
    Communication,
    ComputeUnit,
    Consumer,
    KernelKind,
    Tensor,
)
from crosstack.workload.transformer_training import Recompute, Schedule, Zero
from crosstack.workload.workload import Workload

BANDWIDTHS = np.array([1e7, 1e9, 1e10, 1e12])
LATENCIES = np.array([1e-3, 1e-6, 0.0, 1e-5])


def a_task(overlap: Overlap, **given: object) -> Task:
    """Eight layers on two stages of two tensor-parallel chips, eight microbatches."""
    workload = llm(
        hidden=512, sequence_length=1024, n_heads=8, head_size=64, n_layers=8, global_batch_size=8
    )
    chip = flat_chip(
        n_cores=64, lanes=32, stages=8, frequency=1e9, sram_capacity=1e8, utilization=0.9,
        overlap=overlap, memories=main_memory(bandwidth=1e11, capacity=1e12),
    )  # fmt: skip
    network = tuple(
        Dimension(kind=DimensionKind.RING, bandwidth=1e10, size=2, parallelism=use)
        for use in (Parallelism.TENSOR, Parallelism.PIPELINE)
    )
    system = System(chip=chip, network=network, n_chips=4)
    constraints = Constraints(microbatch_size=1, n_tiles=1, kernel_by_kernel=True, **given)
    return Task(workload=workload, system=system, constraints=constraints)


@pytest.mark.parametrize(
    "given",
    [
        {"interleave": 1, "schedule": Schedule.ONE_F_ONE_B},
        {"interleave": 1, "schedule": Schedule.ZB_H1},
        {"interleave": 4},
        {"schedule": Schedule.GPIPE},
        {"interleave": 2, "recompute": Recompute.FULL},
        {
            "schedule": Schedule.ONE_F_ONE_B,
            "interleave": 1,
            "recompute": Recompute.ATTENTION,
            "overlap": Overlap.COMPUTE_MEMORY,
        },
    ],
    ids=str,
)
def test_schedules_and_recomputation_are_those_of_each(given):
    rules, given = rules_named("crosstack"), dict(given)
    task = a_task(given.pop("overlap", Overlap.ALL), **given)
    mapping, _ = search(task.workload, task.system, task.constraints, rules, gap=0.5)
    links = {
        "system.network[1].bandwidth": BANDWIDTHS,
        "system.network[1].latency": LATENCIES,
        "system.network[0].bandwidth": BANDWIDTHS[::-1],
    }
    found = machine_times(task, mapping, rules, Machines.of(task.system, links)).terms
    for i, (bandwidth, latency) in enumerate(zip(BANDWIDTHS, LATENCIES, strict=True)):
        inner, outer = task.system.network
        inner = replace(inner, bandwidth=float(BANDWIDTHS[::-1][i]))
        outer = replace(outer, bandwidth=float(bandwidth), latency=float(latency))
        alone = evaluate(
            task.workload, replace(task.system, network=(inner, outer)), mapping, rules
        )
        assert found["time"][i] == pytest.approx(alone.time, rel=1e-12)
        assert found["latency"][i] == pytest.approx(alone.latency, rel=1e-12)
        assert found["stage_transfer_time"][i] == pytest.approx(
            alone.stage_transfer_time, rel=1e-12
        )


@pytest.mark.parametrize("path", ["system.network[2].bandwidth", "system.network[1].size"])
def test_a_link_that_the_network_has_not_is_refused(path):
    with pytest.raises(InputError, match=r"no field of an array"):
        Machines.of(a_task(Overlap.ALL).system, {path: BANDWIDTHS})


def test_what_kernels_send_by_themselves_takes_what_it_takes_on_each_machine(a_kernel):
    exchange, total = (
        Communication(collective=collective, size=4e4)
        for collective in (Collective.ALL_TO_ALL, Collective.ALL_REDUCE)
    )
    product = {
        "kind": KernelKind.GEMM_WEIGHT, "m": 4, "k": 8, "n": 8, "unit": ComputeUnit.SYSTOLIC,
        "input_sizes": (128.0,), "weight_size": 64.0, "output_size": 64.0,
    }  # fmt: skip
    kernels = (
        a_kernel("first", m=8, n=8, output_size=128.0, communications=(exchange,)),
        a_kernel("second", communications=(total, replace(total, size=7e4), exchange), **product),
    )
    link = Tensor(producer="first", consumers=(Consumer(kernel="second"),), size=128.0)
    workload = Workload(
        graph=kernel_graph(kernels=kernels, tensors=(link,), word=2),
        sequence_length=8, global_batch_size=8,
    )  # fmt: skip
    system = a_task(Overlap.ALL).system
    tensor = tuple(replace(d, parallelism=Parallelism.TENSOR) for d in system.network)
    task = Task(workload=workload, system=replace(system, network=tensor))
    rules = rules_named("crosstack")
    given = Constraints(microbatch_size=4, sharding=(("second", "k"),))  # whose sums are added up
    mapping, _ = search(workload, task.system, given, rules)
    links = {"system.network[0].bandwidth": BANDWIDTHS, "system.network[0].latency": LATENCIES}
    found = machine_times(task, mapping, rules, Machines.of(task.system, links)).terms["time"]
    for time, bandwidth, latency in zip(found, BANDWIDTHS, LATENCIES, strict=True):
        first = replace(tensor[0], bandwidth=float(bandwidth), latency=float(latency))
        one = replace(task.system, network=(first, tensor[1]))
        assert time == pytest.approx(evaluate(workload, one, mapping, rules).time, rel=1e-12)


TINY = Transformer(
    hidden=512, layers=8, heads=8, kv_heads=8, head_size=64, feed_forward=2048, vocabulary=1024,
    context=512,
)  # fmt: skip


@pytest.mark.parametrize(
    "given",
    [
        {"degrees": Degrees(tensor=2, context=2, pipeline=2)},
        {"degrees": Degrees(tensor=2, pipeline=4), "interleave": 2},
        {"degrees": Degrees(pipeline=4), "schedule": Schedule.ZB_H1, "zero": Zero.STATE},
        {
            "degrees": Degrees(pipeline=2, tensor=1),
            "recompute": Recompute.FULL,
            "zero": Zero.WEIGHTS,
        },
        {
            "degrees": Degrees(tensor=4, pipeline=2),
            "recompute": Recompute.FULL,
            "recompute_layers": 2,
            "overlap": (),
        },
    ],
    ids=lambda given: " ".join(map(str, given.values())),
)
def test_kernels_one_by_one_and_what_runs_around_layers_are_those_of_each(given):
    graph = graphs.training(TINY, sequence=512, batch=16)
    workload, base = (
        workload_of(graph, block="layers", items="batch"),
        system_on("h100-dgx", chips=16),
    )
    usual = {"schedule": Schedule.ONE_F_ONE_B, "kernel_by_kernel": True, "microbatch_size": 1}
    task = Task(workload=workload, system=base, constraints=Constraints(**(usual | given)))
    rules = rules_named("crosstack")
    mapping, _ = search(workload, task.system, task.constraints, rules, gap=0.9, work_limit=2e4)
    draw, count = np.random.default_rng(0), 3
    usual = {
        "system.chip.frequency": base.chip.compute.frequency,
        "system.memory.bandwidth": base.chip.main_memory.speed,
        "system.network[0].bandwidth": base.network[0].bandwidth,
        "system.network[1].bandwidth": base.network[1].bandwidth,
        "system.network[1].latency": base.network[1].hop_latency,
    }
    arrays = {path: x * 4 ** draw.uniform(-1, 1, count) for path, x in usual.items()}
    found = machine_times(task, mapping, rules, Machines.of(base, arrays)).terms
    for i in range(count):
        one = Machines.one(base, {path: float(x[i]) for path, x in arrays.items()})
        alone = evaluate(workload, one, mapping, rules)
        known = {
            "energy": alone.energy.total,
            "price": alone.price.total,
            "power": alone.power.total,
        }
        for name in ("time", "latency", "utilization", "bubble_factor", "stage_transfer_time"):
            known[name] = getattr(alone, name)
        for name in ("compute", "memory", "network", "launch"):
            each = f"{name}_time"
            known[each] = sum(getattr(partition, each) for partition in alone.partitions)
        for name, value in known.items():
            assert found[name][i] == pytest.approx(value, rel=1e-9), name


def test_what_is_left_free_of_a_memory_is_no_room_of_any_machine():
    system, field = system_on("h100-dgx").sparing(5e9), "system.memory.capacity"
    room = np.array([70e9, 80e9])
    machines = Machines.of(system, {field: room})
    assert machines.memory_capacity == pytest.approx(room - 5e9)
    one = Machines.one(system, {field: 70e9})
    assert one.chip.main_memory.room == pytest.approx(65e9)
    assert float(Machines.of(one, {}).memory_capacity) == pytest.approx(65e9)
