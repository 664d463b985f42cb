"""Claims about the models of the library: shapes, published parameters, sources."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from crosstack.errors import InputError
from crosstack.io import library
from crosstack.published.models import parameter_rows
from crosstack.workload.architectures import Activation, AttentionKind, Position

NAMES = library.names("models")


@pytest.mark.parametrize("name", NAMES)
def test_a_model_has_the_published_parameters(name):
    model, published = library.model(name), library.published_parameters(name)
    total = model.parameters.total + published.beside
    assert abs(total - published.total) <= published.rounding
    assert all(row.holds for row in parameter_rows(model, published, "its publisher"))
    if published.active:  # with the table of tokens or without it
        most, rounding = model.active_parameters, published.active_rounding
        least = most - model.parameters.embedding
        assert least - rounding <= published.active <= most + rounding


# Publishers give most to the digit; these as a round number.
def test_parameters_that_are_published_round_are_known():
    rounded = {name for name in NAMES if library.published_parameters(name).rounding}
    assert {name.split("-")[0] for name in rounded} == {
        "gpt", "gpt3", "opt", "nemotron", "palm", "kimi", "glm",
    }  # fmt: skip
    assert len(NAMES) - len(rounded) >= 50


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("llama3-8b", {"layers": 33}),
        ("gpt-1t", {"layers": 127}),
        ("mixtral-8x7b", {"hidden": 4224}),
    ],
)
def test_another_shape_does_not_agree(name, change):
    changed, published = replace(library.model(name), **change), library.published_parameters(name)
    total, *_ = parameter_rows(changed, published, "its publisher")
    assert not total.holds


def test_active_parameters_that_do_not_agree_are_told():
    model, published = library.model("deepseek-v3"), library.published_parameters("deepseek-v3")
    assert model.experts is not None
    twelve = replace(model, experts=replace(model.experts, active=12))
    assert twelve.parameters == model.parameters
    total, active = parameter_rows(twelve, published, "its publisher")
    assert total.holds
    assert not active.holds


# qwen2024qwen25, table 1, and yang2025qwen3, table 1: layers, heads of queries, of keys, tied.
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("qwen2.5-1.5b", (28, 12, 2, True)),
        ("qwen2.5-14b", (48, 40, 8, False)),
        ("qwen3-4b", (36, 32, 8, True)),
        ("qwen3-235b-a22b", (94, 64, 4, False)),
    ],
)
def test_a_model_that_is_based_on_another_has_its_own_shape(name, shape):
    model = library.model(name)
    assert (model.layers, model.heads, model.kv_heads, model.tied) == shape


# The one of 176 billion has no size in its name.
SIZED = {
    name: size.group()
    for name in NAMES
    if name != "bloom-176b" and (size := re.search(r"8x\d+b|\d[\d.]*[mb]", name))
}


@pytest.mark.parametrize("name", SIZED)
def test_the_repository_of_a_shape_is_that_of_the_model(name):
    layers = next(f for f in library.entry("models", name).figures if f.field == "shape.layers")
    if "/" in layers.where:
        assert SIZED[name] in layers.where.lower()


def test_the_library_has_every_kind_of_model():
    models = [library.model(name) for name in NAMES]
    assert {model.attention for model in models} == set(AttentionKind)
    assert {model.position for model in models} == set(Position)
    assert any(model.experts and model.experts.shared for model in models)
    assert any(model.parallel for model in models)


def test_a_model_bears_its_title():
    model = library.model("llama3-8b")
    assert (model.name, model.activation) == ("Llama 3 8B", Activation.SILU)


def test_an_unknown_model_is_refused_with_the_nearest():
    with pytest.raises(
        InputError, match='no model is called "llama3-8"\\. Did you mean "llama3-8b"'
    ):
        library.model("llama3-8")
