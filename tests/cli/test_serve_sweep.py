from __future__ import annotations

import csv
import io
import json

import pytest
from builders.command_line import give_machine, options

ARGUMENTS = {"--model": "llama3-8b", "--context": "128,4096", "--tp": "1,2", "--batch": "1,8"}


@pytest.fixture
def machine(small):
    """Return a file of a machine that an 8B model fits on two chips, not on one."""
    return give_machine(small, "11GB")


def test_it_prints_the_best_points_and_says_what_does_not_fit(run, machine):
    outcome = run("serve-sweep", machine, *options(ARGUMENTS))
    assert (outcome.code, outcome.err) == (0, "")
    said = " ".join(outcome.out.split())
    assert "Llama 3 8B decode on rdu, kernel by kernel, rules crosstack: 8 points, 4 fit" in said
    assert "4 exceed the main memory" in said


def test_the_tables_hold_every_point(run, machine, tmp_path):
    written = tmp_path / "points.csv", tmp_path / "points.json"
    outcome = run(
        "serve-sweep", machine, *options(ARGUMENTS), "--csv", written[0], "--json", written[1]
    )
    assert outcome.code == 0
    lines = list(csv.DictReader(io.StringIO(written[0].read_text())))
    points = json.loads(written[1].read_text())["points"]
    assert len(lines) == len(points) == 8
    assert [float(line["time [s]"]) for line in lines] == [point["time"] for point in points]
    assert {point["limit"] for point in points} == {"", "main memory"}


def test_points_are_kept_in_a_store_and_gone_on_with(run, machine, tmp_path):
    store, out, alone = (tmp_path / name for name in ("served.store", "out.json", "alone.json"))
    arguments = ("serve-sweep", machine, *options(ARGUMENTS, batch="1"), "--store", store)
    assert run(*arguments).code == 0
    assert "holds 4 points already" in run(*arguments).err
    more = ("serve-sweep", machine, *options(ARGUMENTS))
    assert run(*more, "--store", store, "--resume", "--json", out).code == 0
    assert run(*more, "--json", alone).code == 0
    assert json.loads(out.read_text()) == json.loads(alone.read_text())
    shown = " ".join(run("study", "show", store).out.split())
    assert "8: 4 feasible, 4 infeasible" in shown
    assert "most throughput" in shown
    assert "--resume: allowed with --store" in run(*more, "--resume").err


def test_what_is_refused_leaves_no_store(run, machine, tmp_path):
    store = tmp_path / "served.store"
    outcome = run("serve-sweep", machine, *options(ARGUMENTS, tp="3"), "--store", store)
    assert (outcome.code, store.exists()) == (2, False)


def test_a_point_of_more_chips_than_the_network_is_a_row(run, machine, tmp_path):
    out = tmp_path / "points.json"
    outcome = run(
        "serve-sweep", machine, *options(ARGUMENTS, tp="2,4", pp="2", batch="8"), "--json", out
    )
    assert (outcome.code, outcome.err) == (0, "")
    assert "2 have more chips than the network" in " ".join(outcome.out.split())
    points = json.loads(out.read_text())["points"]
    assert {p["tensor"] for p in points if p["limit"] == "network"} == {4}


def test_a_prompt_is_read(run, machine):
    outcome = run("serve-sweep", machine, *options(ARGUMENTS, phase="prefill", tp="4"))
    assert outcome.code == 0
    assert "to first token" in outcome.out


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model": "llama"}, "--model: no model is called"),
        ({"tp": "1;2"}, "--tp: got '1;2'; allowed: whole numbers joined by commas"),
        ({"tp": "0"}, "--tp: got 0"),
        ({"pp": "64"}, "--pp: got 64; allowed: 1 to 4: at most a stage a layer, 32"),
        ({"tp": "1,8"}, "--tp: got 8; allowed: 1, 2, 4: divisors of 32 heads"),
        ({"tp": "3"}, "--tp: got 3; allowed: 1, 2, 4: divisors of 32 heads"),
        ({"batch": "3", "microbatch": "2"}, "--microbatch: got 2; allowed: a divisor"),
        ({"phase": "prefil"}, '--phase: got "prefil". Did you mean "prefill"?'),
        (
            {"context": ",".join(["1"] * 2000), "batch": ",".join(["1"] * 2000)},
            "at most 1,000,000 points",
        ),
        ({"context": "100000000000000000", "phase": "prefill"}, "--context: "),
        ({"top": "-1"}, "--top: got -1"),
        ({"dtype": "int3"}, "--dtype"),
    ],
)
def test_what_makes_no_sense_is_refused(run, machine, changes, says):
    outcome = run("serve-sweep", machine, *options(ARGUMENTS, **changes))
    assert outcome.code == 2
    assert says in outcome.problems[0]
