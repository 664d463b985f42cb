from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from test_arrays import CHIP
from test_study import STUDY, TASK

import crosstack
from crosstack.explore.run import sweep
from crosstack.io.chip_file import read_chip
from crosstack.io.steps import step_named
from crosstack.machine.generate.generated import generate
from crosstack.machine.packages import system_of_packages
from crosstack.mapping.strategy import parse_strategy
from crosstack.model.rules import rules_named
from crosstack.workload.transformer_training import Recompute


def swept(write, text: str, **bases: str):
    for name, base in bases.items():
        write(f"{name}.yaml", base)
    return crosstack.sweep(write("study.yaml", text), jobs=1, table="arrow").to_pylist()


def test_a_mapped_point_is_what_map_finds(write):
    rows = swept(write, STUDY, task=TASK)
    assert [row["status"] for row in rows] == ["optimal"] * 4
    path = write("task.yaml", TASK)
    for row in rows:
        changes = [
            f"system.memory.bandwidth={row['memory']}",
            f"system.chip.utilization={row['system.chip.utilization']}",
        ]
        answer = crosstack.optimise(crosstack.load(path, changes))
        e = answer.evaluation
        assert row["time"] == e.time == row["bound"]
        # The task gives no unit prices, so that neither total is known.
        assert (row["energy"], row["power"], row["price"]) == (None, None, None)
        assert row["utilization"] == e.utilization


def test_efficiencies_are_throughput_per_dollar_and_watt(write):
    unit = {"link": 1e-9, "switch": 0, "memory": 1e-9, "switch_power": 0, "memory_power": 1e-9}
    prices = f"  prices: {json.dumps(unit)}\n"
    priced = TASK.replace("  network:\n", f"{prices}  network:\n")
    priced = priced.replace("25 GB/s}", "25 GB/s, link_power: 1 W/(GB/s)}")
    row = swept(write, STUDY, task=priced)[0]
    assert row["cost_efficiency"] == pytest.approx(row["work"] / row["time"] / row["price"])
    assert row["power_efficiency"] == pytest.approx(row["work"] / row["time"] / row["power"])


def test_any_number_of_the_answer_can_be_kept(write):
    text = STUDY + 'keep: ["partitions[0].memory_time_s", layer_time_s, "partitions[99].time_s"]\n'
    rows = swept(write, text, task=TASK)
    assert rows[0]["partitions[0].memory_time_s"] > 0
    assert rows[0]["layer_time_s"] > 0
    assert rows[0]["partitions[99].time_s"] is None


@pytest.mark.parametrize(
    ("keep", "reason"),
    [("layer_tim", 'Did you mean "layer_time_s"'), ("workload", "leads to no number")],
)
def test_what_cannot_be_kept_is_said(write, keep, reason):
    with pytest.raises(crosstack.InputError, match=rf"keep\.{keep}: .*{reason}"):
        swept(write, STUDY + f"keep: [{keep}]\n", task=TASK)


def test_a_point_that_does_not_fit_is_a_row_with_its_reason(write):
    rows = swept(
        write,
        "base: task.yaml\naxes:\n  system.memory.capacity: [1 kB, 1 GB]\n",
        task=TASK,
    )
    assert [row["status"] for row in rows] == ["infeasible", "optimal"]
    assert "memory" in rows[0]["reason"]
    assert rows[0]["time"] is None


def test_a_path_that_leads_nowhere_is_found_before_the_sweep(write):
    text = "base: task.yaml\naxes:\n  system.memory.bandwith: [1, 2]\n"
    with pytest.raises(crosstack.InputError, match='Did you mean "bandwidth"'):
        swept(write, text, task=TASK)


def test_the_options_of_an_evaluator_can_be_an_axis(write):
    text = "base: task.yaml\naxes:\n  rules: {path: options.rules, values: [crosstack, RULES]}\n"
    rows = swept(write, text.replace("RULES", "dfmodel-e2"), task=TASK)
    assert [row["status"] for row in rows] == ["optimal", "optimal"]
    with pytest.raises(crosstack.InputError, match="axes.rule"):
        swept(write, text.replace("options.rules", "options.rule"), task=TASK)


def test_rules_of_a_file_are_those_of_its_content(write):
    axes = "base: task.yaml\naxes: {system.memory.bandwidth: [10 GB/s]}\noptions: {rules: RULES}\n"
    write("mine.yaml", "base: dfmodel-e2\nweights_read: true\n")
    named, filed, inline = (
        swept(write, axes.replace("RULES", rules), task=TASK)[0]["time"]
        for rules in ("dfmodel-e2", "mine.yaml", "{base: dfmodel-e2, weights_read: true}")
    )
    assert filed == inline
    assert filed != named


def test_a_field_of_the_rules_can_be_an_axis(write):
    text = "base: task.yaml\noptions: {rules: dfmodel-e2}\naxes:\n"
    text += "  read: {path: options.rules.weights_read, values: [true, false]}\n"
    rows = swept(write, text, task=TASK)
    known = {row["read"]: row["time"] for row in rows}
    path = write("task.yaml", TASK)
    for read in (True, False):
        rules = rules_named("dfmodel-e2").changed(name="study", weights_read=read)
        answer = crosstack.optimise(crosstack.load(path), rules=rules)
        assert known[str(read).lower()] == answer.evaluation.time
    assert known["true"] > known["false"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "weights_read",
            "weights_reed",
            'weights_reed: .*Did you mean "weights_read"',
        ),
        ("[true]", "[maybe]", "options.rules.weights_read: got 'maybe'"),
        ("dfmodel-e2", "dfmodel-e22", 'options.rules: .*Did you mean "dfmodel-e2"'),
        ("dfmodel-e2", "none.yaml", "options.rules.*no such file"),
        ("dfmodel-e2", "{base: crosstack, wait: 1}", "options.rules.wait: unknown field"),
    ],
)
def test_rules_that_are_none_are_found_before_the_sweep(write, old, new, message):
    text = "base: task.yaml\noptions: {rules: dfmodel-e2}\naxes:\n"
    text += "  read: {path: options.rules.weights_read, values: [true]}\n"
    with pytest.raises(crosstack.InputError, match=message):
        swept(write, text.replace(old, new), task=TASK)


PREDICTED = """\
base: chip.yaml
evaluate: predict
options: {model: gpt-22b, batch: 32, microbatches: 4, recompute: none, interleave: 1}
axes:
  node: [N7, N5]
  strategy: {path: options.given, values: [RC-1-1-d8-p8]}
  chips: {path: packages, values: [64]}
keep: [run_time]
"""


def test_a_predicted_point_is_what_predict_says(write):
    chip = CHIP
    rows = swept(write, PREDICTED, chip=chip)
    assert len(rows) == 2
    rules = rules_named("crosstack")

    for row in rows:
        machine = read_chip(chip, "chip.yaml", [f"node={row['node']}", "packages=64"])
        strategy = parse_strategy(row["strategy"])
        made = generate(machine.template, machine.budget, rules.chips)
        system = system_of_packages(
            made.chip, n_packages=64, inside=machine.inside, between=machine.between
        )
        step = replace(
            step_named("gpt-22b"), batch=32, microbatches=4, recompute=Recompute.NONE, interleave=1
        )
        found = rules.step(step, strategy, system, machine.template.dtype, rules=rules)
        assert row["time"] == found.time
        assert row["memory_used"] == found.memory.peak
        assert row["energy"] == pytest.approx(row["power"] * row["time"])
        assert row["energy_basis"].startswith("all power of all chips")


@pytest.mark.slow
def test_a_study_varies_the_topology(write):
    text = """\
base: chip.yaml
evaluate: predict
options: {model: lstm-lm-40k, batch: 64, given: RC-1-16-d1-p1}
axes:
  topology: {path: options.topology, values: ["ring,switch", "ring,ring"]}
"""
    rows = swept(write, text, chip=CHIP.replace("packages: 8", "packages: 16"))
    times = {row["topology"]: row["time"] for row in rows}
    assert len(set(times.values())) == 2


def test_a_product_is_predicted_from_a_budget(write):
    text = "base: chip.yaml\nevaluate: predict\naxes:\n"
    text += "  power: [300 W, 500 W]\n  shape: {path: options.gemm, values: [[4096, 4096, 4096]]}\n"
    with pytest.raises(crosstack.InputError, match="power"):
        swept(write, text, chip=CHIP)  # a column of the result has that name
    text = text.replace("power: [300 W, 500 W]", "budget: {path: power, values: [300 W, 500 W]}")
    rows = swept(write, text, chip=CHIP)
    assert rows[0]["time"] > rows[1]["time"] > 0
    assert rows[0]["shape"] == "4096 4096 4096"


def test_an_evaluator_of_your_own_is_taken(write):
    from slow_points import SlowPoints

    study = write("own.yaml", "base: none\nevaluate: slow\naxes:\n  n: {path: x, values: [6, 8]}\n")
    table = sweep(study, evaluator=SlowPoints(), jobs=1, table="arrow")
    assert table["square"].to_pylist() == [12.0, 64 / 3.0]


def test_the_busiest_stage_of_a_prediction_works_and_waits(tmp_path):
    example = Path(__file__).resolve().parents[2] / "examples/chips/n5_hbm3.yaml"
    study = tmp_path / "study.yaml"
    study.write_text(
        f"base: {example}\nevaluate: predict\n"
        "options: {model: gpt-22b, given: RC-1-1-d1-p16, batch: 4, interleave: 1, "
        "recompute: none}\n"
        "axes:\n  packages: [16]\n  options.microbatches: [1, 2, 4]\nobjectives: {time: min}\n"
    )
    table = sweep(study, jobs=1, table="arrow").to_pydict()
    for time, busy, idle in zip(table["time"], table["busy_time"], table["idle_time"], strict=True):
        assert time == pytest.approx(busy + idle)
    shares = [i / t for i, t in zip(table["idle_time"], table["time"], strict=True)]
    # huang2019gpipe: bubbles of (p - 1) / (m + p - 1), here of nearly equal stages.
    by_parts = dict(zip(table["options.microbatches"], shares, strict=True))
    for parts in (1, 2, 4):
        assert by_parts[parts] == pytest.approx(15 / (parts + 15), abs=0.06)


@pytest.mark.parametrize("evaluator", ["predict", "chip"])
def test_rules_of_a_study_of_chips_may_be_a_set_with_fields_changed(write, evaluator):
    step = ", gemm: [64, 64, 64]" if evaluator == "predict" else ""
    text = f"base: chip.yaml\nevaluate: {evaluator}\noptions: {{rules: deepflow-2021{step}}}\n"
    text += "axes:\n  at: {path: options.rules.clock_at_minimum, values: [true, false]}\n"
    little = CHIP.replace("power: 500 W", "power: 60 W")
    rows = swept(write, text, chip=little)
    assert len({row["peak_throughput"] for row in rows}) == 2
