"""``crosstack generate llm``: a workload to start from."""

from __future__ import annotations

import json

import pytest

import crosstack
from crosstack import Job, Transformer
from crosstack.io.load import load

SIZES = ["--hidden", 64, "--heads", 4, "--sequence", 32, "--layers", 2, "--batch", 8]
SHAPE = {"hidden": 64, "heads": 4, "kv_heads": 4, "head_size": 16, "feed_forward": 256}
MODEL = Transformer(**SHAPE, layers=2, vocabulary=32_000, context=1)
WORKLOAD = Job(model=MODEL, sequence=32, batch=8).workload


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
    # Two rows of the scores of all words in single precision, as the loss reads them.
    small.write_text(small.read_text().replace("256 KiB", "1 MiB"))
    run("generate", "llm", *SIZES, "--system", small, "-o", path)
    outcome = run("map", path, "--work-limit", 1, "--json", small.parent / "result.json")
    assert outcome.code in (0, 4)
    assert len(json.loads((small.parent / "result.json").read_text())["kernels"]) == 49


def test_a_workload_with_a_machine_is_printed_as_a_task(run, small, tmp_path):
    path = tmp_path / "printed.yaml"
    path.write_text(run("generate", "llm", *SIZES, "--system", small).out)
    assert load(path).system == load(small).system


@pytest.mark.parametrize(("flag", "kernels"), [([], 49), (["--forward"], 17)])
def test_a_layer_has_as_many_kernels_as_its_graph(run, tmp_path, system, flag, kernels):
    path = tmp_path / "w.yaml"
    path.write_text(run("generate", "llm", *SIZES, *flag).out + system)
    assert len(crosstack.load(path).workload.graph) == kernels


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--heads", 5], "--head-size: left out; allowed: a whole number"),
        (["--heads", 0], "--heads: got 0"),
        (["--kv-heads", 3], "--kv-heads: got 3; allowed: a divisor of heads = 4"),
        (["--hidden", 0], "--hidden: got 0"),
        (["--batch", -1], "--batch: got -1"),
        (["--sequence", 0], "--sequence: got 0"),
        (["--dtype", "fp12"], "--dtype"),
        (["-o", "w.foo"], "--output: got w.foo; allowed: .yaml, .yml."),
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
    outcome = run("generate", "llm", "--hidden", 64, "--sequence", 32)
    assert outcome.code == 2
    assert "--layers: required, but missing; or model" in outcome.problems[0]


OTHERS = {
    "dlrm": [
        "--width", 64, "--bottom", 2, "--top", 2, "--tables", 8, "--rows", 100,
        "--embedding-size", 16, "--samples", 8, "--forward",
    ],
    "fft": ["--length", 256, "--radix", 16],
    "prefill": ["--sequence", 32, "--model", "llama-68m"],
    "decode": ["--context", 32, "--model", "llama-68m"],
    "mamba": ["--hidden", 64, "--sequence", 32],
    "hyena": ["--hidden", 64, "--sequence", 8],
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n == "mamba" else ()) for n in OTHERS]
)
def test_every_workload_with_a_machine_can_be_mapped(run, tmp_path, a_machine, name):
    path = tmp_path / "w.yaml"
    path.write_text(run("generate", name, *OTHERS[name]).out + a_machine)
    outcome = run("map", path)
    assert (outcome.code, outcome.err) == (0, "")
    assert "Proved optimal" in outcome.out


@pytest.fixture
def a_machine():
    """Return the ``system`` section of four chips whose use is free."""
    return (
        "system:\n"
        "  chip: {n_cores: 64, lanes: 8, stages: 8, frequency: 1GHz, sram_capacity: 64MB}\n"
        "  memory: {bandwidth: 100GB/s}\n"
        "  network: [{kind: ring, size: 4, bandwidth: 10GB/s}]\n"
    )


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("dlrm", ["--tables", 0], "--tables: got 0; allowed: a whole number, at least 1."),
        ("dlrm", ["--samples", -1], "--samples: got -1"),
        ("dlrm", ["--bottom", 0], "--bottom: got 0"),
        ("fft", ["--radix", 1], "--radix: got 1; allowed: a whole number, at least 2."),
        ("prefill", ["--sequence", 0], "--sequence: got 0"),
        ("prefill", ["--kv-heads", 5], "--kv-heads: got 5; allowed: a divisor of heads = 12."),
        ("decode", ["--context", 0], "--context: got 0"),
        ("decode", ["--model", "llama4"], "--model: no model is called"),
        ("decode", ["--heads", 7], "--kv-heads: got 12; allowed: a divisor of heads = 7"),
        ("prefill", ["--model", "deepseek-v2", "--block", "layers"], "--block: no block is called"),
        ("prefill", ["--model", "none.json"], "none.json: no such file"),
        ("mamba", ["--state-size", 0], "--state-size: got 0"),
        ("hyena", ["--filter-size", 33], "--filter-size: got 33; allowed: at most the sequence"),
        ("hyena", ["--convolution", "fast"], "--convolution"),
    ],
)
def test_other_workloads_that_make_no_sense_are_refused(run, name, arguments, says):
    outcome = run("generate", name, *OTHERS[name], *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert says in outcome.problems[0]


def test_the_published_decoding_run(run, tmp_path):
    # LLM_Serving/DSE/TP16_PP1/llama3_8B_SN40L_decode: 841893.89 ns a token
    path, out = tmp_path / "decode.yaml", tmp_path / "decode.json"
    path.write_text(
        "workload: {dfmodel: {decode: {model: llama3-8b, kv_heads: 32, gated: false,"
        " context: 4096, chips: 16, global_batch_size: 16384}}}\n"
        "system:\n"
        "  chip: {n_cores: 1040, lanes: 32, stages: 6, frequency: 1.6GHz,"
        " sram_capacity: 545259520, utilization: 0.9, overlap: none}\n"
        "  memory: {bandwidth: 1638.4GB/s, capacity: 64GiB}\n"
        "  network: [{kind: ring, size: 16, bandwidth: 50GB/s, latency: 150ns,"
        " parallelism: tensor}]\n"
        "constraints: {microbatch_size: 1, max_partitions: 1}\n"
        "rules: dfmodel-e5+separate\n"
    )
    run("map", path, "--json", out)
    assert json.loads(out.read_text())["latency_s"] == pytest.approx(841893.89e-9, rel=1e-6)
