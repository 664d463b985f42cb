"""What is said of a plan that does not fit."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from crosstack.mapping.room import Room
from crosstack.workload.transformer_training import Recompute


@pytest.mark.parametrize(
    ("activations", "most", "lever"),
    [
        (4.0, "weights and caches", "more tensor or pipeline parallelism"),
        (5.0, "weights and caches", "more tensor or pipeline parallelism"),
        (6.0, "activations", "smaller microbatches"),
    ],
)
def test_what_takes_more_than_half_is_named_with_what_makes_it_less(activations, most, lever):
    plan = SimpleNamespace(
        tensor=2, pipeline=1, data=1, layers_per_stage=3, microbatch_size=2,
        recompute=Recompute.NONE,
    )  # fmt: skip
    room = SimpleNamespace(
        workload=SimpleNamespace(training=False),
        arrays=SimpleNamespace(),
        rules=SimpleNamespace(memory=SimpleNamespace(keeps_activations=False)),
    )
    where, levers = Room.lack(room, plan, SimpleNamespace(activations=activations, total=10.0))
    assert where.endswith(f"most of it {most},")
    assert any(each.startswith(lever) for each in levers)
