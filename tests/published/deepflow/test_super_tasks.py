from itertools import pairwise

import pytest
from oracles.links import ring
from oracles.super_tasks import super_tasks

from crosstack.mapping.strategy import KernelSplit, ParallelDimension, parse_strategy
from crosstack.mapping.transform import transform
from crosstack.model.collectives import NONE
from crosstack.model.schedule.events import simulate
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
    names = [k.name for k in graph.kernels]
    stages = [names[first : first + each] for first in range(0, len(names), each)]

    def send(stage):
        size = kernels[stage[-1]].output_size * batch / strategy.n_chips * strategy.lp
        return chips.send(size, LP)

    # Forward, then backward; gradients are summed beside, one after the other on a stage's ring.
    sends = sum(map(send, stages[:-1]))
    now = sum(chips.forward(*shape(name)) for name in names) + sends
    ends = []
    for number, stage in reversed(list(enumerate(stages))):
        ring_free = 0.0
        for name in reversed(stage):
            now += chips.backward(*shape(name))
            k = kernels[name]
            summed = chips.all_reduce(k.k / strategy.kp1, k.m / strategy.kp2, DP)
            ring_free = max(ring_free, now) + summed
        ends.append(ring_free)
        now += send(stages[number - 1]) if number else 0.0
    assert long_way.makespan == pytest.approx(max(now, *ends), rel=1e-12)
