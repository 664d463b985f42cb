from __future__ import annotations

import pickle
from dataclasses import fields, is_dataclass

import pytest

from crosstack import Constraints, Task, optimise
from crosstack.errors import InputError
from crosstack.model.rules import MAPPED, PREDICTED, Rules, rule_names, rules_named
from crosstack.published.dfmodel.collectives import ExchangeRule, LatencyRule
from crosstack.published.dfmodel.graphs.llm import llm
from crosstack.published.dfmodel.parts import StageTransfers, WeightCuts
from crosstack.registry import RULE_SETS

OURS = rules_named("crosstack")
DFMODEL = [name for name in rule_names() if name.startswith("dfmodel")]
SWITCHES = [
    item.name for name in MAPPED for item in fields(getattr(OURS, name)) if item.type == "bool"
]


def field(name: str, of: str):
    """Return a field of a rule set, whichever part has it."""
    rules = rules_named(name)
    return getattr(getattr(rules, rules.part_with(of)), of)


@pytest.mark.parametrize("name", rule_names())
def test_a_rule_set_carries_the_name_it_is_called_by(name):
    assert rules_named(name).name == name


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("latency", "kernels", 'a LatencyRule (none, all_reduce, kernel); nearest: "kernel"'),
        ("latency", "kernel", "a LatencyRule"),  # text is no member
        ("boundary", None, "a Boundary (free, memory)"),
        ("exchange", 1, "ExchangeRule (one_way, all_pairs"),
        ("ring_all_reduce_halves", 2.0, "1 or 2"),
        ("full_all_reduce_halves", True, "1 or 2"),
        ("gradient_halves", "1", "0, 1 or 2"),
        ("unfused_depth", 3, "1 or 2"),
        ("optimizer_bytes", "14", "a finite number"),
        ("name", "", "a name"),
        ("name", 3, "a name"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(field, value, says):
    with pytest.raises(InputError) as caught:
        rules_named("dfmodel-e5").changed(**{field: value})
    (problem,) = caught.value.problems
    assert problem.path == field
    assert says in problem.message


@pytest.mark.parametrize("name", rule_names())
def test_a_rule_set_is_a_value(name):
    assert rules_named(name) == rules_named(name)


@pytest.mark.parametrize(
    ("name", "ring", "full"),
    [
        # dfmodel_code, the factor f by release
        ("dfmodel-readme", 2, 1),
        ("dfmodel-e2", 2, 1),
        ("dfmodel-e3b", 1, 1),
        ("dfmodel-e4", 1, 1),
        ("dfmodel-e4+separate", 2, 1),
        ("dfmodel-e5", 1, 1),
        ("dfmodel-e5+separate", 2, 2),
    ],
)
def test_the_halves_of_an_all_reduce_are_those_of_the_release(name, ring, full):
    counted = rules_named(name).collectives
    assert (counted.ring_all_reduce_halves, counted.full_all_reduce_halves) == (ring, full)


@pytest.mark.parametrize(
    ("name", "latency"),
    [
        ("dfmodel-readme", LatencyRule.NONE),
        ("dfmodel-e4", LatencyRule.ALL_REDUCE),
        ("dfmodel-e5", LatencyRule.KERNEL),
    ],
)
def test_latency_is_paid_as_in_the_release(name, latency):
    assert field(name, "latency") is latency


@pytest.mark.parametrize(
    ("name", "divide"),
    [("dfmodel-readme", False), ("dfmodel-e3b", False), ("dfmodel-e4", True), ("dfmodel-e5", True)],
)
def test_tiles_divide_the_sequence_from_release_e4_on(name, divide):
    assert field(name, "tiles_divide") is divide


@pytest.mark.parametrize(
    ("name", "cuts"),
    [
        ("dfmodel-e4", WeightCuts.FREE),
        ("dfmodel-e5", WeightCuts.ALL),
    ],
)
def test_cutting_a_weight_costs_what_the_source_says(name, cuts):
    assert field(name, "weight_cuts") is cuts


@pytest.mark.parametrize("name", DFMODEL)
def test_dfmodel_keeps_no_training_state(name):
    assert field(name, "optimizer_bytes") == 0


@pytest.mark.parametrize("name", DFMODEL)
def test_dfmodel_never_reads_weights(name):
    assert not field(name, "weights_read")


@pytest.mark.parametrize("name", DFMODEL)
def test_dfmodel_pays_for_stage_transfers_once(name):
    assert field(name, "stage_transfers") is StageTransfers.ONCE


@pytest.mark.parametrize("name", DFMODEL)
def test_dfmodel_keeps_a_copy_for_each_reader(name):
    assert field(name, "fan_out_copies")


def test_mixed_precision_adam_keeps_fourteen_bytes_a_parameter():
    # rajbhandari2020zero: 2 bytes of gradient, 12 of optimizer state
    assert OURS.memory.optimizer_bytes == 12


def test_only_release_e5_hides_one_network_behind_another():
    assert [n for n in rule_names(MAPPED) if field(n, "network_takes_maximum")] == ["dfmodel-e5"]


def test_the_suffix_changes_nothing_but_name_and_halves():
    plain, separate = rules_named("dfmodel-e4"), rules_named("dfmodel-e4+separate")
    assert separate.changed(name=plain.name, ring_all_reduce_halves=1) == plain


@pytest.mark.parametrize("name", ["crosstack+separate", "dfmodel-e4+", "dfmodel-e4+separately"])
def test_a_suffix_that_means_nothing_is_refused(name):
    with pytest.raises(InputError, match="no rules are called"):
        rules_named(name)


def test_an_unknown_name_brings_the_nearest():
    with pytest.raises(InputError, match='Did you mean "dfmodel-readme"'):
        rules_named("dfmodel-redme")


def test_an_unknown_name_brings_every_name():
    with pytest.raises(InputError, match=", ".join(rule_names())):
        rules_named("zzz")


@pytest.mark.parametrize("switch", SWITCHES)
def test_a_switch_is_true_or_false(switch):
    with pytest.raises(InputError, match=f"^{switch}: got 1; allowed: true or false"):
        OURS.changed(**{switch: 1})


def test_training_state_is_not_negative():
    with pytest.raises(InputError, match="^optimizer_bytes: got"):
        OURS.changed(optimizer_bytes=-1.0)


@pytest.mark.parametrize("part", MAPPED)
def test_every_field_is_explained(part):
    silent = [f.name for f in fields(getattr(OURS, part)) if not f.metadata.get("meaning")]
    assert silent == []


def test_no_two_parts_have_a_field_of_the_same_name():
    parts = [part for _, part in OURS.parts() if is_dataclass(part)]
    named = [item.name for part in parts for item in fields(part) if item.name != "name"]
    assert sorted(set(named)) == sorted(named)


def test_the_default_has_every_part():
    assert OURS.lacking(tuple(Rules.__dataclass_fields__)) == ()


@pytest.mark.parametrize("name", rule_names())
def test_rules_travel_between_processes(name):
    assert pickle.loads(pickle.dumps(rules_named(name))) == rules_named(name)


@pytest.mark.parametrize(
    ("name", "parts", "lacking"),
    [("deepflow-2021", MAPPED, '"traffic"'), ("dfmodel-e4", PREDICTED, '"step"')],
)
def test_a_set_without_a_part_that_is_needed_is_refused_by_name(name, parts, lacking):
    with pytest.raises(
        InputError, match=f'rules "{name}" lack the parts .*{lacking}.*allowed: crosstack'
    ) as caught:
        rules_named(name, parts)
    assert name not in str(caught.value).partition("allowed: ")[2]


def test_a_part_that_is_missing_says_so_when_it_is_used():
    with pytest.raises(InputError, match='lack the part "traffic", which this needs; allowed: cro'):
        _ = rules_named("deepflow-2021").traffic.weights_read


def test_a_field_that_no_part_has_is_refused_with_the_nearest():
    with pytest.raises(InputError, match='called "weights_reed". Did you mean "weights_read"'):
        OURS.changed(weights_reed=False)


@pytest.mark.parametrize(
    ("name", "exchange", "depth"),
    [
        ("dfmodel-e2", ExchangeRule.ONE_WAY, 1),
        ("dfmodel-readme", ExchangeRule.ALL_PAIRS, 2),
        ("dfmodel-e4", ExchangeRule.ALL_PAIRS, 2),
        ("dfmodel-e5", ExchangeRule.TWO_WAY, 2),
    ],
)
def test_exchanges_and_single_kernels_are_counted_as_in_the_release(name, exchange, depth):
    found = field(name, "exchange"), field(name, "unfused_depth")
    assert found == (exchange, depth)


def test_kernels_one_by_one_hold_as_many_tiles_as_the_release_says(a_system, a_chip):
    workload = llm(
        hidden=64, sequence_length=64, n_heads=4, head_size=16, n_layers=1, global_batch_size=8
    )
    system = a_system(chip=a_chip(utilization=0.9))
    given = Constraints(kernel_by_kernel=True, n_tiles=4)
    task = Task(workload=workload, system=system, constraints=given)
    used = {}
    for name in ("dfmodel-e2", "dfmodel-readme"):
        answer = optimise(task, rules=name)
        used[name] = {p.kernels: p.sram_used for p in answer.evaluation.partitions}
        assert answer.evaluation.time == pytest.approx(answer.certificate.objective)
    norm = ("LayerNorm_1",)
    assert used["dfmodel-readme"][norm] == 2 * used["dfmodel-e2"][norm]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("gradient_halves", 3),
        ("full_all_reduce_halves", 0),
        ("unfused_depth", 3),
    ],
)
def test_new_numbers_are_checked(field, value):
    with pytest.raises(InputError, match=field):
        OURS.changed(**{field: value})


def test_a_set_of_your_own_is_found_by_its_name(monkeypatch):
    own = OURS.changed(name="own", weights_read=False)
    monkeypatch.setitem(RULE_SETS, "own", lambda: own)
    assert "own" in rule_names()
    assert rules_named("own", MAPPED).traffic.weights_read is False
