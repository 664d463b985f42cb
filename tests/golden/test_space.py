"""DFModel's design space: every point mapped and proved again."""

from __future__ import annotations

import pytest
from builders.suites import space_answers

from crosstack.published.dfmodel.system_space import AXES, RULES, design_space

FAMILY = "design_space"
WORKLOADS = AXES["workload"]
QUICK = ("fft",)


def point_row(row, point, answer):
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
    points, answers = design_space((workload,)), space_answers(workload)
    rows = [point_row(row, *pair) for pair in zip(points, answers, strict=True)]
    assert len(rows) == 80
    golden.check(FAMILY, workload, rows)


def test_every_workload_of_the_file_is_computed(golden):
    golden.check_cases(FAMILY, WORKLOADS)
