from __future__ import annotations

import pytest
from builders import named_models
from oracles.differences import gradient_errors

from crosstack.workload.operations import Role

MODELS = {
    "gpt": named_models.gpt_layer,
    "llama": named_models.llama,
    "mixture": named_models.mixture,
    "lstm": named_models.lstm,
    "cnn": named_models.convolutional,
}


@pytest.mark.parametrize("model", MODELS)
def test_the_derived_gradient_of_a_model_is_that_of_differences(model):
    graph = MODELS[model]()
    found = gradient_errors(graph, named_models.values_of(graph))
    wanted = {t.name for t in graph.tensors if t.role in (Role.WEIGHT, Role.INPUT)}
    assert {*found} == wanted
    for name, (derived, differences) in found.items():
        assert derived == pytest.approx(differences, rel=1e-5, abs=1e-8), name
