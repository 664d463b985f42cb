"""What DFModel counts otherwise than this package: parts of its rule sets, a field a difference.

With every field at its value in `ENGINE` a part counts what the default does; the releases set
them. Source: ``dfmodel_code``; E1 to E5 are its releases.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, assert_never

import numpy as np

from crosstack.model.decisions import Decisions
from crosstack.model.iteration import Pipelining
from crosstack.model.kernels.attention import Attended
from crosstack.model.optimizer_step import Path
from crosstack.model.parts import Clock, MainMemory, check_fields
from crosstack.model.stages import Pipeline, longest_of
from crosstack.model.tiles import divisors
from crosstack.model.traffic import Boundary, Sizes, Traffic
from crosstack.records import meaning
from crosstack.workload.kernel_graph import Floats, Ints, KernelGraph
from crosstack.workload.kernels import Placement

if TYPE_CHECKING:
    from crosstack.machine.chip import Chip, Overlap
    from crosstack.model.choices import Choices
    from crosstack.model.mesh_plan import MeshPlan
    from crosstack.workload.dtype import Dtype


class WeightCuts(StrEnum):
    """What a partition pays when the weight of its only kernel is cut to fit the SRAM.

    ``free``: nothing (up to E4). ``all``: its memory traffic once per cut (E5). ``inputs``: its
    input tensors once per cut, as the default counts.
    """

    FREE = "free"
    ALL = "all"
    INPUTS = "inputs"


class StageTransfers(StrEnum):
    """When pipeline stages pay for passing activations on.

    ``once``: once per iteration, for every layer, training only (E1 to E4). ``microbatch``: for
    every microbatch, as the default counts.
    """

    ONCE = "once"
    MICROBATCH = "microbatch"


ENGINE: dict[str, Any] = {
    "fan_out_copies": False,
    "operand_by_size": False,
    "weight_cuts": WeightCuts.INPUTS,
    "conversion_of_shard": False,
    "sums_at_once": False,
    "batch_in_sram": True,
    "stage_transfers": StageTransfers.MICROBATCH,
    "periodic_per_microbatch": False,
    "sums_in_layers": False,
    "updates_weights": True,
    "rates_by_dtype": True,
    "weights_held_once": True,
    "keeps_activations": True,
    "tiles_divide": False,
    "bytes_first": False,
    "halves_of_slots": False,
    "full_count_unfused": False,
}
"""What each field is where a part counts as the default does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DFModelDecisions(Decisions):
    """Sharding first, by bytes; then tiles and partitions."""

    tiles_divide: bool = field(
        default=False,
        metadata=meaning(
            "Whether the number of tiles must divide the sequence (E4 on) or the last tile "
            "may be ragged (up to E3b)."
        ),
    )
    bytes_first: bool = field(
        default=True,
        metadata=meaning("Whether sharding minimises bytes moved before anything else is decided."),
    )
    halves_of_slots: bool = field(
        default=True,
        metadata=meaning(
            "Whether a limit of C partitions gives forward kernels the first C/2 and "
            "backward kernels the last C/2, the middle one shared when C is odd; otherwise "
            "directions are separate only where asked."
        ),
    )
    full_count_unfused: bool = field(
        default=True,
        metadata=meaning("Whether a limit equal to the number of kernels means kernel by kernel."),
    )

    def __post_init__(self) -> None:
        """Check every field."""
        check_fields(self)

    def tile_counts(self, length: int, extents: Iterable[int] = ()) -> Ints:
        """Divisors of the sequence, where tiles divide it. [1]"""
        if self.tiles_divide:
            return np.array(divisors(length), dtype=np.int64)
        return Decisions.tile_counts(self, length, extents)

    def counts_of_size(self, counts: Ints, fewest: int) -> Ints:
        """The one number of tiles of a length, where tiles divide the sequence. [1]"""
        if self.tiles_divide:
            return np.asarray(counts[counts == fewest])
        return Decisions.counts_of_size(self, counts, fewest)

    def tile_sizes(self, length: int, size: int) -> str:
        """Divisors of the sequence, where tiles divide it."""
        if not self.tiles_divide or length % size == 0:
            return ""
        return f"a divisor of sequence_length = {length}, as tiles divide it"

    def _halves(self, backward: Sequence[bool]) -> bool:
        return self.halves_of_slots and any(backward)

    def parts_directions(self, backward: Sequence[bool], count: int | None) -> bool:
        """Halves share no partition where their number is even, or not limited."""
        return self._halves(backward) and (count is None or count % 2 == 0)

    def most_partitions(self, backward: Sequence[bool], count: int) -> int:
        """Halves move with the limit: twice as many serve, odd ones share. [1]"""
        if self._halves(backward):
            return min(count, 2 * len(backward) + count % 2)
        return Decisions.most_partitions(self, backward, count)

    def partitions(self, backward: Sequence[bool], count: int) -> list[tuple[int, int]] | None:
        """The first half of the partitions forward, the last half backward."""
        if not self._halves(backward):
            return None
        forward = 0, (count - 1) // 2
        return [(count // 2, count - 1) if later else forward for later in backward]

    def one_by_one(self, n_kernels: int, count: int | None) -> bool:
        """As many partitions as kernels."""
        return self.full_count_unfused and count == n_kernels

    @property
    def before_time(self) -> str:
        """Bytes, where they come first."""
        return "moves the fewest bytes" if self.bytes_first else ""

    def first_costs(self, choices: Choices) -> tuple[Floats, Floats]:
        """Bytes of whole tensors that kernels and conversions move. [B]"""
        return choices.bytes_moved, choices.edge_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DFModelTraffic(Traffic):
    """A copy of a tensor for each reader; weights are on the chip and nothing else moves."""

    weights_read: bool = False
    boundary: Boundary = Boundary.FREE
    fan_out_copies: bool = field(
        default=True,
        metadata=meaning(
            "Whether a tensor is stored and converted once for each of its readers "
            "(``ko2025dfmodel`` IV.C) or once."
        ),
    )
    operand_by_size: bool = field(
        default=True,
        metadata=meaning(
            "Whether the operand an edge feeds is recognised by its bytes, the first "
            "operand winning ties, or is what the graph says."
        ),
    )
    weight_cuts: WeightCuts = field(
        default=WeightCuts.FREE,
        metadata=meaning("What a partition pays when its weight is cut to fit."),
    )
    conversion_of_shard: bool = field(
        default=True,
        metadata=meaning(
            "Whether a layout conversion moves the bytes of one chip's shard of the tensor,"
            " as the intra-chip pass counts, or of the whole tensor, as the inter-chip pass"
            " does."
        ),
    )
    sums_at_once: bool = field(
        default=True,
        metadata=meaning(
            "Whether sums are added up as soon as they are made, and what enters a layer "
            "has any layout; otherwise they are partial until they are read, and layers "
            "hand on a layout."
        ),
    )
    batch_in_sram: bool = field(
        default=True,
        metadata=meaning(
            "With placement ``batch``: whether partitions have to fit the SRAM; not in E5."
        ),
    )

    def operands(self, arrays: KernelGraph) -> Ints:
        """The second operand, unless the first has the bytes of the tensor."""
        if not self.operand_by_size:
            return Traffic.operands(self, arrays)
        produced = arrays.output_size[arrays.source]
        first = arrays.input_sizes[arrays.target, 0]
        apart = np.abs(produced - first) > 1e-6 * np.maximum(produced, first)
        return np.asarray(apart.astype(np.int64))

    def flows(self, arrays: KernelGraph) -> Ints:
        """One for each edge, where readers have copies."""
        if self.fan_out_copies:
            return np.arange(len(arrays.source))
        return Traffic.flows(self, arrays)

    def streams(self, placement: Placement) -> bool:
        """Perceptrons as well, where they need not fit the SRAM."""
        if placement is Placement.BATCH:
            return not self.batch_in_sram
        return Traffic.streams(self, placement)

    def read_again(self, into: Sizes, out: Sizes) -> Sizes:
        """Nothing, the input, or all that moves. [B]"""
        match self.weight_cuts:
            case WeightCuts.FREE:
                return into * 0.0
            case WeightCuts.INPUTS:
                return into
            case WeightCuts.ALL:
                return into + out
            case _:
                assert_never(self.weight_cuts)

    @property
    def skips_masked(self) -> bool:
        """No: all elements count."""
        return False

    @property
    def traces_layouts(self) -> bool:
        """Not where sums are added up as soon as they are made."""
        return not self.sums_at_once

    @property
    def shares_conversions(self) -> bool:
        """Not where readers have copies."""
        return not self.fan_out_copies

    def converted_size(self, shard: Floats, whole: Floats) -> Floats:
        """Bytes of one chip's shard, or of the tensor. [B]"""
        return shard if self.conversion_of_shard else whole


@dataclass(frozen=True, slots=True, kw_only=True)
class DFModelPipelining(Pipelining):
    """Activations sent on beside the stages, gradients by microbatch."""

    stage_transfers: StageTransfers = field(
        default=StageTransfers.ONCE, metadata=meaning("When stages pay for passing activations on.")
    )
    periodic_per_microbatch: bool = field(
        default=True,
        metadata=meaning(
            "Whether the gradient all-reduce is spread over the microbatches of an "
            "iteration but paid for every sequence (the same while a microbatch is one "
            "sequence) or spread over its sequences."
        ),
    )
    sums_in_layers: bool = field(
        default=True,
        metadata=meaning(
            "Whether the sum of gradients is work of the layers, a part for every sequence, or "
            "follows once an iteration."
        ),
    )

    def __post_init__(self) -> None:
        """Check every field."""
        check_fields(self)

    @property
    def _once(self) -> bool:
        return self.stage_transfers is StageTransfers.ONCE

    @property
    def has_schedules(self) -> bool:
        """Not where transfers are paid once: one bubble for all."""
        return not self._once

    @property
    def has_ends(self) -> bool:
        """Layers alone are mapped."""
        return False

    def crosses(self, n_stages: int, n_dimensions: int) -> bool:
        """Also for one stage on a dimension of its own."""
        return n_dimensions > 0 if self._once else Pipelining.crosses(self, n_stages, n_dimensions)

    def directions(self, training: bool) -> int:
        """None but in training. [1]"""
        return 0 if self._once and not training else Pipelining.directions(self, training)

    def transfer(self, plan: MeshPlan) -> float:
        """Time of every layer's activations, without latency. [s]"""
        if self._once:
            return plan.stage_transfer.per_byte * plan.n_layers
        return Pipelining.transfer(self, plan)

    def stage(self, work: Floats, transfer: Floats, overlap: Overlap) -> Floats:
        """Work alone. [s]"""
        return work if self._once else Pipelining.stage(self, work, transfer, overlap)

    def paths(self, pipeline: Pipeline) -> tuple[Path, ...]:
        """One, as many microbatches as the bubble makes of them, then what is sent."""
        if not self._once:
            return Pipelining.paths(self, pipeline)
        return ((self.bubble_factor(pipeline) * pipeline.microbatches, pipeline.transfer),)

    def longest(self, pipeline: Pipeline, work: Floats | float) -> Floats:
        """Of the only path, or as usual."""
        if not self._once:
            return Pipelining.longest(self, pipeline, work)
        return longest_of(self.paths(pipeline), work)

    def bubble_factor(self, pipeline: Pipeline) -> Floats:
        """That of interleaved stages of one layer, one less of them. [1]"""
        if not self._once:
            return Pipelining.bubble_factor(self, pipeline)
        virtual = np.maximum(np.asarray(pipeline.layers) - 1, 1)
        return np.asarray(1.0 + (pipeline.stages - 1) / pipeline.microbatches / virtual)

    def split(self, plan: MeshPlan, n_stages: int) -> tuple[int, int]:
        """The slowest as often as there are microbatches, and stages but one."""
        if not self._once:
            return Pipelining.split(self, plan, n_stages)
        return plan.n_microbatches + plan.graph_repetitions * n_stages - 1, 0

    def shares_of_gradients(self, plan: MeshPlan) -> int:
        """Microbatches. [1]"""
        if self.periodic_per_microbatch:
            return plan.n_microbatches
        return Pipelining.shares_of_gradients(self, plan)


@dataclass(frozen=True, slots=True, kw_only=True)
class DFModelClock(Clock):
    """One peak, whatever is computed."""

    rates_by_dtype: bool = field(
        default=False,
        metadata=meaning(
            "Whether a chip has a rate for every type of number that its data sheet names, "
            "or one peak."
        ),
    )

    def __post_init__(self) -> None:
        """Check every field."""
        check_fields(self)

    @property
    def knows_types(self) -> bool:
        """Whether there are rates."""
        return self.rates_by_dtype

    def peak_rate(self, chip: Chip, dtype: Dtype) -> float:
        """The peak, or the rate of the type. [FLOP/s]"""
        return Clock.peak_rate(self, chip, dtype) if self.rates_by_dtype else chip.peak_throughput

    def lane_rates(self, chip: Chip, graph: KernelGraph) -> Floats:
        """What the chip has of the type of each kernel, whatever it computes. [FLOP/s]"""
        return np.array([chip.vector_throughput(dtype) for dtype in graph.dtypes])

    def attended(self, chip: Chip, graph: KernelGraph) -> Attended:
        """Return nothing: products of attention are products."""
        return Attended.none(graph.n)


@dataclass(frozen=True, slots=True, kw_only=True)
class DFModelMemory(MainMemory):
    """Weights, no training state, and the tensors of the layer and microbatch that run."""

    gradient_bytes: float = 0.0
    optimizer_bytes: float = 0.0
    gradient_passes: float = 1.0
    keeps_activations: bool = field(
        default=False,
        metadata=meaning(
            "Whether what the backward pass reads is kept for all layers of a stage and all"
            " microbatches in flight, or only tensors of the layer and microbatch that runs"
            " are counted."
        ),
    )
    updates_weights: bool = field(
        default=False,
        metadata=meaning("Whether an iteration ends with an update of the weights."),
    )
    weights_held_once: bool = field(
        default=False,
        metadata=meaning(
            "Whether the weight that a forward and a backward kernel share takes main "
            "memory once, or once for each kernel."
        ),
    )

    def update_traffic(self, word: float) -> float:
        """Bytes of an update, if weights are updated. [B]"""
        return MainMemory.update_traffic(self, word) if self.updates_weights else 0.0

    def weights(self, weight: Floats, forward: Floats) -> Floats:
        """One for each kernel, or for each forward kernel. [B]"""
        return forward if self.weights_held_once else weight
