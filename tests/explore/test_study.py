from __future__ import annotations

import json

import numpy as np
import pytest

from crosstack.errors import InputError
from crosstack.explore.axes import Span, quantity_in
from crosstack.explore.points import expand
from crosstack.explore.study import read_study

TASK = """\
workload:
  name: tiny
  word: 2
  n_layers: 2
  global_batch_size: 4
  sequence_length: 64
  kernels:
    - {name: A, kind: gemm_weight, m: 32, k: 32, n: 64}
    - {name: B, kind: gemm_weight, m: 32, k: 32, n: 64, inputs: [A]}
system:
  chip: {library: sn30, utilization: 0.9}
  memory: {bandwidth: 100 GB/s, capacity: 100 GB}
  network:
    - {kind: ring, size: 4, bandwidth: 25 GB/s}
"""
STUDY = """\
base: task.yaml
axes:
  memory:
    path: system.memory.bandwidth
    values: [100 GB/s, 1 TB/s]
  system.chip.utilization: [0.5, 0.9]
"""


@pytest.fixture
def study(write):
    """Return a reader of the study above with text changed."""

    def build(text: str = STUDY, **changes: str):
        write("task.yaml", TASK)
        for old, new in changes.items():
            text = text.replace(old, new)
        return read_study(write("study.yaml", text))

    return build


def with_axes(text: str) -> str:
    return f"base: task.yaml\naxes:\n{text}"


def problems(study, text: str) -> str:
    with pytest.raises(InputError) as caught:
        expand(study(text))
    return str(caught.value)


def test_points_are_every_combination_of_the_axes(study):
    points = expand(study())
    assert len(points) == 4
    assert points.column(0).tolist() == [1e11, 1e11, 1e12, 1e12]
    assert points.column(1).tolist() == [0.5, 0.9, 0.5, 0.9]
    assert points.assignments(2) == [
        ("system.memory.bandwidth", "1 TB/s"),
        ("system.chip.utilization", 0.5),
    ]


@pytest.mark.parametrize(
    ("axis", "values"),
    [
        ("{range: {from: 1 GB/s, to: 3 GB/s, step: 1 GB/s}}", [1e9, 2e9, 3e9]),
        ("{range: {from: 1 GB/s, to: 2 GB/s, count: 3}}", [1e9, 1.5e9, 2e9]),
        ("{range: {from: 1, to: 8, step: 3}}", [1, 4, 7]),
        ("{log_range: {from: 1, to: 8, step: 2}}", [1, 2, 4, 8]),
        ("{log_range: {from: 1 GB/s, to: 100 GB/s, count: 3}}", [1e9, 1e10, 1e11]),
        ("{log_range: {from: 1, to: 10, count: 4}, whole: true}", [1, 2, 5, 10]),
        ("[1 GB/s, 2 MB/s]", [1e9, 2e6]),
        ("[pcie, nvlink]", ["pcie", "nvlink"]),
        ("[1, pcie]", ["1", "pcie"]),
        ("[true, false]", ["true", "false"]),
    ],
)
def test_an_axis_has_the_values_that_are_asked_for(study, axis, values):
    points = expand(study(with_axes(f"  system.memory.bandwidth: {axis}\n")))
    found = points.column(0).tolist()
    if isinstance(values[0], str):
        assert found == values
    else:
        assert found == pytest.approx(values, rel=1e-12)


def test_whole_numbers_are_set_as_whole_numbers(study):
    axis = "  system.n_chips: {range: {from: 2, to: 8, step: 2}}\n"
    assert expand(study(with_axes(axis))).assignments(1) == [("system.n_chips", 4)]
    assert isinstance(expand(study(with_axes(axis))).assignments(1)[0][1], int)


def test_presets_set_several_fields_under_a_name(study):
    points = expand(
        study(
            with_axes(
                "  machine:\n    presets:\n"
                "      small: {system.memory.bandwidth: 1 GB/s, system.chip.utilization: 0.1}\n"
                "      large: {system.memory.bandwidth: 9 GB/s}\n"
            )
        )
    )
    assert points.column(0).tolist() == ["small", "large"]
    assert dict(points.assignments(0))["system.chip.utilization"] == 0.1


def test_zipped_fields_change_together(study):
    axis = "  both: {zip: {system.memory.bandwidth: [1, 2], system.chip.utilization: [0.1, 0.2]}}\n"
    points = expand(study(with_axes(axis)))
    assert len(points) == 2
    assert points.assignments(1) == [
        ("system.memory.bandwidth", 2),
        ("system.chip.utilization", 0.2),
    ]


def test_one_value_may_be_set_in_several_fields(study):
    axis = "  both: {path: [system.memory.bandwidth, system.memory.capacity], values: [7]}\n"
    assert dict(expand(study(with_axes(axis))).assignments(0)) == {
        "system.memory.bandwidth": 7,
        "system.memory.capacity": 7,
    }


SAMPLED = (
    "  memory: {path: system.memory.bandwidth, log_range: {from: 1 GB/s, to: 1 TB/s, count: 5}}\n"
    "  use: {path: system.chip.utilization, range: {from: 0.1, to: 0.9, count: 5}}\n"
    "  chip: {path: system.chip.overlap, values: [all, none]}\n"
)


@pytest.mark.parametrize("method", ["sobol", "random"])
def test_samples_lie_in_their_ranges_and_cross_the_other_axes(study, method):
    text = with_axes(SAMPLED) + f"sample: {{method: {method}, count: 64, seed: 5}}\n"
    points = expand(study(text))
    assert len(points) == 128
    memory, use = points.column(0), points.column(1)
    assert memory.min() >= 1e9
    assert memory.max() <= 1e12
    # By logarithm: as many below the geometric mean of the ends as above.
    assert abs((memory < 10**10.5).mean() - 0.5) < 0.15
    assert abs(use.mean() - 0.5) < 0.05
    pairs = set(zip(memory.tolist(), use.tolist(), strict=True))
    assert len(pairs) == 64
    again = expand(study(text))
    assert np.array_equal(again.keys, points.keys)


def test_a_sample_of_one_range_leaves_the_other_a_grid(study):
    text = with_axes(SAMPLED) + "sample: {count: 8, axes: [memory]}\n"
    assert len(expand(study(text))) == 8 * 5 * 2


def test_constraints_on_axes_leave_points_out(study):
    text = STUDY + "constraints: {memory: {min: 200 GB/s}}\n"
    assert expand(study(text)).column(0).tolist() == [1e12, 1e12]


def test_bits_a_second_are_a_bandwidth(study):
    axis = "  system.memory.bandwidth: [400 Gb/s, 50 GB/s, 1 Tbit/s]\n"
    with pytest.raises(InputError, match="a value twice"):
        study(with_axes(axis))
    points = expand(study(with_axes(axis.replace("50 GB/s, ", ""))))
    assert points.column(0).tolist() == [5e10, 1.25e11]
    assert points.assignments(0) == [("system.memory.bandwidth", "400 Gb/s")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("axes: {}\n", "base: required, but missing"),
        ("base: task.yaml\naxes: {}\n", "axes: got none"),
        ("base: other.yaml\naxes: {a: [1]}\n", "base: other.yaml: no such file"),
        (STUDY + "axis: 1\n", 'unknown field. Did you mean "axes"'),
        (STUDY + "evaluate: maps\n", 'Did you mean "map"'),
        (STUDY + "options: {time: 3}\n", 'options.time: no such option. Did you mean "time_limit"'),
        (STUDY + "options: {gap: -1}\n", "options.gap: got -1"),
        (STUDY + "objectives: {tim: min}\n", 'objectives.tim: no such axis or term. Did you mean'),
        (STUDY + "objectives: {time: least}\n", "objectives.time: got 'least'; allowed: min, max"),
        (STUDY + "constraints: {prize: {max: 1}}\n", 'Did you mean "price"'),
        (STUDY + "constraints: {price: {max: dear}}\n", "constraints.price.max: got 'dear'"),
        (STUDY + "constraints: {memory: {max: 1 GB/s}}\n", "leave no point: memory <= 1e+09"),
        (STUDY + "sample: {count: 3}\n", "sample: allowed: with at least one axis that is a range"),
        (STUDY + "sample: {count: 3, axes: [memory]}\n", 'no range is called "memory"'),
        (with_axes("  a: {path: b}\n"), "axes.a: got none of them; allowed: exactly one of"),
        (with_axes("  a: {path: b, values: [1], zip: {}}\n"), "got values and zip"),
        (with_axes("  a: []\n"), "axes.a: got 'no value'"),
        (with_axes("  a: [1, 1]\n"), "a value twice"),
        (with_axes("  a: {range: {from: 1 GB/s, to: 2 W, count: 3}}\n"), "to: is in W; from is"),
        (with_axes("  a: {range: {from: 1 Gb/s, to: 2, count: 3}}\n"), "allowed in a range: GB/s"),
        (with_axes("  a: {range: {from: 1, to: 2}}\n"), "got none; allowed: exactly one of"),
        (with_axes("  a: {range: {from: 1, to: 2, step: 0}}\n"), "a step above 0"),
        (with_axes("  a: {log_range: {from: 0, to: 2, count: 3}}\n"), "from: got 0; allowed:"),
        (with_axes("  a: {range: {from: 3, to: 2, count: 3}}\n"), "to: got 2; allowed: at least"),
        (with_axes("  a: {range: {from: 1, to: .inf, count: 3}}\n"), "to: got inf; allowed: a"),
        (with_axes("  a: {zip: {x: [1], y: [1, 2]}}\n"), "x: 1, y: 2; allowed: lists of one"),
        (with_axes("  a: {path: x, values: [1]}\n  b: {path: x, values: [1]}\n"), 'as "a" does'),
        (with_axes("  time: {path: x, values: [1]}\n"), 'a column of the result is called "time"'),
    ],
)  # fmt: skip
def test_a_bad_study_is_refused_in_one_line_each(study, text, message):
    found = problems(study, text)
    assert message in found
    assert all("study.yaml: " in line for line in found.splitlines() if "leave no" not in line)


def test_too_many_points_are_refused_before_they_are_made(study):
    axes = "".join(
        f"  a{i}: {{path: system.x{i}, range: {{from: 1, to: 1000, step: 1}}}}\n" for i in range(4)
    )
    assert "1,000,000,000,000 points" in problems(study, with_axes(axes))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("450 GB/s", (450e9, "B/s")),
        ("30 %", (0.3, "1")),
        ("5e2 W", (500.0, "W")),
        ("2 USD/(GB/s)", (2e-9, "USD/(B/s)")),
        (7, (7.0, "")),
        ("sn30", None),
        ("7", None),
        (True, None),
        ("8x8", None),
        (None, None),
    ],
)
def test_a_quantity_is_told_from_a_name(text, found):
    assert quantity_in(text) == found


@pytest.mark.parametrize("log", [False, True])
def test_a_span_meets_its_ends_exactly(log):
    span = Span(low=0.1, high=0.7, count=11, log=log)
    assert span.grid[0] == 0.1
    assert span.grid[-1] == 0.7
    assert (np.diff(span.grid) > 0).all()


@pytest.mark.parametrize(
    "name", ["x/../../../../victim", "..", ".hidden", "a b", "a\\b", "a\nb", "n" * 81, "-x"]
)
def test_a_name_that_could_lead_elsewhere_is_refused(study, name):
    with pytest.raises(InputError, match="name: got .*; allowed: letters, digits"):
        study(STUDY + f"name: {json.dumps(name)}\n")


def test_a_study_without_a_name_has_that_of_its_file_as_a_name_may_be(study, tmp_path):
    assert study().name == "study"
    (tmp_path / "my study (2).yaml").write_text((tmp_path / "study.yaml").read_text())
    assert read_study(tmp_path / "my study (2).yaml").name == "my_study_2_"
