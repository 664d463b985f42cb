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

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from crosstack.workload.dataflow import Graph
from crosstack.workload.functions import Function, OperationKind
from crosstack.workload.operations import Block, Operation, Role

WorkOf = Callable[[Operation], float]
Where = tuple[Block, Operation]
Readers = Mapping[str, Sequence[Operation]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """What is no kernel of a block and of its backward pass.

    ``lies``: by tensor that is read where it lies, the tensor that it lies in. ``beside`` are
    results that other kernels make beside their own; by operation, ``work`` is what it does for
    those [FLOP], and ``sent`` bytes of gradients that are sent with its own [B]. ``sums`` are
    carried gradients of weights, and sums on the way to them: what makes their parts adds up.
    ``weights``: by gradient of a weight, or part of one, that weight.
    """

    lies: Mapping[str, str]
    beside: frozenset[str]
    work: Mapping[str, float]
    sent: Mapping[str, float]
    sums: frozenset[str]
    weights: Mapping[str, str]

    def __contains__(self, operation: Operation) -> bool:
        return any(operation.made in some for some in (self.lies, self.beside, self.sums))


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
    readers: dict[str, list[Operation]] = defaultdict(list)
    for _, operation in operations:
        for name in operation.reads:
            readers[name].append(operation)
    sums, weights = _carried(graph, operations, readers)
    beside = _beside(operations, readers, weights)
    # The kernel of each derivative that adds up beside what it makes.
    hosts = {
        o.twin: o.name
        for _, o in reversed(operations)
        if o.twin and not o.multiplies and o.made not in beside
    }
    done: dict[str, float] = defaultdict(float)
    for block, operation in operations:
        host = hosts.get(operation.twin, "")
        if host and operation.made in beside:
            done[host] += work(operation) * graph.count(graph.nest(block, operation).loops)
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
    before = any(of_before(graph, name) for name in operation.reads)
    return operation.kind is OperationKind.CONCATENATION and before


def _in_place(graph: Graph, operations: Sequence[Where], readers: Readers) -> dict[str, str]:
    kept = {o.made for _, o in operations if appends(graph, o)}
    found = {}
    for _, operation in operations:
        name, first = operation.made, next(iter(operation.reads), "")
        later = readers.get(name, ()) if operation.kind is OperationKind.GATHER else ()
        multiplied = later and all(reader.multiplies for reader in later)
        part = operation.function is Function.SLICE and first in kept
        if part or (multiplied and graph.tensor[first].role is Role.WEIGHT):
            found[name] = first
    return found


def _carried(
    graph: Graph, operations: Sequence[Where], readers: Readers
) -> tuple[frozenset[str], dict[str, str]]:
    """Return carried sums that are added up in place, and the weights of all their gradients."""
    makers = {o.made: o for _, o in operations}
    sums: set[str] = set()
    weights = {
        name: of
        for name in makers
        if (of := graph.tensor[name].of) and graph.tensor[of].role is Role.WEIGHT
    }
    for block, operation in operations:
        total = operation.made
        before = next((first for first, last in block.carries if last == total), "")
        adds = operation.function is Function.ADD and before in operation.reads
        if total in weights and adds:
            within, parts = _parts(makers, operation, before)
            if all(part in makers and len(readers[part]) == 1 for part in (*within, *parts)):
                sums |= {total, *within}
                weights |= dict.fromkeys(parts, weights[total])
    return frozenset(sums), weights


def _parts(
    makers: Mapping[str, Operation], operation: Operation, before: str
) -> tuple[list[str], list[str]]:
    """Return sums on the way to one that is carried as ``before``, and what they are sums of."""
    waiting = [part for part in operation.reads if part != before]
    within, parts = list[str](), list[str]()
    while waiting:
        part = waiting.pop()
        maker = makers.get(part)
        if maker is not None and maker.function is Function.ADD and not maker.twin:
            within.append(part)
            waiting += maker.reads
        else:
            parts.append(part)
    return within, parts


def _beside(
    operations: Sequence[Where], readers: Readers, weights: Mapping[str, str]
) -> frozenset[str]:
    """Return gradients that are sums, and steps of the same derivatives that lead to them alone."""
    if not any(o.multiplies and o.made in weights for _, o in operations):
        return frozenset()
    found = {o.made for _, o in operations if o.function is Function.SUM and o.made in weights}
    for _, operation in reversed(operations):
        later = readers.get(operation.made, ())
        alone = all(o.made in found and o.twin == operation.twin for o in later)
        if later and alone and operation.twin and not operation.multiplies:
            found.add(operation.made)
    return frozenset(found)


def _sent(
    graph: Graph, operations: Sequence[Where], beside: frozenset[str], weights: Mapping[str, str]
) -> dict[str, float]:
    """Return bytes of gradients by the product that they are sent with, as often as they are. [B]

    That of a weight of every repetition goes with one of those, if there is any.
    """
    products: dict[bool, str] = {}
    for block, operation in operations:
        if operation.multiplies and operation.made in weights:
            shared = graph.shares(block, weights[operation.made])
            products.setdefault(shared, operation.name)
    first, found = next(iter(products.values()), ""), dict[str, float]()
    for block, operation in operations:
        made = operation.made
        if made in beside and made in weights:
            with_it = products.get(graph.shares(block, weights[made]), first)
            found[with_it] = found.get(with_it, 0.0) + graph.own_size(block, made)
    return found
