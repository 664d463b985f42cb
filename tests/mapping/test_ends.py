"""What runs before and behind the layers: by hand, by events, and the best of all mappings."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace

import pytest
from builders.every_plan import every_plan
from builders.trained_layers import LAYER, rings

import crosstack
from crosstack.errors import InfeasibleError, InputError
from crosstack.evaluate.saved_plan import saved_plan
from crosstack.evaluate.time import evaluate
from crosstack.machine.chip import Overlap
from crosstack.machine.system import Parallelism, Prices, System
from crosstack.mapping.mapping import Constraints, EndMapping, Mapping
from crosstack.mapping.parallelism import workload_uses
from crosstack.mapping.search import FASTEST, search, search_state
from crosstack.model.choice_index import choice_index
from crosstack.model.objective import Objective
from crosstack.model.rules import rules_named
from crosstack.model.schedule.allowed import interleavings, schedules
from crosstack.workload.kernels import Axis
from crosstack.workload.transformer_training import Recompute, Zero
from crosstack.workload.workload import End, Workload

RULES = rules_named("crosstack")
HEAD = End(name="head", graph=LAYER, count=2)
TABLE = End(name="table", graph=LAYER, table_size=512.0)
WORKLOAD = Workload(
    graph=LAYER, n_layers=4, global_batch_size=8, boundary_size=64.0, before=(TABLE,),
    after=(HEAD,),
)  # fmt: skip


def shardings(graph) -> list[tuple[Axis, ...]]:
    index = choice_index(graph, WORKLOAD.placement)
    each = [[Axis(name) for name in index.axes(i)] for i in range(graph.n)]
    return list(itertools.product(*each))


ALONE = tuple(LAYER.order.index(i) for i in range(LAYER.n))
WAYS = shardings(LAYER)


def every_use(system: System):
    constraints = Constraints(kernel_by_kernel=True)
    for use in workload_uses(WORKLOAD, system, constraints, RULES):
        for microbatch in use.microbatches if use is not None else ():
            for plan in use.plans(microbatch, WORKLOAD, system, RULES):
                pieces = interleavings(plan, RULES)
                for again, count in itertools.product(Recompute, pieces):
                    yield use, microbatch, again, count
                assert schedules(plan, WORKLOAD.graph, RULES)


def mapped(use, microbatch, again, pieces, sharding, ends) -> Mapping:
    return Mapping(
        sizes=use.sizes, parallelism=use.parallelism, dimensions=use.dimensions,
        microbatch_size=microbatch, n_tiles=1, sharding=sharding, partitions=ALONE,
        recompute=again, interleave=pieces,
        ends=tuple(EndMapping(n_tiles=1, sharding=s, partitions=ALONE) for s in ends),
    )  # fmt: skip


def times(system: System, mappings):
    for mapping in mappings:
        try:
            yield evaluate(WORKLOAD, system, mapping, RULES).time
        except (InfeasibleError, InputError):
            yield math.inf


PINNED = (("function", Axis.M), ("function_back", Axis.M))


def best_of_all(system: System) -> float:
    """Return the least time of all mappings, of ends that are fastest by themselves. [s]"""
    best, known = math.inf, {}
    places = {LAYER.names.index(name): axis for name, axis in PINNED}
    kept = [way for way in WAYS if all(way[i] is axis for i, axis in places.items())]
    for use, microbatch, again, pieces in every_use(system):
        split = Parallelism.TENSOR in use.parallelism
        decided = (use, microbatch, again, pieces)
        if (use, microbatch) not in known:
            # Whatever the layers do, more time of an end is never faster.
            ways = WAYS if split else WAYS[:1]
            alone = [mapped(*decided, kept[0], (way, WAYS[0])) for way in ways]
            taken = [evaluate_end(system, one) for one in alone]
            known[use, microbatch] = ways[taken.index(min(taken))]
        ends = (known[use, microbatch],) * 2
        ways = kept if split else kept[:1]
        best = min(best, *times(system, (mapped(*decided, way, ends) for way in ways)), math.inf)
    return best


def evaluate_end(system: System, mapping: Mapping) -> float:
    try:
        return evaluate(WORKLOAD, system, mapping, RULES).ends[0].time
    except InputError:
        return math.inf


@pytest.mark.slow
@pytest.mark.parametrize("overlap", [Overlap.ALL, Overlap.NONE])
def test_no_mapping_beats_the_answer(overlap):
    system = rings(overlap, levels=1)
    constraints = Constraints(kernel_by_kernel=True, sharding=PINNED, zero=Zero.NONE)
    mapping, certificate = search(WORKLOAD, system, constraints, RULES)
    assert certificate.status == "optimal"
    assert evaluate(WORKLOAD, system, mapping, RULES).time == pytest.approx(
        certificate.objective, rel=1e-12
    )
    assert certificate.objective == pytest.approx(best_of_all(system), rel=1e-9)


def test_what_ends_take_is_in_the_energy():
    system = rings(Overlap.ALL, levels=1)
    answer = crosstack.optimise(WORKLOAD, system, objective=Objective.ENERGY)
    layers = crosstack.optimise(WORKLOAD.without_ends(), system, objective=Objective.ENERGY)
    assert answer.certificate.status == "optimal"
    assert answer.certificate.objective == pytest.approx(answer.evaluation.energy.total, rel=1e-12)
    assert answer.certificate.objective > layers.certificate.objective


def test_one_stage_takes_all_in_turn():
    system = rings(Overlap.NONE)
    use = next(u for u in workload_uses(WORKLOAD, system, Constraints(), RULES)
               if u is not None and set(u.parallelism) == {Parallelism.DATA})  # fmt: skip
    mapping = mapped(use, 1, Recompute.NONE, 1, WAYS[0], (WAYS[0], WAYS[0]))
    found = evaluate(WORKLOAD, system, mapping, RULES)
    table, head = found.ends
    ends = table.time + 2 * head.time
    gradient = found.time / 2 - 4 * found.layer_time - ends  # of the table, over the replicas
    assert [end.count for end in found.ends] == [1, 2]
    # Two microbatches; 512 bytes of a table are summed over 4 chips, each sequence its share.
    assert 0 < gradient < 2 * 512 / 1e4
    assert found.work == 8 * (4 + 3) * LAYER.total_work


def test_the_table_and_its_state_are_on_the_first_stage():
    system = rings(Overlap.NONE)
    use = next(u for u in workload_uses(WORKLOAD, system, Constraints(), RULES)
               if u is not None and set(u.parallelism) == {Parallelism.PIPELINE})  # fmt: skip
    mapping = mapped(use, 1, Recompute.NONE, 1, WAYS[0], (WAYS[0], WAYS[0]))
    first, second, _, last = evaluate(WORKLOAD, system, mapping, RULES).memory.stages
    word = LAYER.word
    assert first.weights - second.weights == pytest.approx(512.0 + second.weights)
    state = (512.0 / word) * RULES.memory.optimizer_bytes
    assert first.optimizer_state - 2 * second.optimizer_state == pytest.approx(state)
    assert last.weights == pytest.approx(3 * second.weights)  # its layer, and the head twice


def test_a_machine_too_small_for_an_end_is_refused():
    large = replace(WORKLOAD, before=(replace(TABLE, table_size=1e9),))
    with pytest.raises(InfeasibleError, match="main memory"):
        search(large, rings(Overlap.NONE, capacity=1e6), Constraints(), RULES)


def test_rules_that_count_layers_alone_leave_ends_out():
    rules = rules_named("dfmodel-readme")
    system = replace(rings(Overlap.ALL), prices=Prices())
    with_ends = crosstack.optimise(WORKLOAD, system, rules=rules)
    layers = crosstack.optimise(WORKLOAD.without_ends(), system, rules=rules)
    assert with_ends.evaluation.time == layers.evaluation.time
    assert with_ends.mapping.ends == ()


def test_a_saved_answer_has_its_ends():
    answer = crosstack.optimise(WORKLOAD, rings(Overlap.ALL))
    data = json.loads(answer.to_json())
    assert [end["name"] for end in data["ends"]] == ["table", "head"]
    again = saved_plan(data, answer.task)
    assert again.mapping == answer.mapping
    assert again.certificate.status == "optimal"
    data["ends"][1]["kernels"][0]["sharding"] = "Q"
    with pytest.raises(InputError, match=r"ends\[1\]\.kernels\[0\]\.sharding"):
        saved_plan(data, answer.task)


def test_a_mapping_without_the_ends_of_its_workload_is_refused():
    answer = crosstack.optimise(WORKLOAD, rings(Overlap.ALL))
    with pytest.raises(InputError, match=r"mapping.ends: got 0 ends; the workload has 2"):
        evaluate(WORKLOAD, rings(Overlap.ALL), replace(answer.mapping, ends=()), RULES)


def test_processes_find_the_same():
    one, two = (crosstack.optimise(WORKLOAD, rings(Overlap.ALL), jobs=jobs) for jobs in (1, 2))
    assert one.mapping == two.mapping
    assert one.certificate.objective == two.certificate.objective


def test_ends_run_in_turn_on_a_chip_that_runs_kernels_so():
    gpus = crosstack.system("h100-dgx", chips=2)
    answer = crosstack.optimise(WORKLOAD, gpus, constraints=Constraints(kernel_by_kernel=True))
    assert answer.certificate.status == "optimal"
    assert [len(end.partitions) for end in answer.evaluation.ends] == [5, 5]


@pytest.mark.parametrize("kind", ["train", "prefill"])
def test_ends_take_no_less_than_what_plans_are_bounded_by(kind):
    """Layers with experts behind dense ones, whose masked scores an accelerator skips."""
    shape = {"layers": 6, "hidden": 256, "heads": 4, "kv_heads": 4, "vocabulary": 1000}
    model = replace(crosstack.model("deepseek-v2-lite"), **shape)
    job = crosstack.Job(model=model, kind=kind, batch=8, sequence=2048)
    system = crosstack.system("h100-dgx", chips=4)
    state = search_state(job.workload, system, Constraints(), RULES, 0.0, FASTEST)
    compared = 0
    seen = set()
    for plan in every_plan(state):
        key = plan.sizes, plan.parallelism, plan.microbatch_size > 1
        if key in seen:
            continue
        seen.add(key)
        ended = state.ended(plan)
        for least, whole in zip(plan.ends, ended.ends, strict=True):
            assert 0 < least.time <= whole.time
            assert least.resident <= whole.resident * (1 + 1e-12)
        compared += 1
    assert compared > 5
