"""What published models count differently, as data: one record, one named constructor a source.

Every field says what it switches and who does it which way. `ModelRules.crosstack` is the
default: the README's rules of DFModel with what they leave out put right, one field each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import StrEnum

from crosstack.errors import InputError, Problem, nearest, require, require_quantity

__all__ = [
    "RULES",
    "Boundary",
    "ExchangeRule",
    "LatencyRule",
    "ModelRules",
    "StageTransfers",
    "WeightCuts",
    "rules_named",
]


class LatencyRule(StrEnum):
    """Which collectives pay link latency.

    ``none``: nobody (DFModel E1 to E3). ``all_reduce``: 2 (p-1) hops for each all-reduce of a
    kernel (E4). ``kernel``: halves x steps for each all-reduce of a kernel (E5). ``all``: every
    collective its steps (``thakur2005``).
    """

    NONE = "none"
    ALL_REDUCE = "all_reduce"
    KERNEL = "kernel"
    ALL = "all"


class ExchangeRule(StrEnum):
    """How an all-to-all among all chips of a workload that is not searched is counted.

    ``dimensions``: dimension by dimension, as any other collective. The others take the slowest
    cut of the network, see `crosstack.model.collectives.slowest_cut`: ``one_way`` with
    one link a ring and n^2/4 pairs (DFModel E2), ``all_pairs`` with two links a ring and
    n (n-1)/2 pairs (E3a to E4), ``two_way`` with two links a ring and n^2/4 pairs (E5).
    """

    DIMENSIONS = "dimensions"
    ONE_WAY = "one_way"
    ALL_PAIRS = "all_pairs"
    TWO_WAY = "two_way"


class StageTransfers(StrEnum):
    """When pipeline stages pay for passing activations on.

    ``once``: once per iteration, for every layer, training only (DFModel E1 to E4).
    ``microbatch``: for every microbatch, hidden behind the stage's work where overlap allows.
    """

    ONCE = "once"
    MICROBATCH = "microbatch"


class Boundary(StrEnum):
    """What moving the operands and results of a graph takes; see `crosstack.model.boundary`.

    ``free``: nothing (DFModel, all releases). ``memory``: operands that no kernel of the graph
    makes are read from main memory, results that none reads are written there.
    """

    FREE = "free"
    MEMORY = "memory"


class WeightCuts(StrEnum):
    """What a partition pays when the weight of its only kernel is cut to fit the SRAM.

    ``free``: nothing (DFModel up to E4). ``all``: its memory traffic once per cut (E5).
    ``inputs``: its input tensors once per cut, which is what streaming them again for each piece
    of the weight takes.
    """

    FREE = "free"
    ALL = "all"
    INPUTS = "inputs"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRules:
    """The choices between sources.

    Parameters
    ----------
    name : str
        What the set is called on the command line and in results.
    ring_all_reduce_halves : int
        2 counts reduce-scatter and all-gather on rings and switches (``thakur2005``; DFModel E2,
        E3a, and E4 on with ``separate_rs_ag_for_ar``); 1 counts one (E3b, and E4 on without).
    full_all_reduce_halves : int
        The same on fully connected dimensions: 1 in DFModel up to E4.
    latency : LatencyRule
        Which collectives pay link latency.
    all_to_all_pair_shares : bool
        See `crosstack.model.collectives.all_to_all_time`; False in DFModel.
    tiles_divide : bool
        Whether the number of tiles must divide the sequence (DFModel E4 on) or the last tile may
        be ragged (up to E3b).
    fan_out_copies : bool
        Whether a tensor is stored once for each of its readers (DFModel, stated in
        ``ko2025dfmodel`` IV.C) or once.
    operand_by_size : bool
        Whether the operand an edge feeds is recognised by its bytes, the first operand winning
        ties (DFModel), or is what the graph says.
    weights_read : bool
        Whether weights are read from main memory once per partition and microbatch unless they
        stay resident (the only partition of the only layer of its stage); never in DFModel E2 on.
    weight_cuts : WeightCuts
        What a partition pays when its weight is cut to fit.
    boundary : Boundary
        What moving the operands and results of a graph takes.
    conversion_of_shard : bool
        Whether a layout conversion moves the bytes of one chip's shard of the tensor (DFModel's
        intra-chip pass) or of the whole tensor, as its inter-chip pass and ``thakur2005`` count.
    periodic_per_microbatch : bool
        Whether the gradient all-reduce is spread over the microbatches of an iteration but paid
        for every sequence (DFModel; the same while a microbatch is one sequence) or spread over
        its sequences.
    stage_transfers : StageTransfers
        When stages pay for passing activations on.
    training_state : float
        Bytes of gradients and optimizer state per parameter that training keeps in main memory;
        14 for mixed-precision Adam (2 gradient, 12 optimizer: ``rajbhandari2020zero``); 0 in
        DFModel. [B]
    weights_held_once : bool
        Whether the weight that a forward and a backward kernel share takes main memory once, or
        once for each kernel (DFModel).
    bytes_first : bool
        Whether sharding minimises bytes moved before anything else is decided (DFModel), or is
        chosen together with everything else.
    halves_of_slots : bool
        Whether a limit of C partitions gives forward kernels the first C/2 and backward kernels
        the last C/2, the middle one shared when C is odd (DFModel); otherwise directions are
        separate only where asked.
    full_count_unfused : bool
        Whether a limit equal to the number of kernels means kernel by kernel (DFModel).
    unfused_depth : int
        Tiles of each tensor that enters or leaves a kernel that are on the chip while kernels run
        one by one: 1 in DFModel E2, otherwise 2 as in any partition. [1]
    network_takes_maximum : bool
        Whether tensor- and data-parallel communication of a partition hide behind each other
        (DFModel E5) or add up.
    gradient_halves : int
        Halves of the gradient all-reduce: 1 or 2 where they are counted otherwise than those of
        any other all-reduce (one DFModel run compared with Megatron-LM), 0 where not. [1]
    domain_halves : int
        Halves of an all-reduce in and across high-bandwidth domains; 1 in DFModel whatever else
        is asked for. [1]
    domain_for_each : bool
        Whether each parallelism has the whole of a high-bandwidth domain to itself (DFModel), or
        the outer ones what the inner ones leave.
    exchange : ExchangeRule
        How all chips exchange everything with each other.
    grid_by_place : bool
        With placement ``grid``: whether a broadcast takes the bandwidth of the second dimension
        and rows move at that of the first, each only if the other side has several chips
        (DFModel), or each the dimensions it runs over.
    gradient_bandwidth : float
        With placement ``batch``: bandwidth of the gradient all-reduce; 0 is that of the network.
        DFModel adds bytes to nanoseconds, which is 1e9 B/s and one half. [B/s]
    batch_in_sram : bool
        With placement ``batch``: whether partitions have to fit the SRAM; not in DFModel E5.
    rates_by_dtype : bool
        Whether a chip has a rate for every type of number that its data sheet names, or one peak
        whatever is computed (DFModel).
    """

    name: str
    ring_all_reduce_halves: int = 2
    full_all_reduce_halves: int = 1
    latency: LatencyRule = LatencyRule.NONE
    all_to_all_pair_shares: bool = False
    tiles_divide: bool = False
    fan_out_copies: bool = True
    operand_by_size: bool = True
    weights_read: bool = False
    weight_cuts: WeightCuts = WeightCuts.FREE
    boundary: Boundary = Boundary.FREE
    conversion_of_shard: bool = True
    periodic_per_microbatch: bool = True
    stage_transfers: StageTransfers = StageTransfers.ONCE
    training_state: float = 0.0
    weights_held_once: bool = False
    bytes_first: bool = True
    halves_of_slots: bool = True
    full_count_unfused: bool = True
    unfused_depth: int = 2
    network_takes_maximum: bool = False
    gradient_halves: int = 0
    domain_halves: int = 1
    domain_for_each: bool = True
    exchange: ExchangeRule = ExchangeRule.ALL_PAIRS
    grid_by_place: bool = True
    gradient_bandwidth: float = 1e9
    batch_in_sram: bool = True
    rates_by_dtype: bool = False

    def __post_init__(self) -> None:
        """Check the numbers and the kind of every switch."""
        require(isinstance(self.name, str) and self.name != "", "name", self.name, "a name")
        for name, allowed in _COUNTS.items():
            value = getattr(self, name)
            good = isinstance(value, int) and not isinstance(value, bool) and value in allowed
            require(good, name, value, _listed(allowed))
        require_quantity("training_state", self.training_state, "B")
        require_quantity("gradient_bandwidth", self.gradient_bandwidth, "B/s")
        for item in fields(self):
            value = getattr(self, item.name)
            if item.type == "bool":
                require(isinstance(value, bool), item.name, value, "true or false")
            elif item.type in _CHOICES:
                choices = _CHOICES[item.type]
                close = nearest(value, list(choices), 1)
                hint = f'; nearest: "{close[0]}"' if close else ""
                names = f"a {choices.__name__} ({', '.join(choices)}){hint}"
                require(isinstance(value, choices), item.name, value, names)

    @classmethod
    def crosstack(cls) -> ModelRules:
        """Return the default: the README's rules with what they leave out put right."""
        return cls(
            name="crosstack",
            full_all_reduce_halves=2,
            latency=LatencyRule.ALL,
            all_to_all_pair_shares=True,
            fan_out_copies=False,
            operand_by_size=False,
            weights_read=True,
            weight_cuts=WeightCuts.INPUTS,
            boundary=Boundary.MEMORY,
            conversion_of_shard=False,
            periodic_per_microbatch=False,
            stage_transfers=StageTransfers.MICROBATCH,
            training_state=14.0,
            weights_held_once=True,
            bytes_first=False,
            halves_of_slots=False,
            full_count_unfused=False,
            domain_halves=2,
            domain_for_each=False,
            exchange=ExchangeRule.DIMENSIONS,
            grid_by_place=False,
            gradient_bandwidth=0.0,
            rates_by_dtype=True,
        )

    @classmethod
    def dfmodel_readme(cls) -> ModelRules:
        """Release E3a, the README's: both halves of a ring all-reduce."""
        return cls(name="dfmodel-readme")

    @classmethod
    def dfmodel_e2(cls) -> ModelRules:
        """Release E2, most published design-space results."""
        return cls(name="dfmodel-e2", exchange=ExchangeRule.ONE_WAY, unfused_depth=1)

    @classmethod
    def dfmodel_e3b(cls) -> ModelRules:
        """Release E3b: one half of an all-reduce."""
        return cls(name="dfmodel-e3b", ring_all_reduce_halves=1)

    @classmethod
    def dfmodel_e4(cls) -> ModelRules:
        """Release E4 with ``separate_rs_ag_for_ar`` off; tiles divide, link latency exists."""
        return cls(
            name="dfmodel-e4",
            ring_all_reduce_halves=1,
            latency=LatencyRule.ALL_REDUCE,
            tiles_divide=True,
        )

    @classmethod
    def dfmodel_e5(cls) -> ModelRules:
        """Release E5 with ``separate_rs_ag_for_ar`` off: the serving results."""
        return cls(
            name="dfmodel-e5",
            ring_all_reduce_halves=1,
            latency=LatencyRule.KERNEL,
            tiles_divide=True,
            weight_cuts=WeightCuts.ALL,
            network_takes_maximum=True,
            exchange=ExchangeRule.TWO_WAY,
            batch_in_sram=False,
        )


_COUNTS = {
    "ring_all_reduce_halves": (1, 2),
    "full_all_reduce_halves": (1, 2),
    "domain_halves": (1, 2),
    "unfused_depth": (1, 2),
    "gradient_halves": (0, 1, 2),
}
_CHOICES: dict[object, type[StrEnum]] = {
    kind.__name__: kind
    for kind in (LatencyRule, ExchangeRule, StageTransfers, WeightCuts, Boundary)
}

RULES: dict[str, Callable[[], ModelRules]] = {
    "crosstack": ModelRules.crosstack,
    "dfmodel-readme": ModelRules.dfmodel_readme,
    "dfmodel-e2": ModelRules.dfmodel_e2,
    "dfmodel-e3b": ModelRules.dfmodel_e3b,
    "dfmodel-e4": ModelRules.dfmodel_e4,
    "dfmodel-e5": ModelRules.dfmodel_e5,
}


def _listed(numbers: tuple[int, ...]) -> str:
    return f"{', '.join(map(str, numbers[:-1]))} or {numbers[-1]}"


def rules_named(name: str) -> ModelRules:
    """Return the rule set called ``name``; ``+separate`` after a DFModel name counts both halves.

    That suffix is what ``separate_rs_ag_for_ar`` switches on in releases E4 and E5;
    ``+separate-tensor`` leaves the gradient all-reduce at one half, as one published run does.

    Raises
    ------
    InputError
        If there is none; names the nearest.
    """
    base, plus, rest = name.partition("+separate")
    if plus and base in RULES and base != "crosstack" and rest in ("", "-tensor"):
        return replace(
            RULES[base](),
            name=name,
            ring_all_reduce_halves=2,
            full_all_reduce_halves=2 if base == "dfmodel-e5" else 1,
            gradient_halves=1 if rest else 0,
        )
    if name not in RULES:
        close = nearest(name, RULES, 1)
        hint = f' Did you mean "{close[0]}"?' if close else ""
        raise InputError(
            Problem("rules", f'no rules are called "{name}".{hint} Allowed: {", ".join(RULES)}.')
        )
    return RULES[name]()
