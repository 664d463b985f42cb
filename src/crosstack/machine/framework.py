"""What drives the chips of a run: the kernels that a framework has fused, and its host's work.

A framework is data (``data/library/frameworks.yaml``): nothing asks for its name. What it does not
fuse is launched kernel by kernel. Its host launches them one after the other, well ahead of the
chip; where it takes longer than the chip, the chip waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from crosstack.errors import require, require_quantity, require_whole
from crosstack.records import require_types
from crosstack.workload.functions import Function
from crosstack.workload.transformer_training import ContextExchange, Schedule, Zero

BOTH = 2  # ends of a model [1]
BIAS = "bias"  # an addition of a vector that is a weight, in chains
# That of what experts make for tokens, and the gradient that comes back to it, in passes.
EXPERT_BIAS, EXPERT_BIAS_GRADIENT = "expert_bias", "expert_bias_gradient"
DIGITS = 4  # more than a count of passes has


class Fusion(StrEnum):
    """What a temporal chip may fuse into one kernel; a spatial one fuses any kernels that fit."""

    ELEMENTWISE = "elementwise"
    EPILOGUE = "epilogue"
    NORMALISATION = "normalisation"
    ATTENTION = "attention"


class AttentionProgram(StrEnum):
    """A program for attention in one kernel: which generation of FlashAttention.

    ``NEWEST``: one written for the chip. ``SECOND``: FlashAttention-2, whose instructions are those
    of an A100 on any chip. ``TRITON``: the first one in Triton.
    """

    NEWEST = "newest"
    SECOND = "flash-attention-2"
    TRITON = "flash-attention-triton"


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A framework that trains or serves, as far as time depends on it.

    Parameters
    ----------
    fusions : tuple of Fusion
        What it fuses of what a chip may fuse, whatever the functions.
    chains : tuple of str
        Functions that it has one kernel for besides, such as ``bias dropout add``: each reads what
        the one before makes. Words of `crosstack.workload.functions.Function`, and ``bias``.
    dispatch : float or None
        Time that its host takes to launch a kernel; None: launches are recorded once and replayed
        (CUDA graphs), and the host does not matter. [s]
    checks : float
        Time that its host takes to check that tensor-parallel chips agree on what they send, in a
        layer, forward and backward, for each of those chips. [s]
    uneven_stages : bool
        Whether stages of a pipeline may hold different numbers of layers.
    ends_as_layers : int
        Where they may not: how many of the first and the last stage may have the embedding, or the
        head, in the place of a layer; 0, 1 (the last) or 2. [1]
    attention : AttentionProgram
        Which program for attention in one kernel it runs.
    tokens_once : bool
        Whether a token goes to each chip, and each server, once, however many of its experts are
        there, and is copied there.
    experts_apart : bool
        Whether a host launches the products of each expert of a chip by themselves.
    fused_sums : bool
        Whether products that make gradients of weights add them to those of earlier microbatches;
        else a kernel of its own does.
    sent_passes : float
        How often gradients of weights move through main memory besides each time that data-parallel
        chips send them: joined, divided, copied back. [1]
    buckets : bool
        Whether gradients as products make them lie beside those that are kept in another type,
        where data-parallel chips sum them.
    set_aside : float
        What it has of the main memory of every chip besides tensors: the driver's context, and
        buffers of communicators. [B]
    passes : tuple of str
        Functions that several kernels compute, and how often those move as much as the first
        operand to or from main memory beyond one that reads operands and writes its result:
        ``cross_entropy 7``. Besides functions ``expert_bias``, the addition of a bias to what
        experts make, and ``expert_bias_gradient``, that of what comes back to it. [1]
    launches : tuple of str
        Functions that several kernels compute, and how many more its host launches for each than
        one: ``softmax 4``. [1]
    keeps : tuple of str
        Functions of which kernels keep more for the backward pass than that needs, and how many
        tensors as large as the result that is: ``gated_silu 1``. [1]
    sharing : tuple of Zero
        What data-parallel chips have shares of; empty: whatever is asked.
    schedules : tuple of Schedule
        In which orders stages of a pipeline may take microbatches; empty: in any.
    contexts, window_contexts : tuple of ContextExchange
        How chips that share sequences come to keys and values, and how where tokens look at a
        window of keys; empty: any way.
    """

    name: str = "framework"
    fusions: tuple[Fusion, ...] = ()
    chains: tuple[str, ...] = ()
    dispatch: float | None = None
    checks: float = 0.0
    uneven_stages: bool = False
    ends_as_layers: int = 0
    attention: AttentionProgram = AttentionProgram.NEWEST
    tokens_once: bool = False
    experts_apart: bool = False
    fused_sums: bool = True
    sent_passes: float = 0.0
    buckets: bool = False
    set_aside: float = 0.0
    passes: tuple[str, ...] = ()
    launches: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()
    sharing: tuple[Zero, ...] = ()
    schedules: tuple[Schedule, ...] = ()
    contexts: tuple[ContextExchange, ...] = ()
    window_contexts: tuple[ContextExchange, ...] = ()

    def __post_init__(self) -> None:
        """Check every field."""
        require_types(self)
        known = {BIAS, *(function.value for function in Function)}
        apart = {EXPERT_BIAS, EXPERT_BIAS_GRADIENT}
        for i, chain in enumerate(self.chains):
            words = chain.split()
            good = len(words) > 1 and known.issuperset(words)
            good = good and Function.PRODUCT not in words[1:]
            allowed = "two functions or more, such as bias gelu, a product at the start alone"
            require(good, f"chains[{i}]", chain, allowed)
        functions = known - {BIAS}
        counted = {"passes": functions | apart, "launches": functions, "keeps": functions}
        for name, allows in counted.items():
            for i, text in enumerate(getattr(self, name)):
                word, _, count = text.partition(" ")
                good = word in allows and count.isdecimal() and len(count) < DIGITS
                require(good, f"{name}[{i}]", text, "a function and a number, as gated_silu 2")
        require_quantity("sent_passes", self.sent_passes, "1")
        require_quantity("set_aside", self.set_aside, "B")
        require_quantity("checks", self.checks, "s")
        require_whole("ends_as_layers", self.ends_as_layers, minimum=0)
        require(self.ends_as_layers <= BOTH, "ends_as_layers", self.ends_as_layers, "0, 1 or 2")
        if self.dispatch is not None:
            require_quantity("dispatch", self.dispatch, "s")


@lru_cache(maxsize=64)
def counts_of(texts: tuple[str, ...]) -> dict[str, float]:
    """Return the number behind each function of ``passes``, ``launches`` or ``keeps``. [1]"""
    pairs = (text.split() for text in texts)
    return {function: float(count) for function, count in pairs}
