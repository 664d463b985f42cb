"""Writing token after token: caches, latency, a second memory, drafts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

import pytest

from crosstack import Constraints, Task, evaluate, optimise
from crosstack.errors import InfeasibleError, InputError
from crosstack.evaluate.speculation import drafted_tokens, expected_tokens, speculate
from crosstack.machine.chip import Overlap
from crosstack.machine.memory import main_memory
from crosstack.machine.system import Dimension, DimensionKind, Parallelism
from crosstack.mapping.mapping import Status
from crosstack.published.dfmodel.graphs.serving import decode, prefill
from crosstack.workload.architectures import Transformer
from crosstack.workload.job import Job

MODEL = Transformer(
    hidden=256,
    heads=8,
    kv_heads=4,
    head_size=32,
    feed_forward=512,
    layers=4,
    vocabulary=1000,
    context=4096,
)
DRAFT = replace(MODEL, hidden=64, heads=2, kv_heads=2, feed_forward=128, layers=1)
ONE = Constraints(microbatch_size=1, max_partitions=1)


@pytest.fixture(scope="module")
def ring(a_chip, a_system):
    """Return four chips in a ring, as a builder over how they are used and what they hold."""

    def build(use=Parallelism.TENSOR, size=4, memory=None, latency=1e-6):
        dimension = Dimension(
            kind=DimensionKind.RING, size=size, bandwidth=50e9, latency=latency, parallelism=use
        )
        return a_system(
            network=(dimension,),
            n_chips=size,
            chip=a_chip(utilization=0.9, overlap=Overlap.NONE),
            memory=memory or main_memory(bandwidth=100e9),
        )

    return build


class TestCache:
    def test_every_sequence_reads_its_own(self, ring):
        # 4 layers x keys and values of 4 heads of 32 numbers of 2 bytes for 1000 tokens
        whole = 4 * 2 * 4 * 32 * 2 * 1000
        task = Task(
            workload=decode(MODEL, context=1000, global_batch_size=2),
            system=ring(),
            constraints=ONE,
        )
        rules = "dfmodel-e5"  # reads no weights
        with_cache = optimise(task, rules=rules).evaluation
        graph = task.workload.graph
        empty = tuple(replace(k, cache_size=0.0) for k in graph.kernels)
        bare = replace(task.workload, graph=graph.listing(kernels=empty))
        without = optimise(replace(task, workload=bare), rules=rules).evaluation
        assert with_cache.time - without.time == pytest.approx(2 * whole / 4 / 100e9)
        assert with_cache.memory_used - without.memory_used == pytest.approx(2 * whole / 4)

    def test_more_chips_than_heads_keep_copies(self, ring):
        workload = decode(MODEL, context=100000)
        four, eight = (
            optimise(Task(workload=workload, system=ring(size=n), constraints=ONE)).evaluation
            for n in (4, 8)
        )
        cache = 4 * 2 * 32 * 2 * 100000  # one of four heads on each chip, in four layers
        assert min(four.memory_used, eight.memory_used) > cache

    def test_the_published_way_to_write_it_down_takes_as_long(self, ring):
        def time(workload):
            task = Task(workload=workload, system=ring(), constraints=ONE)
            return optimise(task, rules="dfmodel-e5").evaluation.partitions[0].memory_time

        published = decode(MODEL, context=1000, chips=4)
        weights = published.graph.total_weight_size / 4 / 100e9
        assert time(published) == pytest.approx(time(decode(MODEL, context=1000)) + weights)


class TestLatency:
    def test_all_layers_and_the_way_between_stages(self, ring):
        task = Task(
            workload=decode(MODEL, context=1000, global_batch_size=8),
            system=ring(Parallelism.PIPELINE),
            constraints=ONE,
        )
        found = optimise(task).evaluation
        hop = 256 * 2 / 50e9 + 1e-6
        assert found.latency == pytest.approx(4 * found.layer_time + 3 * hop)

    def test_reading_a_prompt_takes_longer_than_writing_a_token(self, ring):
        reading = Task(workload=prefill(MODEL, tokens=1000), system=ring())
        writing = Task(workload=decode(MODEL, context=1000), system=ring())
        assert optimise(reading).evaluation.latency > optimise(writing).evaluation.latency

    def test_it_is_saved(self, ring):
        answer = optimise(Task(workload=decode(MODEL, context=10), system=ring()))
        assert answer.to_dict()["latency_s"] == answer.evaluation.latency


class TestSecondMemory:
    # A quarter of the weights alone is 0.7 MB and more.
    GIVEN: ClassVar = {
        "bandwidth": 100e9, "capacity": 5e5, "second_bandwidth": 10e9, "second_capacity": 5e6
    }  # fmt: skip
    SMALL = main_memory(**GIVEN)

    def test_what_does_not_fit_the_first_slows_everything_down(self, ring):
        task = Task(workload=decode(MODEL, context=1000), system=ring(memory=self.SMALL))
        answer = optimise(task)
        assert answer.certificate.status is Status.OPTIMAL
        found = evaluate(task, answer.mapping)
        assert found.time == pytest.approx(answer.certificate.objective, rel=1e-12)
        assert 5e5 < found.memory_used <= found.memory_capacity == 5.5e6
        mean = (5e5 * 100e9 + 5e6 * 10e9) / 5.5e6
        slow = optimise(
            replace(task, system=ring(memory=main_memory(bandwidth=mean, capacity=5.5e6)))
        )
        assert found.time == pytest.approx(slow.evaluation.time)

    def test_what_fits_the_first_is_as_fast_as_ever(self, ring):
        roomy = main_memory(**self.GIVEN | {"capacity": 1e8})
        workload = decode(MODEL, context=1000)
        one = main_memory(bandwidth=100e9, capacity=1e8)
        times = [
            optimise(Task(workload=workload, system=ring(memory=m))).evaluation.time
            for m in (roomy, one)
        ]
        assert times[0] == times[1]

    def test_what_fits_neither_is_infeasible(self, ring):
        tiny = main_memory(**self.GIVEN | {"second_capacity": 1e5})
        with pytest.raises(InfeasibleError, match="main memory"):
            optimise(Task(workload=decode(MODEL, context=1000), system=ring(memory=tiny)))

    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"second_capacity": None}, "all three or none"),
            ({"capacity": None}, "all three or none"),
            ({"second_bandwidth": 200e9}, "at most that of the first memory"),
        ],
    )
    def test_half_a_second_memory_is_refused(self, changes, says):
        with pytest.raises(InputError, match=says):
            main_memory(**self.GIVEN | changes)


class TestSpeculation:
    # leviathan2023speculative, equation 1: (1 - a^(K+1)) / (1 - a)
    @pytest.mark.parametrize(
        ("window", "acceptance", "tokens"),
        [(4, 0.8, 3.3616), (1, 0.5, 1.5), (7, 0.0, 1.0), (7, 1.0, 8.0)],
    )
    def test_expected_tokens_of_a_sequence(self, window, acceptance, tokens):
        assert expected_tokens(window, acceptance) == pytest.approx(tokens)

    def test_a_tree_is_accepted_further(self):
        assert expected_tokens(2, 0.5, 2) == pytest.approx(1 + 0.75 + 0.75**2)

    def test_a_tree_doubles_at_every_level(self):
        assert drafted_tokens(3, 2) == (1, 2, 4, 8)

    @pytest.mark.slow
    def test_a_step_drafts_level_by_level_and_checks_at_once(self, ring):
        system = ring()
        found = speculate(DRAFT, MODEL, system, context=100, window=2, acceptance=0.5, branches=2)

        def time(model, tokens):
            job = Job(model=model, kind="decode", context=100, sequence=tokens)
            return optimise(job, system).evaluation.time

        assert found.draft_time == pytest.approx(time(DRAFT, 1) + time(DRAFT, 2))
        assert found.check_time == pytest.approx(time(MODEL, 7))
        assert found.plain_time == pytest.approx(time(MODEL, 1))
        assert found.rate == pytest.approx(found.tokens / (found.draft_time + found.check_time))

    def test_more_acceptance_is_never_slower(self, ring):
        rates = [
            speculate(DRAFT, MODEL, ring(), context=100, window=3, acceptance=a).rate
            for a in (0.0, 0.9, 1.0)
        ]
        assert rates == sorted(rates)

    @pytest.mark.parametrize(
        ("window", "acceptance", "branches", "says"),
        [
            (0, 0.5, 1, "window: got 0"),
            (4, 1.1, 1, "acceptance: got 1.1; allowed: 0 to 1"),
            (4, -0.1, 1, "acceptance: got -0.1; allowed: 0 to 1"),
            (4, math.nan, 1, "acceptance: got nan; allowed: 0 to 1"),
            (4, "0.5", 1, "acceptance: got '0.5'; allowed: 0 to 1"),
            (4, 0.5, 0, "branches: got 0"),
            (30, 0.5, 2, "window: got 30; allowed: 2.window at most"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, window, acceptance, branches, says):
        with pytest.raises(InputError, match=says):
            expected_tokens(window, acceptance, branches)
