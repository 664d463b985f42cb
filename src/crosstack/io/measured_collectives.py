"""Tables of collectives as they were measured: JSON, one row a line.

A row has ``op``, ``ranks``, ``bytes`` and ``time_s``; ``gpu`` says which machine it is of,
``kernel`` what ran it. ``bytes`` is the message of nccl-tests: the result of an all-gather, else
what one rank has before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crosstack.errors import InputError, Problem, unknown_name
from crosstack.evaluate.collective_scores import CollectiveSet, Library, MeasuredCollective
from crosstack.io import library
from crosstack.io.measured import MOST_PROBLEMS, rows_of, wrong_numbers
from crosstack.workload.kernels import Collective

NODES = {
    "A100-SXM4-80GB": "a100-dgx-80gb",
    "A100-SXM4-40GB": "a100-dgx-40gb",
    "H100-SXM5-80GB": "h100-dgx",
    "H200-SXM5-141GB": "h200-dgx",
    "B200": "b200-dgx",
    "GB200": "gb200-nvl72",
    "B300": "b300-hgx",
    "GB300": "gb300-nvl72",
}
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
LIBRARIES = {
    "NCCL": Library.NCCL,
    "TRTLLM": Library.TENSORRT_LLM,
    "vLLM_custom_graph": Library.VLLM,
    "vLLM_custom_eager": Library.VLLM_EAGER,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTable:
    """The sets of a table, and how many rows are left out for a reason."""

    sets: tuple[CollectiveSet, ...]
    left_out: Mapping[str, int]


def is_of_collectives(path: Path) -> bool:
    """Whether the first row of a table is a collective."""
    first = next(rows_of(path), ("", {}))[1]
    return "ranks" in first


def read_collectives(path: Path) -> CollectiveTable:
    """Read collectives that were measured on machines whose nodes the library has.

    Raises
    ------
    InputError
        If the file cannot be read, or a row is not one; up to 20 problems with their lines.
    """
    found: dict[tuple[str, int], list[MeasuredCollective]] = {}
    left: dict[str, int] = {}
    problems: list[Problem] = []
    for where, row in rows_of(path):
        gpu, kernel = str(row.get("gpu")), str(row.get("kernel", "NCCL"))
        if gpu not in NODES or kernel not in LIBRARIES:
            reason = f"{gpu}, no node of the library" if gpu not in NODES else f"run by {kernel}"
            left[reason] = left.get(reason, 0) + 1
            continue
        try:
            read = _collective(row, kernel, where)
        except InputError as error:
            problems += error.problems
            if len(problems) >= MOST_PROBLEMS:
                break
            continue
        found.setdefault((gpu, read.ranks), []).append(read)
    if problems:
        raise InputError(problems[:MOST_PROBLEMS])
    if not found:
        message = "has no collective of a machine that is known; allowed: one."
        raise InputError(Problem(str(path), message))
    sets = [
        CollectiveSet(gpu=gpu, system=library.system_on(NODES[gpu], chips=n), rows=tuple(rows))
        for (gpu, n), rows in sorted(found.items())
    ]
    return CollectiveTable(sets=tuple(sets), left_out=left)


def _collective(row: Mapping[str, Any], kernel: str, where: str) -> MeasuredCollective:
    problems = wrong_numbers(row, where, {"ranks": 2, "bytes": 1})
    op = str(row.get("op"))
    if op not in OPS:
        problems += unknown_name(f"{where}: op", "collective is", op, OPS).problems
    if problems:
        raise InputError(problems)
    return MeasuredCollective(
        collective=Collective(op),
        ranks=row["ranks"],
        size=row["bytes"],
        time=float(row["time_s"]),
        library=LIBRARIES[kernel],
    )
