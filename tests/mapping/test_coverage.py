"""What an answer says was free, and what was given."""

from __future__ import annotations

import pytest

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
