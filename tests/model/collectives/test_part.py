"""What the default rules count of the collectives of a plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crosstack.errors import InputError
from crosstack.machine.chip import flat_chip
from crosstack.machine.memory import main_memory
from crosstack.machine.system import (
    AllReduceAlgorithm,
    Dimension,
    DimensionKind,
    Parallelism,
)
from crosstack.model.collectives import AffineTime, ConcaveTime, LeastTime, NetworkUse
from crosstack.model.mesh_plan import make_plan
from crosstack.model.rules import rules_named
from crosstack.published.dfmodel.graphs.llm import llm
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernels import Collective

TENSOR, PIPELINE, DATA = Parallelism.TENSOR, Parallelism.PIPELINE, Parallelism.DATA
WORKLOAD = llm(
    hidden=64, sequence_length=16, n_heads=4, head_size=16, n_layers=4, global_batch_size=4096
)
OURS = rules_named("crosstack")
SIZE = 1e12


@pytest.fixture(scope="module")
def rail(a_system):
    """Return 8 x 2 x 1024 chips: links of 900 GB/s, then of 50 GB/s, in domains of 8."""
    network = tuple(
        Dimension(kind=DimensionKind.SWITCH, size=size, bandwidth=speed, latency=1e-6)
        for size, speed in ((8, 900e9), (2, 50e9), (1024, 50e9))
    )
    return a_system(network=network, n_chips=16384, domain_size=8)


def rates(system):
    """Return seconds a byte of large all-reduces of tensors and of gradients."""
    use = NetworkUse.of(
        system, tuple(d.size for d in system.network), (TENSOR, PIPELINE, DATA), Dtype.BF16
    )
    part = LeastTime()
    found = part.kernels(use)[Collective.ALL_REDUCE], part.gradients(use)
    return [lines.members[-1].per_byte for lines in found]


class TestDomains:
    def test_the_inner_chips_take_the_domain(self, rail):
        tensor, data = rates(rail)
        assert tensor == pytest.approx(2 * 7 / 8 / 900e9)
        assert data == pytest.approx(2 * 1023 / 1024 / 50e9)

    def test_a_larger_domain_is_never_slower(self, rail):
        sizes = (1, 2, 4, 8, 16, 64, 16384)
        times = [sum(rates(replace(rail, domain_size=size))) for size in sizes]
        assert times == sorted(times, reverse=True)

    def test_without_domains_dimensions_count(self, rail):
        assert rates(replace(rail, domain_size=None))[0] == pytest.approx(2 * 7 / 8 / 900e9)


class TestGivenAlgorithm:
    def test_a_system_may_say_how_sums_are_made(self, rail):
        times = {}
        for given in (None, AllReduceAlgorithm.RING, AllReduceAlgorithm.TREE):
            system = replace(rail, domain_size=None, all_reduce=given)
            use = NetworkUse.of(system, (8, 2, 1024), (TENSOR, PIPELINE, DATA), Dtype.BF16)
            times[given] = [float(LeastTime().gradients(use).time(s)) for s in (1e3, 1e11)]
        ring, tree = times[AllReduceAlgorithm.RING], times[AllReduceAlgorithm.TREE]
        assert tree[0] < ring[0]
        assert ring[1] < tree[1]
        assert times[None][0] <= tree[0]
        assert times[None][1] <= ring[1]

    def test_what_no_dimension_can_run_is_refused(self, rail):
        system = replace(rail, all_reduce=AllReduceAlgorithm.IN_NETWORK)
        says = r"system.all_reduce: got 'in_network'; allowed: ring, tree, direct"
        with pytest.raises(InputError, match=says):
            make_plan(WORKLOAD, system, (8, 2, 1024), (TENSOR, PIPELINE, DATA), 1, OURS)


class TestHop:
    def test_activations_are_sent_on_in_shards(self, rail):
        plan = make_plan(WORKLOAD, rail, (8, 2, 1024), (TENSOR, PIPELINE, DATA), 1, OURS)
        assert plan.hop == pytest.approx(64 * 16 * 2 / 8 / 50e9 + 1e-6)

    def test_one_stage_sends_nothing(self, rail):
        plan = make_plan(WORKLOAD, rail, (8, 2, 1024), (TENSOR, TENSOR, DATA), 1, OURS)
        assert plan.hop == 0

    def test_stages_in_other_pods_share_the_links_between_them(self, rail):
        tree = replace(rail.network[1], kind=DimensionKind.FAT_TREE, oversubscription=4.0)
        network = (rail.network[0], tree, rail.network[2])
        system = replace(rail, network=network, domain_size=None)
        plan = make_plan(WORKLOAD, system, (8, 2, 1024), (TENSOR, PIPELINE, DATA), 1, OURS)
        assert plan.border.per_byte == pytest.approx(4 / 50e9)


class TestLines:
    LINES = ConcaveTime((AffineTime(fixed=1.0, per_byte=4.0), AffineTime(fixed=3.0, per_byte=2.0)))

    def test_the_time_is_the_least(self):
        assert self.LINES.time([0.0, 0.5, 1.0, 2.0]).tolist() == [0.0, 3.0, 5.0, 7.0]

    def test_messages_sent_as_one_share_what_is_fixed(self):
        assert float(self.LINES.time(1.0, together=4)) == pytest.approx((3 + 2 * 4) / 4)

    def test_one_after_the_other_adds_up_size_by_size(self):
        both = self.LINES + ConcaveTime((AffineTime(fixed=0.5, per_byte=1.0),))
        sizes = [0.1, 0.5, 1.0, 2.0, 10.0]
        assert both.time(sizes) == pytest.approx(
            [float(self.LINES.time(s)) + 0.5 + s for s in sizes]
        )

    def test_none_is_no_lines(self):
        with pytest.raises(InputError, match="members: got"):
            ConcaveTime(())


def test_both_memories_hold_and_deliver_the_mean_by_capacity():
    memories = main_memory(
        bandwidth=300.0, capacity=1.0, second_bandwidth=100.0, second_capacity=3.0
    )
    cells = {"n_cores": 1, "lanes": 1, "stages": 1, "frequency": 1.0, "sram_capacity": 1.0}
    chip = flat_chip(**cells, memories=memories)
    assert [chip.memory_room(spilled=spilled) for spilled in (False, True)] == [1.0, 4.0]
    assert [chip.memory_speed(spilled=spilled) for spilled in (False, True)] == [300.0, 150.0]
