"""Training with numbers of fewer bits: which products read those, and the casts that make them.

A recipe says what a training graph in one type becomes. Products of the weights of layers, forward
and of both gradients, read operands in the type of the recipe and make results in that of the
graph; attention, norms, routers, the table of tokens and the head, sums and gradients of weights
stay as they are. Master weights and moments are the optimizer's.

Activations and gradients are cast where they are read, each once for all products that read them.
The product of weights by gradients and that of gradients by activations need an operand transposed:
on chips that multiply such numbers only as they are stored, or where scales run along what is added
up, a cast writes two copies. The backward pass keeps the cast copy of what such a product reads,
which is a tensor like any other: nothing has to say so. Weights are cast once an iteration, behind
their update, and held in as many copies, beside the ones that they are cast from where those stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from crosstack.workload.dataflow import Graph
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import Function
from crosstack.workload.operations import Block, Operand, Operation, Role, Tensor

ROUTER = "w_router"  # how the name of a router's weight ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a model is trained in numbers of ``dtype``.

    ``copies``: how many a cast writes, and how many of a weight are held [1]; ``beside``: bytes of
    an element of the weights that those are cast from and that stay, 0 where the master weights of
    the optimizer are cast [B]. ``source`` is where it is from.
    """

    dtype: Dtype
    copies: int
    beside: float
    source: str


# Copies of the first are those of Hopper, whose FP8 products take both operands along K alone.
RECIPES: Mapping[Dtype, Recipe] = {
    recipe.dtype: recipe
    for recipe in (
        Recipe(dtype=Dtype.FP8, copies=2, beside=2.0, source="nvidia_transformer_engine"),
        Recipe(dtype=Dtype.MXFP8, copies=2, beside=2.0, source="nvidia_transformer_engine"),
        Recipe(dtype=Dtype.NVFP4, copies=2, beside=2.0, source="nvidia2025nvfp4"),
        Recipe(dtype=Dtype.FP8_BLOCKS, copies=2, beside=0.0, source="deepseek2024v3"),
    )
}


def quantized(graph: Graph, recipe: Recipe) -> Graph:
    """Return a training graph whose layers multiply as a recipe says.

    Parameters
    ----------
    graph : Graph
        Forward and backward, as `crosstack.workload.passes.backward.training` makes it.
    recipe : Recipe
        What is cast to what.

    References
    ----------
    micikevicius2022fp8, nvidia_transformer_engine
    """
    linear = {
        operation.name: weight
        for block in graph.blocks
        if block.axis and not block.twin
        for operation in block.operations
        if (weight := _own_weight(graph, block, operation))
    }
    casts = _Casts(graph=graph, recipe=recipe, linear=linear, tensors={**graph.tensor})
    for weight in linear.values():
        casts.tensors[weight] = replace(
            graph.tensor[weight], dtype=recipe.dtype, copies=recipe.copies, beside=recipe.beside
        )
    blocks = tuple(map(casts.block, graph.blocks))
    return Graph(axes=graph.axes, tensors=tuple(casts.tensors.values()), blocks=blocks)


def _own_weight(graph: Graph, block: Block, operation: Operation) -> str:
    """Return the weight of its block that a product reads; empty of others, and of a router's."""
    weights = [name for name in operation.reads if graph.tensor[name].role is Role.WEIGHT]
    own = [w for w in weights if block.axis in graph.tensor[w].axes and not w.endswith(ROUTER)]
    return own[0] if operation.multiplies and len(own) == 1 else ""


@dataclass(slots=True, kw_only=True)
class _Casts:
    """A graph as far as it is cast; ``linear``: by product, its weight."""

    graph: Graph
    recipe: Recipe
    linear: Mapping[str, str]
    tensors: dict[str, Tensor]
    made: dict[str, dict[str, str]] = field(default_factory=dict)  # by block: casts by tensor

    def block(self, block: Block) -> Block:
        """Return a block with its casts, each before the first product that reads it."""
        known = self.made[block.name] = {**self.made.get(block.twin, {})}
        operations = list[Operation]()
        for operation in block.operations:
            weight = self.linear.get(operation.twin or operation.name, "")
            if not (weight and operation.multiplies):
                operations.append(operation)
                continue
            for name in operation.reads:
                if name != weight and name not in known:
                    known[name] = self._copy_of(block, name)
                    operations.append(self._cast(name, known[name]))
            reads = (
                replace(read, tensor=known.get(read.tensor, read.tensor))
                for read in operation.inputs
            )
            operations.append(replace(operation, inputs=tuple(reads)))
        return replace(block, operations=tuple(operations))

    def _copy_of(self, block: Block, name: str) -> str:
        """Add the tensor that another one is cast to."""
        tensor = self.graph.tensor[name]
        kept = tensor.role if tensor.role is Role.GRADIENT else Role.ACTIVATION
        made = replace(
            tensor,
            name=f"{name}_cast",
            axes=self.graph.own_axes(block, name),
            dtype=self.recipe.dtype,
            role=kept,
            of="",
        )
        self.tensors[made.name] = made
        return made.name

    def _cast(self, name: str, made: str) -> Operation:
        return Operation(
            name=made,
            function=Function.QUANTIZE,
            inputs=(Operand(tensor=name),),
            output=Operand(tensor=made),
            parameter=float(self.recipe.copies),
        )
