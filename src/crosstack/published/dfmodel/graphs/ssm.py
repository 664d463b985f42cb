"""Layers that replace attention: selective state spaces and long convolutions.

`mamba` is a block of ``gu2023mamba``, `hyena` an operator of order 2 of ``poli2023hyena`` with its
projections; both forward.
"""

from __future__ import annotations

import math
from enum import StrEnum

from crosstack.errors import require, require_whole
from crosstack.published.dfmodel.graphs.builders import Chain, product_of
from crosstack.workload.kernels import Axis, Kernel, KernelKind
from crosstack.workload.ssm_graph import Convolution
from crosstack.workload.workload import Workload


class Scan(StrEnum):
    """How a linear recurrence along the sequence is computed.

    ``serial``: step by step, a multiply and an add each. ``parallel``: as prefixes of pairs, two
    sweeps over a tree, three operations a pair and sweep (``blelloch1990prefix``).
    """

    SERIAL = "serial"
    PARALLEL = "parallel"


SCAN_OPERATIONS = {Scan.SERIAL: 2, Scan.PARALLEL: 6}


class _Draft(Chain):
    """A chain whose elementwise kernels have several operations on each number."""

    def vector(
        self, name: str, width: int, *reads: str, each: int = 1, points: int | None = None
    ) -> None:
        """Add ``each`` operations on each of ``width`` x ``length`` numbers.

        With ``points`` in place of the length the sequence has to be there as a whole.
        """
        whole = points is not None
        rows, tiling = whole or name == "Norm", Axis.NONE if whole else Axis.N
        self.point(
            name, width, *reads, length=points, operations=each, tiling=tiling, row_wise=rows
        )


def _check(scan: str, **values: int) -> Scan:
    """Raise `InputError` for what is no whole number, or a filter longer than the sequence."""
    for name, value in values.items():
        require_whole(name, value)
    length, taps = values["sequence_length"], values["filter_size"]
    require(taps <= length, "filter_size", taps, f"at most the sequence of {length}")
    require(scan in list(Scan), "scan", scan, f"one of {', '.join(Scan)}")
    return Scan(scan)


def mamba(
    *,
    hidden: int,
    sequence_length: int,
    n_layers: int = 1,
    global_batch_size: int = 1,
    state_size: int = 16,
    expansion: int = 2,
    filter_size: int = 4,
    step_rank: int | None = None,
    scan: Scan = Scan.PARALLEL,
    word: int = 2,
    name: str = "mamba",
) -> Workload:
    """Return a model of Mamba blocks, forward: 16 kernels and 18 edges a layer.

    Parameters
    ----------
    hidden, sequence_length, n_layers, global_batch_size : int
        Model width, tokens of a sequence, layers, sequences of one iteration. [1]
    state_size : int
        States of one channel. [1]
    expansion : int
        Channels inside over model width. [1]
    filter_size : int
        Taps of the short convolution. [1]
    step_rank : int, optional
        Rank of the projection to step sizes; ``hidden / 16`` rounded up if left out. [1]
    scan : Scan
        How the recurrence is computed.
    word : int
        Bytes of one element. [B]

    Raises
    ------
    InputError
        If a number is not a whole number above 0, or the filter is longer than the sequence.

    Notes
    -----
    With D = ``expansion hidden`` channels, S states and L tokens the recurrence keeps D S L
    numbers and costs 2 or 6 operations on each; making them and reading them out, 3 and 2.

    References
    ----------
    gu2023mamba, blelloch1990prefix
    """
    rank = -(-hidden // 16) if step_rank is None else step_rank
    scan = _check(
        scan, hidden=hidden, sequence_length=sequence_length, state_size=state_size,
        expansion=expansion, filter_size=filter_size, step_rank=rank, word=word,
    )  # fmt: skip
    inner, kept = expansion * hidden, expansion * hidden * state_size
    c = _Draft(sequence_length, word)
    c.vector("Add_Prev_Layer", hidden)
    c.vector("Norm", hidden, "Add_Prev_Layer", each=4)
    c.project("In_Proj_x", (1, inner, hidden), "Norm")
    c.project("In_Proj_z", (1, inner, hidden), "Norm")
    c.vector("Conv", inner, "In_Proj_x", each=2 * filter_size)
    c.vector("SiLU_x", inner, "Conv", each=2)
    c.project("Step_Down", (1, rank, inner), "SiLU_x")
    c.project("Step_Up", (1, inner, rank), "Step_Down")
    c.vector("Softplus", inner, "Step_Up", each=2)
    c.project("State_Proj", (1, 2 * state_size, inner), "SiLU_x")
    c.vector("Discretise", kept, "Softplus", "State_Proj", each=3)
    c.vector("Scan", kept, "Discretise", each=SCAN_OPERATIONS[scan])
    c.vector("Read_Out", inner, "Scan", "State_Proj", each=2 * state_size)
    c.vector("SiLU_z", inner, "In_Proj_z", each=2)
    c.vector("Gate", inner, "Read_Out", "SiLU_z")
    c.project("Out_Proj", (1, hidden, inner), "Gate")
    return _layers(c, hidden, n_layers, global_batch_size, name)


def hyena(
    *,
    hidden: int,
    sequence_length: int,
    n_layers: int = 1,
    global_batch_size: int = 1,
    convolution: Convolution = Convolution.FFT_GEMM,
    state_size: int = 16,
    filter_size: int = 3,
    scan: Scan = Scan.PARALLEL,
    word: int = 2,
    name: str = "hyena",
) -> Workload:
    """Return a model of Hyena operators of order 2, forward.

    Parameters
    ----------
    convolution : Convolution
        How each of the two long convolutions is computed.
    state_size : int
        States of one channel, where it is a scan. [1]
    filter_size : int
        Taps of the short convolutions. [1]
    hidden, sequence_length, n_layers, global_batch_size, scan, word
        As `mamba`.

    Raises
    ------
    InputError
        As `mamba`.

    Notes
    -----
    A transform of ``2 L`` points a channel, so that the convolution does not wrap around: as two
    products of n x n by n x n complex numbers, ``n = ceil(sqrt(2 L))``, four real products each;
    or ``5 log2(2 L)`` operations a point (``bailey1990fft``). Forward, product with the
    transformed filter (6 operations a point, the filter being ready), and back.

    References
    ----------
    poli2023hyena, bailey1990fft, massaroli2023laughing
    """
    scan = _check(
        scan, hidden=hidden, sequence_length=sequence_length, state_size=state_size,
        filter_size=filter_size, word=word,
    )  # fmt: skip
    names = list(Convolution)
    require(convolution in names, "convolution", convolution, f"one of {', '.join(names)}")
    convolution = Convolution(convolution)
    c = _Draft(sequence_length, word)
    c.vector("Add_Prev_Layer", hidden)
    c.vector("Norm", hidden, "Add_Prev_Layer", each=4)
    for part in ("v", "x1", "x2"):
        c.project(f"Proj_{part}", (1, hidden, hidden), "Norm")
        c.vector(f"Conv_{part}", hidden, f"Proj_{part}", each=2 * filter_size)
    last = "Conv_v"
    for order in ("1", "2"):
        last = _long_convolution(c, last, order, hidden, convolution, state_size, scan)
        c.vector(f"Gate_{order}", hidden, last, f"Conv_x{order}")
        last = f"Gate_{order}"
    c.project("Out_Proj", (1, hidden, hidden), last)
    return _layers(c, hidden, n_layers, global_batch_size, name)


def _layers(c: _Draft, hidden: int, layers: int, batch: int, name: str) -> Workload:
    """Return ``layers`` of what was added for ``batch`` sequences."""
    return c.workload(
        hidden,
        n_layers=layers,
        global_batch_size=batch,
        name=name,
        item="sequence",
        item_part="token",
    )


def _long_convolution(
    c: _Draft,
    read: str,
    order: str,
    hidden: int,
    convolution: Convolution,
    state_size: int,
    scan: Scan,
) -> str:
    """Add one convolution as long as the sequence; return the kernel that makes its result."""
    if convolution is Convolution.SCAN:
        kept = hidden * state_size
        c.vector(f"States_{order}", kept, read)
        c.vector(f"Scan_{order}", kept, f"States_{order}", each=SCAN_OPERATIONS[scan])
        c.vector(f"Read_Out_{order}", hidden, f"Scan_{order}", each=2 * state_size)
        return f"Read_Out_{order}"
    points = 2 * c.length
    before = read
    for way in ("FFT", "Inverse_FFT"):
        if convolution is Convolution.FFT_VECTOR:
            each = math.ceil(5 * math.log2(points))
            c.vector(f"{way}_{order}", 2 * hidden, before, each=-(-each // 2), points=points)
            before = f"{way}_{order}"
        else:
            side = math.isqrt(points - 1) + 1
            for step in ("columns", "rows"):
                name = f"{way}_{order}_{step}"
                c.add(_transform(name, hidden, side, c.word), before)
                before = name
        if way == "FFT":
            c.vector(f"Filter_{order}", 2 * hidden, before, each=3, points=points)
            before = f"Filter_{order}"
    c.vector(f"Cut_{order}", hidden, before, points=c.length)
    return f"Cut_{order}"


def _transform(name: str, channels: int, side: int, word: int) -> Kernel:
    """One step of a transform of ``side``^2 points: a product with a small complex matrix.

    The matrix is a constant, no weight. A complex product is a real one of twice the rows and
    twice the depth.
    """
    shape = channels, 2 * side, 2 * side, side
    return product_of(
        name, shape, word=word, input_sizes=(0.0,), kind=KernelKind.GEMM_WEIGHT, tiling=Axis.NONE
    )
