import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstack.errors import InputError
from crosstack.model.schedule.events import Resource, TaskGraphBuilder, simulate


def test_tasks_of_one_resource_follow_one_another():
    build = TaskGraphBuilder()
    build.add("a", 2.0, resource="chip")
    build.add("b", 3.0, resource="chip")
    assert simulate(build.build()).finish.tolist() == [2.0, 5.0]


def test_free_tasks_run_at_once():
    build = TaskGraphBuilder()
    build.add("a", 2.0)
    build.add("b", 3.0)
    assert simulate(build.build()).makespan == 3.0


def test_the_first_ready_is_served_first():
    build = TaskGraphBuilder()
    first = build.add("first", 1.0, resource="a")
    second = build.add("second", 2.0, resource="b")
    late = build.add("late", 1.0, resource="c", after=[second])
    early = build.add("early", 5.0, resource="c", after=[first])
    timeline = simulate(build.build())
    assert timeline.start[early] == 1.0
    assert timeline.start[late] == 6.0


def test_tasks_in_a_circle_are_refused():
    build = TaskGraphBuilder()
    a = build.add("a", 1.0)
    b = build.add("b", 1.0, after=[a])
    build.join(b, a)
    with pytest.raises(InputError, match="circle"):
        simulate(build.build())


def test_a_host_launches_kernels_ahead_of_the_device():
    # 1 s to launch each; kernels of 3, 0.5 and 0.5 s: the device waits for the first launch alone
    build, kernel = TaskGraphBuilder(), None
    for number, time in enumerate((3.0, 0.5, 0.5)):
        launched = build.add(f"launch {number}", 1.0, resource=Resource.HOST)
        after = [launched] if kernel is None else [launched, kernel]
        kernel = build.add(f"kernel {number}", time, resource=Resource.UNITS, after=after)
    ran = simulate(build.build())
    assert ran.makespan == 1 + 3 + 0.5 + 0.5
    assert ran.busy() == {Resource.HOST: 3.0, Resource.UNITS: 4.0}


def test_short_kernels_wait_for_the_host():
    build, kernel = TaskGraphBuilder(), None
    for number in range(3):
        launched = build.add(f"launch {number}", 1.0, resource=Resource.HOST)
        after = [launched] if kernel is None else [launched, kernel]
        kernel = build.add(f"kernel {number}", 0.25, resource=Resource.UNITS, after=after)
    assert simulate(build.build()).makespan == 3 + 0.25


def test_a_copy_engine_moves_data_beside_kernels():
    # a layer's weights are copied while the layer before computes; one copy at a time
    build, kernel = TaskGraphBuilder(), None
    for layer, (copied, computed) in enumerate(((2.0, 1.0), (2.0, 5.0), (2.0, 1.0))):
        copy = build.add(f"copy {layer}", copied, resource=Resource.COPY_ENGINE)
        after = [copy] if kernel is None else [copy, kernel]
        kernel = build.add(f"layer {layer}", computed, resource=Resource.UNITS, after=after)
    ran = simulate(build.build())
    assert ran.finish.tolist() == [2, 3, 4, 9, 6, 10]
    assert ran.busy() == {Resource.COPY_ENGINE: 6.0, Resource.UNITS: 7.0}


def test_a_graph_without_tasks_takes_no_time():
    assert simulate(TaskGraphBuilder().build()).makespan == 0.0


def test_busy_counts_what_each_resource_does():
    build = TaskGraphBuilder(["chip", "idle"])
    a = build.add("a", 2.0, resource="chip")
    build.add("b", 1.0, after=[a])
    build.add("c", 4.0, resource="chip", after=[a])
    assert simulate(build.build()).busy() == {"chip": 6.0, "idle": 0.0}


@st.composite
def graphs(draw):
    seed = draw(st.integers(0, 10**6))
    rng = random.Random(seed)
    build = TaskGraphBuilder()
    for i in range(draw(st.integers(1, 25))):
        after = rng.sample(range(i), min(i, rng.randrange(3)))
        resource = rng.choice([None, "a", "b", "c"])
        build.add(f"{i}", rng.choice([0.0, 1.0, 2.5]), resource=resource, after=after)
    return build.build()


@given(graphs())
def test_nothing_starts_early_and_no_resource_does_two_things(graph):
    timeline = simulate(graph)
    for task, children in enumerate(graph.children):
        assert all(timeline.start[child] >= timeline.finish[task] for child in children)
    for resource in range(len(graph.resource_names)):
        own = [i for i in range(len(graph)) if graph.resources[i] == resource]
        spans = sorted((timeline.start[i], timeline.finish[i]) for i in own)
        assert all(a[1] <= b[0] for a, b in pairwise(spans))


@given(graphs())
def test_the_makespan_lies_between_its_bounds(graph):
    timeline = simulate(graph)
    longest = [0.0] * len(graph)
    for task in range(len(graph)):  # listed in topological order
        longest[task] += graph.durations[task]
        for child in graph.children[task]:
            longest[child] = max(longest[child], longest[task])
    lower = max([*longest, *timeline.busy().values()], default=0.0)
    assert lower <= timeline.makespan + 1e-12
    assert timeline.makespan <= sum(graph.durations) + 1e-12


@given(graphs())
def test_the_same_graph_runs_the_same_way(graph):
    assert simulate(graph).start.tolist() == simulate(graph).start.tolist()


def test_a_resource_of_two_lanes_runs_two_tasks_at_a_time():
    build = TaskGraphBuilder(["chip"], lanes=2)
    for name, duration in (("a", 3.0), ("b", 1.0), ("c", 4.0), ("d", 1.0)):
        build.add(name, duration, resource="chip")
    ran = simulate(build.build())
    # a on the first; b, then c on the second; d after a.
    assert ran.start.tolist() == [0.0, 0.0, 1.0, 3.0]
    assert ran.finish.tolist() == [3.0, 1.0, 5.0, 4.0]
    assert ran.lane.tolist() == [0, 1, 1, 0]
    assert ran.busy() == {"chip": 5.0}


def test_what_runs_at_once_is_busy_once_and_a_gap_is_not():
    build = TaskGraphBuilder(["chip"], lanes=3)
    first = build.add("a", 2.0, resource="chip")
    build.add("b", 1.0, resource="chip")
    pause = build.add("pause", 5.0, after=[first])
    build.add("c", 1.0, resource="chip", after=[pause])
    assert simulate(build.build()).busy() == {"chip": 3.0}


def test_resources_that_are_not_named_first_run_one_task_at_a_time():
    build = TaskGraphBuilder(["chip"], lanes=4)
    for _ in range(3):
        build.add("send", 1.0, resource="link")
    assert simulate(build.build()).makespan == 3.0


@given(graphs(), st.integers(1, 4))
def test_no_resource_runs_more_than_its_lanes(graph, count):
    ran = simulate(replace(graph, lanes=(count,) * len(graph.resource_names)))
    for now in ran.start:
        for resource in range(len(graph.resource_names)):
            at_once = [
                i
                for i in range(len(graph))
                if graph.resources[i] == resource and ran.start[i] <= now < ran.finish[i]
            ]
            assert len({ran.lane[i] for i in at_once}) == len(at_once) <= count


@pytest.mark.parametrize("lanes", [(0,), (1.5,), (1, 1)])
def test_lanes_that_are_no_number_of_tasks_are_refused(lanes):
    build = TaskGraphBuilder(["chip"])
    with pytest.raises(InputError, match="lanes"):
        replace(build.build(), lanes=lanes)


@pytest.mark.parametrize(("left_out", "end"), [("reduction", 2.0), ("work", 5.0), ("else", 5.0)])
def test_a_run_ends_without_tasks_of_a_kind_when_the_others_have(left_out, end):
    build = TaskGraphBuilder()
    first = build.add("a", 2.0, kind="work", resource="chip")
    build.add("b", 3.0, kind="reduction", resource="link", after=[first])
    assert simulate(build.build()).end_without(left_out) == end


def test_a_run_of_one_kind_ends_at_once_without_it():
    build = TaskGraphBuilder()
    build.add("a", 0.5, kind="work")
    assert simulate(build.build()).end_without("work") == 0.0
