"""Claims about kernels that follow one another on a temporal chip, beside what `predict` counts."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

import crosstack
from crosstack import Constraints, Dimension, DimensionKind, Parallelism, System, Task
from crosstack.io import library
from crosstack.machine.chip import GPU_FUSIONS, Execution, Overlap, flat_chip
from crosstack.machine.framework import Fusion
from crosstack.machine.memory import Scope, main_memory
from crosstack.model.choices import make_choices
from crosstack.model.clocked import kernel_clock
from crosstack.model.kernels.flat import ConstantShare, SystolicCells
from crosstack.model.kernels.roofline import Roofline
from crosstack.model.mesh_plan import make_plan
from crosstack.model.partition import make_load, partition_cost
from crosstack.model.rules import rules_named
from crosstack.model.schedule.events import simulate
from crosstack.model.schedule.layer import TERMS, PartitionTimes, layer_graph
from crosstack.model.temporal_load import Run
from crosstack.published.dfmodel.graphs.llm import llm
from crosstack.published.dfmodel.graphs.serving import decode
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernel_graph import bits
from crosstack.workload.kernels import Direction, KernelKind
from crosstack.workload.transformer_training import Recompute

A100 = library.chip("a100-sxm-80gb").with_memory(capacity=None)
NEAR = next(level for level in A100.levels if level.scope is Scope.CHIP)
BARE = A100.without_fusion(Fusion.ATTENTION)  # whose products of attention are timed as they are
CLOSE = {"rel": 1e-9, "abs": 0.0}
RULES = rules_named("crosstack")


def gpt(batch=1, hidden=12288, heads=96, sequence=2048):
    """A layer of GPT-3 (Brown 2020, table 2.1), forward and backward."""
    return llm(
        hidden=hidden, sequence_length=sequence, n_heads=heads, head_size=hidden // heads,
        n_layers=1, global_batch_size=batch,
    )  # fmt: skip


def one_chip(chip=A100, size=1):
    ring = Dimension(
        kind=DimensionKind.RING, size=size, bandwidth=1e11, parallelism=Parallelism.TENSOR
    )
    return System(chip=chip, network=(ring,), n_chips=size)


def mapped(workload, chip=A100, **given):
    task = Task(workload=workload, system=one_chip(chip), constraints=Constraints(**given))
    return crosstack.optimise(task)


@pytest.fixture(scope="module")
def a_layer():
    """Return the best mapping of a layer of GPT-3 onto one chip."""
    return mapped(gpt())


def load_of(workload, chip=A100, microbatch=1, tensor=1, recompute=Recompute.NONE):
    system = one_chip(chip, tensor)
    arrays = workload.graph
    plan = make_plan(workload, system, (tensor,), (Parallelism.TENSOR,), microbatch, RULES)
    plan = replace(plan, recompute=recompute)
    choices = make_choices(workload, arrays, plan, 1, RULES, chip)
    codes = choices.index.start[:-1]
    return make_load(workload, system, arrays, plan, choices, codes, RULES)


def predicted(kernel, times, batch=1):
    """Time of a kernel of one microbatch as a step counts it, from its definition alone."""
    if not kernel.kind.is_gemm:
        moved = sum(kernel.input_sizes) + kernel.output_size
        return times.elementwise(batch * kernel.work, batch * moved) + times.launch_overhead
    if kernel.kind is KernelKind.GEMM_WEIGHT:  # all heads share the activations
        return times.product(kernel.outer * kernel.m, kernel.k, batch * kernel.n)
    if kernel.communications:  # the gradient of a weight adds up over tokens, and is added to
        added = kernel.m * kernel.n * Dtype.BF16.size / NEAR.speed
        return times.product(kernel.m, batch * kernel.k, kernel.n) + added
    return times.product(kernel.m, kernel.k, kernel.n, batch * kernel.outer)


# ---------------------------------------------------------------- map beside predict


@pytest.mark.parametrize("batch", [1, 4])
def test_kernels_of_a_training_step_take_what_a_prediction_counts(batch):
    workload, times = gpt(batch), Roofline().times(A100)
    answer = mapped(workload, BARE, kernel_by_kernel=True, microbatch_size=batch)
    kernels = {kernel.name: kernel for kernel in workload.graph.kernels}
    assert len(answer.evaluation.partitions) == len(kernels) == 41
    for partition in answer.evaluation.partitions:
        (name,) = partition.kernels
        taken = partition.time * batch
        assert taken == pytest.approx(predicted(kernels[name], times, batch), **CLOSE), name
    whole = sum(predicted(kernel, times, batch) for kernel in kernels.values())
    graph = workload.graph
    parameters = float(graph.weight_size[~graph.backward].sum()) / 2
    # A gradient becomes one of 4 bytes, is read for its norm, clipped, read, and set to zero;
    # master copy and two moments are read and written; the weight is made of its copy.
    update = parameters * (2 + 4 + 4 * 4 + 2 + 24 + 4 + 2) / A100.main_memory.bandwidth
    assert answer.evaluation.update_time == pytest.approx(update, rel=0.01)  # biases are no factors
    ended = answer.evaluation.update_time
    assert answer.certificate.objective == pytest.approx(whole + ended, **CLOSE)
    assert answer.certificate.status == "optimal"


def test_kernels_of_a_decoding_step_take_what_a_prediction_counts():
    model = library.model("llama3-8b")
    workload, times = decode(model, context=4096, global_batch_size=16), None
    times = Roofline().times(A100)
    answer = mapped(workload, kernel_by_kernel=True, microbatch_size=16)
    kernels = {kernel.name: kernel for kernel in workload.graph.kernels}
    for partition in answer.evaluation.partitions:
        kernel = kernels[partition.kernels[0]]
        # The products of attention read a cache, which is charged to the kernel that keeps it.
        if kernel.kind is KernelKind.GEMM_WEIGHT:
            found = partition.time * 16
            assert found == pytest.approx(predicted(kernel, times, 16), **CLOSE), kernel.name


def test_the_best_fusions_are_those_that_libraries_have(a_layer):
    answer = a_layer
    fused = {p.kernels for p in answer.evaluation.partitions}
    assert ("MHA_GEMM_1", "SOFTMAX", "DropOut_1", "MHA_GEMM_2") in fused
    assert {"FFN0", "GeLU"} in map(set, fused)
    assert {"FFN1", "DropOut_3", "Add_2"} in map(set, fused)
    assert answer.certificate.status == "optimal"
    assert answer.evaluation.time == pytest.approx(answer.certificate.objective, **CLOSE)
    alone = mapped(gpt(), kernel_by_kernel=True)
    assert answer.certificate.objective < alone.certificate.objective


def test_a_mapping_of_two_fused_products_is_refused_by_name(a_layer):
    answer = a_layer
    names = [kernel.name for kernel in answer.task.workload.graph.kernels]
    numbers = list(answer.mapping.partitions)
    numbers[names.index("FFN1")] = numbers[names.index("FFN0")]
    last = {names.index(name): max(numbers) + 1 for name in ("DropOut_3", "Add_2")}
    numbers = [last.get(i, number) for i, number in enumerate(numbers)]
    mapping = replace(answer.mapping, partitions=tuple(numbers))
    with pytest.raises(crosstack.InputError, match="FFN0.*several products"):
        crosstack.evaluate(answer.task, mapping)


def test_tiles_are_the_kernels_own():
    with pytest.raises(crosstack.InputError, match="n_tiles: got 4; allowed: 1"):
        mapped(gpt(hidden=256, heads=4, sequence=64), n_tiles=4)


# ---------------------------------------------------------------- partitions


def partitions_of(load, most=3):
    """Return partitions that are legal, grown kernel by kernel."""
    legality = load.temporal.legality
    found = {1 << i for i in range(load.n)}
    for _ in range(most):
        grown = {part | 1 << i for part in found for i in range(load.n)}
        found |= {part for part in grown if legality.allows(part)}
    attention = {held for _, held in legality.attentions}
    return [*found, *(held for held in attention if legality.allows(held))]


OVERLAPS = pytest.mark.parametrize("overlap", Overlap)


@OVERLAPS
@pytest.mark.parametrize("tensor", [1, 8])
def test_a_partition_never_takes_longer_than_its_kernels_one_by_one(overlap, tensor):
    load = load_of(gpt(), replace(A100, overlap=overlap), tensor=tensor)
    alone = [partition_cost(load, 1 << i) for i in range(load.n)]
    several = [part for part in partitions_of(load) if part.bit_count() > 1]
    assert len(several) > 30
    for part in several:
        cost = partition_cost(load, part)
        assert cost.fits
        assert cost.time < sum(alone[i].time for i in bits(part)) * (1 + 1e-12)
        assert cost.traffic <= sum(alone[i].traffic for i in bits(part)) * (1 + 1e-12)


@OVERLAPS
def test_no_partition_beats_what_its_kernels_add_at_least(overlap):
    load = load_of(gpt(), replace(A100, overlap=overlap), tensor=8)
    temporal = load.temporal
    for part in partitions_of(load):
        device, _, memory, _ = temporal.terms(part)
        least = sum(load.compute[i] for i in bits(part))
        moved = sum(load.own_memory[i] for i in bits(part))
        for flow in load.flows:
            made, read = part >> flow.producer & 1, part & flow.mask
            crosses = flow.mask & ~part if made else read
            moved += flow.moved / load.bandwidth if crosses else 0.0
        assert memory >= moved * (1 - 1e-12)
        hidden = memory if overlap is Overlap.NONE else 0.0
        assert device >= (least + hidden) * (1 - 1e-12)


@OVERLAPS
def test_parts_add_up_to_no_more_than_the_whole(overlap):
    """What a bound on a graph without some kernels relies on."""
    load = load_of(gpt(), replace(A100, overlap=overlap))
    for part in partitions_of(load):
        members = bits(part)
        for size in range(1, len(members)):
            for kept in itertools.combinations(members, size):
                small = load.temporal.of(kept)
                rest = sum(load.compute[i] for i in members if i not in kept)
                inside = (1 << len(kept)) - 1
                device, _, moved, launches = small.terms(inside)
                unshared = launches - small.launch * sum(small.shares)
                whole, _, memory, _ = load.temporal.terms(part)
                hidden = memory - moved if overlap is Overlap.NONE else 0.0
                added = device - unshared + rest + hidden
                assert whole >= max(device, added) * (1 - 1e-12)
                assert memory >= moved * (1 - 1e-12)


def test_a_larger_microbatch_shares_launches_and_weights():
    small, large = (load_of(gpt(8, 1024, 16), microbatch=size) for size in (1, 8))
    for i in range(small.n):
        one, many = (partition_cost(load, 1 << i) for load in (small, large))
        assert many.time < one.time


def test_elementwise_kernels_run_on_vector_units():
    slow = BARE.with_compute(relative_vector_rates=((crosstack.Dtype.BF16, 1e-3),))
    load, plain = load_of(gpt(), slow), load_of(gpt(), BARE.with_compute(relative_vector_rates=()))
    for i, kernel in enumerate(gpt().graph.kernels):
        ratio = load.temporal.work[i] / plain.temporal.work[i]
        assert ratio == pytest.approx(1.0 if kernel.kind.is_gemm else 1e3)


# ---------------------------------------------------------------- clocks


CELLS = {"n_cores": 100, "lanes": 32, "stages": 32, "frequency": 1e9, "sram_capacity": 1e6,
         "memories": main_memory(bandwidth=2e12), "execution": Execution.TEMPORAL,
         "fusions": GPU_FUSIONS}  # fmt: skip


@pytest.mark.parametrize(
    ("chip", "clock"),
    [
        (A100, Roofline()),
        (flat_chip(**CELLS, utilization=0.5), ConstantShare()),
        (flat_chip(**CELLS), SystolicCells()),
    ],
    ids=["levels", "a share", "cells"],
)
def test_the_clock_is_what_the_chip_says_enough_for(chip, clock):
    assert kernel_clock(chip, RULES) == clock
    times, small = (
        clock.products(chip, crosstack.Dtype.BF16, *np.full((4, 3), 64.0)),
        gpt(1, 256, 4),
    )
    assert np.all(times.time > 0)
    answer = mapped(small, chip)
    assert answer.certificate.status == "optimal"
    assert answer.evaluation.time == pytest.approx(answer.certificate.objective, **CLOSE)


def test_a_share_and_cells_take_what_they_say():
    sides = [np.array([float(side)]) for side in (96, 640, 4096, 10)]
    share = flat_chip(**CELLS, utilization=0.5)
    peak = 2 * 32 * 32 * 100 * 1e9
    found = ConstantShare().products(share, crosstack.Dtype.BF16, *sides)
    assert found.work_time == pytest.approx(2 * 960 * 640 * 4096 / (0.5 * peak))
    assert found.operands[0] == pytest.approx([960 * 640 * 2, 6400 * 4096 * 2, 960 * 4096 * 2])
    found = SystolicCells().products(flat_chip(**CELLS), crosstack.Dtype.BF16, *sides)
    # 30 x 128 blocks of 32 x 32 on 100 cores, 10 x 10: 3 x 13 rounds of 640 steps.
    assert found.work_time == pytest.approx(3 * 13 * 640 / 1e9)


@pytest.mark.parametrize(("n", "bound"), [(1.0, "memory"), (4096.0, "compute")])
def test_a_share_waits_for_its_launch_and_for_the_longer_of_work_and_memory(n, bound):
    chip = flat_chip(**CELLS, utilization=0.5, launch_overhead=3e-6).with_memory(latency=2e-6)
    m, k = 4096.0, 4096.0
    found = ConstantShare().products(
        chip, crosstack.Dtype.BF16, *(np.array([x]) for x in (m, k, n, 1.0))
    )
    work = 2 * m * k * n / (0.5 * 2 * 32 * 32 * 100 * 1e9)
    memory = (m * k + k * n + m * n) * 2 / 2e12 + 2e-6
    assert found.time == pytest.approx(3e-6 + (work if bound == "compute" else memory))
    assert found.bound == ("compute" if bound == "compute" else chip.main_memory.name)


def test_what_is_computed_again_takes_its_time_again():
    found = {}
    for again in Recompute:
        evaluation = mapped(gpt(), BARE, kernel_by_kernel=True, recompute=again).evaluation
        found[again] = {p.kernels[0]: p.time for p in evaluation.partitions}
    forward = {k.name for k in gpt().graph.kernels if k.direction is Direction.FORWARD}
    core = {"MHA_GEMM_1", "SOFTMAX", "DropOut_1", "MHA_GEMM_2"}
    for again, names, last in (
        (Recompute.FULL, forward, "Add_2"),
        (Recompute.ATTENTION, core, "MHA_GEMM_2"),
    ):
        for name, once in found[Recompute.NONE].items():
            twice = found[again][name]
            if name == last:  # nobody reads its result again
                assert once < twice < 2 * once
            else:
                assert twice == pytest.approx(once * (2 if name in names else 1))


@pytest.mark.parametrize("recompute", [Recompute.FULL, Recompute.ATTENTION])
def test_a_kernel_computed_again_by_itself_moves_what_it_moved_before(recompute):
    workload = gpt(1, 1024, 16, 512)
    load, names = load_of(workload, recompute=recompute), workload.graph.names
    runs = [load.temporal.kernel_runs(1 << i, names) for i in range(load.n)]
    twice = {first.name: (first.memory, again.memory) for first, again in filter(_two, runs)}
    assert "SOFTMAX" in twice
    for name, (first, again) in twice.items():
        if name == "Add_2":  # the last result leaves once
            assert again < first
        elif name != "MHA_GEMM_2":
            assert again == pytest.approx(first), name


def _two(runs):
    return len(runs) == 2


def a_temporal_load(*members, hides=True):
    """Two kernels that share a tensor; by hand."""
    whole = load_of(gpt(1, 64, 4, 32)).temporal.of((0, 1))
    return replace(
        whole, launch=1.0, delay=(0.5, 0.5), work=(2.0, 3.0), after=(0.25, 0.5), hides=hides,
        runs=tuple(Run(mask, (1.0, 0.0), (((0b10, 4.0),), ((0b01, 4.0),))) for mask in members),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("inside", "hides", "terms"),
    [
        # the tensor crosses: 1 + 4 s and the latency, longer than the work; the launch
        (0b01, True, (0.25 + 5.5 + 1, 2.25, 5.0, 1.0)),
        (0b01, False, (0.25 + 2 + 5.5 + 1, 2.25, 5.0, 1.0)),
        (0b10, True, (0.5 + 4.5 + 1, 3.5, 4.0, 1.0)),
        # the tensor stays; the second kernel moves nothing
        (0b11, True, (0.25 + 2 + 0.5 + 3 + 1, 5.75, 1.0, 1.0)),
    ],
)
def test_a_partition_takes_its_kernels_one_after_the_other(inside, hides, terms):
    assert a_temporal_load(0b11, hides=hides).terms(inside) == pytest.approx(terms)


def test_what_runs_again_computes_and_is_launched_again():
    load = a_temporal_load(0b11, 0b01)
    assert (load.computing(0), load.computing(1)) == (2 * 2.25, 3.5)
    once, twice = a_temporal_load(0b11).terms(0b01), load.terms(0b01)
    assert twice == pytest.approx([2 * term for term in once])
    assert load.terms(0b10) == a_temporal_load(0b11).terms(0b10)


@OVERLAPS
def test_kernels_that_join_no_other_take_at_least_what_they_take_alone(overlap):
    chip = replace(A100, fusions=(), overlap=overlap, launch_overhead=0.0).with_memory(latency=1e-5)
    load = load_of(gpt(1, 1024, 16, 512), chip)
    for i in range(load.n):
        alone = partition_cost(load, 1 << i)
        assert load.compute[i] + (
            alone.memory if overlap is Overlap.NONE else 0.0
        ) == pytest.approx(alone.time)


def test_gradients_are_added_to_those_of_earlier_microbatches():
    one, eight = (load_of(gpt(batch, 256, 4, 64)) for batch in (1, 8))
    arrays = gpt(1, 256, 4, 64).graph
    for i in range(arrays.n):
        # of eight microbatches all but the first read what is there
        size = arrays.rows[i] * arrays.columns[i] * arrays.word if arrays.periodic_size[i] else 0.0
        more = (eight.own_memory[i] - one.own_memory[i]) * one.bandwidth
        assert more == pytest.approx(7 / 8 * size)


@OVERLAPS
@pytest.mark.parametrize("again", Recompute)
def test_kernels_run_one_by_one_take_the_time_of_the_layer(overlap, again):
    chip = replace(A100, overlap=overlap)
    given = Constraints(recompute=again)
    task = Task(workload=gpt(2), system=one_chip(chip, 8), constraints=given)
    found = crosstack.optimise(task, gap=0.5, work_limit=1e4).evaluation
    times = [
        PartitionTimes(
            **{term: getattr(p, f"{term}_time") for term in TERMS}, kernels=p.kernel_runs
        )
        for p in found.partitions
    ]
    ran = simulate(layer_graph(times, overlap))
    assert ran.makespan == pytest.approx(found.layer_time, rel=1e-12)
    for p in found.partitions:
        assert {run.name for run in p.kernel_runs} == set(p.kernels)
        computed = sum(run.compute + run.reduction for run in p.kernel_runs)
        assert computed == pytest.approx(p.compute_time, rel=1e-12)
        assert all(run.bound_by in ("compute", "memory") for run in p.kernel_runs)
    twice = [run for p in found.partitions for run in p.kernel_runs if run.again]
    assert bool(twice) is (again is not Recompute.NONE)


def test_small_kernels_are_bound_by_their_launch():
    small = mapped(gpt(1, 64, 4, 32))
    assert {p.bound_by for p in small.evaluation.partitions} == {"launch"}
    large = mapped(gpt())
    assert "launch" not in {p.bound_by for p in large.evaluation.partitions}
    for p in (*small.evaluation.partitions, *large.evaluation.partitions):
        assert p.launch_time == A100.launch_overhead
        assert p.terms[p.bound_by] == max(p.terms.values())
