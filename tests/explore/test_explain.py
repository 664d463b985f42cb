from __future__ import annotations

from dataclasses import replace

import pytest

import crosstack
from crosstack.errors import InputError
from crosstack.evaluate.again import Limits, search_again
from crosstack.evaluate.plan import given_plan
from crosstack.explore.changed_machines import ChangedMachines
from crosstack.explore.explain import explain
from crosstack.explore.resources import resources_of
from crosstack.io.library.machines import system_on
from crosstack.machine.memory import main_memory
from crosstack.machine.system import Dimension, DimensionKind, Parallelism, Prices, System
from crosstack.model.rules import rules_named
from crosstack.published.dfmodel.graphs.llm import llm
from crosstack.report.explain_text import explanation_data, explanation_svg, findings
from crosstack.workload.architectures import Transformer, graphs
from crosstack.workload.graph_workload import workload_of
from crosstack.workload.transformer_training import Recompute, Schedule, Zero

LIGHT = Dimension(
    kind=DimensionKind.RING, bandwidth=1e15, size=4, parallelism=Parallelism.TENSOR, latency=1e-9
)


@pytest.fixture(scope="module")
def task():
    """Return a small model on four chips whose memory and network are never in the way."""
    chip = crosstack.flat_chip(
        n_cores=64,
        lanes=8,
        stages=4,
        frequency=1e9,
        sram_capacity=1e9,
        utilization=0.5,
        price=100.0,
    )
    system = System(
        chip=replace(chip, memories=main_memory(bandwidth=1e15, capacity=1e12)),
        network=(LIGHT,),
        n_chips=4,
        prices=Prices(link=0.0, switch=0.0, memory=1e-15),
    )
    workload = llm(
        hidden=256, n_heads=4, head_size=64, sequence_length=128, n_layers=2,
        global_batch_size=4, training=False,
    )  # fmt: skip
    given = crosstack.Constraints(microbatch_size=1, n_tiles=1)
    return crosstack.Task(workload=workload, system=system, constraints=given)


@pytest.fixture(scope="module")
def found(task):
    return explain(task)


def by_name(explanation):
    return {e.resource.name: e for e in explanation.effects}


def test_a_compute_bound_task_follows_its_clock_alone(found):
    effects = by_name(found)
    assert found.effects[0].resource.name == "clock"
    assert effects["clock"].elasticity == pytest.approx(-1, abs=1e-3)
    assert effects["clock"].one_sided[1] == pytest.approx(1 / 1.1 - 1, abs=1e-3)
    assert abs(effects["memory bandwidth"].elasticity) < 1e-3


def test_the_price_is_shared_out_over_what_is_paid_for(found):
    prices = {e.resource.name: e.price_elasticity for e in found.effects}
    total = prices["price of a chip"] + prices["price of memory"]
    assert total == pytest.approx(1, abs=1e-2)  # links and switches cost nothing here
    assert prices["memory bandwidth"] == pytest.approx(prices["price of memory"], rel=1e-6)
    assert prices["price of memory"] > 0.001


def test_a_starved_memory_is_what_binds(task):
    slow = replace(
        task.system,
        chip=task.system.chip.with_memory(bandwidth=1e9),
    )
    found = explain(replace(task, system=slow))
    assert found.effects[0].resource.name == "memory bandwidth"
    assert found.effects[0].elasticity == pytest.approx(-1, abs=0.05)
    assert next(iter(found.bound_by)) == "memory"


def test_a_kept_mapping_is_what_a_search_finds(task, found):
    """Where a worse machine is not searched, its optimum is the one that was kept."""
    for e in found.effects:
        if e.time_less is None or "USD" in e.resource.unit or e.resource.cost:
            continue
        system = e.resource.scaled(task.system, e.less)
        fresh = crosstack.optimise(replace(task, system=system))
        assert e.time_less == pytest.approx(fresh.evaluation.time, rel=1e-9)


def test_better_is_never_slower_and_worse_never_faster(found):
    for e in found.effects:
        assert e.proved
        less, more = e.one_sided
        better, worse = (less, more) if e.resource.cost else (more, less)
        assert better is None or better <= 1e-9
        assert worse is None or worse >= -1e-9


def test_a_capacity_that_is_just_enough_does_not_shrink(task):
    # In one partition nothing but the weights is in main memory, whatever the sharding.
    task = replace(task, constraints=replace(task.constraints, max_partitions=1))
    answer = crosstack.optimise(task)
    tight = task.system.chip.with_memory(capacity=answer.evaluation.memory_used * 1.001).memories
    found = explain(
        replace(task, system=replace(task.system, chip=replace(task.system.chip, memories=tight)))
    )
    effect = by_name(found)["memory capacity"]
    assert effect.one_sided[0] is None or effect.one_sided[0] > 0
    assert effect.reason or effect.one_sided[0] is not None


def test_every_resource_is_a_number_of_the_machine(task):
    for resource in resources_of(task.system):
        changed = resource.scaled(task.system, resource.value * 2 or 1e-6)
        again = {r.path: r.value for r in resources_of(changed)}
        assert again.pop(resource.path) == (resource.value * 2 or 1e-6)
        before = {r.path: r.value for r in resources_of(task.system)}
        before.pop(resource.path)
        assert again == before


def test_findings_name_what_moves_and_what_does_not(found):
    said = " ".join(findings(found))
    assert "Clock: 10 % more is 9.09 % faster" in said
    assert "changes nothing" in said
    data = explanation_data(found)
    assert data["resources"][0]["path"] == "system.chip.frequency"
    svg = explanation_svg(found)
    assert svg.count("<g data-less=") == sum(
        "USD" not in e.resource.unit and e.resource.value > 0 for e in found.effects
    )


def test_a_price_changes_nothing_but_the_bill(task, found):
    """What is said of a machine with other prices is what pricing the mapping there says."""
    plan = found.answer
    for effect in (e for e in found.effects if e.resource.priced):
        system = effect.resource.scaled(task.system, effect.more)
        again = given_plan(replace(task, system=system), plan.mapping, plan.rules).evaluation
        assert effect.time_more == plan.evaluation.time == again.time
        assert effect.price_more == again.price.total


@pytest.mark.parametrize("step", [0, 1, -0.5, 2])
def test_a_step_out_of_range_is_refused(task, step):
    with pytest.raises(InputError, match="step"):
        explain(task, step=step)


@pytest.fixture(scope="module")
def unproved(task):
    """Return what is explained of a search that stopped early, on a machine nothing hides on."""
    slow = task.system.chip.with_memory(bandwidth=2e9, capacity=1e10).memories
    links = (replace(LIGHT, bandwidth=1e9, parallelism=None), replace(LIGHT, parallelism=None))
    system = replace(
        task.system, chip=replace(task.system.chip, memories=slow), network=links, n_chips=16
    )
    free = replace(task, system=system, constraints=crosstack.Constraints())
    answer = crosstack.optimise(free, work_limit=1.0)
    assert answer.certificate.status is crosstack.Status.LIMIT
    return explain(free, answer=answer, work_limit=1e3)


def test_without_a_proof_the_figures_are_of_the_mapping(unproved):
    answer = unproved.answer
    for e in unproved.effects:
        if "USD" in e.resource.unit:
            continue
        assert e.of_mapping
        system = e.resource.scaled(answer.task.system, e.more)
        kept = crosstack.evaluate(replace(answer.task, system=system), answer.mapping)
        assert e.time_more == kept.time
    assert any("Every figure is of this mapping" in said for said in findings(unproved))
    assert "the mapping kept" in explanation_svg(unproved)


def test_without_a_proof_too_better_is_never_slower(unproved):
    for e in unproved.effects:
        less, more = e.one_sided
        better, worse = (less, more) if e.resource.cost else (more, less)
        assert better is None or better <= 1e-12
        assert worse is None or worse >= -1e-12


def test_a_search_without_an_end_on_a_changed_machine_leaves_the_mapping(task, monkeypatch):
    answer = crosstack.optimise(task)

    def stopped(*asked, **how):
        found = search_again(*asked, **how)
        time = found.plan.evaluation.time
        limited = {"status": crosstack.Status.LIMIT, "bound": 0.9 * time, "objective": time}
        certificate = replace(found.plan.certificate, **limited)
        plan = replace(found.plan, certificate=certificate)
        return replace(found, plan=plan, bound=0.9 * time)

    monkeypatch.setattr("crosstack.explore.changed_machines.search_again", stopped)
    found = explain(task, answer=answer)
    clock = by_name(found)["clock"]
    assert clock.of_mapping
    assert not clock.proved
    assert clock.one_sided[1] == pytest.approx(1 / 1.1 - 1, abs=1e-3)
    least, most = clock.ranges[1]
    assert least == pytest.approx(0.9 / 1.1 - 1, abs=1e-3)
    assert most == pytest.approx(1 / 1.1 - 1, abs=1e-3)


@pytest.fixture(scope="module")
def trained():
    """Return a training job with everything free, of many uses of the network."""
    model = Transformer(
        hidden=512, layers=2, heads=8, kv_heads=8, head_size=64, feed_forward=2048,
        vocabulary=1024, context=256,
    )  # fmt: skip
    graph = graphs.training(model, sequence=256, batch=16)
    return crosstack.Task(
        workload=workload_of(graph, block="layers", items="batch"),
        system=system_on("h100-dgx", chips=16),
    )


def test_any_number_of_processes_finds_the_same(trained):
    alone, together = (explain(trained, jobs=jobs) for jobs in (1, 3))
    assert alone.effects == together.effects
    assert any(e.bound_more < e.time_more for e in alone.effects)  # some are searched to a gap


def test_what_is_worse_is_answered_before_corners_are_known(trained):
    asked = [(r, r.value * s) for r in resources_of(trained.system) for s in (0.9, 1.1) if r.value]
    base = search_again(trained, rules_named("crosstack"), Limits())
    machines = ChangedMachines(base=base, rules=rules_named("crosstack"), limits=Limits(gap=0.02))
    behind, before = machines.in_turn(asked)
    assert {one for item in (*behind, *before) for one in item} == set(asked)
    assert [one[0].name for one in before[0]] == ["memory capacity"] * 2
    worse = [one for item in before[1:] for one in item if not one[0].priced]
    assert all((value < r.value) is not r.cost for r, value in worse)


def test_what_more_of_a_resource_is_worth_lies_within_its_range(task, found):
    for e in found.effects:
        for change, between in zip(e.one_sided, e.ranges, strict=True):
            assert (change is None) == (between is None)
            if between is not None:
                assert between == pytest.approx((change, change), abs=1e-9)


@pytest.mark.slow
def test_of_a_large_search_the_ranges_hold_the_best_of_each_machine(trained):
    """With many uses of the network, changed machines are searched to a gap alone."""
    given = {"recompute": Recompute.NONE, "zero": Zero.STATE, "kernel_by_kernel": True}
    constraints = crosstack.Constraints(**given, schedule=Schedule.ONE_F_ONE_B, interleave=1)
    large = replace(trained, constraints=constraints)
    found = by_name(explain(large))
    for name in ("clock", "bandwidth of dimension 1"):
        effect = found[name]
        best = crosstack.optimise(
            replace(large, system=effect.resource.scaled(large.system, effect.more))
        ).evaluation.time
        least, most = effect.ranges[1]
        assert least - 1e-9 <= best / effect.time - 1 <= most + 1e-9


def test_without_a_price_nothing_is_said_of_it(task):
    found = explain(replace(task, system=replace(task.system, prices=Prices())))
    data = explanation_data(found)
    assert (data["price_usd"], data["resources"][0]["price_elasticity"]) == (None, None)
