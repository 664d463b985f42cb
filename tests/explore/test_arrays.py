"""Points answered as arrays are those answered one by one."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import crosstack
from crosstack.explore.batches import Common, arrayed
from crosstack.explore.evaluators import PointAnswer, answered
from crosstack.explore.points import expand
from crosstack.explore.run import layout_of, run_study, sweep
from crosstack.explore.store import Store
from crosstack.explore.study import read_study

TASK = """\
workload:
  dfmodel: {llm: {hidden: 512, sequence_length: 256, n_heads: 8, head_size: 64, n_layers: 8,
        global_batch_size: 64, training: true}}
system:
  chip: {library: sn30, utilization: 0.9}
  memory: {bandwidth: 300 GB/s, capacity: 1 TB}
  network:
    - {library: pcie4_setup, kind: ring, size: 4, latency: 100 ns, parallelism: tensor}
    - {library: pcie4_setup, kind: switch, size: 4, latency: 200 ns, parallelism: USE}
  prices: {link: 2 USD/(GB/s), switch: 24 USD/(GB/s), memory: 1 USD/(GB/s),
           memory_power: 0.1 W/(GB/s)}
constraints: {microbatch_size: 2, kernel_by_kernel: true}
"""
AXES = """\
base: task.yaml
evaluate: mapping
options: {mapping: mapping.json}
axes:
  memory: {path: system.memory.bandwidth, log_range: {from: 10 GB/s, to: 10 TB/s, count: 3}}
  capacity: {path: system.memory.capacity, values: [1 MB, 1 TB]}
  link: {path: "system.network[0].bandwidth", log_range: {from: 1 GB/s, to: 1 TB/s, count: 3}}
  outer: {path: "system.network[1].bandwidth", log_range: {from: 1 GB/s, to: 1 TB/s, count: 3}}
  hop: {path: "system.network[0].latency", values: [0, 1 us]}
  hop2: {path: "system.network[1].latency", values: [0, 50 us]}
  overlap: {path: system.chip.overlap, values: [all, none, compute_memory]}
  clock: {zip: {system.chip.frequency: [1 GHz, 2 GHz], system.chip.power: [300 W, 500 W]}}
  use: {path: system.chip.utilization, values: [0.5, 0.9]}
  idle: {path: system.chip.idle_power, values: [40 W]}
  rules: {path: options.rules, values: [RULES]}
"""
GRAPH = """\
workload:
  word: 2
  n_layers: 4
  global_batch_size: 64
  kernels:
    - {name: a, kind: gemm_weight, m: 256, k: 128, n: 512}
    - name: b
      kind: gemm_weight
      m: 128
      k: 256
      n: 512
      inputs: [a]
      communications:
        - {collective: all_gather, size: 3 kB}
        - {collective: all_gather, size: 50 MB}
        - {collective: all_reduce, size: 1 MB}
        - {collective: all_to_all, size: 20 kB}
    - {name: c, kind: elementwise, m: 128, n: 512, inputs: [b]}
""" + TASK[TASK.index("system:") :]
RULES = ("crosstack", "dfmodel-readme", "dfmodel-e2", "dfmodel-e3b", "dfmodel-e5")


def study_with(write, rules: str, use: str = "pipeline", task: str = TASK, text: str = AXES):
    task = task.replace("USE", use)
    path = write("task.yaml", task)
    answer = crosstack.optimise(crosstack.load(path), gap=0.5, time_limit=20)
    write("mapping.json", json.dumps(answer.to_dict()))
    if use == "data":  # draws its whole power always
        text = "".join(line for line in text.splitlines(True) if "idle" not in line)
    return read_study(write("study.yaml", text.replace("RULES", rules)))


def worst_difference(study, table, picked) -> float:
    """Return the largest relative difference to points that are answered alone."""
    points = expand(study)
    worst = 0.0
    for number in picked:
        alone = answered(study.evaluator, study.base, points.assignments(int(number)), ())
        row = table.slice(int(number), 1).to_pylist()[0]
        assert row["status"] == alone.status
        for name, value in alone.terms.items():
            if value is None:
                assert row[name] is None
            elif value != row[name]:
                worst = max(worst, abs(row[name] - value) / abs(value))
    return worst


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rules", "use"),
    [
        # Every use by default, every rule set once.
        pytest.param(
            rules, use, marks=() if rules == "crosstack" or use == "pipeline" else pytest.mark.slow
        )
        for rules in RULES
        for use in ("pipeline", "data", "tensor")
    ],
)
def test_a_given_mapping_on_many_machines_is_that_on_each(write, rules, use):
    study = study_with(write, rules, use)
    table = sweep(study, jobs=1, table="arrow")
    assert set(table["status"].to_pylist()) == {"feasible", "infeasible"}
    assert table["energy"].null_count == table["time"].null_count
    picked = np.random.default_rng(0).integers(0, table.num_rows, 20)
    assert worst_difference(study, table, picked) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("use", [pytest.param("data", marks=pytest.mark.slow), "tensor"])
@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        ("switch", "rail_optimised, oversubscription: 4, pod_size: 2"),
        ("torus, shape: [2, 2]", "dragonfly, oversubscription: 2"),
        ("mesh", "fully_connected"),
        ("switch, reduces: true", "fat_tree, reduces: true"),
    ],
)
def test_the_fastest_algorithm_of_each_machine_counts(write, use, inside, outside):
    task = TASK.replace("kind: switch", f"kind: {outside}").replace("kind: ring", f"kind: {inside}")
    study = study_with(write, "crosstack", use, task)
    table = sweep(study, jobs=1, table="arrow")
    picked = np.random.default_rng(1).integers(0, table.num_rows, 20)
    assert worst_difference(study, table, picked) < 1e-12


def test_what_a_kernel_sends_of_its_own_is_counted_beside_conversions(write):
    task = GRAPH.replace("USE", "tensor")
    study = study_with(write, "crosstack", "tensor", task)
    table = sweep(study, jobs=1, table="arrow")
    picked = np.random.default_rng(2).integers(0, table.num_rows, 20)
    assert worst_difference(study, table, picked) < 1e-12


def test_numbers_of_the_machine_are_arrays_and_names_are_not(write):
    study = study_with(write, "crosstack")
    job = Common(evaluator=study.evaluator, base=study.base, keep=())
    names = [study.axes[i].name for i in sorted(arrayed(job, expand(study)))]
    assert names == ["memory", "capacity", "link", "outer", "hop", "hop2", "clock", "use"]


def test_a_number_in_another_unit_is_refused_point_by_point(write):
    text = AXES[: AXES.index("  hop2")].replace("values: [0, 1 us]", "values: [1 us, 2 GB]")
    text = text.replace("count: 4", "count: 2")
    table = sweep(study_with(write, "crosstack", text=text), jobs=1, table="arrow")
    bad = [row for row in table.to_pylist() if row["hop"] == "2 GB"]
    assert {row["status"] for row in bad} == {"invalid"}
    assert "allowed units: s" in bad[0]["reason"]


def test_a_number_out_of_range_spoils_no_other_point(write):
    text = AXES[: AXES.index("  outer")] + AXES[AXES.index("  use") :]
    text = text.replace("values: [0.5, 0.9]", "values: [0.5, 1.5]")
    table = sweep(study_with(write, "crosstack", text=text), jobs=1, table="arrow")
    status = {0.5: set(), 1.5: set()}
    for row in table.select(["use", "status"]).to_pylist():
        status[row["use"]].add(row["status"])
    assert status == {0.5: {"feasible", "infeasible"}, 1.5: {"invalid"}}


def test_a_mapping_that_is_no_line_is_priced_one_by_one(write):
    llm = TASK[TASK.index("  dfmodel") : TASK.index("system")]
    task = TASK.replace(llm, "  dfmodel: {fft: {length: 1048576, radix: 32}}\n")
    task = task.replace(", parallelism: tensor", "").replace(", parallelism: USE", "")
    task = task.replace("microbatch_size: 2, ", "").replace("{library: sn30,", "{library: a100,")
    text = AXES[: AXES.index("  overlap")]
    study = study_with(write, "crosstack", task=task, text=text)
    table = sweep(study, jobs=1, table="arrow")
    assert worst_difference(study, table, range(0, table.num_rows, 17)) == 0


CHIP = (Path(__file__).parents[2] / "examples/chips/n5_hbm3.yaml").read_text()
CHIPS = """\
base: chip.yaml
evaluate: chip
axes:
  size: {path: chip_area, range: {from: 100 mm^2, to: 800 mm^2, count: 9}}
  watts: {path: power, log_range: {from: 5 W, to: 500 W, count: 9}}
  node: [N7, N5]
  compute: {path: shares.area.compute, values: [0.2, 0.3, 0.9, 0]}
"""


def test_many_chips_at_once_are_those_made_alone(write):
    write("chip.yaml", CHIP)
    study = read_study(write("study.yaml", CHIPS))
    table = sweep(study, jobs=1, table="arrow")
    assert set(table["status"].to_pylist()) == {"feasible", "infeasible"}
    assert worst_difference(study, table, range(0, table.num_rows, 7)) < 1e-12
    alone = answered(study.evaluator, study.base, expand(study).assignments(0), ())
    assert table["reason"].to_pylist()[0] == alone.reason


def test_an_unknown_node_is_found_before_the_sweep(write):
    write("chip.yaml", CHIP)
    study = read_study(write("study.yaml", CHIPS.replace("[N7, N5]", "[N7, N6]")))
    with pytest.raises(crosstack.InputError, match=r"axes\.node"):
        sweep(study, jobs=1)


def test_each_point_of_a_batch_whose_process_died_is_a_row(write, tmp_path):
    class Dying:
        @contextmanager
        def started(self, function):
            died = PointAnswer(status="failed", reason="its process died")
            yield lambda batches: ((batch, died) for batch in batches if batch is not None)

    study = study_with(write, "crosstack")
    store = Store.create(tmp_path / "store", layout_of(study))
    points = run_study(study, store, Dying())
    table = store.table(points.keys)
    assert table.num_rows == len(points) > 1
    assert set(table.column("reason").to_pylist()) == {"its process died"}
