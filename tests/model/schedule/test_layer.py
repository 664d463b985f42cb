"""A layer as tasks takes what its partitions take."""

from __future__ import annotations

import random

import pytest

from crosstack.errors import InputError
from crosstack.machine.chip import Overlap
from crosstack.model.partition import combine
from crosstack.model.schedule.events import Resource, simulate
from crosstack.model.schedule.layer import PartitionTimes, layer_graph


def drawn(rng: random.Random) -> PartitionTimes:
    names = ("compute", "memory", "network")
    return PartitionTimes(**{name: rng.choice([0.0, rng.random()]) for name in names})


@pytest.mark.parametrize("overlap", list(Overlap))
@pytest.mark.parametrize("seed", range(20))
def test_overlap_is_what_resources_allow(seed, overlap):
    rng = random.Random(seed)
    partitions = [drawn(rng) for _ in range(rng.randint(1, 8))]
    whole = sum(combine(p.compute, p.memory, p.network, overlap) for p in partitions)
    ran = simulate(layer_graph(partitions, overlap))
    assert ran.makespan == pytest.approx(whole, rel=1e-12)


@pytest.mark.parametrize(
    ("overlap", "time"), [(Overlap.ALL, 4.0), (Overlap.COMPUTE_MEMORY, 7.0), (Overlap.NONE, 8.0)]
)
def test_a_partition_that_is_launched_waits_for_the_host(overlap, time):
    # 1 s to launch, then 3 s of units beside 1 s of memory; 3 s of links wait for no launch
    one = PartitionTimes(compute=3.0, memory=1.0, network=3.0, launch=1.0)
    ran = simulate(layer_graph([one, one], overlap))
    assert ran.makespan == 2 * time
    assert ran.busy()[Resource.HOST] == 2.0


def test_each_resource_is_busy_for_its_own_terms():
    partitions = [PartitionTimes(compute=2.0, memory=1.0, network=3.0)] * 2
    busy = simulate(layer_graph(partitions, Overlap.ALL)).busy()
    assert busy == {"memory": 2.0, "units": 4.0, "links": 6.0}


def test_no_time_is_negative():
    with pytest.raises(InputError, match="^memory: got -1"):
        PartitionTimes(compute=0.0, memory=-1.0, network=0.0)
