"""ZB-H2 and ZB-V: their orders, what is published of them, times and memory by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

import crosstack
from crosstack import Constraints, Degrees, InputError, Job
from crosstack.evaluate.predicted import predict_job
from crosstack.evaluate.time import evaluate
from crosstack.model.schedule.passes import Operation, Pass, Stage
from crosstack.model.schedule.pipeline import pass_order, pipeline_time, stage_ends
from crosstack.model.schedule.zero_bubble import (
    chip_pieces,
    least_microbatches,
    piece_chip,
    v_order,
    waiting_order,
)
from crosstack.workload.transformer_training import Recompute, Schedule, Zero

H1, H2, V = Schedule.ZB_H1, Schedule.ZB_H2, Schedule.ZB_V
SMALL = Job(model=crosstack.model("llama3.2-1b"), batch=16, sequence=512)


def stages(count: int, forward: float, inputs: float, weights: float) -> list[Stage]:
    """So many stages that are alike."""
    one = Operation(name="layers", forward=forward, backward=inputs + weights, weights=weights)
    return [Stage(operations=(one,))] * count


def order_of(chip: int, chips: int, microbatches: int, schedule: Schedule):
    """Passes of a chip, in order."""
    if schedule is V:
        return v_order(chip, chips, microbatches)
    return waiting_order(chip, chips, microbatches, schedule)


@pytest.mark.parametrize("schedule", [H1, H2, V])
@pytest.mark.parametrize(("chips", "more"), [(2, 0), (2, 5), (3, 1), (4, 0), (8, 3)])
def test_every_pass_of_every_microbatch_is_run_once(schedule, chips, more):
    microbatches = least_microbatches(chips, schedule) + more
    pieces = chips * (schedule.pieces or 1)
    found = [*pass_order(pieces, microbatches, schedule, interleave=schedule.pieces or 1)]
    kinds = Pass.FORWARD, Pass.INPUTS, Pass.WEIGHTS
    whole = {(s, i, kind) for s in range(pieces) for i in range(microbatches) for kind in kinds}
    assert set(found) == whole
    assert len(found) == len(whole)


@pytest.mark.parametrize("chips", [2, 4, 8])
@pytest.mark.parametrize(
    ("schedule", "passes"), [(H1, (1, 1, 1)), (H2, (1, 1, 1)), (H2, (1, 1.3, 0.9)), (V, (1, 1, 1))]
)
def test_a_chip_idles_between_its_first_pass_and_its_last_as_published(schedule, passes, chips):
    # qi2024zero, table 1: ZB-H1 (p - 1)(F + B - G), ZB-H2 (p - 1)(F + B - 2 G); section 6: ZB-V
    # none of equal passes. Chips begin one pass, or one of a piece, behind one another.
    forward, inputs, weights = passes
    pieces, m = schedule.pieces or 1, 3 * chips
    ends = stage_ends(
        stages(pieces * chips, *(t / pieces for t in passes)), m, schedule, interleave=pieces
    )
    busy = m * sum(passes)
    idle = max(end - chip * forward / pieces for chip, end in enumerate(ends)) - busy
    published = {H1: forward + inputs - weights, H2: forward + inputs - 2 * weights, V: 0.0}
    assert idle == pytest.approx((chips - 1) * published[schedule], abs=1e-9)


@pytest.mark.parametrize("chips", [2, 4, 8])
def test_what_a_step_takes_that_waits_for_all_chips(chips):
    # F 1, B 1.3, G 0.8 s: of ZB-H2 the last chip begins p - 1 forward passes late and never idles.
    passes, m = (1.0, 1.3, 0.8), 4 * chips
    found = {
        order: pipeline_time(
            stages((order.pieces or 1) * chips, *(t / (order.pieces or 1) for t in passes)),
            m,
            order,
            interleave=order.pieces or 1,
        )
        - m * sum(passes)
        for order in (Schedule.ONE_F_ONE_B, H1, H2, V)
    }
    assert found[Schedule.ONE_F_ONE_B] == pytest.approx((chips - 1) * 3.1)
    assert found[H1] == pytest.approx((chips - 1) * (1 + 1.3 - 0.8))
    assert found[H2] == pytest.approx((chips - 1) * 1.0)
    assert found[V] < found[H2]


def test_zb_h2_by_hand():
    # Two stages, three microbatches, F 1, B 2, W 1 s. First: F0 F1 F2 until 3, B0 from 4 (last: F0
    # 1-2, B0 2-4) to 6, W0 7; last: F1 5, B1 7, F2 8, B2 10, W0 W1 W2 13; first: B1 7-9, W1 10,
    # B2 10-12, W2 13.
    assert pipeline_time(stages(2, 1.0, 2.0, 1.0), 3, H2) == 13.0
    assert stage_ends(stages(2, 1.0, 2.0, 1.0), 3, H2) == [13.0, 13.0]


def test_zb_v_by_hand():
    # Two chips, pieces 0 and 3, 1 and 2; three microbatches, all passes 1 s. Chip 0: F0 x 3 until
    # 3, then what the second piece of chip 1 hands on: F of piece 3 at 3 (pieces 1, 2 ran 1-3).
    ends = stage_ends(stages(4, 1.0, 1.0, 1.0), 3, V, interleave=2)
    assert ends == [18.0, 19.0]  # 3 x 3 x 2 s each, one of which begins 1 s late
    assert chip_pieces(0, 2, 4, V) == [0, 3]
    assert [piece_chip(piece, 2, V) for piece in range(4)] == [0, 1, 1, 0]


@pytest.mark.parametrize("schedule", [H1, H2, V])
@pytest.mark.parametrize("recompute", [Recompute.NONE, Recompute.FULL])
def test_memory_holds_what_the_order_of_passes_keeps(schedule, recompute):
    # Of each layer k until its pass to the inputs, w until that to the weights.
    system = crosstack.system("h100-dgx", chips=4)
    given = Constraints(
        degrees=Degrees(tensor=1, pipeline=4, data=1), microbatch_size=1, schedule=schedule,
        recompute=recompute, zero=Zero.NONE,
    )  # fmt: skip
    plan = crosstack.optimise(SMALL, system, constraints=given, work_limit=1e3)
    account = plan.evaluation.memory
    layers = 16 // 4 // (schedule.pieces or 1)
    most = []
    for chip in range(4):
        held = {"kept": 0, "waiting": 0}
        points = set()
        for _, _, kind in order_of(chip, 4, 16, schedule):
            step = {Pass.FORWARD: (1, 0), Pass.INPUTS: (-1, 1), Pass.WEIGHTS: (0, -1)}[kind]
            if kind is Pass.INPUTS:  # in place of what is kept while it runs
                points.add((held["kept"] - 1, held["waiting"] + 1))
            held = {"kept": held["kept"] + step[0], "waiting": held["waiting"] + step[1]}
            points.add((held["kept"], held["waiting"]))
        most.append(points)
    kept, waiting, again = sizes_of(plan)
    for chip, points in enumerate(most):
        peak = max(layers * (k * kept + w * waiting) for k, w in points)
        assert account.stages[chip].activations == pytest.approx(peak + again, rel=1e-9)


def sizes_of(plan):
    """Bytes of a layer that are kept, that gradients of weights wait with, computed again. [B]"""
    task, mapping = plan.task, plan.mapping
    one = replace(mapping, schedule=Schedule.GPIPE, interleave=1)

    def activations(schedule: Schedule, batch: int) -> list[float]:
        system, workload = task.system, task.workload
        found = evaluate(workload, system, replace(one, schedule=schedule), plan.rules)
        return [stage.activations for stage in found.memory.stages]

    first = activations(Schedule.ONE_F_ONE_B, 16)  # p - s of 4 layers each, and what is again
    kept = (first[0] - first[1]) / 4
    again = first[3] - 4 * kept
    waits = activations(H1, 16)
    # Stage 3: 3 wait, and the larger of what is kept and what waits is there once.
    left = waits[3] - again
    waiting = left / 16 if left / 16 > kept else (left - 4 * kept) / 12
    return kept, waiting, again


# ---------------------------------------------------------------- end to end


@pytest.mark.parametrize("schedule", [H2, V])
def test_map_predict_and_events_agree(schedule):
    system = crosstack.system("h100-dgx", chips=4)
    given = Constraints(
        degrees=Degrees(tensor=1, pipeline=4, data=1), microbatch_size=1, schedule=schedule
    )
    plan = crosstack.optimise(SMALL, system, constraints=given, work_limit=1e4)
    assert plan.mapping.schedule is schedule
    assert plan.mapping.interleave == (schedule.pieces or 1)
    again = crosstack.evaluate(plan.task, plan.mapping)
    assert again.time == pytest.approx(plan.certificate.objective, rel=1e-9)
    account = plan.step_account()
    assert sum(time for _, time in account.spent) == pytest.approx(again.time, rel=1e-9)
    said = predict_job(SMALL, system, "tp=1,pp=4,dp=1", microbatches=16, schedule=schedule)
    (timeline,) = said.timelines()
    assert timeline.makespan == pytest.approx(said.time, rel=1e-9)


def test_layers_alone_idle_less_with_zb_v_and_no_more_is_kept_than_by_1f1b():
    # The first chip has both ends of a whole model, so that a long head weighs on it.
    system = crosstack.system("h100-dgx", chips=4)
    found = {}
    for schedule in (Schedule.ONE_F_ONE_B, H1, V):
        given = Constraints(
            degrees=Degrees(tensor=1, pipeline=4, data=1), microbatch_size=1, schedule=schedule,
            recompute=Recompute.NONE, zero=Zero.NONE,
            interleave=1 if schedule is Schedule.ONE_F_ONE_B else None,
        )  # fmt: skip
        layers = replace(SMALL, block="layers")
        found[schedule] = crosstack.optimise(layers, system, constraints=given, work_limit=1e3)
    times = [found[one].evaluation.time for one in (V, H1, Schedule.ONE_F_ONE_B)]
    assert times == sorted(times)
    kept = [max(s.activations for s in plan.evaluation.memory.stages) for plan in found.values()]
    assert kept[2] <= kept[0] * (1 + 1e-9)


@pytest.mark.parametrize(
    ("schedule", "given", "says"),
    [
        ("zb-h2", "tp=1,pp=4,dp=1,microbatch=4", "1f1b, or twice as many microbatches as stages"),
        ("zb-v", "tp=1,pp=4,dp=1,microbatch=4", "multiple of twice the stages"),
        ("zb-v", "tp=1,pp=4,dp=1,interleave=4", "interleave: got 4; allowed: 2 with schedule zb-v"),
        ("zb-h2", "tp=1,pp=4,dp=1,interleave=2", "interleave: got 2; allowed: 1 with"),
        ("zb-v", "tp=1,pp=4,dp=1,zero=2", "allowed: 0 or 1 with schedule zb-v"),
        ("zb-v", "tp=1,pp=4,dp=1,recompute=full:1", "allowed: none with schedule zb-v"),
    ],
)
def test_what_a_schedule_cannot_follow_is_refused(schedule, given, says):
    system = crosstack.system("h100-dgx", chips=4)
    with pytest.raises(InputError, match=says):
        predict_job(SMALL, system, f"{given},schedule={schedule}")


def test_a_free_search_says_that_it_left_them_out():
    system = crosstack.system("h100-dgx", chips=2)
    plan = crosstack.optimise(SMALL, system, work_limit=1e2)
    assert "no schedule zb-h2 or zb-v" in plan.certificate.given
