from __future__ import annotations

import json
from dataclasses import replace

import pytest

import crosstack
from crosstack.published.dfmodel.graphs.llm import llm


@pytest.fixture
def file(tmp_path):
    """Return a file with a small model that is mapped in a moment."""
    chip = crosstack.flat_chip(
        n_cores=64, lanes=8, stages=4, frequency=1e9, sram_capacity=1e9, utilization=0.5
    )
    ring = crosstack.Dimension(
        kind=crosstack.DimensionKind.RING,
        bandwidth=25e9,
        size=4,
        parallelism=crosstack.Parallelism.TENSOR,
    )
    system = crosstack.System(
        chip=replace(chip, memories=crosstack.main_memory(bandwidth=100e9)),
        network=(ring,),
        n_chips=4,
    )
    workload = llm(
        hidden=256, n_heads=4, head_size=64, sequence_length=128, n_layers=2,
        global_batch_size=4, training=False,
    )  # fmt: skip
    given = crosstack.Constraints(microbatch_size=1, n_tiles=1)
    path = tmp_path / "task.yaml"
    crosstack.save(crosstack.Task(workload=workload, system=system, constraints=given), path)
    return path


def test_findings_are_printed_and_saved(run, file, tmp_path):
    out, svg = tmp_path / "out.json", tmp_path / "out.svg"
    outcome = run("explain", file, "--json", out, "--svg", svg)
    assert (outcome.code, outcome.err) == (0, "")
    found = json.loads(out.read_text())
    assert found["status"] == "optimal"
    assert {r["path"] for r in found["resources"]} >= {
        "system.chip.frequency",
        "system.memory.bandwidth",
        "system.network[0].bandwidth",
        "system.network[0].latency",
    }
    for sentence in found["findings"]:
        assert sentence.split()[0] in outcome.out
    assert "does not fit" not in outcome.out
    assert "<svg" in svg.read_text()


@pytest.mark.parametrize(
    "arguments",
    [("--step", "0"), ("--step", "1"), ("--gap", "2"), ("--work-limit", "0"), ("--jobs", "0")],
)
def test_numbers_out_of_range_are_refused(run, file, arguments):
    outcome = run("explain", file, *arguments)
    assert outcome.code == 2
    assert outcome.err.startswith(f"crosstack: {arguments[0]}: ")


def test_any_number_of_processes_prints_the_same(run, file):
    usual, *others = (run("explain", file, *jobs) for jobs in ((), ("--jobs", 1), ("--jobs", 2)))
    assert usual.code == 0
    assert all((one.out, one.err) == (usual.out, usual.err) for one in others)


def test_a_saved_mapping_is_explained_as_its_task(run, file, tmp_path):
    saved, one, two = (tmp_path / name for name in ("saved.json", "one.json", "two.json"))
    assert run("map", file, "--json", saved, "--rules", "dfmodel-e5").code == 0
    assert run("explain", file, "--rules", "dfmodel-e5", "--json", one).code == 0
    outcome = run("explain", saved, "--json", two)
    assert (outcome.code, outcome.err) == (0, "")
    assert json.loads(two.read_text()) == json.loads(one.read_text())
    assert run("explain", saved, "--set", "system.n_chips=2").code == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [("[]", "not a result"), ("{}", "task: missing"), ("{", "not JSON"), ('{"task": "x"}', "task")],
)
def test_what_is_no_saved_mapping_is_refused(run, tmp_path, text, said):
    path = tmp_path / "saved.json"
    path.write_text(text)
    outcome = run("explain", path)
    assert outcome.code == 2
    assert said in outcome.err
