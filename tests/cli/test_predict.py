from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from crosstack.units import parse_quantity

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/chips/n5_hbm3.yaml"
CONFIGS = Path(__file__).resolve().parents[3] / "shared/data/deepflow/configs/2025/configs"
HARDWARE = CONFIGS / "hardware-config/a100_80GB.yaml"
DGX, CARD = ("--on", "a100-dgx-80gb"), ("--on", "a100-pcie-80gb")
ONE = ("--set", "system_hierarchy.num_devices_per_node=1")
public = pytest.mark.skipif(not HARDWARE.exists(), reason="the configurations are absent")
PLACED = ("--package", "1", "--packages", "4")


def seconds(run, out, *arguments):
    outcome = run("predict", HARDWARE, *arguments, "--json", out)
    assert (outcome.code, outcome.err) == (0, "")
    return json.loads(out.read_text())["time"]


@public
def test_a_product_is_predicted(run, tmp_path):
    arguments = ("--gemm", "4096,4096,4096", "--given", "RC-1-1-d1-p1")
    out = tmp_path / "gemm.json"
    # deepflow_code, run gemm_A100_4096_4096_4096 of 2025.
    recorded = seconds(run, out, *arguments, "--rules", "deepflow-2025")
    assert recorded == pytest.approx(0.0005965201120742492, rel=1e-9)
    # The default: no faster than two operations a multiplication at the file's rate and a launch.
    work = 2 * 4096**3 / (108 * 4 * 512 * 1.41e9 * 0.75)
    assert work + 9e-6 <= seconds(run, out, *arguments) < 1.5 * work


@public
def test_unknown_rules_name_the_nearest(run):
    outcome = run("predict", HARDWARE, "--gemm", "1,1,1", "--rules", "deepflow-2024")
    assert outcome.code == 2
    assert "deepflow-2025" in outcome.err


@public
def test_a_step_has_parts_and_memory(run, tmp_path):
    out = tmp_path / "step.json"
    arguments = ("--model", "gpt-22b", "--batch", "4", "--given", "RC-1-8-d1-p2")
    grid = ("--package", "1x1", "--packages", "8x2")
    outcome = run("predict", HARDWARE, *arguments, *grid, "--json", out)
    assert (outcome.code, outcome.err) == (0, "")
    found = json.loads(out.read_text())
    assert found["strategy"] == "RC-1-8-d1-p2"
    assert found["memory"]["total"] < 80 * 2**30
    assert any(name.startswith("head") for name in found["parts"])


def test_a_step_that_does_not_fit_says_so(run):
    outcome = run("predict", *DGX, "--model", "gpt-22b", "--batch", 8, "--given", "dp=8",
                  "--zero", 0)  # fmt: skip
    assert outcome.code == 3
    assert outcome.out.startswith("What would make it fit, cheapest first")
    assert "--given" in outcome.out
    assert len(outcome.problems) == 1
    for words in ("main memory", "recomputation full", "optimizer state"):
        assert words in " ".join(outcome.err.split())


def test_scores_that_are_never_written_take_no_memory(run):
    outcome = run("predict", *DGX, "--model", "llama3-8b", "--sequence", "65536", "--batch", 1,
                  "--given", "pp=8")  # fmt: skip
    assert (outcome.code, outcome.err) == (0, "")


@pytest.mark.parametrize("sides", ["8192,8192,8192", "1024,4096,1", "64,65536,64", "777,555,333"])
@pytest.mark.parametrize("rules", ["crosstack", "deepflow-2025"])
def test_printed_traffic_over_printed_bandwidth_is_the_printed_time(run, sides, rules):
    outcome = run("predict", *DGX, "--gemm", sides, "--rules", rules)
    rows = re.findall(r"^ \S+ +(\S+ \S*B) +(\S+ \S*B/s) +(\S+ \S*s) ", outcome.out, re.MULTILINE)
    assert len(rows) == 4
    for traffic, bandwidth, takes in rows:
        moved, rate = parse_quantity(traffic, "B"), parse_quantity(bandwidth, "B/s")
        assert moved / rate == pytest.approx(parse_quantity(takes, "s"), rel=2e-3)  # as rounded


def test_what_the_optimizer_keeps_for_a_weight_is_an_option(run, saved_by):
    asked = ("--set", "packages=1", "--model", "llama3.2-1b", "--batch", 1, "--sequence", 512,
             "--given", "RC-1-1-d1-p1")  # fmt: skip
    adam, none = (
        predicted(saved_by, *asked, "--optimizer", size)["memory"]["rows"]
        for size in ("12 B", "0 B")
    )
    assert adam["optimizer_state"] == pytest.approx([6 * size for size in adam["weights"]])
    assert adam["weights"] == adam["gradients"] == none["weights"]
    assert "optimizer_state" not in none
    for wrong, rules in (("-1 B", "crosstack"), ("8 B", "deepflow-2021"), ("3 m", "crosstack")):
        refused = run("predict", EXAMPLE, *asked, "--optimizer", wrong, "--rules", rules)
        assert refused.code == 2
        assert "--optimizer: " in refused.err


def test_printed_and_drawn_pieces_add_up_to_the_step(run, saved_by, tmp_path):
    out, page = tmp_path / "step.json", tmp_path / "step.html"
    outcome, saved = saved_by("predict", EXAMPLE, *CLUSTER, "--microbatches", "8")
    out.write_text(saved)
    found = json.loads(saved)
    assert sum(found["parts"].values()) == pytest.approx(found["time"], rel=1e-9)
    lines = outcome.out.splitlines()
    first = next(i for i, line in enumerate(lines) if "the busiest: what the step" in line) + 2
    last = next(i for i, line in enumerate(lines) if line.startswith(" sum "))
    rows = [parse_quantity(" ".join(line.split()[-2:]), "s") for line in lines[first:last]]
    total = parse_quantity(" ".join(lines[last].split()[-2:]), "s")
    assert sum(rows) == pytest.approx(total, rel=2e-3)  # as rounded
    assert total == pytest.approx(found["time"], rel=1e-3)
    assert run("report", out, "-o", page).code == 0
    table = page.read_text().partition("Where the time goes")[2].partition("How long each")[0]
    drawn = re.findall(r'xs-right">([\d.,]+ \w+)</td>', table)
    assert len(drawn) == sum(time > 0 for time in found["parts"].values())
    assert sum(parse_quantity(t, "s") for t in drawn) == pytest.approx(total, rel=2e-3)


@public
def test_a_model_file_is_read(run):
    model = CONFIGS / "model-config/GEMM.yaml"
    outcome = run("predict", HARDWARE, "--model", model, *ONE)
    assert outcome.code == 0
    assert "GEMM" in outcome.out


@public
def test_a_trace_and_a_chart_are_saved(run, tmp_path):
    trace, chart = tmp_path / "trace.json", tmp_path / "chart.svg"
    outcome = run("trace", HARDWARE, "--model", "lstm-lm-40k", "--given", "RC-1-1-d1-p4",
                  "--rules", "deepflow-2021", *PLACED, "-o", trace, "--svg", chart)  # fmt: skip
    assert (outcome.code, outcome.err) == (0, "")
    events = json.loads(trace.read_text())["traceEvents"]
    assert {"stage 0", "stage 3"} <= {e["args"]["name"] for e in events if e["ph"] == "M"}
    assert chart.read_text().startswith("<svg")


@public
@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--gemm", "4096,4096"), 2, "--gemm"),
        (("--gemm", "0,1,1"), 2, "--gemm"),
        (("--gemm", "1,1,1", "--model", "gpt-22b"), 2, "one of them"),
        (("--model", "gpt-22c"), 2, "gpt-22b"),
        (("--model", "lstm-lm-40k", "--microbatches", "2"), 2, "--microbatches"),
        (("--model", "lstm-lm-40k", "--batch", "0"), 2, "--batch"),
        (("--gemm", "64,64,64", "--given", "RC-2"), 2, "--given"),
        (("--gemm", "64,64,64", "--given", "RC-1-64-d1-p1"), 2, "there are 16"),
        (("--model", "lstm-lm-40k", "--given", "RC-1-1-d4-p1"), 2, "no bandwidth"),
        (("--model", "gpt-530b", *ONE), 3, "main memory"),
        (("--model", "gpt-530b"), 2, "set system_hierarchy.num_devices_per_node and num_nodes"),
        (("--gemm", "1,1,1", "--batch", "2"), 2, "--batch"),
        (("--gemm", "1,1,1", "--library", "mine.yaml"), 2, "--library"),
        (("--gemm", "1,1,1", "--torus", *ONE), 2, "--package"),
        ((), 2, "holds no model"),
    ],
)
def test_what_cannot_be_predicted_is_an_error_that_says_so(run, arguments, code, says):
    outcome = run("predict", HARDWARE, *arguments)
    assert outcome.code == code
    assert says in outcome.err


@public
def test_a_trace_needs_a_place_to_go(run):
    outcome = run("trace", HARDWARE, "--gemm", "64,64,64")
    assert outcome.code == 2
    assert "--output" in outcome.err


CLUSTER = ("--set", "packages=512", "--model", "gpt3-175b", "--given", "RC-1-8-d8-p8")


def predicted(saved_by, *arguments):
    outcome, saved = saved_by("predict", EXAMPLE, *arguments)
    assert (outcome.code, outcome.err) == (0, "")
    return json.loads(saved)


def test_one_command_goes_from_a_node_and_a_budget_to_a_step_on_512_chips(saved_by):
    asked = (*CLUSTER, "--microbatches", "8")
    readme = (EXAMPLE.parents[2] / "README.md").read_text()
    assert f"crosstack predict examples/chips/n5_hbm3.yaml {' '.join(asked)}\n" in readme
    found = predicted(saved_by, *asked)
    assert found["n_chips"] == 512
    # Six operations a weight and token, twelve for scores and values: no machine beats its rate.
    work = 6 * 64 * 2048 * (96 * 12 * 12288**2 + 51200 * 12288 + 96 * 2 * 2048 * 12288)
    least = work / 512 / found["chip"]["throughput"]
    assert least < found["time"] < 10 * least
    assert found["memory"]["total"] < found["chip"]["memory_capacity"]


def test_a_denser_node_is_faster(saved_by):
    here = predicted(saved_by, *CLUSTER, "--microbatches", "8")
    there = predicted(saved_by, *CLUSTER, "--microbatches", "8", "--set", "node=N3")
    assert there["chip"]["throughput"] > here["chip"]["throughput"]
    assert there["time"] < here["time"]


def test_a_chip_file_needs_a_strategy(run):
    outcome = run("predict", EXAMPLE, "--model", "gpt-22b")
    assert (outcome.code, len(outcome.problems)) == (2, 1)
    assert "--given: required" in outcome.err


def test_more_chips_than_there_are_is_refused(run):
    outcome = run("predict", EXAMPLE, "--model", "gpt-22b", "--given", "RC-1-8-d2-p1")
    assert outcome.code == 2
    assert "needs 16 chips; there are 8" in outcome.err


SERVER = (*DGX, "--gemm", "8192,8192,8192", "--given", "RC-1-8-d1-p1")


def summed(run, out, *arguments):
    given = ("predict", *DGX, "--gemm", "8192,8192,8192", "--given", "CR-8-d1-p1")
    outcome = run(*given, *arguments, "--json", out)
    assert (outcome.code, outcome.err) == (0, "")
    return json.loads(out.read_text())["time"]


def test_chips_of_a_server_are_joined_as_the_option_says(run, tmp_path):
    # Partial sums of 134 MB: over a switch, on a ring, or all at once.
    out = tmp_path / "gemm.json"
    switch = summed(run, out)
    assert summed(run, out, "--topology", "switch,switch") == switch
    ring = summed(run, out, "--topology", "ring")
    full = summed(run, out, "--topology", "fully_connected")
    assert full < ring  # the same links, but no hop after another
    assert switch not in (ring, full)  # where a library of collectives runs


def test_the_order_says_which_dimension_leaves_the_servers_under_a_release(run, tmp_path):
    out = tmp_path / "step.json"
    asked = ("--model", "lstm-lm-40k", "--batch", "128", "--given", "RC-1-4-d4-p1")
    times = {}
    for order in ("kp2,dp", "dp,kp2", None):
        given = () if order is None else ("--order", order)
        outcome = run("predict", *DGX, *asked, *given, "--rules", "deepflow-2021", "--json", out)
        assert (outcome.code, outcome.err) == (0, "")
        times[order] = json.loads(out.read_text())["time"]
    assert times["kp2,dp"] == times[None] < times["dp,kp2"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--topology", "rung"), '--topology: no topology is called "rung". Did you mean "ring"'),
        (("--topology", "mesh:3x3"), "--topology: got 3x3; allowed: a shape of 8 chips"),
        (("--topology", "ring", "--package", "8"), "--topology: allowed without --package"),
        (("--order", "kp1"), "--order: allowed under the rules of a release"),
        (
            ("--order", "kp1", "--rules", "deepflow-2021"),
            "--order: got kp1, which leaves out kp2",
        ),
        (("--order", "kp1", "--package", "8"), "--order: got kp1, which leaves out kp2"),
    ],
)
def test_what_cannot_be_joined_or_ordered_so_is_an_error(run, arguments, says):
    outcome = run("predict", *SERVER, *arguments)
    assert outcome.code == 2
    assert says in outcome.err


@public
@pytest.mark.parametrize("option", [("--topology", "ring"), ("--order", "kp1")])
def test_deepflow_hardware_says_itself_how_it_is_joined(run, option):
    outcome = run("predict", HARDWARE, "--gemm", "64,64,64", *ONE, *option)
    assert outcome.code == 2
    assert f"{option[0]}: allowed with" in outcome.err


@public
def test_a_training_run_is_estimated_as_recorded_in_2025(run, tmp_path):
    # deepflow_code, run llm_A_default: configs/model-config/LLM.yaml on a100_80GB.yaml.
    golden = CONFIGS.parents[2] / "golden.jsonl"
    rows = [json.loads(line) for line in golden.read_text().splitlines()]
    row = next(r for r in rows if r["id"] == "llm_A_default")
    out = tmp_path / "run.json"
    model = CONFIGS / "model-config/LLM.yaml"
    outcome = run("predict", HARDWARE, "--model", model, *ONE, "--rules", "deepflow-2025",
                  "--json", out)  # fmt: skip
    assert outcome.code == 0
    assert json.loads(out.read_text())["run_time"] == pytest.approx(
        row["output"]["total_s"], rel=1e-9
    )
    refused = run("trace", HARDWARE, "--model", model, *ONE, "--rules", "deepflow-2025", "-o", out)
    assert refused.code == 2
    assert "deepflow-2025-graph" in refused.err


def test_a_chip_by_name_shows_every_term_of_a_product(run, tmp_path):
    out = tmp_path / "gemm.json"
    outcome = run("predict", *CARD, "--gemm", "16384,4096,12288", "--json", out)
    assert (outcome.code, outcome.err) == (0, "")
    for word in (
        "a100-pcie-80gb",
        "bound by",
        "waiting",
        "dataflow",
        "utilization",
        "HBM2e",
        "tile",
    ):
        assert word in outcome.out
    found = json.loads(out.read_text())
    kernel = found["kernel"]
    assert kernel["time"] == found["time"]
    assert kernel["levels"]["HBM2e"]["tile"] == [16384, 4096, 12288]
    # No operand and no result moves less than once.
    once = 2 * (16384 * 4096 + 4096 * 12288 + 16384 * 12288)
    assert kernel["levels"]["HBM2e"]["traffic"] >= once
    assert kernel["utilization"] * kernel["time"] <= kernel["compute_time"] < kernel["time"]


def test_a_clock_is_set_on_a_chip_by_name(run, tmp_path):
    out = tmp_path / "gemm.json"
    times = []
    for clock in ("1.41 GHz", "1.05 GHz"):
        run("predict", *CARD, "--gemm", "8192,8192,8192", "--set", f"frequency={clock}",
            "--json", out)  # fmt: skip
        times.append(json.loads(out.read_text())["time"])
    assert times[1] / times[0] == pytest.approx(1.41 / 1.05, rel=0.01)


def test_a_product_on_a_chip_file_needs_no_strategy(run):
    outcome = run("predict", EXAMPLE, "--gemm", "4096,4096,4096")
    assert (outcome.code, outcome.err) == (0, "")
    assert "RC-1-1-d1-p1" in outcome.out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("a100-pcie-80gb", "--gemm", "8,8,8"), 2, "did you mean --on a100-pcie-80gb?"),
        (("--on", "a100-pcie-80gbb", "--gemm", "8,8,8"), 2, 'Did you mean "a100-pcie-80gb"'),
        ((), 2, "FILE: required, or --on"),
        ((EXAMPLE, *CARD), 2, "is a chip, not a task"),
        ((EXAMPLE, "--chips", 8), 2, "--chips: allowed with --on"),
        ((*DGX, "--chips", 12, "--gemm", "8,8,8"), 2, "--chips: got 12"),
        ((*CARD, "--chips", 2, "--gemm", "8,8,8"), 2, "--chips: got 2; allowed: 1"),
        (
            (*DGX, "--fabric", "rails", "--gemm", "8,8,8"),
            2,
            '--fabric: no fabric is called "rails"',
        ),
        (CARD, 2, "--gemm M,K,N"),
        ((*CARD, "--gemm", "8,8,8", "--set", "clock=1"), 2, "frequency, launch_overhead, dtype"),
        ((*CARD, "--gemm", "8,8,8", "--set", "frequency=fast"), 2, "--set frequency: got 'fast'"),
        ((*CARD, "--gemm", "8,8,8", "--set", "dtype=fp9"), 2, 'called "fp9". Did you mean "fp'),
        ((*CARD, "--gemm", "8,8,8", "--set", "dtype=fp4"), 2, "has no rate for fp4; it has fp64"),
        (
            (*CARD, "--gemm", "8,8,8", "--set", "accumulator=fp16"),
            2,
            '--set accumulator: "a100-pcie-80gb" has no rate for bf16 added up in fp16',
        ),
        ((*CARD, "--gemm", "8,8,8", "--library", "x.yaml"), 2, "--library"),
        ((*CARD, "--gemm", "8,8,8", "--given", "RC-2-1-d1-p1"), 2, "needs 2 chips"),
        ((*CARD, "--gemm", "1000000,1000000,1000000"), 3, "HBM2e"),
        ((*CARD, "--gemm", "8,8,8", "--rules", "deepflow"), 2, "--rules"),
    ],
)
def test_what_a_chip_by_name_cannot_do_is_one_line(run, arguments, code, says):
    outcome = run("predict", *arguments)
    assert (outcome.code, len(outcome.problems)) == (code, 1)
    assert says in outcome.err


LONG = ("--set", "packages=96", "--model", "gpt3-175b", "--given", "RC-1-1-d1-p96",
        "--microbatches", "64")  # fmt: skip


def test_what_fits_in_no_way_in_microbatches_of_one_says_what_was_tried(run):
    asked = ("--set", "packages=1", "--model", "gpt-22b", "--given", "RC-1-1-d1-p1")
    outcome = run("predict", EXAMPLE, *asked, "--batch", 2, "--microbatches", 2)
    assert outcome.code == 3
    assert "What would make it fit" in outcome.out


def test_what_does_not_fit_fits_once_less_is_kept(run):
    given = ("--schedule", "gpipe", "--recompute", "none")
    kept = run("predict", EXAMPLE, *LONG, *given)
    assert kept.code == 3
    assert "main memory" in kept.err
    assert run("predict", EXAMPLE, *LONG, *given, "--schedule", "1f1b").code == 0
    assert run("predict", EXAMPLE, *LONG, *given, "--recompute", "full").code == 0


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (("--recompute", "ful"), 'Did you mean "full"'),
        (("--schedule", "gpip"), 'Did you mean "gpipe"'),
        (("--schedule", "1f1b", "--rules", "deepflow-2025"), "--schedule: got 1f1b"),
    ],
)
def test_ways_to_run_a_step_are_checked(run, asked, message):
    outcome = run("predict", EXAMPLE, *LONG, *asked)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err


@pytest.mark.parametrize(
    ("given", "found", "says"),
    [
        ("tp=2,pp=2", "RC-1-2-d4-p2", ""),
        ("tp=2,pp=2,dp=4", "RC-1-2-d4-p2", ""),
        ("tp=2,pp=2,dp=2", "", "got 'tp=2,pp=2,dp=2', of 8 chips; allowed: of 16, as there are."),
        ("tp=8,pp=4", "", "of 32 chips; allowed: of 16"),
    ],
)
def test_data_parallel_chips_are_what_the_machine_leaves(run, given, found, says):
    asked = ("llama-68m", "--on", "h100-dgx", "--chips", 16, "--batch", 16, "--sequence", 512)
    outcome = run("predict", *asked, "--given", given)
    assert outcome.code == (2 if says else 0)
    assert says in outcome.err
    assert f"under {found}" in outcome.out if found else not outcome.out


LLAMA = ("--on", "h100-dgx", "--chips", 512, "--given", "tp=8,pp=4,dp=16")
RUN = ("--microbatches", 128, "--schedule", "1f1b", "--recompute", "attention", "--exchange",
       "sequence")  # fmt: skip


def test_a_graph_of_ones_own_is_predicted_and_traced_as_it_is_mapped(run, tmp_path):
    graph = "examples/graphs/my_transformer.yaml"
    asked = (graph, "--on", "h100-dgx", "--chips", "4", "--given", "tp=2,pp=1,dp=2")
    said, mapped, chart = (tmp_path / name for name in ("said.json", "mapped.json", "chart.svg"))
    assert run("predict", *asked, "--json", str(said)).code == 0
    assert run("map", *asked, "--json", str(mapped)).code == 0
    times = {
        json.loads(said.read_text())["time"],
        json.loads(mapped.read_text())["time_s"],
    }
    assert len(times) == 1
    assert run("trace", *asked, "--svg", str(chart)).code == 0
    assert "my_transformer under" in chart.read_text()


def test_the_argument_is_a_model_where_a_machine_is_named(run):
    first = run("predict", "llama3-70b", *LLAMA, *RUN)
    assert (first.code, first.err) == (0, "")
    assert "Llama 3 70B under RC-1-8-d16-p4 on h100-sxm" in first.out
    assert run("predict", "--model", "llama3-70b", *LLAMA, *RUN).out == first.out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("llama3-70b",), 2, "llama3-70b: a model; give a machine beside it, with --on."),
        (("llama3-7b", *LLAMA), 2, '--model: no model is called "llama3-7b". Did you mean'),
        (("qwen3-8b", *LLAMA, "--batch", 64), 2, "--sequence: required"),
        (("llama3-8b", *LLAMA, "--context", 64), 2, "--context: allowed with --decode"),
        (
            ("llama3-8b", *DGX, "--decode", "--context", 64, "--recompute", "full"),
            2,
            "--recompute: allowed for the training",
        ),
        (("none.json", *LLAMA), 2, "none.json: no such file"),
        (("gpt-22b", *DGX, "--given", "tp=8,tp=2"), 2, "--given: got 'tp=8,tp=2'"),
        (("gpt-22b", *DGX, "--given", "tp=0"), 2, "kp2: got 0"),
        (("llama3-8b", *DGX, "--given", "dp=8", "--rules", "deepflow-2025"), 2, "model.gated"),
    ],
)
def test_a_model_of_the_library_that_cannot_be_predicted_is_one_line(run, arguments, code, says):
    outcome = run("predict", *arguments)
    assert (outcome.code, len(outcome.problems)) == (code, 1)
    assert says in outcome.err
