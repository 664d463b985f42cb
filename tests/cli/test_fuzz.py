"""Random changes to a good file: whatever comes, it is never a bug."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import tempfile
from pathlib import Path

import pytest
import yaml
from builders.examples import fewer
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from crosstack.io.yaml_tree import parse_yaml

# Scalars that have broken programs before, and those a person may type.
SCALARS = [
    None, True, False, 0, 1, -1, 2, 3, 5, 7, 32, 64, 0.5, 1e-9, 1e9, 1e30, 1e300, 100_000, 2**31,
    2**53 - 1, 2**53, 2**63, 10**40, math.nan, math.inf, -math.inf, -0.0, "", " ", "A", "F", "m",
    "none", 720_720,
    "tensor", "ring", "sn30", "1 GB", "20 GB/s", "-3 s", "9" * 300, "\x1b[31m", "é\u2028", "[red]",
]  # fmt: skip
COLLECTIONS = [[], {}, [None], ["A", "A"], {"A": 0}, {"A": "m"}, [[]], {"": {}}]
NAMES = [
    "word", "n_layers", "outer", "k", "repeats", "unit", "tiling", "direction", "memory_traffic",
    "sram_extra", "memory_extra", "input_sizes", "output_size", "weight_size", "communications",
    "utilization", "overlap", "parallelism", "library", "latency", "size", "microbatch_size",
    "n_tiles", "tile_size", "max_partitions", "kernel_by_kernel", "separate_directions",
    "partitions", "sharding", "constraints", "rules", "topology", "prices", "tensors", "llm", "x",
    "saved", "recompute",
]  # fmt: skip


def places(tree, path=()):
    """Return the path of every entry of a tree."""
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree)
    found = []
    for key, value in entries:
        found.append((*path, key))
        if isinstance(value, dict | list):
            found += places(value, (*path, key))
    return found


def at(tree, path):
    for part in path:
        tree = tree[part]
    return tree


@st.composite
def mutations(draw, tree, most=3):
    """Return the tree with a few entries deleted, replaced, copied over or added."""
    tree = copy.deepcopy(tree)
    for _ in range(draw(st.integers(1, most))):
        paths = places(tree)
        if not paths:
            break
        *parents, last = draw(st.sampled_from(paths))
        inside = at(tree, parents)
        action = draw(st.sampled_from(["delete", "replace", "replace", "copy", "add"]))
        value = copy.deepcopy(draw(st.sampled_from([*SCALARS, *COLLECTIONS])))
        if action == "delete":
            del inside[last]
        elif action == "replace":
            inside[last] = value
        elif action == "copy":
            inside[last] = copy.deepcopy(at(tree, draw(st.sampled_from(paths))))
        elif isinstance(inside, dict):
            inside[draw(st.sampled_from(NAMES))] = value
        else:
            inside.append(value)
    return tree


def check(run, tree):
    """Map a tree; the command must end well, whatever is in it."""
    with tempfile.TemporaryDirectory() as folder:
        path, result = Path(folder) / "task.yaml", Path(folder) / "result.json"
        text = yaml.safe_dump(tree, sort_keys=False, allow_unicode=False)
        path.write_text(text)
        outcome = run("map", path, "--work-limit", 3e4, "--json", result)
        told = f"{text}\n{outcome.err}"
        assert outcome.code in (0, 2, 3, 4), told
        assert ("Traceback" in outcome.err, "Warning" in outcome.err) == (False, False), told
        assert result.exists() == (outcome.code in (0, 4)), told
        if outcome.code in (0, 4):
            check_result(run, path, json.loads(result.read_text()), told)
        else:
            assert outcome.problems, told
            assert outcome.code == 2 or len(outcome.problems) == 1, told


def check_result(run, path, result, told):
    """An answer is finite, its bound is below it, and its mapping is worth what it says."""
    assert math.isfinite(result["time_s"]), told
    assert result["time_s"] > 0, told
    assert 0 <= result["bound_s"] <= result["time_s"] * (1 + 1e-9), told
    again = path.parent / "again.json"
    outcome = run("evaluate", path, "--mapping", path.parent / "result.json", "--json", again)
    assert outcome.code == 0, f"{told}\n{outcome.err}"
    assert json.loads(again.read_text())["time_s"] == pytest.approx(result["time_s"], rel=1e-9)


@pytest.fixture(scope="module", autouse=True)
def little_memory():
    """Let a run that wants gigabytes fail, and not the machine."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture(scope="module")
def trees(small_text):
    """Return the good trees."""
    constraints = "constraints: {max_partitions: 4, partitions: {A: 0}, sharding: {A: m}}\n"
    llm = """\
workload:
  dfmodel: {llm: {hidden: 8, sequence_length: 4, n_heads: 2, head_size: 4, n_layers: 2,
    global_batch_size: 4, training: false}}
"""
    system = small_text[small_text.index("system:") :]
    return {
        "graph": parse_yaml(small_text + constraints),
        "llm": parse_yaml(llm + system),
    }


@pytest.mark.parametrize("name", ["graph", "llm"])
@given(data=st.data())
@fewer(0.25)
def test_a_file_with_random_changes_is_never_a_bug(run, trees, name, data):
    check(run, data.draw(mutations(trees[name])))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["graph", "llm"])
@given(data=st.data())
@settings(max_examples=300, phases=[Phase.explicit, Phase.generate])
def test_a_file_with_many_random_changes_is_never_a_bug(run, trees, name, data):
    check(run, data.draw(mutations(trees[name], most=6)))


@given(data=st.data())
@settings(fewer(0.25), phases=[Phase.explicit, Phase.generate])
def test_a_result_with_random_changes_is_never_a_bug(run, small_text, small_result, data):
    result = json.loads(small_result)
    decisions = ("rules", "network", "microbatch_size", "n_tiles", "kernels")
    changed = data.draw(mutations({name: result[name] for name in decisions}))
    with tempfile.TemporaryDirectory() as folder:
        task, mapping = Path(folder) / "task.yaml", Path(folder) / "result.json"
        task.write_text(small_text)
        mapping.write_text(json.dumps(changed))
        outcome = run("evaluate", task, "--mapping", mapping)
        assert outcome.code in (0, 2, 3), f"{changed}\n{outcome.err}"
        assert (outcome.code == 0) == (outcome.out != "")


@given(text=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
@example(text=b"\xef\xbb\xbf")
@example(text=b"workload: \xf0\x9f\x98\x80\nsystem: {")
@fewer(0.2)
def test_random_bytes_are_never_a_bug(run, text):
    for suffix in (".yaml", ".txt"):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"task{suffix}"
            path.write_bytes(text)
            outcome = run("map", path)
            assert (outcome.code, outcome.out, outcome.problems != []) == (2, "", True)


LETTERS = st.sampled_from(["{", "}", ":", '"', "-1", "nan", "7", "x", "\n", "FWD", "kernels", "<"])


@given(data=st.data())
@fewer(0.2)
def test_dfmodel_text_with_random_changes_is_never_a_bug(run, dfmodel_text, data):
    tokens = dfmodel_text.split(" ")
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(tokens) - 1))
        tokens[place] = data.draw(LETTERS | st.just(""))
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("task.txt").write_text(" ".join(tokens))
        outcome = run("map", "task.txt", "--work-limit", 3e4)
        assert outcome.code in (0, 2, 3, 4), outcome.err
        assert (outcome.code in (0, 4)) == (outcome.out != "")
