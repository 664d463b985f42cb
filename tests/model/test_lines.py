from __future__ import annotations

from dataclasses import replace

import pytest

from crosstack.machine.chip import flat_chip
from crosstack.machine.memory import main_memory
from crosstack.machine.system import Dimension, DimensionKind, Parallelism
from crosstack.model.plan import make_plan
from crosstack.model.rules import rules_named
from crosstack.workload.graph import Collective
from crosstack.workload.llm import llm

TENSOR, PIPELINE, DATA = Parallelism.TENSOR, Parallelism.PIPELINE, Parallelism.DATA
WORKLOAD = llm(
    hidden=64, sequence_length=16, n_heads=4, head_size=16, n_layers=4, global_batch_size=4096
)
E4, OURS = rules_named("dfmodel-e4"), rules_named("crosstack")


@pytest.fixture(scope="module")
def rail(a_system):
    """Return 8 x 2 x 1024 chips: links of 900 GB/s, then of 50 GB/s, in domains of 8."""
    network = tuple(
        Dimension(kind=DimensionKind.SWITCH, size=size, bandwidth=speed, latency=1e-6)
        for size, speed in ((8, 900e9), (2, 50e9), (1024, 50e9))
    )
    return a_system(network=network, n_chips=16384, domain_size=8)


def lines(system, rules):
    sizes = tuple(d.size for d in system.network)
    plan = make_plan(WORKLOAD, system, sizes, (TENSOR, PIPELINE, DATA), 1, rules)
    return plan.collectives[Collective.ALL_REDUCE], plan.periodic


class TestDomains:
    def test_published_ratios_of_the_rail_only_network(self, rail):
        # LLM/Compare_w_existing/rail_only/16384/8: seconds a gigabyte
        tensor, data = lines(rail, E4)
        assert tensor.per_byte * 1e9 == pytest.approx(7 / 7200)
        assert data.per_byte * 1e9 == pytest.approx(7 / 7200 + 127 / 51200)

    def test_a_domain_of_one_chip_has_only_slow_links(self, rail):
        tensor, data = lines(replace(rail, domain_size=1), E4)
        assert tensor.per_byte == pytest.approx(7 / 8 / 50e9)
        assert data.per_byte == pytest.approx(1023 / 1024 / 50e9)

    def test_by_default_the_inner_chips_take_the_domain(self, rail):
        tensor, data = lines(rail, OURS)
        assert tensor.per_byte == pytest.approx(2 * 7 / 8 / 900e9)
        assert data.per_byte == pytest.approx(2 * 1023 / 1024 / 50e9)

    def test_a_larger_domain_is_never_slower(self, rail):
        for rules in (E4, OURS):
            times = [
                sum(line.per_byte for line in lines(replace(rail, domain_size=size), rules))
                for size in (1, 2, 4, 8, 16, 64, 16384)
            ]
            assert times == sorted(times, reverse=True)

    def test_without_domains_nothing_changes(self, rail):
        tensor, _ = lines(replace(rail, domain_size=None), E4)
        assert tensor.per_byte == pytest.approx(7 / 8 / 900e9)


class TestGradientHalves:
    def test_one_published_run_counts_both_halves_for_tensors_only(self, rail):
        flat = replace(rail, domain_size=None)
        tensor, data = lines(flat, rules_named("dfmodel-e4+separate-tensor"))
        both, both_data = lines(flat, rules_named("dfmodel-e4+separate"))
        assert (tensor.per_byte, data.per_byte) == (both.per_byte, both_data.per_byte / 2)


class TestHop:
    def test_activations_are_sent_on_in_shards(self, rail):
        plan = make_plan(WORKLOAD, rail, (8, 2, 1024), (TENSOR, PIPELINE, DATA), 1, OURS)
        assert plan.hop == pytest.approx(64 * 16 * 2 / 8 / 50e9 + 1e-6)

    def test_one_stage_sends_nothing(self, rail):
        plan = make_plan(WORKLOAD, rail, (8, 2, 1024), (TENSOR, TENSOR, DATA), 1, OURS)
        assert plan.hop == 0


def test_both_memories_hold_and_deliver_the_mean_by_capacity():
    memories = main_memory(
        bandwidth=300.0, capacity=1.0, second_bandwidth=100.0, second_capacity=3.0
    )
    cells = {"n_cores": 1, "lanes": 1, "stages": 1, "frequency": 1.0, "sram_capacity": 1.0}
    chip = flat_chip(**cells, memories=memories)
    assert [chip.memory_room(spilled=spilled) for spilled in (False, True)] == [1.0, 4.0]
    assert [chip.memory_speed(spilled=spilled) for spilled in (False, True)] == [300.0, 150.0]
