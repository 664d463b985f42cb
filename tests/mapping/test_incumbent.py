"""Which of the mappings that a search finds it keeps, and which partitions of a stage."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

from crosstack.machine.system import Parallelism
from crosstack.mapping.incumbent import Incumbent
from crosstack.mapping.mapping import Mapping
from crosstack.mapping.pipeline import StageSplit
from crosstack.mapping.stage_times import Label
from crosstack.workload.kernels import Axis

FIRST = Mapping(
    sizes=(2,), parallelism=(Parallelism.TENSOR,), microbatch_size=1, n_tiles=1,
    sharding=(Axis.NONE,), partitions=(0,),
)  # fmt: skip
SECOND = replace(FIRST, microbatch_size=2)


@pytest.mark.parametrize("found", [*itertools.permutations([(2.0, FIRST), (2.0, SECOND)])])
def test_of_mappings_as_fast_the_first_in_their_order_is_kept(found):
    kept = Incumbent()
    for time, mapping in found:
        kept.keep(time, mapping)
    assert (kept.best, kept.mapping) == (2.0, FIRST)


@pytest.mark.parametrize("found", [*itertools.permutations([(2.0, FIRST), (1.5, SECOND)])])
def test_a_faster_mapping_is_kept_wherever_it_stands_in_the_order(found):
    kept = Incumbent()
    for time, mapping in found:
        kept.keep(time, mapping)
    assert (kept.best, kept.mapping) == (1.5, SECOND)


def test_a_piece_without_a_mapping_leaves_what_was_found():
    whole = Incumbent(best=3.0, mapping=FIRST, plans_made=4)
    whole.join(Incumbent(best=1.0, left_bound=0.5, plans_made=3))
    assert (whole.best, whole.mapping, whole.left_bound, whole.plans_made) == (3.0, FIRST, 0.5, 7)
    whole.join(Incumbent(best=1.0, mapping=SECOND))
    assert (whole.best, whole.mapping, whole.left_bound) == (1.0, SECOND, 0.5)
    assert Incumbent().left_bound == math.inf


@pytest.mark.parametrize("worse", ["time", "price", "alive"])
def test_partitions_beat_others_that_are_better_in_nothing(worse):
    one = Label(1.0, 1.0, 1.0)
    other = replace(one, **{worse: 2.0})
    assert one.beats(one)
    assert one.beats(other)
    assert not other.beats(one)


@pytest.mark.parametrize(("bound", "proved"), [(1.0, True), (1.0 - 1e-12, True), (0.999, False)])
def test_stages_are_proved_by_a_bound_that_meets_their_time(bound, proved):
    assert StageSplit(stages=((1,),), slowest=1.0, time=1.0, bound=bound).proved is proved
