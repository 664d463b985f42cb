"""Claims about the native YAML format."""
# ruff: noqa: E501 - the tables are one case a line

import re
import time
from dataclasses import fields, replace
from inspect import signature
from pathlib import Path

import pytest
from builders.examples import fewer
from hypothesis import given
from hypothesis import strategies as st

from crosstack.errors import MOST_SHOWN, InputError
from crosstack.io import library
from crosstack.io.load import load
from crosstack.io.native import (
    override,
    problems,
    read_system,
    read_task,
    write_task,
)
from crosstack.io.native.read import task_of
from crosstack.io.native.task_fields import FIELDS
from crosstack.io.yaml_tree import parse_yaml
from crosstack.machine.chip import Chip, Execution, Link, Overlap, flat_chip
from crosstack.machine.compute import Compute, Dataflow
from crosstack.machine.framework import Framework, Fusion
from crosstack.machine.memory import MemoryLevel, Scope, main_memory
from crosstack.machine.prices import system_power, system_price
from crosstack.machine.system import (
    Dimension,
    DimensionKind,
    Parallelism,
    Prices,
    System,
)
from crosstack.mapping.degrees import Degrees
from crosstack.mapping.mapping import Constraints, Task
from crosstack.model.rules import rule_names
from crosstack.published.dfmodel.graphs.llm import llm
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernel_graph import kernel_graph
from crosstack.workload.kernels import (
    Axis,
    Collective,
    Communication,
    ComputeUnit,
    Consumer,
    Direction,
    Kernel,
    KernelKind,
    Tensor,
)
from crosstack.workload.transformer_training import Recompute
from crosstack.workload.workload import Workload

EXAMPLES = [
    path
    for path in sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.yaml"))
    if not path.name.startswith("chip_")  # a chip, not a task
]

SMALL = """
workload:
  word: 2
  kernels:
    - {name: A, kind: elementwise, m: 4, n: 8}
    - {name: Q, kind: gemm_weight, outer: 2, m: 2, k: 4, n: 8, inputs: [A]}
    - {name: K, kind: gemm_weight, outer: 2, m: 2, k: 4, n: 8, inputs: [A]}
    - {name: S, kind: gemm, outer: 2, m: 8, k: 2, n: 8, inputs: [Q, K]}
system:
  chip: sn30
  memory: ddr4
  network:
    - {kind: ring, size: 8, bandwidth: 50 GB/s}
    - {kind: switch, size: 4, bandwidth: 25 GB/s}
"""


def read(text, *overrides):
    return read_task(text, "mine.yaml", overrides)


def lines_of(text, *overrides):
    with pytest.raises(InputError) as caught:
        read(text, *overrides)
    lines = str(caught.value).split("\n")
    assert len(lines) == len(caught.value.problems), "a problem takes more than one line"
    assert all(line.startswith("mine.yaml: ") for line in lines)
    return [line.removeprefix("mine.yaml: ") for line in lines]


def kernel(task, name):
    return task.workload.graph.kernels[task.workload.graph.index[name]]


# --- what a file means ------------------------------------------------------------------------


def test_a_generator_gives_the_workload_of_its_function():
    text = SMALL[: SMALL.index("  word")] + (
        "  dfmodel: {llm: {hidden: 64, sequence_length: 32, n_heads: 4, head_size: 16,"
        " n_layers: 2, global_batch_size: 8}}\n" + SMALL[SMALL.index("system") :]
    )
    assert read(text).workload == llm(
        hidden=64, sequence_length=32, n_heads=4, head_size=16, n_layers=2, global_batch_size=8
    )


def test_a_kernel_makes_outer_m_n_words_unless_its_size_is_given():
    given = SMALL.replace("inputs: [Q, K]", "inputs: [Q, K], output_size: 7")
    assert kernel(read(SMALL), "S").output_size == 2 * 8 * 8 * 2
    assert kernel(read(given), "S").output_size == 7


def test_an_operand_has_the_size_of_what_makes_it():
    text = SMALL.replace("m: 4, n: 8}", "m: 4, n: 8, output_size: 1 kB}")
    assert kernel(read(text), "Q").input_sizes == (1000.0,)


def test_an_operand_from_inside_has_the_size_of_its_extents():
    text = SMALL.replace("k: 2, n: 8, inputs", "k: 5, n: 8, inputs")
    with pytest.raises(InputError, match="'Q' makes 64 B, operand 0 of 'S' is 160 B. That is by"):
        read(text)


def test_heads_may_be_split():
    heads = "{name: H, kind: elementwise, outer: 2, m: 2, n: 8, inputs: [A]}"  # A: 4 x 8
    text = SMALL.replace("system:", f"    - {heads}\nsystem:")
    assert kernel(read(text), "H").input_sizes == (4 * 8 * 2.0,)


@pytest.mark.parametrize("sizes", ["[160, 64]", "[160, null]"])
def test_sizes_that_are_written_down_are_checked_as_well(sizes):
    text = SMALL.replace("inputs: [Q, K]", f"inputs: [Q, K], input_sizes: {sizes}")
    with pytest.raises(InputError, match="operand 0 of 'S' is 160 B.$"):
        read(text)


def test_a_size_that_agrees_stands_above_the_extents():
    text = SMALL.replace("m: 4, n: 8}", "m: 4, n: 9}")  # A makes 72 B, Q and K would read 64 B
    for name in ("Q", "K"):
        text = re.sub(rf"(name: {name}, .*inputs: \[A\])", r"\1, input_sizes: [72]", text)
    assert kernel(read(text), "Q").input_sizes == (72.0,)


def test_more_sizes_than_operands_are_refused():
    text = SMALL.replace("inputs: [Q, K]", "inputs: [Q, K], input_sizes: [null, null, null]")
    with pytest.raises(InputError, match="input_sizes: got .*; allowed: 2 sizes"):
        read(text)


# outer 2, m 3, k 5, n 7, 2 bytes a word.
@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("elementwise", (84.0,)),
        ("elementwise_2", (84.0, 84.0)),
        ("gemm_weight", (70.0,)),
        ("gemm", (60.0, 140.0)),
    ],
)
def test_an_operand_from_outside_has_the_size_of_its_extents(kind, sizes):
    k = 5 if kind.startswith("gemm") else 1
    line = f"    - {{name: X, kind: {kind}, outer: 2, m: 3, k: {k}, n: 7}}\nsystem:"
    assert kernel(read(SMALL.replace("system:", line)), "X").input_sizes == sizes


def test_a_weight_has_outer_m_k_words():
    assert kernel(read(SMALL), "Q").weight_size == 2 * 2 * 4 * 2


def test_several_readers_share_one_tensor():
    (first, *_) = read(SMALL).workload.graph.tensors
    assert [c.kernel for c in first.consumers] == ["Q", "K"]


def test_a_kernel_may_read_one_tensor_twice():
    task = read(SMALL.replace("inputs: [Q, K]", "inputs: [Q, Q], input_sizes: [64, 64]"))
    consumers = [c for t in task.workload.graph.tensors for c in t.consumers if c.kernel == "S"]
    assert consumers == [Consumer(kernel="S", operand=0), Consumer(kernel="S", operand=1)]


def test_a_null_input_comes_from_outside_the_graph():
    task = read(SMALL.replace("inputs: [Q, K]", "inputs: [null, K]"))
    assert [t.producer for t in task.workload.graph.tensors] == ["A", "K"]


def test_an_input_may_be_elided():
    task = read(SMALL.replace("inputs: [Q, K]", "inputs: [Q, {kernel: K, elided: true}]"))
    assert task.workload.graph.tensors[-1].consumers[0].elided


def test_the_sequence_is_as_long_as_the_largest_tiled_axis():
    text = SMALL.replace("m: 4, n: 8}", "m: 40, n: 8, tiling: m, output_size: 64}")
    assert read(text).workload.sequence_length == 40


def test_the_boundary_is_what_no_forward_kernel_reads():
    back = "    - {name: B, kind: elementwise, outer: 2, m: 8, n: 8, inputs: [S],"
    text = SMALL.replace("system:", f"{back} direction: backward}}\nsystem:")
    assert read(text).workload.boundary_size == 2 * 8 * 8 * 2


def test_a_library_name_gives_the_library_chip():
    chip = read(SMALL).system.chip
    assert chip == replace(library.chip("sn30"), memories=chip.memories)


def test_a_library_entry_may_be_changed():
    chip = "chip: {library: sn30, utilization: 0.9, sram_capacity: 1 GiB}"
    expected = library.chip("sn30").with_compute(utilization=0.9).with_level(0, capacity=2.0**30)
    found = read(SMALL.replace("chip: sn30", chip)).system.chip
    assert found == replace(expected, memories=found.memories)


def test_a_capacity_of_null_is_unlimited():
    text = SMALL.replace("memory: ddr4", "memory: {library: ddr4, capacity: null}")
    assert read(text).system.chip.main_memory.capacity is None


def test_the_number_of_chips_follows_from_the_sizes():
    assert read(SMALL).system.n_chips == 32


def test_a_topology_gives_its_dimensions():
    head = SMALL[: SMALL.index("  network")]
    text = head + "  topology: {library: dgx_1, sizes: [8, 4], link: [nvlink4, pcie4]}\n"
    network = read(text + "  prices: {}\n").system.network
    assert [(d.kind.value, d.size, d.bandwidth) for d in network] == [
        ("ring", 8, 9e11),
        ("switch", 4, 2.5e10),
    ]


def test_prices_come_with_the_library_entries():
    text = SMALL.replace("bandwidth: 50 GB/s", "library: pcie4")
    assert read(text).system.prices == Prices(
        link=2e-9, switch=2.4e-8, memory=1e-9, switch_power=5.2e-11, memory_power=1.6248e-10
    )


def test_a_given_price_wins_over_the_library():
    text = SMALL + "  prices: {memory: 3 USD/(GB/s)}\n"
    assert read(text).system.prices.memory == 3e-9


def test_the_name_of_the_file_names_the_workload():
    assert read(SMALL + "name: mine\n").workload.name == "mine"


def test_constraints_are_read():
    text = "constraints: {n_tiles: 4, partitions: {Q: 0}, sharding: {K: outer}}\n"
    assert read(SMALL + text).constraints == Constraints(
        n_tiles=4, partitions=(("Q", 0),), sharding=(("K", Axis.OUTER),)
    )


def test_a_whole_number_may_be_written_with_an_exponent():
    text = SMALL.replace("  word: 2", "  word: 2\n  global_batch_size: 1e3")
    assert read(text).workload.global_batch_size == 1000


@pytest.mark.parametrize(
    "record", [Chip, Compute, MemoryLevel, Link, Dimension, Prices, Constraints, Framework], ids=str
)
def test_the_format_has_every_field_of_a_record(record):
    model = FIELDS[record.__name__.removeprefix("Memory").lower()]
    # The system says what drives its chips, and how many of them wait for the slowest.
    elsewhere = {Chip: {"framework"}, Compute: {"slowest"}}.get(record, set())
    assert {f.name for f in fields(record)} - elsewhere <= set(model.model_fields)


@pytest.mark.parametrize("made", [flat_chip, main_memory])
def test_the_format_has_everything_that_a_flat_machine_is_made_of(made):
    model = FIELDS[{flat_chip: "chip", main_memory: "memory"}[made]]
    assert set(signature(made).parameters) <= set(model.model_fields)


# --- examples -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_an_example_reads_and_round_trips(path):
    task = load(path)
    assert read(write_task(task)) == task


# Source: dfmodel_code, the README's case (links 50/50 GB/s): 17,757,184 USD and 511,325.01 W.
def test_the_sn30_example_has_the_published_price_and_power():
    system = load(next(p for p in EXAMPLES if "sn30" in p.name)).system
    assert system_price(system, (8, 128)).total == pytest.approx(17757184, rel=1e-6)
    assert system_power(system, (8, 128)).total == pytest.approx(511325.01, rel=1e-6)


# --- round trip ---------------------------------------------------------------------------------

NAMES = st.text(min_size=1, max_size=8).filter(lambda name: name.strip())
AWKWARD = st.sampled_from(["null", "true", "No", "1e9", "a: b", "x #y", "é\u2028", '"', "\\", "~"])
COUNTS = st.integers(1, 2**20) | st.integers(1, 2**53 - 1)
SIZES = st.just(0.0) | st.floats(1e-60, 1e60) | st.integers(0, 2**40).map(float)
POSITIVE = st.floats(1e-60, 1e60)
FUSIONS = st.lists(st.sampled_from(Fusion), unique=True).map(tuple)
SOME = st.floats(1e-6, 1e15)
RATES = st.dictionaries(st.sampled_from(Dtype), SOME).map(
    lambda rates: tuple((dtype, rates[dtype]) for dtype in Dtype if dtype in rates)
)
COMPUTES = st.builds(
    Compute, n_units=COUNTS, n_multiprocessors=COUNTS, rows=COUNTS, columns=COUNTS,
    depth=st.none() | SOME, work_per_cycle=SOME, frequency=SOME, voltage=SIZES,
    utilization=st.none() | st.floats(1e-6, 1), dataflow=st.sampled_from(Dataflow), power=SIZES,
    relative_rates=RATES, relative_vector_rates=RATES,
)  # fmt: skip
LEVELS = st.builds(
    MemoryLevel, name=NAMES, scope=st.sampled_from(Scope), capacity=SOME,
    bandwidth=st.none() | SIZES, latency=SIZES, energy_per_bit=SIZES, static_power=SIZES,
    line_size=POSITIVE, partitions=COUNTS,
)  # fmt: skip
LINKS = st.none() | st.builds(
    Link, n_links=COUNTS, bandwidth=SIZES, latency=SIZES, frequency=SIZES, voltage=SIZES,
    power=SIZES,
)  # fmt: skip
CHIPS = st.builds(
    Chip, compute=COMPUTES,
    levels=st.lists(LEVELS, min_size=1, max_size=3, unique_by=lambda level: level.name).map(tuple),
    intra=LINKS, inter=LINKS, execution=st.sampled_from(Execution), fusions=FUSIONS,
    overlap=st.sampled_from(Overlap), launch_overhead=SIZES, price=st.none() | SIZES,
    power=st.none() | SIZES, idle_power=st.none() | SIZES, name=NAMES,
)  # fmt: skip


@st.composite
def kernels(draw, name):
    kind = draw(st.sampled_from(KernelKind))
    m, n, outer = (draw(st.integers(1, 2**20)) for _ in range(3))
    return Kernel(
        name=name,
        kind=kind,
        outer=outer,
        m=m,
        k=draw(st.integers(1, 2**20)) if kind.is_gemm else 1,
        n=n,
        output_size=draw(st.sampled_from([8.0, float(outer * m * n * 2)]) | SIZES),
        input_sizes=tuple(draw(SIZES) for _ in range(kind.n_inputs)),
        weight_size=draw(SIZES) if kind is KernelKind.GEMM_WEIGHT else 0.0,
        unit=draw(st.sampled_from(ComputeUnit)),
        tiling=draw(st.sampled_from((Axis.OUTER, Axis.M, Axis.K, Axis.N, Axis.NONE))),
        direction=draw(st.sampled_from(Direction)),
        memory_traffic=draw(SIZES),
        communications=tuple(draw(st.lists(COMMUNICATIONS, max_size=2))),
        repeats=draw(st.none() | COUNTS),
        sram_extra=draw(SIZES),
        memory_extra=draw(SIZES),
    )


COMMUNICATIONS = st.builds(
    Communication, collective=st.sampled_from(Collective), size=SIZES, periodic=st.booleans()
)


@st.composite
def graphs(draw):
    """Return any graph, in any order."""
    names = draw(st.lists(NAMES | AWKWARD, min_size=1, max_size=6, unique=True))
    nodes, readers = [], {}
    for j, name in enumerate(names):
        node = draw(kernels(name))
        sizes = list(node.input_sizes)
        for operand in range(node.kind.n_inputs):
            if j == 0 or draw(st.booleans()):
                continue
            maker = draw(st.integers(0, j - 1))
            sizes[operand] = nodes[maker].output_size
            consumer = Consumer(kernel=name, operand=operand, elided=draw(st.booleans()))
            readers.setdefault(maker, []).append(consumer)
        nodes.append(replace(node, input_sizes=tuple(sizes)))
    shuffle = st.permutations if draw(st.booleans()) else st.just
    tensors = [
        Tensor(
            producer=names[i],
            consumers=tuple(draw(shuffle(readers[i]))),
            size=nodes[i].output_size,
        )
        for i in draw(shuffle(sorted(readers)))
    ]
    return kernel_graph(kernels=tuple(draw(shuffle(nodes))), tensors=tuple(tensors), word=2)


@st.composite
def dimensions(draw):
    kind = draw(st.sampled_from(DimensionKind))
    size = draw(st.none() | st.integers(1, 64))
    more = {}
    if kind in (DimensionKind.MESH, DimensionKind.TORUS):
        more["shape"] = draw(
            st.sampled_from([(), (4, size // 4) if (size or 0) % 4 == 0 and size else ()])
        )
    if kind in (DimensionKind.FAT_TREE, DimensionKind.DRAGONFLY, DimensionKind.RAIL_OPTIMISED):
        more["oversubscription"] = draw(st.sampled_from([1.0, 2.0, 2.5]))
        more["pod_size"] = draw(st.none() | st.integers(1, 64))
        more["reduces"] = draw(st.booleans())
    return Dimension(
        kind=kind,
        bandwidth=draw(POSITIVE),
        size=size,
        latency=draw(SIZES),
        parallelism=draw(st.none() | st.sampled_from(Parallelism)),
        link_power=draw(SIZES),
        **more,
    )


@st.composite
def systems(draw):
    network = tuple(draw(dimensions()) for _ in range(draw(st.integers(1, 4))))
    n_chips = 1
    for dimension in network:
        n_chips *= dimension.size or draw(st.integers(1, 8))
    flat = st.builds(
        flat_chip,
        n_cores=COUNTS,
        lanes=COUNTS,
        stages=COUNTS,
        frequency=POSITIVE,
        sram_capacity=POSITIVE,
        utilization=st.none() | st.floats(1e-6, 1),
        overlap=st.sampled_from(Overlap),
        execution=st.sampled_from(Execution),
        fusions=FUSIONS,
        launch_overhead=SIZES,
        price=SIZES,
        power=SIZES,
        idle_power=SIZES,
        name=NAMES,
    )
    memory = st.builds(main_memory, bandwidth=POSITIVE, capacity=st.none() | POSITIVE, name=NAMES)
    beside = memory | st.builds(
        lambda level: (level,), LEVELS.filter(lambda level: level.bandwidth)
    )
    prices = st.builds(Prices, **{f.name: SIZES for f in fields(Prices)})
    memories = draw(beside)
    chip = draw(flat | CHIPS.filter(lambda c: memories[0].name not in [x.name for x in c.levels]))
    return System(
        chip=replace(chip, memories=memories),
        network=network,
        n_chips=n_chips,
        prices=draw(prices),
        name=draw(NAMES),
    )


@st.composite
def tasks(draw):
    graph = draw(graphs())
    in_graph = st.sampled_from([k.name for k in graph.kernels])
    layers = draw(st.integers(1, 4))
    workload = Workload(
        graph=graph,
        n_layers=layers * draw(st.integers(1, 9)),
        layers_in_graph=layers,
        global_batch_size=draw(COUNTS),
        sequence_length=draw(st.integers(1, 2**28)),
        boundary_size=draw(SIZES),
        name=draw(NAMES | AWKWARD),
    )
    given_counts = {
        name: draw(st.none() | COUNTS) for name in ("microbatch_size", "n_tiles", "tile_size")
    }
    constraints = Constraints(
        **given_counts,
        degrees=Degrees(
            **draw(
                st.fixed_dictionaries(
                    {
                        name: st.none() | COUNTS
                        for name in (
                            "tensor",
                            "pipeline",
                            draw(st.sampled_from(["data", "expert"])),
                        )
                    }
                )
            )
        ),
        kernel_by_kernel=draw(st.booleans()),
        separate_directions=draw(st.booleans()),
        recompute=draw(st.none() | st.sampled_from(Recompute)),
        partitions=tuple(draw(st.dictionaries(in_graph, st.integers(0, 9))).items()),
        sharding=tuple(draw(st.dictionaries(in_graph, st.sampled_from(Axis))).items()),
    )
    rules = draw(st.none() | st.sampled_from(rule_names()))
    system = draw(systems())
    return Task(workload=workload, system=system, constraints=constraints, rules=rules)


@given(tasks())
@fewer(0.5)
def test_what_is_written_reads_back_equal(task):
    assert read(write_task(task)) == task


@pytest.mark.parametrize(
    ("said", "changed"),
    [
        ("bandwidth: 8 TB/s", {"bandwidth": 8e12}),
        ("capacity: 96 GB", {"capacity": 96e9}),
        ("bandwidth: 4 TB/s, capacity: 96 GB", {"bandwidth": 4e12, "capacity": 96e9}),
    ],
)
@pytest.mark.parametrize("machine", ["on: h100-dgx", "on: h100-dgx, chip: {library: h200-sxm}"])
def test_what_a_file_says_of_a_memory_leaves_the_rest_of_it(machine, said, changed):
    own = SMALL[: SMALL.index("system:")] + f"system: {{{machine}"
    usual = read(f"{own}}}\n").system.chip.main_memory
    assert usual.ramp
    assert usual.latency
    assert read(f"{own}, memory: {{{said}}}}}\n").system.chip.main_memory == replace(
        usual, **changed
    )


def test_one_memory_in_place_of_two_is_all_there_is():
    sn40l = (
        "system: {on: sn40l-node, memory: {bandwidth: 1 TB/s, second_bandwidth: 100 GB/s, "
        "second_capacity: 1 TB}}\n"
    )
    head = SMALL[: SMALL.index("system:")]
    first, second = read(head + sn40l).system.chip.memories
    assert (first.speed, first.capacity, second.capacity) == (1e12, 64 * 2**30, 1e12)


def test_what_is_left_free_of_a_memory_comes_back():
    task = read(SMALL, "system.memory.spare=1 kB")
    assert task.system.chip.main_memory.spare == 1e3
    assert read(write_task(task)) == task
    on = SMALL[: SMALL.index("system:")] + "system: {on: h100-dgx, memory: {spare: 8 GB}}\n"
    chip = read(on).system.chip
    assert chip.main_memory.room == pytest.approx(85.5e9 - 8e9, rel=1e-3)


@pytest.mark.parametrize("training", [False, True])
def test_a_generated_model_is_written_with_inputs_and_no_sizes(training):
    workload = llm(
        hidden=64, sequence_length=32, n_heads=4, head_size=16, n_layers=2,
        global_batch_size=8, training=training, layers_in_graph=2,
    )  # fmt: skip
    task = replace(read(SMALL), workload=workload)
    text = write_task(task)
    assert read(text) == task
    assert "tensors" not in text
    assert "input_sizes" not in text


def test_words_for_what_a_graph_works_on_are_read_and_written():
    text = SMALL.replace("workload:\n", "workload:\n  item: image\n  item_part: patch\n", 1)
    for workload in (read(text).workload, read(write_task(read(text))).workload):
        assert (workload.item, workload.item_part) == ("image", "patch")
    assert read(SMALL).workload.item == "sample"


def test_a_long_kernel_name_can_be_a_key():
    name = "x" * 3000
    text = re.sub(r"\bQ\b", name, SMALL)
    task = replace(read(text), constraints=Constraints(partitions=((name, 0),)))
    assert read(write_task(task)) == task


# --- bad input ----------------------------------------------------------------------------------


# (what is replaced in SMALL, by what, the whole line or its beginning)
BAD = [
    ("size: 4, bandwidth", "size: 4, bandwith", 'system.network[1].bandwith: unknown field. Did you mean "bandwidth"? Allowed: library, kind, size,'),
    ("inputs: [Q, K]", "inputs: [QKV, K]", 'workload.kernels[3].inputs[0]: no kernel is called "QKV". Nearest: "Q", "K".'),
    ("kind: switch", "kind: swich", "system.network[1].kind: got 'swich'; allowed: ring, switch, fully_connected, mesh, torus, fat_tree, dragonfly, rail_only, rail_optimised. Did you mean \"switch\"?"),
    ("m: 4, n: 8}", "m: 4, n: -8}", "workload.kernels[0].n: got -8; allowed: a whole number, at least 1."),
    ("m: 4, n: 8}", "m: 4, n: 1.5}", "workload.kernels[0].n: got 1.5; allowed: a whole number"),
    ("m: 4, n: 8}", "m: 4, n: .nan}", "workload.kernels[0].n: got nan; allowed: a whole number"),
    ("m: 4, n: 8}", "m: 4, n: true}", "workload.kernels[0].n: got True; allowed: a whole number"),
    ("m: 4, n: 8}", "m: 4, n: '8'}", "workload.kernels[0].n: got '8'; allowed: a whole number"),
    ("m: 4, n: 8}", "m: 4, n: 99999999999999999999}", "workload.kernels[0].n: got 99999999999999999999; allowed: a whole"),
    ("m: 4, n: 8}", "m: 4}", "workload.kernels[0].n: required, but missing."),
    ("m: 4, n: 8}", "m: 4, n: 8, k: 3}", "workload.kernels[0].k: got 3; allowed: 1: an elementwise"),
    ("m: 4, n: 8}", "m: 4, n: 8, output_size: -1 GB}", "workload.kernels[0].output_size: got -1000000000.0; allowed: a finite number 0 or above [B]."),
    ("m: 4, n: 8}", "m: 4, n: 8, output_size: .inf}", "workload.kernels[0].output_size: got inf; allowed: a finite number [B]"),
    ("m: 4, n: 8}", "m: 4, n: 8, inputs: A}", "workload.kernels[0].inputs: got 'A'; allowed: a list."),
    ("m: 4, n: 8}", "m: 4, n: 8, inputs: [A]}", "workload.kernels: the graph has a cycle: A -> A."),
    ("inputs: [Q, K]", "inputs: [Q, K, A]", "workload.kernels[3].inputs: got 3 operands; allowed for gemm: up to 2."),
    ("inputs: [Q, K]", "inputs: [Q, K], input_sizes: [64, 65]", "workload.kernels[3].inputs[1]: sizes disagree: 'K' makes 64 B"),
    ("inputs: [Q, K]", "inputs: [Q, K], input_sizes: [64]", "workload.kernels[3].input_sizes: got (64.0,); allowed: 2 sizes"),
    ("inputs: [Q, K]", "inputs: [Q, 3]", "workload.kernels[3].inputs[1]: got 3; allowed: a mapping of kernel, elided."),
    ("name: K,", "name: Q,", "workload.kernels[2].name: the name 'Q' is taken by workload.kernels[1]."),
    ("name: K,", "name: 3,", "workload.kernels[2].name: got 3; allowed: text (put it in quotes"),
    ("  word: 2\n", "", "workload.word: required, but missing."),
    ("  word: 2\n", "  word: 2\n  n_layers: 3\n  layers_in_graph: 2\n", "workload.n_layers: got 3; allowed: a multiple of"),
    ("  word: 2\n", "  word: 2\n  llm: {hidden: 3}\n", "workload.llm.sequence: required, but missing."),
    ("chip: sn30", "chip: sn3O", 'system.chip: no chip is called "sn3O". Did you mean "sn30"?'),
    ("chip: sn30", "chip: {library: sn3O, power: 1}", 'system.chip.library: no chip is called "sn3O".'),
    ("chip: sn30", "chip: 30", "system.chip: got 30; allowed: a name from the library, or a mapping of library,"),
    ("chip: sn30", "chip: {lanes: 1}", "system.chip.n_cores: required, but missing (or library,"),
    ("chip: sn30", "chip: {library: sn30, utilization: 120 %}", "system.chip.utilization: got 1.2; allowed: above 0, at most 1."),
    ("chip: sn30", "chip: {library: sn30, price: cheap}", "system.chip.price: got 'cheap'; allowed: a finite number [USD]."),
    ("  chip: sn30\n", "", "system.chip: required, but missing."),
    ("50 GB/s", "50 gb/s", "system.network[0].bandwidth: got '50 gb/s'; allowed units: B/s,"),
    ("50 GB/s", "0 GB/s", "system.network[0].bandwidth: got 0.0; allowed: a finite number above 0 [B/s]."),
    ("bandwidth: 50 GB/s", "library: pcie5", 'system.network[0].library: no link is called "pcie5".'),
    ("size: 4, ", "", "system.n_chips: required where a dimension of the network has no size."),
    ("memory: ddr4", "memory: ddr4\n  n_chips: 33", "system.n_chips: got 33, but the network joins 8 x 4 chips."),
    ("memory: ddr4", "memory: ddr4\n  topology: {library: torus_2d, link: pcie4}", "system.network: required: either network"),
    ("system:", "systm:", 'systm: unknown field. Did you mean "system"?'),
    ("system:", "constraints: {sharding: {Z: outer}}\nsystem:", 'constraints.sharding.Z: no kernel is called "Z".'),
    ("system:", "constraints: {max_partitions: 2, partitions: {Q: 5}}\nsystem:", "constraints.partitions.Q: got 5; allowed: 0 to 1"),
    ("system:", "rules: crostack\nsystem:", 'rules: no rules are called "crostack". Did you mean "crosstack"?'),
    ("system:", "workload: {}\nsystem:", "line 9, column 1: the key 'workload' is given twice."),
    ("    - {name: A,", "    - {name: A, name: B,", "line 5, column 17: the key 'name' is given twice."),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line"), BAD)
def test_bad_input_is_named_where_it_stands(old, new, line):
    assert old in SMALL
    found = lines_of(SMALL.replace(old, new, 1))
    assert any(one.startswith(line) for one in found), found


@pytest.mark.parametrize("text", ["3", "[]", "name", "# nothing\n"])
def test_a_file_that_is_no_mapping_is_refused(text):
    (line,) = lines_of(text)
    assert "allowed: a mapping of name, rules, workload, system, constraints" in line


def test_all_problems_of_a_file_come_together():
    text = SMALL.replace("inputs: [Q, K]", "inputs: [QKV, K]").replace("chip: sn30", "chip: x")
    text = text.replace("50 GB/s", "50 mm") + "constraints: {n_tiles: 0}\n"
    places = [line.partition(":")[0] for line in lines_of(text)]
    assert {"workload.kernels[3].inputs[0]", "system.network[0].bandwidth"} <= set(places)
    assert "constraints.n_tiles" in places


def test_a_misspelt_field_is_one_problem_and_not_also_a_missing_one():
    assert len(lines_of(SMALL.replace("{name: A, kind", "{name: A, knd", 1))) == 1


def test_links_with_other_prices_need_a_price(monkeypatch):
    dear = replace(library.link("pcie4"), price=5e-9)
    real = library.link
    monkeypatch.setattr(read_system, "link", lambda n: dear if n == "pcie4" else real(n))
    text = SMALL.replace("bandwidth: 50 GB/s", "library: pcie4")
    text = text.replace("bandwidth: 25 GB/s", "library: nvlink4")
    (line,) = lines_of(text)
    assert line.startswith(
        "system.prices.link: the links of the network differ (5 USD/(GB/s) and 2"
    )
    assert read(text + "  prices: {link: 5 USD/(GB/s)}\n").system.prices.link == 5e-9


def _leaves(tree, path=()):
    if isinstance(tree, dict | list):
        pairs = tree.items() if isinstance(tree, dict) else enumerate(tree)
        for key, value in pairs:
            yield (*path, key)
            yield from _leaves(value, (*path, key))


def problems_of(tree):
    try:
        task_of(tree)
    except InputError as error:
        return error.problems
    return ()


FULL = SMALL + "constraints: {partitions: {Q: 1}, sharding: {K: m}}\n"
SPELLED_OUT = write_task(read(FULL)) + "name: full\nrules: crosstack\n"
JUNK = st.sampled_from(
    [None, True, -1, 0, 1.5, float("nan"), float("inf"), 10**39, "", "x", "1 GB", [], [[]], [None],
     {}, {"library": "x"}, {"library": 3}, {"x": {}}, ["Q"], "Q", "outer"]
)  # fmt: skip


@given(st.sampled_from(sorted(_leaves(parse_yaml(SPELLED_OUT)), key=str)), JUNK)
def test_junk_anywhere_is_read_or_refused_but_never_a_crash(path, junk):
    node = tree = parse_yaml(SPELLED_OUT)
    for part in path[:-1]:
        node = node[part]
    node[path[-1]] = junk
    assert all("\n" not in str(problem) for problem in problems_of(tree))


# --- overrides ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("assignment", "value"),
    [
        ("system.chip.utilization=0.8", lambda t: t.system.chip.compute.utilization == 0.8),
        ("system.network[0].bandwidth=450 GB/s", lambda t: t.system.network[0].bandwidth == 4.5e11),
        ("system.memory=hbm", lambda t: t.system.chip.memories == library.memory("hbm")),
        ("constraints.sharding.Q=m", lambda t: t.constraints.sharding == (("Q", Axis.M),)),
        ('constraints.sharding["Q"]=m', lambda t: t.constraints.sharding == (("Q", Axis.M),)),
        ("constraints.max_partitions=4", lambda t: t.constraints.max_partitions == 4),
        ("workload.kernels[3].inputs[0].elided=true", lambda t: t.workload.graph.tensors[1].consumers[0].elided),
        ("rules=dfmodel-e4", lambda t: t.rules == "dfmodel-e4"),
    ],
)  # fmt: skip
def test_an_override_changes_the_task(assignment, value):
    assert value(read(SMALL, assignment))


def test_overrides_apply_in_order():
    assert read(SMALL, "rules=dfmodel-e4", "rules=crosstack").rules == "crosstack"


def test_an_override_leaves_the_tree_it_was_given_alone():
    tree = parse_yaml(SMALL)
    override(tree, ["system.network[0].size=2", "system.chip.power=1"])
    assert tree == parse_yaml(SMALL)


@pytest.mark.parametrize(
    ("assignment", "line"),
    [
        ("system.chp.power=1", 'system.chp: unknown field. Did you mean "chip"? Allowed: name, chip'),
        ("system.chip.utilisation=1", 'system.chip.utilisation: unknown field. Did you mean "utilization"?'),
        ("system.network[2].size=1", "system.network[2]: there is no such entry: system.network has 2 entries"),
        ("system.network.size=1", "system.network.size: system.network is a list; allowed: system.network[0]"),
        ("system[0]=1", "system[0]: system is not a list."),
        ("system.n_chips.x=1", "system.n_chips.x: system.n_chips is a single value"),
        ("system.chip.power=[", "system.chip.power: line 2, column 1: not YAML:"),
        ("system.chip.power", "got 'system.chip.power'; allowed: PATH=VALUE"),
        ("=1", "got '=1'; allowed: PATH=VALUE"),
        ("system.chip.power=-1", "system.chip.power: got -1.0; allowed:"),
    ],
)  # fmt: skip
def test_a_bad_override_is_named(assignment, line):
    (found,) = lines_of(SMALL, assignment)
    assert found.startswith(line)


# --- size ---------------------------------------------------------------------------------------


def chain(n_kernels, reads="k"):
    shape = "kind: gemm_weight, m: 256, k: 256, n: 512"
    kernels = "".join(
        f"    - {{name: k{i}, {shape}, inputs: [{f'{reads}{i - 1}' if i else 'null'}]}}\n"
        for i in range(n_kernels)
    )
    return f"workload:\n  word: 2\n  kernels:\n{kernels}{SMALL[SMALL.index('system') :]}"


def test_five_thousand_kernels_read_in_seconds():
    text = chain(5000)
    start = time.process_time()
    assert len(read(text).workload.graph) == 5000
    assert time.process_time() - start < 6  # 1 s on an idle machine


def test_the_nearest_names_of_many_unknown_fields_are_not_looked_up(monkeypatch):
    looked = []
    monkeypatch.setattr(problems, "nearest", lambda *given: looked.append(given) or [])
    many = "\n".join(f"  key_{i}: 1" for i in range(5000))
    with pytest.raises(InputError) as caught:
        read(SMALL.replace("  word: 2", f"{many}\n  word: 2"))
    assert len(looked) <= 2 * MOST_SHOWN
    assert sum(problem.count for problem in caught.value.problems) == 5000
    assert str(caught.value).splitlines()[-1] == "and 4,980 more problems."


def test_many_unknown_fields_do_not_hide_another_mistake():
    many = "\n".join(f"  key_{i}: 1" for i in range(5000))
    with pytest.raises(InputError) as caught:
        read(SMALL.replace("  word: 2", f"{many}\n  word: two"))
    paths = [problem.path for problem in caught.value.problems]
    assert "mine.yaml: workload.word" in paths


def test_unknown_fields_deep_in_a_file_are_counted_where_they_are():
    many = ", ".join(f"key_{i}: 1" for i in range(2000))
    with pytest.raises(InputError) as caught:
        read(SMALL.replace("m: 4, n: 8}", f"m: 4, n: 8, {many}}}"))
    last = caught.value.problems[-1]
    assert (last.path, last.count) == ("mine.yaml: workload.kernels[0]", 1980)


def test_many_operands_of_other_sizes_are_said_in_one_line():
    kernels = "".join(
        f"    - {{name: B{i}, kind: elementwise, m: 3, n: 8, inputs: [A]}}\n" for i in range(24)
    )
    (line,) = lines_of(SMALL.replace("system:", f"{kernels}system:", 1))
    assert line == (
        "workload.kernels[4].inputs[0]: sizes disagree: 'A' makes 64 B, operand 0 of 'B0' is 48 B. "
        "That is by its extents; input_sizes would say it otherwise. 23 more disagree likewise: "
        "'A' to 'B1', 'A' to 'B2', 'A' to 'B3', ..."
    )


def test_a_few_operands_of_other_sizes_are_said_one_by_one():
    kernels = "".join(
        f"    - {{name: B{i}, kind: elementwise, m: 3, n: 8, inputs: [A]}}\n" for i in range(3)
    )
    assert len(lines_of(SMALL.replace("system:", f"{kernels}system:", 1))) == 3


def test_five_thousand_problems_are_found_in_seconds():
    start = time.process_time()
    with pytest.raises(InputError) as caught:
        read(chain(5000, reads="x"))
    assert len(caught.value.problems) == 4999
    assert time.process_time() - start < 10
