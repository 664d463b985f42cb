"""Closed forms against events, for random pipelines."""

from __future__ import annotations

import random

import numpy as np
import pytest

from crosstack.errors import InputError
from crosstack.model.schedule.closed import (
    forward_ways,
    gpipe_ways,
    longest,
    pass_time,
    training_ways,
    uneven_time,
    zero_bubble_ways,
)
from crosstack.model.schedule.events import TaskGraphBuilder, simulate
from crosstack.model.schedule.passes import Operation, Stage
from crosstack.model.schedule.pipeline import pipeline_time
from crosstack.model.schedule.pipeline_graph import pipeline_graph
from crosstack.workload.transformer_training import Schedule

PRECISION = 1e-12
ONE = Schedule.ONE_F_ONE_B


def events(
    forward, backward, sends, microbatches, schedule=ONE, interleave=1, weights=0.0
) -> float:
    """Time of the same pipeline, task by task. [s]"""
    stages = [
        Stage(operations=(Operation(name="stage", forward=f, backward=b, weights=weights),), send=x)
        for f, b, x in zip(forward, backward, [*sends, 0.0], strict=True)
    ]
    graph = pipeline_graph(stages, microbatches, schedule, interleave=interleave)
    ran = simulate(graph).makespan
    # The recurrence that predictions use is the same.
    found = pipeline_time(stages, microbatches, schedule, interleave=interleave)
    assert found == pytest.approx(ran, rel=PRECISION)
    return ran


def times(rng: random.Random, count: int) -> list[float]:
    return [rng.choice([0.0, rng.random(), 4 * rng.random() ** 3]) for _ in range(count)]


@pytest.mark.parametrize("seed", range(120))
def test_stages_alike(seed):
    rng = random.Random(seed)
    p, m = rng.randint(1, 6), rng.randint(1, 14)
    f, b, x = rng.random(), 2 * rng.random(), rng.choice([0.0, rng.random(), 8 * rng.random()])
    found = float(longest(training_ways(p, m), f + b, x))
    assert found == pytest.approx(events([f] * p, [b] * p, [x] * (p - 1), m), rel=PRECISION)


@pytest.mark.parametrize("seed", range(60))
def test_stages_alike_that_send_by_themselves(seed):
    rng = random.Random(seed)
    p, m = rng.randint(1, 6), rng.randint(1, 14)
    f, b, x = rng.random(), 2 * rng.random(), rng.random()
    forward = [f + x * (s < p - 1) for s in range(p)]
    backward = [b + x * (s > 0) for s in range(p)]
    found = float(longest(training_ways(p, m, beside=False), f + b, x))
    assert found == pytest.approx(events(forward, backward, [0.0] * (p - 1), m), rel=PRECISION)


@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize("seed", range(80))
def test_gradients_of_weights_that_wait(seed, beside):
    rng = random.Random(seed)
    p = rng.randint(1, 7)
    m = p + rng.choice([0, 1, rng.randint(2, 12)])
    f, b, w = (3 * rng.random() ** rng.choice([1, 2]) for _ in range(3))
    x = rng.choice([0.0, 0.1 * rng.random(), rng.random(), 3 * rng.random()])
    work = f + b + w
    ways = zero_bubble_ways(p, m, beside=beside, forward=f / work, weights=w / work)
    own = 0.0 if beside else x
    forward = [f + own * (s < p - 1) for s in range(p)]
    backward = [b + w + own * (s > 0) for s in range(p)]
    sends = [x if beside else 0.0] * (p - 1)
    ran = events(forward, backward, sends, m, Schedule.ZB_H1, weights=w)
    assert float(longest(ways, work, x)) == pytest.approx(ran, rel=PRECISION)
    if not x:
        known = (m + p - 1) * (f + b) + m * w - (p - 1) * min(f, b, w)
        assert ran == pytest.approx(known, rel=PRECISION)


def test_the_bubble_of_zb_h1_is_a_third_of_that_of_one_forward_one_backward():
    # qi2024zero, table 2: (p - 1) (F + B - W), against (p - 1) (F + B + W), each of 1 s.
    p, m = 4, 8
    assert float(longest(zero_bubble_ways(p, m), 3.0, 0.0)) == pytest.approx(3 * m + (p - 1))
    assert float(longest(training_ways(p, m), 3.0, 0.0)) == 3 * m + 3 * (p - 1)


@pytest.mark.parametrize("beside", [True, False])
def test_zero_bubble_ways_of_arrays_are_those_of_each(beside):
    rng, rows = random.Random(11), []
    for _ in range(200):
        p = rng.randint(1, 8)
        rows.append((p, p + rng.randint(0, 16), rng.uniform(0.1, 0.5), rng.uniform(0.1, 0.4)))
    p, m, share, weights = (np.array(column) for column in zip(*rows, strict=True))
    ways = zero_bubble_ways(p, m, beside=beside, forward=share, weights=weights)
    for work, send in ((1.0, 0.0), (1.0, 0.2), (1.0, 3.0)):
        for time, (a, b, there, apart) in zip(longest(ways, work, send), rows, strict=True):
            alone = zero_bubble_ways(a, b, beside=beside, forward=there, weights=apart)
            assert time == float(longest(alone, work, send))


@pytest.mark.parametrize("seed", range(120))
def test_interleaved_stages_that_send_by_themselves(seed):
    rng = random.Random(seed)
    p, v = rng.randint(2, 8), rng.randint(2, 4)
    m = p * rng.randint(1, 5)
    f, b = rng.choice([0.3, 1.0, 4.0]), rng.choice([0.5, 1.0, 10.0])
    x = rng.choice([0.0, 0.01, rng.random(), 3.0, 40.0])
    n = p * v
    forward = [f + x * (s < n - 1) for s in range(n)]
    backward = [b + x * (s > 0) for s in range(n)]
    ways = training_ways(p, m, v, beside=False, forward=f / (f + b))
    ran = events(forward, backward, [0.0] * (n - 1), m, interleave=v)
    assert float(longest(ways, v * (f + b), x)) == pytest.approx(ran, rel=PRECISION)


@pytest.mark.parametrize("seed", range(80))
def test_interleaved_stages_alike(seed):
    rng = random.Random(seed)
    p, v = rng.randint(2, 4), rng.randint(2, 4)
    m = p * rng.randint(1, 4)
    f, b = 0.1 + rng.random(), 0.1 + 2 * rng.random()
    x = rng.choice([0.0, rng.random(), 1.0]) * min(f, b)  # no longer than a piece's passes
    n = p * v
    found = float(longest(training_ways(p, m, v, forward=f / (f + b)), v * (f + b), x))
    ran = events([f] * n, [b] * n, [x] * (n - 1), m, interleave=v)
    assert found == pytest.approx(ran, rel=PRECISION)


@pytest.mark.parametrize("seed", range(40))
def test_interleaved_stages_wait_for_sends_that_take_longer(seed):
    rng = random.Random(seed)
    p, v = rng.randint(2, 4), rng.randint(2, 4)
    m = p * rng.randint(1, 4)
    f, b, x = 0.1 + rng.random(), 0.1 + 2 * rng.random(), 3 * rng.random()
    n = p * v
    ways = training_ways(p, m, v, forward=f / (f + b))
    found = float(longest(ways, v * (f + b), x))
    waiting = [[max(f, x)] * n, [max(b, x)] * n]
    ran = events(*waiting, [x] * (n - 1), m, interleave=v)
    assert found == pytest.approx(ran, rel=PRECISION)
    assert events([f] * n, [b] * n, [x] * (n - 1), m, interleave=v) <= found * (1 + PRECISION)


@pytest.mark.parametrize("seed", range(60))
def test_gpipe_with_stages_alike(seed):
    rng = random.Random(seed)
    p, m = rng.randint(1, 6), rng.randint(1, 14)
    f, b, x = rng.random(), 2 * rng.random(), 3 * rng.random()
    found = float(longest(gpipe_ways(p, m, forward=f / (f + b)), f + b, x))
    ran = events([f] * p, [b] * p, [x] * (p - 1), m, Schedule.GPIPE)
    assert found == pytest.approx(ran, rel=PRECISION)


@pytest.mark.parametrize("seed", range(150))
def test_any_stages_that_send_in_no_time(seed):
    rng = random.Random(seed)
    p, m = rng.randint(1, 6), rng.randint(1, 14)
    forward, backward = times(rng, p), times(rng, p)
    ran = events(forward, backward, [0.0] * (p - 1), m)
    assert uneven_time(forward, backward, m) == pytest.approx(ran, rel=PRECISION, abs=1e-15)


@pytest.mark.parametrize("seed", range(60))
def test_gpipe_with_any_stages_and_links(seed):
    rng = random.Random(seed)
    p, m = rng.randint(1, 6), rng.randint(1, 14)
    forward, backward, sends = times(rng, p), times(rng, p), times(rng, p - 1)
    there = pass_time(forward, sends, m)
    back = pass_time(backward[::-1], sends[::-1], m)
    ran = events(forward, backward, sends, m, Schedule.GPIPE)
    assert there + back == pytest.approx(ran, rel=PRECISION, abs=1e-15)


@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize("seed", range(40))
def test_a_forward_pass_alone(seed, beside):
    rng = random.Random(seed)
    p, m = rng.randint(1, 6), rng.randint(1, 14)
    work, x = rng.random(), 3 * rng.random()
    build = TaskGraphBuilder()
    for _ in range(m):
        after: list[int] = []
        for s in range(p):
            after = [build.add("work", work, resource=f"stage {s}", after=after)]
            if s < p - 1:
                where = f"link {s}" if beside else f"stage {s}"
                after = [build.add("send", x, resource=where, after=after)]
    ran = simulate(build.build()).makespan
    if beside:  # a stage that sends takes what is ready first, which events leave open
        assert pass_time([work] * p, [x] * (p - 1), m) == pytest.approx(ran, rel=PRECISION)
        found = float(longest(forward_ways(p, m), work, x))
        assert found == pytest.approx(ran, rel=PRECISION)
        return
    sending = [work + x * (s < p - 1) for s in range(p)]
    found = float(longest(forward_ways(p, m, beside=False), work, x))
    assert found == pytest.approx(pass_time(sending, [0.0] * (p - 1), m), rel=PRECISION)


def test_ways_are_of_arrays_too():
    p, m = np.array([1, 2, 4]), np.array([3, 1, 6])
    work, x = np.array([1.0, 2.0, 0.5]), 0.75
    together = longest(forward_ways(p, m), work, x)
    alone = [
        float(longest(forward_ways(int(i), int(j)), w, x))
        for i, j, w in zip(p, m, work, strict=True)
    ]
    assert together.tolist() == alone


@pytest.mark.parametrize("beside", [True, False])
def test_training_ways_of_arrays_are_those_of_each(beside):
    rng, rows = random.Random(11), []
    for _ in range(200):
        p, v = rng.randint(1, 8), rng.choice([1, 1, 2, 3])
        v = 1 if p == 1 else v
        m = p * rng.randint(1, 5) if v > 1 else rng.randint(1, 24)
        rows.append((p, m, v, rng.uniform(0.1, 0.9)))
    p, m, v, share = (np.array(column) for column in zip(*rows, strict=True))
    for work, send in ((1.0, 0.0), (1.0, 0.2), (1.0, 3.0), (0.0, 1.0)):
        found = longest(training_ways(p, m, v, beside=beside, forward=share), work, send)
        for time, (a, b, c, forward) in zip(found, rows, strict=True):
            alone = longest(training_ways(a, b, c, beside=beside, forward=forward), work, send)
            assert time == alone


def test_one_stage_takes_its_work_alone():
    assert float(longest(training_ways(1, 5), 2.0, 9.0)) == 10.0
    assert float(longest(forward_ways(1, 5), 2.0, 9.0)) == 10.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"microbatches": 5}, "microbatches: got 5; allowed: a multiple of 2 stages"),
        ({"microbatches": 3, "beside": False}, "microbatches: got 3; allowed: a multiple of 2"),
    ],
)
def test_what_cannot_be_interleaved_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        training_ways(2, options.pop("microbatches", 4), 2, **options)


def test_gradients_of_weights_wait_only_where_microbatches_are_as_many_as_stages():
    with pytest.raises(InputError, match="microbatches: got 3; allowed: at least 4"):
        zero_bubble_ways(4, 3)
    stages = [Stage(operations=(Operation(name="stage", forward=1.0, backward=2.0),))] * 4
    with pytest.raises(InputError, match="microbatches: got 3; allowed: at least 4"):
        pipeline_time(stages, 3, Schedule.ZB_H1)
