"""Tables of training runs as they were measured: JSON, one row a line.

A row has the shape of its model, its machine, how the model was spread, and ``step_s``, the time of
a step. What a row leaves out is as its software has it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from crosstack.errors import InputError, Problem
from crosstack.evaluate.run_scores import MeasuredRun
from crosstack.io import library
from crosstack.io.measured import rows_of
from crosstack.io.measured_recipes import PLAIN, Recipe, recipe_of
from crosstack.machine.framework import EXPERT_BIAS, EXPERT_BIAS_GRADIENT, Framework, Fusion
from crosstack.machine.system import Dimension, System
from crosstack.workload.architectures.layer import Activation, Experts, Norm, Position
from crosstack.workload.architectures.transformer import Transformer
from crosstack.workload.dtype import Dtype
from crosstack.workload.job import Job
from crosstack.workload.transformer_training import Exchange, Hidden

NODES = {
    "A100-SXM-80GB": "a100-dgx-80gb",
    "A100-SXM-40GB": "a100-dgx-40gb",
    "H100-SXM-80GB": "h100-dgx",
    "H100": "h100-dgx",
    "B200-SXM": "b200-dgx",
    "B200": "b200-dgx",
    "GB200": "gb200-nvl72",
    "B300": "b300-hgx",
    "GB300": "gb300-nvl72",
}
# Models of which a row has the widths, but not all that they have: ranks of latent attention, norms
# of queries and keys, windows, biases of experts.
KNOWN = {
    "deepseekv2": "deepseek-v2",
    "deepseekv3": "deepseek-v3",
    "qwen3235b": "qwen3-235b-a22b",
    "gptoss120b": "gpt-oss-120b",
}
# Beginnings of what software is called, and the framework that drives its chips.
SOFTWARE = {
    "Megatron": "megatron",
    "Composer": "composer",
    "nanotron": "nanotron",
}
# What adds up gradients in single precision: Megatron with BF16, Nanotron's accumulator.
WIDE_GRADIENTS = ("Megatron-LM / TE", "nanotron")
OVERLAPPING = "Megatron-Bridge"  # whose recipes overlap what dense models send
# What computes the loss in one kernel, not in those of Megatron: recipes of Megatron-Bridge
# (`cross_entropy_loss_fusion`), and SimuMax's runs, whose names say so (cef).
FUSED_LOSS = ("Megatron-Bridge", "Megatron-LM / TE")
# What has gradients where PyTorch puts them: products add to what Megatron's own wrapper of
# data-parallel models sets aside (``nvidia_megatron_112``), and DeepSpeed wraps models itself. And
# a source of 2021, before there were products that add (``nvidia_apex_1297``).
DEEPSPEED = "Megatron-DeepSpeed"
JOINED = 6.0  # passes of gradients that are joined, scaled and copied back (``deepspeed_code``) [1]
OLDER_SUMS = "megatron-selene"
# Megatron's softmax is one kernel, scale and mask in it, where matrices of scores on a chip, of all
# heads and sequences, are a multiple of four (`is_kernel_available`, ``nvidia_megatron_softmax``).
# Else PyTorch casts, scales, masks, sums and casts back: four kernels more each way. Per score they
# move 36 bytes, not 4, and back 40, not 6, in units of the 2 of the first operand.
MATRICES = 4
APART = {"softmax": "4", "softmax_gradient": "4"}
MOVED = {"softmax": "16", "softmax_gradient": "17"}
# What sums gradients beside the backward pass, and waits until all have the weights that each chip
# updates a share of (`ZeroDistributedOptimizer.step`, ``nanotron_code``).
SUMS_ALONE = "nanotron"
# Jobs of Nanotron from January 2025 on, of several servers: their script had come to ask PyTorch to
# check every collective (TORCH_DISTRIBUTED_DEBUG=DETAIL in run_multinode.sh, which an earlier one
# has not, ``nanotron_code``). Which jobs did is not written: those of one server show none of it.
CHECKED_FROM = 14_090_000
# Before each, chips meet at the first of them (a message there and one back) and gather what they
# are about to send twice around a ring of n: ``2 n`` messages one after the other, by TCP
# (``pytorch_checks``). A layer has ten: four forward, and backward those and the inputs of two
# products gathered again. A barrier takes 250 us (``pytorch_127179``), two messages one after the
# other if among four processes, which is not said. [1], [s]
CHECKED, MESSAGES, MESSAGE = 10, 2, 125e-6
SHARED_STATE = "Megatron-Bridge"  # whose recipes use the distributed optimizer
# Clocks at which arrays may be busy all the time over that of their rates, where a source says how
# long products take on its machine: SimuMax's system file (``simumax_code``,
# configs/system/b200_bf16_ceperm.json) has 51 of 4 ms and more, which take that long at 0.45 to
# 0.52, as at a limit on power that it does not say. Their mean. [1]
SUSTAINED = {"simumax": 0.484}
# Whose launcher dispatches tokens by an all-to-all of every copy (``simumax_code``,
# run_pretrain_deepseekv2.sh).
EVERY_COPY = "Megatron-LM / TE"
LOSS = "cross_entropy"  # as `Framework.passes` has it
# How often biases of experts move what these make where weights of tokens are as narrow as that:
# an all-to-all sends them as they are, what sends a token once in single precision.
NARROW_WEIGHTS = {EXPERT_BIAS: "6", EXPERT_BIAS_GRADIENT: "8"}  # (``nvidia_megatron_experts``)
AGAIN = {"none": "none", "selective": "attention", "full": "full"}
# FP16 with its scale is as long and as fast as BF16; FP8 with current scaling has one a tensor.
DTYPES = {"fp16": Dtype.BF16, "fp8-cs": Dtype.FP8, "fp8-mx": Dtype.MXFP8}
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
    """Read training runs that were timed, or ran out of memory.

    Raises
    ------
    InputError
        If the file cannot be read, or a row is not one.
    """
    table = RunTable()
    for where, row in rows_of(path):
        if not (row.get("step_s") or row.get("oom")):
            table.leave_out("no time")
        elif row.get("mla") and _known_of(row) is None:
            table.leave_out(f"ranks of latent attention of {row.get('model')}")
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
    return MeasuredRun(
        name=str(row["id"]),
        source=str(row["source"]),
        job=Job(
            model=_model(row),
            batch=row["global_batch"],
            sequence=row["seq"],
            dtype=_dtype(row),
            gradients=Dtype.FP32 if _software(row).startswith(WIDE_GRADIENTS) else None,
        ),
        system=_system(row),
        given=_given(row),
        time=float(row["step_s"]) if row.get("step_s") else None,
        group=str(row.get("group", "")),
        release=_release(row),
        overlap=_overlap(row),
        exchange=_exchange(row),
        sustained=SUSTAINED.get(str(row["source"])),
    )


def _known_of(row: Mapping[str, Any]) -> str | None:
    """Return the model of the library that a row trains layers of, by its name; None: of none."""
    name = re.sub("[-_ ]", "", str(row.get("model")).lower())
    return next((known for start, known in KNOWN.items() if name.startswith(start)), None)


def _experts(row: Mapping[str, Any]) -> Experts | None:
    """Return routed experts, with those that see every token as wide as they are."""
    if not row.get("experts"):
        return None
    width = row["moe_ffn"]
    shared = row.get("shared_ffn", 0) // width
    return Experts(count=row["experts"], active=row["topk"], feed_forward=width, shared=shared)


def _model(row: Mapping[str, Any]) -> Transformer:
    """Return the shape; of a model that is known, with all that it has."""
    if (known := _known_of(row)) is None:
        return _of_shape(row)
    model = library.model(known)
    assert model.experts is not None
    few = replace(model.experts, first_dense=min(model.experts.first_dense, row["layers"] - 1))
    model = replace(model, name=str(row["model"]), layers=row["layers"], experts=few)
    if model.global_every and row["layers"] % (row["pp"] * model.global_every):
        return replace(model, window=0, global_every=0)  # stages that no groups of layers fill
    return model


def _of_shape(row: Mapping[str, Any]) -> Transformer:
    """Return the shape; GPT with biases, layer norms and learned positions, but for MPT's."""
    gpt, megatron = row["family"] == "gpt", _software(row).startswith("Megatron")
    learned = gpt and row["source"] != "mpt"  # which has ALiBi
    return Transformer(
        name=str(row["model"]),
        hidden=row["hidden"],
        layers=row["layers"],
        heads=row["heads"],
        kv_heads=row.get("kv_heads", row["heads"]),
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
        experts=_experts(row),
    )


def _system(row: Mapping[str, Any]) -> System:
    """Return the machine, with the links that the row says, and the framework that drives it.

    A run may have measured sums of all its chips; between nodes those say what the network gave.
    """
    software = _software(row)
    driven = next((name for start, name in SOFTWARE.items() if software.startswith(start)), None)
    made = library.system_on(NODES[row["hardware"]], chips=row["gpus"])
    made = library.driven(made, driven) if driven else made
    chip, network = made.chip, made.network
    if chip.framework is not None:
        chip = replace(chip, framework=_as_set(chip.framework, row))
    if (port := row.get("inter_gbytes_per_gpu")) and len(network) > 1:
        outer = tuple(replace(level, bandwidth=port * 1e9) for level in network[1:])
        network = (network[0], *outer)
    if (bus := row.get("allreduce_gbs_measured")) and len(network) > 1:
        network = (network[0], *(_measured(level, bus * 1e9, made) for level in network[1:]))
    if not row.get("flash_attention"):
        chip = chip.without_fusion(Fusion.ATTENTION)
    return replace(made, chip=chip, network=network)


def _as_set(framework: Framework, row: Mapping[str, Any]) -> Framework:
    """Return a framework as the software of a row has it."""
    recipe = _recipe(row)
    copies = recipe.every_copy or _software(row).startswith(EVERY_COPY)
    changes: dict[str, Any] = {"tokens_once": False} if copies else {}
    counts = dict(text.split() for text in framework.passes)
    if copies and EXPERT_BIAS in counts:
        counts |= NARROW_WEIGHTS
    if _software(row).startswith(FUSED_LOSS):
        counts.pop(LOSS, None)
    if recipe.fused_experts:
        counts = {word: counts[word] for word in counts if word not in NARROW_WEIGHTS}
    if _has_plain_softmax(row):
        counts |= MOVED
        changes["launches"] = tuple(f"{word} {count}" for word, count in APART.items())
    changes["passes"] = tuple(f"{word} {count}" for word, count in counts.items())
    if recipe.fused_experts:
        changes["experts_apart"] = False
    if recipe.recorded:
        changes["dispatch"] = None
    deepspeed = _software(row).startswith(DEEPSPEED)
    if deepspeed or row["source"] == OLDER_SUMS:
        changes["fused_sums"] = False
    if deepspeed:
        changes["sent_passes"] = JOINED
    if _is_checked(row):
        changes["checks"] = CHECKED * MESSAGES * MESSAGE
    return replace(framework, **changes)


def _is_checked(row: Mapping[str, Any]) -> bool:
    """Whether a run had PyTorch check its collectives."""
    alone = row["gpus"] <= row.get("gpus_per_node", row["gpus"])
    if alone or not _software(row).startswith("nanotron"):
        return False
    job = re.match(r"nanotron/(\d+)/", str(row["id"]))
    return job is not None and int(job[1]) >= CHECKED_FROM


def _has_plain_softmax(row: Mapping[str, Any]) -> bool:
    """Whether Megatron has no kernel of its own for a softmax of these shapes."""
    apart = _software(row).startswith("Megatron") and not row.get("flash_attention")
    return apart and row["micro_batch"] * row["heads"] // row["tp"] % MATRICES > 0


def _recipe(row: Mapping[str, Any]) -> Recipe:
    """Return how a run sends tokens to experts, by the recipe of its release."""
    if not _software(row).startswith(OVERLAPPING):
        return PLAIN
    return recipe_of(str(row["model"]), row["hardware"], _dtype(row), _release(row))


def _combines(row: Mapping[str, Any]) -> bool:
    """Whether what is sent to experts runs beside another microbatch.

    Megatron combines microbatches of one stage, or of stages in pieces (``nvidia_combined_1f1b``).
    """
    cut = row.get("virtual_stages", 1) > 1 if row["pp"] > 1 else row.get("microbatches", 1) > 1
    return bool(_recipe(row).combined and row.get("ep", 1) > 1 and cut)


def _dtype(row: Mapping[str, Any]) -> Dtype:
    return DTYPES.get(row["precision"]) or Dtype(row["precision"])


def _software(row: Mapping[str, Any]) -> str:
    return str(row.get("software", ""))


def _release(row: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the release that the software of a row ends with, as 26.04.01; nothing if none."""
    found = re.search(r"NeMo (\d+(?:\.\d+)+)$", _software(row))
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def _overlap(row: Mapping[str, Any]) -> tuple[Hidden, ...] | None:
    """Return what is sent beside the work of chips; None: what usually is."""
    if row.get("dp_overlap") is False:
        return ()
    if _software(row).startswith(SUMS_ALONE):
        return (Hidden.GRADIENTS,)
    if not _software(row).startswith(OVERLAPPING):
        return None
    apart = row["tp"] == 1 or row.get("experts")  # else what tensor-parallel chips send as well
    return tuple(what for what in Hidden if what is not Hidden.COLLECTIVES or not apart)


def _exchange(row: Mapping[str, Any]) -> Exchange | None:
    """Return what tensor-parallel chips send one another; None where there are none."""
    if row["tp"] == 1 or "sequence_parallel" not in row:
        return None
    return Exchange.SEQUENCE if row["sequence_parallel"] else Exchange.PAIRED


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
    if row.get("experts"):
        given.append(f"ep={row.get('ep', 1)}")
        # Experts over more chips than data-parallel ones are over tensor-parallel ones, too.
        etp = row.get("etp", 1 if row["dp"] % row.get("ep", 1) else None)
        if row["tp"] > 1 and etp:
            given.append(f"etp={etp}")
    if row.get("fsdp") or row.get("zero") == 3:
        given.append("zero=3")
    elif row["dp"] > 1:
        shared = _software(row).startswith(SHARED_STATE)
        given.append(f"zero={row.get('zero', int(shared))}")
    if row.get("recompute"):
        given.append(f"recompute={AGAIN[row['recompute']]}")
    if row["pp"] > 1 or _combines(row):
        order = "combined-1f1b" if _combines(row) else "1f1b"
        given.append(f"schedule={order},interleave={row.get('virtual_stages', 1)}")
    return ",".join(given)
