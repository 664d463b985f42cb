"""What a partition moves and holds: the part of a rule set that says so.

The default counts each tensor once, however many kernels read it, and reads what is not on the
chip from main memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar, assert_never

from crosstack.model.parts import check_fields
from crosstack.records import meaning
from crosstack.workload.kernel_graph import Floats, Ints, KernelGraph
from crosstack.workload.kernels import Placement

Sizes = TypeVar("Sizes", float, Floats)


class Boundary(StrEnum):
    """What moving the operands and results of a graph takes; see `crosstack.model.boundary`.

    ``free``: nothing. ``memory``: operands that no kernel of the graph makes are read from main
    memory, results that none reads are written there.
    """

    FREE = "free"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Each tensor once."""

    weights_read: bool = field(
        default=True,
        metadata=meaning(
            "Whether weights are read from main memory once per partition and microbatch "
            "unless they stay resident (the only partition of the only layer of its stage);"
            " never in ``dfmodel_code``."
        ),
    )
    boundary: Boundary = field(
        default=Boundary.MEMORY,
        metadata=meaning("What moving the operands and results of a graph takes."),
    )
    unfused_depth: int = field(
        default=2,
        metadata=meaning(
            "Tiles of each tensor that enters or leaves a kernel that are on the chip while"
            " kernels run one by one: 2 as in any partition, or 1 where nothing moves while"
            " a tile is used. [1]"
        ),
    )
    network_takes_maximum: bool = field(
        default=False,
        metadata=meaning(
            "Whether tensor- and data-parallel communication of a partition hide behind "
            "each other or add up."
        ),
    )

    def __post_init__(self) -> None:
        """Check every field."""
        check_fields(self, {"unfused_depth": (1, 2)})

    # ------------------------------------------------------------ tensors

    def operands(self, arrays: KernelGraph) -> Ints:
        """Place of the operand that each edge feeds, 0 or 1."""
        return arrays.operand

    def flows(self, arrays: KernelGraph) -> Ints:
        """Return the flow that each edge is part of: one a tensor, whoever reads it."""
        return arrays.tensor

    def streams(self, placement: Placement) -> bool:
        """Whether kernels work on blocks of any size, so that nothing has to fit the SRAM.

        A factorisation and a transform of columns are cut as finely as needed (``dfmodel_code``,
        which checks neither); perceptrons are not.
        """
        match placement:
            case Placement.BATCH | Placement.SEARCHED:
                return False
            case Placement.GRID | Placement.COLUMNS:
                return True
            case _:
                assert_never(placement)

    def read_again(self, into: Sizes, out: Sizes) -> Sizes:
        """Bytes that each further piece of a weight moves again, of those in and out. [B]

        Every piece needs all of the input; what it makes is a part of the output.
        """
        return into

    # ------------------------------------------------------------ conversions of layouts

    @property
    def skips_masked(self) -> bool:
        """Whether programs that skip what a mask leaves out do; see `crosstack.model.attention`."""
        return True

    @property
    def traces_layouts(self) -> bool:
        """Whether sums stay partial until they are read, and joins of copies have a layout.

        See `crosstack.model.conversions`.
        """
        return True

    @property
    def shares_conversions(self) -> bool:
        """Whether readers that need a tensor in the same layout share its conversion."""
        return True

    def converted_size(self, shard: Floats, whole: Floats) -> Floats:
        """Bytes of a tensor that a conversion of its layout moves. [B]

        An all-gather fills every chip with the whole tensor (``thakur2005``).
        """
        return whole
