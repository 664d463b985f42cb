"""Claims about the parts of DFModel's rule sets."""

from __future__ import annotations

from dataclasses import fields

import pytest

from crosstack import optimise
from crosstack.mapping.mapping import Constraints, Task
from crosstack.model.rules import MAPPED, rule_names, rules_named
from crosstack.published.dfmodel import parts
from crosstack.published.dfmodel.graphs.llm import llm
from crosstack.published.dfmodel.parts import ENGINE
from crosstack.published.dfmodel.rules import as_dfmodel
from crosstack.report.sources import meaning_of

OURS = rules_named("crosstack")
README = rules_named("dfmodel-readme")
OWN = [name for name in MAPPED if type(getattr(README, name)).__module__ == parts.__name__]


@pytest.mark.parametrize("name", OWN)
def test_a_field_of_dfmodel_alone_has_a_value_where_nothing_is_different(name):
    own = {item.name for item in fields(getattr(README, name))}
    shared = {item.name for item in fields(getattr(OURS, name))}
    assert own - shared <= set(ENGINE)


@pytest.mark.parametrize("name", OWN)
def test_every_field_of_dfmodel_is_explained(name):
    part = getattr(README, name)
    assert [item.name for item in fields(part) if not meaning_of(part, item.name)] == []


@pytest.mark.parametrize("name", [name for name in rule_names(MAPPED) if name != "crosstack"])
def test_rules_of_dfmodel_have_a_field_for_everything_already(name):
    assert as_dfmodel(rules_named(name)) == rules_named(name)


@pytest.mark.parametrize("count", [None, pytest.param(4, marks=pytest.mark.slow), 17])
@pytest.mark.parametrize("training", [True, False])
def test_parts_in_which_nothing_is_different_count_what_the_default_counts(
    a_system, a_chip, a_dimension, training, count
):
    workload = llm(
        hidden=64, sequence_length=64, n_heads=4, head_size=16, n_layers=2, global_batch_size=8,
        training=training,
    )  # fmt: skip
    network = (a_dimension(size=2), a_dimension(size=2))
    system = a_system(chip=a_chip(utilization=0.9), network=network, n_chips=4)
    task = Task(workload=workload, system=system, constraints=Constraints(max_partitions=count))
    same = as_dfmodel(OURS)
    assert same != OURS
    found, wanted = (optimise(task, rules=rules, work_limit=6e4) for rules in (same, OURS))
    assert found.mapping == wanted.mapping
    assert found.evaluation == wanted.evaluation
