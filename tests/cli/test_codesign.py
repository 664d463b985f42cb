from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from builders.stores import points_in

import crosstack
from crosstack.explore.store import Store
from crosstack.interrupt import INTERRUPTED_EXIT

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/codesign/llama3_decode.yaml"
OPTIMIZE = ROOT / "examples/optimize/lstm_64.yaml"
QUICK = (
    "--set", "workload={prefill: {model: llama-68m, sequence: 64, batch: 8}}",
    "--set", "choices={node: [N7, N3], packages: [1, 2]}",
    "--set", "search={evaluations: 12}",
)  # fmt: skip
FEW = (*QUICK, "--set", "search.evaluations=8")


@pytest.fixture(scope="module")
def front(run, tmp_path_factory):
    """Return what was saved, with a page, a picture and a store beside it, and what was printed."""
    folder = tmp_path_factory.mktemp("front")
    files = {"json": "front.json", "html": "page.html", "svg": "front.svg", "store": "front.store"}
    outputs = [f"--{kind}={folder / name}" for kind, name in files.items()]
    outcome = run("codesign", EXAMPLE, *QUICK, *outputs)
    assert outcome.code == 0
    return folder / "front.json", outcome.out


def test_the_front_is_printed_and_saved(front, run, tmp_path):
    (saved, printed), out = front, tmp_path / "out.json"
    store, svg = (saved.with_suffix(f".{kind}") for kind in ("store", "svg"))
    arguments = ("codesign", EXAMPLE, *QUICK, "--store", store, "--json", out)
    found = json.loads(saved.read_text())
    assert found["candidates"] == 12
    times = [member["time_s"] for member in found["front"]]
    assert times == sorted(times)
    assert {member["status"] for member in found["front"]} == {"optimal"}
    assert f"{len(times)}" in printed
    assert "most for the price" in svg.read_text()
    assert run(*arguments).code == 2
    assert run(*arguments, "--resume").code == 0
    assert json.loads(out.read_text()) == found
    assert run("report", store, "-o", tmp_path / "page.html").code == 0
    shown = run("study", "show", store)
    assert "12 optimal" in shown.out
    assert "most throughput" in shown.out


def test_a_price_that_is_not_given_is_said_to_count_as_nothing(run):
    outcome = run("codesign", EXAMPLE, *FEW, "--set", "prices={memory: 15 USD/GB}")
    assert "counted as 0 package, link, switch, switch_power" in " ".join(outcome.out.split())


def test_a_member_can_be_mapped_on_its_own(run, tmp_path):
    out = tmp_path / "out.json"
    run("codesign", EXAMPLE, *FEW, "--json", out)
    member = json.loads(out.read_text())["front"][0]
    task = tmp_path / "task.yaml"
    workload = "workload: {prefill: {model: llama-68m, sequence: 64, batch: 8}}\n"
    task.write_text(workload + member["system"])
    answer = crosstack.optimise(crosstack.load(task))
    assert answer.evaluation.time == pytest.approx(member["time_s"], rel=1e-9)


def test_the_workload_may_stand_in_a_file(run):
    outcome = run(
        "codesign", EXAMPLE, *QUICK, "--set", "workload=../my_graph.yaml",
        "--set", "choices={}", "--set", "search={evaluations: 3}",
    )  # fmt: skip
    assert outcome.code == 0
    assert "my-graph" in outcome.out


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("prices.memroy=3", 'prices.memroy: unknown field. Did you mean "memory"?'),
        ("prices.memory=3 USD/GHz", "prices.memory"),
        ("prices.wafer.yield_model=murphi", 'Did you mean "murphy"?'),
        ("workload={prefil: {}}", 'workload.prefil: unknown field. Did you mean "prefill"?'),
        ("workload=nowhere.yaml", "nowhere.yaml: no such file"),
        ("choices={node: [N8]}", "N8"),
        ("choices={node: []}", "choices.node: got an empty list"),
        ("chip_area={from: 5 mm^2, to: 4 mm^2}", "chip_area: got"),
        ("chip_rules=deepflo", "chip_rules: no rules are called"),
        ("rules=dfm", "rules: no rules are called"),
        ("hold=[L9]", "no component 'L9'"),
        ("limits.price=-3", "limits.price"),
        ("search.gap=2", "search.gap"),
        ("search.evaluations=0", "search.evaluations"),
        ("chip=nowhere.yaml", "no such file"),
    ],
)
def test_bad_input_is_said_on_one_line(run, change, said):
    outcome = run("codesign", EXAMPLE, *QUICK, "--set", change)
    assert outcome.code == 2
    assert said in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_deepflow_hardware_is_refused(run, tmp_path):
    data = ROOT.parent / "shared/data/deepflow/configs/2021/configs/v100.yaml"
    if not data.exists():
        pytest.skip("../shared/data is not here")
    outcome = run("codesign", EXAMPLE, *QUICK, "--set", f"chip={data}")
    assert outcome.code == 2
    assert "names no node" in outcome.err


@pytest.mark.parametrize("change", ["limits.price=10 USD", "limits.power=1 W"])
def test_what_no_machine_can_be_is_infeasible(run, change):
    outcome = run("codesign", EXAMPLE, *QUICK, "--set", change)
    assert outcome.code == 3
    assert "above its limit" in outcome.err


def test_no_jobs_are_refused(run):
    outcome = run("codesign", EXAMPLE, "--jobs", "0")
    assert (outcome.code, outcome.err.startswith("crosstack: --jobs: ")) == (2, True)


@pytest.mark.slow
def test_an_interrupted_search_stops_and_goes_on(run, tmp_path):
    """Ctrl-C reaches every process of a terminal; what was mapped is kept."""
    store, out, whole = (tmp_path / name for name in ("front.store", "out.json", "whole.json"))
    command = [sys.executable, "-m", "crosstack", "codesign", str(EXAMPLE), "--jobs", "2"]
    command += ["--set", "search.evaluations=32", "--store", str(store)]
    started = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 300
    while not points_in(store) and started.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.killpg(started.pid, signal.SIGINT)
    _, err = started.communicate(timeout=120)
    assert started.returncode == INTERRUPTED_EXIT
    assert re.search(r"crosstack: stopped; \d+ points are in .*, --resume goes on with them", err)
    arguments = ("codesign", EXAMPLE, "--set", "search.evaluations=32")
    outcome = run(*arguments, "--store", store, "--resume", "--json", out)
    assert "from the store" in outcome.out
    run(*arguments, "--json", whole)
    assert json.loads(out.read_text()) == json.loads(whole.read_text())


NODE = """
nodes:
  N3:
    title: a node of my own
    previous: {value: N5, kind: assumed, source: me}
    density: {value: 1.5, kind: assumed, source: me}
    sram_cell: {value: 0.02 um^2, kind: assumed, source: me}
"""


def test_a_node_without_a_price_asks_for_one(run, tmp_path):
    library = tmp_path / "library.yaml"
    library.write_text(NODE)
    arguments = ("codesign", EXAMPLE, *FEW, "--library", library)
    outcome = run(*arguments)
    assert outcome.code == 2
    assert "prices.wafer.price: required: the library has none for N3." in outcome.err
    given = "prices.wafer={price: 5000 USD, defect_density: 0.1 /cm^2}"
    assert run(*arguments, "--set", given).code == 0


def test_a_point_belongs_to_its_library(run, tmp_path):
    library, store = tmp_path / "library.yaml", tmp_path / "front.store"
    library.write_text(NODE)
    prices = ("--set", "prices.wafer={price: 5000 USD, defect_density: 0.1 /cm^2}")
    arguments = ("codesign", EXAMPLE, *FEW, *prices, "--store", store)
    assert run(*arguments).code == 0
    assert "from the store" in run(*arguments, "--resume").out
    before = Store.open(store).count()
    assert run(*arguments, "--resume", "--library", library).code == 0
    assert Store.open(store).count() > before


def test_a_saved_front_is_shown_and_reported_as_it_was(front, run, tmp_path):
    saved, printed = front
    assert printed.startswith(run("show", saved).out)
    page = tmp_path / "page.html"
    assert run("report", saved, "-o", page).code == 0
    assert page.read_text() == saved.with_name("page.html").read_text()
    points = json.loads(re.search(r'id="study">(.*?)</script>', page.read_text())[1])
    data = json.loads(saved.read_text())
    assert points["points"] == len(data["front"]) + len(data["dominated"])
    assert points["axes"] == ["node", "packages"]
    assert points["objectives"] == ["throughput", "price", "power"]


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet"])
def test_every_machine_that_was_mapped_is_exported(front, run, tmp_path, suffix):
    pytest.importorskip("pyarrow", reason="needs crosstack[explore]")
    out = tmp_path / f"machines.{suffix}"
    assert run("study", "export", front[0], "-o", out).code == 0
    data = json.loads(front[0].read_text())
    if suffix == "parquet":
        import pyarrow.parquet

        table = pyarrow.parquet.read_table(out)
        assert table.num_rows == data["mapped"]
        assert table.schema.field("price").metadata == {b"unit": b"USD"}
        on_front = table.column("front").to_pylist().count("on the front")
        assert on_front == len(data["front"])


def test_a_choice_that_is_called_as_a_result_keeps_its_values(front, run, tmp_path):
    pytest.importorskip("pyarrow", reason="needs crosstack[explore]")
    saved = json.loads(front[0].read_text())
    text = (
        front[0].read_text().replace('"node": "N', '"power": "N').replace('"node": [', '"power": [')
    )
    (tmp_path / "a.json").write_text(text)
    assert run("study", "export", tmp_path / "a.json", "-o", tmp_path / "b.json").code == 0
    row = json.loads((tmp_path / "b.json").read_text())[0]
    assert row["chip.power"] == saved["front"][0]["choice"]["node"]
    assert row["power"] == saved["front"][0]["power_w"]


def test_a_prediction_or_a_text_is_no_search_to_export(run, tmp_path):
    pytest.importorskip("pyarrow", reason="needs crosstack[explore]")
    for text, said in (('{"a": 1}', "allowed: a store, or what codesign"), ("no", "not JSON")):
        (tmp_path / "a.json").write_text(text)
        outcome = run("study", "export", tmp_path / "a.json", "-o", tmp_path / "b.csv")
        assert outcome.code == 2
        assert said in outcome.err
    study = ("--study", EXAMPLE)
    outcome = run("study", "export", tmp_path / "a.json", "-o", tmp_path / "b.csv", *study)
    assert (outcome.code, outcome.problems) == (2, ["--study: allowed: with a store alone."])


def test_a_front_whose_machines_have_other_choices_is_refused(front, run, tmp_path):
    data = json.loads(front[0].read_text())
    del data["front"][0]["choice"]["node"]
    (tmp_path / "a.json").write_text(json.dumps(data))
    outcome = run("show", tmp_path / "a.json")
    assert outcome.code == 2
    assert "front[0].choice: has other fields; allowed: node, packages." in outcome.err
