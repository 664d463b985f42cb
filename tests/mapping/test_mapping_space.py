from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crosstack.errors import InputError
from crosstack.machine.memory import main_memory
from crosstack.mapping.mapping import Constraints, Task
from crosstack.mapping.mapping_space import mapping_space
from crosstack.published.dfmodel.runs import published_task
from crosstack.workload.workload import Workload


@pytest.fixture
def a_task(a_graph, a_system):
    def build(n_kernels, edges, **constraints):
        graph = a_graph(n_kernels, edges)
        workload = Workload(graph=graph, n_layers=1, global_batch_size=4, sequence_length=4)
        return Task(workload=workload, system=a_system(), constraints=Constraints(**constraints))

    return build


def factor(space, decision):
    return next(f for f in space.factors if f.decision == decision)


@settings(max_examples=30)
@given(data=st.data())
def test_partitions_in_order_are_those_that_brute_force_lists(a_graph, a_system, data):
    n, most = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 4))
    pairs = list(itertools.combinations(range(n), 2))
    edges = data.draw(st.lists(st.sampled_from(pairs), unique=True, max_size=6)) if pairs else []
    pin = data.draw(st.none() | st.integers(0, most - 1))
    pins = () if pin is None else (("kernel_0", pin),)
    limits = Constraints(max_partitions=most, partitions=pins)
    workload = Workload(graph=a_graph(n, edges), n_layers=1, global_batch_size=4, sequence_length=4)
    space = mapping_space(Task(workload=workload, system=a_system(), constraints=limits))
    # More partitions than kernels are empty ones; a pin may need some of them.
    count = min(most, max(n, 0 if pin is None else pin + 1))
    listed = [
        numbers
        for numbers in itertools.product(range(count), repeat=n)
        if all(numbers[a] <= numbers[b] for a, b in edges) and (pin is None or numbers[0] == pin)
    ]
    assert 10**space.ordered.digits == pytest.approx(len(listed), rel=1e-9)


def test_a_chain_of_three_in_two_partitions_has_four_sequences(a_task):
    space = mapping_space(a_task(3, [(0, 1), (1, 2)], max_partitions=2))
    assert 10 ** factor(space, "partitions").digits == pytest.approx(8)
    assert 10**space.ordered.digits == pytest.approx(4)


def test_cores_are_pairs_that_the_chip_has(a_task, a_chip, a_system):
    task = a_task(2, [(0, 1)])
    chip = replace(a_chip(n_cores=6), memories=main_memory(bandwidth=100e9))
    task = replace(task, system=replace(task.system, chip=chip))
    # Two elementwise kernels: 6 numbers of lanes each.
    assert 10 ** factor(mapping_space(task), "cores").digits == pytest.approx(36)


def test_a_chip_with_its_utilization_given_leaves_no_choice_of_cores(a_task, a_chip):
    task = a_task(2, [(0, 1)])
    task = replace(
        task, system=replace(task.system, chip=task.system.chip.with_compute(utilization=0.9))
    )
    assert factor(mapping_space(task), "cores").digits == 0


def test_what_is_given_is_no_choice(a_task):
    free = mapping_space(a_task(4, [(0, 1), (1, 2), (2, 3)]))
    fixed = mapping_space(
        a_task(4, [(0, 1), (1, 2), (2, 3)], kernel_by_kernel=True, n_tiles=1, microbatch_size=1)
    )
    assert fixed.digits < free.digits
    assert [factor(fixed, name).digits for name in ("tiles", "partitions")] == [0, 0]


def test_an_unknown_pin_names_the_nearest_kernel(a_task):
    with pytest.raises(InputError, match="kernel_0"):
        mapping_space(a_task(2, [(0, 1)], partitions=(("kernel0", 0),)))


def test_the_free_dimensions_of_a_thousand_chips_count_their_uses():
    task = published_task("sn30")
    free = tuple(replace(d, size=None, parallelism=None) for d in task.system.network)
    open_task = replace(task, system=replace(task.system, network=free))
    # 11 splits of 2^10 over two dimensions; 3 uses each, or none where a dimension has one chip.
    assert factor(mapping_space(task), "network").digits == 0
    assert factor(mapping_space(open_task), "network").digits > 1
