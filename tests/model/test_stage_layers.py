"""How many layers stages hold, and which of them leave places to ends."""

from __future__ import annotations

import numpy as np
import pytest

from crosstack import Job
from crosstack.io import library
from crosstack.machine.system import Parallelism
from crosstack.model.mesh_plan import make_plan
from crosstack.model.rules import rules_named
from crosstack.model.stage_layers import layers_of, spared_layers

RULES = rules_named("crosstack")


@pytest.fixture(scope="module")
def deepseek():
    model = library.model("deepseek-v3")
    return Job(model=model, batch=32, sequence=64, dtype="bf16").workload


@pytest.fixture(scope="module")
def system():
    return library.system_on("h800-hgx", chips=16)


def test_ends_of_layers_leave_places_on_both_sides(deepseek, system):
    # 58 layers on 16 stages of 4: six places are empty; three dense layers before, a predictor
    # with two heads behind, so three each.
    assert spared_layers(deepseek, system, RULES, 16) == (3, 3)


def test_stages_that_hold_as_many_spare_none(deepseek, system):
    assert spared_layers(deepseek, system, RULES, 2) == (0, 0)  # 29 each
    assert spared_layers(deepseek, system, RULES, 1) == (0, 0)


@pytest.mark.parametrize("stages", [4, 8, 16])
def test_all_layers_are_on_some_stage(deepseek, system, stages):
    uses = (stages, 16 // stages), (Parallelism.PIPELINE, Parallelism.DATA)
    plan = make_plan(deepseek, system, uses[0], uses[1], 1, RULES, (0, 1))
    assert plan is not None
    held = layers_of(plan, np.arange(stages))
    assert held.sum() == 58
    assert held.max() == plan.layers_per_stage
    assert held[0] == plan.layers_per_stage - plan.first_fewer
    assert held[-1] == plan.layers_per_stage - plan.last_fewer
