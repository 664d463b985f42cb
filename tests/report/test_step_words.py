"""What is read first of an answer: the same in text, on the page and of a prediction."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from crosstack import Job, model, optimise, system
from crosstack.charts import BarChart, Bars, Measure
from crosstack.evaluate.step_account import Spent, StepAccount
from crosstack.evaluate.timeline import stages_of, timeline_of
from crosstack.evaluate.whole_run import WholeRun
from crosstack.mapping.degrees import Degrees
from crosstack.mapping.mapping import Constraints
from crosstack.report.chart_figure import BELOW, chart_figure
from crosstack.report.html import answer_html
from crosstack.report.plan_rows import memory_rows
from crosstack.report.step_figures import memory_chart, memory_stack, stage_timeline
from crosstack.report.step_words import (
    LEVERS,
    SPENT,
    first_sentence,
    run_numbers,
    spent_rows,
    step_numbers,
)
from crosstack.report.text import answer_tables, plain_text
from crosstack.report.timeline_figure import rows_figure


@pytest.fixture(scope="module")
def staged():
    job = Job(model=model("llama-68m"), batch=16, sequence=512)
    given = Constraints(degrees=Degrees(tensor=1, pipeline=2, data=4), microbatch_size=1)
    return optimise(job, system("h100-dgx"), constraints=given, work_limit=1e3, tokens=1e12)


def test_all_that_time_goes_to_has_words_and_a_lever():
    assert {*SPENT} == {*LEVERS} == {*Spent}


def test_text_and_page_say_the_same_of_the_step(staged):
    text = " ".join(plain_text(answer_tables(staged), 80).split())
    page = answer_html(staged)
    for _, value in (*step_numbers(staged), *run_numbers(staged.run)):
        assert value in text
        assert value in page
    assert "A run over 1,000,000,000,000 tokens" in text
    assert first_sentence(staged.step_account()) in text


def test_utilizations_are_said_by_their_names(staged):
    said = dict(step_numbers(staged))
    e = staged.evaluation
    assert said["MFU, of the model's FLOP"].startswith(f"{100 * e.utilization:.3g} %")
    assert said["HFU, of what is executed"].startswith(f"{100 * e.hardware_utilization:.3g} %")


def test_more_than_the_peak_says_what_it_counts(staged):
    long = replace(staged.evaluation, utilization=1.2, executed_work=0.6 * staged.evaluation.work)
    said = dict(step_numbers(replace(staged, evaluation=long)))["MFU, of the model's FLOP"]
    assert said.startswith("120 %")
    assert said.endswith(", as it counts scores that a mask leaves out")


def account(**spent):
    times = {name: spent.get(name.value, 0.0) for name in Spent}
    return StepAccount(
        stage=0,
        time=sum(times.values()),
        spent=tuple(times.items()),
        bound=tuple(times.items()),
        at_peak=spent["compute"] / 2,
        saved_at_peak=spent["compute"] / 2,
    )


def test_the_largest_saving_changes_first_with_how_much_it_saves():
    waiting = first_sentence(account(compute=2.0, waiting=1.5, sums=0.5))
    assert "would save at most 1.5 s of a step, 37.5 %" in waiting
    assert "interleaved" in waiting
    compute = first_sentence(account(compute=4.0, waiting=1.0))
    assert "compute, which reaches 50 % of the peak" in compute
    assert "at most 2 s of a step, 40 %" in compute


def test_what_takes_next_to_no_time_has_no_row(staged):
    rows = spent_rows(staged, account(compute=1.0, waiting=0.5, sums=1e-6)).rows
    assert [row[0] for row in rows] == [
        "compute", "  of it at the peak rate", SPENT[Spent.WAITING], "sum",
    ]  # fmt: skip
    assert rows[-1][1:] == ("1.5 s", "100 %")


@pytest.mark.parametrize(("joules", "words"), [(3.6e6 * 999, "999 kWh"), (3.6e9 * 1.5, "1.5 MWh")])
def test_energy_is_in_the_unit_that_is_billed(joules, words):
    run = WholeRun(tokens=1.0, iterations=1, time=1.0, chip_time=1.0, energy=joules, price=None)
    assert dict(run_numbers(run))["energy"] == words


def test_memory_has_a_column_for_every_stage_and_its_share_of_the_capacity(staged):
    rows = memory_rows(staged)
    assert rows.header[1:3] == ("stage 0", "stage 1")
    totals, capacity = staged.evaluation.memory.totals, staged.evaluation.memory_capacity
    assert rows.rows[-1][1] == f"{100 * totals[0] / capacity:.3g} %"


def test_stacks_of_memory_are_the_account_under_its_capacity(staged):
    chart, account = memory_chart(staged), staged.evaluation.memory
    stacks = zip(*(bar.values for bar in chart.bars), strict=True)
    assert list(map(sum, stacks)) == pytest.approx(list(account.totals))
    assert chart.limit[1] == staged.evaluation.memory_capacity
    assert "capacity" in "".join(memory_stack(staged).canvas.elements)


def test_a_limit_is_a_line_above_what_stays_below_it():
    chart = BarChart(
        title="held", y=Measure(label="memory", unit="GB", worth=1e9), groups=("a", "b"),
        bars=(Bars(name="kept", values=(2e9, 4e9)), Bars(name="else", values=(1e9, None))),
        stacked=True, limit=("capacity", 8e9),
    )  # fmt: skip
    figure = chart_figure(chart)
    drawn = "".join(figure.canvas.elements)
    (line,) = re.findall(r'class="xs-mark xs-dashed" d="M[\d.]+ ([\d.]+)', drawn)
    tops = [float(y) for y in re.findall(r'<rect class="xs-fill-\d" x="[\d.]+" y="([\d.]+)', drawn)]
    assert float(line) < min(tops[2:])
    assert float(line) < figure.height - BELOW
    assert "capacity" in drawn


def test_the_timeline_has_every_stage_and_marks_the_busiest(staged):
    drawn = "".join(stage_timeline(staged).canvas.elements)
    busiest = staged.step_account().stage
    assert f"stage {busiest}, busiest" in drawn
    assert f"stage {1 - busiest}<" in drawn
    assert timeline_of(staged, stages_of(staged)).makespan == pytest.approx(staged.evaluation.time)


def test_rows_that_nothing_runs_on_are_left_out(staged):
    timeline = timeline_of(staged, stages_of(staged))
    assert rows_figure(timeline, {"no such resource": "none"}) is None
    drawn = "".join(rows_figure(timeline, {"stage 0": "the first", "none": "x"}).canvas.elements)
    assert "the first" in drawn
    assert ">x<" not in drawn


def test_many_stages_have_a_stack_each_and_few_names(staged):
    account = staged.evaluation.memory
    wide = replace(account, sizes=tuple(sizes[:1] * 40 for sizes in account.sizes))
    answer = replace(staged, evaluation=replace(staged.evaluation, memory=wide))
    groups = memory_chart(answer).groups
    assert len(groups) == 40
    assert sum(map(bool, groups)) <= 16
    assert memory_rows(answer).header[1:3] == ("stage 0", "stage 39")
