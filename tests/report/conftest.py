"""Answers to draw, small and large, without a search."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from crosstack.evaluate.plan import Plan, given_plan
from crosstack.evaluate.time import evaluate
from crosstack.machine.chip import flat_chip
from crosstack.machine.memory import main_memory
from crosstack.machine.system import Dimension, DimensionKind, Parallelism, System
from crosstack.mapping.mapping import Certificate, Constraints, Mapping, Status, Task
from crosstack.model.rules import rules_named
from crosstack.workload import kernels as ops
from crosstack.workload.kernel_graph import KernelGraph, kernel_graph
from crosstack.workload.workload import Workload

SIZE = 2.0 * 64 * 64
NAMES = tuple(f"kernel_{i}" for i in range(12))
Edge = tuple[int, int]


def a_graph(names: Sequence[str], edges: Sequence[Edge]) -> KernelGraph:
    """Kernels of 64 x 64 outputs; one with at most one input is a product with a weight."""
    makers: list[list[int]] = [[] for _ in names]
    for source, target in edges:
        makers[target].append(source)
    kernels = []
    for i, name in enumerate(names):
        weighted = len(makers[i]) < 2
        kernels.append(
            ops.Kernel(
                name=name,
                kind=ops.KernelKind.GEMM_WEIGHT if weighted else ops.KernelKind.ELEMENTWISE_2,
                m=64,
                n=64,
                k=64 if weighted else 1,
                output_size=SIZE,
                input_sizes=(SIZE,) if weighted else (SIZE, SIZE),
                weight_size=SIZE if weighted else 0.0,
                unit=ops.ComputeUnit.SYSTOLIC if weighted else ops.ComputeUnit.SIMD,
                direction=ops.Direction.BACKWARD if 2 * i > len(names) else ops.Direction.FORWARD,
            )
        )
    readers: dict[int, list[ops.Consumer]] = {}
    for source, target in edges:
        operand = makers[target].index(source)
        readers.setdefault(source, []).append(ops.Consumer(kernel=names[target], operand=operand))
    tensors = tuple(
        ops.Tensor(producer=names[i], consumers=tuple(c), size=SIZE) for i, c in readers.items()
    )
    return kernel_graph(kernels=tuple(kernels), tensors=tensors, word=2)


def random_edges(n: int, seed: int = 1) -> list[Edge]:
    """At most two inputs a kernel, most of them from close by."""
    draw = random.Random(seed)
    edges = set()
    for target in range(1, n):
        for _ in range(draw.choice((1, 1, 2))):
            edges.add((max(0, target - 1 - int(draw.expovariate(0.4))), target))
    return sorted(edges)


def a_task(names: Sequence[str], edges: Sequence[Edge], *, n_chips: int = 4) -> Task:
    workload = Workload(graph=a_graph(names, edges), sequence_length=64, name="small")
    system = System(
        chip=replace(
            flat_chip(
                n_cores=4,
                lanes=8,
                stages=8,
                frequency=1e9,
                sram_capacity=1e9,
                utilization=0.9,
                price=10.0,
                power=5.0,
            ),
            memories=main_memory(bandwidth=1e10, capacity=1e12),
        ),
        network=(Dimension(kind=DimensionKind.RING, size=n_chips, bandwidth=1e9, latency=1e-7),),
        n_chips=n_chips,
        name="four",
    )
    return Task(workload=workload, system=system, constraints=Constraints(n_tiles=4))


def an_answer(
    names: Sequence[str],
    edges: Sequence[Edge],
    partitions: Sequence[int],
    *,
    n_chips: int = 4,
    status: Status = Status.OPTIMAL,
) -> Plan:
    task = a_task(names, edges, n_chips=n_chips)
    gemm = [k.kind.is_gemm for k in task.workload.graph.kernels]
    mapping = Mapping(
        sizes=(n_chips,),
        parallelism=(Parallelism.TENSOR,),
        microbatch_size=1,
        n_tiles=4,
        # Splitting K makes an all-reduce.
        sharding=tuple(
            ops.Axis.NONE if n_chips == 1 else ops.Axis.K if g else ops.Axis.M for g in gemm
        ),
        partitions=tuple(partitions),
    )
    rules = rules_named("crosstack")
    evaluation = evaluate(task.workload, task.system, mapping, rules)
    sure = status is Status.OPTIMAL
    certificate = Certificate(
        status=status,
        objective=evaluation.time,
        bound=evaluation.time * (1.0 if sure else 0.9),
        method="by hand",
        free=("sharding",),
        given=("number of tiles",),
        runtime=0.25,
    )
    return Plan(
        task=task, rules=rules, mapping=mapping, certificate=certificate, evaluation=evaluation
    )


@pytest.fixture(scope="session")
def small_answer() -> Plan:
    """Twelve kernels in three partitions on four chips."""
    return an_answer(NAMES, random_edges(12), [i // 4 for i in range(12)])


@pytest.fixture(scope="session")
def staged_answer(small_answer: Plan) -> Plan:
    """The first six of those kernels in three partitions, on two stages of a pipeline."""
    graph = a_graph(NAMES[:6], random_edges(6))
    forward = tuple(replace(k, direction=ops.Direction.FORWARD) for k in graph.kernels)
    task = small_answer.task
    system = task.system
    workload = replace(task.workload, graph=graph.listing(kernels=forward))
    mapping = replace(
        small_answer.mapping,
        parallelism=(Parallelism.PIPELINE,),
        sharding=(ops.Axis.NONE,) * 6,
        partitions=(0, 0, 1, 1, 2, 2),
        stages=(0, 0, 0, 0, 1, 1),
    )
    return given_plan(Task(workload=workload, system=system), mapping)


@pytest.fixture(scope="session")
def lonely_answer() -> Plan:
    """One kernel on one chip: no edges, and nothing to say to anybody."""
    return an_answer(["only"], [], [0], n_chips=1)


@pytest.fixture(scope="session")
def large_answer() -> Plan:
    """Two thousand kernels in twenty partitions."""
    names = [f"kernel_{i}" for i in range(2000)]
    return an_answer(names, random_edges(2000), [i // 100 for i in range(2000)])


@pytest.fixture(scope="session")
def make_answer() -> Callable[..., Plan]:
    """Return the builder itself."""
    return an_answer
