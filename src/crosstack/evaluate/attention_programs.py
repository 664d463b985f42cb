"""Which programs TensorRT-LLM runs for attention, the kernels before them, and other tiles.

TensorRT-LLM's source says which (``tensorrt_llm_attention``). For tokens, on chips without pairs of
multiprocessors, one that takes heads on the same keys together (XQA), of which Hopper has one of
its own for keys of eight bits, or an older one with a block for every head (MMHA); on chips with
pairs generated ones, or the older one. Heads of 512 go to FlashInfer, which only appends to a
cache. Tiles of FlashAttention-3 are those of its source (``flash_attention_3``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crosstack.machine.chip import Chip
from crosstack.model.kernels.attention import ROWS
from crosstack.model.kernels.lanes import Instructions, element_time
from crosstack.workload.kernel_graph import Bools, Floats

MOST_PACKED = 32  # heads on the same keys that are taken together [1]
NARROW = 2.0  # bytes of a number of keys, below which Hopper's own program runs [B]
HISTORY = 128  # earlier keys of a block at least, where a program is chosen [1]
ENOUGH = 4  # blocks times this are as many as multiprocessors, where heads are taken together [1]
# Instructions of lanes for a number of keys or values, where a block has a head: two numbers made
# single precision and multiplied of keys, one of values; in 8 bits turned into half, single and 16
# bits before, two conversions a number, for which there are half as many units
# (``nvidia_cuda_guide``).
MULTIPLIED = Instructions((3 + 2) / 2)
TURNED = Instructions(2 * 2)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tokens:
    """Attentions of one token each; arrays are (rows,).

    ``heads`` of queries and ``groups`` of keys, of ``batch`` sequences of ``keys``; bytes of an
    ``element`` of keys; whether a window leaves keys out.
    """

    batch: Floats
    heads: Floats
    groups: Floats
    keys: Floats
    element: Floats
    windowed: Bools


def takes_single_heads(chip: Chip, tokens: Tokens) -> Bools:
    """Whether the program for tokens has a block for every head, so that keys are read for each.

    So where too many heads have the same keys. Without pairs of multiprocessors also where no heads
    share keys, and of keys of 16 bits where a window meets them and where blocks are few.
    """
    single = tokens.heads / tokens.groups > MOST_PACKED
    if chip.compute.paired > 1:
        return single
    parts = np.maximum((tokens.keys - 1) // HISTORY, 1)
    few = tokens.batch * tokens.groups * parts * ENOUGH < chip.compute.n_multiprocessors
    wide = tokens.element >= NARROW
    alone = tokens.heads == tokens.groups
    found: Bools = np.logical_or.reduce([single, alone, wide & tokens.windowed, wide & few])
    return found


def turns_before(chip: Chip, tokens: Tokens) -> Bools:
    """Whether a kernel before that of tokens turns queries and writes new keys to their cache.

    The program that takes single heads does so itself, and so does Hopper's own.
    """
    own = (chip.compute.operand_rows > 0) & (chip.compute.paired == 1)
    together = ~takes_single_heads(chip, tokens)
    return together & ~(own & (tokens.element < NARROW))


def lane_time(chip: Chip, tokens: Tokens, numbers: Floats) -> Floats:
    """Time of lanes that multiply ``numbers`` of keys and values of all heads, one by one. [s]

    Zero where heads are taken together, as arrays multiply then.
    """
    single = takes_single_heads(chip, tokens)
    each = element_time(chip, MULTIPLIED) + (tokens.element < NARROW) * element_time(chip, TURNED)
    return single * numbers * each


# Keys of a block of FlashAttention-3 by the largest size of a head: of arrays that read registers,
# where keys are whole and where they are split; of others in 16 bits, without a window and with
# one, and in 8 bits. [1]
SIZES = 64, 96, 128, 192
INTO_REGISTERS = np.array([[112, 64, 64, 64, 64], [80, 48, 112, 64, 64]])
FROM_MEMORY = {
    2.0: np.array([[160, 128, 128, 96, 80], [160, 128, 128, 96, 64]]),
    1.0: np.array([[160, 128, 160, 160, 128], [160, 128, 160, 128, 64]]),
}
TALL = 192  # queries of a tile of the smallest heads, where arrays read memory [1]


def flash_tile(
    chip: Chip, size: Floats, element: Floats, windowed: Bools, split: Bools
) -> tuple[Floats, Floats]:
    """Return queries of a tile of FlashAttention-3 and keys of a block. [1]

    Parameters
    ----------
    size, element : array
        Of a head [1], and bytes of a number of keys. [B]
    windowed, split : array of bool
        Whether a window leaves keys out, and whether those of a tile are split.
    """
    place = np.searchsorted(SIZES, size)
    if not chip.compute.operand_rows:
        return np.full_like(size, ROWS), INTO_REGISTERS[split.astype(int), place].astype(float)
    both = {width: table[windowed.astype(int), place] for width, table in FROM_MEMORY.items()}
    keys = np.where(element < NARROW, both[1.0], both[2.0]).astype(float)
    return np.where(size <= SIZES[0], float(TALL), float(ROWS)), keys
