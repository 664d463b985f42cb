"""DFModel's text: what is read, what is refused and why, and that it comes back the same."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from builders.dfmodel_text import LLM_SETUPS, OTHER_SETUPS, SETUPS, SMALL, changed, published, small

import crosstack
from crosstack.errors import InputError
from crosstack.io.dfmodel.read import looks_like, read_task
from crosstack.io.dfmodel.schema import TOPOLOGIES, new_dse
from crosstack.io.dfmodel.text import parse_text
from crosstack.io.dfmodel.vocabulary import matching_operands, single
from crosstack.machine.chip import Overlap
from crosstack.machine.memory import main_memory
from crosstack.machine.system import (
    Dimension,
    DimensionKind,
    Parallelism,
    Prices,
)
from crosstack.mapping.mapping import Constraints
from crosstack.published.dfmodel.graphs.fft import fft
from crosstack.published.dfmodel.graphs.hpl import hpl
from crosstack.published.dfmodel.graphs.llm import llm_graph
from crosstack.workload import kernels as ops


def problem(*pairs: tuple[str, str], overrides: tuple[str, ...] = ()) -> str:
    with pytest.raises(InputError) as caught:
        small(*pairs, overrides=overrides)
    return str(caught.value)


# Schema


def test_every_topology_has_one_bandwidth_and_one_use_per_dimension() -> None:
    systems = new_dse().system
    for name, words in TOPOLOGIES.items():
        assert len(getattr(systems, name).DESCRIPTOR.fields) == 3 * len(words)


@published
@pytest.mark.parametrize("name", [*LLM_SETUPS, *OTHER_SETUPS])
def test_every_published_setup_parses(name: str) -> None:
    text = (SETUPS / name).read_text()
    assert looks_like(text)
    assert len(parse_text(text).dataflow_graph.kernels) > 0


@pytest.mark.parametrize(
    "text", ["workload:\n  llm: {hidden: 8}\n", "", "system:\n  network: []\n", "# execution"]
)
def test_other_texts_do_not_look_like_dfmodel(text: str) -> None:
    assert not looks_like(text)


# Reading


def test_kernels_become_records() -> None:
    norm, up, total = small().workload.graph.kernels
    assert (norm.name, norm.kind, norm.k) == ("Norm", ops.KernelKind.ELEMENTWISE, 1)
    assert norm.direction is ops.Direction.FORWARD  # not set
    assert (up.outer, up.m, up.k, up.n) == (2, 8, 4, 4)
    assert (up.unit, up.weight_size, up.memory_traffic) == (ops.ComputeUnit.SYSTOLIC, 128.0, 5.0)
    assert (total.direction, total.tiling, total.repeats) == (
        ops.Direction.BACKWARD,
        ops.Axis.NONE,
        3,
    )
    assert total.communications == (
        ops.Communication(collective=ops.Collective.ALL_REDUCE, size=64.0, periodic=True),
    )


def test_one_tensor_for_all_readers_of_a_kernel() -> None:
    assert small().workload.graph.tensors == (
        ops.Tensor(
            producer="Norm",
            size=64.0,
            consumers=(ops.Consumer(kernel="Up"), ops.Consumer(kernel="Sum", operand=1)),
        ),
        ops.Tensor(producer="Up", size=128.0, consumers=(ops.Consumer(kernel="Sum", operand=0),)),
    )


def test_system_is_in_si_units_of_float32_numbers() -> None:
    system = small().system
    assert system.chip.compute.frequency == single(1.837) * 1e9
    assert system.chip.compute.utilization == single(0.9) != 0.9
    assert system.chip.memories == main_memory(bandwidth=300e9, capacity=None)
    free = {"memory": 0.0, "switch_power": 0.0, "memory_power": 0.0}
    assert system.prices == Prices(link=2e-9, switch=24e-9, **free)
    assert system.network == (
        Dimension(
            kind=DimensionKind.RING,
            size=4,
            bandwidth=50e9,
            latency=0.0,
            parallelism=Parallelism.TENSOR,
            link_power=0.0,
        ),
        Dimension(
            kind=DimensionKind.SWITCH,
            size=2,
            bandwidth=25.5e9,
            latency=0.0,
            parallelism=Parallelism.DATA,
            link_power=single(0.052) / 1e9,
        ),
    )


def test_execution_becomes_workload_and_constraints() -> None:
    task = small()
    assert task.workload.boundary_size == 8 * 4 * 2
    assert (task.workload.n_layers, task.workload.global_batch_size) == (2, 16)
    assert task.system.chip.overlap is Overlap.ALL
    assert task.constraints == Constraints(max_partitions=2, partitions=(("Up", 1),))


def test_sizes_not_given_are_left_to_the_optimiser() -> None:
    task = small(("x: 4 y: 2", ""), ('par_x: "TP"', ""))
    assert [d.size for d in task.system.network] == [None, None]
    assert [d.parallelism for d in task.system.network] == [None, Parallelism.DATA]


def test_one_dimension_joins_all_chips_whatever_x_says() -> None:
    one = 'r { x: 3 link_bw_x: 50 par_x: "TP" }'
    task = read_task(re.sub(r"r_sw \{.*\}", one, SMALL), "small.txt")
    assert [d.size for d in task.system.network] == [8]


def test_config_not_set_pins_to_partition_0() -> None:
    task = small(("id: 4 config: -1", "id: 4"))
    assert task.constraints.partitions == (("Up", 1), ("Sum", 0))


def test_as_many_partitions_as_kernels_pin_nothing() -> None:
    constraints = small(("num_config: 2", "")).constraints
    assert (constraints.max_partitions, constraints.partitions) == (3, ())


def test_kernel_by_kernel_pins_nothing_and_needs_no_number() -> None:
    task = small(("DATAFLOW num_config: 2", "KERNEL_BY_KERNEL"))
    assert task.constraints == Constraints(kernel_by_kernel=True)


def test_skipped_weight_has_no_bytes_and_a_weight_not_written_down_is_counted() -> None:
    weight = "weight_tensor_size: 128"
    assert small((weight, f"{weight} skip_weight: true")).workload.graph.total_weight_size == 0
    assert small((weight, "")).workload.graph.total_weight_size == 2 * 8 * 4 * 2


def test_zero_out_elides_an_edge() -> None:
    tensors = small(("startIdx: 3 endIdx: 4", "startIdx: 3 endIdx: 4 zero_out: true"))
    assert tensors.workload.graph.tensors[1].consumers[0].elided


@pytest.mark.parametrize(
    ("pairs", "rules"),
    [
        ([], "dfmodel-readme"),
        ([("execution {", "miscellany {")], "dfmodel-e2"),
        ([("perfect_overlap: true", "overlap: NO_OVERLAP")], "dfmodel-e4"),
        ([("freq: 1.837", "freq: 1.837 link_latency: 150")], "dfmodel-e4"),
        ([("perfect_overlap: true", "separate_rs_ag_for_ar: true")], "dfmodel-e4+separate"),
        ([("memory_size: 5", "sram_extra: 5")], "dfmodel-e5"),
        ([("word: 2", 'optimization: "CMN" word: 2')], "dfmodel-e5"),
    ],
)
def test_fields_tell_the_release(pairs: list[tuple[str, str]], rules: str) -> None:
    assert small(*pairs).rules == rules


@pytest.mark.parametrize(
    "pairs",
    [
        pytest.param([("word: 2", 'word: 2 optimization: "CM"')], id="sums no terms: all overlap"),
        pytest.param([("word: 2", "word: 2 effective_stage: 4")], id="no kernel uses it"),
        pytest.param(
            [
                ('par_x: "TP"', 'par_x: "PP"'),
                ("word: 2", "word: 2 skip_inter_chip_optimization: true"),
            ],
            id="no tensor parallelism: kernels are whole anyway",
        ),
    ],
)
def test_what_changes_nothing_is_read(pairs: list[tuple[str, str]]) -> None:
    plain = small(*(pair for pair in pairs if "par_x" in pair[0]))
    found = small(*pairs)
    assert found.rules == "dfmodel-e5"
    assert replace(found, rules=plain.rules) == plain


@pytest.mark.parametrize(
    ("field", "overlap"),
    [
        ("perfect_overlap: false", Overlap.NONE),
        ("overlap: PERFECT_OVERLAP", Overlap.ALL),
        ("overlap: NO_OVERLAP", Overlap.NONE),
        ("overlap: OVERLAP_COMPUTE_MEMORY", Overlap.COMPUTE_MEMORY),
    ],
)
def test_overlap_is_said_in_two_ways(field: str, overlap: Overlap) -> None:
    assert small(("perfect_overlap: true", field)).system.chip.overlap is overlap


def test_layers_in_graph_may_be_absent_in_miscellany_only() -> None:
    absent = ("num_layer_in_graph: 1", "")
    assert small(absent, ("execution {", "miscellany {")).workload.layers_in_graph == 1
    assert "execution.llm.num_layer_in_graph: got 0" in problem(absent)


def test_latency_is_the_same_double_as_its_literal() -> None:
    task = small(("freq: 1.837", "freq: 1.837 link_latency: 150"))
    assert [d.latency for d in task.system.network] == [150e-9, 150e-9]


def test_second_edge_of_equal_operands_takes_the_second() -> None:
    # Kernel 2 reads kernels 0 and 1, all of 8 bytes; a third edge falls back to the first.
    edges = [(0, 2), (1, 2), (0, 2)]
    assert matching_operands(edges, [8.0, 8.0, 8.0], [(8.0,), (8.0,), (8.0, 8.0)]) == [0, 1, 0]


def test_sizes_that_match_neither_operand_are_not_guessed() -> None:
    assert matching_operands([(0, 1)], [8.0, 8.0], [(8.0,), (9.0, 7.0)]) == [None]


@published
def test_readme_setup_is_the_generated_layer() -> None:
    graph = read_task((SETUPS / "readme_gpt3_1t_sn30.txt").read_text(), "readme").workload.graph
    made = llm_graph(training=True, hidden=25600, sequence_length=2048, n_heads=160, head_size=160)
    assert graph == made  # every size of it is a float32


@published
@pytest.mark.parametrize("name", LLM_SETUPS)
def test_published_llm_setups_read(name: str) -> None:
    kernels, edges, rules, limit, pinned = LLM_SETUPS[name]
    task = read_task((SETUPS / name).read_text(), name)
    assert len(task.workload.graph) == kernels
    assert sum(len(t.consumers) for t in task.workload.graph.tensors) == edges
    assert task.rules == rules
    assert task.constraints.max_partitions == limit
    assert task.constraints.kernel_by_kernel == (limit is None)
    assert len(task.constraints.partitions) == pinned


@published
@pytest.mark.parametrize("name", OTHER_SETUPS)
def test_published_setups_of_other_workloads_are_read(name: str) -> None:
    task = read_task((SETUPS / name).read_text(), name)
    workload = task.workload
    edges = sum(len(tensor.consumers) for tensor in workload.graph.tensors)
    found = (workload.placement, len(workload.graph), edges, task.rules, workload.data_size)
    assert found == OTHER_SETUPS[name]


@published
def test_the_published_transform_is_the_generated_one() -> None:
    name = "fft_dse_h100_3d_torus_hbm_nvlink.txt"
    task = read_task((SETUPS / name).read_text(), name)
    assert task.workload == fft(length=2**40, radix=32, word=2)


@published
def test_the_published_factorisation_is_the_generated_one() -> None:
    name = "hpl_dse_h100_3d_torus_hbm_nvlink.txt"
    read = read_task((SETUPS / name).read_text(), name).workload
    made = hpl(size=1048576, block=2048, iterations=64, word=2)
    assert [(k.m, k.k, k.n) for k in read.graph.kernels] == [
        (k.m, k.k, k.n) for k in made.graph.kernels
    ]
    assert [k.output_size for k in read.graph.kernels] == [
        single(k.output_size) for k in made.graph.kernels
    ]


HPL = (
    'dataflow_graph { kernels { name: "A" id: 1 type: SYSTOLIC gemm_input1_input2 { outer: 1 M: 8 '
    "K: 8 N: 2 input_tensor_1_size: 32 output_tensor_size: 32 tiling: NO_TILING "
    "communication_type: BROADCAST communication_size: 32 } } }\n"
    "system { num_chip: 4 accelerator { core: 4 systolic_width: 2 systolic_height: 2 sram_cap: "
    "4096 freq: 1 } memory { dram_bw: 100 } r_r { x: 2 y: 2 link_bw_x: 50 link_bw_y: 50 } }\n"
    "execution { hpl { n: 8 b: 2 num_copy: 1 } execution_style: KERNEL_BY_KERNEL word: 2 }\n"
)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("num_copy: 1", "num_copy: 3", "hpl.num_copy: got 3; allowed: 0 (unset) or a divisor of"),
        ("num_copy: 1", "num_copy: -1", "execution.hpl.num_copy: got -1"),
        ("num_copy: 1", "num_copy: 2", "system.num_chip: got 4, but 2 copies of 2 x 2 are 8"),
        ("n: 8 b", "n: 0 b", "execution.hpl.n: got 0; allowed: a whole number, at least 1"),
        ("hpl { n: 8 b: 2", "fft { length: 0", "execution.fft.length: got 0"),
        ("hpl { n: 8 b: 2", "dlrm { num_table: 0", "execution.dlrm.num_table: got 0"),
        ("hpl { n: 8 b: 2", "mamba { hidden: 8", "execution.mamba: this workload is not supported"),
    ],
)
def test_other_workloads_that_make_no_sense_are_refused(old: str, new: str, expected: str) -> None:
    text = changed((old, new), text=HPL)
    if "mamba" in new:
        text = text.replace("num_copy: 1 ", "")
    with pytest.raises(InputError) as caught:
        read_task(text, "hpl.txt")
    assert expected in str(caught.value)


@pytest.mark.parametrize("rules", ["dfmodel-e2", "dfmodel-readme", "dfmodel-e4"])
def test_copies_share_the_iterations_and_the_chips(rules: str) -> None:
    """``num_copy x chips of a copy = num_chip``, ``final_ns x num_copy >= ns_per_batch``."""
    one = crosstack.optimise(read_task(HPL, "hpl.txt"), rules=rules)
    text = changed(("num_copy: 1", "num_copy: 3"), ("num_chip: 4", "num_chip: 12"), text=HPL)
    task = read_task(text, "hpl.txt")
    assert (task.system.n_chips, task.system.copies) == (4, 3)
    three = crosstack.optimise(task, rules=rules)
    assert three.certificate.status is crosstack.Status.OPTIMAL
    assert three.evaluation.time == pytest.approx(one.evaluation.time / 3, rel=1e-15)
    assert three.evaluation.time == three.certificate.objective
    assert three.evaluation.utilization == pytest.approx(one.evaluation.utilization, rel=1e-15)


def test_what_is_written_for_one_pair_goes_to_every_chip_of_a_copy() -> None:
    """E2 writes down what a chip sends to one other chip of its copy, not to one of all."""
    old = changed(
        ("hpl { n: 8 b: 2", "dlrm { num_table: 2 emb_dim: 2 row: 2 global_batch_size: 8"),
        ("BROADCAST", "ALL_TO_ALL"),
        ("execution {", "miscellany {"),
        text=HPL,
    )
    alone = read_task(old, "dlrm.txt")
    copies = read_task(
        old.replace("num_copy: 1", "num_copy: 2").replace("num_chip: 4", "num_chip: 8"), "dlrm.txt"
    )
    sizes = [task.workload.graph.kernels[0].communications[0].size for task in (alone, copies)]
    assert sizes == [4 * 32.0, 4 * 32.0]


def test_what_dimensions_are_used_for_is_not_read_for_other_workloads() -> None:
    task = read_task(changed(("link_bw_x: 50", 'link_bw_x: 50 par_x: "PP"'), text=HPL), "hpl.txt")
    assert [d.parallelism for d in task.system.network] == [None, None]


def test_memory_units_domains_and_a_second_memory_are_read() -> None:
    shape = "r_r_r { x: 4 y: 2 z: 1 link_bw_x: 5 link_bw_y: 5 link_bw_z: 5"
    uses = 'par_x: "TP" par_y: "PP" par_z: "DP" }'
    text = re.sub(r"r_sw \{.*\}", f"{shape} {uses}", SMALL)
    text = changed(
        ("num_chip: 8", "num_chip: 8 HBD: 2"),
        ("freq: 1.837", "freq: 1.837 pmu: 9 pmu_cap: 64"),
        ("dram_bw: 300", "dram_bw: 300 dram_cap: 1e6 second_dram_bw: 10 second_dram_cap: 1e9"),
        text=text,
    )
    task = read_task(text, "small.txt")
    assert task.system.domain_size == 2
    (sram,) = task.system.chip.levels
    assert (sram.banks, sram.bank_capacity) == (9, 64.0)
    assert task.system.chip.memories == main_memory(
        bandwidth=300e9, capacity=1e6, second_bandwidth=10e9, second_capacity=1e9
    )
    assert task.rules == "dfmodel-e3b"


def test_domains_count_on_three_dimensions_only() -> None:
    assert small(("num_chip: 8", "num_chip: 8 HBD: 2")).system.domain_size is None


def _product(name: str, m: int, n: int, size: int, tiling: str, weight: str) -> str:
    return (
        f'kernels {{ name: "{name}" id: {{}} config: -1 fwd_bwd: FWD type: SYSTOLIC '
        f"gemm_input1_weight {{ outer: 1 M: {m} K: 32 N: {n} input_tensor_size: {size} "
        f"output_tensor_size: {size} tiling: {tiling} {weight} }} }}"
    )


def _serial_scan(length: int = 262144) -> str:
    """Return SSM/Mamba/serialscan/256K of the public tool; one channel's scan, then 32 channels."""
    one, all_ = 2 * length, 64 * length
    kernels = [
        _product("Proj1", 32, length, all_, "N_TILING", "weight_tensor_size: 2048"),
        _product("Proj2", 32, length, all_, "N_TILING", "weight_tensor_size: 2048"),
        _product("Conv", length, 1, one, "M_TILING", "skip_weight: true"),
        'kernels { name: "Scan" id: {} config: -1 fwd_bwd: FWD type: SIMD elementwise_input1 { '
        f"outer: 1 M: 1 N: {length} input_tensor_size: {one} output_tensor_size: {one} "
        "tiling: NO_TILING num_input: 32 } }",
        'kernels { name: "Multiply" id: {} config: -1 fwd_bwd: FWD type: SIMD '
        f"elementwise_input1_input2 {{ outer: 1 M: {length} N: 32 input_tensor_1_size: {all_} "
        f"output_tensor_size: {all_} tiling: M_TILING input_tensor_2_size: {all_} }} }}",
        _product("Proj3", 32, length, all_, "N_TILING", "weight_tensor_size: 2048"),
    ]
    edges = ((1, 3), (3, 4), (4, 5), (2, 5), (5, 6))
    return "\n".join((
        "dataflow_graph {",
        *(kernel.replace("id: {}", f"id: {i}") for i, kernel in enumerate(kernels, 1)),
        *(f"connections {{ startIdx: {start} endIdx: {end} }}" for start, end in edges),
        "}",
        "system { num_chip: 1 accelerator { core: 520 systolic_width: 32 systolic_height: 12 "
        "sram_cap: 545259520 freq: 1.6 } r { x: 1 link_bw_x: 10 par_x: \"TP\" } "
        "memory { dram_bw: 8192 dram_cap: 68719476736 } }",
        "cost { link_unit_price: 2 switch_unit_price: 24 dram_unit_price: 1 accelerator_price: "
        "16522.25023 link_unit_power_x: 0.052 switch_unit_power: 0.052 dram_unit_power: 0.16248 "
        "accelerator_power: 444.7061955 }",
        f"execution {{ llm {{ hidden_dim: 32 head_dim: 16 num_head: 2 seq_len: {length} num_layer: "
        "1 global_batch_size: 1 micro_batch_size: 1 num_layer_in_graph: 1 } execution_style: "
        "DATAFLOW num_config: 3 overlap: PERFECT_OVERLAP skip_inter_chip_optimization: true "
        "word: 2 }",
    ))  # fmt: skip


def test_bytes_are_not_compared_where_no_sharding_is_decided() -> None:
    graph = read_task(_serial_scan(), "scan.txt").workload.graph
    assert [(t.producer, t.size, [(c.kernel, c.operand) for c in t.consumers])
            for t in graph.tensors] == [
        ("Proj1", 16777216.0, [("Conv", 0)]),
        ("Proj2", 16777216.0, [("Multiply", 0)]),  # the operand it fits
        ("Conv", 524288.0, [("Scan", 0)]),
        ("Scan", 524288.0, [("Multiply", 1)]),  # the one that is left
        ("Multiply", 16777216.0, [("Proj3", 0)]),
    ]  # fmt: skip


def test_bytes_are_compared_where_a_sharding_is_decided() -> None:
    text = _serial_scan().replace("skip_inter_chip_optimization: true ", "")
    with pytest.raises(InputError, match="'Proj1' makes 16777216 B, but 'Conv' takes 524288 B"):
        read_task(text, "scan.txt")


def test_a_published_serial_scan_on_one_chip_is_mapped_no_slower_than_published() -> None:
    # Logs of SSM/Mamba/serialscan/256K (b9a3e2f9): 5249817.421771624 ns, and of 256K_RDU
    # (f9cda5e3, as much memory on the chip as it takes): 5246159.921826123 ns, 5242879.921875001
    # of them the scan.
    answer = crosstack.optimise(read_task(_serial_scan(), "scan.txt"))
    assert answer.rules.name == "dfmodel-e5"
    assert answer.certificate.status is crosstack.Status.OPTIMAL
    found = answer.evaluation
    assert found.time <= 5246159.921826123e-9
    assert found.partitions[1].time == pytest.approx(5242879.921875001e-9, rel=1e-12)
    assert found.work == 1644167168
    assert (found.price.total, found.power.total) == pytest.approx((24714.25, 1775.7423400878906))


# Bad input


def test_unknown_field_names_its_path_and_the_nearest() -> None:
    message = problem(("outer: 2 M: 8", "outr: 2 M: 8"))
    assert message.startswith(
        "small.txt: dataflow_graph.kernels[1].gemm_input1_weight.outr: unknown field. "
        'Did you mean "outer"? Allowed: outer, M, N,'
    )
    assert message.endswith("(line 13, column 5).")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("type: SIMD", "type: SIMT", 'kernels[0].type: unknown value "SIMT". Did you mean "SIMD"?'),
        ("core: 4", "core: four", "system.accelerator.core: got four; allowed: a whole number (l"),
        ("dram_bw: 300", "dram_bw: fast", "system.memory.dram_bw: got fast; allowed: a number (li"),
        ("num_chip: 8", "num_chip: 8 num_chip: 9", "num_chip: given more than once"),
        ("r_sw {", "r { x: 1 } r_sw {", 'r_sw: "r" is given already; allowed: one of them'),
        ("gurobi {", "guroby {", 'guroby: unknown field. Did you mean "gurobi"?'),
        ("time: 5 }", "time: 5", "(line"),
    ],
)
def test_text_errors_say_where(old: str, new: str, expected: str) -> None:
    message = problem((old, new))
    assert message.startswith("small.txt: ")
    assert expected in message
    assert re.search(r"\(line \d+, column \d+\)\.$", message)
    assert "\n" not in message


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("outer: 2 M: 8", "outer: 2 M: 0", "kernels[1].gemm_input1_weight.M: got 0"),
        ("outer: 2 M: 8", "M: 8", "kernels[1].gemm_input1_weight.outer: got 0"),
        ("config: -1 type: SIMD", "config: -1", "kernels[0].type: not set; allowed: SYSTOLIC, S"),
        ("tiling: N_TILING", "", "kernels[0].elementwise_input1.tiling: not set"),
        ('name: "Norm"', "", "dataflow_graph.kernels[0].name: got ''"),
        ('name: "Norm"', 'name: "Up"', "dataflow_graph.kernels[1].name: duplicate kernel name"),
        ("id: 7", "id: 4", "kernels[2].id: duplicate id 4; kernels[0] has it already"),
        ("startIdx: 3", "startIdx: 33", "connections[2].startIdx: no kernel has id 33. Nearest: 7"),
        (
            "startIdx: 7 endIdx: 4",
            "startIdx: 4 endIdx: 7",
            "dataflow_graph.connections: the graph has a cycle",
        ),
        (
            "input_tensor_2_size: 64",
            "input_tensor_2_size: 63",
            "connections[1]: 'Norm' makes 64 B, but 'Sum' takes 128 B or 63 B",
        ),
        ("ALL_REDUCE_PERIODIC", "CommunicationType_Placeholder", "a size, but no type"),
        ("config: 1", "config: 2", "kernels[1].config: got 2; allowed: -1 (free) to 1"),
        ("core: 4", "", "system.accelerator.core: got 0"),
        ("freq: 1.837", "freq: nan", "system.accelerator.freq: got nan"),
        ("compute_util: 0.9", "compute_util: 90", "execution.compute_util: got 90"),
        ("accelerator_price: 100", "accelerator_price: -1", "cost.accelerator_price: got -1"),
        ("dram_bw: 300", "", "system.memory.dram_bw: got 0"),
        ("link_bw_y: 25.5", "", "system.r_sw.link_bw_y: got 0"),
        ("x: 4 y: 2", "x: 4 y: 4", "system.num_chip: got 8, but the network joins 4 x 4"),
        ('par_x: "TP"', 'par_x: "SP"', "par_x: sequence parallelism is not supported yet"),
        ('par_x: "TP"', 'par_x: "Tp"', 'par_x: unknown value "Tp". Did you mean "TP"?'),
        ("num_layer: 2", "", "execution.llm.num_layer: got 0"),
        ("global_batch_size: 16", "", "execution.llm.global_batch_size: got 0"),
        ("hidden_dim: 8", "", "execution.llm.hidden_dim: got 0"),
        ("seq_len: 4", "", "execution.llm.seq_len: got 0"),
        ("word: 2", "", "execution.word: got 0"),
        ("execution_style: DATAFLOW", "", "execution.execution_style: not set; allowed: DATAF"),
        ("DATAFLOW", "KERNEL_BY_KERNEL", "execution.num_config: got 2; allowed: 0 (unset) or 3"),
        ("num_config: 2", "num_config: -2", "execution.num_config: got -2"),
        ("word: 2", "word: 2 overlap: NO_OVERLAP", "execution.perfect_overlap: contradicts"),
        ("freq: 1.837", "freq: 1 pmu: 9", "system.accelerator.pmu_cap: got None; allowed: given"),
        ("dram_bw: 300", "dram_bw: 3 second_dram_bw: 1", "second_dram_cap: got None; allowed: sec"),
        ("perfect_overlap: true", 'optimization: "CM"', "optimization: summing only CM is not"),
        ("word: 2", 'word: 2 optimization: "X"', 'optimization: unknown value "X". Allowed: CMN,'),
        (
            "word: 2",
            "word: 2 skip_inter_chip_optimization: true",
            "skip_inter_chip_optimization: leaving kernels whole is not supported yet; allowed:",
        ),
        ("memory_size: 5", "use_effective_stage: true", "use_effective_stage: an effective stage"),
        ("gurobi {", "miscellany { word: 2 } gurobi {", "execution: given twice"),
    ],
)
def test_bad_values_say_which_field(old: str, new: str, expected: str) -> None:
    message = problem((old, new))
    assert message.startswith("small.txt: ")
    assert expected in message


def test_blocks_that_are_missing_are_named() -> None:
    for block in ("dataflow_graph", "system", "execution"):
        text = "dataflow_graph {} system {} execution { llm {} }"
        text = re.sub(rf"{block} \{{(?: llm \{{\}} )?\}}", "", text)
        with pytest.raises(InputError, match=f"x: {block}: this block is missing"):
            read_task(text, "x")


def test_problems_of_all_kernels_come_together() -> None:
    message = problem(("M: 8 N: 4 input_t", "M: 0 N: 4 input_t"), ("K: 4", "K: 0"))
    assert [line.split(": ")[1] for line in message.split("\n")] == [
        "dataflow_graph.kernels[0].elementwise_input1.M",
        "dataflow_graph.kernels[1].gemm_input1_weight.K",
    ]


# Overrides


def test_overrides_set_fields_in_the_files_own_words() -> None:
    task = small(
        overrides=(
            "system.r_sw.link_bw_x=450",
            "dataflow_graph.kernels[0].config = 0",
            "execution.execution_style=DATAFLOW",
            "execution.perfect_overlap=false",
            "system.r_sw.par_y=PP",
        )
    )
    assert task.system.network[0].bandwidth == 450e9
    assert task.system.network[1].parallelism is Parallelism.PIPELINE
    assert task.constraints.partitions == (("Norm", 0), ("Up", 1))
    assert task.system.chip.overlap is Overlap.NONE


def test_overrides_know_both_names_of_the_execution_block() -> None:
    task = small(("execution {", "miscellany {"), overrides=("execution.llm.num_layer=6",))
    assert task.workload.n_layers == 6


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        (
            "system.r_sw.link_bwx=4",
            'system.r_sw.link_bwx: unknown field. Did you mean "link_bw_x"?',
        ),
        ("sistem.num_chip=4", 'sistem: unknown field. Did you mean "system"?'),
        ("system.r_r.x=4", 'system.r_r: the file gives "r_sw"; allowed: r_sw.'),
        ("dataflow_graph.kernels[3].id=4", "allowed: kernels[0] to kernels[2]"),
        ("dataflow_graph.kernels.id=4", "allowed: kernels[0] to kernels[2]"),
        ("system.num_chip=4.5", "system.num_chip: got 4.5; allowed: a whole number"),
        ("system.num_chip=99999999999999999999", "allowed: a whole number"),
        ("execution.overlap=NONE", 'execution.overlap: unknown value "NONE"'),
        ("execution.perfect_overlap=yes", "got yes; allowed: true or false"),
        ("system.memory=4", "system.memory: this is a block"),
        ("system.num_chip.x=4", "system.num_chip: this is a field, not a block"),
        ("system.num_chip", "system.num_chip: allowed: path=value"),
        ("execution.word=0", "small.txt: execution.word: got 0"),
    ],
)
def test_bad_overrides_say_what_is_allowed(override: str, expected: str) -> None:
    message = problem(overrides=(override,))
    assert message.startswith("small.txt")
    assert expected in message
