"""Columns that fit together bring what a linear program says."""

from __future__ import annotations

import numpy as np
import pytest

from crosstack.mapping.budget import UNLIMITED, Budget
from crosstack.mapping.packing import most_packed


def best(brings, fills) -> float:
    """The optimum of the linear program."""
    highspy = pytest.importorskip("highspy")
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    for _ in fills.T:
        solver.addRow(-highspy.kHighsInf, 1.0, 0, np.array([], dtype=np.int32), np.array([]))
    for worth, column in zip(brings, fills, strict=True):
        rows = np.flatnonzero(column).astype(np.int32)
        solver.addCol(-worth, 0.0, highspy.kHighsInf, len(rows), rows, column[rows])
    solver.run()
    return -solver.getObjectiveValue()


@pytest.mark.parametrize("seed", range(8))
def test_it_is_the_linear_program_and_never_more(seed):
    rng = np.random.default_rng(seed)
    fills = rng.uniform(0, 1, (30, 50)) * (rng.random((30, 50)) < 0.2) * 10.0 ** (seed % 4)
    fills[:, seed] += 0.1
    brings = rng.uniform(0.1, 1, 30)
    found, exact = most_packed(brings, fills, UNLIMITED), best(brings, fills)
    assert exact * (1 - 5e-3) <= found <= exact * (1 + 1e-9)


def test_one_column_fills_its_fullest_row():
    assert most_packed(np.array([3.0]), np.array([[0.5, 2.0]]), UNLIMITED) == pytest.approx(1.5)


def test_a_spent_budget_leaves_what_fits():
    brings, fills = np.array([1.0, 2.0]), np.array([[1.0, 0.0], [0.0, 1.0]])
    assert 0 < most_packed(brings, fills, Budget(work=1.0)) <= 3.0
