"""Claims about warnings: what runs, but nobody would run so."""

from __future__ import annotations

import json
import math

import pytest

import crosstack
from crosstack import Constraints, Job
from crosstack.evaluate.predict import predicted
from crosstack.mapping.degrees import parse_degrees
from crosstack.mapping.strategy import Strategy
from crosstack.report.html import answer_html
from crosstack.report.prediction_text import prediction_data, prediction_tables
from crosstack.report.text import answer_tables, plain_text
from crosstack.workload.product import Product
from crosstack.workload.transformer_training import Schedule, Zero

MODEL = crosstack.model("llama3.2-1b")  # 16 layers, 32 heads, 8 of keys and values, head size 64


DEGREES = "tp", "pp", "dp"
WORK = 1e3  # units: warnings are of degrees and not of what is left to decide


def planned(said, *, batch=16, framework=None, **given):
    """Return a step of training on as many chips of DGX H100 as degrees say; others are 1."""
    degrees = parse_degrees(",".join([said, *(f"{d}=1" for d in DEGREES if d not in said)]))
    chips = math.prod(degrees.given.values())
    job = Job(model=MODEL, batch=batch, sequence=512)
    system = crosstack.system("h100-dgx", chips=chips, framework=framework)
    constraints = Constraints(degrees=degrees, **given)
    return crosstack.optimise(job, system, constraints=constraints, work_limit=WORK)


def warned(said, **given):
    """Return the warnings of a step."""
    return planned(said, **given).warnings


def test_a_usual_step_gets_no_warning():
    assert warned("dp=8") == ()
    assert warned("tp=2,pp=2,dp=2", batch=64, microbatch_size=1) == ()
    # 20 places for 16 layers: the head takes as long as those that it stands in
    assert warned("pp=5", batch=64, microbatch_size=1) == ()


@pytest.mark.parametrize(
    ("strategy", "more", "words"),
    [
        ("tp=16", {}, "tensor parallelism crosses servers, at 50 GB/s a chip, not 450 GB/s"),
        # 8 heads of 64 are 512 rows, of which eight chips have 64 each
        ("tp=8", {}, "tp=8 leaves 64 of 512 rows of the product keys to a chip, less than a tile"),
        ("tp=3", {}, "tp=3 is not a divisor of 32 heads: chips have unequal parts"),
        # 11 x 2 places for 16 layers, of which ends of the model stand in two at most
        ("tp=8,pp=11", {"microbatch_size": 1}, "stages hold 1 to 2 of 16 layers: "),
        ("pp=32", {"microbatch_size": 1}, "16 of 32 stages hold no layer"),
        ("pp=4", {"microbatch_size": 8}, "2 microbatches for 4 stages: some idle at any time"),
        ("pp=4", {"microbatch_size": 16}, "1 microbatch for 4 stages: some idle at any time"),
        # (p - 1) / m = 3 / 4, the head apart
        ("pp=4", {"microbatch_size": 4, "interleave": 1, "schedule": Schedule.ONE_F_ONE_B},
         "stages idle for"),
        ("dp=16", {"batch": 64, "microbatch_size": 1, "zero": Zero.WEIGHTS},
         "weights come for each of 4 microbatches and are waited for"),
        # 43 launches of 71.7 us (`crosstack show library eager`)
        ("tp=1", {"framework": "eager", "microbatch_size": 1},
         "chips wait for their host's launches, 3.083 ms a layer"),
    ],
)  # fmt: skip
def test_what_nobody_would_run_gets_a_warning(strategy, more, words):
    assert any(line.startswith(words) for line in warned(strategy, **more)), warned(
        strategy, **more
    )


def test_a_memory_that_is_all_but_full_gets_a_warning():
    job = Job(model=MODEL, batch=1, sequence=512)
    system = crosstack.system("h100-dgx", chips=1)
    used = crosstack.optimise(job, system, work_limit=WORK).evaluation.memory_used
    for room, warns in ((used / 0.94, False), (used / 0.96, True)):
        small = system.driven_by(None)
        small = type(small)(
            chip=small.chip.with_memory(capacity=room), network=small.network, n_chips=1
        )
        plan = crosstack.optimise(job, small, work_limit=WORK)
        assert any("main memory is 96.0% full" in line for line in plan.warnings) is warns


def test_a_framework_refuses_what_else_gets_a_warning():
    with pytest.raises(crosstack.InputError, match="tp=3; allowed with megatron"):
        warned("tp=3", framework="megatron")


@pytest.mark.parametrize(
    ("chips", "batch", "said"),
    [
        (
            24,
            64,
            "3 then split tensors or layers, and all are used: 16 chips, or a batch of 48 or 72",
        ),
        (8, 64, ""),
        (16, 24, ""),  # pairs of chips divide its heads
        (24, 16, ""),  # fewer sequences than chips: some have to split tensors
    ],
)
def test_chips_that_a_batch_does_not_divide_by_get_a_warning(chips, batch, said):
    job = Job(model=MODEL, kind="decode", batch=batch, context=512)
    system = crosstack.system("h100-dgx", chips=chips)
    found = crosstack.optimise(job, system, work_limit=WORK).warnings
    over = [words for words in found if "does not divide by" in words]
    assert len(over) == bool(said)
    assert said in " ".join(over)


def test_warnings_stand_in_text_page_and_results():
    plan = planned("tp=8")
    (words,) = plan.warnings
    found = predicted(Product(m=1, k=1, n=1), Strategy(kp2=8), plan)
    chip, dtype = plan.task.system.chip, plan.task.workload.graph.dtype
    data = prediction_data(found, chip, dtype, "crosstack", {})
    assert data["warnings"] == plan.to_dict()["warnings"] == [words]
    said = f"Warning: {words[:40]}"
    assert said in plain_text(prediction_tables(json.loads(json.dumps(data))))
    assert said in plain_text(answer_tables(plan))
    assert said in answer_html(plan)
