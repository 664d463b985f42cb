"""What an attention takes that is one kernel: units of a multiprocessor beside each other.

A multiprocessor works on tiles of 128 queries, and for each passes over the keys that they look at.
For every pair of a query and a key of a head it takes

* the tensor cores: the products, two forward, five backward (scores once more, and the gradients of
  values, weights, queries and keys), or, if that is longer, the memory of the multiprocessor that
  they read operands from: one for every 16 rows where they have theirs in registers, backward the
  other one, too;
* one exponential, of which a multiprocessor has a few each cycle (`Compute.exponentials`);
* numbers in single precision beside the tensor cores: a difference, the greatest, a sum and a
  turning into 16 bits forward; five such backward;
* backward the second level of memory: gradients of queries are added up there, read and written
  for every 128 keys.

Where tensor cores run by themselves (`Compute.operand_rows`), two groups of warps take turns: half
of the shorter of products and of the rest hides behind the longer (``shah2024flashattention3``,
section 3: the gain of both ways to overlap). Others take one after the other
(``dao2023flashattention2``). Keys and values come from the second level beside all that. Every tile
begins and ends with what nothing hides: its queries come, the first scores are made, and results go
(``shah2024flashattention3``, figure 5: under a mask, heads of 128, from 370 TFLOP/s with 1,024 keys
to 616 with 16,384). Tiles that do not fill all multiprocessors keep some waiting; the mask cuts
through the tiles of its border, and of tiles under it the longest is as long as all keys.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crosstack.machine.chip import Chip
from crosstack.machine.memory import Scope
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernel_graph import Floats

TILE = 128  # queries, and keys, of a tile [1]
WARP_ROWS = 16  # that an instruction of a warp has of an operand in registers [1]
WARP_COLUMNS = 64  # of the other one [1]
PORT = 128.0  # of the memory of a multiprocessor in a cycle (``nvidia_cuda_guide``) [B]
FORWARD, BACKWARD = 4.0, 5.0  # operations in single precision of a pair [1]
HIDDEN = 0.5  # of the shorter of products and the rest [1]
SUM = 4.0  # bytes of a number that is added up [B]
TILE_TIME = 5e-6  # that nothing hides of a tile [s]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """What heads of an attention are like: sizes of keys and of values, and their type.

    ``products`` are the elements that all products of a pair add up, ``backward``: whether it is
    that pass. [1]
    """

    key_size: float
    value_size: float
    products: float
    dtype: Dtype
    backward: bool = False

    @classmethod
    def of(
        cls, key_size: float, value_size: float, dtype: Dtype, *, backward: bool = False
    ) -> Heads:
        """Return heads with two products forward, five backward."""
        forward = key_size + value_size
        products = 2 * forward + key_size if backward else forward
        return cls(
            key_size=key_size,
            value_size=value_size,
            products=products,
            dtype=dtype,
            backward=backward,
        )


def knows_attention(chip: Chip) -> bool:
    """Whether enough is known of a chip: exponentials, single precision, and a second level."""
    single = Dtype.FP32 in dict(chip.compute.relative_vector_rates)
    level = any(x.scope is Scope.CHIP and x.bandwidth for x in chip.levels)
    return chip.compute.exponentials > 0 and single and level


def pair_time(chip: Chip, heads: Heads) -> float:
    """Time of a multiprocessor for each pair of a query and a key of a head. [s]"""
    compute = chip.compute
    count, clock = compute.n_multiprocessors, compute.frequency
    size = heads.dtype.size
    tensor = 2 * heads.products / (chip.rate(heads.dtype) / count / clock)
    read = 1 / (compute.operand_rows or WARP_ROWS)
    if heads.backward and not compute.operand_rows:
        read += 1 / WARP_COLUMNS
    products = max(tensor, heads.products * size * read / PORT)
    lanes = chip.vector_throughput(Dtype.FP32) / 2 / count / clock
    rest = 1 / compute.exponentials + (BACKWARD if heads.backward else FORWARD) / lanes
    level = next(x for x in chip.levels if x.scope is Scope.CHIP)
    cycle = level.speed / count / clock  # of the second level [B]
    if heads.backward:
        rest += 2 * SUM * heads.key_size / TILE / cycle
    if compute.operand_rows:
        taken = max(products, rest) + (1 - HIDDEN) * min(products, rest)
    else:
        taken = products + rest
    come = (heads.key_size + heads.value_size) * size / TILE / cycle
    return max(taken, come) / clock


def waiting(chip: Chip, rows: Floats, heads: Floats, density: Floats) -> Floats:
    """How much longer than evenly shared out tiles take, by queries and heads. [1]

    Parameters
    ----------
    rows, heads : array
        Queries of a head that a chip has, and heads of all its sequences. [1]
    density : array
        Share of pairs that count: below 1 under a mask. [1]
    """
    tiles = np.maximum(np.ceil(rows / TILE) * heads, 1.0)
    each = chip.compute.n_multiprocessors / tiles
    waves = np.ceil(tiles / chip.compute.n_multiprocessors) * each
    border = 1 + (1 / density - 1) * np.minimum(TILE / np.maximum(rows, 1.0), 1.0)
    return np.asarray(np.where(density < 1, np.maximum(border, each / density), waves))


def begun(chip: Chip, rows: Floats, heads: Floats) -> Floats:
    """Time that nothing hides, of as many tiles as a multiprocessor has. [s]

    Parameters as `waiting`.
    """
    tiles = np.ceil(rows / TILE) * heads
    return np.asarray(TILE_TIME * np.maximum(tiles / chip.compute.n_multiprocessors, 1.0))
