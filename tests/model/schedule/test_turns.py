"""Turns of a pipeline that repeat: fewer microbatches tell what many take, exactly."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crosstack.model.schedule import combined, pipeline
from crosstack.model.schedule.levels import LevelBuilder, Steady, few_microbatches, through_many
from crosstack.workload.transformer_training import Schedule

CASES = [
    (schedule, chips, pieces)
    for schedule, chips, pieces in [
        (Schedule.ONE_F_ONE_B, 1, 1), (Schedule.ONE_F_ONE_B, 3, 1), (Schedule.ONE_F_ONE_B, 5, 1),
        (Schedule.ONE_F_ONE_B, 2, 2), (Schedule.ONE_F_ONE_B, 3, 2), (Schedule.ONE_F_ONE_B, 4, 3),
        (Schedule.ZB_H1, 2, 1), (Schedule.ZB_H1, 4, 1), (Schedule.ZB_H2, 3, 1),
        (Schedule.COMBINED, 1, 1), (Schedule.COMBINED, 2, 2), (Schedule.COMBINED, 3, 3),
    ]
]  # fmt: skip


def levels_of(schedule: Schedule, chips: int, pieces: int, microbatches: int, *, turns=True):
    if schedule is Schedule.COMBINED:
        return combined._levels(chips, microbatches, pieces, turns=turns)
    return pipeline._levels(chips * pieces, microbatches, schedule, pieces, turns=turns)


def random_times(rng: np.random.Generator, kinds: int, how: str) -> np.ndarray:
    """Times of so many kinds, shape (kinds, 1): all alike, of a few lengths, or any. [s]"""
    if how == "alike":
        return np.ones((kinds, 1))
    if how == "few":
        return rng.choice([0.0, 0.5, 1.0, 3.0], size=(kinds, 1))
    return rng.random((kinds, 1))


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), how=st.sampled_from(["alike", "few", "any"]))
def test_many_microbatches_take_what_their_levels_say(case, seed, how):
    _, chips, pieces = case
    each = chips if pieces > 1 else 1
    rng = np.random.default_rng(seed)
    microbatches = int(rng.integers(1, 40)) * each + chips * 6
    microbatches -= microbatches % each
    own = partial(levels_of, *case)
    times = random_times(rng, int(own(2 * chips).takes.max()) + 1, how)
    whole = own(microbatches).through(times)
    found = through_many(own, times, chips, microbatches, each)
    np.testing.assert_allclose(found, whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_pipelines_whose_stages_are_alike_settle_at_once(case):
    _, chips, pieces = case
    each = chips if pieces > 1 else 1
    some = -(-few_microbatches(chips) // each) * each
    levels = levels_of(*case, some)
    times = np.ones((int(levels.takes.max()) + 1, 1))
    kinds = 3 if case[0] is Schedule.COMBINED else pipeline.KINDS
    times[kinds - 1 : kinds * chips * pieces : kinds] = 0.0  # nothing is waited for but passes
    settled = levels.settled(times)
    assert settled is not None
    # Of a period all passes of a stage: forward, backward (in two where weights wait), or a pair.
    passes = {Schedule.COMBINED: 1, Schedule.ONE_F_ONE_B: 2, Schedule.ZB_H1: 3, Schedule.ZB_H2: 3}
    assert settled[1] == pytest.approx(passes[case[0]] * each * pieces)


def test_turns_that_become_longer_have_not_settled():
    # Two chips hand on: the second waits for the first and is slower, so that it is more and more
    # behind. Both repeat, but not as much later.
    build, busy = LevelBuilder(), [0, 0]
    for turn in range(12):
        busy[0] = build.add(0, busy[0], at=(0, turn))
        busy[1] = build.add(1, busy[1], busy[0], at=(1, turn))
    levels = build.build(busy, Steady(0, 11, 1))
    assert levels.settled(np.array([1.0, 2.0])) is None
    assert levels.settled(np.array([2.0, 1.0])) is not None
