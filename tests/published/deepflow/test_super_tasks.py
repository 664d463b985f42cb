from itertools import pairwise

import pytest
from oracles.links import ring
from oracles.super_tasks import super_tasks

from crosstack.mapping.strategy import KernelSplit, ParallelDimension, parse_strategy
from crosstack.mapping.transform import transform
from crosstack.model.collectives import NONE
from crosstack.model.schedule.events import simulate
from crosstack.model.schedule.pipeline import Operation, Stage, pipeline_time
from crosstack.published.deepflow.distributed import DP, LP, Distributed
from crosstack.published.dfmodel.graphs.builders import product_of
from crosstack.workload.kernel_graph import kernel_graph
from crosstack.workload.kernels import Consumer, Tensor

WORD, TOKENS = 2, 32
RATE = 1e9


def chain(widths):
    kernels = tuple(
        product_of(f"k{i}", (1, n, k, TOKENS), word=WORD, input_sizes=(float(k * TOKENS * WORD),),
                   weight_size=float(k * n * WORD))
        for i, (k, n) in enumerate(pairwise(widths))
    )  # fmt: skip
    tensors = tuple(
        Tensor(producer=a.name, consumers=(Consumer(kernel=b.name),), size=a.output_size)
        for a, b in pairwise(kernels)
    )
    return kernel_graph(kernels=kernels, tensors=tensors, word=WORD)


class Plain:
    """Products at a constant rate; copies and additions take nothing."""

    element_size = float(WORD)
    launch_overhead = 0.0
    arrival = NONE

    def product(self, m, k, n):
        return 2 * m * k * n / RATE

    def elementwise(self, work, traffic):
        return 0.0


# Of kp1, kp2, dp, lp. RC counts half a collective with half its latency, which no ring has, so its
# kernel links have none here.
BANDWIDTHS = (1e8, 2e8, 3e8, 4e8)
LATENCIES = {
    KernelSplit.RC: (0.0, 0.0, 3e-6, 4e-6),
    KernelSplit.CR: (1e-6, 0.0, 3e-6, 4e-6),
}


@pytest.mark.parametrize(
    "text",
    ["RC-1-1-d1-p1", "RC-1-1-d4-p2", "RC-2-2-d1-p1", "RC-4-2-d3-p1", "RC-2-4-d2-p3", "RC-2-1-d1-p6",
     "CR-4-d1-p1", "CR-4-d2-p2", "CR-8-d3-p3"],
)  # fmt: skip
def test_the_transformed_graph_takes_what_the_closed_form_says(text):
    graph, strategy = chain((64, 128, 64, 32, 64, 128, 64)), parse_strategy(text)
    links = {
        d: ring(strategy.degree(d), b, latency)
        for d, b, latency in zip(
            ParallelDimension, BANDWIDTHS, LATENCIES[strategy.split], strict=True
        )
    }
    batch = 4 * strategy.dp
    kernels = {k.name: k for k in graph.kernels}

    def shape(name):
        kernel = kernels[name]
        return batch * kernel.n // strategy.dp, kernel.k, kernel.m

    def shard_time(name, forward):
        m, k, n = shape(name)
        return (2 if forward else 4) * m * k * n / (strategy.kp1 * strategy.kp2) / RATE

    long_way = simulate(
        super_tasks(transform(graph, strategy, batch=batch)[-1], strategy, shard_time, links)
    )

    chips = Distributed(strategy=strategy, times=Plain(), links=links)
    each = -(-len(graph) // strategy.lp)
    stages = []
    for first in range(0, len(graph), each):
        held = graph.kernels[first : first + each]
        size = held[-1].output_size * batch / strategy.n_chips * strategy.lp
        stages.append(
            Stage(
                operations=tuple(
                    Operation(
                        name=k.name,
                        forward=chips.forward(*shape(k.name)),
                        backward=chips.backward(*shape(k.name)),
                        reduce=chips.all_reduce(k.k / strategy.kp1, k.m / strategy.kp2, DP),
                    )
                    for k in held
                ),
                send=chips.send(size, LP) if strategy.lp > 1 else 0.0,
            )
        )
    assert long_way.makespan == pytest.approx(pipeline_time(stages), rel=1e-12)
