"""A workload: kernels of one layer, and how often they run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from crosstack.errors import require
from crosstack.records import Bytes, Checked, Count, brief, require_types
from crosstack.workload.axes import AxisSize, AxisUse
from crosstack.workload.dataflow import Graph
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernel_graph import KernelGraph
from crosstack.workload.kernels import Placement
from crosstack.workload.optimizer import Optimizer
from crosstack.workload.passes.context_parallel import most_context
from crosstack.workload.passes.expert_parallel import most_spread

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
class End(Checked):
    """Kernels that run before the first layer or behind the last one, such as a head with its loss.

    ``graph`` is of one sequence, with its backward pass where there is one; it runs ``count``
    times, one after the other [1]. ``table_size`` are bytes of the weights that are looked up in,
    on the chips that run it, ``shared_size`` of its weights that another end has as well: a tied
    table of tokens; ``element_size`` of one element of its weights. [B]
    """

    name: str
    graph: KernelGraph
    count: Count = 1
    table_size: Bytes = 0.0
    shared_size: Bytes = 0.0
    element_size: Bytes = 2.0

    __repr__ = brief


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
    gradients : Dtype or None
        What gradients of weights are kept and summed in; None: as the rules count them.
    optimizer : Optimizer or None
        What updates the weights; None: what keeps as much as the rules count.
    made_of : BlockOf or None
        Of which graph over named axes it is, if it is of one; a file says it by that.
    """

    graph: KernelGraph
    n_layers: Count = 1
    layers_in_graph: Count = 1
    global_batch_size: Count = 1
    sequence_length: Count = 1
    boundary_size: Bytes = 0.0
    placement: Placement = Placement.SEARCHED
    data_size: Bytes = 0.0
    before: tuple[End, ...] = ()
    after: tuple[End, ...] = ()
    gradients: Dtype | None = None
    optimizer: Optimizer | None = None
    name: str = "workload"
    item: str = field(default="sample", compare=False)
    item_part: str = field(default="", compare=False)
    made_of: BlockOf | None = field(default=None, compare=False, repr=False, metadata={"key": None})

    __repr__ = brief

    def __post_init__(self) -> None:
        require_types(self)
        require(bool(self.item), "item", self.item, "a word, such as sample")
        length, layers = self.sequence_length, self.layers_in_graph
        allowed = f"up to 2^28, {LONGEST_SEQUENCE}"
        require(length <= LONGEST_SEQUENCE, "sequence_length", length, allowed)
        whole = self.n_layers % layers == 0
        require(whole, "n_layers", self.n_layers, f"a multiple of layers_in_graph = {layers}")

    @property
    def item_length(self) -> int:
        """How many ``item_part`` an item has. [1]"""
        return self.sequence_length if self.made_of is None else self.made_of.item_length

    @property
    def experts(self) -> int:
        """Routed experts of every layer that has some, which divide among chips; 1 without. [1]"""
        return most_spread((self.graph, *(end.graph for end in (*self.before, *self.after))))

    @property
    def attends(self) -> bool:
        """Whether chips may share the tokens of a sequence, which attention looks at all of."""
        return self.made_of is not None and bool(most_context(self.graph))

    @property
    def graph_repetitions(self) -> int:
        """How many times ``graph`` stands in the model. [1]"""
        return self.n_layers // self.layers_in_graph

    @property
    def graph_words(self) -> tuple[str, str]:
        """What ``graph`` is, one and several: a layer, or a group of layers that take turns."""
        if self.layers_in_graph == 1:
            return "layer", "layers"
        layers = f"of {self.layers_in_graph:,} layers"
        return f"group {layers}", f"groups {layers}"

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
