"""``crosstack evaluate``: a saved mapping, priced again; and results that are none."""
# ruff: noqa: E501 - the tables are one case a line

from __future__ import annotations

import json

import pytest


@pytest.fixture
def result(tmp_path, small_result):
    """Return a file with the result of the small task."""
    path = tmp_path / "result.json"
    path.write_text(small_result)
    return path


def evaluated(run, small, result, *arguments):
    """Return what ``evaluate`` saves."""
    saved = small.parent / "again.json"
    outcome = run("evaluate", small, "--mapping", result, *arguments, "--json", saved)
    assert (outcome.code, outcome.err) == (0, "")
    return json.loads(saved.read_text())


SAME = [
    "time_s", "utilization", "throughput", "layer_time_s", "partition_times_s", "kernels",
    "partitions", "parallelism", "network", "memory_used_b", "rules",
]  # fmt: skip


@pytest.mark.parametrize("field", SAME)
def test_a_saved_mapping_is_worth_what_was_saved(run, small, result, small_result, field):
    assert evaluated(run, small, result)[field] == json.loads(small_result)[field]


def test_a_given_mapping_is_not_called_optimal(run, small, result):
    assert evaluated(run, small, result)["status"] == "feasible"


def test_a_mapping_may_be_priced_on_another_machine(run, small, result, small_result):
    again = evaluated(run, small, result, "--set", "system.chip.frequency=500 MHz")
    assert again["time_s"] > json.loads(small_result)["time_s"]


def test_a_mapping_may_be_priced_under_other_rules(run, small, result):
    assert evaluated(run, small, result, "--rules", "dfmodel-readme")["rules"] == "dfmodel-readme"


def test_the_rules_of_the_result_go_before_those_of_the_file(run, small, result, small_text):
    small.write_text("rules: dfmodel-e4\n" + small_text)
    assert evaluated(run, small, result)["rules"] == "crosstack"


def test_a_result_without_rules_is_priced_under_those_of_the_file(run, small, result, small_text):
    data = json.loads(result.read_text())
    del data["rules"]
    result.write_text(json.dumps(data))
    small.write_text("rules: dfmodel-e4\n" + small_text)
    assert evaluated(run, small, result)["rules"] == "dfmodel-e4"


def test_a_mapping_that_does_not_fit_exits_with_3(run, small, result):
    outcome = run("evaluate", small, "--mapping", result, "--set", "system.memory.capacity=1 kB")
    assert outcome.code == 3
    assert len(outcome.problems) == 1


# --- results that are none ----------------------------------------------------------------------


def refusal(run, small, result, *arguments):
    """Return what ``evaluate`` says of a result it must refuse, without the file's name."""
    outcome = run(
        "evaluate", small, "--mapping", result, *arguments, "--svg", small.parent / "out.svg"
    )
    assert outcome.code == 2, (outcome.code, outcome.out, outcome.err)
    assert outcome.out == ""
    assert "Traceback" not in outcome.err
    assert "a bug" not in outcome.err
    assert not (small.parent / "out.svg").exists()
    assert all(line.startswith(f"{result}: ") for line in outcome.problems), outcome.err
    return [line.removeprefix(f"{result}: ") for line in outcome.problems]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the file is empty."),
        ("{", "line 1, column 2: not JSON"),
        ('{"kernels": ', "line 1, column 13: not JSON"),
        ("kernels: []", "line 1, column 1: not JSON"),
        ("[]", "not a result"),
        ("null", "not a result"),
        ("[" * 100_000, "not a result: nested too deep."),
        ('{"a": ' + "9" * 5000 + "}", "not a result: a number is too long."),
        ("{}", "kernels: missing"),
        ('{"kernels": {}}', "kernels: missing"),
        ('{"kernels": [1]}', "kernels: missing"),
    ],
    ids=lambda value: value[:20],
)
def test_what_is_no_result_is_refused(run, small, result, text, says):
    result.write_text(text)
    (line,) = refusal(run, small, result)
    assert line.startswith(says)


def test_a_missing_result_is_refused(run, small):
    assert refusal(run, small, small.parent / "none.json") == ["no such file."]


# Where something else is put, what; how the error starts, what else is in it.
BROKEN = {
    "unknown kernel": ("kernels.0.name", "AA", "kernels[0].name", 'no kernel is called "AA". Nearest: "A"'),
    "no name": ("kernels.0.name", None, "kernels[0].name", "no kernel is called"),
    "name that is a list": ("kernels.0.name", [], "kernels[0].name", "no kernel is called"),
    "kernel listed twice": ("kernels.1", {"name": "A"}, "kernels", "A"),
    "unknown sharding": ("kernels.0.sharding", "mm", "kernels[0].sharding", "allowed: outer, m, k, n, none"),
    "sharding that cannot be": ("kernels.0.sharding", "k", "mapping.kernels[0].sharding: got k", "allowed: m, none"),
    "negative partition": ("kernels.0.partition", -1, "partitions[0]: got -1", "at least 0"),
    "partition that is text": ("kernels.0.partition", "0", "partitions[0]: got '0'", "a whole number"),
    "partition before its operands": ("kernels.4.partition", 0, 'mapping.kernels[4].partition: "F" runs in partition 0', '"S"'),
    "no cores": ("kernels.0.lanes", 0, "cores[0].lanes: got 0", "at least 1"),
    "network that is a number": ("network", 3, "network", "allowed"),
    "network of fewer dimensions": ("network", [], "mapping.sizes: got 0 dimensions", "the network has 2"),
    "dimension of another size": ("network.0.size", 4, "mapping.sizes: got 4 x 2 chips", "the system has 4"),
    "dimension of part of a chip": ("network.0.size", 2.7, "network[0].size: got 2.7", "a whole number"),
    "unknown parallelism": ("network.0.parallelism", "tensors", "network[0].parallelism", "allowed: tensor, pipeline, data"),
    "parallelism that the file gives otherwise": ("network.0.parallelism", "data", "network[0].parallelism", "tensor"),
    "microbatch that does not divide": ("microbatch_size", 3, "mapping.microbatch_size: got 3", "a divisor of the batch (8)"),
    "no microbatch": ("microbatch_size", None, "microbatch_size: got None", "at least 1"),
    "tiles that are not a number": ("n_tiles", float("nan"), "n_tiles: got nan", "at least 1"),
    "unknown rules": ("rules", "crosstak", 'rules: no rules are called "crosstak". Did you mean "crosstack"?', "--rules FILE"),
    "rules that are no name": ("rules", ["crosstack"], "rules: not a name", "--rules FILE"),
}  # fmt: skip


def put(data, path, value):
    """Put a value into nested lists and dicts."""
    *parents, last = (int(part) if part.isdigit() else part for part in path.split("."))
    for part in parents:
        data = data[part]
    data[last] = value


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_result_is_refused_by_field(run, small, result, case):
    path, value, *says = BROKEN[case]
    data = json.loads(result.read_text())
    put(data, path, value)
    result.write_text(json.dumps(data))
    line, *_ = refusal(run, small, result)
    assert line.startswith(says[0])
    assert all(part in line for part in says)


@pytest.mark.parametrize("field", ["kernels", "network", "microbatch_size", "n_tiles"])
def test_a_result_that_lacks_a_decision_is_refused(run, small, result, field):
    data = json.loads(result.read_text())
    del data[field]
    result.write_text(json.dumps(data))
    (line,) = refusal(run, small, result)
    assert line.startswith(f"{field}: missing")


def test_a_result_that_lacks_a_kernel_is_refused(run, small, result):
    data = json.loads(result.read_text())
    del data["kernels"][1]
    result.write_text(json.dumps(data))
    assert refusal(run, small, result) == ['kernels: kernel "Q" is missing.']


def test_the_result_of_another_workload_is_refused(run, small, result, small_text):
    small.write_text(small_text.replace("name: F,", "name: G,"))
    assert refusal(run, small, result) == [
        'kernels[4].name: no kernel is called "F".',
        'kernels: kernel "G" is missing.',
    ]


def test_more_cores_than_there_are_do_not_fit(run, small, result):
    data = json.loads(result.read_text())
    data["kernels"][0]["lanes"] = 400
    result.write_text(json.dumps(data))
    outcome = run("evaluate", small, "--mapping", result)
    (line,) = outcome.problems
    assert (outcome.code, line.startswith("infeasible: cores")) == (3, True)


def test_a_mapping_is_needed(run, small):
    outcome = run("evaluate", small)
    assert outcome.code == 2
    assert outcome.problems == ["Missing option '--mapping'. See: crosstack evaluate --help"]
