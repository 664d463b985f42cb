"""Which kernels a temporal chip may run as one: what a partition may be there.

A spatial chip lays the kernels of a partition out side by side; whatever fits may be together. A
temporal one runs one program at a time: its kernels are one only where a program exists that keeps
what passes between them on the chip. That is known for (`crosstack.machine.chip.Fusion`)

* elementwise kernels one behind the other, as each needs of the others no more than it has at hand;
* such kernels behind a product, in its *epilogue*, tile by tile;
* a kernel that needs whole rows (a norm, a softmax) with elementwise ones around it;
* an *attention*: a product, elementwise kernels of its result of which one needs whole rows, and
  the products that read them (``dao2022flashattention``).

Two large products are never one: each tile of the second needs whole rows of the first.

Two kinds of rules follow. *Hereditary* ones hold for every part of a set that keeps them: at most
one product (or those of one attention), no tensor inside that has to leave the chip, nothing that
needs whole rows beside a product. Of a whole partition the kernels are also joined by tensors, and
an attention has its second product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from crosstack.machine.chip import Fusion
from crosstack.model.attention import attentions
from crosstack.workload.kernel_graph import Floats, KernelGraph, bits


@dataclass(frozen=True, slots=True, kw_only=True)
class Legality:
    """What may be a partition of a temporal chip; masks over kernels.

    Parameters
    ----------
    products, row_wise : int
        Kernels that multiply, and those that need whole rows.
    joined : tuple of int
        By kernel, those that a tensor joins it with, either way.
    barred, cut : tuple of int
        By kernel, those of them that are in no partition with it, unless in an attention (barred)
        or at all (cut).
    attentions : tuple of (int, int)
        The product that begins each, and all its kernels.
    whole : bool
        Whether sets are whole partitions; otherwise kernels may have been left out of them, and
        the hereditary rules decide.
    """

    products: int
    row_wise: int
    joined: tuple[int, ...]
    barred: tuple[int, ...]
    cut: tuple[int, ...]
    attentions: tuple[tuple[int, int], ...]
    whole: bool = True
    _known: dict[int, bool] = field(default_factory=dict, repr=False, compare=False)
    _meeting: dict[int, bool] = field(default_factory=dict, repr=False, compare=False)

    @property
    def everything(self) -> int:
        """Mask of all kernels."""
        return (1 << len(self.joined)) - 1

    def allows(self, inside: int) -> bool:
        """Whether the kernels of mask ``inside`` may be a partition."""
        known = self._known.get(inside)
        if known is None:
            known = self._known[inside] = self._allows(inside)
        return known

    def _allows(self, inside: int) -> bool:
        if inside & (inside - 1) == 0:
            return True
        if not self.may_grow(inside):
            return False
        if not self.whole:
            return True
        products = inside & self.products
        several = products & (products - 1)
        if several or (products and inside & self.row_wise):
            begun = any(inside & first and not inside & ~held for first, held in self.attentions)
            if not (several and begun):
                return False
        return self._connected(inside)

    def may_grow(self, inside: int) -> bool:
        """Whether a set keeps the hereditary rules; if not, no partition holds it."""
        members = bits(inside)
        if any(self.cut[i] & inside for i in members):
            return False
        if any(not inside & ~held for _, held in self.attentions):
            return True
        products = inside & self.products
        if products and (products & (products - 1) or inside & self.row_wise):
            return False
        return not any(self.barred[i] & inside for i in members)

    def why(self, inside: int) -> str:
        """Say which rule a set breaks that is no partition."""
        products = inside & self.products
        if any(self.cut[i] & inside for i in bits(inside)):
            return "what one makes is exchanged, or kept, before another reads it"
        if products & (products - 1):
            return "several products, which are one in an attention alone"
        if products and inside & self.row_wise:
            return (
                "a product and a kernel that needs whole rows, which are one in an attention alone"
            )
        if any(self.barred[i] & inside for i in bits(inside)):
            return "one reads what another makes in a way that its fusions do not name"
        return "no tensor joins them all"

    def may_meet(self, i: int, j: int) -> bool:
        """Whether two kernels that a tensor joins are ever in one partition."""
        pair = 1 << i | 1 << j
        known = self._meeting.get(pair)
        if known is None:
            known = self._meeting[pair] = self.may_grow(pair)
        return known

    def launch_share(self, i: int) -> float:
        """Return one over the most products of a partition with product ``i``; 0 for others. [1]"""
        if not self.products >> i & 1:
            return 0.0
        held = [held & self.products for _, held in self.attentions if held >> i & 1]
        return 1.0 / max((products.bit_count() for products in held), default=1)

    def label(self, i: int) -> object:
        """Equal for kernels that may take each other's place in any partition."""
        held = tuple(held & ~(1 << i) for _, held in self.attentions if held >> i & 1)
        kinds = self.products >> i & 1, self.row_wise >> i & 1
        return kinds, self.joined[i], self.barred[i], self.cut[i], held

    @property
    def largest(self) -> int:
        """Products that a partition has at most. [1]"""
        groups = ((held & self.products).bit_count() for _, held in self.attentions)
        return max(groups, default=1)

    def _connected(self, inside: int) -> bool:
        reached = border = inside & -inside
        while border:
            further = 0
            for i in bits(border):
                further |= self.joined[i]
            border = further & inside & ~reached
            reached |= border
        return reached == inside

    def of(self, kernels: Sequence[int]) -> Legality:
        """Return what holds for some kernels of partitions, numbered anew; others are left out."""
        return _part(self, tuple(kernels))

    def _of(self, kernels: tuple[int, ...]) -> Legality:
        number = {kernel: i for i, kernel in enumerate(kernels)}

        def shrink(mask: int) -> int:
            return sum(1 << number[i] for i in bits(mask) if i in number)

        return Legality(
            products=shrink(self.products),
            row_wise=shrink(self.row_wise),
            joined=tuple(shrink(self.joined[i]) for i in kernels),
            barred=tuple(shrink(self.barred[i]) for i in kernels),
            cut=tuple(shrink(self.cut[i]) for i in kernels),
            attentions=tuple(
                (shrink(first), shrink(held)) for first, held in self.attentions if shrink(held)
            ),
            whole=False,
        )


@lru_cache(maxsize=256)
def possible_partitions(legality: Legality, most: int) -> tuple[int, ...] | None:
    """Return every set that may be a partition; None where more than ``most`` were looked at.

    Tensors join the kernels of a partition, so it grows kernel by kernel through sets that keep
    the hereditary rules. Not known where kernels may have been left out that joined others.
    """
    if not legality.whole:
        return None
    layer = {1 << i for i in range(len(legality.joined))}
    looked_at = list(layer)
    while layer:
        grown: set[int] = set()
        for inside in layer:
            near = 0
            for i in bits(inside):
                near |= legality.joined[i]
            beside = (inside | 1 << i for i in bits(near & ~inside))
            grown.update(s for s in beside if s not in grown and legality.may_grow(s))
            if len(looked_at) + len(grown) > most:
                return None
        looked_at += grown
        layer = grown
    return tuple(sorted(s for s in looked_at if legality.allows(s)))


@lru_cache(maxsize=256)
def _part(legality: Legality, kernels: tuple[int, ...]) -> Legality:
    return legality._of(kernels)


def make_legality(
    arrays: KernelGraph, fusions: tuple[Fusion, ...], network: Floats | None = None
) -> Legality:
    """Return what may be a partition of a graph on a chip that fuses so.

    Parameters
    ----------
    arrays : KernelGraph
        The graph.
    fusions : tuple of Fusion
        What the chip fuses.
    network : ndarray, shape (n,), optional
        What exchanging the result of each kernel takes; one that is exchanged leaves the chip
        before it is read. [s]
    """
    exchanged = 0 if network is None else _mask(np.nonzero(network > 0)[0].tolist())
    return _legality(arrays, frozenset(fusions), exchanged)


# Many loads of a search exchange the same results, and ask for the same sets.
@lru_cache(maxsize=256)
def _legality(arrays: KernelGraph, fusions: frozenset[Fusion], exchanged: int) -> Legality:
    plain = _by_kinds(arrays, fusions)
    cut = list(plain.cut)
    for i in bits(exchanged):
        readers = arrays.succs[i]
        cut[i] |= readers
        for j in bits(readers):
            cut[j] |= 1 << i
    return replace(plain, cut=tuple(cut), _known={}, _meeting={})


@lru_cache(maxsize=64)
def _by_kinds(arrays: KernelGraph, fusions: frozenset[Fusion]) -> Legality:
    n = arrays.n
    elements = arrays.rows * arrays.columns
    joined, barred, cut = [0] * n, [0] * n, [0] * n
    edges = zip(arrays.source.tolist(), arrays.target.tolist(), arrays.elided.tolist(), strict=True)
    for i, j, elided in edges:
        if elided:  # what passes has its place in main memory
            masks = cut
        else:
            joined[i] |= 1 << j
            joined[j] |= 1 << i
            one_by_one = elements[i] == elements[j] and not arrays.gemm[j]
            if one_by_one and _kind(arrays, i, j) in fusions:
                continue
            masks = barred
        masks[i] |= 1 << j
        masks[j] |= 1 << i
    return Legality(
        products=_mask(np.nonzero(arrays.gemm)[0].tolist()),
        row_wise=_mask(np.nonzero(arrays.row_wise)[0].tolist()),
        joined=tuple(joined),
        barred=tuple(barred),
        cut=tuple(cut),
        attentions=attentions(arrays) if Fusion.ATTENTION in fusions else (),
    )


def _kind(arrays: KernelGraph, i: int, j: int) -> Fusion | None:
    """Return what fuses a kernel ``i`` and an elementwise one ``j`` that reads it."""
    rows = arrays.row_wise[i] or arrays.row_wise[j]
    if arrays.gemm[i]:
        return None if rows else Fusion.EPILOGUE
    return Fusion.NORMALISATION if rows else Fusion.ELEMENTWISE


def _mask(kernels: Sequence[int]) -> int:
    return sum(1 << i for i in kernels)
