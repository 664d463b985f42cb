"""Claims about rules in a file."""
# ruff: noqa: E501 - the tables are one case a line

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from crosstack.errors import InputError
from crosstack.io.rules import read_rules, rules_file
from crosstack.model.rules import MAPPED, rule_names, rules_named
from crosstack.published.dfmodel.collectives import LatencyRule
from crosstack.published.dfmodel.parts import StageTransfers, WeightCuts


@pytest.fixture
def read(tmp_path):
    """Return a function that reads rules from text."""

    def read(text, name="mine.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return read_rules(path)

    return read


@pytest.fixture
def refused(tmp_path):
    """Return a function that says what is wrong with text, without the file's name."""

    def refused(text):
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        with pytest.raises(InputError) as caught:
            read_rules(path)
        lines = str(caught.value).split("\n")
        assert all(line.startswith(f"{path}: ") for line in lines)
        return [line.removeprefix(f"{path}: ") for line in lines]

    return refused


def test_every_field_of_the_rules_may_stand_in_a_file():
    rules = rules_named("crosstack")
    known = {item.name for part in MAPPED for item in fields(getattr(rules, part))} - {"kernels"}
    assert known | {"base", "name"} <= set(rules_file(rules).model_fields)


def test_the_default_rules_are_the_base_unless_one_is_named(read):
    ours = rules_named("crosstack")
    assert read("weights_read: false") == ours.changed(name="mine", weights_read=False)


@pytest.mark.parametrize("base", [*rule_names(), "dfmodel-e4+separate"])
def test_any_rule_set_may_be_the_base(read, base):
    assert read(f"base: {base}") == replace(rules_named(base), name="mine")


def test_the_rules_are_called_what_the_file_says(read):
    assert read("name: our model").name == "our model"


def test_the_rules_are_called_after_the_file_unless_it_says(read):
    assert read("weights_read: true", "paper-2024.yaml").name == "paper-2024"


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("base: dfmodel-e4\nring_all_reduce_halves: 1", "ring_all_reduce_halves", 1),
        ("base: dfmodel-e4\nlatency: none", "latency", LatencyRule.NONE),
        ("base: dfmodel-e2\nlatency: all_reduce", "latency", LatencyRule.ALL_REDUCE),
        ("base: dfmodel-e2\nstage_transfers: once", "stage_transfers", StageTransfers.ONCE),
        ("base: dfmodel-e4\nweight_cuts: all", "weight_cuts", WeightCuts.ALL),
        ("optimizer_bytes: 16", "optimizer_bytes", 16.0),
        ("optimizer_bytes: 16 B", "optimizer_bytes", 16.0),
        ("base: dfmodel-readme\nbytes_first: false", "bytes_first", False),
    ],
)
def test_a_field_holds_what_the_file_says(read, text, field, value):
    rules = read(text)
    found = getattr(getattr(rules, rules.part_with(field)), field)
    assert (found, type(found)) == (value, type(value))


def test_rules_written_field_by_field_read_back_equal(read):
    rules = rules_named("dfmodel-e5")
    parts = [getattr(rules, part) for part in MAPPED]
    lines = [f"{f.name}: {getattr(part, f.name)!s}" for part in parts for f in fields(part)]
    lines = [line for line in lines if not line.startswith("kernels")]
    text = (
        "\n".join(["base: dfmodel-readme", *lines])
        .replace("True", "true")
        .replace("False", "false")
    )
    again = read(text)
    assert [getattr(again, part) for part in MAPPED] == parts


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("weights_reed: false", 'weights_reed: unknown field. Did you mean "weights_read"? Allowed: base, name, '),
        ("weights_read: 1", "weights_read: got 1; allowed: true or false."),
        ("weights_read: yes", "weights_read: got 'yes'; allowed: true or false."),
        ("weights_read: null", "weights_read: got nothing; allowed: true or false."),
        ("base: dfmodel-e5\nlatency: kernels", "latency: got 'kernels'; allowed: none, all_reduce, kernel. Did you mean \"kernel\"?"),
        ("latency: kernel", "latency: these rules have no such field; it is one of base dfmodel-readme, dfmodel-e2"),
        ("base: dfmodel-e4\nweight_cuts: 3", "weight_cuts: got 3; allowed: free, all, inputs."),
        ("base: dfmodel-e5\nring_all_reduce_halves: 3", "ring_all_reduce_halves: got 3; allowed: 1 or 2."),
        ("base: dfmodel-e5\nring_all_reduce_halves: true", "ring_all_reduce_halves: got True; allowed: a whole number"),
        ("optimizer_bytes: -1", "optimizer_bytes: got -1"),
        ("optimizer_bytes: .nan", "optimizer_bytes: got nan; allowed: a finite number [B]"),
        ("optimizer_bytes: 3 s", "optimizer_bytes: got '3 s'; allowed units: B"),
        ("name: ''", "name: got ''; allowed: text."),
        ("name: crosstack", 'name: "crosstack" is a built-in rule set; allowed: a name of its own.'),
        ("name: dfmodel-e4+separate", 'name: "dfmodel-e4+separate" is a built-in rule set'),
        ("base: dfmodel-reame", 'base: no rules are called "dfmodel-reame". Did you mean "dfmodel-readme"? Allowed: crosstack'),
        ("bytes_first: true", "bytes_first: these rules have no such field; it is one of base dfmodel-readme, dfmodel-e2"),
        ("base: [crosstack]", "base: got a list; allowed: text"),
        ("- base", "got a list; allowed: a mapping of base, name, "),
        ("crosstack", "got 'crosstack'; allowed: a mapping of base, name, "),
        ("base: crosstack\nbase: crosstack", "line 2, column 1: the key 'base' is given twice."),
        ("base: [", "line"),
    ],
)  # fmt: skip
def test_what_is_no_rules_is_refused_by_field(refused, text, says):
    (line,) = refused(text)
    assert line.startswith(says)


def test_every_problem_has_its_line(refused):
    assert len(refused("base: no\nname: crosstack\nunfused_depth: 7")) == 3


@pytest.mark.parametrize(("content", "says"), [(b"", "the file is empty."), (b"\0", "is not text")])
def test_a_file_that_is_no_text_is_refused(tmp_path, content, says):
    path = tmp_path / "mine.yaml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=says):
        read_rules(path)


def test_a_missing_file_is_refused_once(tmp_path):
    path = tmp_path / "none.yaml"
    with pytest.raises(InputError) as caught:
        read_rules(path)
    assert str(caught.value) == f"{path}: no such file."
