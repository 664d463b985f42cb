from __future__ import annotations

from dataclasses import replace

import pytest

from crosstack import Constraints, Task, evaluate, optimise
from crosstack.errors import InputError
from crosstack.machine.chip import Overlap
from crosstack.machine.memory import main_memory
from crosstack.machine.system import Dimension, DimensionKind, Parallelism, Prices
from crosstack.mapping.mapping import Status
from crosstack.model.mesh_plan import make_plan
from crosstack.model.rules import rules_named
from crosstack.published.dfmodel.graphs.dlrm import dlrm
from crosstack.published.dfmodel.graphs.fft import fft
from crosstack.published.dfmodel.graphs.hpl import hpl
from crosstack.published.dfmodel.graphs.llm import llm
from crosstack.workload.kernels import Axis, Collective

E2, E3B, E5 = rules_named("dfmodel-e2"), rules_named("dfmodel-e3b"), rules_named("dfmodel-e5")
OURS = rules_named("crosstack")
BATCH = dlrm(
    width=64, n_bottom=1, n_top=1, n_tables=8, rows=1000, embedding_size=16, samples=4,
    global_batch_size=32,
)  # fmt: skip
GRID, COLUMNS = hpl(size=256, block=64), fft(length=2**16)
ONE_BY_ONE = Constraints(kernel_by_kernel=True, microbatch_size=1)


@pytest.fixture(scope="module")
def torus(a_chip, a_system):
    """Return 4 x 2 chips in rings of 10 and 20 GB/s."""
    network = tuple(
        Dimension(
            kind=DimensionKind.RING, size=size, bandwidth=speed, latency=1e-6, link_power=1e-9
        )
        for size, speed in ((4, 10e9), (2, 20e9))
    )
    chip = a_chip(utilization=0.5, overlap=Overlap.NONE, price=100.0, power=10.0)
    prices = Prices(link=2e-9, switch=1e-9, memory=1e-9, switch_power=1e-9, memory_power=1e-9)
    return a_system(network=network, chip=chip, prices=prices)


@pytest.mark.parametrize("rules", [E2, E3B, E5, OURS], ids=lambda rules: rules.name)
@pytest.mark.parametrize("workload", [BATCH, GRID, COLUMNS], ids=["batch", "grid", "columns"])
def test_copies_divide_the_time_and_multiply_the_bills(torus, workload, rules):
    """``dfmodel_code``: ``num_copy``; the bills of links and switches, too."""
    one, four = (
        optimise(workload, replace(torus, copies=n), constraints=ONE_BY_ONE, rules=rules)
        for n in (1, 4)
    )
    assert four.certificate.status is Status.OPTIMAL
    assert four.certificate.objective == four.evaluation.time
    assert four.evaluation.time == pytest.approx(one.evaluation.time / 4, rel=1e-15)
    assert four.evaluation.throughput == pytest.approx(4 * one.evaluation.throughput, rel=1e-15)
    assert four.evaluation.utilization == pytest.approx(one.evaluation.utilization, rel=1e-15)
    assert four.evaluation.latency == one.evaluation.latency
    for bill in ("price", "power"):
        total = getattr(four.evaluation, bill).total
        assert total == pytest.approx(4 * getattr(one.evaluation, bill).total, rel=1e-15)


def test_copies_are_for_workloads_that_bring_their_placement(torus):
    transformer = llm(
        hidden=8, sequence_length=4, n_heads=2, head_size=4, n_layers=2, global_batch_size=8
    )
    with pytest.raises(InputError, match=r"system.copies: got 2; allowed: 1; use data parall"):
        optimise(transformer, replace(torus, copies=2))
    with pytest.raises(InputError, match="copies: got 0"):
        replace(torus, copies=0)


def plan(workload, system, rules, use=Parallelism.TENSOR):
    return make_plan(workload, system, (4, 2), (use,) * 2, 1, rules)


def large(found, collective):
    """Return what a collective takes for large messages."""
    return found.collectives[collective].members[-1]


class TestSplit:
    def test_a_grid_splits_m_over_its_rows_and_k_over_its_columns(self, torus):
        assert plan(GRID, torus, E2).split == (4, 2, 1)

    def test_columns_are_split_over_all_chips(self, torus):
        assert plan(COLUMNS, torus, E2).split == (1, 1, 8)

    def test_a_batch_of_its_own_splits_nothing_and_is_data_parallel(self, torus):
        found = plan(BATCH, torus, E2, Parallelism.DATA)
        assert (found.split, found.data, found.n_microbatches) == ((1, 1, 1), 8, 4)

    def test_a_batch_that_does_not_divide_has_no_plan(self, torus):
        odd = replace(BATCH, global_batch_size=30)
        assert plan(odd, torus, E2, Parallelism.DATA) is None

    def test_each_chip_does_its_share_of_the_work(self, torus):
        answer = optimise(
            Task(workload=GRID, system=torus, constraints=ONE_BY_ONE), rules="crosstack"
        )
        assert sum(k.work for k in answer.evaluation.kernels) == GRID.work / 8


class TestCommunication:
    def test_all_pairs_of_a_torus(self, torus):
        # 8 x 7 / 2 pairs, cut of 2 x 4 links of 10 GB/s or 2 x 2 of 20 GB/s, 1/8 of a batch's bytes
        line = large(plan(BATCH, torus, E3B, Parallelism.DATA), Collective.ALL_TO_ALL)
        assert line.per_byte == pytest.approx(28 / 80e9 / 8)

    def test_a_whole_tensor_is_shared_by_all_pairs(self, torus):
        whole = large(plan(COLUMNS, torus, E3B), Collective.ALL_TO_ALL).per_byte
        found = plan(BATCH, torus, E3B, Parallelism.DATA)
        each = large(found, Collective.ALL_TO_ALL).per_byte
        assert each == pytest.approx(8 * whole)

    def test_each_chip_sends_its_part_of_every_ring_at_once(self, torus):
        # of 1/8 each: ring of 4, 4^2/8 pair messages of 1/4; ring of 2, half of a chip's both ways
        line = large(plan(COLUMNS, torus, OURS), Collective.ALL_TO_ALL)
        first = (4**2 / 8) * (4 / 8) / 4**2 / 10e9
        second = (2**2 // 4 / 2) * (2 / 8) / 2**2 / 20e9
        assert line.per_byte == pytest.approx(max(first, second))
        assert line.fixed == pytest.approx((2 + 1) * 1e-6)

    @pytest.mark.parametrize(("rules", "links"), [(E2, 1), (OURS, 2)])
    def test_a_grid_broadcasts_a_row_s_share_along_the_columns(self, torus, rules, links):
        found = plan(GRID, torus, rules)
        spread = large(found, Collective.BROADCAST).per_byte
        assert spread == pytest.approx(1 / 4 / (links * 20e9))
        assert large(found, Collective.POINT_TO_POINT).per_byte == pytest.approx(1 / 2 / 10e9)

    def test_a_single_column_needs_no_broadcast(self, torus):
        tall = replace(
            torus, network=(replace(torus.network[0], size=8), replace(torus.network[1], size=1))
        )
        ours, theirs = (
            make_plan(GRID, tall, (8, 1), (Parallelism.TENSOR,) * 2, 1, rules)
            for rules in (OURS, E2)
        )
        assert large(ours, Collective.BROADCAST).per_byte == 0
        assert large(theirs, Collective.BROADCAST).per_byte > 0  # it asks the other side

    def test_broadcast_and_rows_run_side_by_side(self, torus):
        answer = optimise(Task(workload=GRID, system=torus, constraints=ONE_BY_ONE), rules=E2)
        first = answer.evaluation.partitions[0]
        panel = 256 * 64 * 8
        assert first.network_time == pytest.approx(max(panel / 4 / 20e9, panel / 2 / 10e9))

    @pytest.mark.parametrize(
        ("rules", "seconds_per_byte"),
        # ours uses both links of every ring
        [(E2, 2e-9), (E3B, 1e-9), (OURS, 3 / 4 / 10e9 + 1 / 4 / 2 / 20e9)],
    )
    def test_the_gradient_all_reduce(self, torus, rules, seconds_per_byte):
        found = plan(BATCH, torus, rules, Parallelism.DATA).periodic
        assert found.members[-1].per_byte == pytest.approx(seconds_per_byte)


class TestMapping:
    @pytest.mark.parametrize("workload", [BATCH, GRID, COLUMNS], ids=lambda w: w.name)
    @pytest.mark.parametrize("rules", [E2, E3B, E5, OURS], ids=lambda r: r.name)
    def test_the_proof_and_the_evaluation_agree(self, torus, workload, rules):
        answer = optimise(Task(workload=workload, system=torus), rules=rules)
        assert answer.certificate.status is Status.OPTIMAL
        found = evaluate(answer.task, answer.mapping, rules=rules)
        assert found.time == pytest.approx(answer.certificate.objective, rel=1e-9)

    @pytest.mark.parametrize("workload", [BATCH, GRID, COLUMNS], ids=lambda w: w.name)
    @pytest.mark.parametrize("rules", [E2, E3B, E5, OURS], ids=lambda r: r.name)
    def test_faster_machines_are_never_slower(self, torus, workload, rules):
        def time(system):
            return optimise(Task(workload=workload, system=system), rules=rules).evaluation.time

        links = tuple(replace(d, bandwidth=2 * d.bandwidth) for d in torus.network)
        memory = torus.chip.with_memory(bandwidth=2 * torus.chip.main_memory.bandwidth).memories
        chip = torus.chip.with_compute(frequency=2 * torus.chip.compute.frequency)
        faster = [
            replace(torus, network=links),
            replace(torus, chip=replace(torus.chip, memories=memory)),
            replace(torus, chip=chip),
        ]
        base = time(torus)
        assert all(time(system) <= base for system in faster)
        assert time(replace(torus, chip=replace(chip, memories=memory), network=links)) < base

    def test_nothing_is_sharded(self, torus):
        mapping = optimise(Task(workload=GRID, system=torus), rules=OURS).mapping
        assert set(mapping.sharding) == {Axis.NONE}
        assert set(mapping.parallelism) == {Parallelism.TENSOR}
        shifted = replace(mapping, sharding=(Axis.M,) * len(mapping.sharding))
        with pytest.raises(InputError, match="sharding: got m .* allowed: none"):
            evaluate(GRID, torus, shifted)

    def test_another_use_of_the_network_is_refused(self, torus):
        network = tuple(replace(d, parallelism=Parallelism.PIPELINE) for d in torus.network)
        task = Task(workload=BATCH, system=replace(torus, network=network))
        says = r"network\[0\].parallelism: got pipeline; allowed for placement batch: data"
        with pytest.raises(InputError, match=says):
            optimise(task)

    def test_tables_take_main_memory(self, torus):
        small = replace(
            torus, chip=replace(torus.chip, memories=main_memory(bandwidth=100e9, capacity=1e9))
        )
        used = optimise(Task(workload=BATCH, system=small), rules=E2).evaluation.memory_used
        without = replace(BATCH, data_size=0.0)
        rest = optimise(Task(workload=without, system=small), rules=E2).evaluation.memory_used
        assert used - rest == pytest.approx(8 * 1000 * 16 * 2 / 8)

    def test_a_factorisation_needs_no_sram_and_perceptrons_do(self, torus):
        tiny = replace(torus, chip=torus.chip.with_level(0, capacity=100.0))
        assert optimise(Task(workload=GRID, system=tiny)).evaluation.partitions[0].sram_used == 0
        from crosstack.errors import InfeasibleError

        with pytest.raises(InfeasibleError, match="SRAM"):
            optimise(Task(workload=BATCH, system=tiny), rules=E3B)
        optimise(Task(workload=BATCH, system=tiny), rules=E5)
