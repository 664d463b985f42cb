"""``crosstack map MODEL --on MACHINE``: a model by name, and decisions that are given."""
# ruff: noqa: E501 - the tables are one case a line

from __future__ import annotations

import json

import pytest

SMALL = ("llama-68m", "--on", "h100-dgx", "--batch", 32, "--sequence", 512)  # a step of training
READ = (*SMALL, "--prefill", "--gap", 0.2)
STEP = (*SMALL, "--gap", 0.9)


@pytest.fixture
def mapped(saved_by, tmp_path):
    """Return a function that maps and returns the outcome and what is saved."""

    def map_model(*arguments):
        outcome, saved = saved_by("map", *arguments)
        if saved is None:
            return outcome, None
        (tmp_path / "result.json").write_text(saved)
        return outcome, json.loads(saved)

    return map_model


def test_a_model_is_mapped_by_its_name(mapped):
    outcome, found = mapped(*STEP)
    assert outcome.code == 0
    assert outcome.out.startswith(
        "Llama 68M, a draft model, training on h100-dgx, rules crosstack\n"
    )
    assert found["status"] in ("optimal", "feasible")
    assert "before and behind the layers" in outcome.out
    assert " tokens/s" in outcome.out


@pytest.mark.parametrize(
    ("degrees", "expected"),
    [("tp=2,pp=2,dp=2", (2, 2, 2)), ("dp=8", (1, 1, 8)), ("pp=1,tp=4", (4, 1, 2))],
)
def test_degrees_that_are_given_are_kept(mapped, degrees, expected):
    outcome, found = mapped(*READ, "--given", degrees)
    assert outcome.code == 0
    assert tuple(found["parallelism"][use] for use in ("tp", "pp", "dp")) == expected
    assert any(name.startswith("degrees ") for name in found["certificate"]["given"])


def test_other_decisions_are_given_too(mapped):
    given = ("--microbatch-size", 2, "--recompute", "full", "--schedule", "gpipe")
    outcome, found = mapped(*STEP, "--given", "tp=1,pp=2", *given)
    assert outcome.code == 0
    assert (found["microbatch_size"], found["recompute"], found["schedule"]) == (2, "full", "gpipe")
    assert found["parallelism"]["pp"] == 2


def test_gradients_of_weights_may_wait(mapped):
    given = (
        "--microbatch-size",
        1,
        "--zero",
        0,
        "--recompute",
        "none",
        "--given",
        "tp=1,pp=2,dp=4",
    )
    took = {}
    for schedule in ("1f1b", "zb-h1"):
        outcome, found = mapped(*STEP, *given, "--interleave", 1, "--schedule", schedule)
        assert outcome.code == 0
        assert found["schedule"] == schedule
        took[schedule] = found["time_s"]
    assert took["zb-h1"] < took["1f1b"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--given", "pp=8,dp=1,tp=1", "--microbatch-size", 8), "--schedule: got zb-h1; allowed: 1f1b, or as many microbatches as stages"),
        (("--zero", 2), "--zero: got '2'; allowed: 0 or 1 with schedule zb-h1"),
        (("--interleave", 2), "--interleave: got 2; allowed: 1 with schedule zb-h1"),
        (("--prefill",), "--schedule: got 'zb-h1'; allowed: 1f1b for"),
    ],
)  # fmt: skip
def test_gradients_of_weights_do_not_wait_in_every_plan(run, given, message):
    outcome = run("map", *SMALL, "--schedule", "zb-h1", *given)
    assert outcome.code == 2
    assert message in outcome.err


@pytest.mark.parametrize(
    ("arguments", "tokens"),
    [(("--prefill", "--sequence", 100), 100), (("--decode", "--context", 500), 1)],
)
def test_a_model_is_served(mapped, arguments, tokens):
    outcome, found = mapped("llama-68m", "--on", "h100-dgx", "--batch", 8, *arguments)
    assert outcome.code == 0
    rate = found["throughput"] * tokens
    assert f"{rate:,.0f} tokens/s" in outcome.out


def test_a_type_of_number_halves_what_weights_take(mapped):
    serve = (
        "llama-68m",
        "--on",
        "h100-dgx",
        "--decode",
        "--context",
        64,
        "--given",
        "dp=1,pp=1",
    )
    sizes = [
        mapped(*serve, "--dtype", dtype)[1]["memory"][0]["weights_b"] for dtype in ("fp8", "bf16")
    ]
    assert sizes[1] == 2 * sizes[0]


def test_a_config_is_mapped_as_the_library_has_it(mapped, tmp_path):
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 768,
        "intermediate_size": 3072, "num_hidden_layers": 2, "num_attention_heads": 12,
        "vocab_size": 32000, "max_position_embeddings": 2048, "hidden_act": "silu",
        "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    outcome, found = mapped(path, *READ[1:])
    assert outcome.code == 0, outcome.err
    assert found["time_s"] == mapped(*READ)[1]["time_s"]


def test_a_start_that_is_missing_is_named_once(mapped, tmp_path):
    missing = tmp_path / "nothing.json"
    outcome, _ = mapped(*READ, "--start", missing)
    assert outcome.code == 2
    assert [line.split(" Did you")[0] for line in outcome.problems] == [f"{missing}: no such file."]


def test_what_is_saved_is_mapped_and_priced_again(mapped, run, tmp_path):
    _, found = mapped(*READ)
    again, same = mapped(*READ, "--start", tmp_path / "result.json")
    assert again.code == 0
    assert same["time_s"] == found["time_s"]
    priced = run(
        "evaluate",
        "llama-68m",
        "--on",
        "a100-dgx-80gb",
        *READ[3:8],
        "--mapping",
        tmp_path / "result.json",
    )
    assert priced.code == 0, priced.err
    shown = run("show", tmp_path / "result.json")
    assert shown.code == 0, shown.err
    assert "Llama 68M, a draft model, prefill on h100-dgx" in shown.out


def test_a_model_is_explained(run):
    outcome = run("explain", *SMALL, "--prefill", "--given", "tp=1,pp=1", "--microbatch-size", 1)
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith("Llama 68M, a draft model, prefill on h100-dgx\n")


def test_degrees_of_a_file_are_given_by_option_or_field(run, small):
    by_option = run("map", small, "--given", "tp=2,dp=2")
    by_field = run("map", small, "--set", "constraints.degrees={tensor: 2, data: 2}")
    assert by_option.code == by_field.code == 0
    assert "tensor 2 x pipeline 1 x data 2" in by_field.out
    assert [line for line in by_option.out.splitlines() if "found" not in line] == [
        line for line in by_field.out.splitlines() if "found" not in line
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("lama3-8b", "--on", "h100-dgx"), 'FILE|MODEL: no file or model is called "lama3-8b". Did you mean "llama3-8b"?'),
        (("llama3-8b",), "--on: required with a model"),
        (("llama3-8b", "--on", "h100-dxg"), 'Did you mean "h100-dgx"?'),
        ((*SMALL, "--given", "ep=2"), "--given: got 'ep=2'; allowed: ep=1: Llama 68M, a draft model, training has no experts"),
        ((*SMALL, "--given", "tp=3"), "--given: got 'tp=3'; allowed: degrees whose product is a divisor of 8"),
        ((*SMALL, "--given", "tp=8,pp=8,dp=8"), "--given: got 'tp=8,pp=8,dp=8'; allowed: degrees whose product is a divisor of 8"),
        ((*SMALL, "--given", "8x8"), "--given: got '8x8'; allowed: degrees such as tp=8,pp=4,dp=16"),
        ((*SMALL, "--microbatch-size", 5), "--batch: got 32"),
        ((*SMALL, "--prefill", "--decode"), "--decode: given with --prefill"),
        ((*SMALL, "--context", 8), "--context: allowed to decode"),
        ((*SMALL, "--dtype", "fp4"), "--dtype: "),
        ((*SMALL, "--set", "workload.n_layers=2"), "--set: allowed with a file"),
        (("qwen3-8b", "--on", "h100-dgx"), "--batch: required: none is published here"),
    ],
)  # fmt: skip
def test_bad_options_are_told_by_their_names(run, arguments, said):
    outcome = run("map", *arguments)
    assert outcome.code == 2
    assert said in outcome.err


def test_a_file_says_itself_what_is_done(run, small):
    outcome = run("map", small, "--batch", 8)
    assert outcome.code == 2
    assert outcome.problems == [
        "--batch: allowed with a model by name; a file says what is done (see --set)."
    ]


@pytest.mark.slow  # in every run: what does not fit of a file, and of a prediction
def test_what_does_not_fit_says_what_would_make_it_fit(run):
    outcome = run("map", "llama3-70b", "--on", "h100-dgx", "--batch", 8, "--sequence", 2048,
        "--given", "cp=1,schedule=1f1b,zero=1,recompute=full", "--work-limit", "2e4")  # fmt: skip
    assert outcome.code == 3
    assert "infeasible: main memory" in outcome.err
    assert "What would make it fit" in outcome.err


def test_decisions_beside_degrees_are_those_of_options(run, tmp_path):
    found = []
    for number, asked in enumerate(
        (
            ("--given", "tp=2,dp=4,microbatch=2,zero=1,recompute=full,interleave=1"),
            ("--given", "tp=2,dp=4", "--microbatch-size", "2", "--zero", "1", "--recompute", "full",
             "--interleave", "1"),
        )
    ):  # fmt: skip
        out = tmp_path / f"{number}.json"
        assert run("map", *STEP, *asked, "--work-limit", "1e5", "--json", out).code in (0, 4)
        found.append(json.loads(out.read_text()))
    for name in ("time_s", "microbatch_size", "zero", "recompute", "interleave", "parallelism"):
        assert found[0][name] == found[1][name]
    assert (found[0]["microbatch_size"], found[0]["zero"]) == (2, "1")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (("--given", "tp=2,zero=7"), '--given: no zero is called "7"'),
        (("--given", "zero=1", "--zero", "2"), "--zero: got 2; another place gives 1"),
        (("--overlap", "sums"), '--overlap: no traffic is called "sums"'),
        (("--gradients", "fp8"), "--gradients: got 'fp8'; allowed: fp32 or bf16"),
        (("--optimizer", "adm"), "--optimizer: got 'adm'; allowed: adamw"),
        (("--decode", "--context", "64", "--optimizer", "sgd"), "--optimizer: got 'sgd'"),
    ],
)
def test_what_cannot_be_said_of_a_run_is_refused_by_its_option(run, asked, message):
    outcome = run("map", *SMALL, *asked)
    assert outcome.code == 2
    assert message in outcome.err


def test_what_is_said_of_a_run_is_in_the_answer(run, tmp_path):
    out = tmp_path / "answer.json"
    said = ("--gradients", "fp32", "--optimizer", "sgd", "--overlap", "none")
    outcome = run("map", *SMALL, "--given", "dp=8", *said, "--work-limit", "1e5", "--json", out)
    assert outcome.code in (0, 4)
    for words in ("sent beside the work", "sgd, 4 B of state a weight", "gradients of weights"):
        assert words in outcome.out
    data = json.loads(out.read_text())
    assert (data["overlap"], data["gradients"], data["optimizer"]["name"]) == ([], "fp32", "sgd")
    again = run("evaluate", *SMALL, "--gradients", "fp32", "--optimizer", "sgd", "--mapping", out)
    assert again.code == 0
    step = run("predict", *SMALL, "--given", "dp=8,microbatch=1", *said)
    assert step.code == 0
