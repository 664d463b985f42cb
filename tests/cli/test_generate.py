"""``crosstack generate llm``: a workload to start from."""

from __future__ import annotations

import json

import pytest

import crosstack
from crosstack.io.load import load
from crosstack.workload.llm import llm

SIZES = ["--hidden", 64, "--heads", 4, "--sequence", 32, "--layers", 2, "--batch", 8]
WORKLOAD = llm(
    hidden=64, sequence_length=32, n_heads=4, head_size=16, n_layers=2, global_batch_size=8
)


@pytest.fixture
def system(small_text):
    """Return the ``system`` section of a file."""
    return small_text[small_text.index("system:") :]


def test_a_workload_is_printed(run):
    outcome = run("generate", "llm", *SIZES)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("workload:\n")


def test_a_workload_with_a_system_section_after_it_is_a_task(run, tmp_path, system):
    path = tmp_path / "w.yaml"
    path.write_text(run("generate", "llm", *SIZES).out + system)
    assert load(path).workload == WORKLOAD


def test_a_workload_in_a_file_needs_only_a_system_section(run, tmp_path, system):
    path = tmp_path / "w.yaml"
    assert run("generate", "llm", *SIZES, "-o", path).code == 0
    with path.open("a") as file:
        file.write(system)
    assert load(path).workload == WORKLOAD


def test_a_newcomer_is_told_what_is_missing(run, tmp_path):
    path = tmp_path / "w.yaml"
    assert "add a system section" in run("generate", "llm", *SIZES, "-o", path).out
    assert run("map", path).problems == [f"{path}: system: required, but missing."]


def test_a_workload_with_the_machine_of_a_file_can_be_mapped(run, small):
    path = small.parent / "w.yaml"
    run("generate", "llm", *SIZES, "--system", small, "-o", path)
    outcome = run("map", path, "--time-limit", 1, "--json", small.parent / "result.json")
    assert outcome.code in (0, 4)
    assert len(json.loads((small.parent / "result.json").read_text())["kernels"]) == 41


def test_a_workload_with_a_machine_is_printed_as_a_task(run, small, tmp_path):
    path = tmp_path / "printed.yaml"
    path.write_text(run("generate", "llm", *SIZES, "--system", small).out)
    assert load(path).system == load(small).system


def test_a_workload_is_written_as_dfmodel_text(run, small):
    with small.open("a") as file:
        file.write("constraints: {max_partitions: 6}\nrules: dfmodel-readme\n")
    path = small.parent / "w.txt"
    assert run("generate", "llm", *SIZES, "--system", small, "-o", path).code == 0
    assert load(path).workload.work == WORKLOAD.work


@pytest.mark.parametrize(("flag", "kernels"), [([], 41), (["--forward"], 18)])
def test_a_layer_has_as_many_kernels_as_published(run, tmp_path, system, flag, kernels):
    path = tmp_path / "w.yaml"
    path.write_text(run("generate", "llm", *SIZES, *flag).out + system)
    assert len(crosstack.load(path).workload.graph) == kernels


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--heads", 5], "--heads: got 5; allowed: a divisor of --hidden 64"),
        (["--heads", 0], "--heads: got 0"),
        (["--head-size", 15], "--"),
        (["--hidden", 0], "--hidden: got 0"),
        (["--layers", 3, "--layers-in-graph", 2], "--layers: got 3; allowed: a multiple"),
        (["--batch", -1], "--batch: got -1"),
        (["--sequence", 0], "--sequence: got 0"),
        (["--word", 0], "--word: got 0"),
        (["--word", "two"], "--word"),
        (["-o", "w.foo"], "--output: got w.foo; allowed: .yaml, .yml, .txt, .pbtxt."),
        (["-o", "w.txt"], "--output: got w.txt; allowed: .yaml, .yml; DFModel text needs --system"),
        (["-o", "none/w.yaml"], "--output none/w.yaml: cannot be written: there is no directory"),
        (["--system", "none.yaml"], "none.yaml: no such file."),
    ],
)
def test_what_cannot_be_generated_is_refused(run, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    outcome = run("generate", "llm", *SIZES, *arguments)
    (line,) = outcome.problems
    assert (outcome.code, outcome.out, list(tmp_path.iterdir())) == (2, "", [])
    assert says in line


def test_a_machine_whose_constraints_name_other_kernels_is_refused(run, small):
    with small.open("a") as file:
        file.write("constraints: {partitions: {A: 0}}\n")
    outcome = run("generate", "llm", *SIZES, "--system", small)
    path = f"{small}: constraints.partitions.A"
    assert outcome.problems == [f"{path}: the generated workload has no such kernel."]


def test_the_machine_is_not_overwritten(run, small, small_text):
    outcome = run("generate", "llm", *SIZES, "--system", small, "-o", small)
    assert (outcome.code, small.read_text()) == (2, small_text)


def test_the_sizes_are_needed(run):
    outcome = run("generate", "llm", "--hidden", 64)
    assert outcome.code == 2
    assert "--heads" in outcome.problems[0]
