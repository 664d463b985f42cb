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
    refused,
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
        return _File(dse).task()


TERM_SUMS = ("CMN", "CM", "CN", "C")  # compute, memory, network


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


class _File:
    """A file: its block that says what to run, what this release calls that, and what runs."""

    def __init__(self, dse: Any) -> None:
        given = [name for name in ("execution", "miscellany") if dse.HasField(name)]
        if len(given) != 1:
            came = "given twice: it is miscellany, too" if given else "this block is missing"
            raise refused("execution", came, "one of the two")
        for block in ("dataflow_graph", "system"):
            if not dse.HasField(block):
                raise InputError(Problem(block, "this block is missing."))
        self.dse, self.system, self.name = dse, dse.system, given[0]
        self.execution = getattr(dse, self.name)
        variant, allowed = self.execution.WhichOneof("workload_variant"), ", ".join(_WORKLOADS)
        if variant is None:
            raise refused(self.name, "no workload is given", allowed)
        if variant not in _WORKLOADS:
            raise unsupported(f"{self.name}.{variant}", "this workload", allowed)
        self.variant, self.body = variant, getattr(self.execution, variant)
        self.path = f"{self.name}.{variant}"
        self.searched = variant == "llm"
        self.placement = Placement.SEARCHED if self.searched else _PLACED[variant].placement
        topology = self.system.WhichOneof("topology_variant")
        self.topology, self.words = topology or "", TOPOLOGIES[topology] if topology else ()
        self.letters = dimension_letters(len(self.words))
        self.shape = getattr(self.system, topology) if topology else None

    def task(self) -> Task:
        """Return the task; `InputError` by the fields of the file."""
        self._check_supported()
        execution, rules = self.execution, release(self.dse, self.execution)
        if execution.word < 1:
            came, allowed = f"got {execution.word}", "bytes of one element, from 1"
            raise refused(f"{self.name}.word", came, allowed)
        copies = self._copies()
        # Release E2 writes down what a chip sends to one other, later ones what it exchanges in
        # all.
        of_pairs = self.placement is Placement.BATCH and rules == "dfmodel-e2"
        graph = read_graph(
            self.dse.dataflow_graph,
            execution.word,
            self.placement,
            max(self.system.num_chip // copies, 1) if of_pairs else 1,
            by_bytes=self.searched and not execution.skip_inter_chip_optimization,
        )
        return Task(
            workload=self._llm(graph) if self.searched else self._placed(graph),
            system=self._system(copies),
            constraints=self._constraints(),
            rules=rules,
            paths=self._paths(),
        )

    def _paths(self) -> dict[str, str]:
        """What the file calls the fields that a search may refuse."""
        return {
            "workload.global_batch_size": f"{self.path}.global_batch_size",
            "constraints.microbatch_size": f"{self.path}.micro_batch_size",
            "constraints.tile_size": f"{self.path}.tile_size",
            "constraints.max_partitions": f"{self.name}.num_config",
            "constraints.kernel_by_kernel": f"{self.name}.execution_style",
            "constraints.partitions": "dataflow_graph.kernels",
            **{
                f"constraints.partitions.{kernel.name}": f"dataflow_graph.kernels[{i}].config"
                for i, kernel in enumerate(self.dse.dataflow_graph.kernels)
            },
            **{
                f"system.network[{i}].parallelism": f"system.{self.topology}.par_{letter}"
                for i, letter in enumerate(self.letters)
            },
        }

    def _check_supported(self) -> None:
        """Refuse what would change the answer and is not counted here.

        ``effective_stage`` counts for kernels that use it, ``optimization`` where terms are summed,
        and leaving kernels whole where tensors could be split.
        """
        problems: list[Problem] = []
        whole = self.execution.skip_inter_chip_optimization and self.searched
        if whole and self._may_split_tensors():
            path = f"{self.name}.skip_inter_chip_optimization"
            allowed = "false, or no tensor parallelism"
            problems.extend(unsupported(path, "leaving kernels whole", allowed).problems)
        terms, path = self.execution.optimization, f"{self.name}.optimization"
        if terms not in ("", *TERM_SUMS):
            allowed = ", ".join(TERM_SUMS)
            problems.append(Problem(path, f'unknown value "{terms}". Allowed: {allowed}.'))
        elif terms not in ("", "CMN") and self._overlap() is Overlap.NONE:
            problems.extend(unsupported(path, f"summing only {terms}", "CMN").problems)
        if problems:
            raise InputError(problems)

    def _may_split_tensors(self) -> bool:
        """Return whether a dimension of several chips is, or may be, for tensor parallelism."""
        sizes = [getattr(self.shape, letter) for letter in self.letters]
        sizes = [self.system.num_chip] if len(sizes) == 1 else sizes
        uses = [getattr(self.shape, f"par_{letter}") for letter in self.letters]
        return any(size != 1 and use in ("", "TP") for size, use in zip(sizes, uses, strict=True))

    def _overlap(self) -> Overlap:
        """Return what hides behind what, said by an enum from E4 on and by a switch before."""
        number, switch = self.execution.overlap, self.execution.perfect_overlap
        unset = Overlap.ALL if switch else Overlap.NONE
        overlap = choice(f"{self.name}.overlap", "Overlap", number, OVERLAPS, unset=unset)
        if number and switch and overlap is not Overlap.ALL:
            raise refused(f"{self.name}.perfect_overlap", "contradicts overlap", "one of the two")
        return overlap

    # ------------------------------------------------------------ workload and constraints

    def _llm(self, graph: KernelGraph) -> Workload:
        llm, in_graph = self.body, self.body.num_layer_in_graph
        if self.name == "miscellany":  # this release has no such field: always one
            in_graph = in_graph or 1
        for field in ("hidden_dim", "micro_batch_size", "tile_size"):
            value, least = getattr(llm, field), 1 if field == "hidden_dim" else 0
            if value < least:
                free = "" if least else " (0 leaves it free)"
                allowed = f"a whole number, at least {least}{free}"
                raise refused(f"{self.path}.{field}", f"got {value}", allowed)
        names = {
            "n_layers": "num_layer",
            "layers_in_graph": "num_layer_in_graph",
            "sequence_length": "seq_len",
            "boundary_size": "hidden_dim",
        }
        with fields_of(self.path, names):
            return Workload(
                graph=graph,
                n_layers=llm.num_layer,
                layers_in_graph=in_graph,
                global_batch_size=llm.global_batch_size,
                sequence_length=llm.seq_len,
                boundary_size=float(llm.hidden_dim * llm.seq_len * graph.word),
                name="llm",
                item="sequence",
                item_part="token",
            )

    def _placed(self, graph: KernelGraph) -> Workload:
        """Return a workload that brings its own distribution; it works on one batch at a time."""
        known, data_size = _PLACED[self.variant], 1.0
        for field in known.counts:
            value = getattr(self.body, field)
            if value < 1:
                raise refused(f"{self.path}.{field}", f"got {value}", "a whole number, at least 1")
            data_size *= value
        if self.variant == "fft":
            graph = graph.computed_in(dtype_of_complex(graph.word))
        with fields_of(self.path, {"data_size": known.field}):
            return Workload(
                graph=graph,
                global_batch_size=self.body.global_batch_size if self.variant == "dlrm" else 1,
                placement=known.placement,
                data_size=data_size * graph.word,
                name=self.variant,
                item=known.item,
            )

    def _constraints(self) -> Constraints:
        kernels, execution = self.dse.dataflow_graph.kernels, self.execution
        unfused = choice(
            f"{self.name}.execution_style",
            "ExecutionStyle",
            execution.execution_style,
            {"DATAFLOW": False, "KERNEL_BY_KERNEL": True},
        )
        limit, count = execution.num_config or len(kernels), len(kernels)
        if limit < 1 or (unfused and limit != count):
            allowed = "0 (unset) or " + (f"{count}, one a kernel" if unfused else "above")
            raise refused(f"{self.name}.num_config", f"got {execution.num_config}", allowed)
        pins: list[tuple[str, int]] = []
        for i, kernel in enumerate(kernels if limit != count else ()):
            if not -1 <= kernel.config < limit:
                allowed = f"-1 (free) to {limit - 1}, as num_config is {limit}"
                where = f"dataflow_graph.kernels[{i}].config"
                raise refused(where, f"got {kernel.config}", allowed)
            # The public tool looks at pins only where the limit is not one partition a kernel.
            if kernel.config >= 0 and not unfused:
                pins.append((kernel.name, kernel.config))
        with fields_of(self.name, {"max_partitions": "num_config"}):
            return Constraints(
                microbatch_size=(self.body.micro_batch_size or None) if self.searched else 1,
                tile_size=(self.body.tile_size or None) if self.searched else None,
                max_partitions=None if unfused else limit,
                kernel_by_kernel=unfused,
                partitions=tuple(pins),
            )

    # ------------------------------------------------------------ machine

    def _copies(self) -> int:
        """Return how many copies share the chips; a transformer has one, and no field for it."""
        copies, chips = 1 if self.searched else self.body.num_copy or 1, self.system.num_chip
        if copies < 1 or chips % copies:
            allowed = f"0 (unset) or a divisor of system.num_chip, {chips}"
            raise refused(f"{self.path}.num_copy", f"got {copies}", allowed)
        return int(copies)

    def _system(self, copies: int) -> System:
        system, memory, cost = self.system, self.system.memory, self.dse.cost
        chip, network = self._chip(), self._network()
        names = {
            "bandwidth": "dram_bw",
            "capacity": "dram_cap",
            "second_bandwidth": "second_dram_bw",
            "second_capacity": "second_dram_cap",
        }
        with fields_of("system.memory", names):
            memories = main_memory(
                bandwidth=memory.dram_bw * GIGA,
                capacity=memory.dram_cap or None,
                second_bandwidth=memory.second_dram_bw * GIGA or None,
                second_capacity=memory.second_dram_cap or None,
            )
        # The public tool looks at domains of three-dimensional networks only.
        domain = system.HBD if len(network) == 3 and self.searched else 0
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

    def _chip(self) -> Chip:
        accelerator, cost = self.system.accelerator, self.dse.cost
        names = {
            "n_cores": "core",
            "lanes": "systolic_width",
            "stages": "systolic_height",
            "frequency": "freq",
            "sram_capacity": "sram_cap",
            "memory_units": "pmu",
            "memory_unit_capacity": "pmu_cap",
        }
        given = {ours: getattr(accelerator, theirs) for ours, theirs in names.items()}
        units, capacity = accelerator.pmu or None, accelerator.pmu_cap or None
        given |= {
            "frequency": accelerator.freq * GIGA,
            "memory_units": units,
            "memory_unit_capacity": capacity if units else None,
        }
        elsewhere = {
            "utilization": f"/{self.name}.compute_util",
            "price": "/cost.accelerator_price",
            "power": "/cost.accelerator_power",
        }
        with fields_of("system.accelerator", names | elsewhere):
            return flat_chip(
                **given,
                utilization=self.execution.compute_util or None,
                overlap=self._overlap(),
                price=cost.accelerator_price,
                power=cost.accelerator_power,
            )

    def _network(self) -> tuple[Dimension, ...]:
        if self.shape is None:
            raise refused("system", "no network is given", ", ".join(TOPOLOGIES))
        system, path = self.system, f"system.{self.topology}"
        # A transformer on one dimension uses all chips, whatever x says; what is used for what is
        # said for transformers only.
        alone = len(self.words) == 1 and self.searched
        dimensions: list[Dimension] = []
        for word, letter in zip(self.words, self.letters, strict=True):
            power = f"link_unit_power_{letter}"
            names = {
                "size": "/system.num_chip" if alone else letter,
                "bandwidth": f"link_bw_{letter}",
                "latency": "/system.accelerator.link_latency",
                "link_power": f"/cost.{power}",
            }
            used = _parallelism(self.shape, f"par_{letter}", path) if self.searched else None
            with fields_of(path, names):
                dimensions.append(
                    Dimension(
                        kind=LINKS[word],
                        bandwidth=getattr(self.shape, f"link_bw_{letter}") * GIGA,
                        size=(system.num_chip if alone else getattr(self.shape, letter)) or None,
                        latency=system.accelerator.link_latency / GIGA,
                        parallelism=used,
                        # The fourth dimension has no such field.
                        link_power=getattr(self.dse.cost, power, 0.0) / GIGA,
                    )
                )
        return tuple(dimensions)


def _check_copies(network: tuple[Dimension, ...], chips: int, copies: int) -> None:
    sizes = [dimension.size for dimension in network]
    joined = math.prod(size or 1 for size in sizes)
    if copies > 1 and None not in sizes and joined * copies != chips:
        shape = f"{copies} copies of {' x '.join(map(str, sizes))}"
        raise InputError(Problem("n_chips", f"got {chips}, but {shape} are {joined * copies}."))


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
