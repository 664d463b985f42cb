"""Which kernels a temporal chip may run as one: what a partition may be there.

A spatial chip lays the kernels of a partition out side by side; whatever fits may be together. A
temporal one runs one program at a time: its kernels are one only where a program exists that keeps
what passes between them on the chip. That is known for (`crosstack.machine.framework.Fusion`)

* elementwise kernels one behind the other, as each needs of the others no more than it has at hand;
* such kernels behind a product, in its *epilogue*, tile by tile;
* a kernel that needs whole rows (a norm, a softmax) with elementwise ones around it;
* an *attention*: a product, elementwise kernels of its result of which one needs whole rows, and
  the products that read them (``dao2022flashattention``).

A framework has kernels for some of these alone, and for chains of functions that it names
(`crosstack.machine.framework.Framework`).

Two kinds of rules follow. *Hereditary* ones hold for every part of a set that keeps them: at most
one product (or those of one attention), no tensor inside that has to leave the chip, nothing that
needs whole rows beside a product. Of a whole partition the kernels are also joined by tensors, and
an attention has its second product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from crosstack.machine.chip import Chip
from crosstack.machine.framework import BIAS, Fusion
from crosstack.model.attention import attentions
from crosstack.workload.functions import Function
from crosstack.workload.kernel_graph import Bools, Floats, Ints, KernelGraph, bits

Words = NDArray[np.uint64]  # of sets, 64 kernels each
_WORD = 2**64 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Legality:
    """What may be a partition of a temporal chip; masks over kernels.

    ``products``, ``row_wise``: kernels that multiply, and those that need whole rows; ``joined``:
    by kernel, those that a tensor joins it with, either way; ``barred``, ``cut``: by kernel, those
    of them that are in no partition with it, unless in an attention or a chain (barred) or at all
    (cut); ``attentions``: the products that begin each, and all its kernels; ``chains``: kernels
    that a framework has one for, or for a part of them; ``whole``: whether sets are
    whole partitions; otherwise kernels may have been left out of them, and the hereditary rules
    decide.
    """

    products: int
    row_wise: int
    joined: tuple[int, ...]
    barred: tuple[int, ...]
    cut: tuple[int, ...]
    attentions: tuple[tuple[int, int], ...]
    chains: tuple[int, ...] = ()
    whole: bool = True
    _known: dict[int, bool] = field(default_factory=dict, repr=False, compare=False)
    _meeting: dict[int, bool] = field(default_factory=dict, repr=False, compare=False)

    @property
    def everything(self) -> int:
        """Mask of all kernels."""
        return (1 << len(self.joined)) - 1

    @property
    def named(self) -> tuple[int, ...]:
        """Kernels of every attention, and of every chain."""
        return (*(held for _, held in self.attentions), *self.chains)

    def allows(self, inside: int) -> bool:
        """Whether the kernels of mask ``inside`` may be a partition."""
        if inside not in self._known:
            self._known[inside] = self._allows(inside)
        return self._known[inside]

    def _allows(self, inside: int) -> bool:
        if inside & (inside - 1) == 0:
            return True
        return self.may_grow(inside) and (not self.whole or self.complete(inside))

    def complete(self, inside: int) -> bool:
        """Whether a set of several kernels that may grow is a partition as it is."""
        products = inside & self.products
        several = products & (products - 1)
        chained = any(not inside & ~held for held in self.chains)
        if not chained and (several or (products and inside & self.row_wise)):
            begun = any(inside & first and not inside & ~held for first, held in self.attentions)
            if not (several and begun):
                return False
        return self._connected(inside)

    def may_grow(self, inside: int) -> bool:
        """Whether a set keeps the hereditary rules; if not, no partition holds it."""
        cut = barred = 0
        for i in bits(inside):
            cut |= self.cut[i]
            barred |= self.barred[i]
        return self.grows(inside, cut, barred, self.named)

    def grows(self, inside: int, cut: int, barred: int, named: Sequence[int]) -> bool:
        """`may_grow` of a set from whose kernels some are ``cut`` or ``barred``; see `named`."""
        if cut & inside:
            return False
        if any(not inside & ~held for held in named):
            return True
        products = inside & self.products
        if products and (products & (products - 1) or inside & self.row_wise):
            return False
        return not barred & inside

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
        if pair not in self._meeting:
            self._meeting[pair] = self.may_grow(pair)
        return self._meeting[pair]

    def launch_share(self, i: int) -> float:
        """Return one over the most products of a partition with product ``i``; 0 for others. [1]"""
        if not self.products >> i & 1:
            return 0.0
        held = [held & self.products for _, held in self.attentions if held >> i & 1]
        return 1.0 / max((products.bit_count() for products in held), default=1)

    def label(self, i: int) -> object:
        """Equal for kernels that may take each other's place in any partition."""
        held = tuple(held & ~(1 << i) for held in self.named if held >> i & 1)
        kinds = self.products >> i & 1, self.row_wise >> i & 1
        return kinds, self.joined[i], self.barred[i], self.cut[i], held

    @property
    def largest(self) -> int:
        """Products that a partition has at most. [1]"""
        groups = ((held & self.products).bit_count() for _, held in self.attentions)
        return max(groups, default=1)

    def allowed(self, words: Words) -> Bools:
        """Return which of many sets may be partitions, as `allows` says of one.

        ``words``: the kernels of every set, at least one each, 64 a word.
        """
        sets = _WordSets.of(words)
        products = sets.count(self.products)
        mixed = (products > 1) | ((products > 0) & sets.touch(self.row_wise))
        part, begun, chained = np.zeros((3, len(words)), dtype=np.bool_)
        for first, held in self.attentions:
            within = ~sets.touch(self.everything & ~held)
            part |= within
            begun |= within & sets.touch(first)
        for held in self.chains:
            chained |= ~sets.touch(self.everything & ~held)
        good = ~sets.meet(self.cut) & (part | chained | ~(mixed | sets.meet(self.barred)))
        if self.whole:
            good &= ~mixed | chained | ((products > 1) & begun)
            good[good] = _WordSets.of(words[good]).joined(self.joined)
        return np.asarray(good | (sets.count(self.everything) == 1))

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


@dataclass(frozen=True, slots=True)
class _WordSets:
    """Many sets of kernels: shape (words, sets), 64 kernels a word."""

    words: Words

    @classmethod
    def of(cls, words: Words) -> _WordSets:
        """Return sets of shape (sets, words)."""
        return cls(np.ascontiguousarray(words.T))

    def both(self, mask: int) -> Words:
        """Return what is in every set and in a mask."""
        rows = [mask >> 64 * w & _WORD for w in range(len(self.words))]
        return self.words & np.array(rows, dtype=np.uint64)[:, None]

    def touch(self, mask: int) -> Bools:
        """Which sets have a kernel of a mask."""
        return np.asarray(self.both(mask).any(axis=0))

    def count(self, mask: int) -> Ints:
        """Kernels of a mask in every set. [1]"""
        return np.asarray(np.bitwise_count(self.both(mask)).sum(axis=0, dtype=np.int64))

    def meet(self, masks: Sequence[int]) -> Bools:
        """Which sets have a kernel, and another of its mask."""
        found = np.zeros(self.words.shape[1], dtype=np.bool_)
        for i in self.kernels():
            if masks[i]:
                found |= self.touch(1 << i) & self.touch(masks[i])
        return found

    def kernels(self) -> list[int]:
        """Return the kernels that are in any set."""
        every = np.bitwise_or.reduce(self.words, axis=1).tolist()
        return bits(sum(word << 64 * w for w, word in enumerate(every)))

    def joined(self, masks: Sequence[int]) -> Bools:
        """Which sets are one piece where each kernel joins those of its mask, either way."""
        one = np.uint64(1)
        reached = self.words & (~self.words + one)  # the lowest kernel of every word
        reached[1:] *= np.cumsum(self.words[:-1] > 0, axis=0) == 0
        before, order = 0, self.kernels()
        while (size := int(np.bitwise_count(reached).sum())) > before:
            before = size
            for i in order:
                there = reached[i // 64] >> np.uint64(i % 64) & one
                reached |= self.both(masks[i]) & (~there + one)  # all ones where it is there
            order.reverse()  # one way and back: graphs are joined along their order
        return np.asarray((reached == self.words).all(axis=0))


@lru_cache(maxsize=256)
def possible_partitions(legality: Legality, most: int) -> tuple[int, ...] | None:
    """Return every set that may be a partition; None where more than ``most`` were looked at.

    Tensors join the kernels of a partition, so it grows kernel by kernel through sets that keep
    the hereditary rules. Not known where kernels may have been left out that joined others.
    """
    if not legality.whole:
        return None
    named, masks = (
        legality.named,
        list(zip(legality.joined, legality.cut, legality.barred, strict=True)),
    )
    layer = {1 << i: own for i, own in enumerate(masks)}  # with what joins, cuts and bars them
    looked_at = list(layer)
    while layer:
        grown: dict[int, tuple[int, int, int]] = {}
        for inside, (near, cut, barred) in layer.items():
            for i in bits(near & ~inside):
                larger = inside | 1 << i
                if larger in grown:
                    continue
                own = masks[i]
                apart = cut | own[1], barred | own[2]
                if legality.grows(larger, *apart, named):
                    grown[larger] = near | own[0], *apart
            if len(looked_at) + len(grown) > most:
                return None
        looked_at += grown
        layer = grown
    single = len(legality.joined)
    several = (s for s in looked_at[single:] if legality.complete(s))
    return tuple(sorted([*looked_at[:single], *several]))


@lru_cache(maxsize=256)
def _part(legality: Legality, kernels: tuple[int, ...]) -> Legality:
    shrink = partial(renumbered, number={kernel: i for i, kernel in enumerate(kernels)})

    def of(masks: Sequence[int]) -> tuple[int, ...]:
        return tuple(shrink(masks[i]) for i in kernels)

    attentions = ((shrink(first), shrink(held)) for first, held in legality.attentions)
    return Legality(
        products=shrink(legality.products),
        row_wise=shrink(legality.row_wise),
        joined=of(legality.joined),
        barred=of(legality.barred),
        cut=of(legality.cut),
        attentions=tuple(pair for pair in attentions if pair[1]),
        chains=tuple(dict.fromkeys(held for held in map(shrink, legality.chains) if held)),
        whole=False,
    )


def make_legality(
    arrays: KernelGraph,
    fusions: tuple[Fusion, ...],
    network: Floats | None = None,
    chains: tuple[str, ...] = (),
) -> Legality:
    """Return what may be a partition of a graph on a chip that fuses so.

    Parameters
    ----------
    arrays, fusions
        The graph, and what the chip fuses.
    network : ndarray, shape (n,), optional
        What exchanging the result of each kernel takes; one that is exchanged leaves the chip
        before it is read. [s]
    chains : tuple of str
        Functions besides that one kernel does; see `crosstack.machine.framework.Framework`.
    """
    exchanged = 0 if network is None else mask_of(network > 0)
    return _legality(arrays, frozenset(fusions), chains, exchanged)


def legality_on(arrays: KernelGraph, chip: Chip, network: Floats | None = None) -> Legality:
    """Return what may be a partition on a chip, as its framework drives it; see `make_legality`."""
    chains = () if chip.framework is None else chip.framework.chains
    return make_legality(arrays, chip.fused, network, chains)


# Many loads of a search exchange the same results, and ask for the same sets.
@lru_cache(maxsize=256)
def _legality(
    arrays: KernelGraph, fusions: frozenset[Fusion], chains: tuple[str, ...], exchanged: int
) -> Legality:
    plain = _by_kinds(arrays, fusions, chains)
    cut = list(plain.cut)
    for i in bits(exchanged):
        readers = arrays.succs[i]
        cut[i] |= readers
        for j in bits(readers):
            cut[j] |= 1 << i
    return replace(plain, cut=tuple(cut), _known={}, _meeting={})


@lru_cache(maxsize=256)
def _by_kinds(arrays: KernelGraph, fusions: frozenset[Fusion], chains: tuple[str, ...]) -> Legality:
    n, inner = arrays.n, _element_by_element(arrays)
    joined, barred, cut = [0] * n, [0] * n, [0] * n
    edges = zip(arrays.source.tolist(), arrays.target.tolist(), arrays.elided.tolist(), strict=True)
    for e, (i, j, elided) in enumerate(edges):
        if elided:  # what passes has its place in main memory
            masks = cut
        else:
            joined[i] |= 1 << j
            joined[j] |= 1 << i
            if inner[e] and _kind(arrays, i, j) in fusions:
                continue
            masks = barred
        masks[i] |= 1 << j
        masks[j] |= 1 << i
    return Legality(
        products=mask_of(arrays.gemm),
        row_wise=mask_of(arrays.row_wise),
        joined=tuple(joined),
        barred=tuple(barred),
        cut=tuple(cut),
        attentions=attentions(arrays) if Fusion.ATTENTION in fusions else (),
        chains=_chains(arrays, chains),
    )


def _element_by_element(arrays: KernelGraph) -> list[bool]:
    """Return of every edge whether its reader needs of each element the one in its place."""
    elements, source, target = arrays.rows * arrays.columns, arrays.source, arrays.target
    found = (elements[source] == elements[target]) & ~arrays.gemm[target]
    return [bool(each) for each in found]


def _chains(arrays: KernelGraph, chains: Sequence[str]) -> tuple[int, ...]:
    """Return kernels whose functions are a chain or a part of one, as long as there are."""
    words, read = [_word(arrays, i) for i in range(arrays.n)], dict[int, list[int]]()
    passes = np.array(_element_by_element(arrays), dtype=np.bool_) & ~arrays.elided
    for e in np.flatnonzero(passes).tolist():
        read.setdefault(int(arrays.source[e]), []).append(int(arrays.target[e]))
    found = set[int]()
    for chain in map(str.split, chains):
        for begin, first in enumerate(chain[:-1]):
            paths = [(i, 1 << i) for i, word in enumerate(words) if word == first]
            for word in chain[begin + 1 :]:
                steps = ((j, held | 1 << j) for i, held in paths for j in read.get(i, ()))
                paths = [(j, held) for j, held in steps if words[j] == word]
                found.update(held for _, held in paths)
    within = (held for held in found if not any(held != more == held | more for more in found))
    return tuple(sorted(within))


def _kind(arrays: KernelGraph, i: int, j: int) -> Fusion | None:
    """Return what fuses a kernel ``i`` and an elementwise one ``j`` that reads it."""
    rows = arrays.row_wise[i] or arrays.row_wise[j]
    if arrays.gemm[i]:
        return None if rows else Fusion.EPILOGUE
    return Fusion.NORMALISATION if rows else Fusion.ELEMENTWISE


def _word(arrays: KernelGraph, i: int) -> str:
    """Return what a kernel is called in chains of functions."""
    adds = arrays.functions[i] == Function.ADD
    return BIAS if adds and not arrays.two_inputs[i] else arrays.functions[i]


def renumbered(mask: int, number: Mapping[int, int]) -> int:
    """Return the mask of those kernels that have a new number, by that."""
    return sum(1 << number[i] for i in bits(mask) if i in number)


def mask_of(flags: Bools) -> int:
    """Return the mask of the kernels that are flagged."""
    return sum(1 << i for i in np.flatnonzero(flags).tolist())
