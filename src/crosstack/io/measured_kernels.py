"""Tables of attention and of collectives as they were measured: JSON, one row a line.

An attention has ``batch``, ``query``, ``kv``, ``heads``, ``kv_heads``, ``head_size`` and perhaps
``value_size`` and ``window``; ``op`` is ``context`` or ``training forward``, ``training backward``.
A collective has ``op``, ``ranks`` and ``bytes``, those of one rank's buffer: what an all-reduce
has, an all-gather makes, and a reduce-scatter or an all-to-all begins with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crosstack.errors import InputError, Problem
from crosstack.evaluate.kernel_scores import (
    MeasuredAttention,
    MeasuredCollective,
    attention_said,
    collective_said,
    plain_attention,
    plain_collective,
    scored,
)
from crosstack.evaluate.scores import ProductScore
from crosstack.io import library
from crosstack.io.files import read_text
from crosstack.io.measured import GPUS, row_of
from crosstack.model.kernels.attention import Heads, knows_attention
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernels import Collective

NODES = {
    "A100-SXM4-80GB": "a100-dgx-80gb",
    "H100-SXM5-80GB": "h100-dgx",
    "H200-SXM5-141GB": "h200-dgx",
    "B200": "b200-dgx",
    "GB200": "gb200-nvl72",
    "GB300": "gb300-nvl72",
}
KINDS = {
    "all_reduce": Collective.ALL_REDUCE,
    "all_gather": Collective.ALL_GATHER,
    "reduce_scatter": Collective.REDUCE_SCATTER,
    "all_to_all": Collective.ALL_TO_ALL,
}
LIBRARY = "NCCL"  # whose collectives are compared; frameworks have some of their own
FEW = 64  # queries below which an attention is bound by what it reads


@dataclass(slots=True)
class _Rows:
    """What is said of the rows of one set, said plainly, and measured. [s]"""

    said: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def add(self, said: float, plain: float, time: float) -> None:
        """Add a row."""
        self.said.append(said)
        self.plain.append(plain)
        self.times.append(time)


Sets = dict[tuple[str, str], _Rows]
Left = dict[str, int]
Scored = tuple[str, str, ProductScore]


def kind_of(path: Path) -> str:
    """Return what the first row of a table is: a run, a collective, an attention or a product."""
    lines = ((n, line) for n, line in enumerate(read_text(path).splitlines(), 1) if line.strip())
    number, line = next(lines, (1, "{}"))
    row = row_of(line, f"{path}:{number}")
    for kind, named in (("run", "layers"), ("collective", "ranks"), ("attention", "kv_heads")):
        if named in row:
            return kind
    return "product"


def read_kernels(path: Path, kind: str) -> tuple[list[Scored], Left]:
    """Read and score a table of attention or of collectives.

    Returns every set as what it is of, its source, and its scores; and rows that are left out for a
    reason.

    Raises
    ------
    InputError
        If the file cannot be read, or a row is not one.
    """
    add: Callable[[Mapping[str, Any], Sets, Left], None]
    add = _add_collective if kind == "collective" else _add_attention
    sets, left = Sets(), Left()
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        row = row_of(line, where)
        try:
            add(row, sets, left)
        except KeyError as error:
            message = f"has no {error.args[0]}; allowed: one."
            raise InputError(Problem(where, message)) from error
        except (TypeError, ValueError) as error:
            message = f"got what is none: {error}; allowed: numbers."
            raise InputError(Problem(where, message)) from error
    if not sets:
        raise InputError(Problem(str(path), f"has no {kind} of what is known; allowed: one."))
    found = [
        (name, source, scored(rows.said, rows.plain, rows.times))
        for (name, source), rows in sorted(sets.items())
    ]
    return found, left


def _leave(left: Left, reason: str) -> None:
    left[reason] = left.get(reason, 0) + 1


def _source(row: Mapping[str, Any]) -> str:
    source = str(row.get("source", "")).split(":")[0]
    return f"{source}: {row['software']}" if row.get("software") else source


def _add_attention(row: Mapping[str, Any], sets: Sets, left: Left) -> None:
    gpu, op = str(row["gpu"]), str(row["op"])
    chip = library.chip(GPUS.get(gpu, gpu.lower())) if _known(gpu) else None
    if chip is None or not knows_attention(chip):
        _leave(left, f"{gpu}, not known well enough")
    elif row["query"] < FEW:
        _leave(left, f"{op} of fewer than {FEW} queries")
    else:
        measured = _attention(row)
        name = f"{gpu}, {measured.sizes.dtype}, {op}"
        rows = sets.setdefault((name, _source(row)), _Rows())
        rows.add(attention_said(measured, chip), plain_attention(measured, chip), measured.time)


def _known(gpu: str) -> bool:
    return GPUS.get(gpu, gpu.lower()) in library.names("chips")


def _attention(row: Mapping[str, Any]) -> MeasuredAttention:
    size = float(row["head_size"])
    return MeasuredAttention(
        batch=int(row["batch"]),
        queries=int(row["query"]),
        keys=int(row["kv"]),
        heads=int(row["heads"]),
        kv_heads=int(row["kv_heads"]),
        sizes=Heads.of(
            size,
            float(row.get("value_size", size)),
            Dtype(str(row["dtype"]).partition("_")[0]),
            backward="backward" in str(row["op"]),
        ),
        time=float(row["time_s"]),
        window=int(row.get("window") or 0),
    )


def _add_collective(row: Mapping[str, Any], sets: Sets, left: Left) -> None:
    gpu, kind = str(row["gpu"]), KINDS[str(row["op"])]
    if gpu not in NODES:
        _leave(left, f"{gpu}, no node of the library")
        return
    if row.get("kernel", LIBRARY) != LIBRARY:
        _leave(left, f"{row['kernel']}, no collective of {LIBRARY}")
        return
    ranks = int(row["ranks"])
    each = ranks if kind is Collective.ALL_TO_ALL else 1  # of what one rank begins with
    measured = MeasuredCollective(
        kind=kind, ranks=ranks, size=float(row["bytes"]) * each, time=float(row["time_s"])
    )
    system = library.system_on(NODES[gpu], chips=ranks)
    rows = sets.setdefault((f"{gpu}, {row['op']} of {ranks}", LIBRARY), _Rows())
    rows.add(collective_said(measured, system), plain_collective(measured, system), measured.time)
