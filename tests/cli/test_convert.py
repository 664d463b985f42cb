"""``crosstack convert``: native YAML to DFModel text and back."""

from __future__ import annotations

import json

import pytest

from crosstack.errors import InputError, Problem
from crosstack.io.load import as_in_file, load


@pytest.fixture
def plain(small, small_text):
    """Return a file with a task that DFModel can say."""
    text = small_text.replace("name: small", "rules: dfmodel-readme")
    small.write_text(text + "constraints: {max_partitions: 4}\n")
    return small


def mapped(run, path):
    saved = path.parent / "result.json"
    outcome = run("map", path, "--json", saved)
    assert outcome.code == 0, outcome.err
    return saved


def time_of(result):
    return json.loads(result.read_text())["time_s"]


def test_dfmodel_text_becomes_the_same_task_in_yaml(run, dfmodel_file):
    target = dfmodel_file.with_suffix(".yaml")
    assert run("convert", dfmodel_file, target).out == f"wrote {target}\n"
    assert load(target) == load(dfmodel_file)


def test_yaml_becomes_dfmodel_text_that_takes_as_long(run, plain):
    target = plain.with_suffix(".txt")
    assert run("convert", plain, target).code == 0
    assert time_of(mapped(run, target)) == pytest.approx(time_of(mapped(run, plain)), rel=1e-6)


def test_yaml_becomes_tidy_yaml_of_the_same_task(run, small):
    target = small.with_name("tidy.yml")
    assert run("convert", small, target).code == 0
    assert load(target) == load(small)


def test_an_override_is_written_down(run, small):
    target = small.with_name("changed.yaml")
    run("convert", small, target, "--set", "workload.n_layers=8")
    assert load(target).workload.n_layers == 8


def test_a_result_fills_the_mapping_in(run, plain):
    target = plain.with_suffix(".txt")
    result = mapped(run, plain)
    assert run("convert", plain, target, "--result", result).code == 0
    text = target.read_text()
    partitions = [kernel["partition"] for kernel in json.loads(result.read_text())["kernels"]]
    written = [line.split()[1] for line in text.splitlines() if line.strip().startswith("config:")]
    assert written == [str(partition) for partition in partitions]


def test_a_mapping_that_is_filled_in_takes_as_long_as_the_result(run, plain):
    target = plain.with_suffix(".txt")
    result = mapped(run, plain)
    time = time_of(result)
    run("convert", plain, target, "--result", result)
    assert time_of(mapped(run, target)) == pytest.approx(time, rel=1e-6)


@pytest.mark.parametrize(
    ("target", "arguments", "says"),
    [
        ("out.json", [], "B: got {}; allowed: .yaml, .yml, .txt, .pbtxt."),
        ("out", [], "B: got {}; allowed: .yaml, .yml, .txt, .pbtxt."),
        ("none/out.yaml", [], "B {}: cannot be written: there is no directory"),
        ("small.yaml", [], "B {}: cannot be written: it is the file that is read."),
        ("out.yaml", ["--result", "r.json"], "--result: got {}; allowed: .txt, .pbtxt; YAML"),
        ("out.txt", ["--result", "r.json"], "r.json: no such file."),
        ("out.yaml", ["--set", "workload.layers=1"], "workload.layers: unknown field."),
    ],
)
def test_what_cannot_be_converted_is_refused(run, small, target, arguments, says):
    path = small.parent / target
    outcome = run("convert", small, path, *arguments)
    (line,) = outcome.problems
    assert (outcome.code, [p.name for p in small.parent.iterdir()]) == (2, ["small.yaml"])
    assert says.format(path) in line


def test_what_dfmodel_cannot_say_is_listed_line_by_line(run, small, small_text):
    small.write_text(small_text + "constraints: {sharding: {A: m}}\n")
    target = small.with_suffix(".txt")
    outcome = run("convert", small, target)
    fields = [line.removeprefix(f"{small}: ").split(":")[0] for line in outcome.problems]
    assert (outcome.code, target.exists()) == (2, False)
    assert "constraints.sharding" in fields
    assert "constraints.max_partitions" in fields


def test_a_field_that_the_file_leaves_out_is_said_to_be_left_out(run, plain):
    plain.write_text(plain.read_text().replace("word: 2", "word: 2\n  sequence_length: 24"))
    (line,) = run("convert", plain, plain.with_suffix(".txt")).problems
    assert line == (
        f"{plain}: workload.boundary_size: cannot be written to small.txt: left out; got 4096 B; "
        "DFModel has a whole number of values; allowed: multiples of sequence_length x word, such "
        "as 4080 B."
    )


def test_the_kernel_of_a_file_that_cannot_be_converted_has_the_path_it_has_there(run, plain):
    plain.write_text(plain.read_text().replace("m: 64, n: 32}", "m: 64, n: 32, operations: 3}"))
    (line,) = run("convert", plain, plain.with_suffix(".txt")).problems
    assert line == (
        f"{plain}: workload.kernels[0].operations: cannot be written to small.txt: got 3; DFModel "
        "has one; allowed: 1."
    )


@pytest.mark.parametrize("listed", [False, True])
def test_an_operand_that_would_be_taken_for_another_is_named_where_it_stands(run, plain, listed):
    # Both operands of S have the bytes of Q; only the second is connected.
    text = plain.read_text().replace("inputs: [Q, K]", "inputs: [null, K]")
    where = "workload.kernels[3].inputs[1]"
    if listed:
        for given in (", inputs: [A]", ", inputs: [null, K]", ", inputs: [S, null]"):
            text = text.replace(given, "")
        edges = ("A: [Q, K]", "K: [S 1]", "S: [F]")
        tensors = "".join(
            f"    - {{producer: {edge[0]}, consumers: ["
            + ", ".join(
                f"{{kernel: {reader[0]}, operand: {reader[2:] or 0}}}"
                for reader in edge[4:-1].split(", ")
            )
            + "]}\n"
            for edge in edges
        )
        text = text.replace("system:", f"  tensors:\n{tensors}system:", 1)
        where = "workload.tensors[1].consumers[0]"
    plain.write_text(text)
    (line,) = run("convert", plain, plain.with_suffix(".txt")).problems
    assert line.startswith(f"{plain}: {where}: cannot be written to small.txt: 'K' to 'S': DFModel")


def test_what_a_generator_makes_is_said_to_be_the_generators(run, plain):
    head = "workload: {dfmodel: {mamba: {hidden: 64, sequence_length: 64}}}\n"
    tail = plain.read_text()
    plain.write_text(head + tail[tail.index("system:") :])
    outcome = run("convert", plain, plain.with_suffix(".txt"))
    starts = f"{plain}: workload.dfmodel.mamba: cannot be written to small.txt: its kernel 'Norm'"
    assert outcome.problems[0].startswith(starts)


def test_a_problem_of_a_task_from_dfmodel_text_has_the_fields_of_that_text(dfmodel_file):
    error = InputError(Problem("workload.global_batch_size", "got 3."))
    found = as_in_file(error, load(dfmodel_file), dfmodel_file)
    assert str(found) == f"{dfmodel_file}: execution.llm.global_batch_size: got 3."


def test_the_result_of_another_task_is_refused(run, plain, small_result, dfmodel_file):
    result = plain.with_suffix(".json")
    result.write_text(small_result)
    outcome = run("convert", dfmodel_file, plain.parent / "out.txt", "--result", result)
    assert outcome.code == 2
    assert f'{result}: kernels[0].name: no kernel is called "A".' in outcome.problems
