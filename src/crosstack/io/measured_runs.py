"""Tables of training runs as they were measured: JSON, one row a line.

A row has the shape of its model, its machine, how the model was spread, and ``step_s``, the time of
a step. What a row leaves out is as its software has it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from crosstack.errors import InputError, Problem
from crosstack.evaluate.run_scores import MeasuredRun
from crosstack.io import library
from crosstack.io.measured import rows_of
from crosstack.machine.framework import Fusion
from crosstack.machine.system import Dimension, System
from crosstack.workload.architectures.layer import Activation, Norm, Position
from crosstack.workload.architectures.transformer import Transformer
from crosstack.workload.dtype import Dtype
from crosstack.workload.job import Job
from crosstack.workload.transformer_training import Hidden

NODES = {
    "A100-SXM-80GB": "a100-dgx-80gb",
    "A100-SXM-40GB": "a100-dgx-40gb",
    "H100-SXM-80GB": "h100-dgx",
    "H100": "h100-dgx",
    "B200-SXM": "b200-dgx",
    "B200": "b200-dgx",
}
# Beginnings of what software is called, and the framework that drives its chips.
SOFTWARE = {
    "Megatron": "megatron",
    "Composer": "eager",  # FSDP of PyTorch, not compiled
    "nanotron": "eager",
}
AGAIN = {"none": "none", "selective": "attention", "full": "full"}
# FP16 with its scale is as long and as fast as BF16; FP8 with current scaling has one a tensor.
DTYPES = {"fp16": Dtype.BF16, "fp8-cs": Dtype.FP8}
PADDED = 128  # rows that a vocabulary is filled up to, as Megatron does


@dataclass(frozen=True, slots=True)
class RunTable:
    """Runs by their source, and how many rows are left out for a reason."""

    sets: dict[str, list[MeasuredRun]] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)

    def leave_out(self, reason: str) -> None:
        """Count a row that is left out."""
        self.left_out[reason] = self.left_out.get(reason, 0) + 1


def is_of_runs(path: Path) -> bool:
    """Whether the first row of a table is a run, not a kernel."""
    first = next(rows_of(path), ("", {}))[1]
    return "layers" in first


def read_runs(path: Path) -> RunTable:
    """Read training runs that were timed, but for those with experts or latent attention.

    Raises
    ------
    InputError
        If the file cannot be read, or a row is not one.
    """
    table = RunTable()
    for where, row in rows_of(path):
        if not row.get("step_s"):
            table.leave_out("no time")
        elif row.get("experts") or row.get("mla"):
            table.leave_out("experts or latent attention")
        elif row.get("precision") not in (*Dtype, *DTYPES):
            table.leave_out(f"precision {row.get('precision')}")
        elif row.get("hardware") not in NODES:
            table.leave_out(f"{row.get('hardware')}, no node of the library")
        else:
            _add(table, row, where)
    return table


def _add(table: RunTable, row: Mapping[str, Any], where: str) -> None:
    try:
        run = _run(row)
    except KeyError as error:
        table.leave_out(f"no {error.args[0]} said")
    except TypeError as error:
        raise InputError(Problem(where, f"got what is none: {error}; allowed: numbers.")) from error
    else:
        table.sets.setdefault(run.source, []).append(run)


def _run(row: Mapping[str, Any]) -> MeasuredRun:
    dtype = DTYPES.get(row["precision"]) or Dtype(row["precision"])
    return MeasuredRun(
        name=str(row["id"]),
        source=str(row["source"]),
        job=Job(model=_model(row), batch=row["global_batch"], sequence=row["seq"], dtype=dtype),
        system=_system(row),
        given=_given(row),
        time=float(row["step_s"]),
        overlap=(Hidden.SENDS,) if row.get("dp_overlap") is False else None,
    )


def _model(row: Mapping[str, Any]) -> Transformer:
    """Return the shape; GPT with biases, layer norms and learned positions, but for MPT's."""
    gpt, megatron = row["family"] == "gpt", str(row.get("software", "")).startswith("Megatron")
    learned = gpt and row["source"] != "mpt"  # which has ALiBi
    return Transformer(
        name=str(row["model"]),
        hidden=row["hidden"],
        layers=row["layers"],
        heads=row["heads"],
        kv_heads=row["kv_heads"],
        head_size=row["head_size"],
        feed_forward=row["ffn"],
        vocabulary=math.ceil(row["vocab"] / PADDED) * PADDED,
        context=row["seq"],
        gated=row["gated"],
        tied=row.get("tied", False),
        activation=Activation.GELU if gpt else Activation.SILU,
        norm=Norm.LAYER if gpt else Norm.RMS,
        position=Position.LEARNED if learned else Position.ROTARY,
        positions=row["seq"] if learned else 0,
        dropout=gpt and megatron,
        qkv_bias=learned,
        output_bias=learned,
        feed_forward_bias=learned,
    )


def _system(row: Mapping[str, Any]) -> System:
    """Return the machine, with the links that the row says, and the framework that drives it.

    A run may have measured sums of all its chips; between nodes those say what the network gave.
    """
    software = str(row.get("software", ""))
    driven = next((name for start, name in SOFTWARE.items() if software.startswith(start)), None)
    made = library.system_on(NODES[row["hardware"]], chips=row["gpus"])
    made = library.driven(made, driven) if driven else made
    chip, network = made.chip, made.network
    if (port := row.get("inter_gbytes_per_gpu")) and len(network) > 1:
        outer = tuple(replace(level, bandwidth=port * 1e9) for level in network[1:])
        network = (network[0], *outer)
    if (bus := row.get("allreduce_gbs_measured")) and len(network) > 1:
        network = (network[0], *(_measured(level, bus * 1e9, made) for level in network[1:]))
    if not row.get("flash_attention"):
        chip = replace(chip, fusions=tuple(f for f in chip.fusions if f is not Fusion.ATTENTION))
    return replace(made, chip=chip, network=network)


def _measured(level: Dimension, bus: float, system: System) -> Dimension:
    """Return a level over nodes that has what sums of all chips reached there. [B/s]

    The bandwidth on the bus of a sum over several nodes is that of all ports of a node.
    """
    reached = min(level.achieved * level.bandwidth, bus / (system.network[0].size or 1))
    return replace(level, bandwidth=reached, achieved=1.0)


def _given(row: Mapping[str, Any]) -> str:
    given = [f"{name}={row[name]}" for name in ("tp", "pp", "dp")]
    given.append(f"microbatch={row['micro_batch']}")
    if row.get("cp", 1) > 1:
        given.append(f"cp={row['cp']}")
    if row.get("fsdp") or row.get("zero") == 3:
        given.append("zero=3")
    elif row["dp"] > 1:
        given.append(f"zero={row.get('zero', 0)}")
    if row.get("recompute"):
        given.append(f"recompute={AGAIN[row['recompute']]}")
    if row["pp"] > 1:
        given.append(f"schedule=1f1b,interleave={row.get('virtual_stages', 1)}")
    return ",".join(given)
