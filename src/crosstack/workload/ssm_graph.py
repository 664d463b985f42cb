"""Layers that replace attention, over named axes: selective state spaces and long convolutions.

`mamba_graph` is a block of ``gu2023mamba``, `hyena_graph` an operator of order 2 of
``poli2023hyena`` with its projections. Layers repeat; what comes in is the input ``x``, what goes
out the last layer's ``Add``.
"""

from __future__ import annotations

import math
from enum import StrEnum

from crosstack.errors import require, require_whole, require_wholes
from crosstack.workload.axes import AxisUse, Window
from crosstack.workload.dataflow import Graph
from crosstack.workload.draft import Draft, Read
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import Function
from crosstack.workload.operations import Role

EPSILON = 1e-5
TOKENS = "batch sequence"


class Convolution(StrEnum):
    """How a convolution as long as the sequence is computed.

    ``fft_gemm``: Fourier transforms as products with small dense matrices, in the systolic array
    (``bailey1990fft``). ``fft_vector``: the same with radix-2 butterflies in the lanes.
    ``scan``: as a recurrence with a few states (``massaroli2023laughing``).
    """

    FFT_GEMM = "fft_gemm"
    FFT_VECTOR = "fft_vector"
    SCAN = "scan"


def _draft(dtype: Dtype, batch: int, sequence: int, **sizes: int) -> Draft:
    """Return a draft with the axes that both have."""
    require_wholes(
        batch=batch, sequence=sequence, layers=sizes["layer"], hidden=sizes["hidden"],
        state_size=sizes["state"], filter_size=sizes["filter_tap"], step_rank=sizes.get("rank", 1),
    )  # fmt: skip
    taps = sizes["filter_tap"]
    require(taps <= sequence, "filter_size", taps, f"at most the sequence of {sequence}")
    draft = Draft(dtype=dtype)
    draft.axis(AxisUse.TOKEN, batch=batch, sequence=sequence)
    draft.axis(position=sequence, **sizes)
    return draft


def _normed(draft: Draft) -> str:
    """Add the input of all layers and the norm that each begins with."""
    scale = draft.weight("W_Norm", "layer hidden")
    return draft.rows("Norm", Function.RMS_NORM, "x", scale, over="hidden", parameter=EPSILON)


def _short_convolution(draft: Draft, name: str, read: str, channel: str) -> str:
    """Add a causal convolution with a few taps of each channel's own."""
    taps = draft.weight(f"W_{name}", f"layer filter_tap {channel}")
    size = next(axis.size for axis in draft.axes if axis.name == "filter_tap")
    slides = Window(axis="position", at="sequence", tap="filter_tap", padding=size - 1)
    seen = draft.seen(read, f"batch position {channel}")
    return draft.convolve(name, seen, taps, f"{TOKENS} {channel}", slides)


def _project(draft: Draft, name: str, read: str, axes: str, made: str) -> str:
    """Add a product of each token with a weight of the layer."""
    weight = draft.weight(f"W_{name}", f"layer {axes} {made}")
    return draft.product(name, read, weight, f"{TOKENS} {made}")


def mamba_graph(
    *,
    hidden: int,
    sequence: int,
    layers: int = 1,
    batch: int = 1,
    state_size: int = 16,
    expansion: int = 2,
    filter_size: int = 4,
    step_rank: int | None = None,
    dtype: Dtype = Dtype.BF16,
) -> Graph:
    """Return layers of Mamba blocks, forward: 20 operations a layer.

    Parameters
    ----------
    hidden, sequence, layers, batch : int
        Model width, tokens of a sequence, layers, sequences side by side. [1]
    state_size : int
        States of one channel. [1]
    expansion : int
        Channels inside over model width. [1]
    filter_size : int
        Taps of the short convolution. [1]
    step_rank : int, optional
        Rank of the projection to step sizes; ``hidden / 16`` rounded up if left out. [1]
    dtype : Dtype
        Of every tensor.

    Raises
    ------
    InputError
        If a number is not a whole number above 0, or the filter is longer than the sequence.

    Notes
    -----
    With D = ``expansion hidden`` channels, S states and L tokens: decays and what drives the
    states, 3 operations on each of D S L numbers, their recurrence 2, reading them out a product
    of 2 D S L. How a machine computes a recurrence (step by step, or as prefixes of pairs) is not
    said.
    """
    require_whole("expansion", expansion)
    draft = _draft(
        dtype, batch, sequence, layer=layers, hidden=hidden, channel=expansion * hidden,
        state=state_size, filter_tap=filter_size,
        rank=-(-hidden // 16) if step_rank is None else step_rank,
    )  # fmt: skip
    draft.tensor("x", f"{TOKENS} hidden")

    def each(name: str, function: Function, *reads: str) -> str:
        return draft.make(name, function, *reads)

    with draft.repeated("layers", "layer", ("x", "Add")):
        norm = _normed(draft)
        inner, gate = (_project(draft, f"In_Proj_{way}", norm, "hidden", "channel") for way in "xz")
        taken = each("SiLU_x", Function.SILU, _short_convolution(draft, "Conv", inner, "channel"))
        down = _project(draft, "Step_Down", taken, "channel", "rank")
        step = each(
            "Softplus", Function.SOFTPLUS, _project(draft, "Step_Up", down, "rank", "channel")
        )
        reads, writes = (_project(draft, f"{way}_Proj", taken, "channel", "state") for way in "CB")
        rates = draft.weight("A", "layer channel state")
        decay = each(
            "Decay", Function.EXPONENTIAL, each("Exponent", Function.MULTIPLY, step, rates)
        )
        driven = each("Step_x", Function.MULTIPLY, step, taken)
        drive = each("Drive", Function.MULTIPLY, driven, writes)
        states = draft.make("Scan", Function.RECURRENCE, decay, drive, over="sequence")
        out = draft.product("Read_Out", states, reads, f"{TOKENS} channel")
        gated = each("Gate", Function.MULTIPLY, out, each("SiLU_z", Function.SILU, gate))
        each("Add", Function.ADD, _project(draft, "Out_Proj", gated, "channel", "hidden"), "x")
    return draft.graph()


def hyena_graph(
    *,
    hidden: int,
    sequence: int,
    layers: int = 1,
    batch: int = 1,
    convolution: Convolution = Convolution.FFT_GEMM,
    state_size: int = 16,
    filter_size: int = 3,
    dtype: Dtype = Dtype.BF16,
) -> Graph:
    """Return layers of Hyena operators of order 2, forward.

    Parameters
    ----------
    convolution : Convolution
        How each of the two long convolutions is computed: as a recurrence, or by Fourier
        transforms that are products.
    state_size : int
        States of one channel, where it is a recurrence. [1]
    filter_size : int
        Taps of the short convolutions. [1]
    hidden, sequence, layers, batch, dtype
        As `mamba_graph`.

    Raises
    ------
    InputError
        As `mamba_graph`; and for transforms as butterflies, which are no operations over axes.

    Notes
    -----
    A transform of 2 L points is one over r and one over c of them, 2 L = r c with c near the root
    that divides L (``bailey1990fft``). The half of the points that pads a sequence is zero, and the
    half that wraps around is not asked for: so the first transform adds up r / 2 real numbers, the
    last makes as many. Products of complex numbers are real ones of twice the rows and depth; the
    roots of unity between the two are part of the second's. Filters are weights, as long as the
    sequence, and transformed for every batch.
    """
    allowed = (Convolution.FFT_GEMM, Convolution.SCAN)
    require(convolution in allowed, "convolution", convolution, f"one of {', '.join(allowed)}")
    draft = _draft(
        dtype, batch, sequence, layer=layers, hidden=hidden, width=hidden,
        state=state_size, filter_tap=filter_size,
    )  # fmt: skip
    if convolution is Convolution.FFT_GEMM:
        _transform_axes(draft, sequence)
    draft.tensor("x", f"{TOKENS} hidden")
    long = _transformed if convolution is Convolution.FFT_GEMM else _recurrent
    with draft.repeated("layers", "layer", ("x", "Add")):
        norm = _normed(draft)
        parts = []
        for part in ("v", "x1", "x2"):
            projected = _project(draft, f"Proj_{part}", norm, "hidden", "width")
            parts.append(_short_convolution(draft, f"Conv_{part}", projected, "width"))
        last, *factors = parts
        for order, factor in enumerate(factors, start=1):
            convolved = long(draft, last, f"{order}")
            last = draft.make(f"Gate_{order}", Function.MULTIPLY, convolved, factor)
        out = _project(draft, "Out_Proj", last, "width", "hidden")
        draft.make("Add", Function.ADD, out, "x")
    return draft.graph()


def _recurrent(draft: Draft, read: str, order: str) -> str:
    """Add a long convolution as a recurrence of a few states a channel."""
    into, decay, out = (
        draft.weight(f"{name}_{order}", "layer width state") for name in ("B", "Decay", "C")
    )
    drive = draft.make(f"States_{order}", Function.MULTIPLY, read, into)
    states = draft.make(f"Scan_{order}", Function.RECURRENCE, decay, drive, over="sequence")
    return draft.product(f"Read_Out_{order}", states, out, f"{TOKENS} width")


# ---------------------------------------------------------------- Fourier transforms


def _transform_axes(draft: Draft, length: int) -> None:
    """Add the axes of points and frequencies, and the roots of unity."""
    root = math.sqrt(2 * length)
    divisors = (d for d in range(1, length + 1) if length % d == 0)
    columns = min(divisors, key=lambda d: abs(d - root))
    rows = 2 * length // columns
    draft.axis(part=2, other_part=2)
    draft.axis(row=rows // 2, column=columns, row_wave=rows, column_wave=columns)
    for name, axes in {
        "Roots_1": "row row_wave part",
        "Roots_2": "row_wave column part column_wave other_part",
        "Roots_3": "row_wave column_wave part column other_part",
        "Roots_4": "row_wave part row",
    }.items():
        draft.tensor(name, axes, Role.CONSTANT)


def _transformed(draft: Draft, read: str, order: str) -> str:
    """Add a long convolution as a product of Fourier transforms."""
    taps = draft.weight(f"Filter_{order}", "layer width position")
    spectrum = _forward(draft, f"Filter_FFT_{order}", draft.seen(taps, "width row column"), "width")
    points = draft.seen(read, "batch row column width")
    signal = _forward(draft, f"FFT_{order}", points, "batch width")
    waves = "row_wave column_wave part"
    both = draft.make(
        f"Filtered_{order}", Function.COMPLEX_MULTIPLY,
        draft.seen(signal, f"batch width {waves}"), draft.seen(spectrum, f"width {waves}"),
        axes=f"batch width {waves}", over="part",
    )  # fmt: skip
    rows = draft.product(
        f"Inverse_FFT_{order}_rows", both, "Roots_3", "batch width row_wave column other_part"
    )
    back = draft.seen(rows, "batch width row_wave column part")
    return draft.product(
        f"Inverse_FFT_{order}_columns", back, "Roots_4", "batch row column width",
        stored=f"{TOKENS} width",
    )  # fmt: skip


def _forward(draft: Draft, name: str, points: Read, lead: str) -> str:
    """Add the two products of a transform of real points of which the second half is zero."""
    columns = draft.product(f"{name}_columns", points, "Roots_1", f"{lead} row_wave part column")
    return draft.product(
        f"{name}_rows", columns, "Roots_2", f"{lead} row_wave column_wave other_part"
    )
