"""What products of an attention take where it is one kernel, as shares of what that takes.

Kernels of an attention have shares of the time of the whole (`crosstack.model.kernels.attention`)
by their operations, so that all of them together take it; what is between the products has none.
Of few queries, as where tokens are written one by one, the keys and values that are read count, and
products are timed as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from crosstack.machine.chip import Chip
from crosstack.model.kernels.attention import TILE, Heads, begun, waiting
from crosstack.model.kernels.clock import KernelClock
from crosstack.model.legality import Legality
from crosstack.workload.kernel_graph import Floats, Ints, KernelGraph, bits

FEW = TILE // 2  # queries below which products are timed as they are [1]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Known:
    """What is known of the kernels of attentions, shape (n,) each, NaN of all others.

    ``rate``: time by operation [s/FLOP]; ``share`` of the whole kernel; ``rows``: of scores, of all
    heads, and ``queries``: those of one head at most. [1]
    """

    rate: Floats
    share: Floats
    rows: Floats
    queries: Floats


@lru_cache(maxsize=256)
def _known(
    arrays: KernelGraph, legality: Legality, chip: Chip, clock: KernelClock
) -> _Known | None:
    """Return what is known of kernels of attentions; None where no chip has a program for one."""
    rate, share, rows, queries = np.full((4, arrays.n), np.nan)
    for first, held in legality.attentions:
        group = bits(held)
        softmax = next(i for i in group if arrays.row_wise[i])
        pairs = float(arrays.rows[softmax] * arrays.columns[softmax])
        products = [i for i in group if arrays.gemm[i]]
        size = {i: float(arrays.work[i]) / 2 / pairs for i in products}
        begins = bits(first)
        key = next((i for i in begins if arrays.remade[i] >= 0), begins[0])
        others = [i for i in begins if i != key] or [i for i in products if i != key]
        total = sum(size.values())
        heads = Heads(
            key_size=size[key],
            value_size=size[others[0]] if len(others) == 1 else total - size[key],
            products=total,
            dtype=arrays.dtypes[key],
            backward=bool(arrays.backward[key]),
        )
        some = float(arrays.rows[softmax] / arrays.outer[softmax])
        if some < FEW or (pair := clock.attention(chip, heads)) is None:
            continue
        rate[group], share[group] = 0.0, [size.get(i, 0.0) / total for i in group]
        rate[products] = pair / (2 * total) / chip.compute.n_multiprocessors
        rows[group] = arrays.rows[softmax]
        queries[group] = min(some, float(arrays.columns[softmax]))
    if np.isnan(rate).all():
        return None
    return _Known(rate=rate, share=share, rows=rows, queries=queries)


def attention_work(
    arrays: KernelGraph,
    legality: Legality,
    chip: Chip,
    clock: KernelClock,
    *,
    row: Ints,
    work: Floats,
    counted: Floats,
    sequences: Floats,
) -> Floats:
    """Return the time of the device of choices of kernels of attentions; NaN of others. [s]

    Parameters
    ----------
    row, work : array, shape (choices,)
        Kernel of each, and operations of one chip that count, of one sequence. [FLOP]
    counted : array, shape (choices,)
        Share of pairs that counts. [1]
    sequences : array, shape (choices,)
        Of a microbatch. [1]
    """
    known, found = _known(arrays, legality, chip, clock), np.full(len(row), np.nan)
    if known is None:
        return found
    those = np.flatnonzero(~np.isnan(known.rate[row]))
    kernel, counts, together = row[those], counted[those], sequences[those]
    # Of all heads and queries a chip has as large a part as of the operations.
    part = work[those] / np.maximum(arrays.work[kernel] * counts, 1.0)
    queries = known.queries[kernel]
    heads = known.rows[kernel] / queries * part * together
    longer = waiting(chip, queries, heads, counts)
    once = known.share[kernel] * begun(chip, queries, heads) / together
    found[those] = known.rate[kernel] * work[those] * longer + once
    return found
