"""Which operations of a block are no kernels of their own, and what they leave to others.

* What products alone read of weights by an index, and a part of keys and values that are kept, is
  read where it lies: looking it up takes nothing.
* Gradients of factors and terms (of a norm, of a bias) are sums over tokens of what a kernel of the
  same derivative has in hand: it adds them up beside what it makes, as fused kernels of norms do,
  and epilogues of products. They are sent together with the gradient of a weight of a product.
* The gradient of a weight that all repetitions of a block read is a sum that is carried along. What
  makes a repetition's part of it adds that to what is there, as it does in every microbatch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from crosstack.workload.dataflow import Graph
from crosstack.workload.functions import Function, OperationKind
from crosstack.workload.operations import Block, Operation, Role

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
    sums : frozenset of str
        Carried gradients of weights, and sums on the way to them: what makes their parts adds up.
    weights : mapping
        By gradient of a weight, or part of one: that weight.
    """

    lies: Mapping[str, str] = field(default_factory=dict)
    beside: frozenset[str] = frozenset()
    work: Mapping[str, float] = field(default_factory=dict)
    sent: Mapping[str, float] = field(default_factory=dict)
    sums: frozenset[str] = frozenset()
    weights: Mapping[str, str] = field(default_factory=dict)

    def __contains__(self, operation: Operation) -> bool:
        """Whether an operation is no kernel."""
        made = operation.output.tensor
        return made in self.lies or made in self.beside or made in self.sums


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
    sums, weights = _carried(graph, operations, readers)
    beside = _beside(operations, readers, weights)
    made = [(b, o) for b, o in operations if o.output.tensor in beside]
    hosts = {o.twin: o.name for _, o in reversed(operations) if _hosts(o, beside)}
    done: dict[str, float] = {}
    for block, operation in made:
        host = hosts.get(operation.twin, "")
        if host:
            each = work(operation) * graph.count(graph.nest(block, operation).loops)
            done[host] = done.get(host, 0.0) + each
    return Merged(
        lies=_in_place(graph, operations, readers),
        beside=beside,
        work=done,
        sent=_sent(graph, operations, beside, weights),
        sums=sums,
        weights=weights,
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


def _carried(
    graph: Graph, operations: Sequence[Where], readers: Mapping[str, Sequence[Operation]]
) -> tuple[frozenset[str], dict[str, str]]:
    """Return carried sums that are added up in place, and the weights of all their gradients."""
    makers = {o.output.tensor: o for _, o in operations}
    sums: set[str] = set()
    weights = {
        name: of
        for name in makers
        if (of := graph.tensor[name].of) and graph.tensor[of].role is Role.WEIGHT
    }
    for block, operation in operations:
        total = operation.output.tensor
        before = next((first for first, last in block.carries if last == total), "")
        if total in weights and before in _reads(operation) and operation.function is Function.ADD:
            within, parts = _parts(makers, operation, before)
            own = all(part in makers and len(readers[part]) == 1 for part in (*within, *parts))
            if own:
                sums |= {total, *within}
                weights |= dict.fromkeys(parts, weights[total])
    return frozenset(sums), weights


def _parts(
    makers: Mapping[str, Operation], operation: Operation, before: str
) -> tuple[list[str], list[str]]:
    """Return sums on the way to one that is carried as ``before``, and what they are sums of."""
    waiting = [part for part in _reads(operation) if part != before]
    within, parts = list[str](), list[str]()
    while waiting:
        part = waiting.pop()
        maker = makers.get(part)
        if maker is not None and maker.function is Function.ADD and not maker.twin:
            within.append(part)
            waiting += _reads(maker)
        else:
            parts.append(part)
    return within, parts


def _reads(operation: Operation) -> list[str]:
    return [operand.tensor for operand in operation.inputs]


def _beside(
    operations: Sequence[Where],
    readers: Mapping[str, Sequence[Operation]],
    weights: Mapping[str, str],
) -> frozenset[str]:
    """Return gradients that are sums, and steps of the same derivatives that lead to them alone."""
    if not any(o.multiplies and o.output.tensor in weights for _, o in operations):
        return frozenset()
    found = {
        o.output.tensor
        for _, o in operations
        if o.function is Function.SUM and o.output.tensor in weights
    }
    found |= {*_steps(operations, readers, found)}
    return frozenset(found)


def _sent(
    graph: Graph,
    operations: Sequence[Where],
    beside: frozenset[str],
    weights: Mapping[str, str],
) -> dict[str, float]:
    """Return bytes of gradients by the product that they are sent with, as often as they are. [B]

    That of a weight of every repetition goes with one of those, if there is any.
    """
    products: dict[bool, str] = {}
    for block, operation in operations:
        made = operation.output.tensor
        if operation.multiplies and made in weights:
            products.setdefault(graph.shares(block, weights[made]), operation.name)
    first, found = next(iter(products.values()), ""), dict[str, float]()
    for block, operation in operations:
        made = operation.output.tensor
        if made in beside and made in weights:
            with_it = products.get(graph.shares(block, weights[made]), first)
            found[with_it] = found.get(with_it, 0.0) + _bytes(graph, block, operation)
    return found


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
