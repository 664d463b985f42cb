"""A DFModel file to a `Task`.

Workloads ``llm``, ``dlrm``, ``hpl`` and ``fft`` of releases E2 to E5; what crosstack does not
model yet is refused, field by field. Solver settings (``gurobi``), ``head_dim``/``num_head``, which
nothing in the published formulas reads, and where on the chip units lie are passed over. Every
real number is a float32, as in the public tool.

Source: ``dfmodel_code``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from crosstack.errors import InputError, Problem
from crosstack.io.dfmodel.graph import read_graph
from crosstack.io.dfmodel.schema import TOPOLOGIES, dimension_letters
from crosstack.io.dfmodel.text import apply_override, parse_text, unknown
from crosstack.io.dfmodel.vocabulary import (
    GIGA,
    LINKS,
    OVERLAPS,
    PARALLELISMS,
    PRICES,
    choice,
    fields_of,
    release,
    unsupported,
)
from crosstack.io.files import of_file
from crosstack.io.yaml_tree import Change
from crosstack.machine.chip import Chip, Overlap, flat_chip
from crosstack.machine.memory import main_memory
from crosstack.machine.system import Dimension, Parallelism, Prices, System
from crosstack.mapping.mapping import Constraints, Task
from crosstack.workload.dtype import dtype_of_complex
from crosstack.workload.kernel_graph import KernelGraph
from crosstack.workload.kernels import Placement
from crosstack.workload.workload import Workload

_BLOCK = re.compile(
    r"^\s*(?:dataflow_graph\s*:?|(?:system|cost|execution|miscellany|gurobi))\s*\{", re.MULTILINE
)


def looks_like(text: str) -> bool:
    """Return whether ``text`` opens a block of a DFModel file; cheap, no promise it parses."""
    return _BLOCK.search(text) is not None


def read_task(text: str, source: str, overrides: Iterable[Change] = ()) -> Task:
    """Read a DFModel file.

    `InputError` ``SOURCE: path: what came, what is allowed, the nearest name``.

    Parameters
    ----------
    text : str
        Protobuf text of message ``DSE``.
    source : str
        What errors call the file.
    overrides : iterable of str, or of (str, value)
        ``path=value`` in the file's own field names, applied in order.

    Notes
    -----
    `Task.rules` is the release the fields point to, with ``+separate`` where the file counts
    both halves of an all-reduce. A kernel whose ``config`` is not set is pinned to partition 0,
    as in the public tool; where as many partitions as kernels are asked for (or none is said),
    that tool gives every kernel its own and pins nothing.
    """
    with of_file(source):
        dse = parse_text(text)
    with of_file(f"{source} (override)"):
        for override in overrides:
            apply_override(dse, override)
    with of_file(source):
        return _task(dse)


def _task(dse: Any) -> Task:
    name, execution = _execution(dse)
    for block in ("dataflow_graph", "system"):
        if not dse.HasField(block):
            raise InputError(Problem(block, "this block is missing."))
    variant = execution.WhichOneof("workload_variant")
    allowed = ", ".join(_WORKLOADS)
    if variant is None:
        raise InputError(Problem(name, f"no workload is given; allowed: {allowed}."))
    if variant not in _WORKLOADS:
        raise unsupported(f"{name}.{variant}", "this workload", allowed)
    placement = Placement.SEARCHED if variant == "llm" else _PLACED[variant].placement
    _check_supported(dse, name, execution, placement)
    if execution.word < 1:
        message = f"got {execution.word}; allowed: bytes of one element, from 1."
        raise InputError(Problem(f"{name}.word", message))
    # Release E2 writes down what a chip sends to one other, later ones what it exchanges in all.
    of_pairs = placement is Placement.BATCH and release(dse, execution) == "dfmodel-e2"
    copies = _copies(dse, name, variant)
    partners = max(dse.system.num_chip // copies, 1) if of_pairs else 1
    sharded = placement is Placement.SEARCHED and not execution.skip_inter_chip_optimization
    graph = read_graph(dse.dataflow_graph, execution.word, placement, partners, by_bytes=sharded)
    workload, given = (
        _llm(dse, name, graph) if variant == "llm" else _placed(dse, name, variant, graph)
    )
    return Task(
        workload=workload,
        system=_system(dse, name, execution, placement, copies),
        constraints=_constraints(dse, name, execution, given),
        rules=release(dse, execution),
        paths=_paths(dse, name, variant),
    )


def _paths(dse: Any, name: str, variant: str) -> dict[str, str]:
    """What the file calls the fields that a search may refuse."""
    topology = dse.system.WhichOneof("topology_variant")
    letters = dimension_letters(len(TOPOLOGIES[topology]))
    body = f"{name}.{variant}"
    return {
        "workload.global_batch_size": f"{body}.global_batch_size",
        "constraints.microbatch_size": f"{body}.micro_batch_size",
        "constraints.tile_size": f"{body}.tile_size",
        "constraints.max_partitions": f"{name}.num_config",
        "constraints.kernel_by_kernel": f"{name}.execution_style",
        "constraints.partitions": "dataflow_graph.kernels",
        **{
            f"constraints.partitions.{kernel.name}": f"dataflow_graph.kernels[{i}].config"
            for i, kernel in enumerate(dse.dataflow_graph.kernels)
        },
        **{
            f"system.network[{i}].parallelism": f"system.{topology}.par_{letter}"
            for i, letter in enumerate(letters)
        },
    }


def _execution(dse: Any) -> tuple[str, Any]:
    """Return the block that says what to run, and what this release calls it."""
    given = [name for name in ("execution", "miscellany") if dse.HasField(name)]
    if len(given) != 1:
        came = "given twice: it is miscellany, too" if given else "this block is missing"
        raise InputError(Problem("execution", f"{came}; allowed: one of the two."))
    return given[0], getattr(dse, given[0])


def _check_supported(dse: Any, name: str, execution: Any, placement: Placement) -> None:
    """Refuse what would change the answer and is not counted here.

    ``effective_stage`` counts for kernels that use it, ``optimization`` where terms are summed,
    and leaving kernels whole where tensors could be split.
    """
    problems: list[Problem] = []
    whole = execution.skip_inter_chip_optimization
    if whole and placement is Placement.SEARCHED and _may_split_tensors(dse.system):
        path = f"{name}.skip_inter_chip_optimization"
        allowed = "false, or no tensor parallelism"
        problems.extend(unsupported(path, "leaving kernels whole", allowed).problems)
    terms, path = execution.optimization, f"{name}.optimization"
    if terms not in ("", *TERM_SUMS):
        allowed = ", ".join(TERM_SUMS)
        problems.append(Problem(path, f'unknown value "{terms}". Allowed: {allowed}.'))
    elif terms not in ("", "CMN") and _overlap(name, execution) is Overlap.NONE:
        problems.extend(unsupported(path, f"summing only {terms}", "CMN").problems)
    if problems:
        raise InputError(problems)


def _may_split_tensors(system: Any) -> bool:
    """Return whether a dimension of several chips is, or may be, for tensor parallelism."""
    variant = system.WhichOneof("topology_variant")
    if variant is None:
        return False  # refused later, by name
    shape, letters = getattr(system, variant), dimension_letters(len(TOPOLOGIES[variant]))
    sizes = [system.num_chip] if len(letters) == 1 else [getattr(shape, x) for x in letters]
    uses = [getattr(shape, f"par_{letter}") for letter in letters]
    return any(size != 1 and use in ("", "TP") for size, use in zip(sizes, uses, strict=True))


def _overlap(name: str, execution: Any) -> Overlap:
    """Return what hides behind what, said by an enum from E4 on and by a switch before."""
    overlap = choice(
        f"{name}.overlap",
        "Overlap",
        execution.overlap,
        OVERLAPS,
        unset=Overlap.ALL if execution.perfect_overlap else Overlap.NONE,
    )
    if execution.overlap and execution.perfect_overlap and overlap is not Overlap.ALL:
        message = "contradicts overlap; allowed: one of the two."
        raise InputError(Problem(f"{name}.perfect_overlap", message))
    return overlap


TERM_SUMS = ("CMN", "CM", "CN", "C")  # compute, memory, network

# What a workload block gives: the workload, and microbatch and tile size (0: free).
_Given = tuple[int, int]


def _llm(dse: Any, name: str, graph: KernelGraph) -> tuple[Workload, _Given]:
    execution = getattr(dse, name)
    llm, path = execution.llm, f"{name}.llm"
    in_graph = llm.num_layer_in_graph
    if name == "miscellany":  # this release has no such field: always one
        in_graph = in_graph or 1
    for field in ("hidden_dim", "micro_batch_size", "tile_size"):
        value, least = getattr(llm, field), 1 if field == "hidden_dim" else 0
        if value < least:
            allowed = f"a whole number, at least {least}{'' if least else ' (0 leaves it free)'}"
            raise InputError(Problem(f"{path}.{field}", f"got {value}; allowed: {allowed}."))
    names = {
        "n_layers": "num_layer",
        "layers_in_graph": "num_layer_in_graph",
        "sequence_length": "seq_len",
        "boundary_size": "hidden_dim",
    }
    with fields_of(path, names):
        workload = Workload(
            graph=graph,
            n_layers=llm.num_layer,
            layers_in_graph=in_graph,
            global_batch_size=llm.global_batch_size,
            sequence_length=llm.seq_len,
            boundary_size=float(llm.hidden_dim * llm.seq_len * execution.word),
            name="llm",
            item="sequence",
            item_part="token",
        )
    return workload, (llm.micro_batch_size, llm.tile_size)


@dataclass(frozen=True, slots=True)
class _Placed:
    """How a workload lies on the chips, what it is of, and the counts whose product is its data."""

    placement: Placement
    item: str
    counts: tuple[str, ...]
    field: str  # that is said where there is too much data


_PLACED = {
    "dlrm": _Placed(Placement.BATCH, "batch", ("num_table", "row", "emb_dim"), "row"),
    "hpl": _Placed(Placement.GRID, "matrix", ("n", "n"), "n"),
    "fft": _Placed(Placement.COLUMNS, "transform", ("length",), "length"),
}
_WORKLOADS = ("llm", *_PLACED)


def _placed(dse: Any, name: str, kind: str, graph: KernelGraph) -> tuple[Workload, _Given]:
    """Return a workload that brings its own distribution; it works on one batch at a time."""
    body, path, known = getattr(getattr(dse, name), kind), f"{name}.{kind}", _PLACED[kind]
    data_size = 1.0
    for field in known.counts:
        value = getattr(body, field)
        if value < 1:
            message = f"got {value}; allowed: a whole number, at least 1."
            raise InputError(Problem(f"{path}.{field}", message))
        data_size *= value
    if kind == "fft":
        graph = replace(graph, dtype=dtype_of_complex(graph.word))
    with fields_of(path, {"data_size": known.field}):
        workload = Workload(
            graph=graph,
            global_batch_size=body.global_batch_size if kind == "dlrm" else 1,
            placement=known.placement,
            data_size=data_size * graph.word,
            name=kind,
            item=known.item,
        )
    return workload, (1, 0)


def _constraints(dse: Any, name: str, execution: Any, given: _Given) -> Constraints:
    kernels, path = dse.dataflow_graph.kernels, f"{name}.num_config"
    unfused = choice(
        f"{name}.execution_style",
        "ExecutionStyle",
        execution.execution_style,
        {"DATAFLOW": False, "KERNEL_BY_KERNEL": True},
    )
    limit, count = execution.num_config or len(kernels), len(kernels)
    if limit < 1 or (unfused and limit != count):
        allowed = "0 (unset) or " + (f"{count}, one a kernel" if unfused else "above")
        raise InputError(Problem(path, f"got {execution.num_config}; allowed: {allowed}."))
    pins: list[tuple[str, int]] = []
    for i, kernel in enumerate(kernels):
        if limit != count and not -1 <= kernel.config < limit:
            allowed = f"-1 (free) to {limit - 1}, as num_config is {limit}"
            where = f"dataflow_graph.kernels[{i}].config"
            raise InputError(Problem(where, f"got {kernel.config}; allowed: {allowed}."))
        # The public tool looks at pins only where the limit is not one partition a kernel.
        if kernel.config >= 0 and not unfused and limit != count:
            pins.append((kernel.name, kernel.config))
    microbatch_size, tile_size = given
    with fields_of(name, {"max_partitions": "num_config"}):
        return Constraints(
            microbatch_size=microbatch_size or None,
            tile_size=tile_size or None,
            max_partitions=None if unfused else limit,
            kernel_by_kernel=unfused,
            partitions=tuple(pins),
        )


def _copies(dse: Any, name: str, variant: str) -> int:
    """Return how many copies share the chips; a transformer has one, and no field for it."""
    if variant == "llm":
        return 1
    copies = getattr(getattr(dse, name), variant).num_copy or 1
    chips = dse.system.num_chip
    if copies < 1 or chips % copies:
        allowed = f"0 (unset) or a divisor of system.num_chip, {chips}"
        path = f"{name}.{variant}.num_copy"
        raise InputError(Problem(path, f"got {copies}; allowed: {allowed}."))
    return int(copies)


def _check_copies(network: tuple[Dimension, ...], chips: int, copies: int) -> None:
    sizes = [dimension.size for dimension in network]
    joined = math.prod(size or 1 for size in sizes)
    if copies > 1 and None not in sizes and joined * copies != chips:
        shape = f"{copies} copies of {' x '.join(map(str, sizes))}"
        raise InputError(Problem("n_chips", f"got {chips}, but {shape} are {joined * copies}."))


def _system(dse: Any, name: str, execution: Any, placement: Placement, copies: int) -> System:
    system, cost = dse.system, dse.cost
    chip, network = _chip(dse, name, execution), _network(dse, placement)
    memory_names = {
        "bandwidth": "dram_bw",
        "capacity": "dram_cap",
        "second_bandwidth": "second_dram_bw",
        "second_capacity": "second_dram_cap",
    }
    with fields_of("system.memory", memory_names):
        memories = main_memory(
            bandwidth=system.memory.dram_bw * GIGA,
            capacity=system.memory.dram_cap or None,
            second_bandwidth=system.memory.second_dram_bw * GIGA or None,
            second_capacity=system.memory.second_dram_cap or None,
        )
    # The public tool looks at domains of three-dimensional networks only.
    domain = system.HBD if len(network) == 3 and placement is Placement.SEARCHED else 0
    with fields_of("cost", PRICES):
        prices = Prices(**{k: getattr(cost, v) / GIGA for k, v in PRICES.items()})
    with fields_of("system", {"n_chips": "num_chip", "domain_size": "HBD"}):
        _check_copies(network, system.num_chip, copies)
        return System(
            chip=replace(chip, memories=memories),
            network=network,
            n_chips=system.num_chip // copies,
            copies=copies,
            prices=prices,
            domain_size=domain or None,
        )


def _chip(dse: Any, name: str, execution: Any) -> Chip:
    accelerator = dse.system.accelerator
    names = {
        "n_cores": "core",
        "lanes": "systolic_width",
        "stages": "systolic_height",
        "frequency": "freq",
        "sram_capacity": "sram_cap",
        "memory_units": "pmu",
        "memory_unit_capacity": "pmu_cap",
        "utilization": f"/{name}.compute_util",
        "price": "/cost.accelerator_price",
        "power": "/cost.accelerator_power",
    }
    with fields_of("system.accelerator", names):
        return flat_chip(
            n_cores=accelerator.core,
            lanes=accelerator.systolic_width,
            stages=accelerator.systolic_height,
            frequency=accelerator.freq * GIGA,
            sram_capacity=accelerator.sram_cap,
            memory_units=accelerator.pmu or None,
            memory_unit_capacity=accelerator.pmu_cap or None if accelerator.pmu else None,
            utilization=execution.compute_util or None,
            overlap=_overlap(name, execution),
            price=dse.cost.accelerator_price,
            power=dse.cost.accelerator_power,
        )


def _network(dse: Any, placement: Placement) -> tuple[Dimension, ...]:
    system = dse.system
    variant = system.WhichOneof("topology_variant")
    if variant is None:
        allowed = ", ".join(TOPOLOGIES)
        raise InputError(Problem("system", f"no network is given; allowed: {allowed}."))
    words = TOPOLOGIES[variant]
    shape, path = getattr(system, variant), f"system.{variant}"
    letters = dimension_letters(len(words))
    dimensions: list[Dimension] = []
    for word, letter in zip(words, letters, strict=True):
        # A transformer on one dimension uses all chips, whatever x says; what is used for what
        # is said for transformers only.
        searched = placement is Placement.SEARCHED
        alone = len(words) == 1
        size = system.num_chip if alone and searched else getattr(shape, letter)
        power = f"link_unit_power_{letter}"
        names = {
            "size": "/system.num_chip" if alone and searched else letter,
            "bandwidth": f"link_bw_{letter}",
            "latency": "/system.accelerator.link_latency",
            "link_power": f"/cost.{power}",
        }
        parallelism = _parallelism(shape, f"par_{letter}", path) if searched else None
        with fields_of(path, names):
            dimensions.append(
                Dimension(
                    kind=LINKS[word],
                    bandwidth=getattr(shape, f"link_bw_{letter}") * GIGA,
                    size=size or None,
                    latency=system.accelerator.link_latency / GIGA,
                    parallelism=parallelism,
                    # The fourth dimension has no such field.
                    link_power=getattr(dse.cost, power, 0.0) / GIGA,
                )
            )
    return tuple(dimensions)


def _parallelism(shape: Any, field: str, path: str) -> Parallelism | None:
    word = getattr(shape, field)
    if word == "":
        return None
    if word not in PARALLELISMS:
        path = f"{path}.{field}"
        if word == "SP":
            raise unsupported(path, "sequence parallelism", ", ".join(PARALLELISMS))
        raise InputError(Problem(path, unknown(f'unknown value "{word}"', word, PARALLELISMS)))
    return PARALLELISMS[word]
