"""DFModel's design space: every point mapped and proved again."""

from __future__ import annotations

import pytest

import crosstack
from crosstack.published.dfmodel.system_space import AXES, RULES, design_space, task_of

FAMILY = "design_space"
WORKLOADS = AXES["workload"]
QUICK = ("fft",)


def point_row(row, point):
    answer = crosstack.optimise(task_of(point), rules=RULES)
    found, certificate = answer.evaluation, answer.certificate
    values = {
        "time": found.time,
        "bound": certificate.bound,
        "status": certificate.status.value,
        "layer_time": found.layer_time,
        "utilization": found.utilization,
        "price": found.price.total,
        "power": found.power.total,
    }
    return row(name=str(point), rules=RULES, values=values)


@pytest.mark.parametrize(
    "workload",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in WORKLOADS],
)
def test_points_are_what_they_were(workload, golden, row):
    rows = [point_row(row, point) for point in design_space((workload,))]
    assert len(rows) == 80
    golden.check(FAMILY, workload, rows)


def test_every_workload_of_the_file_is_computed(golden):
    golden.check_cases(FAMILY, WORKLOADS)
