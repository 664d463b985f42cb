"""Tables of kernels as they were measured: JSON, one row a line.

A row has ``dtype`` and ``time_s``; ``gpu`` says which chip it is of, ``source`` and ``software``
from where. ``op`` tells what it is of: a function of ``rows`` of ``cols`` elements; an attention of
``batch`` sequences with ``query`` tokens on ``kv`` keys each, of ``heads`` and ``kv_heads`` of
``head_size``, perhaps with a ``value_size``, a ``window``, ``kv_dtype`` and ``causal``; a layer of
``experts`` of which ``topk`` take each of ``tokens``, or ``groups`` of products; without one, a
product of ``m``, ``k`` and ``n``. Other fields are for people.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from crosstack.errors import CrosstackError, InputError, Problem, unknown_name
from crosstack.evaluate.attention_scores import AttentionKind, MeasuredAttention
from crosstack.evaluate.expert_scores import (
    ExpertsProgram,
    MeasuredExperts,
    MeasuredGroups,
)
from crosstack.evaluate.expert_searches import search_is_lost
from crosstack.evaluate.lane_scores import MeasuredElements
from crosstack.evaluate.product_tiles import ProductProgram
from crosstack.evaluate.scores import MeasuredProduct, Timed, Turns
from crosstack.io import library
from crosstack.io.files import read_text
from crosstack.machine.chip import Chip
from crosstack.model.kernels.attention import FEW, ROWS
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import Function

# Names of sources, where the library has another.
GPUS = {
    "A100-SXM4-80GB": "a100-sxm-80gb",
    "A100-SXM4-40GB": "a100-sxm-40gb",
    "A100-PCIe-80GB": "a100-pcie-80gb",
    "H100-SXM5-80GB": "h100-sxm",
    "H200-SXM5-141GB": "h200-sxm",
}
DTYPES = {
    "fp8_block": Dtype.FP8_BLOCKS,
    "w4a16_mxfp4": Dtype.BF16,
    "w4a8_mxfp4_mxfp8": Dtype.MXFP8,
    "int4_wo": Dtype.BF16,
}
# Bytes of weights that are narrower than what multiplies them: four bits, with a byte of scale for
# 32 numbers, or two for 128.
WEIGHTS = {"w4a16_mxfp4": 0.53125, "w4a8_mxfp4_mxfp8": 0.53125, "int4_wo": 0.515625}
FUNCTIONS = {
    "softmax": Function.SOFTMAX,
    "layernorm": Function.LAYER_NORM,
    "gelu": Function.GELU,
}
TRITON = ("vllm_fused_moe",)  # kernels of Triton that do not say so
# Attention kernels whose tiles have queries of all heads with the same keys: FlashAttention-3, also
# on an A100 (as SGLang has it), and FlashInfer; and those whose tiles are as wide for few queries,
# FlashAttention-3 (``flash_attention_3``).
PACKS = ("fa3", "flash_attention", "flashinfer")
WIDE_TILES = ("fa3", "flash_attention")
# FlashAttention-2 of keys in pages, which takes 64 queries whatever the size of a head
# (``flash_attention_2``).
NARROW_TILES = ("vllm_flash_attn",)
# TensorRT-LLM's generated programs, which FlashInfer has in vLLM, too.
GENERATED = ("torch_flow", "trtllmdecode")
SPREADS = ("flashinfer",)  # that share out all keys evenly (``ye2025flashinfer``)
FEW_TOKENS = "min_latency"  # TensorRT-LLM's mode in which generated kernels multiply experts
# What multiplies in TensorRT-LLM where that is no library (`crosstack.evaluate.product_tiles`).
PROGRAMS = {Dtype.NVFP4: ProductProgram.FP4, Dtype.FP8_BLOCKS: ProductProgram.DEEPGEMM}
# Products with weights of their own that the collector takes in turn (collect_gemm.py of each
# framework): five of TensorRT-LLM, later no more than fill the cache, else six.
ALL_TURN, FILLING, OTHERS_TURN = Turns(most=5), Turns(most=5, filling=True), Turns(most=6)
ALL_TURN_IN = " 1.0.0"  # the release of TensorRT-LLM
LISTED = (Dtype.BF16, Dtype.FP8)  # types of experts whose tiles are searched in a list
UNSEARCHED = "flashinfer_cutlass"  # experts in vLLM, for which nothing is searched
SPREAD = "hidden", "expert_ffn", "topk", "experts", "tp", "ep"
TENSORRT = "TensorRT"  # whose layers join queries, keys and values, and turn them in a second pass
FRAMEWORKS = "aic"  # whose layers are timed in graphs, with casts of what they read
WEIGHTS_STAGE = "bwd_grad_w"  # of grouped products: gradients of weights
MOST_PROBLEMS = 20


Row = MeasuredProduct | MeasuredElements | MeasuredAttention | MeasuredExperts | MeasuredGroups


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSet:
    """Kernels of one kind, ``op``, that a source measured on one chip in one type.

    ``said`` is what the source calls the type.
    """

    gpu: str
    source: str
    dtype: Dtype
    said: str
    op: str
    chip: Chip
    rows: tuple[Row, ...]

    @property
    def name(self) -> str:
        """The chip, the type, and what it is of where that is no product."""
        return ", ".join(each for each in (self.gpu, self.said, self.op) if each)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTable:
    """The sets of a table, and how many rows are left out for a reason."""

    sets: tuple[KernelSet, ...]
    left_out: Mapping[str, int]


def read_kernels(path: Path, on: Chip | None = None) -> KernelTable:
    """Read kernels that were measured.

    Parameters
    ----------
    path : Path
        Of the table.
    on : Chip, optional
        That all rows are of, whatever they say; those of chips and types that the library does not
        know are left out otherwise.

    Raises
    ------
    InputError
        If the file cannot be read, or a row is not one; up to 20 problems with their lines.
    """
    found: dict[tuple[str, str, str, str], tuple[Chip, Dtype, list[Row]]] = {}
    left: dict[str, int] = {}
    problems: list[Problem] = []
    for where, line in lines_of(path):
        try:
            row = row_of(line, where)
            gpu, source = str(row.get("gpu", on.name if on else "")), _source(row)
            dtype, chip = _dtype(row, where), on or chip_called(gpu)
            if dtype is None or chip is None or not _multiplies(chip, dtype):
                reason = gpu if chip is None else f"{row['dtype']} on {chip.name}"
                left[reason] = left.get(reason, 0) + 1
                continue
            op = str(row.get("op", ""))
            kernel = _kernel(row, op, dtype, where)
        except InputError as error:
            problems += error.problems
            if len(problems) >= MOST_PROBLEMS:
                break
            continue
        said = str(row["dtype"]) if row["dtype"] in WEIGHTS else dtype.value
        found.setdefault((gpu, source, op, said), (chip, dtype, []))[2].append(kernel)
    if problems:
        raise InputError(problems[:MOST_PROBLEMS])
    if not found:
        raise InputError(Problem(str(path), "has no kernel of a chip that is known; allowed: one."))
    sets = [
        KernelSet(
            gpu=gpu, source=source, dtype=dtype, said=said, op=op, chip=chip, rows=tuple(rows)
        )
        for (gpu, source, op, said), (chip, dtype, rows) in sorted(found.items(), key=itemgetter(0))
    ]
    return KernelTable(sets=tuple(sets), left_out=left)


def lines_of(path: Path) -> Iterator[tuple[str, str]]:
    """Return where each line of a table is that has something, and the line."""
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if line.strip():
            yield f"{path}:{number}", line


def rows_of(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return where each row of a table is, and the row; `InputError` at one that is none."""
    for where, line in lines_of(path):
        yield where, row_of(line, where)


def row_of(line: str, where: str) -> dict[str, Any]:
    """Return a row of a table, which is an object; `InputError` names where it is."""
    try:
        row = json.loads(line)
    except ValueError as error:
        raise InputError(Problem(where, f"is no JSON: {error}.")) from error
    if not isinstance(row, dict):
        raise InputError(Problem(where, "got no object; allowed: one a line."))
    return row


def _source(row: Mapping[str, Any]) -> str:
    """Return what a source is called, with the software that it measured."""
    said, software = str(row.get("source", "")).split(":")[0], row.get("software", "")
    return f"{said}: {software}" if said and software else f"{said}{software}"


def _dtype(row: Mapping[str, Any], where: str) -> Dtype | None:
    """Return the type of a row; None if there is none of that name."""
    name = row.get("dtype")
    if name is None:
        raise InputError(Problem(f"{where}: dtype", "required, but missing."))
    if name in DTYPES:
        return DTYPES[name]
    return Dtype(name) if name in list(Dtype) else None


def chip_called(gpu: str) -> Chip | None:
    """Return the chip that a row names; None if the library has none of that name."""
    name = GPUS.get(gpu, gpu.lower())
    return library.chip(name) if name in library.names("chips") else None


def _multiplies(chip: Chip, dtype: Dtype) -> bool:
    """Whether a chip has a rate for a type."""
    try:
        return chip.rate(dtype) > 0
    except CrosstackError:
        return False


def _kernel(row: Mapping[str, Any], op: str, dtype: Dtype, where: str) -> Row:
    """Return the kernel of a row."""
    if not op:
        return _product(row, dtype, where)
    if op in list(AttentionKind):
        return _attention(row, AttentionKind(op), dtype, where)
    if op == "moe":
        return _experts(row, dtype, where)
    if op == "grouped gemm":
        counts, time = _numbers(row, where, "groups", "m", "k", "n")
        gradient = row.get("gradient_dtype") if row.get("stage") == WEIGHTS_STAGE else None
        adds = gradient == Dtype.FP32  # as main gradients are
        result = _result(gradient, dtype, adds=adds)
        return MeasuredGroups(**counts, dtype=dtype, time=time, result=result)
    if op not in FUNCTIONS:
        known = [*FUNCTIONS, *AttentionKind, "moe", "grouped gemm"]
        raise InputError(unknown_name(f"{where}: op", "kernel is", op, known).problems)
    sides, time = _numbers(row, where, "rows", "cols")
    return MeasuredElements(
        function=FUNCTIONS[op], rows=sides["rows"], columns=sides["cols"], dtype=dtype, time=time
    )


def _attention(
    row: Mapping[str, Any], kind: AttentionKind, dtype: Dtype, where: str
) -> MeasuredAttention:
    names = ["batch", "query", "kv", "heads", "kv_heads", "head_size"]
    names += [name for name in ("value_size", "window") if name in row]
    counts, time = _numbers(row, where, *names)
    counts = {"value_size": counts["head_size"], "window": counts["kv"], **counts}
    if counts["query"] > counts["kv"]:
        allowed = f"at most kv, {counts['kv']}"
        raise InputError(Problem(f"{where}: query", f"got {counts['query']}; allowed: {allowed}."))
    framework, turns = _source(row).startswith(FRAMEWORKS), TENSORRT in str(row.get("software", ""))
    kept, kernel = row.get("kv_dtype"), str(row.get("kernel", ""))
    return MeasuredAttention(
        kind=kind,
        **counts,
        causal=bool(row.get("causal", True)),
        dtype=dtype,
        kv_element=Dtype.BF16.size if kept is None else Dtype(kept).size,
        time=time,
        timed=Timed.GRAPH if framework else Timed.LOOP,
        turned=(2 if turns else 1) if framework else 0,
        packs=framework and kernel.endswith(PACKS),
        spread=kernel.endswith(SPREADS),
        narrow=kernel.endswith(NARROW_TILES),
        generated=kernel.endswith(GENERATED),
        few=ROWS if kernel.endswith(WIDE_TILES) else FEW,
    )


def _experts(row: Mapping[str, Any], dtype: Dtype, where: str) -> MeasuredExperts:
    names = ("tokens", "hidden", "expert_ffn", "topk", "experts", "tp", "ep")
    counts, time = _numbers(row, where, *names)
    if counts["experts"] % counts["ep"]:
        allowed = f"a divisor of experts, {counts['experts']}"
        raise InputError(Problem(f"{where}: ep", f"got {counts['ep']}; allowed: {allowed}."))
    routing, kernel = str(row.get("routing", "balanced")), str(row.get("kernel", ""))
    law = re.fullmatch(r"power_law_(\d+(\.\d+)?)", routing)
    if law is None and routing != "balanced":
        allowed = "balanced, or power_law_ and its exponent, such as power_law_1.2"
        raise InputError(Problem(f"{where}: routing", f"got {routing!r}; allowed: {allowed}."))
    return MeasuredExperts(
        **counts,
        exponent=float(law[1]) if law else None,
        gated="nongated" not in kernel,
        dtype=dtype,
        weight=WEIGHTS.get(str(row["dtype"]), dtype.size),
        program=_program(str(row["dtype"]), kernel),
        time=time,
        searched=_searched(row, counts, dtype),
    )


def _searched(row: Mapping[str, Any], counts: Mapping[str, int], dtype: Dtype) -> bool:
    """Whether tiles of a layer of experts were searched, in types whose kernels have a list."""
    if dtype not in LISTED:
        return True
    if TENSORRT in str(row.get("software", "")):
        return not search_is_lost(*(counts[name] for name in SPREAD))
    return UNSEARCHED not in str(row.get("kernel", ""))


def _program(said: str, kernel: str) -> ExpertsProgram:
    """Return what multiplies in a kernel, whose weights are of a type."""
    if said == "w4a16_mxfp4":
        return ExpertsProgram.MXFP4
    if "marlin" in kernel:
        return ExpertsProgram.MARLIN
    if kernel.endswith(FEW_TOKENS):
        return ExpertsProgram.GENERATED
    fused = "triton" in kernel or kernel in TRITON
    return ExpertsProgram.FUSED if fused else ExpertsProgram.LIBRARY


def wrong_numbers(row: Mapping[str, Any], where: str, counts: Mapping[str, int]) -> list[Problem]:
    """Return what is wrong with counts of a row, by name with the least, and with its time."""
    problems = []
    for name, least in counts.items():
        count = row.get(name)
        if not isinstance(count, int) or isinstance(count, bool) or count < least:
            allowed = f"{least}, {least + 1}, {least + 2} ..."
            problems.append(Problem(f"{where}: {name}", f"got {count!r}; allowed: {allowed}"))
    time = row.get("time_s")
    if not isinstance(time, int | float) or isinstance(time, bool) or not 0 < time < math.inf:
        problems.append(Problem(f"{where}: time_s", f"got {time!r}; allowed: seconds, above 0."))
    return problems


def _numbers(row: Mapping[str, Any], where: str, *counts: str) -> tuple[dict[str, int], float]:
    """Return counts of a row, 1 or more, by name, and its time. [1], [s]

    Raises `InputError` with all that are wrong.
    """
    if problems := wrong_numbers(row, where, dict.fromkeys(counts, 1)):
        raise InputError(problems)
    return {name: row[name] for name in counts}, float(row["time_s"])


def _product(row: Mapping[str, Any], dtype: Dtype, where: str) -> MeasuredProduct:
    sides, time = _numbers(row, where, "m", "k", "n")
    framework = _source(row).startswith(FRAMEWORKS)
    known = PROGRAMS if framework and TENSORRT in str(row.get("software", "")) else {}
    return MeasuredProduct(
        **sides,
        dtype=dtype,
        time=time,
        timed=Timed.GRAPH if framework else Timed.LOOP,
        cast=framework and dtype.size < Dtype.BF16.size,
        result=_result(row.get("out_dtype"), dtype, adds=bool(row.get("accumulate"))),
        program=known.get(dtype, ProductProgram.LIBRARY),
        turns=_turns(str(row.get("software", ""))) if framework else None,
    )


def _turns(software: str) -> Turns:
    """Return how many products calls take in turn (``aiconfigurator_collector``)."""
    if TENSORRT not in software:
        return OTHERS_TURN
    return ALL_TURN if software.endswith(ALL_TURN_IN) else FILLING


def _result(said: Any, dtype: Dtype, *, adds: bool) -> float:
    """Return what moves of a number of a result: 16 bits or more, twice if it is added to. [B]"""
    size = Dtype(said).size if said in list(Dtype) else max(dtype.size, Dtype.BF16.size)
    return size * (2 if adds else 1)
