from __future__ import annotations

import math
from dataclasses import replace

import pytest

from crosstack.errors import InputError
from crosstack.io import library
from crosstack.io.native import read_task, write_task
from crosstack.machine.chip import Overlap, flat_chip, flat_fields
from crosstack.machine.memory import main_memory
from crosstack.model.kernels.clock import product_time
from crosstack.model.rules import rules_named
from crosstack.workload.dtype import Dtype, dtype_of_size


@pytest.mark.parametrize(
    ("n_cores", "lanes", "stages", "frequency", "peak"),
    [
        # ko2025dfmodel, Table V with the cores of its setups; peaks as the tool printed them
        pytest.param(1280, 32, 6, 1.25e9, 614.4e12, id="SN30"),
        pytest.param(640, 32, 6, 1.25e9, 307.2e12, id="SN10"),
        pytest.param(1056, 16, 16, 1.837e9, 993.214470703125e12, id="H100"),
        pytest.param(8, 128, 128, 1.05e9, 275.2511875e12, id="TPU v4"),
        pytest.param(853776, 4, 1, 1.1e9, 7513.228962844849e12, id="WSE-2"),
        pytest.param(432, 16, 16, 1.41e9, 311.8694326171875e12, id="A100"),
        pytest.param(1040, 32, 6, 1.6e9, 638.9760095214844e12, id="SN40L"),
    ],
)
def test_the_peak_is_the_published_one(a_chip, n_cores, lanes, stages, frequency, peak):
    chip = a_chip(n_cores=n_cores, lanes=lanes, stages=stages, frequency=frequency)
    # The tool rounds the clock to a float32.
    assert chip.peak_throughput == pytest.approx(peak, rel=1e-7)


def test_twice_the_cores_are_twice_the_peak(a_chip):
    assert a_chip(n_cores=20).peak_throughput == 2 * a_chip(n_cores=10).peak_throughput


def test_everything_overlaps_unless_said_otherwise(a_chip):
    assert a_chip().overlap is Overlap.ALL


@pytest.mark.parametrize("utilization", [1e-3, 1, 1.0])
def test_a_share_of_the_peak_is_at_most_one(a_chip, utilization):
    assert a_chip(utilization=utilization).compute.utilization == utilization


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n_cores", 0),
        ("lanes", 1.5),
        ("stages", True),
        ("frequency", 0.0),
        ("frequency", math.inf),
        ("sram_capacity", 0.0),
        ("sram_capacity", math.nan),
        ("price", -1.0),
        ("power", -1.0),
        ("utilization", 0.0),
        ("utilization", 1.1),
    ],
)
def test_a_wrong_field_is_named(a_chip, field, value):
    with pytest.raises(InputError, match=f"^{field}: got"):
        a_chip(**{field: value})


# ---------------------------------------------------------------- what products are added up in


@pytest.mark.parametrize(
    ("name", "dtype", "faster"),
    [
        # nvidia_ampere_whitepaper, nvidia_hopper_whitepaper, nvidia_ada_whitepaper
        ("v100-sxm-16gb", Dtype.FP16, 1.0),
        ("a100-sxm-80gb", Dtype.FP16, 1.0),
        ("h100-sxm", Dtype.FP8, 1.0),
        ("rtx-4090", Dtype.FP16, 2.0),
        ("rtx-4090", Dtype.FP8, 2.0),
    ],
)
def test_a_rate_depends_on_what_products_are_added_up_in(name, dtype, faster):
    usual = library.chip(name)
    narrow = usual.adding_in(Dtype.FP16, dtype)
    assert narrow.rate(dtype) == pytest.approx(faster * usual.rate(dtype), rel=1e-3)
    assert usual.adding_in(Dtype.FP32, dtype) == usual
    clock = rules_named("crosstack").clock.kernels
    times = [
        float(product_time(clock, chip, 8192, 8192, 8192, dtype=dtype).compute_time)
        for chip in (usual, narrow)
    ]
    assert times[0] == pytest.approx(faster * times[1], rel=0.02)


def test_a_sum_without_a_rate_names_what_there_is(a_chip):
    with pytest.raises(InputError, match='"h100-sxm" has no rate for bf16 added up in fp16; allow'):
        library.chip("h100-sxm").adding_in(Dtype.FP16, Dtype.BF16)
    with pytest.raises(InputError, match="accumulator_rates.fp16.fp32: got 0.5; allowed: left out"):
        replace(a_chip().compute, accumulator_rates=((Dtype.FP16, Dtype.FP32, 0.5),))
    one_peak = a_chip()  # for any type, and any sum
    assert one_peak.adding_in(Dtype.FP16, Dtype.BF16) == one_peak


def read(text):
    return read_task(text, "test.yaml")


def test_what_a_job_adds_up_in_is_a_field_of_the_workload_and_is_written_again():
    kernel = "{name: A, kind: gemm_weight, m: 4096, k: 4096, n: 4096}"
    text = f"workload: {{word: 2, dtype: fp16, accumulator: fp16, kernels: [{kernel}]}}\n"
    task = read(f"{text}system: {{on: rtx-4090}}\n")
    assert task.system.chip.compute.accumulator is Dtype.FP16
    assert read(write_task(task)).system.chip.compute == task.system.chip.compute
    with pytest.raises(InputError, match="workload.accumulator: .*no rate for fp16 added up in"):
        read(text.replace("accumulator: fp16", "accumulator: bf16") + "system: {on: rtx-4090}\n")


@pytest.mark.parametrize(
    "changes", [{}, {"utilization": 0.9, "price": 10.0}, {"overlap": Overlap.NONE}], ids=str
)
def test_the_fields_of_a_flat_chip_make_it_again(a_chip, changes):
    chip = a_chip(**changes)
    fields = flat_fields(chip)
    assert fields is not None
    assert flat_chip(**fields, memories=chip.memories) == chip


def test_a_chip_with_levels_is_not_flat():
    assert flat_fields(library.chip("a100-sxm-80gb")) is None


@pytest.mark.parametrize(
    ("size", "among", "dtype"),
    [
        (1, (), Dtype.FP8),
        (2, (), Dtype.BF16),
        (4, (), Dtype.FP32),
        (2, (Dtype.FP32, Dtype.FP16), Dtype.FP16),
    ],
)
def test_elements_of_a_size_are_of_the_usual_type(size, among, dtype):
    assert dtype_of_size(size, among) is dtype


def test_mappings_have_what_a_framework_leaves_of_main_memory():
    bare = library.system_on("h100-dgx", chips=8).chip
    chip = library.system_on("h100-dgx", chips=8, framework="megatron").chip
    room = bare.memory_room(spilled=False)
    assert bare.set_aside == 0
    # A context of 400 MB and three communicators of 688 MB.
    assert room - chip.memory_room(spilled=False) == pytest.approx(400e6 + 3 * 688e6)
    less = chip.with_memory(spare=8e9)
    assert room - less.memory_room(spilled=False) == pytest.approx(8e9 + 400e6 + 3 * 688e6)


def test_a_second_memory_is_not_used_where_the_first_has_no_end():
    chip = flat_chip(
        n_cores=1, lanes=1, stages=1, frequency=1e9, sram_capacity=1e3,
        memories=main_memory(
            bandwidth=4.0, capacity=10.0, second_bandwidth=1.0, second_capacity=30.0
        ),
    )  # fmt: skip
    assert chip.memory_speed(spilled=True) == (10 * 4 + 30 * 1) / 40
    assert chip.with_memory(capacity=None).memory_speed(spilled=True) == 4.0
