"""One transformer, timed as a step of a strategy and as a mapping with a kernel a partition."""

from dataclasses import replace
from pathlib import Path

import pytest
from builders.steps import plain

import crosstack
from crosstack import (
    Constraints,
    Dimension,
    DimensionKind,
    Parallelism,
    System,
    Task,
)
from crosstack.evaluate.distributed import Distributed
from crosstack.evaluate.transformer_step import transformer_step
from crosstack.io.chip_file import read_chip
from crosstack.machine.chip import flat_chip
from crosstack.machine.generate.generated import generate
from crosstack.machine.memory import main_memory
from crosstack.machine.packages import divided_system, system_of_packages
from crosstack.mapping.strategy import Strategy
from crosstack.model.collectives import NONE
from crosstack.model.kernels.roofline import Roofline
from crosstack.published.dfmodel.graphs.llm import llm
from crosstack.workload.transformer_training import TransformerTraining

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/chips/n5_hbm3.yaml"
BANDWIDTH, CORES, CELLS, CLOCK, REACHED = 2e12, 108, 32, 1.41e9, 0.75
LAYERS, BATCH, SEQUENCE = 2, 4, 2048
ELEMENTWISE = ("softmax", "residual", "norm", "activation")


class TwoRoofs:
    """The kernel time of the mapping path: compute, or every operand once through main memory."""

    element_size, launch_overhead, arrival = 2.0, 0.0, NONE

    def product(self, m, k, n, batch=1):
        traffic = batch * (m * k + k * n + m * n) * self.element_size
        return self.elementwise(2 * batch * m * k * n, traffic)

    def elementwise(self, work, traffic):
        return max(work / (2 * CELLS**2 * CORES * CLOCK * REACHED), traffic / BANDWIDTH)


def two_roofs_system():
    """Return one chip whose kernels take what `TwoRoofs` says."""
    chip = flat_chip(n_cores=CORES, lanes=CELLS, stages=CELLS, frequency=CLOCK, sram_capacity=1e15,
                utilization=REACHED)  # fmt: skip
    alone = Dimension(
        kind=DimensionKind.RING, size=1, bandwidth=1e11, parallelism=Parallelism.TENSOR
    )
    return System(
        chip=replace(chip, memories=main_memory(bandwidth=BANDWIDTH)), network=(alone,), n_chips=1
    )


def mapped(hidden, heads, system=None):
    """Time of products and of the rest, mapped kernel by kernel."""
    workload = llm(
        hidden=hidden, sequence_length=SEQUENCE, n_heads=heads, head_size=hidden // heads,
        n_layers=LAYERS, global_batch_size=BATCH,
    )  # fmt: skip
    given = Constraints(kernel_by_kernel=True, microbatch_size=1)
    answer = crosstack.optimise(
        Task(workload=workload, system=system or two_roofs_system(), constraints=given)
    )
    kinds = {k.name: k.kind for k in workload.graph.kernels}
    times = {True: 0.0, False: 0.0}
    for partition in answer.evaluation.partitions:
        times[kinds[partition.kernels[0]].is_gemm] += partition.time * LAYERS * BATCH
    assert sum(times.values()) == pytest.approx(answer.certificate.objective)
    return times[True], times[False]


def stepped(hidden, heads, kernels=None):
    """The same as a step, one sequence a microbatch."""
    model = TransformerTraining(
        model=plain(layers=LAYERS, hidden=hidden, heads=heads), batch=BATCH, sequence=SEQUENCE,
        microbatches=BATCH,
    )  # fmt: skip
    chips = Distributed(strategy=Strategy(), times=kernels or TwoRoofs(), links={})
    times = {True: 0.0, False: 0.0}
    stage = transformer_step(model, chips).stages[0]
    for operation, name in zip(stage.operations, stage.names, strict=True):
        if name.startswith("layer "):
            is_product = not any(word in operation.name for word in ELEMENTWISE)
            times[is_product] += BATCH * (operation.forward + operation.backward)
    return times[True], times[False]


@pytest.mark.parametrize(("hidden", "heads"), [(12288, 96), (4096, 32)])
def test_products_take_the_same_on_both_paths(hidden, heads):
    assert stepped(hidden, heads)[0] == pytest.approx(mapped(hidden, heads)[0], rel=1e-12)


# Elementwise kernels differ by what is counted: the step's softmax reads and writes 22 words an
# element in 10 launches, the mapping's softmax and dropout 8.
@pytest.mark.parametrize(("hidden", "heads", "within"), [(12288, 96, 0.07), (4096, 32, 0.18)])
def test_a_layer_takes_the_same_within_what_elementwise_kernels_differ(hidden, heads, within):
    assert sum(stepped(hidden, heads)) == pytest.approx(sum(mapped(hidden, heads)), rel=within)


# A generated chip, timed by the same clock on both paths. The mapping has queries, keys and values
# as three products each way, and adds up gradients from one microbatch to the next.
@pytest.mark.parametrize(("hidden", "heads"), [(12288, 96), (4096, 32)])
def test_products_of_a_generated_chip_take_the_same_but_for_how_they_are_cut(hidden, heads):
    described = read_chip(EXAMPLE.read_text(), EXAMPLE.name)
    chip = generate(described.template, described.budget).chip
    step = stepped(hidden, heads, Roofline().times(chip))[0]
    mapping = mapped(hidden, heads, divided_system(system_of_packages(chip)))[0]
    assert mapping == pytest.approx(step, rel=0.04)
