"""Claims of the docs about steps that their source computed: vTrain's on a node."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from crosstack.evaluate.run_scores import are_computed
from crosstack.io.measured_runs import read_runs

ROWS = Path(__file__).resolve().parents[3] / "shared/data/measured/training.jsonl"
pytestmark = pytest.mark.skipif(not ROWS.exists(), reason="the runs are not beside the project")
SOURCE = "vtrain-single"
PLACE = ("hidden", "layers", "tp", "pp", "dp", "micro_batch", "microbatches")
# All-reduces on A100 in the simulator's own table (trace/a100, second time, of all chips of a group
# and whole MiB), ``bang2024vtrain``: layers of hidden size 1,024 on 12, in stages. [1], [B], [ns]
ALL_REDUCES = [
    ((2, 1, 2), 244, 1_394_200), ((2, 1, 4), 244, 1_842_300), ((1, 2, 2), 244, 1_394_200),
    ((2, 2, 2), 123, 737_400), ((4, 1, 2), 123, 737_400), ((1, 4, 2), 172, 998_200),
]  # fmt: skip
VOCABULARY, HIDDEN, LAYERS, SEQUENCE, MIB = 50257, 1024, 12, 1024, 2**20


@pytest.fixture(scope="module")
def steps():
    """Return the steps of the source by place, in whole nanoseconds."""
    rows = (json.loads(line) for line in ROWS.read_text().splitlines())
    rows = [row for row in rows if row["source"] == SOURCE]
    return {tuple(row[name] for name in PLACE): round(row["step_s"] * 1e9) for row in rows}


@pytest.fixture(scope="module")
def each(steps):
    """Return what a microbatch takes more than the one before, by place without their count."""
    counts: dict[tuple[int, ...], dict[int, int]] = {}
    for place, step in steps.items():
        counts.setdefault(place[:-1], {})[place[-1]] = step
    many = {place: sorted(found.items()) for place, found in counts.items() if len(found) > 1}
    return {
        place: {(b - a) / (n - m) for (m, a), (n, b) in pairwise(found)}
        for place, found in many.items()
    }


def test_of_all_sources_only_those_steps_are_sums():
    sets = read_runs(ROWS).sets
    assert [name for name, runs in sets.items() if are_computed(runs)] == [SOURCE]


def test_every_microbatch_takes_the_same_to_the_nanosecond(each):
    assert len(each) > 200
    assert all(len(found) == 1 for found in each.values())


def test_a_layer_takes_the_same_whatever_the_layers_stages_and_replicas(each):
    layers: dict[tuple[int, ...], set[float]] = {}
    for (hidden, count, tp, pp, dp, size), (step,) in each.items():
        more = each.get((hidden, count + 4, tp, pp, dp, size))
        if more:
            layers.setdefault((hidden, tp, size), set()).add((next(iter(more)) - step) * pp / 4)
    assert len(layers) == 12  # of four tensor degrees and three microbatches
    assert all(len(found) == 1 for found in layers.values())


@pytest.mark.parametrize(("degrees", "size", "time"), ALL_REDUCES)
def test_replicas_add_an_all_reduce_of_the_simulators_table(steps, degrees, size, time):
    tp, pp, dp = degrees
    alone, more = (
        {p[5:]: t for p, t in steps.items() if p[:5] == (HIDDEN, LAYERS, tp, pp, some)}
        for some in (1, dp)
    )
    both = alone.keys() & more.keys()
    assert both
    assert {more[place] - alone[place] for place in both} == {time}
    words = 2 * VOCABULARY // tp if pp == 1 else VOCABULARY // tp  # with the head, or without
    numbers = HIDDEN * (words + SEQUENCE + 12 * HIDDEN * LAYERS // (pp * tp))
    assert round(2 * numbers / MIB) == pytest.approx(size, abs=1)  # norms and biases left out
