from __future__ import annotations

import math

import pytest

from crosstack.errors import InputError
from crosstack.machine.chip import Overlap


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
