"""What kernels compute with: the type of the numbers that are multiplied and added."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from crosstack.errors import require, require_whole


class Dtype(StrEnum):
    """A type of number, by the name that data sheets give its rate under.

    Numbers of ``mxfp8``, ``nvfp4`` and ``fp8-blocks`` share scales, which lie beside them: a byte
    for 32 numbers (``ocp2023mx``), for 16 (``nvidia2025nvfp4``), and four bytes for 128
    (``deepseek2024v3``, section 3.3.2).
    """

    FP64 = "fp64"
    FP32 = "fp32"
    TF32 = "tf32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    FP4 = "fp4"
    MXFP8 = "mxfp8"
    NVFP4 = "nvfp4"
    FP8_BLOCKS = "fp8-blocks"
    INT8 = "int8"
    INT32 = "int32"

    @property
    def size(self) -> float:
        """Bytes of one element, whose bits are in the name, with its share of a scale. [B]"""
        return self.unscaled_size + _SCALES.get(self, 0.0)

    @property
    def unscaled_size(self) -> float:
        """Bytes of one element without scales. [B]"""
        return int("".join(filter(str.isdigit, self))) / 8

    @property
    def scaled(self) -> bool:
        """Whether some numbers share a scale that lies beside them."""
        return self in _SCALES

    @property
    def multiplied_as(self) -> Dtype:
        """The type whose rate products of it have, where no data sheet gives one of its own."""
        return Dtype.FP8 if self is Dtype.FP8_BLOCKS else self

    @property
    def floating(self) -> bool:
        """Whether it is of floating-point numbers."""
        return not self.startswith("int")

    @property
    def accumulator(self) -> Dtype | None:
        """What products are usually added up in; None of integers."""
        if self in (Dtype.INT8, Dtype.INT32):
            return None
        return Dtype.FP64 if self is Dtype.FP64 else Dtype.FP32


_SCALES = {Dtype.MXFP8: 1 / 32, Dtype.NVFP4: 1 / 16, Dtype.FP8_BLOCKS: 4 / 128}  # [B]


def dtype_of_size(size: float, among: Iterable[Dtype] = ()) -> Dtype:
    """Return the usual type with elements of ``size`` [B], ``among`` some where any are given.

    Raises
    ------
    InputError
        If no type there has elements of that size, at an empty path.
    """
    known = tuple(among) or tuple(d for d in Dtype if not d.scaled)
    usual = (Dtype.BF16, Dtype.FP32, Dtype.FP8)
    found = sorted((d for d in known if d.size == size), key=lambda d: d not in usual)
    sizes = ", ".join(f"{each:g}" for each in sorted({d.size for d in known}))
    require(bool(found), "", size, f"bytes of an element: {sizes}")
    return found[0]


def dtype_of_word(word: int) -> Dtype:
    """Return what elements of ``word`` bytes are computed with where nothing else is said.

    The floating-point type that fills the word: ``fp8``, ``bf16``, ``fp32``, ``fp64``; a word
    between two takes the wider, and none is wider than ``fp64``.

    Raises `InputError` if ``word`` is no whole number above 0.
    """
    require_whole("word", word, what="bytes")
    filled = ((1, Dtype.FP8), (2, Dtype.BF16), (4, Dtype.FP32))
    return next((dtype for size, dtype in filled if word <= size), Dtype.FP64)


def dtype_of_complex(word: int) -> Dtype:
    """Return what complex numbers of ``word`` bytes are computed with: numbers of half of it."""
    return dtype_of_word(max(1, word // 2))
