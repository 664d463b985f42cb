from __future__ import annotations

from dataclasses import replace

import pytest

from crosstack.machine.system import Parallelism
from crosstack.model.collectives import NOTHING, AffineTime
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.offload import Offloading
from crosstack.model.state import state_away, state_held
from crosstack.workload.transformer_training import Offload, Zero

SIZES = 80.0, 160.0, 480.0  # weights, gradients, optimizer's state
EIGHT = MeshPlan(
    sizes=(8,), parallelism=(Parallelism.DATA,), data=8, n_microbatches=1, layers_per_stage=1,
    collectives={}, changes={}, periodic=NOTHING, stage_transfer=AffineTime(), n_layers=1,
)  # fmt: skip


@pytest.mark.parametrize(
    ("zero", "held"),
    [
        (Zero.NONE, (80, 160, 480)),
        (Zero.STATE, (80, 160, 60)),
        (Zero.GRADIENTS, (80, 20, 60)),
        (Zero.WEIGHTS, (10, 20, 60)),
    ],
)
def test_data_parallel_chips_share_the_state_then_gradients_then_weights(zero, held):
    # rajbhandari2020zero, section 5: each in turn over all chips
    assert state_held(replace(EIGHT, zero=zero.number), *SIZES) == held


def test_nothing_is_on_the_host_unless_it_is_put_there():
    assert state_away(EIGHT, *SIZES) == 0


@pytest.mark.parametrize("zero", [Zero.NONE, Zero.STATE])
def test_the_host_has_all_of_the_state_and_gradients_where_it_updates(zero):
    plan = replace(EIGHT, zero=zero.number)
    state, gradients = state_held(plan, *SIZES)[2], plan.shared(1, SIZES[1])
    kept, updates = (
        replace(plan, offloaded=Offloading(kinds=(kind,)))
        for kind in (Offload.STATE, Offload.OPTIMIZER)
    )
    assert state_away(kept, *SIZES) == state
    assert state_away(updates, *SIZES) == state + gradients
    assert state_held(updates, *SIZES)[2] == 0
