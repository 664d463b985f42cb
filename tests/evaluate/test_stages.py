"""Stages that split the graph: what each holds, sends on and takes, and how it is saved."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest
from oracles.answer_data import answer_data

from crosstack.errors import InfeasibleError, InputError
from crosstack.evaluate.plan import given_plan, mapping_from_dict, optimise
from crosstack.evaluate.time import evaluate
from crosstack.machine.chip import Overlap, flat_chip
from crosstack.machine.memory import main_memory
from crosstack.machine.system import Dimension, DimensionKind, Parallelism, System
from crosstack.mapping.mapping import Mapping, Task
from crosstack.workload import kernels as ops
from crosstack.workload.kernel_graph import kernel_graph
from crosstack.workload.workload import Workload


def a_layer(name: str) -> ops.Kernel:
    """8 x 4 weights on 16 columns: 1,024 FLOP, 64 B of weights, 256 B out."""
    return ops.Kernel(
        name=name,
        kind=ops.KernelKind.GEMM_WEIGHT,
        m=8,
        k=4,
        n=16,
        input_sizes=(256.0,),
        output_size=256.0,
        weight_size=64.0,
        unit=ops.ComputeUnit.SYSTOLIC,
    )


NAMES = ("a", "b", "c", "d")


def a_chain(**changes) -> Workload:
    """Four equal layers, each a kernel; the first is read by the last as well."""
    tensors = [
        ops.Tensor(producer=x, consumers=(ops.Consumer(kernel=y),), size=256.0)
        for x, y in itertools.pairwise(NAMES[1:])
    ]
    readers = (ops.Consumer(kernel="b"), ops.Consumer(kernel="d", operand=1))
    last = replace(
        a_layer("d"), kind=ops.KernelKind.GEMM, input_sizes=(256.0, 256.0), weight_size=0.0
    )
    graph = kernel_graph(
        kernels=(*(a_layer(name) for name in NAMES[:3]), last),
        tensors=(ops.Tensor(producer="a", consumers=readers, size=256.0), *tensors),
        word=2,
    )
    values = {"global_batch_size": 8, "sequence_length": 16, "boundary_size": 256.0}
    return Workload(graph=graph, **{**values, **changes})


def a_system(**changes) -> System:
    """Four chips in a ring of 1 MB/s and 1 us; 1 MFLOP/s each, memory without end."""
    ring = Dimension(
        kind=DimensionKind.RING,
        bandwidth=1e6,
        latency=1e-6,
        size=4,
        parallelism=Parallelism.PIPELINE,
    )
    chip = flat_chip(
        n_cores=1,
        lanes=1,
        stages=1,
        frequency=5e5,
        sram_capacity=1e6,
        utilization=1.0,
        overlap=Overlap.NONE,
    )
    memories = changes.pop("memory", main_memory(bandwidth=1e15))
    values = {"chip": chip, "network": (ring,), "n_chips": 4} | changes
    return System(**values | {"chip": replace(values["chip"], memories=memories)})


MAPPING = Mapping(
    sizes=(4,),
    parallelism=(Parallelism.PIPELINE,),
    microbatch_size=2,
    n_tiles=1,
    sharding=(ops.Axis.NONE,) * 4,
    partitions=(0, 1, 2, 3),
    stages=(0, 0, 1, 2),
)


class TestTerms:
    def test_work_is_that_of_the_partitions_for_a_microbatch(self):
        # 1,024 FLOP a kernel at 1 MFLOP/s, two sequences
        stages = evaluate(a_chain(), a_system(), MAPPING).stages
        assert [s.work_time for s in stages] == pytest.approx([4096e-6, 2048e-6, 2048e-6])

    def test_a_tensor_is_sent_over_every_border_it_crosses(self):
        # after b: a's and b's tensors; after c: a's and c's; 512 B for two sequences each
        stages = evaluate(a_chain(), a_system(), MAPPING).stages
        assert [s.transfer_time for s in stages] == pytest.approx([1025e-6, 1025e-6, 0.0])

    def test_the_last_stage_hands_the_boundary_to_another_copy(self):
        # 4 stages for 2 copies
        halves = replace(MAPPING, stages=(0, 0, 1, 1))
        stages = evaluate(a_chain(n_layers=2), a_system(), halves).stages
        assert stages[-1].transfer_time == pytest.approx(513e-6)

    def test_without_overlap_a_transfer_adds_up(self):
        stages = evaluate(a_chain(), a_system(), MAPPING).stages
        assert [s.time for s in stages] == [s.work_time + s.transfer_time for s in stages]

    def test_where_all_overlaps_it_hides(self):
        system = a_system()
        system = replace(system, chip=replace(system.chip, overlap=Overlap.ALL))
        stages = evaluate(a_chain(), system, MAPPING).stages
        assert [s.time for s in stages] == [s.work_time for s in stages]
        assert {s.bound_by for s in stages} == {"work"}

    def test_an_iteration_waits_for_the_stages_that_hold_kernels(self):
        # 4 microbatches of 2, three stages of four in use
        found = evaluate(a_chain(), a_system(), MAPPING)
        assert found.stage_time == pytest.approx(5121e-6)
        through = 4096e-6 + 2 * 2048e-6 + 2 * 1025e-6
        assert found.time == pytest.approx(through + 3 * 5121e-6)
        assert found.bubble_factor == pytest.approx(found.time / 4 / 5121e-6)

    def test_a_microbatch_passes_all_stages_in_turn(self):
        found = evaluate(a_chain(), a_system(), MAPPING)
        assert found.latency == pytest.approx(4 * 2048e-6 + 2 * 1025e-6)

    def test_main_memory_holds_the_weights_of_the_stage_alone(self):
        # a and b: 128 B, and the tensor between them, 512 B
        stages = evaluate(a_chain(), a_system(), MAPPING).stages
        assert stages[0].memory_used == pytest.approx(128 + 2 * 512)
        assert stages[2].memory_used == pytest.approx(2 * 512)

    def test_weights_stay_where_a_stage_is_one_partition(self):
        slow = a_system(memory=main_memory(bandwidth=1e6))
        one = evaluate(a_chain(), slow, replace(MAPPING, partitions=(0, 0, 1, 2)))
        two = evaluate(a_chain(), slow, MAPPING)
        # c alone in its stage: 256 B in, 256 B out, no weights
        assert one.partitions[1].memory_traffic == pytest.approx(512)
        # a alone: 64 B of weights for two sequences, 256 B from outside, 256 B out
        assert two.partitions[0].memory_traffic == pytest.approx(32 + 256 + 256)

    def test_partitions_name_their_stage(self):
        found = evaluate(a_chain(), a_system(), MAPPING)
        assert [p.stage for p in found.partitions] == [0, 0, 1, 2]
        assert [s.partitions for s in found.stages] == [(0, 1), (2,), (3,)]

    def test_whole_copies_have_no_stages(self):
        found = evaluate(a_chain(), a_system(), replace(MAPPING, stages=None))
        assert found.stages == ()
        assert {p.stage for p in found.partitions} == {None}


class TestRefused:
    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"stages": (0, 0, 1)}, "stages: got 3; allowed: one per kernel"),
            ({"stages": (0, 0, 2, 2)}, "none left out"),
            ({"stages": (0, 1, 0, 1)}, "in the order of their partitions"),
            ({"partitions": (0, 0, 1, 1), "stages": (0, 1, 1, 1)}, "one stage a partition"),
            ({"stages": (0, -1, 0, 0)}, r"stages\[1\]: got -1"),
        ],
    )
    def test_stages_that_cannot_be(self, changes, says):
        with pytest.raises(InputError, match=says):
            replace(MAPPING, **changes)

    def test_more_stages_than_the_pipeline_has(self):
        with pytest.raises(InputError, match=r"mapping.stages: got 3 .* allowed: at most 2"):
            evaluate(a_chain(n_layers=2), a_system(), MAPPING)

    def test_stages_where_one_holds_whole_copies(self):
        with pytest.raises(InputError, match="allowed: none"):
            evaluate(a_chain(n_layers=4), a_system(), MAPPING)

    def test_stages_of_a_training_graph(self):
        workload = a_chain()
        kernels = workload.graph.kernels
        last = replace(kernels[-1], direction=ops.Direction.BACKWARD)
        graph = workload.graph.listing(kernels=(*kernels[:-1], last))
        with pytest.raises(InputError, match="a training graph is not split"):
            evaluate(replace(workload, graph=graph), a_system(), MAPPING)

    def test_a_stage_that_does_not_fit_its_memory(self):
        small = a_system(memory=main_memory(bandwidth=1e15, capacity=1000.0))
        with pytest.raises(
            InfeasibleError, match="main memory: partition 0, most of it buffers, needs"
        ):
            evaluate(a_chain(), small, replace(MAPPING, microbatch_size=4))


class TestSearch:
    def test_the_best_cut_of_equal_layers_is_even(self):
        # four kernels on four stages: a border costs 513 or 1025 us, a kernel 2048 us
        found = optimise(a_chain(global_batch_size=80), a_system())
        assert found.mapping.stages == (0, 1, 2, 3)

    def test_a_short_batch_is_better_off_with_fewer_stages(self):
        # one sequence: no stage runs beside another, so borders only cost
        found = optimise(a_chain(global_batch_size=1), a_system())
        assert found.mapping.stages == (0, 0, 0, 0)

    def test_too_little_memory_names_the_fullest_stage(self):
        small = a_system(memory=main_memory(bandwidth=1e15, capacity=60.0))
        with pytest.raises(InfeasibleError, match="the fullest of 4 stages") as caught:
            optimise(a_chain(), small)
        assert "more tensor parallelism" in caught.value.levers

    def test_stages_fit_what_whole_copies_do_not(self):
        # 192 B of weights in all
        tight = a_system(memory=main_memory(bandwidth=1e15, capacity=700.0))
        found = optimise(a_chain(), tight)
        assert found.evaluation.memory_used <= 700.0
        assert len(found.evaluation.stages) > 1

    def test_the_certificate_says_that_stages_were_searched(self):
        certificate = optimise(a_chain(), a_system()).certificate
        assert "stages" in certificate.free
        assert "fusion and stages" in certificate.method


@pytest.fixture(scope="module")
def answer():
    """Return the best stages of the chain."""
    return optimise(a_chain(), a_system())


class TestSaved:
    def test_stages_survive_being_saved(self, answer):
        read = mapping_from_dict(json.loads(answer.to_json()), answer.task)
        assert read.stages == answer.mapping.stages
        again = evaluate(answer.task.workload, answer.task.system, read)
        assert again.time == pytest.approx(answer.certificate.objective, rel=1e-12)

    def test_the_stages_are_saved_as_promised(self, answer):
        assert answer.to_dict() == answer_data(answer)

    def test_a_kernel_without_a_stage_is_named(self, answer):
        data = answer.to_dict()
        data["kernels"][1]["pipeline_stage"] = None
        with pytest.raises(InputError, match=r"kernels\[1\].pipeline_stage: got None"):
            mapping_from_dict(data, answer.task)

    def test_stages_are_among_what_is_given(self):
        task = Task(workload=a_chain(), system=a_system())
        assert "stages" in given_plan(task, MAPPING).certificate.given
