"""What results of products take: those that are wider than operands, and gradients that add up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crosstack.evaluate.predicted import predict_job
from crosstack.io import library
from crosstack.machine.memory import Scope
from crosstack.model.kernels.flat import ConstantShare
from crosstack.model.kernels.results import results_of
from crosstack.model.kernels.roofline import Roofline
from crosstack.workload.architectures.transformer import Transformer
from crosstack.workload.dtype import Dtype
from crosstack.workload.job import Job

H100 = library.chip("h100-sxm")
NEAR = next(level for level in H100.levels if level.scope is Scope.CHIP).speed
CLOSE = {"rel": 1e-12}


def job(batch=8, gradients=None, dtype=Dtype.BF16):
    model = Transformer(
        name="tiny", hidden=512, layers=2, heads=8, kv_heads=8, head_size=64, feed_forward=2048,
        vocabulary=1024, context=256,
    )  # fmt: skip
    return Job(model=model, batch=batch, sequence=256, dtype=dtype, gradients=gradients)


def results(chip=H100, microbatches=4, shared=False, clock=None, **changes):
    graph = job(**changes).workload.graph
    clock = clock or Roofline()
    return graph, results_of(graph, chip, clock, microbatches, shared=shared)


def driven(name):
    return library.driven(library.system_on("h100-dgx", chips=8), name).chip


@pytest.mark.parametrize(("gradients", "moved"), [(None, 4), (Dtype.FP32, 8)])
def test_a_gradient_of_a_weight_is_read_and_written_as_it_is_added_up(gradients, moved):
    graph, found = results(gradients=gradients)
    summed = graph.periodic_size > 0
    products = graph.gemm & ~summed
    assert summed.any()
    assert found.beside[summed & graph.gemm] == pytest.approx((moved - 2) / NEAR, **CLOSE)
    assert not found.beside[products].any()  # 16 bits, as what they multiply
    assert not found.behind.any()
    assert not found.launches.any()


def test_a_clock_without_tiles_hides_all():
    assert not results(clock=ConstantShare())[1].beside.any()


def test_results_of_eight_bits_are_wider():
    graph, found = results(dtype=Dtype.FP8)
    eight = np.array([dtype is Dtype.FP8 for dtype in graph.dtypes]) & (graph.periodic_size == 0)
    assert eight.any()
    assert found.beside[eight] == pytest.approx((2 - 1) / NEAR, **CLOSE)


def test_a_framework_whose_products_do_not_add_has_a_kernel_behind_each():
    chip = driven("eager")
    graph, found = results(chip, microbatches=4, gradients=Dtype.FP32)
    summed = graph.periodic_size > 0
    # Three of four microbatches read 2 bytes that were made and 4 of the sum, and write the sum.
    taken = 3 / 4 * (2 + 4 + 4) / chip.main_memory.speed
    assert found.behind[summed] == pytest.approx(taken, **CLOSE)
    assert found.launches[summed] == pytest.approx(3 / 4, **CLOSE)
    assert found.wider[summed] == pytest.approx(2 / 4, **CLOSE)
    assert not found.beside[graph.gemm].any()
    assert not found.behind[~summed].any()


@pytest.mark.parametrize(("microbatches", "shared"), [(1, False), (4, True)])
def test_what_is_sent_at_once_or_comes_alone_is_not_added_up(microbatches, shared):
    found = results(driven("eager"), microbatches, shared)[1]
    assert not found.behind.any()
    assert not found.launches.any()


def test_gradients_are_copied_before_they_are_sent_where_a_framework_does_so():
    chip = driven("eager")
    chip = replace(chip, framework=replace(chip.framework, sent_passes=6.0))
    graph, found = results(chip, shared=True)
    summed = graph.periodic_size > 0
    assert found.behind[summed] == pytest.approx(6 * 2 / chip.main_memory.speed, **CLOSE)
    assert not found.behind[~summed].any()
    # Once in four microbatches, of which three add: 2 bytes each read twice and written.
    for alone, passes in ((False, 6), (True, 0)):
        behind = results_of(graph, chip, Roofline(), 4, shared=False, alone=alone).behind
        taken = (3 / 4 * 6 + 1 / 4 * passes * 2) / chip.main_memory.speed
        assert behind[summed] == pytest.approx(taken, **CLOSE)


def test_a_step_takes_what_its_sums_take():
    system = library.driven(library.system_on("h100-dgx", chips=8), "eager")
    framework = replace(system.chip.framework, dispatch=None)
    apart = replace(system, chip=replace(system.chip, framework=framework))
    chip = replace(system.chip, framework=replace(framework, fused_sums=True))
    one = job(batch=32, gradients=Dtype.FP32)
    given = "tp=1,pp=1,dp=8,microbatch=1,zero=0"
    graph = one.workload.graph
    numbers = (graph.rows * graph.columns)[(graph.periodic_size > 0) & graph.gemm].sum()
    summed = int(((graph.periodic_size > 0) & graph.gemm).sum())
    fused, behind = (
        predict_job(one, replace(apart, chip=each), given).plan.evaluation.layer_time
        for each in (chip, apart.chip)
    )
    speed = chip.main_memory.speed
    more = 3 / 4 * (numbers * 10 / speed + summed * chip.launch_overhead) - numbers * 6 / NEAR
    # Elementwise kernels write gradients of norms, too; those products wait for main memory less.
    assert behind - fused == pytest.approx(more, rel=0.15)
