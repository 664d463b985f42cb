"""Claims about small systolic arrays, worked by hand."""

import numpy as np
import pytest

from crosstack.machine.compute import Compute, Dataflow
from crosstack.model.kernels.systolic import (
    chosen_dataflow,
    fill_and_drain_cycles,
    register_accesses,
    reuse_of,
)
from crosstack.workload.dtype import Dtype

# 8 x 4 by 4 x 8, as a tensor core of the A100.
ARRAY = Compute(
    n_units=4, n_multiprocessors=1, work_per_cycle=512, frequency=1e9, rows=8, depth=8.0
)
BF16 = Dtype.BF16
SHAPE = [np.array(side) for side in (100.0, 64.0, 20.0)]


@pytest.mark.parametrize(
    ("flow", "times"),
    [
        (Dataflow.WEIGHT, 13),  # 100 rows pass in pieces of 8
        (Dataflow.ACTIVATION, 3),  # 20 columns in pieces of 8
        (Dataflow.OUTPUT, 16),  # 64 sums in pieces of 4
        (Dataflow.NONE, 1),
        (Dataflow.BEST, 16),
    ],
)
def test_what_stays_is_used_while_the_third_axis_passes(flow, times):
    assert reuse_of(ARRAY, BF16, flow, *SHAPE) == times


def test_the_best_dataflow_has_the_most_reuse():
    assert chosen_dataflow(ARRAY, BF16, Dataflow.BEST, *SHAPE) == "output"
    assert chosen_dataflow(ARRAY, BF16, Dataflow.WEIGHT, *SHAPE) == "weight"


@pytest.mark.parametrize(("x", "y", "reuse"), [(8, 4, 16), (1, 1, 1), (128, 128, 7), (16, 4, 2)])
def test_register_accesses_are_equation_5_of_the_paper(x, y, reuse):
    compute = Compute(
        n_units=1,
        n_multiprocessors=1,
        work_per_cycle=2 * x * x * y,
        frequency=1e9,
        rows=x,
        depth=2.0 * y,
    )
    work = np.array(1e6)
    equation = 1e6 * (x * y + reuse * x + reuse * y) / (2 * reuse * x * y)
    assert register_accesses(work, np.array(reuse), compute, BF16) == pytest.approx(
        equation, rel=1e-12
    )


def test_a_single_multiplier_reads_two_operands_and_keeps_the_sum():
    # 1 x 1, sums stay for 1000 steps: two words a multiply-add, and the sum once in 1000.
    one = Compute(n_units=1, n_multiprocessors=1, work_per_cycle=2, frequency=1e9)
    words = register_accesses(np.array(2.0), np.array(1000.0), one, BF16)
    assert words == pytest.approx(2.001)


@pytest.mark.parametrize(("rows", "depth", "cycles"), [(1, 1, 0), (8, 4, 17), (128, 128, 381)])
def test_operands_enter_and_leave_on_the_skew(rows, depth, cycles):
    array = Compute(
        n_units=1,
        n_multiprocessors=1,
        work_per_cycle=2,
        frequency=1e9,
        rows=rows,
        depth=2.0 * depth,
    )
    assert fill_and_drain_cycles(array, BF16) == cycles
