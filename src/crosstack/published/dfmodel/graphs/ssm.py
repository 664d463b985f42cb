"""Layers that replace attention: selective state spaces and long convolutions.

`mamba` is a block of ``gu2023mamba``, `hyena` an operator of order 2 of ``poli2023hyena`` with its
projections; both forward.
"""

from __future__ import annotations

import math
from dataclasses import replace
from enum import StrEnum
from typing import TypeVar

from crosstack.errors import require, require_whole
from crosstack.published.dfmodel.graphs.builders import elementwise, join, product_of
from crosstack.workload.kernels import Axis, ComputeUnit, Kernel, KernelKind
from crosstack.workload.ssm_graph import Convolution
from crosstack.workload.workload import Workload

Choice = TypeVar("Choice", bound=StrEnum)


class Scan(StrEnum):
    """How a linear recurrence along the sequence is computed.

    ``serial``: step by step, a multiply and an add each. ``parallel``: as prefixes of pairs, two
    sweeps over a tree, three operations a pair and sweep (``blelloch1990prefix``).
    """

    SERIAL = "serial"
    PARALLEL = "parallel"


SCAN_OPERATIONS = {Scan.SERIAL: 2, Scan.PARALLEL: 6}


class _Chain:
    """Kernels and edges by name, as they are written down."""

    def __init__(self, word: int) -> None:
        self.word = word
        self.kernels: list[Kernel] = []
        self.place: dict[str, int] = {}
        self.edges: list[tuple[int, int, int]] = []

    def add(self, kernel: Kernel, *reads: str) -> None:
        """Append a kernel that reads what the named kernels make, in order of its operands."""
        sizes = tuple(self.kernels[self.place[name] - 1].output_size for name in reads)
        if reads:
            kernel = replace(kernel, input_sizes=sizes)
        self.kernels.append(kernel)
        number = self.place[kernel.name] = len(self.kernels)
        self.edges += [(self.place[name], number, i) for i, name in enumerate(reads)]

    def point(
        self, name: str, width: int, length: int, *reads: str, each: int = 1, whole: bool = False
    ) -> None:
        """Add ``each`` operations on each of ``width`` x ``length`` numbers.

        ``whole``: the sequence has to be there as a whole.
        """
        kernel = elementwise(name, width, length, word=self.word, inputs=max(len(reads), 1))
        tiling = Axis.NONE if whole else Axis.N
        rows = whole or name == "Norm"
        self.add(replace(kernel, operations=each, tiling=tiling, row_wise=rows), *reads)

    def project(self, name: str, rows: int, columns: int, length: int, read: str) -> None:
        """Add a projection from ``columns`` to ``rows`` numbers a token."""
        kernel = product_of(
            name,
            (1, rows, columns, length),
            word=self.word,
            input_sizes=(0.0,),
            weight_size=float(rows * columns * self.word),
        )
        self.add(kernel, read)

    def workload(self, hidden: int, length: int, layers: int, batch: int, name: str) -> Workload:
        """Return ``layers`` of what was added, which pass on ``hidden`` x ``length`` numbers."""
        return Workload(
            graph=join(self.kernels, self.edges, self.word),
            n_layers=layers,
            global_batch_size=batch,
            sequence_length=length,
            boundary_size=float(hidden * length * self.word),
            name=name,
            item="sequence",
            item_part="token",
        )


def _choice(field: str, kind: type[Choice], value: str) -> Choice:
    """Return the choice of a name."""
    require(value in list(kind), field, value, f"one of {', '.join(kind)}")
    return kind(value)


def _check(**values: int) -> None:
    """Raise `InputError` for what is no whole number, or a filter longer than the sequence."""
    for name, value in values.items():
        require_whole(name, value)
    length, taps = values["sequence_length"], values["filter_size"]
    require(taps <= length, "filter_size", taps, f"at most the sequence of {length}")


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
    scan = _choice("scan", Scan, scan)
    rank = -(-hidden // 16) if step_rank is None else step_rank
    _check(
        hidden=hidden, sequence_length=sequence_length, state_size=state_size,
        expansion=expansion, filter_size=filter_size, step_rank=rank, word=word,
    )  # fmt: skip
    length, inner, kept = sequence_length, expansion * hidden, expansion * hidden * state_size
    c = _Chain(word)
    c.point("Add_Prev_Layer", hidden, length)
    c.point("Norm", hidden, length, "Add_Prev_Layer", each=4)
    c.project("In_Proj_x", inner, hidden, length, "Norm")
    c.project("In_Proj_z", inner, hidden, length, "Norm")
    c.point("Conv", inner, length, "In_Proj_x", each=2 * filter_size)
    c.point("SiLU_x", inner, length, "Conv", each=2)
    c.project("Step_Down", rank, inner, length, "SiLU_x")
    c.project("Step_Up", inner, rank, length, "Step_Down")
    c.point("Softplus", inner, length, "Step_Up", each=2)
    c.project("State_Proj", 2 * state_size, inner, length, "SiLU_x")
    c.point("Discretise", kept, length, "Softplus", "State_Proj", each=3)
    c.point("Scan", kept, length, "Discretise", each=SCAN_OPERATIONS[scan])
    c.point("Read_Out", inner, length, "Scan", "State_Proj", each=2 * state_size)
    c.point("SiLU_z", inner, length, "In_Proj_z", each=2)
    c.point("Gate", inner, length, "Read_Out", "SiLU_z")
    c.project("Out_Proj", hidden, inner, length, "Gate")
    return c.workload(hidden, length, n_layers, global_batch_size, name)


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
    _check(
        hidden=hidden, sequence_length=sequence_length, state_size=state_size,
        filter_size=filter_size, word=word,
    )  # fmt: skip
    scan = _choice("scan", Scan, scan)
    convolution = _choice("convolution", Convolution, convolution)
    length = sequence_length
    c = _Chain(word)
    c.point("Add_Prev_Layer", hidden, length)
    c.point("Norm", hidden, length, "Add_Prev_Layer", each=4)
    for part in ("v", "x1", "x2"):
        c.project(f"Proj_{part}", hidden, hidden, length, "Norm")
        c.point(f"Conv_{part}", hidden, length, f"Proj_{part}", each=2 * filter_size)
    last = "Conv_v"
    for order in ("1", "2"):
        last = _long_convolution(c, last, order, hidden, length, convolution, state_size, scan)
        c.point(f"Gate_{order}", hidden, length, last, f"Conv_x{order}")
        last = f"Gate_{order}"
    c.project("Out_Proj", hidden, hidden, length, last)
    return c.workload(hidden, length, n_layers, global_batch_size, name)


def _long_convolution(
    c: _Chain,
    read: str,
    order: str,
    hidden: int,
    length: int,
    convolution: Convolution,
    state_size: int,
    scan: Scan,
) -> str:
    """Add one convolution as long as the sequence; return the kernel that makes its result."""
    if convolution is Convolution.SCAN:
        kept = hidden * state_size
        c.point(f"States_{order}", kept, length, read)
        c.point(f"Scan_{order}", kept, length, f"States_{order}", each=SCAN_OPERATIONS[scan])
        c.point(f"Read_Out_{order}", hidden, length, f"Scan_{order}", each=2 * state_size)
        return f"Read_Out_{order}"
    points = 2 * length
    before = read
    for way in ("FFT", "Inverse_FFT"):
        if convolution is Convolution.FFT_VECTOR:
            each = math.ceil(5 * math.log2(points))
            c.point(f"{way}_{order}", 2 * hidden, points, before, each=-(-each // 2), whole=True)
            before = f"{way}_{order}"
        else:
            side = math.isqrt(points - 1) + 1
            for step in ("columns", "rows"):
                name = f"{way}_{order}_{step}"
                c.add(_transform(name, hidden, side, c.word), before)
                before = name
        if way == "FFT":
            c.point(f"Filter_{order}", 2 * hidden, points, before, each=3, whole=True)
            before = f"Filter_{order}"
    c.point(f"Cut_{order}", hidden, length, before, whole=True)
    return f"Cut_{order}"


def _transform(name: str, channels: int, side: int, word: int) -> Kernel:
    """One step of a transform of ``side``^2 points: a product with a small complex matrix.

    The matrix is a constant, no weight. A complex product is a real one of twice the rows and
    twice the depth.
    """
    return Kernel(
        name=name,
        kind=KernelKind.GEMM_WEIGHT,
        outer=channels,
        m=2 * side,
        k=2 * side,
        n=side,
        input_sizes=(0.0,),
        output_size=2.0 * channels * side * side * word,
        unit=ComputeUnit.SYSTOLIC,
        tiling=Axis.NONE,
    )
