"""DFModel's text: what is written reads back the same, and what cannot be said is listed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders.dfmodel_text import LLM_SETUPS, OTHER_SETUPS, SETUPS, published, small

from crosstack.errors import InputError
from crosstack.evaluate.evaluation import Evaluation, KernelTerms
from crosstack.evaluate.plan import Plan
from crosstack.io.dfmodel.read import read_task
from crosstack.io.dfmodel.text import parse_text
from crosstack.io.dfmodel.write import write_answer, write_task
from crosstack.machine.chip import Overlap
from crosstack.machine.memory import main_memory
from crosstack.machine.prices import Bill
from crosstack.machine.system import (
    Dimension,
    DimensionKind,
    Parallelism,
)
from crosstack.mapping.degrees import Degrees
from crosstack.mapping.mapping import Certificate, Constraints, Mapping, Status, Task
from crosstack.model.memory_account import MemoryAccount, StageMemory
from crosstack.model.rules import Rules, rules_named
from crosstack.published.dfmodel.graphs.dlrm import dlrm
from crosstack.published.dfmodel.graphs.fft import fft
from crosstack.published.dfmodel.graphs.hpl import hpl
from crosstack.published.dfmodel.graphs.llm import llm, llm_graph
from crosstack.workload.kernel_graph import kernel_graph
from crosstack.workload.kernels import Axis, Collective, Communication


@published
@pytest.mark.parametrize("name", [*LLM_SETUPS, *OTHER_SETUPS])
def test_published_setups_come_back(name: str) -> None:
    task = read_task((SETUPS / name).read_text(), name)
    assert read_task(write_task(task), name) == task


VARIANTS = [
    [],
    [("execution {", "miscellany {")],
    [("perfect_overlap: true", "overlap: OVERLAP_COMPUTE_MEMORY")],
    [("perfect_overlap: true", "overlap: NO_OVERLAP separate_rs_ag_for_ar: true")],
    [("freq: 1.837", "freq: 1.837 link_latency: 150"), ("memory_size: 5", "dram_extra: 5")],
    [("DATAFLOW num_config: 2", "KERNEL_BY_KERNEL")],
    [("startIdx: 3 endIdx: 4", "startIdx: 3 endIdx: 4 zero_out: true")],
    [("weight_tensor_size: 128", "skip_weight: true")],
    [("seq_len: 4", "seq_len: 4 micro_batch_size: 2 tile_size: 2")],
    [("x: 4 y: 2", ""), ("compute_util: 0.9", "")],
]


@pytest.mark.parametrize("pairs", VARIANTS)
def test_small_task_comes_back(pairs: list[tuple[str, str]]) -> None:
    task = small(*pairs)
    assert read_task(write_task(task), "small.txt") == task


def four_dimensions() -> tuple[Dimension, ...]:
    ring = Dimension(kind=DimensionKind.RING, size=2, bandwidth=50e9, latency=0.0, link_power=0.0)
    return (ring, ring, ring, replace(ring, parallelism=Parallelism.PIPELINE))


def generated(*, training: bool = True, layers: int = 1) -> Task:
    """Return a task nobody wrote a file for."""
    workload = llm(
        hidden=64, sequence_length=16, n_heads=4, head_size=16, n_layers=4, global_batch_size=8,
        training=training, layers_in_graph=layers,
    )  # fmt: skip
    return replace(small(), workload=workload, constraints=Constraints(max_partitions=4))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("layers", [1, 2])
def test_generated_layers_come_back(training: bool, layers: int) -> None:
    task = generated(training=training, layers=layers)
    assert read_task(write_task(task), "x") == task


def test_four_dimensions_come_back() -> None:
    system = replace(small().system, network=four_dimensions(), n_chips=16)
    task = replace(generated(), system=system, rules="dfmodel-e5")
    assert read_task(write_task(task), "x") == task


@pytest.mark.parametrize(
    ("latency", "overlap", "rules"),
    [
        (0.0, Overlap.ALL, "dfmodel-readme"),
        (1e-7, Overlap.ALL, "dfmodel-e4"),
        (0.0, Overlap.COMPUTE_MEMORY, "dfmodel-e4"),
    ],
)
def test_without_rules_the_earliest_release_is_written(
    latency: float, overlap: Overlap, rules: str
) -> None:
    system = small().system
    network = tuple(replace(d, latency=latency) for d in system.network)
    system = replace(system, network=network, chip=replace(system.chip, overlap=overlap))
    task = replace(generated(), system=system, rules=None)
    assert read_task(write_task(task), "x") == replace(task, rules=rules)


def refused(task: Task) -> str:
    with pytest.raises(InputError) as caught:
        write_task(task)
    return str(caught.value)


@pytest.mark.parametrize("rules", ["crosstack", "dfmodel-e3b", "dfmodel-readme+separate"])
def test_rules_no_file_can_say_are_refused(rules: str) -> None:
    message = refused(replace(generated(), rules=rules))
    assert message.startswith(f"rules: no DFModel file says '{rules}'; allowed: dfmodel-e2,")


def test_what_a_release_cannot_say_is_refused() -> None:
    task = replace(generated(), rules="dfmodel-readme")
    chip = replace(task.system.chip, overlap=Overlap.COMPUTE_MEMORY)
    assert refused(replace(task, system=replace(task.system, chip=chip))) == (
        "system.chip.overlap: dfmodel-readme cannot say it; allowed: rules of E4 on."
    )
    task = replace(generated(layers=2), rules="dfmodel-e2")
    assert refused(task).startswith("workload.layers_in_graph: ")


@pytest.mark.parametrize(
    ("constraints", "field"),
    [
        (Constraints(), "max_partitions"),
        (Constraints(max_partitions=4, n_tiles=2), "n_tiles"),
        (Constraints(max_partitions=4, degrees=Degrees(tensor=2)), "degrees"),
        (Constraints(max_partitions=4, separate_directions=True), "separate_directions"),
        (Constraints(max_partitions=4, sharding=(("Q", Axis.OUTER),)), "sharding"),
        (Constraints(max_partitions=41, partitions=(("Q", 0),)), "partitions"),
        (Constraints(kernel_by_kernel=True, max_partitions=41), "max_partitions"),
    ],
)
def test_constraints_dfmodel_has_no_word_for_are_refused(
    constraints: Constraints, field: str
) -> None:
    message = refused(replace(generated(), constraints=constraints))
    assert message.startswith(f"constraints.{field}: ")


def test_everything_that_cannot_be_said_is_listed_at_once() -> None:
    task = generated()
    network = (
        Dimension(kind=DimensionKind.SWITCH, size=4, bandwidth=5e10),
        Dimension(kind=DimensionKind.RING, size=2, bandwidth=5e10, latency=1e-6),
    )
    message = refused(
        replace(
            task,
            system=replace(task.system, network=network),
            workload=replace(task.workload, boundary_size=1.0),
            constraints=Constraints(max_partitions=4, n_tiles=2),
            rules="dfmodel-e5",
        )
    )
    assert [line.split(": ")[0] for line in message.split("\n")] == [
        "constraints.n_tiles",
        "system.network",
        "system.network",
        "workload.boundary_size",
    ]
    assert "got sw_r; allowed: r, sw, fc" in message


def test_operands_only_a_graph_can_tell_apart_are_refused() -> None:
    task = generated(training=False)
    graph = task.workload.graph
    # MHA_GEMM_1 keeps its second operand only: by its bytes it would be read as the first.
    tensors = tuple(t for t in graph.tensors if t.producer != "Q")
    graph = kernel_graph(kernels=graph.kernels, tensors=tensors, word=graph.word)
    message = refused(replace(task, workload=replace(task.workload, graph=graph)))
    assert "'K' to 'MHA_GEMM_1'" in message


@pytest.mark.parametrize(
    ("communications", "expected"),
    [
        ((Communication(collective=Collective.REDUCE_SCATTER, size=1.0),), "got reduce_scatter"),
        ((Communication(collective=Collective.BROADCAST, size=1.0),) * 3, "got 3; allowed: at m"),
        ((Communication(collective=Collective.BROADCAST, size=0.0),), "got a size of 0"),
        (
            (Communication(collective=Collective.BROADCAST, size=1.0, periodic=True),),
            "got a periodic broadcast",
        ),
    ],
)
def test_communication_dfmodel_has_no_word_for_is_refused(
    communications: tuple[Communication, ...], expected: str
) -> None:
    task = generated(training=False)
    graph = task.workload.graph
    kernels = (replace(graph.kernels[0], communications=communications), *graph.kernels[1:])
    graph = kernel_graph(kernels=kernels, tensors=graph.tensors, word=graph.word)
    message = refused(replace(task, workload=replace(task.workload, graph=graph)))
    assert expected in message


def test_numbers_beyond_float32_are_refused() -> None:
    task = generated()
    system = replace(
        task.system,
        chip=replace(task.system.chip, memories=main_memory(bandwidth=1e9, capacity=1e39)),
    )
    message = refused(replace(task, system=system))
    assert message.startswith("system.memory.dram_cap: too big for a float32")


# Answers


def answer(task: Task, rules: Rules) -> Plan:
    """Return an answer with made-up terms: what is written does not depend on the model."""
    graph = task.workload.graph
    # Heads are split, the two projections back contract, the rest stays whole.
    sharding = tuple(
        Axis.OUTER if k.outer > 1 else Axis.K if k.name in ("PROJ_GEMM", "FFN1") else Axis.NONE
        for k in graph.kernels
    )
    sharding = tuple(
        Axis.M if k.name == "FFN0" or k.name == "GeLU" else s
        for k, s in zip(graph.kernels, sharding, strict=True)
    )
    partitions = tuple(int(level > 6) for level in graph.levels)
    terms = tuple(
        KernelTerms(
            name=k.name, partition=p, sharding=s, m=i + 1, k=i + 101, n=i + 201, work=1.0,
            compute_time=1.0, network_time=0.0, collective="", weight_size=0.0,
            output_size=float(i), lanes=None, stages=None, weight_cuts=1,
        )
        for i, (k, s, p) in enumerate(zip(graph.kernels, sharding, partitions, strict=True))
    )  # fmt: skip
    bill = Bill(chips=0.0, memory=0.0, links=0.0, switches=0.0)
    evaluation = Evaluation(
        kernels=terms, partitions=(), layer_time=1.0, layers_per_stage=1, n_stages=1,
        n_microbatches=1, stage_time=1.0, bubble_factor=1.0, stage_transfer_time=0.0, time=1.0,
            sums_time=0.0, update_time=0.0, gather_time=0.0,
        latency=1.0, work=1.0, utilization=1.0, throughput=1.0, memory_used=0.0,
        executed_work=1.0, hardware_utilization=1.0,
        memory_capacity=1.0, energy=None, memory=MemoryAccount.of((StageMemory(),)),
        price=bill, power=bill, memory_intensity=1.0, network_intensity=1.0,
    )  # fmt: skip
    return Plan(
        task=task,
        rules=rules,
        mapping=Mapping(
            sizes=(4, 2), parallelism=(Parallelism.TENSOR, Parallelism.DATA), microbatch_size=1,
            n_tiles=4, sharding=sharding, partitions=partitions,
        ),
        certificate=Certificate(
            status=Status.OPTIMAL, objective=1.0, bound=1.0, method="made up", free=(), given=(),
            runtime=0.0,
        ),
        evaluation=evaluation,
    )  # fmt: skip


def test_answer_fills_in_what_the_public_tool_does() -> None:
    task = generated(training=False)
    dse = parse_text(write_answer(answer(task, rules_named("dfmodel-readme"))))
    projection = dse.dataflow_graph.kernels[9]
    body = projection.gemm_input1_weight
    assert (projection.name, projection.config, projection.topological_number) == (
        "PROJ_GEMM",
        1,
        7,
    )
    assert (body.sharding, body.shard_outer_M, body.shard_K, body.shard_N) == (3, 10, 110, 210)
    # 64 x 16 x 2 bytes: the whole output is reduced.
    assert (body.communication_type, body.communication_size) == (1, 2048.0)
    edges = {(c.startName, c.endName): c for c in dse.dataflow_graph.connections}
    assert len(edges) == 21
    skip = edges["Add_Prev_Layer", "Add_1"]
    assert (skip.buffer_depth, skip.tensor_size, skip.communication_type) == (10, 2048.0, 0)
    assert edges["Q", "MHA_GEMM_1"].shard_tensor_size == 2.0


def test_answer_names_the_layout_conversions() -> None:
    made = answer(generated(training=False), rules_named("dfmodel-readme"))
    whole = tuple(Axis.NONE if s is Axis.K else s for s in made.mapping.sharding)
    made = replace(made, mapping=replace(made.mapping, sharding=whole))
    edges = parse_text(write_answer(made)).dataflow_graph.connections
    conversions = {(c.startName, c.endName): c.communication_type for c in edges}
    all_gather = 3
    assert conversions["GeLU", "FFN1"] == all_gather  # rows held, the whole needed
    assert conversions["LayerNorm_2", "FFN0"] == 0


def test_answer_read_as_a_task_is_pinned_to_its_partitions() -> None:
    task = generated(training=False)
    made = answer(task, rules_named("dfmodel-readme"))
    again = read_task(write_answer(made), "x")
    assert again.workload == task.workload  # nothing filled in is taken for given
    assert dict(again.constraints.partitions) == {
        k.name: p for k, p in zip(task.workload.graph.kernels, made.mapping.partitions, strict=True)
    }


def test_answer_of_other_rules_and_constraints_can_be_written() -> None:
    constraints = Constraints(n_tiles=3, separate_directions=True, sharding=(("Q", Axis.OUTER),))
    task = replace(generated(training=False), constraints=constraints, rules="crosstack")
    again = read_task(write_answer(answer(task, rules_named("crosstack"))), "x")
    assert again.constraints.max_partitions == 2
    assert again.constraints.tile_size == 6  # 3 tiles cover 16


def test_forward_layer_is_the_one_the_generator_made() -> None:
    graph = llm_graph(training=False, hidden=64, sequence_length=16, n_heads=4, head_size=16)
    assert read_task(write_task(generated(training=False)), "x").workload.graph == graph


def placed() -> Task:
    """Return a factorisation on the small machine, its uses left out."""
    task = small()
    network = tuple(replace(d, parallelism=None) for d in task.system.network)
    return replace(
        task,
        workload=hpl(size=64, block=16, word=2),
        system=replace(task.system, network=network),
        constraints=Constraints(microbatch_size=1, kernel_by_kernel=True),
    )


@pytest.mark.parametrize(
    "workload",
    [
        hpl(size=64, block=16, word=2),
        fft(length=4096),
        dlrm(
            width=64, n_bottom=1, n_top=2, n_tables=8, rows=100, embedding_size=16, samples=8,
            global_batch_size=16,
        ),
    ],
    ids=lambda w: w.name,
)  # fmt: skip
def test_generated_workloads_of_other_kinds_come_back(workload) -> None:
    task = replace(placed(), workload=workload)
    assert read_task(write_task(task), "other") == task


def test_two_memories_units_and_domains_come_back() -> None:
    task = small()
    chip = task.system.chip.with_level(0, banks=4, bank_capacity=64.0)
    memory = main_memory(bandwidth=3e11, capacity=1e6, second_bandwidth=1e10, second_capacity=1e9)
    network = (*task.system.network, replace(task.system.network[0], size=1))
    system = replace(
        task.system, chip=replace(chip, memories=memory), network=network, domain_size=2
    )
    system = replace(
        system, network=tuple(replace(d, kind=DimensionKind.RING) for d in system.network)
    )
    task = replace(task, system=system, rules="dfmodel-e3b")
    assert read_task(write_task(task), "all") == task


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"data_size": 2.0 * 63}, "workload.data_size: got 126 B; allowed: a whole square of rows"),
        ({"n_layers": 2}, "workload.n_layers: got 2, which DFModel cannot say for placement grid"),
        ({"boundary_size": 8.0}, "workload.boundary_size: got 8"),
    ],
)
def test_what_other_blocks_cannot_say_is_refused(changes, says) -> None:
    task = placed()
    assert says in refused(replace(task, workload=replace(task.workload, **changes)))


def test_memory_that_is_left_free_is_refused() -> None:
    task = small()
    assert "system.memory.spare" in refused(replace(task, system=task.system.sparing(1.0)))


def test_uses_and_microbatches_of_other_workloads_are_refused() -> None:
    task = placed()
    network = (replace(task.system.network[0], parallelism=Parallelism.TENSOR),)
    system = replace(task.system, network=(*network, *task.system.network[1:]))
    constraints = replace(task.constraints, microbatch_size=2, tile_size=4)
    says = refused(replace(task, system=system, constraints=constraints))
    for path in ("network[0].parallelism", "constraints.microbatch_size", "constraints.tile_size"):
        assert path in says


def test_a_cache_is_refused() -> None:
    task = generated()
    first, *rest = task.workload.graph.kernels
    kernels = (replace(first, cache_size=8.0, operations=2), *rest)
    graph = task.workload.graph.listing(kernels=kernels)
    says = refused(replace(task, workload=replace(task.workload, graph=graph)))
    assert "kernels[0].cache_size: DFModel cannot say it" in says
    assert "kernels[0].operations: got 2; DFModel has one" in says


def test_release_e2_writes_down_what_a_chip_sends_to_one_other() -> None:
    model = dlrm(
        width=64, n_bottom=1, n_top=1, n_tables=8, rows=100, embedding_size=16, samples=8,
        global_batch_size=16,
    )  # fmt: skip
    looked_up = 8 * 16 * 8 * 2.0
    for rules, chips in (("dfmodel-e2", 8), ("dfmodel-readme", 1), ("dfmodel-e4", 1)):
        task = replace(placed(), workload=model, rules=rules)
        text = write_task(task)
        body = parse_text(text).dataflow_graph.kernels[0].gemm_input1_weight
        assert (body.memory_size, body.communication_size) == (looked_up, looked_up / chips)
        assert read_task(text, rules) == task


def test_bytes_that_are_read_and_exchanged_alike_are_all_a_chip_exchanges() -> None:
    # As in DLRM/DSE/system/h100/2d_torus_ddr_pcie: 857,088,000 B both, 837,000 B to each of 1,024.
    model = dlrm(
        width=64, n_bottom=1, n_top=1, n_tables=8, rows=100, embedding_size=16, samples=8,
        global_batch_size=16,
    )  # fmt: skip
    text = write_task(replace(placed(), workload=model, rules="dfmodel-e2"))
    alike = text.replace("communication_size: 256", "communication_size: 2048")
    assert alike != text
    assert read_task(alike, "e2").workload == model


def test_a_share_that_would_be_read_as_the_whole_is_refused() -> None:
    model = dlrm(
        width=64, n_bottom=1, n_top=1, n_tables=8, rows=100, embedding_size=16, samples=8,
        global_batch_size=16,
    )  # fmt: skip
    first, *rest = model.graph.kernels
    kernels = (replace(first, memory_traffic=first.communications[0].size / 8), *rest)
    model = replace(model, graph=model.graph.listing(kernels=kernels))
    says = refused(replace(placed(), workload=model, rules="dfmodel-e2"))
    assert "workload.graph.kernels[0].communications[0]: got 256 B to each chip" in says
