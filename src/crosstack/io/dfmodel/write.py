"""A `Task` or an `Plan` to DFModel text.

Names of chip, memory, system and workload have no place there and are left out, as are rates by
type of number (there a chip has one peak) and ``head_dim`` and ``num_head``, which a `Task` does
not hold. Real numbers become float32.

Source: ``dfmodel_code``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar, assert_never

import numpy as np
from google.protobuf import text_format

from crosstack.errors import InputError, Problem
from crosstack.evaluate.plan import Plan
from crosstack.io.dfmodel import vocabulary
from crosstack.io.dfmodel.limits import (
    RELEASES,
    SEPARATE,
    edges_in_order,
    limits,
    needed_release,
    topology_name,
    writes_pairs,
)
from crosstack.io.dfmodel.schema import ENUMS, REPEATED, dimension_letters, new_dse
from crosstack.machine.chip import Overlap
from crosstack.mapping.mapping import Task
from crosstack.model.choice_index import choice_index, sharding_codes
from crosstack.model.conversions import PARTIAL, REPLICATED, edges_of
from crosstack.workload.kernels import Axis, Collective, Communication, Kernel, Placement

T = TypeVar("T")


def write_task(task: Task) -> str:
    """Return DFModel text of a task; `InputError` lists everything that DFModel cannot say.

    The release written is that of ``task.rules``, or the earliest that can say everything where
    no rules are given. Kernels get ids from 1 in listing order; connections come by the kernel
    they lead to and its operand, one for each reader of a tensor.
    """
    return text_format.MessageToString(_dse(task), as_utf8=True)


def write_answer(answer: Plan) -> str:
    """Return DFModel text of an answer: that of its task, with what the public tool fills in.

    That is the partition (``config``), sharding and level of each kernel, the extents of one tile
    on one chip, the collectives sharding causes, and names, depth and bytes of each connection.
    Given shardings and directions are not written as such, the mapping obeys them; rules no
    DFModel file can say leave no trace.
    """
    task, name = answer.task, answer.rules.name
    given, length = task.constraints, task.workload.sequence_length
    tile_size, limit = given.tile_size, given.max_partitions
    if given.n_tiles is not None and tile_size is None:
        tile_size = math.ceil(length / given.n_tiles)
    if limit is None and not given.kernel_by_kernel:
        limit = max(answer.mapping.partitions) + 1
    constraints = replace(
        given,
        n_tiles=None,
        tile_size=tile_size,
        max_partitions=limit,
        separate_directions=False,
        recompute=answer.mapping.recompute,
        schedule=answer.mapping.schedule,
        interleave=answer.mapping.interleave,
        partitions=(),
        sharding=(),
    )
    base = name.removesuffix(SEPARATE)
    known = base in RELEASES and (base != "dfmodel-e3b" or task.system.chip.has_second_memory)
    rules = name if known else None
    dse = _dse(replace(task, constraints=constraints, rules=rules))
    _fill_kernels(dse, answer)
    _fill_connections(dse, answer)
    return text_format.MessageToString(dse, as_utf8=True)


def _word(meanings: Mapping[str, T], value: T) -> str:
    return next(word for word, meaning in meanings.items() if meaning == value)


def _number(enum: str, word: str) -> int:
    return ENUMS[enum].index(word)


def _dse(task: Task) -> Any:
    problems = limits(task)
    if problems:
        raise InputError(problems)
    dse = new_dse()
    pins = dict(task.constraints.partitions)
    partners = task.system.n_chips if writes_pairs(task) else 1
    for i, kernel in enumerate(task.workload.graph.kernels):
        message = dse.dataflow_graph.kernels.add(id=i + 1, config=pins.get(kernel.name, -1))
        _write_kernel(message, kernel, partners)
    for i, (target, _, source, elided, _) in enumerate(edges_in_order(task.workload.graph)):
        dse.dataflow_graph.connections.add(
            id=i + 1, startIdx=source + 1, endIdx=target + 1, zero_out=elided
        )
    _write_system(dse, task)
    _write_execution(dse, task)
    too_big = [Problem(path, "too big for a float32; allowed: below 3.4e38.")
               for path in _infinite(dse, "")]  # fmt: skip
    if too_big:
        raise InputError(too_big)
    return dse


def _infinite(message: Any, path: str) -> Iterator[str]:
    for field, value in message.ListFields():
        here = f"{path}.{field.name}" if path else field.name
        if field.message_type is not None:
            inner = value if field.name in REPEATED else [value]
            for i, part in enumerate(inner):
                yield from _infinite(part, f"{here}[{i}]" if field.name in REPEATED else here)
        elif isinstance(value, float) and math.isinf(value):
            yield here


def _write_kernel(message: Any, kernel: Kernel, partners: int) -> None:
    message.name = kernel.name
    message.fwd_bwd = _number("FwdBwd", _word(vocabulary.DIRECTIONS, kernel.direction))
    message.type = _number("KernelType", _word(vocabulary.UNITS, kernel.unit))
    variant, names = next((v, n) for v, n in vocabulary.VARIANTS.items() if n.kind is kernel.kind)
    body = getattr(message, variant)
    for field, name in vocabulary.KERNEL_FIELDS.items():
        setattr(body, name, getattr(kernel, field))
    for name, size in zip(names.inputs, kernel.input_sizes, strict=True):
        setattr(body, name, size)
    if kernel.kind.is_gemm:
        body.K = kernel.k
    if names.weight is not None:
        setattr(body, names.weight, kernel.weight_size)
        body.skip_weight = kernel.weight_size == 0
    body.tiling = _number("Tiling", _word(vocabulary.TILINGS, kernel.tiling))
    body.num_input = kernel.repeats or 0
    for suffix, communication in zip(("", "_2"), kernel.communications, strict=False):
        kind = _number("CommunicationType", _communication_word(communication))
        setattr(body, f"communication_type{suffix}", kind)
        pairs = 1 if communication.periodic else partners
        setattr(body, f"communication_size{suffix}", communication.size / pairs)


def _communication_word(communication: Communication) -> str:
    return (
        vocabulary.PERIODIC
        if communication.periodic
        else _word(vocabulary.COLLECTIVES, communication.collective)
    )


def _write_system(dse: Any, task: Task) -> None:
    system, chip, prices = dse.system, task.system.chip, task.system.prices
    system.num_chip = task.system.copies * task.system.n_chips
    accelerator = system.accelerator
    compute, sram = chip.compute, chip.levels[0]
    accelerator.core, accelerator.sram_cap = compute.n_units, sram.capacity or 0
    accelerator.systolic_width, accelerator.systolic_height = compute.rows, compute.columns
    accelerator.freq = compute.frequency / vocabulary.GIGA
    if sram.banks is not None:
        accelerator.pmu, accelerator.pmu_cap = sram.banks, sram.bank_capacity or 0
        accelerator.x, accelerator.y = _floor_plan(compute.n_units + sram.banks)
        accelerator.placement = "rowwise"
    accelerator.link_latency = task.system.network[0].hop_latency * vocabulary.GIGA
    system.memory.dram_bw = chip.main_memory.speed / vocabulary.GIGA
    system.memory.dram_cap = chip.main_memory.capacity or 0
    for second in chip.memories[1:]:
        system.memory.second_dram_bw = second.speed / vocabulary.GIGA
        system.memory.second_dram_cap = second.room
    system.HBD = task.system.domain_size or 0
    cost = dse.cost
    cost.accelerator_price, cost.accelerator_power = chip.price or 0.0, chip.power or 0.0
    for field, name in vocabulary.PRICES.items():
        setattr(cost, name, (getattr(prices, field) or 0.0) * vocabulary.GIGA)
    network = task.system.network
    shape = getattr(system, topology_name(task))
    for letter, dimension in zip(dimension_letters(len(network)), network, strict=True):
        size = task.system.n_chips if len(network) == 1 else dimension.size
        setattr(shape, letter, size or 0)
        setattr(shape, f"link_bw_{letter}", dimension.bandwidth / vocabulary.GIGA)
        if dimension.parallelism is not None:
            setattr(shape, f"par_{letter}", _word(vocabulary.PARALLELISMS, dimension.parallelism))
        if letter != "w":  # has no such field
            setattr(
                cost, f"link_unit_power_{letter}", (dimension.link_power or 0.0) * vocabulary.GIGA
            )


def _floor_plan(units: int) -> tuple[int, int]:
    """Sides of the least oblong rectangle of so many units; no result depends on it."""
    short = next(x for x in range(math.isqrt(units), 0, -1) if units % x == 0)
    return short, units // short


def _write_execution(dse: Any, task: Task) -> None:
    number, given, workload = needed_release(task), task.constraints, task.workload
    execution = dse.miscellany if number == 2 else dse.execution
    chip = task.system.chip
    style = "KERNEL_BY_KERNEL" if given.kernel_by_kernel else "DATAFLOW"
    execution.execution_style = _number("ExecutionStyle", style)
    execution.num_config = given.max_partitions or 0
    execution.compute_util = chip.compute.utilization or 0
    execution.word = workload.graph.word
    if number >= 4:
        execution.overlap = _number("Overlap", _word(vocabulary.OVERLAPS, chip.overlap))
        execution.separate_rs_ag_for_ar = (task.rules or "").endswith(SEPARATE)
    else:
        execution.perfect_overlap = chip.overlap is Overlap.ALL
    if number >= 5:
        execution.optimization = "CMN"  # the release's mark; all three terms, as always
    _write_workload(execution, task, number)


def _write_workload(execution: Any, task: Task, number: int) -> None:
    """Write the workload's block; tables, matrix and points by the bytes they take."""
    workload, given = task.workload, task.constraints
    words, copies = int(workload.data_size / workload.graph.word), task.system.copies
    match workload.placement:
        case Placement.BATCH:
            dlrm = execution.dlrm
            dlrm.num_table, dlrm.emb_dim, dlrm.row, dlrm.num_copy = 1, 1, words, copies
            dlrm.global_batch_size = workload.global_batch_size
        case Placement.GRID:
            hpl = execution.hpl
            hpl.n, hpl.b, hpl.num_copy = math.isqrt(words), workload.graph.kernels[0].n, copies
        case Placement.COLUMNS:
            execution.fft.length, execution.fft.num_copy = words, copies
        case Placement.SEARCHED:
            llm = execution.llm
            row = workload.sequence_length * workload.graph.word
            llm.hidden_dim = int(workload.boundary_size / row)
            llm.seq_len, llm.num_layer = workload.sequence_length, workload.n_layers
            llm.global_batch_size = workload.global_batch_size
            llm.micro_batch_size, llm.tile_size = given.microbatch_size or 0, given.tile_size or 0
            if number > 2:
                llm.num_layer_in_graph = workload.layers_in_graph
        case _:
            assert_never(workload.placement)


def _fill_kernels(dse: Any, answer: Plan) -> None:
    graph = answer.task.workload.graph
    terms = {term.name: term for term in answer.evaluation.kernels}
    for i, message in enumerate(dse.dataflow_graph.kernels):
        kernel, sharding = graph.kernels[i], answer.mapping.sharding[i]
        message.topological_number = graph.levels[i]
        message.config = answer.mapping.partitions[i]
        body = getattr(message, message.WhichOneof("kernel_variant"))
        body.sharding = _number("Sharding", _word(vocabulary.SHARDINGS, sharding))
        term = terms[kernel.name]
        body.shard_outer_M, body.shard_N = term.m, term.n
        if kernel.kind.is_gemm:
            body.shard_K = term.k
        if kernel.kind.is_gemm and sharding is Axis.K and not kernel.communications:
            # As the public tool: the whole output, whatever the degree.
            body.communication_type = _communication_number(Collective.ALL_REDUCE)
            body.communication_size = kernel.output_size


def _communication_number(collective: Collective) -> int:
    return _number("CommunicationType", _word(vocabulary.COLLECTIVES, collective))


def _fill_connections(dse: Any, answer: Plan) -> None:
    graph = answer.task.workload.graph
    arrays = graph
    index = choice_index(arrays, answer.task.workload.placement)
    codes = sharding_codes(index, answer.mapping.sharding, split=False)
    known = edges_of(arrays, index, answer.rules.traffic)
    entries = index.entries(codes)
    # Sums are added up by the kernel that makes them.
    needs = np.where(known.produced[index.before[entries]] == PARTIAL, 0, known.need[entries])
    terms = {term.name: term for term in answer.evaluation.kernels}
    edges = zip(dse.dataflow_graph.connections, edges_in_order(graph), strict=True)
    for message, (target, _, source, elided, number) in edges:
        producer, consumer = graph.kernels[source], graph.kernels[target]
        message.startName, message.endName = producer.name, consumer.name
        message.lane_stage_type = _number("LaneStageType", "LANE")
        message.buffer_depth = graph.levels[target] - graph.levels[source] + 1
        message.tensor_size = 0.0 if elided else producer.output_size
        message.shard_tensor_size = 0.0 if elided else terms[producer.name].output_size
        if needs[number] and not elided:
            whole = needs[number] == 1 << REPLICATED
            collective = Collective.ALL_GATHER if whole else Collective.ALL_TO_ALL
            message.communication_type = _communication_number(collective)
            message.communication_size = producer.output_size
