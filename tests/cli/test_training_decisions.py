"""Layers that compute again, what hosts take and the type of numbers, as both commands say them."""

from __future__ import annotations

import json

import pytest

ASKED = ("llama-68m", "--on", "h100-dgx", "--chips", 2, "--batch", 16, "--sequence", 512)
SAID = ("--recompute", "full:1", "--offload", "optimizer+activations", "--dtype", "fp8")


@pytest.fixture
def saved(tmp_path):
    return tmp_path / "answer.json"


@pytest.mark.slow
def test_map_and_predict_say_the_same(run, saved):
    words = "tp=1,pp=1,dp=2,microbatch=4,zero=1,recompute=full:1,offload=state"
    times = []
    for command in (("map", *ASKED, "--work-limit", 400_000), ("predict", *ASKED)):
        run(*command, "--given", words, "--dtype", "fp8", "--json", saved)
        data = json.loads(saved.read_text())
        times.append(data.get("plan", data)["time_s"])
    assert times[0] == pytest.approx(times[1], rel=1e-9)


def test_an_answer_says_them(run, saved):
    run("map", *ASKED, "--work-limit", 1000, "--given", "dp=2,microbatch=4,zero=1",
        "--recompute", "full:1", "--offload", "state", "--json", saved)  # fmt: skip
    mapped = json.loads(saved.read_text())
    assert (mapped["recompute"], mapped["recompute_layers"]) == ("full", 1)
    assert mapped["offload"] == ["state"]
    shown = " ".join(run("show", saved).out.split())
    assert "the whole forward pass of a layer, of the first 1 layer of a stage" in shown
    assert "on the host: optimizer state" in shown


@pytest.mark.parametrize("command", ["map", "predict"])
@pytest.mark.parametrize(
    ("said", "message"),
    [
        (("--recompute", "full:0"), "--recompute: got 'full:0'; allowed: attention:N or full:N"),
        (("--recompute", "ful:2"), '--recompute: no recompute is called "ful"'),
        (("--recompute", "full:9"), "--recompute: got 9; allowed: up to 2, the layers of"),
        (("--offload", "optimiser"), '--offload: no what is offloaded is called "optimiser"'),
        (("--offload", "optimizer+state"), "--offload: got"),
        (SAID, "none with activations on the host: all layers are alike"),
    ],
    ids=str,
)
def test_what_cannot_be_is_one_line(run, command, said, message):
    given = ("--given", "tp=1,pp=1,dp=2")
    outcome = run(command, *ASKED, *given, *said)
    assert (outcome.code, len(outcome.problems)) == (2, 1)
    assert message in outcome.err


def test_a_machine_whose_hosts_are_not_known_is_named(run):
    asked = ("map", "llama-68m", "--on", "v100-dgx-2", "--batch", 16, "--sequence", 512)
    outcome = run(*asked, "--offload", "state")
    assert outcome.code == 2
    assert "--offload: got 'state'; allowed: none on v100-dgx-2, of whose hosts" in outcome.err
    assert "system.host says it" in outcome.err
