from __future__ import annotations

import copy
import csv
import json
import random
import re
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/optimize/lstm_64.yaml"
QUICK = (
    "--set", "chips=4", "--set", "batch=128", "--set", "choices={node: [N12, N7]}",
    "--set", "strategies=[RC-1-1-d4-p1]", "--set", "search.evaluations=8",
)  # fmt: skip


@pytest.fixture(scope="module")
def best(run, tmp_path_factory):
    """Return what was saved, with a page, a picture and a store beside it, and what was printed."""
    saved = tmp_path_factory.mktemp("best") / "best.json"
    outputs = [f"--{name}={saved.with_suffix(f'.{name}')}" for name in ("html", "svg", "store")]
    outcome = run("optimize", EXAMPLE, *QUICK, "--json", saved, *outputs)
    assert outcome.code == 0, outcome.err
    return saved, outcome.out


def test_the_best_choice_is_saved_with_its_search(best, run, tmp_path):
    saved, _ = best
    out, svg, store = tmp_path / "out.json", saved.with_suffix(".svg"), saved.with_suffix(".store")
    arguments = ("optimize", EXAMPLE, *QUICK, "--store", store)
    found = json.loads(saved.read_text())
    assert found["choice"]["node"] == "N7"
    assert found["bound"] <= found["best"] == found["metrics"]["time"]
    assert len(found["choices"]) == 2
    assert found["best"] == min(c["best"] for c in found["choices"] if c["best"])
    assert "<svg" in svg.read_text()
    assert run(*arguments).code == 2
    again = run(*arguments, "--resume", "--json", out)
    assert again.code == 0
    assert json.loads(out.read_text()) == found
    shown = run("study", "show", store)
    assert "least time" in shown.out
    assert run("optimize", EXAMPLE, *QUICK, "--resume").code == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("search.methd=random", 'search.methd: unknown field. Did you mean "method"?'),
        ("search.method=cma", 'Did you mean "cma-es"?'),
        ("search.descent={step: 0.1}", "search.descent: allowed with method gradient"),
        ("search={method: gradient, descent: {stp: 1}}", 'Did you mean "step"?'),
        ("search={method: gradient, descent: {form: equatoin}}", 'Did you mean "equation"?'),
        ("search={method: gradient, descent: {averaging: 1}}", "search.descent.averaging: got 1.0"),
        ("objective=tme", 'Did you mean "time"?'),
        ("limits={powr: 1 kW}", 'Did you mean "power"?'),
        ("limits={power: 1 m}", "limits.power"),
        ("model=lstm", "model: no model is called"),
        ("strategies=[RC-1-1-d3-p1]", "for 3 chips, and there are 4"),
        ("choices={node: []}", "choices.node: got an empty list"),
        ("choices={node: [N8]}", "N8"),
        ("chip_area={from: 500 mm^2, to: 400 mm^2}", "chip_area"),
        ("hold=[L9]", "no component 'L9'"),
        ("chip=nowhere.yaml", "no such file"),
    ],
)
def test_bad_input_is_said_on_one_line(run, change, said):
    outcome = run("optimize", EXAMPLE, *QUICK, "--set", change)
    assert outcome.code == 2
    assert said in outcome.err
    assert len(outcome.err.splitlines()) == 1


@pytest.mark.slow
def test_a_descent_is_set_in_the_file_and_ends_after_its_starts(run, tmp_path):
    out = tmp_path / "out.json"
    search = "{method: gradient, evaluations: 500, searches: 1, descent: {form: equation, " \
             "step: 0.1, averaging: 0.8, steps: 2, starts: 2, tolerance: 1e-6}}"  # fmt: skip
    outcome = run("optimize", EXAMPLE, *QUICK, "--set", f"search={search}", "--json", out)
    assert outcome.code == 0, outcome.err
    found = json.loads(out.read_text())
    n_shares = len(found["shares"])
    assert found["evaluations"] <= 2 * 2 + 2 * (1 + 2 * (n_shares + 1))  # first looks, then starts


def test_what_cannot_fit_is_infeasible(run):
    outcome = run("optimize", EXAMPLE, *QUICK, "--set", "model=lstm-lm")
    assert outcome.code == 3
    assert "main memory" in outcome.err


def test_a_saved_best_is_shown_and_reported_as_it_was(best, run, tmp_path):
    saved, printed = best
    assert printed.startswith(run("show", saved).out)
    page = tmp_path / "page.html"
    assert run("report", saved, "-o", page).code == 0
    assert page.read_text() == saved.with_suffix(".html").read_text()
    text = page.read_text()
    assert "Best design after every evaluation" in text
    assert "What each component takes, and what binds it" in text
    assert "<script" not in text


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet"])
def test_every_choice_is_exported(best, run, tmp_path, suffix):
    pytest.importorskip("pyarrow", reason="needs crosstack[explore]")
    out = tmp_path / f"choices.{suffix}"
    assert run("study", "export", best[0], "-o", out).code == 0
    if suffix == "csv":
        with open(out, newline="") as file:
            rows = list(csv.DictReader(file))
        assert [row["node"] for row in rows] == ["N12", "N7"]
        values = [float(row["best"]) for row in rows if row["best"]]
        assert min(values) == json.loads(best[0].read_text())["best"]


@pytest.mark.slow
def test_choices_without_a_design_say_why(best, run, tmp_path):
    fastest = json.loads(best[0].read_text())["best"]
    outcome = run(
        "optimize", EXAMPLE, *QUICK, "--set", "objective=power", "--json", tmp_path / "a.json",
        "--set", f"limits={{time: {1.1 * fastest}}}", "--set", "search={evaluations: 9}",
    )  # fmt: skip
    assert outcome.code == 0
    data = json.loads((tmp_path / "a.json").read_text())
    without = [choice["reason"] for choice in data["choices"] if choice["best"] is None]
    assert without
    assert all(without)
    assert re.search(r"Why choices have no design\n +\d x \S+", outcome.out)


@pytest.mark.slow
def test_a_picture_and_a_page_without_a_search_have_no_chart(run, tmp_path):
    svg, page = tmp_path / "a.svg", tmp_path / "a.html"
    outcome = run(
        "optimize", EXAMPLE, *QUICK, "--set", "search.searches=0", "--svg", svg, "--html", page
    )
    assert outcome.code == 0, outcome.err
    assert "least time" in svg.read_text()
    assert "after every evaluation" not in page.read_text()


@pytest.mark.slow
def test_energy_delay_is_printed_with_its_unit(run):
    outcome = run(
        "optimize", EXAMPLE, *QUICK, "--set", "objective=energy_delay",
        "--set", "search.evaluations=4",
    )  # fmt: skip
    assert outcome.code == 0
    assert "J s" in outcome.out
    assert "all power of all chips" in outcome.out


def damaged(data, draw):
    """Return saved data with one value replaced or gone."""
    data = copy.deepcopy(data)
    here, path = data, []
    while isinstance(here, dict | list) and here:
        key = draw.choice(list(here) if isinstance(here, dict) else range(len(here)))
        path.append((here, key))
        here = here[key]
    owner, key = path[draw.randrange(len(path))]
    if draw.random() < 0.3:
        del owner[key]
    else:
        owner[key] = draw.choice([None, "x", "", -1, 0, 1e400, [], {}, True, [None], 1e-320])
    return data


@pytest.mark.parametrize("count", [12, pytest.param(100, marks=pytest.mark.slow)])
def test_a_damaged_best_is_bad_input_and_no_bug(best, run, tmp_path, count):
    data = json.loads(best[0].read_text())
    draw = random.Random(7)
    file = tmp_path / "best.json"
    for _ in range(count):
        file.write_text(json.dumps(damaged(data, draw)))
        for command in (("show", file), ("report", file, "-o", tmp_path / "a.html")):
            outcome = run(*command)
            assert outcome.code in (0, 2), (outcome.err, file.read_text())
