"""Gradients of weights in 16 or 32 bits, and what the optimizer keeps of each weight."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files

import pytest

import crosstack
from crosstack.errors import InputError
from crosstack.io import library
from crosstack.io.native.write import write_workload
from crosstack.mapping.degrees import Degrees
from crosstack.mapping.mapping import Constraints
from crosstack.model.fused_attention import as_kept
from crosstack.model.memory_account import ROWS
from crosstack.model.rules import rules_named
from crosstack.workload.dtype import Dtype
from crosstack.workload.job import Job
from crosstack.workload.optimizer import OPTIMIZERS, optimizer_named
from crosstack.workload.transformer_training import Recompute, Zero

MODEL = library.model("llama3.2-1b")  # its head is the table of tokens
PARAMETERS = MODEL.parameters.total
JOB = Job(model=MODEL, batch=8, sequence=2048)
EIGHT = library.system_on("h100-dgx", chips=8)
GIVEN = Constraints(
    microbatch_size=1,
    degrees=Degrees(tensor=1, pipeline=1, data=8, context=1),
    zero=Zero.NONE,
    recompute=Recompute.NONE,
)


def found(job=JOB, given=GIVEN, system=EIGHT):
    return crosstack.optimise(job, system, constraints=given, work_limit=1e5).evaluation


def row(evaluation, name: str) -> float:
    """Bytes of the first stage. [B]"""
    return dict(zip(ROWS, evaluation.memory.sizes, strict=True))[name][0]


def test_two_bytes_said_are_what_is_counted_where_nothing_is_said():
    usual, said = found(), found(replace(JOB, gradients="bf16", optimizer="adamw"))
    assert said.time == usual.time
    assert said.memory == usual.memory


@pytest.mark.parametrize("zero", [Zero.NONE, Zero.STATE, Zero.GRADIENTS, Zero.WEIGHTS])
def test_gradients_in_single_precision_take_twice_the_memory_and_weights_as_much(zero):
    given = replace(GIVEN, zero=zero)
    usual, wide = found(given=given), found(replace(JOB, gradients="fp32"), given)
    assert row(wide, "gradients") == pytest.approx(2 * row(usual, "gradients"))
    for name in ("weights", "optimizer_state", "activations"):
        assert row(wide, name) == row(usual, name)
    # 54 bytes of a weight move; gradients of 4 bytes need no copy (6), and are set to zero in 4.
    assert wide.update_time == pytest.approx(50 / 54 * usual.update_time)
    assert wide.gather_time == usual.gather_time
    if zero is Zero.NONE:
        assert row(wide, "gradients") == pytest.approx(4 * PARAMETERS, rel=1e-3)


def test_sums_of_twice_the_bytes_take_twice_as_long_but_for_latency():
    plan = {
        gradients: found(replace(JOB, gradients=gradients), replace(GIVEN, zero=Zero.NONE))
        for gradients in ("bf16", "fp32")
    }
    narrow, wide = plan["bf16"].sums_time, plan["fp32"].sums_time
    assert 1.9 * narrow < wide < 2 * narrow
    # One microbatch: what the products of a layer write is two bytes a weight more.
    traffic = {name: sum(p.memory_traffic for p in one.partitions) for name, one in plan.items()}
    more = 2 * (PARAMETERS - MODEL.vocabulary * MODEL.hidden) / MODEL.layers
    assert traffic["fp32"] - traffic["bf16"] == pytest.approx(more, rel=1e-3)


def test_two_layers_on_their_way_have_gradients_of_their_own_type():
    given = replace(GIVEN, zero=Zero.GRADIENTS)
    usual, wide = found(given=given), found(replace(JOB, gradients="fp32"), given)
    none = row(found(), "buffers")
    ours = row(usual, "buffers") - none
    assert row(wide, "buffers") - none == pytest.approx(2 * ours)
    given = replace(given, zero=Zero.WEIGHTS)  # weights of two layers come, of two bytes
    assert row(found(replace(JOB, gradients="fp32"), given), "buffers") - none == pytest.approx(
        3 * ours
    )


@pytest.mark.parametrize(
    ("optimizer", "state", "moved"),
    # A weight of two bytes is made of its copy, state read and written; a gradient of two bytes is
    # turned into four, read, and set to zero; where it is clipped read for its norm, read and
    # written besides.
    [("adamw", 12, 54), ("sgd", 4, 26), ("sgd-momentum", 8, 34), ("14 B", 14, 58), ("0 B", 0, 12)],
)
def test_an_optimizer_keeps_and_moves_what_its_record_says(optimizer, state, moved):
    one = found(replace(JOB, optimizer=optimizer))
    assert row(one, "optimizer_state") == pytest.approx(state * PARAMETERS, rel=1e-3)
    bandwidth = EIGHT.chip.memory_speed(spilled=False)
    assert one.update_time == pytest.approx(moved * PARAMETERS / bandwidth, rel=1e-3)


def test_every_optimizer_by_name_has_a_source_that_is_known():
    text = (files("crosstack") / "data" / "references.bib").read_text()
    assert {"adamw", "sgd", "sgd-momentum"} == {*OPTIMIZERS}
    for name, one in OPTIMIZERS.items():
        assert one.name == name
        assert one.where
        assert f"{{{one.source}," in text
    assert optimizer_named(str(optimizer_named("12.5 B"))) == optimizer_named("12.5 B")


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"gradients": "fp8"}, "^gradients: got 'fp8'; allowed: fp32 or bf16"),
        ({"gradients": "fp31"}, '^gradients: no gradients is called "fp31"'),
        ({"optimizer": "adam"}, "^optimizer: got 'adam'; allowed: adamw, .*adamw"),
        ({"optimizer": "3 m"}, "^optimizer: "),
        ({"optimizer": "sgd", "kind": "prefill"}, "^optimizer: got .*nothing, of what is not"),
        ({"gradients": "fp32", "kind": "prefill"}, "^gradients: got .*nothing, of what is not"),
    ],
)
def test_what_cannot_be_said_of_training_is_refused_by_name(said, message):
    with pytest.raises(InputError, match=message):
        _ = Job(**{"model": MODEL, "batch": 1, "sequence": 64, **said}).workload


def test_a_file_says_them_of_a_model_and_of_a_graph(tmp_path):
    file = tmp_path / "task.yaml"
    words = "workload: {llm: {model: llama3.2-1b, sequence: 64}, gradients: fp32, optimizer: sgd}\n"
    file.write_text(words + "system: {on: h100-dgx}\n")
    read = crosstack.load(file).workload
    assert (read.gradients, read.optimizer) == (Dtype.FP32, OPTIMIZERS["sgd"])
    job = Job(model=MODEL, sequence=64, gradients="fp32", optimizer="sgd")
    assert as_kept(read) == job.workload
    again = tmp_path / "again.yaml"
    again.write_text(write_workload(read) + "system: {on: h100-dgx}\n")
    assert crosstack.load(again).workload == read
    for wrong, path in (("gradients: fp8", "gradients"), ("optimizer: sgdd", "optimizer")):
        file.write_text(f"workload: {{llm: {{model: gpt-1.7b, sequence: 64}}, {wrong}}}\n")
        with pytest.raises(InputError, match=rf"workload\.{path}: "):
            crosstack.load(file)


def test_a_result_says_them_and_its_mapping_is_read_again():
    job = replace(JOB, gradients="fp32", optimizer="sgd")
    plan = crosstack.optimise(job, EIGHT, constraints=GIVEN, work_limit=1e5)
    data = json.loads(plan.to_json())
    assert data["gradients"] == "fp32"
    assert data["optimizer"]["name"] == "sgd"
    assert data["optimizer"]["state_b"] == 4
    assert crosstack.evaluate(plan.task, plan.mapping).time == plan.evaluation.time


def test_predict_and_map_count_the_same_gradients_and_optimizer():
    job = replace(JOB, gradients="fp32", optimizer="sgd-momentum")
    step = crosstack.predict(job, EIGHT, "dp=8", zero="0", microbatches=1)
    assert step.time == found(job).time
    usual = crosstack.predict(JOB, EIGHT, "dp=8", zero="0", microbatches=1, gradients="fp32")
    assert usual.memory.stages[0].gradients == step.memory.stages[0].gradients
    assert usual.memory.stages[0].optimizer_state > step.memory.stages[0].optimizer_state


def test_rules_that_keep_no_gradients_keep_those_that_are_said():
    memory = rules_named("dfmodel-e3b").memory
    assert memory.as_trained(JOB.workload) is memory
    said = replace(JOB, gradients="fp32", optimizer="sgd").workload
    assert (memory.as_trained(said).gradient_bytes, memory.as_trained(said).optimizer_bytes) == (
        4, 4,
    )  # fmt: skip
