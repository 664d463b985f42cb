"""What a framework's host takes to launch the kernels of a graph, whatever the chip does.

The host runs ahead of the chip: kernels wait in a queue. Over layers that are alike, one needs

    max( time of the chip, launches x dispatch )

A framework fuses all that it can (`crosstack.model.legality`), so that launches are those of its
own kernels and do not depend on how a mapping groups them. What the backward pass computes again
is launched again. Where products of experts are launched apart (`Framework.experts_apart`), there
is one for every expert that a chip has, and so are kernels that add their biases. What a framework
says that it has more kernels for is launched as often (`Framework.launches`). Sources:
``pytorch_gpt_fast`` (a host that the chip waits for), ``gray2019graphs`` (launches that are
recorded and replayed).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from crosstack.machine.chip import Chip
from crosstack.machine.framework import counts_of
from crosstack.model.legality import legality_on, mask_of
from crosstack.model.memory import computed_again
from crosstack.model.several_kernels import launches_of_biases
from crosstack.workload.functions import Function
from crosstack.workload.kernel_graph import KernelGraph, bits
from crosstack.workload.transformer_training import Recompute


@lru_cache(maxsize=64)
def launched(arrays: KernelGraph, chip: Chip) -> tuple[int, ...]:
    """Return the kernels that a framework launches, as masks of what it fused in each.

    Attention first, then kernel after kernel with what it reads, wherever that is legal and
    closes no circle.
    """
    legality = legality_on(arrays, chip)
    groups = _Groups(arrays)
    for _, held in legality.attentions:
        if legality.allows(held):
            groups.merge(held)
    for j in arrays.order:
        for i in arrays.source[arrays.target == j].tolist():
            both = groups.of[i] | groups.of[j]
            if groups.of[i] != groups.of[j] and legality.allows(both):
                groups.merge(both)
    return tuple(dict.fromkeys(groups.of))


class _Groups:
    """Kernels of a graph in groups that can run one after the other: ``of`` has each one's mask."""

    def __init__(self, arrays: KernelGraph) -> None:
        self.of = [1 << i for i in range(arrays.n)]
        self.succs = arrays.succs

    def merge(self, mask: int) -> None:
        """Make the kernels of a mask a group, unless another would run between them."""
        reached = border = self._after(mask) & ~mask
        while border:
            further = self._after(border)
            if further & mask:
                return
            border = further & ~reached
            reached |= border
        for i in bits(mask):
            self.of[i] = mask

    def _after(self, mask: int) -> int:
        """Return all kernels of groups that read what some kernels make."""
        found = 0
        for i in bits(mask):
            for j in bits(self.succs[i] & ~found):
                found |= self.of[j]
        return found


def waits_for_host(chip: Chip) -> bool:
    """Whether launches by a host may take longer than kernels."""
    return chip.framework is not None and bool(chip.framework.dispatch)


def host_time(
    arrays: KernelGraph, chip: Chip, recompute: Recompute = Recompute.NONE, expert_parts: int = 1
) -> float:
    """Time that the host takes to launch one copy of a graph, once a microbatch. [s]

    Nothing where no framework drives the chip, or where launches are replayed. ``expert_parts``:
    among how many groups of chips experts are dealt out. [1]
    """
    dispatch = None if chip.framework is None else chip.framework.dispatch
    if not dispatch:
        return 0.0
    groups = launched(arrays, chip)
    again = mask_of(np.asarray(computed_again(arrays, recompute)))
    repeated = tuple(group for group in groups if group & again)
    count: float = len(groups) + len(repeated)
    count += sum(_more_of_functions(arrays, some, chip) for some in (groups, repeated))
    if chip.framework is not None and chip.framework.experts_apart:
        count += sum(_more_of_experts(arrays, some, expert_parts) for some in (groups, repeated))
        biases = launches_of_biases(arrays, chip).items()
        count += sum(each * max(arrays.experts[i] // expert_parts, 1) for i, each in biases)
    return count * dispatch


def check_time(chip: Chip, tensor: Any) -> Any:
    """Time that the host takes to check collectives of tensor-parallel chips, in a layer. [s]

    Nothing of one chip, and where launches are replayed. ``tensor``: how many those are. [1]
    """
    if chip.framework is None or not chip.framework.dispatch:
        return 0.0
    return np.where(np.greater(tensor, 1), chip.framework.checks * np.asarray(tensor), 0.0)


def _more_of_functions(arrays: KernelGraph, groups: tuple[int, ...], chip: Chip) -> float:
    """Return how many launches there are besides one a group: `Framework.launches`. [1]"""
    if chip.framework is None or not chip.framework.launches:
        return 0.0
    more = counts_of(chip.framework.launches)
    functions = (arrays.functions[i] for group in groups for i in bits(group))
    return sum(more.get(function, 0.0) for function in functions)


def _more_of_experts(arrays: KernelGraph, groups: tuple[int, ...], parts: int) -> float:
    """Return how many launches there are of products of experts besides one a group. [1]

    Products forward that read the same tokens, as of a gate and of what it lets through, are one
    of a wider matrix, and so are those that belong to them backward.
    """
    products = [
        i for group in groups for i in bits(group)
        if arrays.functions[i] == Function.PRODUCT and arrays.experts[i]
    ]  # fmt: skip
    forward = [i for i in products if not arrays.backward[i]]
    if not forward:
        return 0.0
    joined = len({arrays.preds[i] for i in forward}) / len(forward)
    return float(sum(joined * max(arrays.experts[i] // parts, 1) - 1 for i in products))
