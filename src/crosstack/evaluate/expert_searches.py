"""Layers of experts whose search of tiles was lost, as TensorRT-LLM's were measured.

The source searches the tiles of a layer before it times it, and keeps what it finds in a file that
it names by the type, the hidden size, and the width of an expert and the experts of one chip
(``aiconfigurator_collector``, collect_moe.py). It searches only where there is no file yet whose
name begins so, and takes the first that does. What was found there for a layer with other experts
a token, or spread otherwise, does not hold for this one, and the first tile of the list runs.

Layers are measured in a shuffled order, so that of n layers that share a name each is the first
with odds of 1/n: a search is taken as lost where another layer has the name. Which order it was is
not said; where it was this layer's file, what is said here is too long.
"""

from __future__ import annotations

from functools import lru_cache

# Hidden size, width, experts of a token and experts of the models that the source measures in
# numbers of 16 and of 8 bits (``aiconfigurator_collector``, collector/cases/models). [1]
MODELS = (
    (2048, 512, 8, 256),
    (2048, 768, 8, 128),
    (2688, 1856, 6, 128),
    (3072, 1024, 8, 256),
    (3072, 1536, 8, 256),
    (4096, 1024, 10, 512),
    (4096, 1536, 8, 128),
    (4096, 2048, 8, 256),
    (4096, 2688, 22, 512),
    (5120, 8192, 1, 16),
    (5120, 8192, 1, 128),
    (6144, 2048, 8, 256),
    (6144, 2560, 8, 160),
    (7168, 2048, 8, 256),
    (7168, 2048, 8, 384),
    (8192, 5120, 22, 512),
)
MOST_TP, MOST_CHIPS = 32, 256  # chips of an expert, and of a layer, at most (the same) [1]


def search_is_lost(hidden: int, wide: int, topk: int, experts: int, tp: int, ep: int) -> bool:
    """Whether another layer of the source has a file whose name begins as this one's.

    Parameters
    ----------
    hidden, wide : int
        Sizes of a token, and of an expert on all chips. [1]
    topk, experts : int
        Experts of a token, and all of them. [1]
    tp, ep : int
        Chips of an expert, and that experts are spread over. [1]
    """
    begins, mine = str(experts // ep), (topk, experts, tp, ep)
    others = _files().get((hidden, wide // tp), [])
    return any(str(held).startswith(begins) and other != mine for held, other in others)


@lru_cache(maxsize=1)
def _files() -> dict[tuple[int, int], list[tuple[int, tuple[int, int, int, int]]]]:
    """Return experts of a chip of all layers with how they are spread, by hidden size and width."""
    found: dict[tuple[int, int], list[tuple[int, tuple[int, int, int, int]]]] = {}
    powers = [2**i for i in range(MOST_CHIPS.bit_length())]
    for hidden, wide, topk, experts in MODELS:
        for tp in (each for each in powers if each <= MOST_TP and wide % each == 0):
            for ep in (each for each in powers if each * tp <= MOST_CHIPS and experts % each == 0):
                held = experts // ep, (topk, experts, tp, ep)
                found.setdefault((hidden, wide // tp), []).append(held)
    return found
