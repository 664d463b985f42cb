"""A whole run is so many iterations, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crosstack import InputError, Job, model, optimise, system
from crosstack.report.step_words import run_numbers

FOUR_YEARS = 4 * 365.25 * 86400


@pytest.fixture(scope="module")
def plan():
    job = Job(model=model("llama-68m"), batch=16, sequence=512)
    return optimise(job, system("h100-dgx"), work_limit=1e3)


def test_a_run_is_as_many_iterations_as_its_tokens_take(plan):
    each = 16 * 512
    run = plan.whole_run(10 * each - 1)
    assert run.iterations == 10
    assert run.time == pytest.approx(10 * plan.evaluation.time)
    assert run.chip_time == pytest.approx(8 * run.time)
    assert run.energy == pytest.approx(10 * plan.evaluation.energy.total)
    assert run.price == pytest.approx(plan.evaluation.price.total * run.time / FOUR_YEARS)
    assert plan.whole_run(10 * each + 1).iterations == 11


def test_a_million_tokens_are_a_share_of_the_run(plan):
    run = plan.whole_run(4e6)
    energy, price = run.of_tokens(1e6)
    assert (energy, price) == (pytest.approx(run.energy / 4), pytest.approx(run.price / 4))


@pytest.mark.parametrize(("kind", "tokens"), [("prefill", 4 * 256), ("decode", 4)])
def test_tokens_that_are_read_or_written_are_counted(kind, tokens):
    asked = {"context": 256} if kind == "decode" else {"sequence": 256}
    job = Job(model=model("llama-68m"), kind=kind, batch=4, **asked)
    found = optimise(job, system("h100-dgx"), work_limit=1e3)
    assert found.whole_run(7 * tokens).iterations == 7


@pytest.mark.parametrize("tokens", [0, -1, float("nan"), float("inf"), 1e31])
def test_no_run_has_no_tokens_or_endlessly_many(plan, tokens):
    with pytest.raises(InputError, match="tokens"):
        plan.whole_run(tokens)


def test_what_nobody_gives_is_not_known(plan):
    machine = system("h100-dgx")
    bare = replace(machine, chip=replace(machine.chip, price=None, power=None, idle_power=None))
    run = optimise(plan.task.workload, bare, work_limit=1e3).whole_run(1e6)
    assert (run.price, run.energy) == (None, None)
    assert run.of_tokens(1e6) == (None, None)
    assert [label for label, _ in run_numbers(run)] == [
        "steps", "time, nothing going wrong", "chip-hours",
    ]  # fmt: skip
