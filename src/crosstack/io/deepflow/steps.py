"""What a DeepFlow file says about parallelism, machine and model, as records to predict with."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from crosstack.errors import InputError, Problem, require, require_whole
from crosstack.evaluate.predict import Program, Step
from crosstack.io.deepflow.hardware import DeepflowHardware
from crosstack.io.native.schema import FileModel
from crosstack.machine.chip import Chip
from crosstack.machine.packages import system_of_packages
from crosstack.machine.system import System
from crosstack.mapping.strategy import (
    NESTED,
    KernelSplit,
    MappingOrder,
    ParallelDimension,
    Strategy,
)
from crosstack.workload.architectures import Activation, Norm, Transformer
from crosstack.workload.lstm import LstmModel
from crosstack.workload.product import Product
from crosstack.workload.transformer_training import TransformerTraining

CR_TYPE = 1  # of kp_hidden_type; 2 is RC, -1 none


def strategy_of(hardware: DeepflowHardware) -> Strategy:
    """Return the strategy of a hardware file; that of its hidden layer stands for all layers.

    `InputError` if CR is asked for with a second degree.
    """
    schedule = hardware.schedule
    kp1 = schedule.kp1 or schedule.kp_hidden_dim1
    kp2 = schedule.kp2 or schedule.kp_hidden_dim2
    is_cr = schedule.t == "CR" or (schedule.t is None and schedule.kp_hidden_type == CR_TYPE)
    if is_cr and kp2 > 1:
        raise InputError(Problem("scheduling_param.kp2", f"got {kp2}; allowed: 1 under CR."))
    return Strategy(
        split=KernelSplit.CR if is_cr and kp1 > 1 else KernelSplit.RC,
        kp1=kp1,
        kp2=kp2,
        dp=schedule.dp or 1,
        lp=schedule.lp or 1,
    )


def check_devices(hardware: DeepflowHardware) -> None:
    """Raise `InputError` where a file's parallelism does not fill its devices; says what to change.

    Only a prediction needs that; a chip can be generated from such a file.
    """
    system, asked, problems = hardware.system, strategy_of(hardware), []
    kp1, kp2, dp, lp = asked.kp1, asked.kp2, asked.dp, asked.lp
    product = kp1 * kp2 * dp * lp
    if product != hardware.n_devices:
        if hardware.form == 2025:
            has = f"{system.num_devices_per_node} devices x {system.num_nodes} nodes"
            change = (
                f"set system_hierarchy.num_devices_per_node and num_nodes to a product of "
                f"{product}, or scheduling_param.kp1, kp2, dp and lp to a product of "
                f"{hardware.n_devices}"
            )
        else:
            has = f"num_workers {hardware.n_devices}"
            change = f"set system_hierarchy.num_workers: {product}"
        message = (
            f"{has} are {hardware.n_devices} devices, but the parallelism kp1 {kp1} x kp2 {kp2} x "
            f"dp {dp} x lp {lp} fills {product}; {change}."
        )
        problems.append(Problem("system_hierarchy", message))
    # What crosses nodes cannot use the links inside one.
    inside = system.num_devices_per_node
    if dp > inside and not system.dp_inter:
        message = f"dp {dp} is more than the {inside} devices of a node; set dp_inter: true."
        problems.append(Problem("system_hierarchy.dp_inter", message))
    if problems:
        raise InputError(problems)


def system_of(hardware: DeepflowHardware, chip: Chip) -> System:
    """Return the machine of a hardware file around its generated chip."""
    system = hardware.system
    return system_of_packages(
        chip, chips_per_package=system.num_devices_per_node, n_packages=system.num_nodes
    )


def crossing_of(hardware: DeepflowHardware) -> frozenset[ParallelDimension]:
    """Return the parallel dimensions that leave a node, as a hardware file states it."""
    system = hardware.system
    crosses = {
        ParallelDimension.KP1: system.kp1_inter,
        ParallelDimension.KP2: system.kp2_inter,
        ParallelDimension.DP: system.dp_inter,
        ParallelDimension.LP: system.lp_inter,
    }
    return frozenset(dimension for dimension, found in crosses.items() if found)


def order_of(hardware: DeepflowHardware) -> MappingOrder:
    """Return an order of ranks with those dimensions outermost that a file has leave a node."""
    crossing = crossing_of(hardware)
    return (
        *(d for d in NESTED if d not in crossing),
        *(d for d in NESTED if d in crossing),
    )


@runtime_checkable
class OfFiles(Protocol):
    """A program that knows what else a hardware file states, such as what shares its links."""

    def on(self, hardware: DeepflowHardware) -> Program:
        """Return the program for what a file states."""
        ...


def program_of(step: Program, hardware: DeepflowHardware) -> Program:
    """Return what predicts a step on the machine of a hardware file."""
    return step.on(hardware) if isinstance(step, OfFiles) else step


def _transformer(file: FileModel, feed_forward: int) -> Transformer:
    """Return the shape of a file: heads that fill the width, two feed-forward products."""
    require_whole("heads", file.num_heads)
    divides = file.hidden_dim % file.num_heads == 0
    require(divides, "heads", file.num_heads, f"a divisor of hidden, {file.hidden_dim}")
    return Transformer(
        hidden=file.hidden_dim,
        layers=file.num_layers,
        heads=file.num_heads,
        kv_heads=file.num_heads,
        head_size=file.hidden_dim // file.num_heads,
        feed_forward=feed_forward,
        vocabulary=file.vocab_size,
        context=file.seq_len,
        gated=False,
        activation=Activation.GELU,
        norm=Norm.LAYER,
    )


def workload_of(model: FileModel) -> Step:
    """Return what a model file describes; raises `InputError` where its numbers do not fit."""
    if model.mode == "GEMM":
        return model.record(Product)
    if model.mode == "LSTM":
        return model.record(LstmModel)
    if model.ffn_mult is not None:
        feed_forward = round(model.ffn_mult * model.hidden_dim)
    elif model.ffn_dim is not None:
        feed_forward = model.ffn_dim
    else:
        raise InputError(Problem("model_param.ffn_dim", "required where ffn_mult is left out."))
    try:
        return TransformerTraining(
            model=_transformer(model, feed_forward),
            batch=model.batch_size,
            sequence=model.seq_len,
            tokens=model.n_tokens,
            ideal_stages=model.N_PP,
            communication=model.communication_time,
        )
    except InputError as error:
        by = "ffn_dim" if model.ffn_mult is None else "ffn_mult"
        names = {"feed_forward": by, "heads": "num_heads"}  # fields that can be refused
        raise error.renamed(names).under("model_param") from None
