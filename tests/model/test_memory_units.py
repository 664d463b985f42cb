"""Cores and memory units dealt together, against every deal tried."""

from __future__ import annotations

import itertools
import math
from functools import partial
from types import SimpleNamespace

import pytest

from crosstack import Constraints, Task, evaluate, optimise
from crosstack.errors import InfeasibleError, InputError
from crosstack.machine.chip import flat_chip
from crosstack.mapping.mapping import Status
from crosstack.model.flows import Flow
from crosstack.model.memory_units import assign_memory_units, units_for
from crosstack.model.partition import ChipLoad
from crosstack.published.dfmodel.graphs.dlrm import dlrm

LANES, STAGES, UNIT = 2, 2, 16.0
SHAPES = ((12, 3, 8, True), (10, 1, 4, False), (6, 5, 6, True))
FLOWS = (
    Flow(0, ((1, 2),), 20.0, 20.0, 0b010),
    Flow(1, ((2, 2),), 9.0, 9.0, 0b100),
    Flow(2, ((3, 2),), 40.0, 40.0, 0b1000),
)


def a_load(n_cores: int, n_units: int) -> SimpleNamespace:
    load = SimpleNamespace(
        unit=UNIT, flows=FLOWS, flows_of=((0,), (0, 1), (1, 2)), stream_depth=2,
        sram=(50.0, 0.0, 10.0), sram_capacity=n_units * UNIT, staircases=(), shapes=SHAPES,
        lanes=LANES, stages=STAGES, n_cores=n_cores, cycle_time=(1.0, 2.0, 1.5), compute=(),
    )  # fmt: skip
    load.cycles = partial(ChipLoad.cycles, load)
    return load


def every_deal(n_cores: int, n_units: int) -> float:
    """Return the least time of all deals, from the rules as they are written."""
    best = math.inf
    sides = range(1, n_cores + 1)
    fixed = math.ceil(50 / UNIT) + math.ceil(10 / UNIT)
    made = (2 * 20.0, 2 * 9.0, 2 * 40.0)
    for deal in itertools.product(itertools.product(sides, sides), repeat=3):
        if sum(a * b for a, b in deal) > n_cores or deal[1][1] != 1:
            continue
        units, time = fixed, 0.0
        rows = zip(SHAPES, deal, made, (1.0, 2.0, 1.5), strict=True)
        for (m, k, n, systolic), (a, b), size, cycle in rows:
            rounds = math.ceil(m / (a * LANES))
            cycles = rounds * math.ceil(n / (b * STAGES)) * k if systolic else rounds * n
            time = max(time, cycles * cycle)
            rate = math.ceil(a * b * STAGES / k) if systolic else a
            units += max(math.ceil(size / UNIT), a, rate)
        if units <= n_units:
            best = min(best, time)
    return best


@pytest.mark.parametrize("n_cores", [3, 5, 8, 10])
@pytest.mark.parametrize("n_units", [14, 15, 16, 18, 40])
def test_no_deal_is_better(n_cores, n_units):
    time, dealt, used, fits = assign_memory_units(a_load(n_cores, n_units), 0b111)
    best = every_deal(n_cores, n_units)
    assert (fits, time) == (math.isfinite(best), best)
    if fits:
        assert sum(a * b for _, a, b in dealt) <= n_cores
        again = assign_memory_units(
            a_load(n_cores, n_units), 0b111, {i: (a, b) for i, a, b in dealt}
        )
        assert again == (time, dealt, used, True)


@pytest.mark.parametrize(("size", "units"), [(0.0, 0), (1.0, 1), (16.0, 1), (16.1, 2)])
def test_a_tensor_takes_whole_units(size, units):
    assert units_for(size, 16.0) == units


@pytest.fixture(scope="module")
def task(a_chip, a_system):
    """Return a chain of four perceptron layers on chips whose memory comes in units."""
    workload = dlrm(
        width=512, n_bottom=2, n_top=2, n_tables=8, rows=1000, embedding_size=16, samples=64,
        global_batch_size=8, training=False,
    )  # fmt: skip

    def build(n_units: int) -> Task:
        chip = a_chip(n_cores=64, memory_units=n_units, memory_unit_capacity=65536.0)
        return Task(workload=workload, system=a_system(chip=chip))

    return build


def test_the_proof_and_the_evaluation_agree(task):
    answer = optimise(task(48), rules="dfmodel-e4")
    assert answer.certificate.status is Status.OPTIMAL
    found = evaluate(answer.task, answer.mapping, rules="dfmodel-e4")
    assert found.time == pytest.approx(answer.certificate.objective, rel=1e-12)
    assert all(p.sram_used <= 48 * 65536 for p in found.partitions)


def test_fewer_units_are_never_faster(task):
    times = [optimise(task(n), rules="dfmodel-e4").evaluation.time for n in (24, 32, 48, 96, 960)]
    assert times == sorted(times, reverse=True)
    assert times[0] > times[-1]


def test_too_few_units_are_infeasible(task):
    with pytest.raises(InfeasibleError):
        optimise(task(4), rules="dfmodel-e4", constraints=Constraints(kernel_by_kernel=True))


@pytest.mark.parametrize("given", [{"memory_units": 4}, {"memory_unit_capacity": 4.0}])
def test_units_and_their_size_come_together(given):
    with pytest.raises(InputError, match="memory_unit"):
        flat_chip(n_cores=1, lanes=1, stages=1, frequency=1.0, sram_capacity=1.0, **given)
