"""What products of an attention take where it is one kernel, as shares of what that takes.

Kernels of an attention have shares of the time of the whole (`crosstack.model.kernels.attention`)
by their operations, so that all of them together take it; what is between the products has none.
Of few queries, as where tokens are written one by one, the keys and values that are read count, and
products are timed as they are.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from crosstack.machine.chip import Chip
from crosstack.model.kernels.attention import TILE, Heads, begun, waiting
from crosstack.model.kernels.clock import KernelClock
from crosstack.model.legality import Legality
from crosstack.workload.kernel_graph import Floats, Ints, KernelGraph, bits

FEW = TILE // 2  # queries below which products are timed as they are [1]


@lru_cache(maxsize=256)
def _known(
    arrays: KernelGraph, legality: Legality, chip: Chip, clock: KernelClock
) -> tuple[Floats, Floats, Floats] | None:
    """Return time by operation of each kernel [s/FLOP], its queries of a head, and its share. [1]

    Shape (n,) each, NaN of kernels of no attention; None where there is none.
    """
    rate, queries, shares = np.full((3, arrays.n), np.nan)
    for first, held in legality.attentions:
        group = bits(held)
        pairs = max(float(arrays.rows[i] * arrays.columns[i]) for i in group if not arrays.gemm[i])
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
        if arrays.m[key] < FEW or (pair := clock.attention(chip, heads)) is None:
            continue
        rate[group] = 0.0
        rate[products] = pair / (2 * total) / chip.compute.n_multiprocessors
        queries[group] = arrays.m[key]
        shares[group] = [size.get(i, 0.0) / total for i in group]
    return None if np.isnan(rate).all() else (rate, queries, shares)


def attention_work(
    arrays: KernelGraph,
    legality: Legality,
    chip: Chip,
    clock: KernelClock,
    *,
    row: Ints,
    rows: Floats,
    work: Floats,
    counted: Floats,
    sequences: Floats,
) -> Floats:
    """Return the time of the device of choices of kernels of attentions; NaN of others. [s]

    Parameters
    ----------
    row, rows, work : array, shape (choices,)
        Kernel of each, outer x M that one chip works on [1], and operations that count [FLOP], of
        one sequence.
    counted : array, shape (choices,)
        Share of pairs that counts. [1]
    sequences : array, shape (choices,)
        Of a microbatch. [1]
    """
    known = _known(arrays, legality, chip, clock)
    if known is None:
        return np.full(len(row), np.nan)
    rate, queries, share = (column[row] for column in known)
    found, those = np.full(len(row), np.nan), ~np.isnan(rate)
    whole = arrays.m[row]
    # A part of a head's queries, where they are split.
    own = (queries * np.minimum(rows / whole, 1.0))[those]
    heads = (np.maximum(rows / whole, 1.0) * sequences)[those]
    longer = waiting(chip, own, heads, counted[those])
    once = share[those] * begun(chip, own, heads) / sequences[those]
    found[those] = (rate * work)[those] * longer + once
    return found
