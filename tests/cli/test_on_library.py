"""Machines of the library by name: ``--on``, ``system.on``, ``crosstack show library``."""

from __future__ import annotations

import json

import pytest

import crosstack
from crosstack.io import library

WORKLOAD = """
workload:
  dfmodel: {llm: {hidden: 1024, n_heads: 8, head_size: 128, sequence_length: 128, n_layers: 2,
        global_batch_size: 8}}
"""


@pytest.fixture
def workload(tmp_path):
    path = tmp_path / "workload.yaml"
    path.write_text(WORKLOAD)
    return path


def test_a_workload_needs_no_machine_of_its_own(run, workload):
    out = workload.with_suffix(".json")
    given = ("--on", "a100-dgx-80gb", "--chips", 2, "--work-limit", "1e4")
    outcome = run("map", workload, *given, "--json", out)
    assert (outcome.code in (0, 4), outcome.err) == (True, "")
    assert "2 x a100-sxm-80gb" in " ".join(run("show", workload, "--on", "a100-dgx-80gb",
                                               "--chips", 2).out.split())  # fmt: skip
    text = json.loads(out.read_text())["task"]
    workload.write_text(text)  # the machine spelled out is the one by name
    spelled = crosstack.load(workload).system
    assert spelled == crosstack.system("a100-dgx-80gb", chips=2)


def test_the_machine_of_a_file_is_left_aside(run, small):
    assert "h100-sxm" in run("show", small, "--on", "h100-dgx").out
    assert "h100-sxm" not in run("show", small).out


def test_a_field_of_a_machine_by_name_may_be_changed(run, workload):
    given = ("--on", "h100-dgx", "--set", "system.chip.utilization=0.5")
    shown = " ".join(run("show", workload, *given).out.split())
    assert "utilization of compute 50 %" in shown


def test_levels_follow_a_clock_that_is_set(workload):
    slow = crosstack.load(workload, ["system={on: h100-dgx}", "system.chip.frequency=1 GHz"])
    fast = crosstack.system("h100-dgx").chip
    at_rates = fast.level("L2").bandwidth
    assert slow.system.chip.level("L2").bandwidth == pytest.approx(at_rates / 1.83)
    assert slow.system.chip.main_memory.bandwidth == fast.main_memory.bandwidth


def test_memory_of_a_machine_by_name_may_be_changed(workload):
    loaded = crosstack.load(workload, ["system={on: h100-dgx}", "system.memory.capacity=1 TB"])
    chip = crosstack.system("h100-dgx").chip
    assert loaded.system.chip == chip.with_memory(capacity=1e12)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("system={on: h100-dgx, network: []}", "system.network: allowed without system.on."),
        ("system={on: h100-dgx, chip: {lanes: 4}}", "system.chip.lanes: h100-sxm has levels"),
        ("system={on: h100-dg}", 'system.on: no node or chip is called "h100-dg". Did you mean'),
        ("system={on: h100-dgx, n_chips: 9}", "system.n_chips: got 9; allowed: up to 8"),
        ("system={on: h100-dgx, fabric: mesh}", 'system.fabric: no fabric is called "mesh".'),
        ("system={fabric: fat-tree}", "system.fabric: allowed with system.on."),
    ],
)
def test_what_makes_no_machine_is_named_by_its_path(workload, change, line):
    with pytest.raises(crosstack.InputError) as caught:
        crosstack.load(workload, [change])
    assert any(line in str(problem) for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--on", "h100-dgxx"), '--on: no node or chip is called "h100-dgxx"'),
        (
            ("--on", "h100"),
            '--on: got "h100", whose main memory is not in the library; allowed: '
            "chips and nodes that have one, such as h100-sxm,",
        ),
        (("--on", "cs-3"), '--on: got "cs-3", whose main memory is not in the library;'),
        (("--on", "h100-dgx", "--chips", 12), "--chips: got 12"),
        (("--on", "h100-dgx", "--chips", 0), "--chips: got 0"),
        (("--chips", 8), "--chips: allowed with --on"),
        (("--fabric", "fat-tree"), "--fabric: allowed with --on"),
        (("--on", "h100-dgx", "--fabric", "tree"), '--fabric: no fabric is called "tree"'),
    ],
)
def test_options_that_name_no_machine_are_one_line(run, small, arguments, says):
    for command in ("map", "show", "space", "explain"):
        outcome = run(command, small, *arguments)
        assert (outcome.code, len(outcome.problems)) == (2, 1)
        assert says in outcome.err


def test_dfmodel_text_has_a_machine_of_its_own(run, dfmodel_file):
    outcome = run("map", dfmodel_file, "--on", "h100-dgx")
    assert (outcome.code, outcome.problems[0][:5]) == (2, "--on:")


def test_a_model_is_served_on_a_machine_by_name(run, small):
    asked = ("--model", "llama3-8b", "--context", "1024", "--tp", "1,8")
    outcome = run("serve-sweep", "--on", "h100-dgx", *asked)
    assert (outcome.code, outcome.err) == (0, "")
    assert "on h100-dgx" in outcome.out
    both = run("serve-sweep", small, "--on", "h100-dgx", *asked)
    neither = run("serve-sweep", *asked)
    assert (both.problems[0][:4], neither.problems[0][:4]) == ("FILE", "FILE")


SMALL = ("--model", "llama3.2-1b", "--batch", "4", "--sequence", "512", "--microbatches", "4")
ONE = (*SMALL, "--given", "tp=1")


def test_a_framework_drives_the_machine_of_a_command(run, tmp_path):
    times = {}
    for name in (None, "megatron", "eager"):
        driven = () if name is None else ("--framework", name)
        out = tmp_path / f"{name}.json"
        outcome = run("predict", "--on", "a100-dgx-80gb", *ONE, *driven, "--json", out)
        assert (outcome.code, outcome.err) == (0, "")
        found = json.loads(out.read_text())
        times[name] = found["time"]
        assert found["inputs"]["framework"] == name
    # Bound by the host: 42 launches of a layer at 61 us, 44 at 71.7 us.
    assert times[None] < times["megatron"] < times["eager"]


@pytest.mark.parametrize(
    ("command", "arguments", "says"),
    [
        ("predict", ("--on", "a100-dgx-80gb", *ONE, "--framework", "megatorn"),
         '--framework: no framework is called "megatorn". Did you mean "megatron"?'),
        ("predict", ("--on", "a100-dgx-80gb", "--chips", "3", *SMALL, "--given", "tp=3",
         "--framework", "eager"),
         "--given: got tp=3; allowed with eager: a divisor of 32 heads. Nearest: tp=2 or tp=4."),
        ("predict", ("--on", "a100-dgx-80gb", *ONE, "--framework", "eager", "--rules",
         "deepflow-2025"), "--framework: allowed under rules that map"),
        ("map", ("llama3-8b", "--on", "sn40l-node", "--batch", "8", "--framework", "eager"),
         "--framework: got 'eager'; allowed: none"),
        ("serve-sweep", ("--on", "h100-dgx", "--model", "llama3-8b", "--context", "128",
         "--framework", "eager"), "--framework: allowed to map and to predict"),
    ],
)  # fmt: skip
def test_a_framework_that_drives_nothing_is_one_line(run, command, arguments, says):
    outcome = run(command, *arguments)
    assert (outcome.code, len(outcome.problems)) == (2, 1)
    assert says in outcome.err


def test_the_framework_of_a_study_may_vary(run, tmp_path):
    study = tmp_path / "study.yaml"
    study.write_text(
        "base: none\nevaluate: predict\naxes:\n  options.framework: [megatron, eager]\n"
        "options: {on: a100-dgx-80gb, model: llama3.2-1b, batch: 4, sequence: 512, "
        "given: tp=1}\n"
    )
    outcome = run("sweep", study, "--store", tmp_path / "store", "--jobs", 1)
    assert outcome.code == 0, outcome.err
    assert "2 feasible" in outcome.out + outcome.err


def test_the_machine_of_a_study_may_vary(run, workload):
    study = workload.with_name("study.yaml")
    study.write_text(
        "base: workload.yaml\nevaluate: map\naxes:\n"
        "  system.on: [a100-dgx-80gb, h100-dgx]\noptions: {work_limit: 1000}\n"
    )
    workload.write_text(WORKLOAD + "system: {on: a100-dgx-40gb, n_chips: 2}\n")
    outcome = run("sweep", study, "--store", workload.with_name("store"), "--jobs", 1)
    assert (outcome.code, outcome.err) == (0, "")


@pytest.mark.parametrize(
    "which", ["chips", "nodes", "networks", "memories", "frameworks", "models", "technology", None]
)
def test_the_library_is_listed(run, which):
    outcome = run("show", "library", *([which] if which else []))
    assert (outcome.code, outcome.err) == (0, "")
    shown = {
        "chips": ["h100-sxm", "989.4 TFLOP/s"], "nodes": ["gb200-nvl72", "switch of 72"],
        "networks": ["rail-only", "infiniband-ndr", "torus_3d"], "memories": ["ddr4"],
        "frameworks": ["megatron", "bias dropout add", "71.7 us"],
        "models": ["llama3-70b", "70,553,706,496", "8 of 256 + 1: 2,048"], "technology": ["hbm3"],
        None: ["h100-sxm", "gb200-nvl72", "rail-only", "ddr4", "llama3-70b"],
    }[which]  # fmt: skip
    for words in shown:
        assert words in outcome.out


def test_every_number_of_an_entry_has_its_source(run):
    outcome = run("show", "library", "h100-sxm")
    assert (outcome.code, outcome.err) == (0, "")
    assert "nvidia_hopper_whitepaper" in outcome.out
    assert "measured" in outcome.out


def test_a_model_is_shown_with_what_it_holds_and_computes(run):
    outcome = run("show", "library", "mixtral-8x7b")
    assert (outcome.code, outcome.err) == (0, "")
    for words in ("jiang2024mixtral", "45,097,156,608", "FLOP of a token after 32,767"):
        assert words in outcome.out


def test_models_are_saved_with_their_sources(run, tmp_path):
    out = tmp_path / "models.json"
    outcome = run("show", "library", "models", "--json", out)
    assert (outcome.code, outcome.err) == (0, "")
    models = json.loads(out.read_text())["models"]
    assert set(models) == set(library.names("models"))
    assert models["deepseek-v3"]["parameters"]["total"] == 671_026_419_200
    assert models["deepseek-v3"]["shape"]["latent"]["key_value_rank"] == 512
    figures = {figure["field"]: figure for figure in models["deepseek-v3"]["figures"]}
    assert figures["shape.layers"]["source"] == "deepseek2024v3"


def test_what_is_shown_of_the_library_is_what_is_saved(run, tmp_path):
    one, all_of_it = tmp_path / "one.json", tmp_path / "all.json"
    assert run("show", "library", "h100-sxm", "--json", one).code == 0
    assert run("show", "library", "--json", all_of_it).code == 0
    everything = json.loads(all_of_it.read_text())
    assert set(everything) == set(library.SECTIONS)
    alone = json.loads(one.read_text())
    assert alone == {"chips": {"h100-sxm": everything["chips"]["h100-sxm"]}}


CONFIG = {
    "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "vocab_size": 128256,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 8192,
    "max_position_embeddings": 131072, "tie_word_embeddings": True,
}  # fmt: skip


def test_a_file_of_the_hub_is_shown_as_a_model(run, tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIG))
    outcome = run("show", file)
    assert (outcome.code, outcome.err) == (0, "")
    assert "1,235,814,400" in outcome.out


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model_type": "lama"}, 'config.json: model_type: no architecture is called "lama". Did'),
        ({"vocab_size": 0}, "config.json: vocab_size: got 0; allowed: a whole number, at least 1"),
    ],
)
def test_a_bad_file_of_the_hub_is_one_line(run, tmp_path, change, says):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIG | change))
    outcome = run("show", file)
    assert (outcome.code, len(outcome.problems)) == (2, 1)
    assert says in outcome.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("library", "llama3-71b"), 'Did you mean "llama3-70b"'),
        (("library", "technology", "--json", "x.json"), "--json: allowed"),
        (("technology", "--json", "x.json"), "--json: allowed"),
        (("library", "h100sxm"), 'Did you mean "h100-sxm"'),
        (("library", "chips", "--library", "x.yaml"), "--library: allowed"),
        (("library", "--set", "a=1"), "--set: allowed"),
    ],
)
def test_what_the_library_cannot_show_is_one_line(run, arguments, says):
    outcome = run("show", *arguments)
    assert (outcome.code, len(outcome.problems)) == (2, 1)
    assert says in outcome.err


PREDICT = "base: none\nevaluate: predict\n"


def test_a_step_is_predicted_on_one_machine_after_another(run, tmp_path):
    study = tmp_path / "steps.yaml"
    study.write_text(
        f"{PREDICT}axes:\n  options.on: [a100-dgx-80gb, h100-dgx]\n"
        "options: {model: gpt-22b, given: RC-1-1-d1-p8, recompute: full, microbatches: 4}\n"
    )
    out, csv = tmp_path / "one.json", tmp_path / "rows.csv"
    store = tmp_path / "store"
    assert run("sweep", study, "--store", store, "--jobs", 1).code == 0
    assert run("study", "export", store, "-o", csv).code == 0
    header, *rows = [line.split(",") for line in csv.read_text().splitlines()]
    times = [float(row[header.index("time")]) for row in rows]
    assert times == sorted(times, reverse=True)
    asked = ("--model", "gpt-22b", "--given", "RC-1-1-d1-p8", "--recompute", "full",
             "--microbatches", 4)  # fmt: skip
    assert run("predict", "--on", "h100-dgx", *asked, "--json", out).code == 0
    assert json.loads(out.read_text())["time"] == times[1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("options: {gemm: [8, 8, 8], on: h100-dgxx}", "options.on: no node or chip is called"),
        ("options: {gemm: [8, 8, 8], on: h100-dgx, dtype: fp9}", "options.dtype: no type of"),
        ("options: {gemm: [8, 8, 8], on: h100-dgx, dtype: fp4}", "options.dtype: "),
        (
            "options: {gemm: [8, 8, 8], on: h100-dgx, accumulator: fp16}",
            "options.accumulator: ",
        ),
        ("options: {gemm: [8, 8, 8], on: h100-sxm, chips: 2}", "options.chips: got 2"),
        ("options: {gemm: [8, 8, 8], on: h100-dgx, chips: many}", "options.chips: got 'many'"),
        ("options: {gemm: [8, 8, 8], chips: 8}", "options.chips: allowed with options.on"),
    ],
)
def test_a_study_of_no_machine_is_one_line(run, tmp_path, text, says):
    study = tmp_path / "steps.yaml"
    study.write_text(f"{PREDICT}axes:\n  options.rules: [crosstack]\n{text}\n")
    outcome = run("sweep", study, "--store", tmp_path / "store", "--jobs", 1)
    assert says in outcome.err + outcome.out
