"""Which operations of a block are no kernels of their own, and what they leave to others.

* What products alone read of weights by an index, and a part of keys and values that are kept, is
  read where it lies: looking it up takes nothing.
* Gradients of factors and terms (of a norm, of a bias) are sums over tokens of what a kernel of the
  same derivative has in hand: it adds them up beside what it makes, as fused kernels of norms do,
  and epilogues of products. They are sent together with the gradient of a weight of a product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from crosstack.workload.dataflow import Graph
from crosstack.workload.functions import Function, OperationKind
from crosstack.workload.operations import Block, Operation, Role

__all__ = ["Merged", "appends", "merged", "of_before"]

WorkOf = Callable[[Operation], float]
Where = tuple[Block, Operation]


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """What is no kernel of a block and of its backward pass.

    Parameters
    ----------
    lies : mapping
        By tensor that is read where it lies: the tensor that it lies in.
    beside : frozenset of str
        Results that other kernels make beside their own.
    work : mapping
        By operation: what it does for those. [FLOP]
    sent : mapping
        By operation: bytes of gradients that are sent with its own. [B]
    """

    lies: Mapping[str, str] = field(default_factory=dict)
    beside: frozenset[str] = frozenset()
    work: Mapping[str, float] = field(default_factory=dict)
    sent: Mapping[str, float] = field(default_factory=dict)

    def __contains__(self, operation: Operation) -> bool:
        """Whether an operation is no kernel."""
        made = operation.output.tensor
        return made in self.lies or made in self.beside


def merged(graph: Graph, blocks: Sequence[Block], work: WorkOf) -> Merged:
    """Return which operations of a block and of its backward pass are no kernels.

    Parameters
    ----------
    graph : Graph
        The whole graph.
    blocks : sequence of Block
        A block, and its backward pass where there is one.
    work : callable
        Operations on each element that an operation loops over. [FLOP]
    """
    operations = [(block, operation) for block in blocks for operation in block.operations]
    readers: dict[str, list[Operation]] = {}
    for _, operation in operations:
        for operand in operation.inputs:
            readers.setdefault(operand.tensor, []).append(operation)
    beside = _beside(graph, operations, readers)
    made = [(b, o) for b, o in operations if o.output.tensor in beside]
    hosts = {o.twin: o.name for _, o in reversed(operations) if _hosts(o, beside)}
    done: dict[str, float] = {}
    for block, operation in made:
        host = hosts.get(operation.twin, "")
        if host:
            each = work(operation) * graph.count(graph.nest(block, operation).loops)
            done[host] = done.get(host, 0.0) + each
    sent = sum(_bytes(graph, b, o) for b, o in made if _of_weight(graph, o))
    with_it = next((o.name for _, o in operations if o.multiplies and _of_weight(graph, o)), "")
    return Merged(
        lies=_in_place(graph, operations, readers),
        beside=beside,
        work=done,
        sent={with_it: sent} if sent else {},
    )


def of_before(graph: Graph, tensor: str) -> bool:
    """Whether a tensor is keys and values of before."""
    return graph.tensor[tensor].role is Role.KV_CACHE and tensor not in graph.makers


def appends(graph: Graph, operation: Operation) -> bool:
    """Whether an operation puts new keys and values behind those of before."""
    before = any(of_before(graph, operand.tensor) for operand in operation.inputs)
    return operation.kind is OperationKind.CONCATENATION and before


def _in_place(
    graph: Graph, operations: Sequence[Where], readers: Mapping[str, Sequence[Operation]]
) -> dict[str, str]:
    kept = {o.output.tensor for _, o in operations if appends(graph, o)}
    found = {}
    for _, operation in operations:
        name, first = operation.output.tensor, next((x.tensor for x in operation.inputs), "")
        if operation.function is Function.SLICE and first in kept:
            found[name] = first
        elif operation.kind is OperationKind.GATHER and name in readers:
            products = all(reader.multiplies for reader in readers[name])
            if products and graph.tensor[first].role is Role.WEIGHT:
                found[name] = first
    return found


def _of_weight(graph: Graph, operation: Operation) -> bool:
    of = graph.tensor[operation.output.tensor].of
    return of != "" and graph.tensor[of].role is Role.WEIGHT


def _beside(
    graph: Graph, operations: Sequence[Where], readers: Mapping[str, Sequence[Operation]]
) -> frozenset[str]:
    """Return gradients that are sums, and steps of the same derivatives that lead to them alone."""
    if not any(o.multiplies and _of_weight(graph, o) for _, o in operations):
        return frozenset()
    found = {
        o.output.tensor
        for _, o in operations
        if o.function is Function.SUM and _of_weight(graph, o)
    }
    found |= {*_steps(operations, readers, found)}
    return frozenset(found)


def _steps(
    operations: Sequence[Where], readers: Mapping[str, Sequence[Operation]], sums: set[str]
) -> Iterator[str]:
    known = {*sums}
    for _, operation in reversed(operations):
        made, later = operation.output.tensor, readers.get(operation.output.tensor, ())
        alone = all(o.output.tensor in known and o.twin == operation.twin for o in later)
        if later and alone and operation.twin and not operation.multiplies:
            known.add(made)
            yield made


def _hosts(operation: Operation, beside: frozenset[str]) -> bool:
    """Whether an operation is a kernel that adds up beside what it makes."""
    return (
        not operation.multiplies and bool(operation.twin) and operation.output.tensor not in beside
    )


def _bytes(graph: Graph, block: Block, operation: Operation) -> float:
    tensor = operation.output.tensor
    return graph.count(graph.own_axes(block, tensor)) * graph.tensor[tensor].dtype.size
