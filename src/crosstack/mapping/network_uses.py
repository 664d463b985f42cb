"""What the dimensions of a network can be used for, and what factors of their sizes can.

Numbers in brackets are those of `crosstack.mapping.parallelism`, which says what a use is: all that
is yielded here has sizes (1) and uses (2) that are given, and degrees (4).
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping

from crosstack.machine.chip import Execution
from crosstack.machine.network import KINDS
from crosstack.machine.system import Dimension, Parallelism, System
from crosstack.mapping.degrees import FREE, Degrees, degree_of
from crosstack.model.tiles import divisors

# Ranks of a group of layers are the nearest, then those whose chips exchange what is in a layer.
_OUTER = (
    (Parallelism.PIPELINE, Parallelism.DATA),
    (Parallelism.DATA, Parallelism.PIPELINE),
)
_INNER = (Parallelism.TENSOR, Parallelism.CONTEXT, Parallelism.EXPERT)


def network_sizes(system: System) -> Iterator[tuple[int, ...]]:
    """Yield every choice of dimension sizes that multiplies to the number of chips."""
    fixed = math.prod(d.size for d in system.network if d.size is not None)
    free = [i for i, d in enumerate(system.network) if d.size is None]

    def split(left: int, parts: int) -> Iterator[tuple[int, ...]]:
        if parts == 0:
            if left == 1:
                yield ()
            return
        if parts == 1:
            yield (left,)
            return
        for size in divisors(left):
            for others in split(left // size, parts - 1):
                yield (size, *others)

    for chosen in split(system.n_chips // fixed, len(free)):
        sizes = [d.size or 1 for d in system.network]
        for i, size in zip(free, chosen, strict=True):
            sizes[i] = size
        yield tuple(sizes)


Factors = tuple[tuple[Parallelism, int], ...]  # of one dimension, innermost first


def network_uses(
    system: System,
    *,
    shared: bool,
    degrees: Degrees = FREE,
    experts: int = 1,
    tokens: int = 1,
    cut: bool = False,
) -> Iterator[tuple[tuple[int, ...], tuple[Parallelism, ...], tuple[int, ...]]]:
    """Yield every (sizes, uses, dimensions) of a mapping.

    ``shared``: whether dimensions serve several parallelisms; ``experts``: over how many chips
    experts are spread at most, ``tokens``: what the number of those that share a sequence divides
    [1]; ``cut``: whether tensor-parallel chips may cut experts.
    """
    most = {Parallelism.EXPERT: experts, Parallelism.CONTEXT: tokens}
    for sizes in network_sizes(system):
        choices = [
            tuple(
                factors
                for factors in _factors(d, size, shared=shared, most=most)
                if all(degrees.may_have(use, degree) for use, degree in factors)
            )
            for d, size in zip(system.network, sizes, strict=True)
        ]
        ways = [choices]
        if shared and splits_rings(system):
            ways += _split_rings(system.network, sizes, choices, degrees, most)
        for each in itertools.chain.from_iterable(itertools.product(*way) for way in ways):
            if shared and not _consecutive(system.network, each):
                continue
            rows = [(size, use, i) for i, some in enumerate(each) for use, size in some]
            counts, uses, places = zip(*rows, strict=True)
            context = degree_of(Parallelism.CONTEXT, counts, uses)
            if tokens % context or not degrees.are_those_of(counts, uses):
                continue
            if experts_divide(counts, uses, experts, cut=cut):
                yield counts, uses, () if len(places) == len(sizes) else places


def experts_divide(
    sizes: tuple[int, ...], uses: tuple[Parallelism, ...], experts: int, *, cut: bool = False
) -> bool:
    """Whether chips have as many experts; tensor-parallel ones ``cut`` them, or have some each."""
    if Parallelism.EXPERT not in uses:
        return True
    expert = degree_of(Parallelism.EXPERT, sizes, uses)
    shared = 1 if cut else degree_of(Parallelism.TENSOR, sizes, uses)
    return expert == 1 or experts % (expert * shared) == 0


def fills_servers(system: System) -> bool:
    """Whether tensor parallelism is kept inside, on levels that it could leave half filled."""
    return sum(_switched(system.network)) > 1


def splits_rings(system: System) -> bool:
    """Whether several parallelisms may share a dimension whose chips have neighbours.

    Chips that run kernels side by side are mapped as ``ko2025dfmodel`` has it, a dimension for each
    (IV.C): each further use of the network takes them a search of partitions.
    """
    return system.chip.execution is Execution.TEMPORAL


def fills_rings(system: System) -> bool:
    """Whether there are dimensions that several parallelisms may share in the order of ranks."""
    return splits_rings(system) and any(d.size != 1 and _free_ring(d) for d in system.network)


def shares_ring(network: tuple[Dimension, ...], places: tuple[int, ...]) -> bool:
    """Whether several parallelisms share a dimension whose chips have neighbours.

    ``places``: the dimension of each, as of a mapping.
    """
    shared = {place for place, count in Counter(places).items() if count > 1}
    return any(KINDS[network[place].kind].by_neighbours for place in shared)


def _free_ring(dimension: Dimension) -> bool:
    """Whether the use of a dimension is free, and its chips have neighbours."""
    return dimension.parallelism is None and KINDS[dimension.kind].by_neighbours


def _switched(network: tuple[Dimension, ...]) -> list[bool]:
    """Whether each level's use is free, and all its chips reach each other."""
    return [d.parallelism is None and not KINDS[d.kind].by_neighbours for d in network]


def _consecutive(network: tuple[Dimension, ...], each: tuple[Factors, ...]) -> bool:
    """Whether tensor parallelism fills every level that switches join before it leaves it.

    That is how ranks of a group are numbered (``narayanan2021megatron``, section 3.2): across
    servers what chips of a group send one another takes the ports that data parallelism needs.
    Chips that share a sequence come next (``grattafiori2024llama3``, section 3.3.2). A level whose
    use is given, or whose chips have neighbours, is as it is.
    """
    free = _switched(network)
    tensor, context = Parallelism.TENSOR, Parallelism.CONTEXT
    for outer, factors in enumerate(each):
        used = [use for use, size in factors if size > 1] if free[outer] else []
        inside = {
            use for inner in range(outer) if free[inner] for use, size in each[inner] if size > 1
        }
        if tensor in used and inside - {tensor}:
            return False
        if context in used and inside - {tensor, context}:
            return False
    return True


def _factors(
    dimension: Dimension, size: int, *, shared: bool, most: Mapping[Parallelism, int]
) -> Iterator[Factors]:
    """Yield what ``size`` chips of a dimension may be used for.

    ``most``: what numbers of chips of some uses divide; such a use is none at 1. [1]
    """
    if dimension.parallelism is not None or size == 1:
        yield ((dimension.parallelism or Parallelism.DATA, size),)
        return
    yield from (((use, size),) for use in Parallelism if most.get(use, size) % size == 0)
    row = KINDS[dimension.kind]
    if not shared or row.by_neighbours:
        return
    orders = _orders(most)
    if row.even and dimension.oversubscription == 1.0:
        orders = orders[:1]
    found: dict[Factors, None] = {}
    for order in orders:
        for counts in _factorisations(size, len(order)):
            degrees = zip(order, counts, strict=True)
            factors = tuple((use, degree) for use, degree in degrees if degree > 1)
            fits = all(most.get(use, degree) % degree == 0 for use, degree in factors)
            if len(factors) > 1 and fits:
                found[factors] = None
    yield from found


def _orders(most: Mapping[Parallelism, int]) -> list[tuple[Parallelism, ...]]:
    """Return the orders of ranks, the nearest first, of parallelisms that there may be any of."""
    inner = tuple(use for use in _INNER if most.get(use, 2) > 1)
    return [(*inner, *outer) for outer in _OUTER]


def _split_rings(
    network: tuple[Dimension, ...],
    sizes: tuple[int, ...],
    choices: list[tuple[Factors, ...]],
    degrees: Degrees,
    most: Mapping[Parallelism, int],
) -> Iterator[list[tuple[Factors, ...]]]:
    """Yield factors of every dimension where ranks fill those whose chips have neighbours.

    At least one of these serves several parallelisms; all others have their ``choices``.
    """
    rings = [i for i, d in enumerate(network) if sizes[i] > 1 and _free_ring(d)]
    found: dict[tuple[Factors, ...], None] = {}
    for order in _orders(most):
        for each in _filled([sizes[i] for i in rings], order):
            degrees_of = [pair for factors in each for pair in factors]
            if len(degrees_of) > len(rings) and all(
                most.get(use, size) % size == 0 and degrees.may_have(use, size)
                for use, size in degrees_of
            ):
                found[each] = None
    for each in found:
        own = dict(zip(rings, each, strict=True))
        yield [(own[i],) if i in own else some for i, some in enumerate(choices)]


def _filled(sizes: list[int], order: tuple[Parallelism, ...]) -> Iterator[tuple[Factors, ...]]:
    """Yield factors of every dimension, the innermost first, as ranks fill them in their order."""
    if not sizes:
        yield ()
        return
    for counts in _factorisations(sizes[0], len(order)):
        here = tuple(pair for pair in zip(order, counts, strict=True) if pair[1] > 1)
        for others in _filled(sizes[1:], order[order.index(here[-1][0]) :]):
            yield (here, *others)


def _factorisations(size: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yield so many numbers whose product is ``size``, in every order. [1]"""
    if parts == 1:
        yield (size,)
        return
    for first in divisors(size):
        for others in _factorisations(size // first, parts - 1):
            yield (first, *others)
