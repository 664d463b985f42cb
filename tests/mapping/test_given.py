"""Decisions that are given in one text, beside degrees."""

from __future__ import annotations

import pytest

import crosstack
from crosstack.errors import InputError
from crosstack.io import library
from crosstack.mapping.given import DECISIONS, split_given
from crosstack.mapping.mapping import Constraints
from crosstack.workload.job import Job
from crosstack.workload.transformer_training import Recompute, Schedule, Zero

ALL = "tp=8,pp=4,microbatch=2,zero=1,recompute=full,schedule=gpipe,interleave=1"


def test_every_decision_is_a_field_of_constraints():
    assert {field for field, _ in DECISIONS.values()} <= {*Constraints.__dataclass_fields__}


@pytest.mark.parametrize(
    ("text", "degrees", "decided"),
    [
        ("tp=8,pp=4", "tp=8,pp=4", {}),
        ("RC-1-8-d8-p8", "RC-1-8-d8-p8", {}),
        ("RC-1-8-d8-p8, microbatch=2", "RC-1-8-d8-p8", {"microbatch_size": 2}),
        ("zero=fsdp", "", {"zero": Zero.WEIGHTS}),
        ("zero=hsdp,dp=8,zero=hsdp", "dp=8", {"zero": Zero.HYBRID}),
        (
            ALL,
            "tp=8,pp=4",
            {
                "microbatch_size": 2,
                "zero": Zero.STATE,
                "recompute": Recompute.FULL,
                "schedule": Schedule.GPIPE,
                "interleave": 1,
            },
        ),
        ("recompute=full:4", "", {"recompute": "full:4"}),
        ("dp=2,offload=activations+optimizer", "dp=2", {"offload": "optimizer+activations"}),
    ],
)
def test_decisions_are_taken_out_of_a_text_and_degrees_left(text, degrees, decided):
    assert split_given(text) == (degrees, decided)
    assert split_given(text, {**decided, "recompute": decided.get("recompute")})[1] == decided


@pytest.mark.parametrize(
    ("text", "others", "message"),
    [
        ("zero=9", {}, '^given: no zero is called "9"'),
        ("recompute=ful", {}, '^given: no recompute is called "ful".*full'),
        ("recompute=full:0", {}, "^given: got 'full:0'; allowed: attention:N or full:N"),
        ("recompute=full:2", {"recompute": "full"}, "^recompute: got full; another place gives"),
        ("offload=optimizer+state", {}, "^given: got 'optimizer.state'; allowed: optimizer, which"),
        ("microbatch=0", {}, "^given: got microbatch=0; allowed: a whole number, at least 1"),
        ("interleave=two", {}, "^given: got interleave=two"),
        ("zero=1,tp=2,zero=2", {}, "^given: got zero=1 and zero=2; allowed: one of the two"),
        ("zero=1", {"zero": "2"}, "^zero: got 2; another place gives 1"),
        ("microbatch=1", {"microbatch_size": 2}, "^microbatch_size: got 2; another place gives 1"),
    ],
)
def test_what_is_no_decision_or_is_given_twice_is_refused(text, others, message):
    with pytest.raises(InputError, match=message):
        split_given(text, others)


def test_the_same_said_twice_is_said_once():
    assert split_given("zero=fsdp", {"zero": "3"})[1] == {"zero": Zero.WEIGHTS}
    assert split_given("recompute=full", {"recompute": Recompute.FULL})[1]["recompute"] == "full"


def test_decisions_in_a_text_are_those_of_options_in_python():
    job = Job(model=library.model("llama3.2-1b"), batch=16, sequence=1024)
    system = library.system_on("h100-dgx")
    text = "pp=2,dp=4,microbatch=2,zero=1,recompute=full,schedule=gpipe"
    one = crosstack.predict(job, system, text)
    said = {"zero": "1", "recompute": "full", "schedule": "gpipe"}
    assert one.time == crosstack.predict(job, system, "pp=2,dp=4", microbatches=2, **said).time
    assert one.plan.mapping.microbatch_size == 2
    assert one.plan.mapping.recompute is Recompute.FULL
    with pytest.raises(InputError, match="microbatch_size: got 2; allowed: none beside"):
        crosstack.predict(job, system, "dp=8,microbatch=2", microbatches=1)
