"""What an answer says was free, and what was given."""

from __future__ import annotations

import pytest

from crosstack.io.library.machines import system_on
from crosstack.io.steps import job_named
from crosstack.mapping.mapping import Constraints
from crosstack.mapping.search import search
from crosstack.model.rules import rules_named

DECISIONS = {
    "number of tiles": {"n_tiles": 1},
    "microbatch size": {"microbatch_size": 1},
    "partitions": {"kernel_by_kernel": True},
}


@pytest.mark.parametrize("name", DECISIONS)
def test_a_decision_is_free_or_given(random_task, name):
    workload, system = random_task(3)
    for given in ({}, DECISIONS[name]):
        _, certificate = search(workload, system, Constraints(**given), rules_named("crosstack"))
        assert (name in certificate.given, name in certificate.free) == (bool(given), not given)


@pytest.mark.parametrize(
    ("node", "chips", "shared"),
    [("tpu-v5e-pod", 16, True), ("tpu-v5e-pod", 1, False), ("h100-dgx", 8, False)],
)
def test_it_says_how_rings_are_shared_where_there_are_any(node, chips, shared):
    workload = job_named("llama3.2-1b", "prefill", batch=16, sequence=128).workload
    system = system_on(node, chips=chips)
    _, found = search(workload, system, Constraints(), rules_named("crosstack"), work_limit=1e4)
    assert any("share a ring or a line" in words for words in found.given) == shared
