"""A workload: kernels of one layer, and how often they run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from crosstack.errors import require, require_quantity, require_whole
from crosstack.records import brief, require_types
from crosstack.workload.axes import AxisSize, AxisUse
from crosstack.workload.dataflow import Graph
from crosstack.workload.kernel_graph import KernelGraph
from crosstack.workload.kernels import Placement

LONGEST_SEQUENCE = 2**28  # it is cut into tiles of twice the root of that many lengths


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockOf:
    """The block of a graph over named axes, and the axis of items, that a workload is made of."""

    graph: Graph
    block: str
    items: str

    @property
    def left_out(self) -> tuple[tuple[str, int], ...]:
        """Other blocks that run forward, which are not mapped, and how often each runs. [1]"""
        others = (b for b in self.graph.forward_blocks if self.block and b.name != self.block)
        return tuple((b.name, self.graph.repeats(b)) for b in others)

    @property
    def token_axes(self) -> tuple[AxisSize, ...]:
        """Axes of tokens, but that of items, of what one layer hands to the next."""
        carried = (b.carries[0][0] for b in self.graph.blocks if b.carries and not b.twin)
        tensor = next(carried, None)
        own = () if tensor is None else self.graph.tensor[tensor].axes
        tokens = (a for a in self.graph.axes if a.use is AxisUse.TOKEN and a.name != self.items)
        return tuple(axis for axis in tokens if axis.name in own)

    @property
    def item_length(self) -> int:
        """Tokens of an item. [1]"""
        return math.prod(axis.size for axis in self.token_axes)


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Kernels that run before the first layer or behind the last one, such as a head with its loss.

    Parameters
    ----------
    name : str
        For people.
    graph : KernelGraph
        Of one sequence, with its backward pass where there is one.
    count : int
        How often they run, one after the other. [1]
    table_size : float
        Bytes of the weights that are looked up in, on the chips that run it. [B]
    shared_size : float
        Bytes of its weights that another end has as well: a tied table of tokens. [B]
    """

    name: str
    graph: KernelGraph
    count: int = 1
    table_size: float = 0.0
    shared_size: float = 0.0

    __repr__ = brief

    def __post_init__(self) -> None:
        """Check count and sizes."""
        require_types(self)
        require_whole("count", self.count)
        require_quantity("table_size", self.table_size, "B")
        require_quantity("shared_size", self.shared_size, "B")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Kernels of one or several layers, and how often they run.

    Parameters
    ----------
    graph : KernelGraph
        One layer (``layers_in_graph`` layers), one sequence.
    n_layers : int
        Layers of the model; a whole multiple of ``layers_in_graph``. [1]
    layers_in_graph : int
        Layers that ``graph`` spells out. [1]
    global_batch_size : int
        Sequences of one iteration over all chips. [1]
    sequence_length : int
        Extent that is cut into tiles. [1]
    boundary_size : float
        Bytes that one layer hands to the next, for one sequence, one direction. [B]
    placement : Placement
        How it lies on the chips.
    data_size : float
        Bytes that all chips together keep in main memory besides weights: embedding tables, the
        matrix that is factorised, the points that are transformed. [B]
    before, after : tuple of End
        What runs before the first layer, on the first stage of a pipeline, and behind the last one,
        on the last stage.
    name : str
        For people.
    item : str
        What reports call one of the global batch: sequence, sample, matrix.
    item_part : str
        What they call one of the ``item_length`` that an item has, such as token; empty where
        that has no name.
    made_of : BlockOf or None
        Of which graph over named axes it is, if it is of one; a file says it by that.
    """

    graph: KernelGraph
    n_layers: int = 1
    layers_in_graph: int = 1
    global_batch_size: int = 1
    sequence_length: int = 1
    boundary_size: float = 0.0
    placement: Placement = Placement.SEARCHED
    data_size: float = 0.0
    before: tuple[End, ...] = ()
    after: tuple[End, ...] = ()
    name: str = "workload"
    item: str = field(default="sample", compare=False)
    item_part: str = field(default="", compare=False)
    made_of: BlockOf | None = field(default=None, compare=False, repr=False, metadata={"key": None})

    __repr__ = brief

    def __post_init__(self) -> None:
        """Check counts and sizes."""
        require_types(self)
        require(bool(self.item), "item", self.item, "a word, such as sample")
        for name in ("n_layers", "layers_in_graph", "global_batch_size", "sequence_length"):
            require_whole(name, getattr(self, name))
        length, allowed = self.sequence_length, f"up to 2^28, {LONGEST_SEQUENCE}"
        require(length <= LONGEST_SEQUENCE, "sequence_length", length, allowed)
        require(
            self.n_layers % self.layers_in_graph == 0,
            "n_layers",
            self.n_layers,
            f"a multiple of layers_in_graph = {self.layers_in_graph}",
        )
        require_quantity("boundary_size", self.boundary_size, "B")
        require_quantity("data_size", self.data_size, "B")

    @property
    def item_length(self) -> int:
        """How many ``item_part`` an item has. [1]"""
        return self.sequence_length if self.made_of is None else self.made_of.item_length

    @property
    def graph_repetitions(self) -> int:
        """How many times ``graph`` stands in the model. [1]"""
        return self.n_layers // self.layers_in_graph

    @property
    def work(self) -> float:
        """Floating-point operations of one iteration. [FLOP]"""
        ends = sum(end.graph.total_work * end.count for end in self.ends)
        each = self.graph.total_work * self.graph_repetitions + ends
        return each * self.global_batch_size

    @property
    def ends(self) -> tuple[End, ...]:
        """What runs besides the layers, in the order in which it runs."""
        return (*self.before, *self.after)

    def of_end(self, end: End) -> Workload:
        """Return one run of an end as a workload of its own."""
        return replace(
            self,
            graph=end.graph,
            n_layers=1,
            layers_in_graph=1,
            boundary_size=0.0,
            data_size=0.0,
            before=(),
            after=(),
            name=f"{end.name} of {self.name}",
            made_of=None,
        )

    def without_ends(self) -> Workload:
        """Return the layers alone."""
        return replace(self, before=(), after=()) if self.ends else self

    @property
    def training(self) -> bool:
        """Whether the graph has a backward pass."""
        return self.graph.has_backward
