"""One transformer, timed as a step of a strategy and as a mapping with a kernel a partition."""

import pytest

import crosstack
from crosstack import (
    Chip,
    Constraints,
    Dimension,
    DimensionKind,
    Memory,
    Parallelism,
    System,
    Task,
)
from crosstack.chip.hierarchy import ChipHierarchy, Compute, MemoryLevel, Scope
from crosstack.evaluate.distributed import Distributed
from crosstack.evaluate.kernel_times import CompulsoryTimes
from crosstack.evaluate.transformer_step import transformer_step
from crosstack.mapping.strategy import Strategy
from crosstack.workload.transformer_training import TransformerTraining

BANDWIDTH, CORES, CELLS, CLOCK, REACHED = 2e12, 108, 32, 1.41e9, 0.75
LAYERS, BATCH, SEQUENCE = 2, 4, 2048
ELEMENTWISE = ("softmax", "residual", "norm")


def mapped(hidden, heads):
    """Time of products and of the rest, mapped kernel by kernel."""
    workload = crosstack.llm(
        hidden=hidden, sequence_length=SEQUENCE, n_heads=heads, head_size=hidden // heads,
        n_layers=LAYERS, global_batch_size=BATCH,
    )  # fmt: skip
    chip = Chip(n_cores=CORES, lanes=CELLS, stages=CELLS, frequency=CLOCK, sram_capacity=1e15,
                utilization=REACHED)  # fmt: skip
    alone = Dimension(
        kind=DimensionKind.RING, size=1, bandwidth=1e11, parallelism=Parallelism.TENSOR
    )
    system = System(chip=chip, memory=Memory(bandwidth=BANDWIDTH), network=(alone,), n_chips=1)
    given = Constraints(kernel_by_kernel=True, microbatch_size=1)
    answer = crosstack.optimise(Task(workload=workload, system=system, constraints=given))
    kinds = {k.name: k.kind for k in workload.graph.kernels}
    times = {True: 0.0, False: 0.0}
    for partition in answer.evaluation.partitions:
        times[kinds[partition.kernels[0]].is_gemm] += partition.time * LAYERS * BATCH
    assert sum(times.values()) == pytest.approx(answer.certificate.objective)
    return times[True], times[False]


def stepped(hidden, heads):
    """The same as a step, one sequence a microbatch."""
    chip = ChipHierarchy(
        compute=Compute(n_units=CORES, n_bundles=CORES, work_per_cycle=2 * CELLS**2,
                        frequency=CLOCK, utilization=REACHED),
        levels=(MemoryLevel(name="DRAM", scope=Scope.CHIP, capacity=1e15, bandwidth=BANDWIDTH),),
    )  # fmt: skip
    model = TransformerTraining(
        batch=BATCH, sequence=SEQUENCE, layers=LAYERS, hidden=hidden, heads=heads,
        feed_forward=4 * hidden, vocabulary=1, microbatches=BATCH,
    )  # fmt: skip
    chips = Distributed(strategy=Strategy(), times=CompulsoryTimes(chip), links={})
    times = {True: 0.0, False: 0.0}
    for operation in transformer_step(model, chips).stages[0].operations:
        if operation.name.startswith("layer "):
            is_product = not any(word in operation.name for word in ELEMENTWISE)
            times[is_product] += BATCH * (operation.forward + operation.backward)
    return times[True], times[False]


@pytest.mark.parametrize(("hidden", "heads"), [(12288, 96), (4096, 32)])
def test_products_take_the_same_on_both_paths(hidden, heads):
    assert stepped(hidden, heads)[0] == pytest.approx(mapped(hidden, heads)[0], rel=1e-12)


# Elementwise kernels differ by what is counted: the step's softmax reads and writes 22 words an
# element in 10 launches, the mapping's softmax and dropout 8.
@pytest.mark.parametrize(("hidden", "heads", "within"), [(12288, 96, 0.06), (4096, 32, 0.16)])
def test_a_layer_takes_the_same_within_what_elementwise_kernels_differ(hidden, heads, within):
    assert sum(stepped(hidden, heads)) == pytest.approx(sum(mapped(hidden, heads)), rel=within)
