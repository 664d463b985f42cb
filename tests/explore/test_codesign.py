"""Claims about the front of throughput, price and power of machines of generated chips."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import crosstack
from crosstack.errors import InfeasibleError, InputError
from crosstack.explore.codesign import least_time, search_front
from crosstack.explore.machines import machines_at, never_slower
from crosstack.explore.pareto import pareto_rows
from crosstack.explore.pool import Processes
from crosstack.explore.question import question_in
from crosstack.explore.read_codesign import read_codesign
from crosstack.explore.resources import resources_of
from crosstack.explore.store import Store
from crosstack.explore.tables import pareto, within
from crosstack.machine.chip import Execution

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/codesign/llama3_decode.yaml"
SMALL = (
    "workload={prefill: {model: llama-68m, sequence: 64, batch: 8}}",
    "choices={node: [N7, N3], packages: [1, 2]}",
    "search={evaluations: 40}",
)


@pytest.fixture(scope="module")
def problem():
    return read_codesign(EXAMPLE, SMALL).problem


@pytest.fixture(scope="module")
def found(problem):
    return search_front(problem, evaluations=40)


FEW = 10


@pytest.fixture(scope="module")
def few():
    """Return a short search."""
    return short().run()


def short(*more, evaluations=FEW):
    """Return what is asked by a short search."""
    return read_codesign(EXAMPLE, (*SMALL[:2], f"search={{evaluations: {evaluations}}}", *more))


def drawn(problem, count=6):
    """Return some machines of every choice."""
    random = np.random.default_rng(3)
    made = []
    for choice in problem.choices:
        points = choice.space.space.draw(random, count)
        made += machines_at(choice, points, problem.prices, problem.chip_rules)
    return [machine for machine in made if not isinstance(machine, str)]


def scores(candidates):
    return np.array([(c.mapped.time, c.machine.price, c.machine.power) for c in candidates])


@pytest.mark.slow
def test_no_mapped_machine_beats_one_on_the_front(found):
    assert len(found.front) > 1
    every = scores(found.mapped)
    for own in scores(found.front):
        assert not ((every <= own).all(axis=1) & (every < own).any(axis=1)).any()


def test_the_front_is_what_mapping_every_candidate_finds(problem, found):
    """What was not mapped is mapped here, and is beaten as it was said to be."""
    skipped = [c for c in found.candidates if c.reason == "cannot be on the front"]
    assert len(skipped) == found.skipped > 0
    front = scores(found.front)
    for c in skipped:
        answer = crosstack.optimise(problem.workload, c.machine.system)
        own = np.array([answer.evaluation.time, c.machine.price, c.machine.power])
        assert (front <= own * (1 + 1e-9)).all(axis=1).any()


def test_a_member_is_mapped_again_to_the_same_time(problem, found):
    for c in found.front[:3]:
        answer = crosstack.optimise(problem.workload, c.machine.system)
        assert answer.evaluation.time == pytest.approx(c.mapped.time, rel=1e-12)
        assert answer.certificate.status == c.mapped.status == "optimal"
        assert answer.evaluation.price.total == pytest.approx(c.machine.price, rel=1e-12)
        assert answer.evaluation.power.total == pytest.approx(c.machine.power, rel=1e-12)


def test_no_mapping_beats_the_least_time(problem, found):
    for c in found.mapped:
        assert c.mapped.time >= least_time(problem.workload, c.machine.system, problem.rules) * (
            1 - 1e-12
        )


@pytest.mark.parametrize(
    "execution", [pytest.param(Execution.SPATIAL, marks=pytest.mark.slow), Execution.TEMPORAL]
)
def test_a_machine_with_no_less_of_anything_is_never_slower(problem, execution):
    for machine in drawn(problem, 1)[::3]:
        as_said = replace(machine.system.chip, execution=execution)
        system = replace(machine.system, chip=as_said)
        time = crosstack.optimise(problem.workload, system).evaluation.time
        chip = system.chip.with_compute(
            n_units=system.chip.compute.n_units + 3,
            n_multiprocessors=system.chip.compute.n_units + 3,
        )
        better = [replace(system, chip=chip)]
        better += [
            resource.scaled(system, resource.value * (0.7 if resource.cost else 1.3))
            for resource in resources_of(system)
        ]
        said = never_slower(system, better)
        # More units may cut a product in another way; more of the network changes no kernel.
        assert said.all() if execution is Execution.SPATIAL else said.any()
        for other in itertools.compress(better, said):
            answer = crosstack.optimise(problem.workload, other)
            assert answer.evaluation.time <= time * (1 + 1e-12)


def test_a_machine_with_less_of_something_bounds_nothing(problem):
    system = drawn(problem, 2)[-1].system
    worse = [
        resource.scaled(system, resource.value * (1.3 if resource.cost else 0.7))
        for resource in resources_of(system)
        if "USD" not in resource.unit and resource.value > 0
    ]
    assert len(worse) >= 5
    assert not never_slower(system, worse).any()


def test_a_price_is_dies_packages_memory_and_links(problem):
    prices = problem.prices
    for choice in problem.choices:
        (machine,) = machines_at(choice, choice.space.start[None], prices, problem.chip_rules)
        n = machine.system.n_chips
        assert machine.die_price == pytest.approx(choice.wafer.die_price(machine.chip_area))
        parts = n * (
            machine.die_price
            + prices.package
            + prices.memory * machine.system.chip.main_memory.capacity
        )
        if n == 1:
            assert machine.price == pytest.approx(parts, rel=1e-12)
        else:
            assert machine.price > parts


@pytest.mark.slow
def test_the_same_seed_finds_the_same_with_any_number_of_jobs(problem, few):
    again = search_front(problem, evaluations=FEW, executor=Processes(2))
    assert [c.point for c in again.candidates] == [c.point for c in few.candidates]
    assert [c.mapped for c in again.candidates] == [c.mapped for c in few.candidates]
    other = search_front(problem, evaluations=FEW, seed=1)
    assert [c.point for c in other.candidates] != [c.point for c in few.candidates]


def test_a_search_that_was_stopped_goes_on_from_its_store(few, tmp_path):
    def stop(progress):
        if progress.counts["mapped"] >= 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        short().run(store=tmp_path / "store", progress=stop)
    kept = Store.open(tmp_path / "store").count()
    assert 4 <= kept < FEW
    again = short().run(store=tmp_path / "store", resume=True)
    assert again.reused == kept
    assert [c.mapped for c in again.candidates] == [c.mapped for c in few.candidates]
    table = Store.open(tmp_path / "store").table()
    asked = question_in(Store.open(tmp_path / "store"))
    front = pareto(table, asked.objectives, within(table, asked.bounds))
    times = [table.column("time")[i].as_py() for i in front.tolist()]
    assert sorted(times) == [c.mapped.time for c in few.front]


def test_another_problem_takes_nothing_from_a_store(tmp_path):
    short(evaluations=3).run(store=tmp_path / "store")
    dear = short("prices.memory=30 USD/GB", evaluations=3)
    assert dear.run(store=tmp_path / "store", resume=True).reused == 0
    with pytest.raises(InputError, match="holds"):
        short().run(store=tmp_path / "store")
    with pytest.raises(InputError, match="other columns"):
        short("choices={node: [N7]}").run(store=tmp_path / "store", resume=True)


def test_limits_hold_on_the_front(problem, found):
    cheap = min(c.machine.price for c in found.front)
    limits = {"price": 1.2 * cheap, "power": 400.0}
    bound = search_front(replace(problem, limits=limits), evaluations=16)
    assert all(c.machine.price <= 1.2 * cheap for c in bound.front)
    assert all(c.machine.power <= 400 for c in bound.front)
    with pytest.raises(InfeasibleError, match="price above its limit"):
        search_front(replace(problem, limits={"price": 1.0}), evaluations=8)


def test_a_wafer_without_defects_gives_cheaper_dies(problem):
    other = read_codesign(EXAMPLE, (*SMALL, "prices.wafer={defect_density: 0}")).problem
    for one, two in zip(problem.choices, other.choices, strict=True):
        assert two.wafer.die_price(400e-6) < one.wafer.die_price(400e-6)


def test_rows_of_a_front():
    points = np.array([[1.0, 3.0], [2.0, 2.0], [2.0, 2.0], [3.0, 2.5], [4.0, 1.0]])
    assert pareto_rows(points).tolist() == [0, 1, 2, 4]


@pytest.mark.slow
def test_the_example_has_a_front_that_is_proved():
    found = read_codesign(EXAMPLE, ("search.evaluations=240",)).run(executor=Processes(2))
    assert len(found.front) > 40
    assert {c.mapped.status for c in found.mapped} == {"optimal"}
    assert found.skipped > 0  # of temporal chips, few have no less of anything
    nodes = {dict(found.problem.choices[c.choice].labels)["node"] for c in found.front}
    assert nodes == {"N7", "N5", "N3"}
    assert found.front[0].machine.system.n_chips >= 8
    assert min(c.machine.price for c in found.front) < 2000
