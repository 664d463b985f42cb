"""A small systolic array: register accesses, the operand that stays, filling and draining."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crosstack.machine.compute import Compute, Dataflow
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernel_graph import Floats

STATIONARY = (Dataflow.WEIGHT, Dataflow.ACTIVATION, Dataflow.OUTPUT)


def reuse_of(
    compute: Compute, dtype: Dtype, dataflow: Dataflow, m: Floats, k: Floats, n: Floats
) -> Floats:
    """Times that the operand which stays is used until another takes its place, at least 1. [1]

    A unit multiplies rows x depth by depth x rows. Weights (K x N) stay while M passes by, in
    pieces of ``rows``; activations (M x K) while N does, partial sums (M x N) while K does, in
    pieces of ``depth``. `Dataflow.BEST` is the largest, `Dataflow.NONE` is 1. Source:
    ardalani2022deepflow, 6.3.

    Parameters
    ----------
    m, k, n : ndarray, shape (...)
        The matrix product, or the tile of it that one unit works on. [1]
    """
    times = {
        Dataflow.WEIGHT: np.ceil(m / compute.rows),
        Dataflow.ACTIVATION: np.ceil(n / compute.rows),
        Dataflow.OUTPUT: np.ceil(k / compute.elements_deep(dtype)),
    }
    shape = np.broadcast_shapes(m.shape, k.shape, n.shape)
    if dataflow is Dataflow.BEST:
        return np.asarray(np.maximum.reduce(np.broadcast_arrays(*times.values())))
    if dataflow is Dataflow.NONE:
        return np.ones(shape)
    return np.asarray(np.broadcast_to(times[dataflow], shape))


def chosen_dataflow(
    compute: Compute, dtype: Dtype, dataflow: Dataflow, m: Floats, k: Floats, n: Floats
) -> NDArray[Any]:
    """Return the names of what stays, the best one where `Dataflow.BEST` is asked for."""
    shape = np.broadcast_shapes(m.shape, k.shape, n.shape)
    if dataflow is not Dataflow.BEST:
        return np.full(shape, dataflow.value, object)
    reuse = np.stack([reuse_of(compute, dtype, flow, m, k, n) for flow in STATIONARY])
    return np.asarray(np.array([flow.value for flow in STATIONARY], object)[reuse.argmax(axis=0)])


def register_accesses(work: Floats, reuse: Floats, compute: Compute, dtype: Dtype) -> Floats:
    """Numbers that the array reads from and writes to the registers. [1]

    ``work (Nx Ny + K Nx + K Ny) / (2 K Nx Ny)``: a multiply-add (2 FLOP) needs the stationary
    operand once in K, and each moving one once in Ny or Nx. Source: ardalani2022deepflow, equation
    5.

    Parameters
    ----------
    work, reuse : ndarray, shape (...)
        Operations [FLOP]; see `reuse_of`. [1]
    compute : Compute
        The units: ``Nx`` is rows, ``Ny`` is depth.
    """
    x, y = compute.rows, compute.elements_deep(dtype)
    return work * (1 / reuse + 1 / y + 1 / x) / 2


def fill_and_drain_cycles(compute: Compute, dtype: Dtype) -> int:
    """Cycles from the first operand to the first result and from the last to the last. [cycles]

    Operands enter a rows x rows array on the skew and leave it the same way: 2 (rows - 1), and
    depth - 1 for the sums. Tiles follow one another without a gap, so that a chain pays once.
    """
    return 2 * (compute.rows - 1) + compute.elements_deep(dtype) - 1
