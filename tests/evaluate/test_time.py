from __future__ import annotations

from dataclasses import replace

import pytest

from crosstack.errors import InfeasibleError, InputError
from crosstack.evaluate.plan import evaluate_task, mapping_from_dict, optimise
from crosstack.evaluate.time import evaluate
from crosstack.io import library
from crosstack.io.library import system_on
from crosstack.machine.memory import main_memory
from crosstack.machine.system import Dimension, DimensionKind, Parallelism, System
from crosstack.mapping.mapping import Constraints, Mapping, Task
from crosstack.workload.architectures import graphs
from crosstack.workload.graph_workload import workload_of
from crosstack.workload.kernel_graph import kernel_graph
from crosstack.workload.kernels import Axis, ComputeUnit, Consumer, Kernel, KernelKind, Tensor
from crosstack.workload.workload import Workload


def kernel(name: str, weight: bool = False) -> Kernel:
    kind = KernelKind.GEMM_WEIGHT if weight else KernelKind.ELEMENTWISE
    return Kernel(
        name=name,
        kind=kind,
        m=8,
        k=4 if weight else 1,
        n=16,
        input_sizes=(256.0,),
        output_size=256.0,
        weight_size=64.0 if weight else 0.0,
        unit=ComputeUnit.SYSTOLIC if weight else ComputeUnit.SIMD,
    )


WORKLOAD = Workload(
    graph=kernel_graph(
        kernels=(kernel("first", weight=True), kernel("second"), kernel("third", weight=True)),
        tensors=(
            Tensor(producer="first", consumers=(Consumer(kernel="second"),), size=256.0),
            Tensor(producer="second", consumers=(Consumer(kernel="third"),), size=256.0),
        ),
        word=2,
    ),
    n_layers=4,
    global_batch_size=8,
    sequence_length=16,
    boundary_size=256.0,
)
MAPPING = Mapping(
    sizes=(4, 2),
    parallelism=(Parallelism.TENSOR, Parallelism.PIPELINE),
    microbatch_size=2,
    n_tiles=4,
    sharding=(Axis.M, Axis.M, Axis.K),
    partitions=(0, 0, 1),
)


@pytest.fixture(scope="session")
def system(a_chip) -> System:
    """Return eight chips in two free rings, cores dealt."""
    ring = Dimension(kind=DimensionKind.RING, bandwidth=1e9, latency=1e-6)
    return System(
        chip=replace(
            a_chip(n_cores=8, lanes=2, stages=2, frequency=1e6, sram_capacity=4096.0),
            memories=main_memory(bandwidth=1e7, capacity=1e6),
        ),
        network=(ring, ring),
        n_chips=8,
    )


@pytest.fixture(scope="session")
def evaluation(system):
    """Return the evaluation of the mapping."""
    return evaluate(WORKLOAD, system, MAPPING)


class TestTermsAddUp:
    def test_a_layer_is_the_sum_of_its_partitions(self, evaluation):
        assert evaluation.layer_time == sum(p.time for p in evaluation.partitions)

    def test_partitions_hold_every_kernel_once(self, evaluation):
        names = [name for p in evaluation.partitions for name in p.kernels]
        assert sorted(names) == ["first", "second", "third"]

    def test_where_all_overlaps_a_partition_takes_its_longest_term(self, evaluation):
        for p in evaluation.partitions:
            assert p.time == max(p.compute_time, p.memory_time, p.network_time)

    def test_a_partition_is_bound_by_its_longest_term(self, evaluation):
        for p in evaluation.partitions:
            assert getattr(p, f"{p.bound_by}_time") == p.time

    def test_network_of_a_partition_is_that_of_its_kernels(self, evaluation):
        for p in evaluation.partitions:
            parts = [k.network_time for k in evaluation.kernels if k.name in p.kernels]
            assert p.network_time == pytest.approx(sum(parts), rel=1e-12)

    def test_compute_of_a_partition_is_that_of_its_slowest_kernel(self, evaluation):
        for p in evaluation.partitions:
            parts = [k.compute_time for k in evaluation.kernels if k.name in p.kernels]
            assert p.compute_time == pytest.approx(max(parts), rel=1e-12)

    def test_compute_adds_up_where_utilization_is_given(self, system):
        chip = system.chip.with_compute(utilization=0.5)
        found = evaluate(WORKLOAD, replace(system, chip=chip), MAPPING)
        for p in found.partitions:
            parts = [k.compute_time for k in found.kernels if k.name in p.kernels]
            assert p.compute_time == pytest.approx(sum(parts), rel=1e-12)

    def test_memory_time_is_traffic_over_bandwidth(self, evaluation):
        for p in evaluation.partitions:
            assert p.memory_time == pytest.approx(p.memory_traffic / 1e7, rel=1e-12)

    def test_an_iteration_is_its_slots_and_sends_that_nothing_hides(self, evaluation):
        e = evaluation
        assert e.bubble_factor == 1 + (e.n_stages - 1) / e.n_microbatches
        slots = e.layer_time * MAPPING.microbatch_size * e.layers_per_stage
        slots *= e.bubble_factor * e.n_microbatches
        assert slots <= e.time <= slots + 2 * e.n_microbatches * e.stage_transfer_time

    def test_throughput_is_the_batch_over_the_time(self, evaluation):
        assert evaluation.throughput == pytest.approx(8 / evaluation.time, rel=1e-12)

    def test_utilization_is_work_over_what_all_chips_could_do(self, evaluation, system):
        could = evaluation.time * 8 * system.chip.peak_throughput
        assert evaluation.utilization == pytest.approx(WORKLOAD.work / could, rel=1e-12)

    def test_it_is_at_most_one(self, evaluation):
        assert 0 < evaluation.utilization <= 1

    def test_cores_used_are_those_of_the_kernels(self, evaluation):
        for p in evaluation.partitions:
            used = [k.lanes * k.stages for k in evaluation.kernels if k.name in p.kernels]
            assert p.cores_used == sum(used) <= 8

    def test_main_memory_used_is_the_most_of_any_partition(self, evaluation):
        assert evaluation.memory_used == max(p.memory_used for p in evaluation.partitions)

    def test_a_gap_in_the_numbers_of_partitions_costs_nothing(self, evaluation, system):
        apart = replace(MAPPING, partitions=(0, 0, 7))
        assert evaluate(WORKLOAD, system, apart).time == evaluation.time


class TestWhatDoesNotFit:
    def test_sram(self, system):
        small = replace(system, chip=system.chip.with_level(0, capacity=200.0))
        with pytest.raises(InfeasibleError, match=r"SRAM: partition 0 \(first, second\) needs"):
            evaluate(WORKLOAD, small, replace(MAPPING, n_tiles=1))

    def test_main_memory(self, system):
        small = replace(
            system, chip=replace(system.chip, memories=main_memory(bandwidth=1e7, capacity=100.0))
        )
        with pytest.raises(
            InfeasibleError, match="main memory: partition 0, most of it buffers, needs"
        ):
            evaluate(WORKLOAD, small, MAPPING)

    def test_cores(self, system):
        small = replace(system, chip=system.chip.with_compute(n_units=1, n_multiprocessors=1))
        with pytest.raises(InfeasibleError, match="cores: partition 0 needs 2"):
            evaluate(WORKLOAD, small, MAPPING)


class TestMappingsThatDoNotBelong:
    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"sharding": (Axis.M,), "partitions": (0,)}, "got 1 kernels; the workload has 3"),
            ({"sizes": (8,), "parallelism": (Parallelism.TENSOR,)}, "got 1 dimensions"),
            ({"sizes": (4, 4)}, "got 4 x 4 chips; the system has 8"),
            ({"microbatch_size": 3}, "mapping.microbatch_size: got 3"),
            ({"sharding": (Axis.N, Axis.M, Axis.K)}, r'got n for "first"; allowed: m, k'),
            ({"partitions": (1, 0, 2)}, '"second" runs in partition 0, before "first" in 1'),
        ],
    )
    def test_they_are_refused(self, system, changes, says):
        with pytest.raises(InputError, match=says):
            evaluate(WORKLOAD, system, replace(MAPPING, **changes))

    def test_the_size_of_a_dimension_is_given(self, system):
        first, second = system.network
        fixed = replace(system, network=(replace(first, size=2), second))
        with pytest.raises(InputError, match=r"mapping.sizes\[0\]: got 4; the network has 2"):
            evaluate(WORKLOAD, fixed, MAPPING)

    def test_what_a_dimension_is_used_for_is_given(self, system):
        first, second = system.network
        fixed = replace(system, network=(replace(first, parallelism=Parallelism.DATA), second))
        with pytest.raises(InputError, match="parallelism"):
            evaluate(WORKLOAD, fixed, MAPPING)

    def test_everything_wrong_is_said_at_once(self, system):
        wrong = replace(MAPPING, sizes=(4, 4), sharding=(Axis.M,), partitions=(0,))
        with pytest.raises(InputError) as caught:
            evaluate(WORKLOAD, system, wrong)
        assert len(caught.value.problems) == 2


@pytest.fixture(scope="session")
def answer(system):
    """Return the best mapping under the README's rules."""
    return optimise(WORKLOAD, system, rules="dfmodel-readme")


class TestSavedAnswers:
    def test_a_mapping_survives_being_saved(self, answer):
        read = mapping_from_dict(answer.to_dict(), answer.task)
        again = evaluate_task(answer.task, read, rules="dfmodel-readme")
        assert again.time == pytest.approx(answer.evaluation.time, rel=1e-12)

    def test_every_decision_survives_being_saved(self, answer):
        read = mapping_from_dict(answer.to_dict(), answer.task)
        assert replace(read, cores=None) == replace(answer.mapping, cores=None)

    @pytest.mark.parametrize("row", ["first", None, 3])
    def test_a_row_that_describes_no_kernel_is_refused(self, answer, row):
        saved = answer.to_dict()
        saved["kernels"][-1] = row
        with pytest.raises(InputError, match="kernels: missing: a list of"):
            mapping_from_dict(saved, answer.task)

    @pytest.mark.parametrize("wrong", [1, 2, 30])
    def test_the_first_of_the_rows_that_name_no_kernel_are_listed(self, answer, wrong):
        saved = answer.to_dict()
        saved["kernels"] += [{"name": f"unknown {i}"} for i in range(wrong)]
        with pytest.raises(InputError) as refused:
            mapping_from_dict(saved, answer.task)
        assert len(refused.value.problems) == min(wrong, 20)

    def test_the_number_of_a_pinned_partition_survives_being_saved(self, system):
        given = Constraints(partitions=(("third", 2),), max_partitions=3)
        pinned = optimise(WORKLOAD, system, constraints=given)
        read = mapping_from_dict(pinned.to_dict(), pinned.task)
        assert read.partitions == pinned.mapping.partitions

    def test_what_takes_network_time_is_named(self):
        graph = graphs.training(library.model("llama3-8b"), sequence=64, batch=8)
        workload = workload_of(graph, block="layers", items="batch")
        system = system_on("h100-dgx")
        tensor = tuple(replace(d, parallelism=Parallelism.TENSOR) for d in system.network)
        system = replace(system, network=tensor, chip=system.chip.with_memory(capacity=None))
        kernels = optimise(workload, system, work_limit=1e4).evaluation.kernels
        assert any(kernel.network_time > 0 for kernel in kernels)
        for kernel in kernels:
            names = kernel.collective.split(" + ") if kernel.collective else []
            assert bool(names) == (kernel.network_time > 0), kernel.name
            assert len({*names}) == len(names)

    def test_axes_are_saved_by_their_names(self):
        graph = graphs.training(library.model("llama3-8b"), sequence=64, batch=8)
        workload = workload_of(graph, block="layers", items="batch")
        system = system_on("h100-dgx")
        tensor = tuple(replace(d, parallelism=Parallelism.TENSOR) for d in system.network)
        system = replace(system, network=tensor, chip=system.chip.with_memory(capacity=None))
        found = optimise(workload, system, work_limit=1e4)
        saved = found.to_dict()
        sharding = {kernel["name"]: kernel["sharding"] for kernel in saved["kernels"]}
        assert sharding["queries"] == "heads"
        read = mapping_from_dict(saved, found.task)
        assert replace(read, cores=None) == replace(found.mapping, cores=None)
        # As written before they had names.
        axes = zip(saved["kernels"], found.mapping.sharding, strict=True)
        places = [kernel | {"sharding": axis.value} for kernel, axis in axes]
        assert mapping_from_dict(saved | {"kernels": places}, found.task) == read

    def test_the_evaluation_is_the_objective(self, answer):
        objective = answer.certificate.objective
        assert answer.evaluation.time == pytest.approx(objective, rel=1e-9)

    def test_a_kernel_of_another_workload_is_named(self, answer):
        data = answer.to_dict()
        data["kernels"][0]["name"] = "fist"
        with pytest.raises(InputError, match='no kernel is called "fist". Nearest: "first"'):
            mapping_from_dict(data, answer.task)

    def test_a_missing_field_is_named(self, answer):
        data = answer.to_dict()
        del data["n_tiles"]
        with pytest.raises(InputError, match="n_tiles: missing"):
            mapping_from_dict(data, answer.task)

    def test_what_is_no_answer_is_refused(self, system):
        with pytest.raises(InputError, match="kernels: missing"):
            mapping_from_dict({}, Task(workload=WORKLOAD, system=system))
