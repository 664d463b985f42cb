from __future__ import annotations

from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from slow_points import study_of
from test_study import STUDY, TASK, with_axes

from crosstack.explore import points as points_module
from crosstack.explore.flat import leaves
from crosstack.explore.keys import (
    MODEL,
    as_bytes,
    as_words,
    changes_key,
    from_bytes,
    hex_keys,
    is_in,
    model_version,
    number_keys,
    point_keys,
    problem_key,
    stated,
)
from crosstack.explore.points import expand
from crosstack.explore.study import read_study
from crosstack.io.native import override
from crosstack.io.yaml_tree import parse_yaml
from crosstack.version import __file__ as version_file


def keys_of(write, study: str, task: str = TASK) -> list[str]:
    write("task.yaml", task)
    return hex_keys(expand(read_study(write("study.yaml", study))).keys)


def test_every_point_has_its_own_key(write):
    axes = "  system.memory.bandwidth: {range: {from: 1, to: 300, step: 1}}\n"
    axes += "  system.chip.utilization: {range: {from: 0.1, to: 0.9, count: 300}}\n"
    assert len(set(keys_of(write, with_axes(axes)))) == 90_000


def test_the_key_is_that_of_the_problem_not_of_how_it_is_varied(write):
    by_axis = keys_of(write, with_axes("  system.chip.utilization: [0.25]\n"))
    by_name = keys_of(
        write, with_axes("  use: {path: system.chip.utilization, values: [0.5, 0.25]}\n")
    )
    in_base = keys_of(
        write,
        with_axes("  system.memory.bandwidth: [100 GB/s]\n"),
        TASK.replace("utilization: 0.9", "utilization: 0.25"),
    )
    assert by_axis[0] == by_name[1] == in_base[0]


def test_comments_and_the_order_of_fields_do_not_change_a_key(write):
    swapped = TASK.replace(
        "{bandwidth: 100 GB/s, capacity: 100 GB}", "{capacity: 100 GB, bandwidth: 100 GB/s}"
    )
    assert keys_of(write, STUDY) == keys_of(write, STUDY, "# a comment\n" + swapped)


@pytest.mark.parametrize(
    ("old", "new"),
    [("n_layers: 2", "n_layers: 3"), ("inputs: [A]", "inputs: [null]"), ("name: B", "name: C")],
)
def test_another_base_has_other_keys(write, old, new):
    assert not set(keys_of(write, STUDY)) & set(keys_of(write, STUDY, TASK.replace(old, new)))


@pytest.mark.parametrize("more", ["options: {time_limit: 3}\n", "keep: [layer_time_s]\n"])
def test_options_and_what_is_kept_are_part_of_a_key(write, more):
    assert not set(keys_of(write, STUDY)) & set(keys_of(write, STUDY + more))


def test_another_model_has_other_keys(monkeypatch):
    before = hex_keys(expand(study_of(5)).keys)
    monkeypatch.setattr(points_module, "model_version", lambda: "9.9.9+other")
    assert not set(before) & set(hex_keys(expand(study_of(5)).keys))


def test_the_version_of_the_model_names_the_release():
    from crosstack.version import __version__

    assert model_version().startswith(f"{__version__}+")


names = st.sampled_from(["a", "b", "c"])
trees = st.recursive(
    st.integers(0, 3) | st.floats(0, 1, width=16) | st.booleans() | st.none(),
    lambda inner: st.dictionaries(names, inner, max_size=3) | st.lists(inner, max_size=2),
    max_leaves=8,
)


@given(tree=st.dictionaries(names, trees, min_size=1), path=names, value=trees)
def test_a_change_makes_the_key_of_the_changed_problem(tree, path, value):
    changed = {**tree, path: value}
    key = problem_key(tree) ^ changes_key(list(leaves(tree)), [(path, value)])
    if path in tree:
        assert key == problem_key(changed)


def test_a_change_inside_a_file_makes_the_key_of_the_changed_file():
    tree = parse_yaml(TASK)
    changed = override(tree, ["system.network[0].bandwidth=7"])
    change = changes_key(list(leaves(tree)), [("system.network[0].bandwidth", 7)])
    assert problem_key(tree) ^ change == problem_key(changed)


@given(st.lists(st.floats(0.001, 1e12) | st.integers(1, 10**9), min_size=1, max_size=20))
def test_keys_of_numbers_are_made_together_as_one_by_one(values):
    base = [("x.y", 2), ("x.y.z", 5), ("x.w", 1)]
    together = number_keys(base, ["x.y", "v"], np.array(values, dtype=float))
    alone = [changes_key(base, [("x.y", value), ("v", value)]) for value in map(float, values)]
    assert np.array_equal(together, as_words(alone))


def test_numbers_that_are_equal_in_a_file_have_one_key_and_others_do_not():
    def key(value):
        return changes_key([], [("x", value)])

    assert key(1) == key(1.0)
    assert key(0.0) == key(-0.0)
    assert key(2**60) == key(2.0**60)
    others = [0, 1, True, False, None, "1", "0", 1.5, 2**60, 2**60 + 1, 10**400, -1, [], {}]
    assert len({key(value) for value in others}) == len(others)
    assert key(1) != changes_key([], [("y", 1)])


def test_a_million_points_in_a_grid_have_a_million_keys():
    numbers = np.arange(1000.0)
    keys = number_keys([], ["x"], numbers)[:, None] ^ number_keys([], ["y"], numbers)[None]
    for word in (0, 1):
        ascending = np.sort(keys[..., word], axis=None)
        assert (ascending[1:] != ascending[:-1]).all()


@given(st.lists(st.integers(0, 2**128 - 1), max_size=30), st.lists(st.integers(0, 2**128 - 1)))
def test_keys_are_found_among_others(keys, others):
    known = [*others, *keys[::2]]
    found = is_in(as_words(keys), as_words(known))
    assert found.tolist() == [key in known for key in keys]


def test_keys_with_one_equal_half_are_told_apart():
    keys = as_words([(7 << 64) + 1, (8 << 64) + 1, (7 << 64) + 2])
    assert is_in(keys, keys[:1]).tolist() == [True, False, False]


@given(st.lists(st.integers(0, 2**128 - 1), min_size=1, max_size=9))
def test_keys_are_read_as_they_are_written(keys):
    words = as_words(keys)
    assert np.array_equal(from_bytes(as_bytes(words)), words)
    assert "".join(hex_keys(words)) == as_bytes(words).hex()


def test_every_part_of_the_model_exists():
    root = Path(version_file).parent
    assert [name for name in MODEL if not (root / name).exists()] == []
    assert {p.name for p in root.iterdir() if p.is_dir()} - {*MODEL, "__pycache__"} == {
        "cli", "explore", "report",
    }  # fmt: skip


def test_keys_of_points_do_not_depend_on_their_order_or_on_where_a_record_lies():
    points = np.array([[0.25, 0.75], [0.5, 0.5]])
    keys = point_keys({"problem": 1}, ["a", "b"], points)
    assert keys[::-1] == point_keys({"problem": 1}, ["b", "a"], points[::-1, ::-1])
    assert len({*keys, *point_keys({"problem": 2}, ["a", "b"], points)}) == 4
    assert stated(print) == stated(print)
    assert " at 0x" not in stated([object(), lambda: 0])
