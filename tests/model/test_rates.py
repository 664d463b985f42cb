"""Claims about what a chip reaches in numbers of one type."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crosstack.errors import InputError
from crosstack.evaluate.plan import given_plan, optimise
from crosstack.io import library
from crosstack.machine.chip import Chip, flat_chip
from crosstack.machine.memory import main_memory
from crosstack.machine.system import Dimension, DimensionKind, System
from crosstack.mapping.mapping import Task
from crosstack.model.rules import MAPPED, rule_names, rules_named
from crosstack.published.dfmodel.graphs.fft import fft
from crosstack.published.dfmodel.graphs.hpl import hpl
from crosstack.published.dfmodel.graphs.llm import llm
from crosstack.workload.dtype import Dtype, dtype_of_word

CROSSTACK = rules_named("crosstack")
BOTH = np.array([True, False])  # on the systolic array, and on its lanes
PLAIN = flat_chip(n_cores=4, lanes=8, stages=4, frequency=1e9, sram_capacity=1e6)
MIXED = replace(PLAIN, name="mixed").with_compute(
    relative_rates=((Dtype.FP64, 1 / 16), (Dtype.BF16, 1.0), (Dtype.FP8, 2.0))
)
PUBLISHED = [name for name in rule_names(MAPPED) if name != "crosstack"]


def on(chip: Chip, workload, **changes) -> Task:
    ring = Dimension(kind=DimensionKind.RING, size=1, bandwidth=1e12)
    system = System(
        chip=replace(chip, memories=main_memory(bandwidth=1e15)), network=(ring, ring), n_chips=1
    )
    return Task(workload=workload, system=replace(system, **changes))


@pytest.mark.parametrize(
    ("word", "dtype"),
    [(1, "fp8"), (2, "bf16"), (3, "fp32"), (4, "fp32"), (8, "fp64"), (16, "fp64")],
)
def test_elements_are_computed_with_what_fills_the_word(word, dtype):
    assert dtype_of_word(word) == dtype


@pytest.mark.parametrize(("word", "dtype"), [(4, "bf16"), (8, "fp32"), (16, "fp64")])
def test_a_complex_point_is_computed_with_numbers_of_half_a_word(word, dtype):
    assert fft(length=4096, word=word).graph.dtype == dtype


def test_a_factorisation_is_in_double_precision():
    assert hpl(size=64, block=16).graph.dtype is Dtype.FP64


@pytest.mark.parametrize("dtype", Dtype)
def test_a_chip_that_names_only_its_peak_has_it_in_every_type(dtype):
    assert CROSSTACK.clock.peak_rate(PLAIN, dtype) == PLAIN.peak_throughput


def test_a_chip_has_the_rate_of_the_type():
    rates = [CROSSTACK.clock.peak_rate(MIXED, d) for d in (Dtype.FP64, Dtype.BF16, Dtype.FP8)]
    assert rates == [16e9, 256e9, 512e9]


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_rules_know_one_peak(name):
    assert rules_named(name).clock.peak_rate(MIXED, Dtype.FP64) == MIXED.peak_throughput


def test_a_type_without_a_rate_is_refused_by_name():
    with pytest.raises(InputError) as caught:
        CROSSTACK.clock.peak_rate(MIXED, Dtype.INT8)
    assert '"mixed" has no rate for int8; it has fp64, bf16, fp8.' in str(caught.value)


def test_rates_follow_cores_and_clock():
    faster = MIXED.with_compute(frequency=2e9, n_units=8, n_multiprocessors=8)
    assert faster.rate(Dtype.FP64) == 4 * MIXED.rate(Dtype.FP64)


def test_elementwise_kernels_are_no_faster_than_the_rate():
    # 32 lanes at 1 GHz are twice the 16 GFLOP/s of double precision.
    steps = CROSSTACK.clock.cycles_per_step(MIXED, Dtype.FP64, BOTH)
    assert steps.tolist() == [16.0, 2.0]


def test_narrow_types_speed_up_products_alone():
    steps = CROSSTACK.clock.cycles_per_step(MIXED, Dtype.FP8, BOTH)
    assert steps.tolist() == [0.5, 1.0]


# Specifications of the data sheets, dense.
@pytest.mark.parametrize(
    ("name", "dtype", "tera"),
    [
        ("h100", Dtype.FP64, 67.0),
        ("h100", Dtype.BF16, 989.5),
        ("h100", Dtype.FP8, 1979.0),
        ("a100", Dtype.FP64, 19.5),
        ("a100", Dtype.TF32, 156.0),
        ("a100", Dtype.BF16, 312.0),
        ("tpu_v4", Dtype.INT8, 275.0),
    ],
)
def test_a_chip_of_the_library_has_the_rate_of_its_data_sheet(name, dtype, tera):
    assert library.chip(name).rate(dtype) == pytest.approx(tera * 1e12, rel=1e-12)


@pytest.mark.parametrize("utilization", [None, 0.9])
def test_a_factorisation_takes_as_much_longer_as_the_rate_is_lower(utilization):
    """One kernel, compute bound: 16 times the time at a sixteenth of the rate."""
    work = hpl(size=512, block=64, iterations=1)
    plain, mixed = (chip.with_compute(utilization=utilization) for chip in (PLAIN, MIXED))
    slow, fast = optimise(on(mixed, work)), optimise(on(plain, work))
    assert slow.evaluation.time == pytest.approx(16 * fast.evaluation.time, rel=1e-12)
    assert slow.evaluation.utilization == pytest.approx(fast.evaluation.utilization, rel=1e-12)


@pytest.mark.parametrize("utilization", [None, 0.9])
@pytest.mark.parametrize("dtype", [Dtype.FP64, Dtype.BF16, Dtype.FP8])
def test_the_bound_holds_in_every_type(dtype, utilization):
    """What is proved optimal is what the evaluation gives, elementwise kernels included."""
    work = llm(
        hidden=64, sequence_length=32, n_heads=4, head_size=16, n_layers=1, global_batch_size=2,
        training=False,
    )  # fmt: skip
    work = replace(work, graph=work.graph.computed_in(dtype))
    answer = optimise(on(MIXED.with_compute(utilization=utilization), work), work_limit=1e5)
    assert answer.certificate.bound <= answer.evaluation.time * (1 + 1e-9)
    again = given_plan(answer.task, answer.mapping)
    assert again.evaluation.time == answer.evaluation.time
