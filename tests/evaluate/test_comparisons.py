"""What is expected of a step: measured steps like it, and none of other machines or rules."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import crosstack
from crosstack.evaluate.comparisons import COMPARISONS, GENERATIONS, comparison_of
from crosstack.io.library.machines import system_on
from crosstack.io.steps import job_named
from crosstack.machine.calibration import Calibration
from crosstack.mapping.degrees import Degrees
from crosstack.mapping.mapping import Constraints, Task
from crosstack.model.rules import rules_named
from crosstack.report.step_words import expected_sentence

RULES = rules_named("crosstack")


def task_of(model="llama3-8b", node="a100-dgx-80gb", framework: str | None = "megatron", **given):
    job = job_named(model, **({"batch": 16, "sequence": 2048} | given))
    return Task(workload=job.workload, system=system_on(node, chips=8, framework=framework))


@pytest.mark.parametrize(
    ("node", "model", "generation", "experts"),
    [
        ("a100-dgx-80gb", "llama3-8b", "A100", False),
        ("h200-dgx", "mixtral-8x7b", "Hopper", True),
        ("gb300-nvl72", "gpt-22b", "Blackwell", False),
    ],
)
def test_a_step_is_compared_with_those_of_its_chips_and_kind_of_model(
    node, model, generation, experts
):
    found = comparison_of(task_of(model, node), RULES)
    assert found is not None
    assert (found.generation, found.experts) == (generation, experts)
    assert found.expected(2.0) == pytest.approx([2 * ratio for ratio in found.ratios])


@pytest.mark.parametrize(
    "task",
    [
        task_of(framework=None),
        task_of(framework="compiled"),
        task_of(node="tpu-v4-pod", framework=None),
        task_of("resnet50", sequence=None),
    ],
    ids=["no framework", "another framework", "other chips", "images"],
)
def test_a_step_unlike_all_measured_ones_is_not_compared(task):
    assert comparison_of(task, RULES) is None


def test_a_calibrated_machine_is_not_compared():
    task = task_of()
    system = Calibration(products=0.9, rows=8).applied(task.system)
    assert comparison_of(replace(task, system=system), RULES) is None


def test_rules_of_others_are_not_compared():
    assert comparison_of(task_of(), rules_named("dfmodel-e4")) is None


def test_every_comparison_has_its_ratios_in_order_and_chips_of_the_library():
    for one in COMPARISONS:
        assert one.ratios.low <= one.ratios.middle <= one.ratios.high
        assert GENERATIONS[one.generation]


def test_an_answer_says_what_to_expect_and_saves_it():
    given = Constraints(degrees=Degrees(tensor=1, pipeline=1, data=8))
    answer = crosstack.optimise(replace(task_of("llama3.2-1b"), constraints=given), work_limit=1e4)
    like = answer.comparison
    assert like is not None
    said = expected_sentence(answer)
    assert said.startswith("Expect ")
    assert f"of {like.runs} measured steps of megatron on A100" in said
    saved = json.loads(answer.to_json())["compared"]
    assert saved["time_s"] == pytest.approx(like.expected(answer.evaluation.time))


def test_chips_without_a_measured_step_say_so():
    task = task_of(node="trn2-48xlarge", framework=None)
    said = expected_sentence(crosstack.optimise(task, work_limit=1e3))
    assert said.startswith("No measured step on trainium2 has been compared with ours")
    usual = expected_sentence(crosstack.optimise(task_of(framework=None), work_limit=1e3))
    assert usual.endswith("name one (--framework).")
