from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstack.machine.chip import Overlap
from crosstack.machine.system import Parallelism
from crosstack.model.collectives import ConcaveTime
from crosstack.model.iteration import (
    border_time,
    iteration,
    layer_time_below,
    least_time,
    pipeline_of,
    split_iteration,
    stage_time,
    steepest,
)
from crosstack.model.mesh_plan import AffineTime, MeshPlan
from crosstack.model.rules import rules_named
from crosstack.model.schedule.allowed import interleavings
from crosstack.model.schedule.closed import pass_time
from crosstack.model.schedule.events import simulate
from crosstack.model.schedule.passes import Operation, Stage
from crosstack.model.schedule.pipeline import pipeline_time
from crosstack.model.schedule.pipeline_graph import pipeline_graph
from crosstack.model.schedule.zero_bubble import least_microbatches
from crosstack.model.tiles import divisors, tile_counts
from crosstack.workload.transformer_training import Schedule

ONCE, EACH = rules_named("dfmodel-readme"), rules_named("crosstack")


def a_plan(**changes) -> MeshPlan:
    """Four stages of three layers, five microbatches of two sequences."""
    values = {
        "sizes": (4,),
        "parallelism": (Parallelism.PIPELINE,),
        "microbatch_size": 2,
        "tensor": 1,
        "pipeline": 4,
        "data": 1,
        "n_microbatches": 5,
        "layers_per_stage": 3,
        "collectives": {},
        "changes": {},
        "periodic": AffineTime(),
        "stage_transfer": AffineTime(fixed=0.5, per_byte=1.0),
        "n_layers": 12,
    }
    return MeshPlan(**{**values, **changes})


def bubble(plan: MeshPlan, rules=ONCE) -> float:
    return float(rules.iteration.bubble_factor(pipeline_of(plan, Overlap.ALL, rules)))


class TestBubble:
    @pytest.mark.parametrize("rules", [ONCE, EACH])
    def test_one_stage_has_none(self, rules):
        assert bubble(a_plan(pipeline=1), rules) == 1

    def test_it_shrinks_with_microbatches(self):
        assert bubble(a_plan(), EACH) == 1 + 3 / 5

    def test_a_release_has_virtual_stages(self):
        assert bubble(a_plan()) == 1 + 3 / 5 / 2

    def test_a_stage_of_one_layer_has_one_virtual_stage(self):
        assert bubble(a_plan(layers_per_stage=1)) == 1 + 3 / 5


class TestIteration:
    def test_transfers_once_come_on_top(self):
        found = iteration(a_plan(), 10.0, Overlap.ALL, ONCE)
        assert found.time == pytest.approx(10 * 2 * 3 * 1.3 * 5 + 12 * 1.0)

    def test_a_forward_pipeline_is_filled_once(self):
        # 60 s of work, 0.5 + 2 s to the next stage: behind the work but for the first microbatch
        found = iteration(a_plan(), 10.0, Overlap.ALL, EACH)
        assert found.time == 60 * (5 + 3) + 3 * 2.5

    def test_a_stage_hides_behind_a_longer_transfer(self):
        # four stages for the first, then links that send one after the other
        found = iteration(a_plan(), 0.1, Overlap.ALL, EACH)
        assert found.time == pytest.approx(0.6 * 4 + 2.5 * (3 + 4))

    @pytest.mark.parametrize("overlap", [Overlap.NONE, Overlap.COMPUTE_MEMORY])
    def test_without_overlap_a_transfer_adds_up(self, overlap):
        found = iteration(a_plan(), 10.0, overlap, EACH)
        assert found.time == pytest.approx(62.5 * (5 + 2) + 60)  # the last stage sends nothing

    @pytest.mark.parametrize("overlap", Overlap)
    @pytest.mark.parametrize("training", [False, True])
    def test_one_stage_sends_nothing(self, overlap, training):
        found = iteration(a_plan(pipeline=1, training=training), 0.1, overlap, EACH)
        assert found.time == pytest.approx(5 * 0.6)

    def test_gradients_come_back(self):
        # both ways 2.5 s; four stages, five microbatches: 3 + 4 - 1 sends are waited for each way
        found = iteration(a_plan(training=True), 10.0, Overlap.ALL, EACH)
        assert found.time == 60 * (5 + 3) + 2 * (3 + 4 - 1) * 1.25

    def test_one_chip_takes_layers_times_sequences(self):
        plan = a_plan(pipeline=1, stage_transfer=AffineTime(), n_microbatches=1, microbatch_size=1)
        assert iteration(plan, 10.0, Overlap.ALL, EACH).time == 30


class TestAsPredicted:
    """`predict` and `map` of the same stages: the same iteration."""

    @pytest.mark.parametrize("seed", range(60))
    def test_the_iteration_is_that_of_the_events_of_a_prediction(self, seed):
        rng = random.Random(seed)
        p, m, v = rng.randint(1, 6), rng.randint(1, 12), 1
        schedule = rng.choice([order for order in Schedule if not order.both_ends])
        if seed % 3 == 0 and p > 1:
            m, v, schedule = p * rng.randint(1, 4), rng.randint(1, 4), Schedule.ONE_F_ONE_B
        if schedule.pieces == 2:
            p, v = max(p, 2), 2
        if schedule is Schedule.COMBINED and p > 1:
            m, v = p * rng.randint(1, 4), rng.randint(2, 4)
        m = max(m, least_microbatches(p, schedule)) if schedule.defers_weights else m
        forward, backward = rng.random(), 1 + rng.random()
        send = rng.random() * forward / v  # of a piece, both ways it hides
        plan = a_plan(
            pipeline=p, n_microbatches=m, interleave=v, schedule=schedule, training=True,
            forward=forward / (forward + backward),
            weight_gradients=0.4 * backward / (forward + backward),
            stage_transfer=AffineTime(fixed=2 * send if p > 1 else 0.0),
        )  # fmt: skip
        layer = (forward + backward) / plan.microbatch_size / plan.layers_per_stage
        found = iteration(plan, layer, Overlap.ALL, EACH).time
        piece = Operation(
            name="piece", forward=forward / v, backward=backward / v, weights=0.4 * backward / v
        )
        stages = [Stage(operations=(piece,), send=send)] * (p * v)
        predicted = pipeline_time(stages, m, schedule, interleave=v)
        assert found == pytest.approx(predicted, rel=1e-12)
        ran = simulate(pipeline_graph(stages, m, schedule, interleave=v)).makespan
        assert found == pytest.approx(ran, rel=1e-12)


plans = st.builds(
    a_plan,
    pipeline=st.integers(1, 8),
    n_microbatches=st.integers(1, 9),
    layers_per_stage=st.integers(1, 9),
    microbatch_size=st.integers(1, 4),
    stage_transfer=st.builds(AffineTime, fixed=st.floats(0, 1), per_byte=st.floats(0, 10)),
    training=st.booleans(),
)
every_case = (
    plans,
    st.floats(1e-3, 1e3),
    st.sampled_from(list(Overlap)),
    st.sampled_from([ONCE, EACH]),
)


class TestLayerTimeBelow:
    @given(*every_case)
    def test_a_shorter_layer_beats_the_time(self, plan, time, overlap, rules):
        limit = layer_time_below(plan, time, overlap, rules)
        if limit > 0:
            assert iteration(plan, limit * (1 - 1e-9), overlap, rules).time < time * (1 + 1e-12)

    @given(*every_case)
    def test_a_longer_layer_does_not(self, plan, time, overlap, rules):
        limit = max(layer_time_below(plan, time, overlap, rules), 0.0)
        longer = limit * (1 + 1e-6) + 1e-9
        assert iteration(plan, longer, overlap, rules).time >= time * (1 - 1e-12)

    @given(*every_case)
    def test_a_longer_layer_never_makes_a_shorter_iteration(self, plan, layer, overlap, rules):
        short = iteration(plan, layer, overlap, rules).time
        assert iteration(plan, layer * 1.5, overlap, rules).time >= short

    @given(*every_case)
    def test_an_iteration_is_never_steeper_than_said(self, plan, layer, overlap, rules):
        short = iteration(plan, layer, overlap, rules).time
        most = short + steepest(plan, overlap, rules) * layer
        assert iteration(plan, 2 * layer, overlap, rules).time <= most * (1 + 1e-12)

    @given(
        st.sampled_from([Schedule.DUALPIPE, Schedule.COMBINED, Schedule.ONE_F_ONE_B]),
        st.floats(0.2, 20.0),
        st.floats(0.0, 1.0),
        st.floats(0.0, 5.0),
    )
    def test_nothing_faster_is_above_it_where_tokens_and_sums_hide(self, schedule, layer, share, a):
        # Sums hide behind layers, tokens behind the other pass: some paths have less than none.
        sums = ConcaveTime((AffineTime(fixed=a, per_byte=1.0),))
        plan = a_plan(
            pipeline=4,
            n_microbatches=16,
            graph_repetitions=12,
            training=True,
            data=2,
            expert=2,
            schedule=schedule,
            summed=0.3,
            periodic=sums,
            scatter=sums,
            gather=sums,
            stage_transfer=AffineTime(),
            tokens=(share * layer, share * layer),
            taken=0.15,
        )
        time = least_time(plan, layer, Overlap.COMPUTE_MEMORY, EACH)
        found = layer_time_below(plan, time * (1 + 1e-9), Overlap.COMPUTE_MEMORY, EACH)
        assert found >= layer * (1 - 1e-9)

    def test_no_limit_is_no_limit(self):
        assert layer_time_below(a_plan(), math.inf, Overlap.ALL, EACH) == math.inf

    def test_a_transfer_that_takes_too_long_leaves_nothing(self):
        slow = replace(a_plan(), stage_transfer=AffineTime(fixed=100.0))
        assert layer_time_below(slow, 10.0, Overlap.ALL, EACH) <= 0


class TestSchedules:
    """Twelve layers a stage on four stages, eight microbatches."""

    PLAN = a_plan(layers_per_stage=12, graph_repetitions=48, n_microbatches=8, training=True)

    def pieces(self, rules=EACH, **changes) -> tuple[int, ...]:
        return interleavings(replace(self.PLAN, **changes), rules)

    def test_pieces_divide_the_layers_of_a_stage(self):
        assert self.pieces() == (1, 2, 3, 4, 6, 12)

    @pytest.mark.parametrize("layers", [46, 47])
    def test_embedding_and_head_may_stand_in_the_place_of_a_layer_each(self, layers):
        assert self.pieces(graph_repetitions=layers) == (1, 2, 3, 4, 6, 12)

    @pytest.mark.parametrize(
        "changes",
        [
            {"n_microbatches": 6},
            {"graph_repetitions": 45},
            {"training": False},
            {"pipeline": 1, "graph_repetitions": 12},
            {"schedule": Schedule.GPIPE},
            {"rules": ONCE},
        ],
        ids=str,
    )
    def test_otherwise_there_is_one(self, changes):
        assert self.pieces(**changes) == (1,)


both = st.sampled_from([ONCE, EACH])
WORK, SENT = np.array([10.0, 4.0, 6.0]), np.array([1.0, 2.0, 0.0])
split_plans = st.builds(
    a_plan,
    layers_per_stage=st.just(1),
    graph_stages=st.integers(2, 8),
    graph_repetitions=st.integers(1, 3),
    n_microbatches=st.integers(1, 9),
    microbatch_size=st.integers(1, 4),
)


class TestStagesThatSplitTheGraph:
    PLAN = a_plan(layers_per_stage=1, graph_stages=4, border=AffineTime(fixed=0.5, per_byte=2.0))

    def test_the_first_microbatch_passes_all_and_the_others_wait_for_the_slowest(self):
        # 5 microbatches, 3 of 4 stages in use
        found = split_iteration(self.PLAN, WORK, SENT, Overlap.ALL, EACH)
        assert found.time == (10 + 4 + 6) + (1 + 2) + 4 * 10
        assert found.stage_time == 10
        assert found.bubble_factor == found.time / 50

    def test_every_copy_has_its_stages_and_the_last_sends_nothing(self):
        plan = replace(self.PLAN, graph_repetitions=2)  # half a second and one a sequence to send
        found = split_iteration(plan, WORK, SENT + np.array([0, 0, 2.5]), Overlap.ALL, EACH)
        assert found.time == 2 * 20 + 2 * 3 + 2.5 + 4 * 10

    def test_stages_that_send_by_themselves_take_both(self):
        found = split_iteration(self.PLAN, WORK, SENT, Overlap.NONE, EACH)
        assert found.time == 20 + 3 + 4 * 11

    def test_a_release_takes_the_slowest_for_all(self):
        found = split_iteration(self.PLAN, WORK, SENT, Overlap.ALL, ONCE)
        assert found.time == 10 * (5 + 2)

    @pytest.mark.parametrize("overlap", list(Overlap))
    @pytest.mark.parametrize("seed", range(30))
    def test_it_is_a_pass_of_all_stages_and_links(self, seed, overlap):
        rng = random.Random(seed)
        line = AffineTime(fixed=rng.random())
        copies, microbatches = rng.randint(1, 3), rng.randint(1, 7)
        plan = replace(
            self.PLAN, graph_repetitions=copies, n_microbatches=microbatches, stage_transfer=line
        )
        work, sent = np.array([[rng.random(), rng.random()] for _ in range(3)]).T
        sent[-1] = line.fixed if copies > 1 else 0.0
        stages, sends = [*work] * copies, ([*sent] * copies)[:-1]
        if overlap is not Overlap.ALL:
            stages, sends = [w + x for w, x in zip(stages, [*sends, 0.0], strict=True)], [0.0] * 9
            assume_slowest = max(w + x for w, x in zip(work, sent, strict=True))
            if max(stages) < assume_slowest:  # the last stage, whose last copy sends nothing
                return
        known = pass_time(stages, sends, microbatches)
        found = split_iteration(plan, work, sent, overlap, EACH).time
        assert found == pytest.approx(known, rel=1e-12)

    def test_a_border_takes_a_fixed_time_and_one_by_bytes(self):
        # two sequences a microbatch
        assert border_time(self.PLAN, np.array(3.0)) == 0.5 + 2.0 * 2 * 3.0

    def test_nothing_takes_no_time(self):
        assert border_time(self.PLAN, np.array(0.0)) == 0.0

    @pytest.mark.parametrize(
        ("overlap", "time"),
        [(Overlap.ALL, 5.0), (Overlap.NONE, 8.0), (Overlap.COMPUTE_MEMORY, 8.0)],
    )
    def test_a_transfer_hides_only_where_everything_overlaps(self, overlap, time):
        assert stage_time(np.array(5.0), np.array(3.0), overlap) == time

    def test_as_many_stages_as_copies_are_priced_like_whole_layers(self):
        whole = a_plan(layers_per_stage=1, stage_transfer=AffineTime())
        layer = iteration(whole, 10.0, Overlap.ALL, EACH)
        stages = replace(whole, graph_repetitions=4)
        once = np.array([layer.stage_time])
        assert split_iteration(stages, once, 0 * once, Overlap.ALL, EACH).time == layer.time

    @given(split_plans, st.floats(1e-3, 1e3), st.sampled_from(list(Overlap)), both)
    def test_least_time_is_that_of_stages_all_as_fast(self, plan, layer, overlap, rules):
        every = [
            split_iteration(
                replace(plan, stage_transfer=AffineTime()),
                np.full(s, layer * plan.microbatch_size / s),
                np.zeros(s),
                overlap,
                rules,
            ).time
            for s in range(1, plan.graph_stages + 1)
        ]
        assert least_time(plan, layer, overlap, rules) == pytest.approx(min(every), rel=1e-12)

    @given(split_plans, st.floats(1e-3, 1e3), st.sampled_from(list(Overlap)), both)
    def test_the_layer_time_below_is_its_inverse(self, plan, time, overlap, rules):
        layer = layer_time_below(plan, time, overlap, rules)
        assert least_time(plan, layer, overlap, rules) == pytest.approx(time, rel=1e-12)


class TestTileCounts:
    @pytest.mark.parametrize("length", [1, 2, 7, 12, 97, 360])
    def test_every_tile_length_is_reached_by_its_fewest_tiles(self, length):
        kept = set(tile_counts(length).tolist())
        for count in range(1, length + 1):
            tile = -(-length // count)
            fewest = min(c for c in range(1, length + 1) if -(-length // c) == tile)
            assert fewest in kept

    @pytest.mark.parametrize("length", [1, 2, 7, 12, 97, 360])
    def test_no_count_left_out_pads_less(self, length):
        kept = tile_counts(length).tolist()
        for count in range(1, length + 1):
            tile = -(-length // count)
            assert any(-(-length // c) == tile and c * tile <= count * tile for c in kept)

    @pytest.mark.parametrize("most", [1, 2, 7, 30, 96, 97, 1000])
    @pytest.mark.parametrize("length", [1, 2, 96, 97, 1000])
    def test_a_limit_drops_larger_numbers_only(self, length, most):
        every = tile_counts(length).tolist()
        found = tile_counts(length, most=most).tolist()
        assert found == [count for count in every if count <= most]

    def test_long_extents_in_a_short_sequence_take_no_room(self):
        assert len(tile_counts(2**60, most=1000)) == 1000

    @pytest.mark.parametrize("length", [1, 2, 7, 12, 97, 360])
    def test_divisors_are_what_divides(self, length):
        divide = [c for c in range(1, length + 1) if length % c == 0]
        assert divide == list(divisors(length))

    def test_they_ascend(self):
        assert (np.diff(tile_counts(2048)) > 0).all()
